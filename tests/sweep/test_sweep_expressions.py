"""The expression evaluator: values against Python's own arithmetic, derivatives, and refusal of everything else."""

import math
import string

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax.sweep.errors import SpecError
from hetjax.sweep.expressions import parse_expression

VALUES = {"q": 0.75, "K": 3.0, "m": 5.0, "r": -2.5}
PYTHON = {"min": min, "max": max, "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "exp": math.exp,
          "log": math.log, "abs": abs, "inf": math.inf, "pi": math.pi}


@pytest.mark.parametrize("text", [
    "q * m + K / 2 - r", "-q ** 2", "K // 2 + K % 2", "r // 2", "r % 2", "min(q, K, m) + max(q, r)",
    "ceil(q) + floor(r)",
    "sqrt(K) + exp(r) - log(m) + abs(r)", "2 ** 10 + K ** 3 + m ** q", "pi * 1e3", "+q", "(q + (K * (m - (r))))"])
def test_numbers_agree_with_python(text):
    expected = eval(text, {"__builtins__": {}}, PYTHON | VALUES)
    expression = parse_expression(text, "key")
    for xp in (np, jnp):
        found = expression(xp, {name: xp.asarray(v, dtype=np.float64) for name, v in VALUES.items()})
        assert found == pytest.approx(expected, rel=4e-16)  # a few roundings differ by an ulp


@pytest.mark.parametrize("text", [
    "q < K", "q < K <= m", "not q > K", "q < 1 and K == 3 or m != 5", "K != 3", "0 < q < 0.5", "not (q < 1 and K >= 3)",
])
def test_conditions_agree_with_python(text):
    expected = eval(text, {"__builtins__": {}}, PYTHON | VALUES)
    found = parse_expression(text, "key", condition=True)(np, {name: np.float64(v) for name, v in VALUES.items()})
    assert bool(found) is expected


def test_names_and_float32():
    expression = parse_expression("q * m + 0.1", "key")
    assert expression.names == {"q", "m"}
    found = jax.jit(lambda q, m: expression(jnp, {"q": q, "m": m}, jnp.float32))(jnp.float32(2), jnp.float32(3))
    assert found.dtype == jnp.float32


def test_powers_have_derivatives_at_and_below_zero():
    expression = parse_expression("q ** 3", "key")
    slope = jax.grad(lambda q: expression(jnp, {"q": q}))
    assert float(slope(jnp.float64(0.0))) == 0.0
    assert float(slope(jnp.float64(-2.0))) == 12.0


def test_division_by_zero_and_huge_powers_give_infinity_at_no_cost():
    assert parse_expression("1 / 0", "key")(np, {}) == math.inf
    assert parse_expression("9 ** 9 ** 9 ** 9", "key")(np, {}) == math.inf


@pytest.mark.parametrize(("text", "part"), [
    ("__import__('os').system('x')", "Call"), ("q.real", "Attribute"), ("[q]", "List"), ("q if K else m", "IfExp"),
    ("lambda: q", "Lambda"), ("q[0]", "Subscript"), ("'text'", "Constant"), ("1j", "Constant"), ("True", "Constant"),
    ("sqrtt(q)", "did you mean 'sqrt'"), ("sqrt(q, K)", "takes 1 arguments"), ("min(q)", "2 to 20"),
    ("q & K", "BitAnd"), ("q is K", "comparison Is"), ("q << 2", "LShift"), ("min(*q, K)", "Starred"),
    ("min(q, x=K)", "Call"),
    ("q < K", "condition"), ("q + (K < m)", "condition"), ("q +", "arithmetic"), ("", "arithmetic"),
    ("q; K", "arithmetic"),
    ("q := 3", "arithmetic"), ("(" * 300 + "q" + ")" * 300, "arithmetic"), ("-" * 60 + "q", "nested"),
    ("q" + "+q" * 600, "characters"), ("1" * 400, "too large"), ("f'{q}'", "JoinedStr"), (3, "no expression"),
    ("\0", "read")])
def test_refusals_name_the_key_and_stay_on_one_line(text, part):
    with pytest.raises(SpecError) as caught:
        parse_expression(text, "[derived] lam")
    message = str(caught.value)
    assert message.startswith("[derived] lam") and "\n" not in message and part in message


TOKENS = st.sampled_from(["q", "K", "lam", "1", "2.5", "1e999", "+", "-", "*", "/", "//", "%", "**", "<", "<=", "==",
                          "and",
                          "or", "not", "(", ")", ",", "min", "max", "sqrt", "exp", ".", "[", "]", "lambda", ":",
                          "__class__",
                          "'", "if", "else", "for", "in", "=", "await", "yield", "{", "}", "@", "\\", "\n", "#",
                          "0x1F", "1_0"])


@settings(max_examples=400)
@given(st.one_of(st.lists(TOKENS, max_size=14).map(" ".join), st.text(string.printable, max_size=30)))
def test_any_text_is_arithmetic_or_refused(text):
    """Whatever the text, the answer is a number or condition for numpy, or one line of refusal."""
    for condition in (False, True):
        try:
            expression = parse_expression(text, "[derived] x", condition)
        except SpecError as error:
            assert "\n" not in str(error) and str(error).startswith("[derived] x")
            continue
        found = np.asarray(expression(np, dict.fromkeys(expression.names, np.float64(0.5))))
        assert found.shape == () and found.dtype == (bool if condition else np.float64)
