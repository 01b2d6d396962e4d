"""The closed form against exact rationals, the reference table, the dense chain and itself under transformations."""

import functools
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.overflow.overflow_oracle import STATES, balance_equations, exact_metrics, exact_probabilities

import hetjax
from hetjax.models import overflow
from hetjax.models.overflow import MODEL, Costs, Params
from hetjax.result import Status

TOLERANCE = 1e-13
RATES = ("lambda1", "lambda2", "mu1", "mu2")
rate = st.floats(-6, 6).map(lambda x: float(np.clip(10.0**x, 1e-6, 1e6)))
rates = st.tuples(rate, rate, rate, rate)
CORNERS = [tuple(10.0 ** (6 * sign) for sign in signs)
           for signs in np.ndindex(2, 2, 2, 2) for signs in [[2 * s - 1 for s in signs]]]
evaluate_all = jax.jit(lambda p, c: overflow.metrics(p, c)._asdict())


def relative_error(value, exact, scale=None):
    return float(abs(Fraction(float(value)) - exact) / (abs(exact) if scale is None else scale))


def test_reference_table(reference):
    rows = reference("overflow")["rows"]
    assert len(rows) >= 8
    columns = {name: [float(Fraction(row["exact"][k])) for row in rows] for k, name in enumerate(RATES)}
    out = overflow.evaluate(**columns)
    names = [name for name in rows[0] if name not in (*RATES, "exact")]
    assert {"p_loss", "pi21", "overflow_rate_1", "malposition_middle"} <= set(names)
    for name in names:
        for value, row in zip(out[name], rows, strict=True):
            assert relative_error(value, Fraction(row[name])) < TOLERANCE, name
    assert (np.asarray(out.status) == Status.OK).all()


def check_point(point, costs=(1.0, 1.0, 0.0, 0.0)):
    found = evaluate_all(Params(*point), Costs(*costs))
    for name, (exact, scale) in exact_metrics(*point, *costs).items():
        if (exact if scale is None else scale) == 0:  # all costs are zero
            assert float(found[name]) == 0.0, name
        else:
            assert relative_error(found[name], exact, scale) < TOLERANCE, (name, point)


@given(rates, st.tuples(*[st.sampled_from([0.0, 1.0, 0.3, 1e6]) | st.floats(1e-3, 1e3)] * 4))
@settings(max_examples=150)
def test_every_metric_against_exact_rationals(point, costs):
    check_point(point, costs)


@pytest.mark.parametrize("point", CORNERS)
def test_every_metric_at_the_corners_of_the_domain(point):
    check_point(point)


@given(rates)
@settings(max_examples=100)
def test_conditions_have_the_right_sign(point):
    """The sign may be wrong only where the sides agree to 1e-14: there the inputs' own rounding decides."""
    found = evaluate_all(Params(*point), Costs())
    for name in ("absolute_loss_reduction", "relative_loss_reduction"):
        exact, scale = exact_metrics(*point)[f"{name}_margin"]
        if abs(exact) > 1e-14 * scale:
            assert float(found[name]) == (exact > 0)
            assert np.sign(float(found[f"{name}_margin"])) == (1 if exact > 0 else -1)


def test_break_even_cost_makes_the_costs_equal():
    p = Params(1.0, 2.0, 3.0, 1.5)
    break_even = float(evaluate_all(p, Costs(2.0, 5.0, 0.0, 0.0))["break_even_overflow_cost"])
    cheaper, even, dearer = (evaluate_all(p, Costs(2.0, 5.0, x * break_even, x * break_even)) for x in (0.99, 1, 1.01))
    assert break_even > 0
    np.testing.assert_allclose(even["cost_rate"], even["cost_rate_without_overflow"], rtol=1e-15)
    assert float(cheaper["cost_saving"]) > 0 > float(dearer["cost_saving"])


@given(rates)
@settings(max_examples=30)
def test_generator_is_the_papers_chain(point):
    """The generator, built from the description, has exactly the rates of the printed balance equations."""
    q = np.asarray(overflow.generator(Params(*point)))
    expected = np.zeros((9, 9))
    for state, (_, inflow) in balance_equations(*point).items():
        for source, value in inflow.items():
            expected[STATES.index(source), STATES.index(state)] = value
    np.testing.assert_array_equal(q - np.diag(np.diag(q)), expected)
    np.testing.assert_allclose(-np.diag(q), expected.sum(1), rtol=1e-15)


@functools.cache
def derivatives(mode):
    """rates (4,) -> derivatives (metrics, 4)."""
    transform = {"forward": jax.jacfwd, "reverse": jax.jacrev}[mode]
    return jax.jit(transform(lambda rates: jnp.stack(overflow.metrics(Params(*rates)))))


def check_gradients(point, dtype, tolerance, floor=0.0):
    """Against central differences of the exact rational function with a relative step of 1e-25 (error 1e-50).

    The derivative may vanish where the value does not, so the error is measured against value / rate too; for a
    difference of two sides, against the larger side / rate.
    """
    step = Fraction(1, 10**25)
    point = [float(dtype(x)) for x in point]
    both = [np.asarray(derivatives(mode)(jnp.asarray(point, dtype))) for mode in ("forward", "reverse")]
    centre = exact_metrics(*point)
    for k, name in enumerate(RATES):
        up, down = ([Fraction(x) * (1 + sign * step if i == k else 1) for i, x in enumerate(point)] for sign in (1, -1))
        above, below = exact_metrics(*up), exact_metrics(*down)
        for metric, (size, scale) in centre.items():
            exact = (above[metric][0] - below[metric][0]) / (2 * Fraction(point[k]) * step)
            allowed = max(abs(exact), (abs(size) if scale is None else scale) / Fraction(point[k]))
            if allowed < floor:
                continue
            for found in both:
                value = found[overflow.Metrics._fields.index(metric), k]
                assert relative_error(value, exact, allowed) < tolerance, (metric, name, point)


@given(rates)
@settings(max_examples=25)
def test_gradients_in_both_modes(point):
    check_gradients(point, np.float64, 1e-13)


@pytest.mark.parametrize("point", CORNERS[::3])
def test_gradients_at_corners(point):
    check_gradients(tuple(np.clip(x, 1.1e-6, 9e5) for x in point), np.float64, 1e-13)


@pytest.mark.slow
def test_second_derivatives():
    """Both orders of the modes against second differences of the exact rational function (relative error 1e-30)."""
    names = ("p_loss", "pi21", "pi12", "overflow_rate_1", "wrong_assignment_ratio_total",
             "relative_loss_reduction_margin", "break_even_overflow_cost")
    point = (1.3, 0.7, 2.1, 0.4)

    def chosen(rates):
        found = overflow.metrics(Params(*rates))
        return jnp.stack([getattr(found, name) for name in names])

    hessians = [jax.jit(outer(inner(chosen)))(jnp.asarray(point))
                for outer, inner in ((jax.jacfwd, jax.jacrev), (jax.jacrev, jax.jacfwd))]
    step = [Fraction(x) / 10**15 for x in point]

    def exact(*moves):
        return exact_metrics(*(Fraction(x) + h * moves.count(i) - h * moves.count(~i)
                               for i, (x, h) in enumerate(zip(point, step, strict=True))))

    centre = exact()
    for i, j in itertools.combinations_with_replacement(range(4), 2):  # ~i moves the other way
        corners = [exact(i, j), exact(~i, j), exact(i, ~j), exact(~i, ~j)]
        for k, name in enumerate(names):
            up, mixed, back, down = (corner[name][0] for corner in corners)
            second = (up - mixed - back + down) / (4 * step[i] * step[j])
            size = centre[name][1] if centre[name][1] is not None else abs(centre[name][0])
            scale = max(abs(second), size / (Fraction(point[i]) * Fraction(point[j])))
            for hessian in hessians:
                assert relative_error(hessian[k, i, j], second, scale) < 1e-13, (name, i, j)


@given(rates)
@settings(max_examples=60)
def test_float32(point):
    """At the float32-rounded inputs; 3e-6 is about 25 units in the last place. Below 1e-30 products leave float32."""
    point = [float(np.float32(x)) for x in point]
    found = evaluate_all(Params(*(jnp.float32(x) for x in point)), Costs())
    for name, (exact, scale) in exact_metrics(*point).items():
        assert found[name].dtype == jnp.float32
        if abs(exact if scale is None else scale) > Fraction(10) ** -30:
            assert relative_error(found[name], exact, scale) < 3e-6, (name, point)


@given(rates)
@settings(max_examples=10)
def test_float32_gradients(point):
    check_gradients(point, np.float32, 1e-5, floor=Fraction(10) ** -28)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_nan_at_the_corners(dtype):
    p = Params(*(jnp.asarray(column, dtype) for column in np.array(CORNERS).T))
    assert np.isfinite(jnp.stack(jax.jit(overflow.metrics)(p))).all()
    for point in CORNERS:
        assert np.isfinite(derivatives("forward")(jnp.asarray(point, dtype))).all()
        assert np.isfinite(derivatives("reverse")(jnp.asarray(point, dtype))).all()
    assert (np.asarray(overflow.status(p)) == Status.OK).all()


def test_jit_vmap_and_evaluate_agree_with_one_point_at_a_time():
    grid = np.random.default_rng(0).uniform(-2, 2, (4, 50))
    columns = [jnp.asarray(10.0**row) for row in grid]
    plain = jax.jit(overflow.metrics)
    batch, mapped = plain(Params(*columns)), jax.jit(jax.vmap(overflow.metrics))(Params(*columns))
    registered = hetjax.evaluate("overflow", **dict(zip(RATES, columns, strict=True)))
    for i in range(50):
        single = (plain if i > 2 else overflow.metrics)(Params(*(float(c[i]) for c in columns)))  # without jit too
        for name in single._fields:
            # 8 units in the last place of the value (differences: of the sides, all below 1e3 here)
            for other in (getattr(batch, name), getattr(mapped, name), registered[name]):
                np.testing.assert_allclose(other[i], getattr(single, name), rtol=2e-15, atol=2e-15 * 1e2)


def test_probabilities_sum_to_one_and_p_loss_is_erlang_b():
    p = Params(*(jnp.asarray(c) for c in 10.0 ** np.random.default_rng(1).uniform(-6, 6, (4, 200))))
    pi = jax.jit(overflow.probabilities)(p)
    np.testing.assert_allclose(pi.sum((-2, -1)), 1.0, rtol=4e-15)
    load = np.asarray(p.rho1 + p.rho2)
    np.testing.assert_allclose(jax.jit(overflow.metrics)(p).p_loss, load**2 / (2 + 2 * load + load**2), rtol=4e-15)


def test_traced_once_for_a_whole_batch():
    count = 0

    def counted(p):
        nonlocal count
        count += 1
        return overflow.metrics(p).p_loss

    jitted = jax.jit(counted)
    for k in range(1, 4):
        jitted(Params(1.0 * k, 2.0, 3.0, 4.0))
    assert count == 1


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("value", [0.0, -1.0, 1e-7, 2e6, float("nan"), float("inf")])
def test_bad_rates_raise_one_line_and_give_a_status(name, value):
    good = dict.fromkeys(RATES, 1.0)
    with pytest.raises(ValueError, match=rf"^{name} = .* outside its domain \[1e-06, 1e\+06\]") as caught:
        Params(**{**good, name: value})
    assert "\n" not in str(caught.value)
    out = overflow.evaluate(**{**good, name: [value, 1.0]}, metrics=["p_loss"])
    assert np.asarray(out.status).tolist() == [Status.OUT_OF_DOMAIN, Status.OK]


def test_bad_costs():
    with pytest.raises(ValueError, match=r"^overflow_cost_1 = -1.0 is outside its domain \[0, 1e\+06\]"):
        Costs(overflow_1=-1.0)
    out = overflow.evaluate(lambda1=1.0, lambda2=1.0, mu1=1.0, mu2=1.0, loss_cost_2=[-1.0, 2.0])
    assert np.asarray(out.status).tolist() == [Status.OUT_OF_DOMAIN, Status.OK]


def test_domain_ends_are_inside_in_float32():
    ends = jnp.asarray([1e-6, 1e6], jnp.float32)
    assert (np.asarray(overflow.status(Params(ends, ends, ends, ends))) == Status.OK).all()


def test_registry_metrics_are_the_functions():
    assert [m.name for m in MODEL.metrics] == list(overflow.Metrics._fields)
    assert hetjax.get_model("overflow") is MODEL
    assert all(m.meaning and m.unit for m in MODEL.metrics) and all(a.meaning and a.unit for a in MODEL.axes)


def test_oracle_against_itself():
    """The rational elimination satisfies all nine balance equations, also the one it left out."""
    point = (Fraction(1, 3), Fraction(5, 2), Fraction(7), Fraction(2, 9))
    p = exact_probabilities(*point)
    for state, (outflow, inflow) in balance_equations(*point).items():
        assert outflow * p[state] == sum(value * p[source] for source, value in inflow.items())
    assert sum(p.values()) == 1
