"""Phase-type distributions: moments against exact rationals, fits, gradients, float32, errors, samples."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hetjax.processes import (
    MAP,
    PH,
    coxian,
    coxian_two_moments,
    erlang,
    erlang_mixture,
    exponential,
    from_moments,
    hyperexponential,
    hyperexponential_balanced,
    hyperexponential_three_moments,
)


def exact_moments(alpha, T, orders=3):
    """Moments in rationals by Gauss-Jordan on the very floats of the representation."""
    n = len(alpha)
    rows = [[Fraction(-float(T[i][j])) for j in range(n)] + [Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    for k in range(n):
        pivot = rows[k][k]
        rows[k] = [x / pivot for x in rows[k]]
        for i in range(n):
            if i != k:
                factor = rows[i][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    inverse = [row[n:] for row in rows]
    vector, found = [Fraction(1)] * n, []
    for order in range(1, orders + 1):
        vector = [sum(inverse[i][j] * vector[j] for j in range(n)) for i in range(n)]
        found.append(math.factorial(order) * sum(Fraction(float(a)) * v for a, v in zip(alpha, vector, strict=True)))
    return found


CASES = {
    "exponential": lambda: exponential(2.5),
    "erlang": lambda: erlang(5, 3.0),
    "hyperexponential": lambda: hyperexponential([0.25, 0.75], [0.125, 8.0]),
    "coxian": lambda: coxian([1.0, 2.0, 0.25], [0.5, 0.75]),
    "balanced": lambda: hyperexponential_balanced(1.0, 100.0),
    "three moments": lambda: hyperexponential_three_moments(1.0, 10.0, 400.0),
    "mixture": lambda: erlang_mixture(2.0, 0.3),
    "feedback": lambda: PH([0.5, 0.25, 0.25], [[-4.0, 1.0, 2.0], [0.5, -1.0, 0.25], [2.0, 1.0, -8.0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_moments_against_rationals(name):
    law = CASES[name]()
    for order, exact in enumerate(exact_moments(law.alpha, law.T), 1):
        assert abs(float(law.moment(order)) / float(exact) - 1) < 3e-15 * law.phases
    assert bool(law.is_valid())


def test_moments_of_a_nearly_absorbing_free_chain():
    """Exit rates 2^-40 of the others, held exactly: a pivoting solver loses ten digits here, elimination none."""
    tiny = 2.0**-40
    law = PH([1.0, 0.0], [[-1.0, 1.0], [1.0, -1.0 - tiny]])
    exact = exact_moments(law.alpha, law.T, 2)
    assert abs(float(law.moment(1)) / float(exact[0]) - 1) < 1e-14
    assert abs(float(law.moment(2)) / float(exact[1]) - 1) < 1e-14


@given(mean=st.floats(1e-3, 1e3), scv=st.floats(1.0, 1e4))
@example(mean=1.0, scv=1.0)
@settings(max_examples=30)
def test_balanced_hyperexponential(mean, scv):
    law = hyperexponential_balanced(mean, scv)
    assert abs(float(law.mean()) / mean - 1) < 1e-14
    assert abs(float(law.scv()) / scv - 1) < 1e-13
    share = law.alpha / -jnp.diag(law.T)
    assert abs(float(share[0] / share[1]) - 1) < 1e-13


@given(mean=st.floats(0.1, 10), scv=st.floats(1.001, 100), factor=st.floats(1.001, 50))
@settings(max_examples=30)
def test_three_moments(mean, scv, factor):
    third = 1.5 * mean**3 * (1 + scv) ** 2 * factor
    law = hyperexponential_three_moments(mean, scv, third)
    # the phases merge at scv = 1 and factor = 1: the condition number grows like 1/(scv - 1), 1/(factor - 1)
    room = 1e-14 * (1 + 1 / (scv - 1)) * (1 + 1 / (factor - 1))
    assert abs(float(law.mean()) / mean - 1) < room
    assert abs(float(law.scv()) / scv - 1) < 10 * room
    assert abs(float(law.moment(3)) / third - 1) < 10 * room
    assert bool(law.is_valid())


@given(mean=st.floats(0.1, 10), scv=st.floats(0.5, 50))
@example(mean=1.0, scv=0.5)
@example(mean=1.0, scv=1.0)
@settings(max_examples=30)
def test_coxian_two_moments(mean, scv):
    law = coxian_two_moments(mean, scv)
    assert abs(float(law.mean()) / mean - 1) < 1e-14
    assert abs(float(law.scv()) - scv) < 1e-13 * (1 + scv)


@given(mean=st.floats(0.1, 10), scv=st.floats(0.05, 1.0))
@example(mean=1.0, scv=0.25)
@example(mean=1.0, scv=1.0)
@example(mean=1.0, scv=1 / 3)
@settings(max_examples=30)
def test_erlang_mixture(mean, scv):
    law = erlang_mixture(mean, scv)
    assert law.phases == max(2, math.ceil(1 / scv * (1 - 1e-12)))
    assert abs(float(law.mean()) / mean - 1) < 1e-14
    assert abs(float(law.scv()) - scv) < 1e-13


@pytest.mark.parametrize("scv", [0.07, 0.5, 1.0, 1.5, 40.0])
def test_from_moments(scv):
    law = from_moments(3.0, scv)
    assert abs(float(law.mean()) / 3 - 1) < 1e-14 and abs(float(law.scv()) / scv - 1) < 1e-13
    assert float(from_moments(1.0, 4.0, 90.0).moment(3)) == pytest.approx(90, rel=1e-13)
    assert float(law.rescaled(0.5).mean()) == pytest.approx(0.5, rel=1e-14)
    assert float(law.rescaled(0.5).scv()) == pytest.approx(scv, rel=1e-13)


@pytest.mark.parametrize("scv", [0.6, 1.0, 7.0])
def test_gradients_in_the_scv(scv):
    """d/dc of E X^3 of Cox-2 against its closed form, through SCV = 1 without a kink."""
    def third(c):
        return coxian_two_moments(1.0, c).moment(3)

    # rates 2 and 1/c, p = 1/(2c): E X^3 = 6 (1/8 + (c/4 + c^2/2 + c^3)/(2c)) = 6 (1/4 + c/4 + c^2/2)
    exact = 6 * (1 / 4 + scv)
    assert float(jax.grad(third)(scv)) == pytest.approx(exact, rel=1e-13)
    assert float(jax.jacfwd(third)(scv)) == pytest.approx(exact, rel=1e-13)
    assert float(jax.grad(lambda c: coxian_two_moments(2.0, c).scv())(scv)) == pytest.approx(1, rel=1e-12)
    assert float(jax.grad(lambda c: coxian_two_moments(2.0, c).mean())(scv)) == pytest.approx(0, abs=1e-13)


def test_gradients_of_the_fits():
    for make, c in ((hyperexponential_balanced, 4.0), (lambda m, c: erlang_mixture(m, c, 4), 0.27)):
        assert float(jax.grad(lambda c, make=make: make(2.0, c).scv())(c)) == pytest.approx(1, rel=1e-12)
        assert float(jax.grad(lambda c, make=make: make(2.0, c).mean())(c)) == pytest.approx(0, abs=1e-13)
        assert float(jax.grad(lambda m, make=make, c=c: make(m, c).mean())(2.0)) == pytest.approx(1, rel=1e-13)
    slopes = jax.jacobian(lambda c: hyperexponential_three_moments(1.0, c, 500.0).moment(3))(10.0)
    assert float(slopes) == pytest.approx(0, abs=1e-9)  # the third moment is held fixed; its size is 500


def test_pytrees_and_transformations():
    scvs = jnp.array([1.5, 4.0, 30.0])
    laws = jax.vmap(lambda c: hyperexponential_balanced(1.0, c))(scvs)
    assert laws.alpha.shape == (3, 2) and laws.T.shape == (3, 2, 2)
    np.testing.assert_allclose(jax.jit(jax.vmap(PH.scv))(laws), scvs, rtol=1e-13)
    assert bool(jnp.all(jax.vmap(PH.is_valid)(laws)))
    assert not bool(jax.jit(lambda a: PH(a, jnp.array([[-1.0, 0.0], [0.0, -1.0]])).is_valid())(jnp.array([0.5, 0.6])))
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(exponential(1.0))]
    assert paths == [".alpha", ".T"]


def test_rates_computed_inside_jit_are_valid():
    """A fused x - diag(x) once left the rounding of a diagonal entry as a negative rate off the diagonal."""
    def valid(exponents):
        def one(a):
            p = jnp.array([0.9, 0.1])
            rates = p**a
            rates = rates * jnp.sum(p / rates)
            both = -jnp.diag(rates)
            return PH(p, both).is_valid() & MAP(both, -both * p[:, None] / p[:, None]).is_valid()

        return jax.vmap(one)(exponents)

    assert bool(jnp.all(jax.jit(valid)(jnp.linspace(0, 1, 201))))


def test_float32():
    law = hyperexponential_balanced(np.float32(1), 10.0)
    assert law.T.dtype == jnp.float32 and law.moment(3).dtype == jnp.float32
    assert float(law.scv()) == pytest.approx(10, rel=2e-6)
    assert float(erlang_mixture(np.float32(1), 0.3).scv()) == pytest.approx(0.3, rel=3e-6)
    assert bool(law.is_valid())


@pytest.mark.parametrize(("make", "words"), [
    (lambda: PH([0.5, 0.6], [[-1.0, 0.0], [0.0, -1.0]]), "alpha"),
    (lambda: PH([1.5, -0.5], [[-1.0, 0.0], [0.0, -1.0]]), "alpha"),
    (lambda: PH([1.0], [[-1.0, 0.0], [0.0, -1.0]]), "shapes"),
    (lambda: PH([1.0, 0.0], [[-1.0, 2.0], [0.0, -1.0]]), "sub-generator"),
    (lambda: PH([1.0, 0.0], [[-1.0, -0.5], [0.0, -1.0]]), "off-diagonal"),
    (lambda: PH([1.0, 0.0], [[-1.0, 1.0], [1.0, -1.0]]), "absorption"),
    (lambda: PH([1.0], [[float("nan")]]), "T"),
    (lambda: exponential(0.0), "rate"),
    (lambda: erlang(0, 1.0), "order"),
    (lambda: erlang(2, -1.0), "rate"),
    (lambda: coxian([1.0, 2.0], [1.5]), "continue_probabilities"),
    (lambda: coxian([1.0, 2.0], [0.5, 0.5]), "continue_probabilities"),
    (lambda: hyperexponential_balanced(1.0, 0.9), "scv"),
    (lambda: hyperexponential_balanced(-1.0, 2.0), "mean"),
    (lambda: hyperexponential_three_moments(1.0, 2.0, 13.5), "third"),
    (lambda: hyperexponential_three_moments(1.0, 1.0, 20.0), "scv"),
    (lambda: coxian_two_moments(1.0, 0.49), "scv"),
    (lambda: erlang_mixture(1.0, 0.3, 3), "scv"),
    (lambda: from_moments(1.0, 0.0), "scv"),
    (lambda: jax.jit(lambda c: from_moments(1.0, c))(2.0), "traced"),
])
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["erlang", "hyperexponential", "coxian", "feedback"])
def test_samples(name):
    """Mean, second moment and three points of the distribution function within four standard errors."""
    law = CASES[name]()
    x = np.asarray(jax.jit(lambda key: law.sample(key, (40_000,)))(jax.random.key(1)))
    for order in (1, 2):
        exact, error = float(law.moment(order)), x.std() if order == 1 else (x**2).std()
        assert abs((x**order).mean() - exact) < 4 * error / math.sqrt(x.size)
    for point in (0.3, 1.0, 2.0):
        point = point * float(law.mean())
        tail = float(np.asarray(law.alpha) @ scipy.linalg.expm(np.asarray(law.T) * point) @ np.ones(law.phases))
        assert abs((x > point).mean() - tail) < 4 * math.sqrt(tail * (1 - tail) / x.size)
