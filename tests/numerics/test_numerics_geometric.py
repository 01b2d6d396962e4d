"""Geometric sums with a real number of terms and their moments, at and around ratio 1 and 0 terms; overflow ends."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from numerics.derivatives import ORDERS, automatic, exact

from hetjax.numerics import (
    descending_sum,
    exponential_moment,
    geometric_sum,
    geometric_sums,
    ratio_moments,
    weighted_geometric_sum,
)

DTYPES = [np.float64, np.float32]
LOGS = {np.float64: [0.0, -1e-300, -1e-15, -1e-8, -1e-3, -.49999, -.50001, -1.0, -3.0, -40.0],
        np.float32: [0.0, -1e-30, -1e-7, -1e-3, -.49999, -.50001, -1.0, -3.0]}
LENGTHS = {np.float64: [0.0, 1e-9, .3, 1.0, 2.5, 17.0, 1e4], np.float32: [0.0, 1e-6, .3, 1.0, 2.5, 17.0, 200.0]}
RATIOS = {np.float64: [1e-3, .5, 1 - 2.0**-10, 1 - 2.0**-30, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1 + 2.0**-30, 1.001, 2.0,
                       1e3], np.float32: [1e-3, .5, 1 - 2.0**-10, 1 - 2.0**-24, 1.0, 1 + 2.0**-23, 1.001, 2.0, 100.0]}
TERMS = {np.float64: [0.0, 1e-6, .5, 1.0, 3.0, 20.25, 1000.0], np.float32: [0.0, 1e-3, .5, 1.0, 3.0, 9.25]}


def grid(first, second, keep=lambda x, y: True):
    return [(x, y) for x in first for y in second if keep(x, y)]


def moment(order, x, K):
    """H_k(x, K) = K^(k+1) M(k+1, k+2, xK)/(k+1), an entire function of x."""
    return K**(order + 1) / (order + 1) * mpmath.hyp1f1(order + 1, order + 2, x * K)


@functools.lru_cache
def moment_derivatives(order):
    return automatic(lambda x, K: exponential_moment(order, x, K, jnp.exp(x * K)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [0, 2])
def test_moments(order, dtype):
    """H_k and its derivatives H_{k+1}, K^k e^{Kx}, H_{k+2}, K^(k+1) e^{Kx}, (k/K + x) K^k e^{Kx}."""
    points = grid(LOGS[dtype], LENGTHS[dtype], lambda x, K: -x * K < 60)
    eps = float(np.finfo(dtype).eps)
    for found, (x, K) in zip(moment_derivatives(order)(points, dtype), points, strict=True):
        x, K = mpmath.mpf(float(dtype(x))), mpmath.mpf(float(dtype(K)))
        with mpmath.workdps(40):
            edge = mpmath.exp(x * K)
            before = order * K**(order - 1) if order else mpmath.mpf(0)
            wanted = (moment(order, x, K), moment(order + 1, x, K), K**order * edge, moment(order + 2, x, K),
                      K**(order + 1) * edge, (before + x * K**order) * edge)
            size = (*wanted[:5], (before - x * K**order) * edge)
        for name, got, want, scale in zip(ORDERS, found, wanted, size, strict=True):
            # e^{xK} rounds at |xK| eps/2; the recursion behind H_k costs up to 40 k! eps
            slack = (40 * math.factorial(order + name.count("x")) + float(-x * K)) * eps
            assert abs(got - float(want)) <= slack * float(scale) + 4 * float(np.finfo(dtype).tiny), (name, x, K)


def continued(name):
    """The sums at a real number of terms, as quotients; at ratio 1 as polynomials."""
    def plain(x, K):
        return K if x == 1 else (x**K - 1) / (x - 1)

    def weighted(x, K):  # s x^s over s = 1..K
        return K * (K + 1) / 2 if x == 1 else x * (1 - (K + 1) * x**K + K * x**(K + 1)) / (1 - x)**2

    def descending(x, K):  # (K - s) x^s over s = 0..K
        return K * (K + 1) / 2 if x == 1 else (K - (K + 1) * x + x**(K + 1)) / (1 - x)**2

    return {"plain": plain, "weighted": weighted, "descending": descending}[name]


SUMS = {"plain": geometric_sum, "weighted": weighted_geometric_sum}


@functools.lru_cache
def sum_derivatives(name):
    if name == "descending":
        return automatic(lambda x, K: descending_sum(jnp.log(x), x, K, jnp.exp(jnp.log(x) * K)))
    return automatic(SUMS[name])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["plain", "weighted", "descending"])
def test_sums_of_a_real_number_of_terms(name, dtype):
    eps, huge = float(np.finfo(dtype).eps), float(np.log10(np.finfo(dtype).max)) - 8

    def keep(x, K):
        return abs((K + 3) * np.log10(x)) < huge and (name != "descending" or x <= 1)

    points = grid(RATIOS[dtype], TERMS[dtype], keep)
    for found, (x, K) in zip(sum_derivatives(name)(points, dtype), points, strict=True):
        x, K = float(dtype(x)), float(dtype(K))
        wanted = exact(continued(name), x, K, (True, False))
        # derivatives may pass through 0: they are right relative to the scale of the function over its variables
        more = 1 + K * (1 - x if x < 1 else 1)  # distance over which the sum changes, in units of x
        size = abs(wanted[0]) + (K + min(x, 1)) * max(x, 1.0)**K * 1e-3
        scales = (size, size * more / x, size, size * (more / x)**2, size * more / x, size)
        # the mixed derivative at small K holds F_2/F_0 - 2 (F_1/F_0)^2, which loses a factor 50 at ratio 1e-3: 75 eps
        # in float32
        slack = (64 if dtype == np.float64 else 100) * (1 + abs(K * np.log(x))) * eps
        for order, got, want, scale in zip(ORDERS, found, wanted, scales, strict=True):
            scale = max(abs(want), scale) if order != "value" else abs(want)
            assert abs(got - want) <= slack * scale, (order, x, K, got, want)


def test_whole_numbers_of_terms_against_fractions():
    for ratio in (Fraction(1, 4), Fraction(1), Fraction(3, 2)):
        for terms in (0, 1, 2, 7):
            plain = sum((ratio**s for s in range(terms)), Fraction(0))
            weighted = sum((s * ratio**s for s in range(1, terms + 1)), Fraction(0))
            x, K = jnp.asarray(float(ratio)), jnp.asarray(float(terms))
            assert abs(float(geometric_sum(x, K)) - float(plain)) <= 4e-15 * float(plain)
            assert abs(float(weighted_geometric_sum(x, K)) - float(weighted)) <= 8e-15 * float(weighted)
            if ratio <= 1:
                log = jnp.log(x)
                sums = geometric_sums(log, x, K, jnp.exp(log * K))
                lagging = sum((s * ratio**s for s in range(terms)), Fraction(0))
                descending = sum((terms - s) * ratio**s for s in range(terms + 1))
                found = (*sums[:3], descending_sum(log, x, K, jnp.exp(log * K)))
                for got, want in zip(found, (plain, lagging, weighted, descending), strict=True):
                    assert abs(float(got) - float(want)) <= 8e-15 * max(float(plain), float(want))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ends(dtype):
    """Endless sums, sums beyond the range, and ratios whose powers vanish."""
    real = functools.partial(jnp.asarray, dtype=dtype)
    eps = float(np.finfo(dtype).eps)
    assert abs(float(geometric_sum(real(.75), real(np.inf))) - 4) <= 8 * eps
    assert abs(float(weighted_geometric_sum(real(.75), real(np.inf))) - 12) <= 64 * eps
    assert float(geometric_sum(real(10.0), real(1e4))) == np.inf
    assert float(weighted_geometric_sum(real(10.0), real(1e4))) == np.inf
    assert abs(float(geometric_sum(real(1e-30), real(1e6))) - 1) <= eps
    gradient = jax.grad(lambda x: geometric_sum(x, real(1e6)))(real(.5))
    assert abs(float(gradient) - 4) <= 32 * eps  # 1/(1-x)^2
    assert float(exponential_moment(3, real(-5.0), real(1e7), real(0.0))) == pytest.approx(6 / 5**4, rel=8 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ratio_moments(dtype):
    for x in LOGS[dtype]:
        x = dtype(x)
        found = ratio_moments(jnp.asarray(x), jnp.exp(jnp.asarray(x)))
        for order, got in enumerate(found):
            want = float(moment(order, mpmath.mpf(float(x)), mpmath.mpf(1)))
            assert abs(float(got) - want) <= 8 * float(np.finfo(dtype).eps) * want, (order, x)
