"""Geometric sums weighted by powers, against their definition and against many digits."""

from fractions import Fraction

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from hetjax.numerics.counting import Count
from hetjax.numerics.erlang import idle_moments
from hetjax.numerics.geometric import geometric_sums
from hetjax.numerics.power_sums import power_sums


def found(x, K, from_zero, order=3, dtype=np.float64):
    x, K = np.asarray(x, dtype), np.asarray(K, dtype)
    arguments = [jnp.asarray(v) for v in (x, np.exp(x), K, np.exp(x * K))]
    return power_sums(*arguments, geometric_sums(*arguments).parts, from_zero, order)


@pytest.mark.parametrize("from_zero", [False, True])
@pytest.mark.parametrize("terms", [0, 1, 2, 7])
@pytest.mark.parametrize("ratio", [Fraction(1), Fraction(3, 4), Fraction(1, 4)])
def test_whole_numbers_of_terms(ratio, terms, from_zero):
    start, stop = (0, terms) if from_zero else (1, terms + 1)
    exact = [float(sum((Fraction(s) ** i * ratio**s for s in range(start, stop)), Fraction(0))) for i in range(4)]
    for i, value in enumerate(found(np.log(float(ratio)), float(terms), from_zero).sums):
        # it is formed from terms of the size of K^i S_0
        assert abs(float(value) - exact[i]) <= 5e-15 * max(exact[i], float(terms) ** i * exact[0]), i


@pytest.mark.parametrize("from_zero", [False, True])
@pytest.mark.parametrize("K", [1e-6, .3, 1.0, 5.5, 50.0, 1e7])
@pytest.mark.parametrize("x", [-1e-12, -1e-3, -.45, -.99, -1.01, -7.0])
def test_real_numbers_of_terms(x, K, from_zero):
    """The Taylor coefficients of the sum and of its slope along K, with 60 digits."""
    with mpmath.workdps(60):
        count = mpmath.mpf(K)

        def shift(y):
            return 1 if from_zero else mpmath.exp(y)

        sums = mpmath.taylor(lambda y: mpmath.expm1(y * count) / mpmath.expm1(y) * shift(y), mpmath.mpf(x), 3)
        edge = mpmath.taylor(lambda y: y / mpmath.expm1(y) * mpmath.exp(y * count) * shift(y), mpmath.mpf(x), 2)
        exact = [float(c * mpmath.factorial(i)) for i, c in [*enumerate(sums), *enumerate(edge)]]
    got = found(x, K, from_zero)
    for i, (value, want) in enumerate(zip((*got.sums, *got.edge), exact, strict=True)):
        # with a fraction of a term, higher powers are small differences of the sum itself
        size = max(abs(want), exact[0] if i < 4 and (from_zero or K < 1) else 0, exact[4] if i > 4 else 0, 1e-100)
        assert abs(float(value) - want) <= 2e-14 * size, i


def test_lower_order_and_float32():
    low, high = found(-.3, 4.0, False, 2), found(-.3, 4.0, False)
    assert len(low.sums) == 3
    np.testing.assert_allclose(low.sums, high.sums[:3], rtol=1e-14)
    np.testing.assert_allclose(low.edge, high.edge[:2], rtol=1e-15)
    single = found(-.3, 4.0, False, dtype=np.float32)
    assert single.sums[3].dtype == np.float32
    np.testing.assert_allclose(single.sums, high.sums, rtol=3e-6)


@pytest.mark.parametrize("b", [1e-8, .3, 7.0, 100.0, 5e6])
@pytest.mark.parametrize("m", [1, 2, 9])
def test_idle_moments(m, b):
    """Of the truncated Poisson law in fractions."""
    load = Fraction(b)
    weights = [load**l / int(np.prod(range(1, l + 1), dtype=object)) for l in range(m)]
    law = [w / sum(weights) for w in weights]
    mean = sum(l * p for l, p in enumerate(law))
    exact = [float(m - 1 - mean), *(float(sum((l - mean) ** i * p for l, p in enumerate(law))) for i in (2, 3))]
    got = [float(v) for v in idle_moments(jnp.asarray(b), Count(m))]
    for value, want in zip(got, exact, strict=True):
        assert abs(value - want) <= 1e-14 * max(abs(want), exact[1]), (got, exact)
    # the third cumulant changes its sign where the law does its skewness: its error is that of the variance
