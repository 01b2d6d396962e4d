"""The propositions of the paper's appendix as properties.

Three parts hold for alpha = mu2/mu1 = 1 only: 4(iii), 5(i) and the last part of 7, all about moving load between the
types at a fixed sum. They are tested there, and shown to fail elsewhere. The other parts are tested for every alpha.
Strict inequalities are checked where float64 can show them: loads in [1e-3, 1e3].
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hetjax.models import overflow
from hetjax.models.overflow import Params

EXAMPLES = settings(max_examples=150)
load = st.floats(-3, 3).map(lambda x: 10.0**x)
ratio = st.floats(-2, 2).map(lambda x: 10.0**x)
share = st.floats(0.01, 0.49)


def of_loads(rho1, rho2, alpha):
    return overflow.metrics(Params(rho1, rho2 * alpha, jnp.ones_like(alpha), alpha))


metrics = jax.jit(lambda *loads: of_loads(*(jnp.asarray(x) for x in loads)))


@jax.jit
def slopes(rho1, rho2, alpha):
    """(d/d rho1, d/d rho2) of every metric at fixed alpha."""
    return jax.jacfwd(of_loads, argnums=(0, 1))(jnp.asarray(rho1), jnp.asarray(rho2), jnp.asarray(alpha))


def slope(rho1, rho2, alpha, name):
    return np.array([float(part) for part in getattr(slopes(rho1, rho2, alpha), name)])


def away_from_sum_slope(rho1, rho2, alpha, name):
    """Derivative as |rho2 - rho1| grows at a fixed sum."""
    first, second = slope(rho1, rho2, alpha, name)
    return (second - first) * np.sign(rho2 - rho1)


# Propositions 1 to 3: losses, overflow rates and ratios

@given(load, load, ratio)
@EXAMPLES
def test_proposition_1_absolute_loss_reduction(rho1, rho2, alpha):
    high, low = max(rho1, rho2), min(rho1, rho2)
    gap = low * low + 2 * low - high * high
    assume(abs(gap) > 1e-12 * high * high)
    assert float(metrics(rho1, rho2, alpha).absolute_loss_reduction) == (gap > 0)


@given(load, ratio)
@EXAMPLES
def test_corollary_1_equal_loads_always_lose_less(rho, alpha):
    m = metrics(rho, rho, alpha)
    assert float(m.relative_loss_reduction_margin) > 0
    assert float(m.absolute_loss_reduction) == 1


@given(load, load)
@EXAMPLES
def test_corollary_1_equal_arrival_rates(rho1, rho2):
    left = rho1**3 + rho2**3
    right = rho1**2 * rho2 + rho2**2 * rho1 + 4 * rho1 * rho2 + 2 * rho1 + 2 * rho2
    assume(abs(left - right) > 1e-12 * left)
    assert float(metrics(rho1, rho2, rho1 / rho2).relative_loss_reduction) == (left < right)


@given(load, load)
@EXAMPLES
def test_corollary_1_equal_service_rates_always_lose_less(rho1, rho2):
    assert float(metrics(rho1, rho2, 1.0).relative_loss_reduction_margin) > 0


@given(load, load, ratio)
@EXAMPLES
def test_lemma_1_absolute_reduction_implies_relative(rho1, rho2, alpha):
    m = metrics(rho1, rho2, alpha)
    assert float(m.relative_loss_reduction) >= float(m.absolute_loss_reduction)


def test_relative_reduction_does_not_imply_absolute():
    m = metrics(0.1, 2.0, 1.0)
    assert (float(m.relative_loss_reduction), float(m.absolute_loss_reduction)) == (1, 0)


@given(load, load, ratio)
@EXAMPLES
def test_proposition_2_rates_and_ratios_from_the_probabilities(rho1, rho2, alpha):
    m = metrics(rho1, rho2, alpha)
    own_busy = (float(m.pi10 + m.pi20), float(m.pi01 + m.pi02))
    arrivals = (rho1, rho2 * alpha)
    for o, r, p, a in zip((m.overflow_rate_1, m.overflow_rate_2), (m.wrong_assignment_ratio_1,
                          m.wrong_assignment_ratio_2), own_busy, arrivals, strict=True):
        np.testing.assert_allclose(o, a * p, rtol=4e-15)
        np.testing.assert_allclose(r, p / (1 - float(m.p_loss)), rtol=1e-9)  # 1 - p_loss cancels at loads of 1e3


@given(load, load, ratio)
@EXAMPLES
def test_proposition_3_ratios_below_one_half(rho1, rho2, alpha):
    m = metrics(rho1, rho2, alpha)
    assert max(float(m.wrong_assignment_ratio_1), float(m.wrong_assignment_ratio_2),
               float(m.wrong_assignment_ratio_total)) < 0.5


def test_proposition_3_limit_one_half():
    m = metrics(1e6, 1e6, 1.0)
    for r in (m.wrong_assignment_ratio_1, m.wrong_assignment_ratio_2, m.wrong_assignment_ratio_total):
        assert 0 < 0.5 - float(r) < 1e-6


@given(load, load, ratio)
@EXAMPLES
def test_proposition_3_partial_derivatives(rho1, rho2, alpha):
    cube = (rho1 + rho2 + 1) ** 3
    # the sum cancels where rho1 = rho2: 1e-14 of the value over the load
    value = float(metrics(rho1, rho2, alpha).wrong_assignment_ratio_1)
    np.testing.assert_allclose(slope(rho1, rho2, alpha, "wrong_assignment_ratio_1"),
                               [(2 * rho2 + 1) / cube, (rho2 - rho1) / cube],
                               rtol=1e-13, atol=1e-14 * value / min(rho1, rho2))


@given(load, load)
@EXAMPLES
def test_proposition_3_total_ratio_at_equal_arrival_rates(rho1, rho2):
    total = float(metrics(rho1, rho2, rho1 / rho2).wrong_assignment_ratio_total)
    np.testing.assert_allclose(total, (rho1 + rho2) / (2 * (rho1 + rho2 + 1)), rtol=4e-15)


# Proposition 4: both servers serve the wrong type

@given(load, load, ratio)
@EXAMPLES
def test_proposition_4_serious_below_a_quarter(rho1, rho2, alpha):
    assert float(metrics(rho1, rho2, alpha).malposition_serious) < 0.25


@given(load, ratio)
@EXAMPLES
def test_proposition_4_equal_loads(rho, alpha):
    expected = rho**3 / (2 * (rho + 1) * (2 * rho * rho + 2 * rho + 1))
    np.testing.assert_allclose(metrics(rho, rho, alpha).malposition_serious, expected, rtol=4e-15)
    growth = rho**2 * (4 * rho**2 + 6 * rho + 3) / (2 * (rho + 1) ** 2 * (2 * rho**2 + 2 * rho + 1) ** 2)
    np.testing.assert_allclose(slope(rho, rho, alpha, "malposition_serious").sum(), growth, rtol=1e-9)
    assert growth > 0


def test_proposition_4_limit_a_quarter():
    assert 0 < 0.25 - float(metrics(1e6, 1e6, 1.0).malposition_serious) < 1e-6


@given(load, share)
@EXAMPLES
def test_proposition_4_iii_falls_with_the_difference_if_alpha_is_one(total, part):
    assert away_from_sum_slope(total * part, total * (1 - part), 1.0, "malposition_serious") < 0
    assert away_from_sum_slope(total * (1 - part), total * part, 1.0, "malposition_serious") < 0


def test_proposition_4_iii_fails_for_other_alpha():
    values = [float(metrics(1.5 - d / 2, 1.5 + d / 2, 0.1).malposition_serious) for d in (0.0, 0.1)]
    np.testing.assert_allclose(values, [0.079412, 0.079543], atol=5e-7)


def numerator(rho1, rho2):
    return (rho1 + rho2) ** 2 * (rho2**2 - rho1**2 + 4 * rho2 + 6) + 4 * (2 * rho1 + rho2)


@given(load, load)
@EXAMPLES
def test_proposition_4_derivative_if_alpha_is_one(rho1, rho2):
    s = rho1 + rho2
    expected = rho2 * numerator(rho1, rho2) / ((s + 2) ** 2 * (s * s + 2 * s + 2) ** 2)
    value = float(metrics(rho1, rho2, 1.0).malposition_serious)
    np.testing.assert_allclose(slope(rho1, rho2, 1.0, "malposition_serious")[0], expected, rtol=1e-13,
                               atol=2e-14 * value / rho1)  # the terms of the derivative cancel near the maximum


@given(load, ratio)
@EXAMPLES
def test_proposition_4_one_maximum_in_rho1_beyond_rho2(rho2, alpha):
    """Proved in the paper for alpha = 1; true at every alpha tried."""
    rho1 = jnp.asarray(10.0 ** np.linspace(-4, 4, 801))
    values = np.asarray(metrics(rho1, jnp.full_like(rho1, rho2), jnp.full_like(rho1, alpha)).malposition_serious)
    assume(rho2 < 300)  # the maximum must lie on the grid
    signs = np.sign(np.diff(values))[np.abs(np.diff(values)) > 1e-13 * values[1:]]
    assert (np.diff(signs) <= 0).all() and signs[0] > 0 > signs[-1]
    assert rho1[values.argmax()] > rho2


# Proposition 5: one server serves the wrong type, the other is idle

@given(load, share)
@EXAMPLES
def test_proposition_5_i_grows_with_the_difference_if_alpha_is_one(total, part):
    """At alpha = 1 it is (S^3 + S^2 + (rho1-rho2)^2) / ((S+1)(S+2) D), from rho1 rho2 = (S^2 - (rho1-rho2)^2)/4."""
    rho1, rho2 = total * part, total * (1 - part)
    s, d = rho1 + rho2, rho1 - rho2
    expected = (s**3 + s**2 + d * d) / ((s + 1) * (s + 2) * (s * s + 2 * s + 2))
    np.testing.assert_allclose(metrics(rho1, rho2, 1.0).malposition_light, expected, rtol=4e-15)
    assert away_from_sum_slope(rho1, rho2, 1.0, "malposition_light") > 0
    assert away_from_sum_slope(rho2, rho1, 1.0, "malposition_light") > 0


def test_proposition_5_i_fails_for_other_alpha():
    values = [float(metrics(1.5 - d / 2, 1.5 + d / 2, 0.1).malposition_light) for d in (0.0, 0.1)]
    assert values[1] < values[0] * (1 - 1e-3)


@given(load, ratio)
@EXAMPLES
def test_proposition_5_equal_loads_have_one_maximum(rho, alpha):
    expected = rho**2 / ((rho + 1) * (2 * rho * rho + 2 * rho + 1))
    np.testing.assert_allclose(metrics(rho, rho, alpha).malposition_light, expected, rtol=4e-15)
    # d/d rho has the sign of 2 + 3 rho - 2 rho^3: positive, then negative
    sign = 2 + 3 * rho - 2 * rho**3
    assume(abs(sign) > 1e-6)
    assert np.sign(slope(rho, rho, alpha, "malposition_light").sum()) == np.sign(sign)


# Proposition 6: both servers serve the same type

@given(load, load, ratio)
@EXAMPLES
def test_proposition_6_derivative_and_its_sign(rho1, rho2, alpha):
    m = metrics(rho1, rho2, alpha)
    assert float(m.malposition_middle) < 1
    s = rho1 + rho2
    expected = 2 * (rho2 + 1) * (rho1**2 + 2 * rho1 - rho2**2) / (s * s + 2 * s + 2) ** 2
    found = slope(rho1, rho2, alpha, "malposition_middle")[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14 * float(m.malposition_middle) / rho1)
    turning = np.sqrt(rho2**2 + 1) - 1
    if abs(rho1 - turning) > 1e-6 * (rho1 + turning) and abs(expected) > 1e-12 * float(m.malposition_middle) / rho1:
        assert np.sign(found) == np.sign(rho1 - turning)


@pytest.mark.parametrize("rho2", [0.1, 1.0, 10.0])
def test_proposition_6_and_7_limit_one(rho2):
    m = metrics(1e6, rho2, 1.0)
    assert 0 < 1 - float(m.malposition_middle) < 1e-4
    assert 0 < 1 - float(m.malposition_total) < 1e-4


@given(load, ratio)
@EXAMPLES
def test_proposition_6_equal_loads(rho, alpha):
    square = 2 * rho * rho + 2 * rho + 1
    np.testing.assert_allclose(metrics(rho, rho, alpha).malposition_middle, rho**2 / square, rtol=4e-15)
    np.testing.assert_allclose(slope(rho, rho, alpha, "malposition_middle").sum(), 2 * rho * (rho + 1) / square**2,
                               rtol=1e-9)  # cancels by 1/rho at loads of 1e3
    assert float(metrics(rho, rho, alpha).malposition_middle) < 0.5


@given(load, share, ratio)
@EXAMPLES
def test_proposition_6_grows_with_the_difference_for_every_alpha(total, part, alpha):
    assert away_from_sum_slope(total * part, total * (1 - part), alpha, "malposition_middle") > 0


# Proposition 7: some server serves the wrong type

@given(load, ratio)
@EXAMPLES
def test_proposition_7_equal_loads(rho, alpha):
    square = 2 * rho * rho + 2 * rho + 1
    total = metrics(rho, rho, alpha).malposition_total
    np.testing.assert_allclose(total, (3 * rho**3 + 4 * rho**2) / (2 * (rho + 1) * square), rtol=4e-15)
    growth = (4 * rho**4 + 18 * rho**3 + 21 * rho**2 + 8 * rho) / (2 * (rho + 1) ** 2 * square**2)
    np.testing.assert_allclose(slope(rho, rho, alpha, "malposition_total").sum(), growth, rtol=1e-8)
    assert growth > 0


def test_proposition_7_limit_three_quarters():
    assert 0 < 0.75 - float(metrics(1e6, 1e6, 1.0).malposition_total) < 1e-6


@given(load, load)
@EXAMPLES
def test_proposition_7_formula_if_alpha_is_one(rho1, rho2):
    s, squares = rho1 + rho2, rho1**2 + rho2**2
    expected = (s**3 * (s + 3) + squares * (s * s + 5 * s + 8)) / (2 * (s + 1) * (s + 2) * (s * s + 2 * s + 2))
    np.testing.assert_allclose(metrics(rho1, rho2, 1.0).malposition_total, expected, rtol=4e-15)


@given(load, share)
@EXAMPLES
def test_proposition_7_last_grows_with_the_difference_if_alpha_is_one(total, part):
    assert away_from_sum_slope(total * part, total * (1 - part), 1.0, "malposition_total") > 0
    assert away_from_sum_slope(total * (1 - part), total * part, 1.0, "malposition_total") > 0


def test_proposition_7_last_fails_for_other_alpha():
    values = [float(metrics(0.5 - d / 2, 0.5 + d / 2, 0.01).malposition_total) for d in (0.0, 0.04)]
    assert values[1] < values[0] * (1 - 1e-4)


@given(st.floats(0.1, 100.0), st.floats(-2, 2).filter(lambda x: abs(x) > 0.05))
@EXAMPLES
def test_light_malposition_is_never_extremal_at_equal_loads_unless_alpha_is_one(total, log_alpha):
    """Why 5(i) needs alpha = 1: elsewhere the slope along rho1 + rho2 = const does not vanish at rho1 = rho2."""
    first, second = slope(total / 2, total / 2, 10.0**log_alpha, "malposition_light")
    value = float(metrics(total / 2, total / 2, 10.0**log_alpha).malposition_light)
    assert abs(second - first) > 1e-4 * value / total
