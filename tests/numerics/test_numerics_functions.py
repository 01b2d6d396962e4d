"""Logarithms, shares, Erlang's formulas and counts: values and derivatives against many digits, ends of the range."""

import functools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from numerics.derivatives import automatic, exact

from hetjax.numerics import (
    Count,
    atanh_over,
    erlang_b,
    erlang_c,
    log,
    log1p,
    log_near_one,
    log_tail,
    share,
    truncated_poisson,
)

DTYPES = [np.float64, np.float32]


def eps(dtype):
    return float(np.finfo(dtype).eps)


def orders(function):
    """x -> value, first and second derivative, compiled."""
    return jax.jit(jax.vmap(lambda x: (function(x), jax.grad(function)(x), jax.jacfwd(jax.grad(function))(x))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_log(dtype):
    info = np.finfo(dtype)
    x = np.asarray([info.tiny, 1e-30, .1, .5, math.sqrt(.5), 1 - info.epsneg, 1.0, 1 + info.eps, math.sqrt(2), 2.0,
                    10.0, 1e30, info.max], dtype)
    value, first, second = orders(log)(jnp.asarray(x))
    for i, v in enumerate(x):
        exact_value = mpmath.log(mpmath.mpf(float(v)))
        assert abs(float(value[i]) - exact_value) <= 1.5 * eps(dtype) * abs(exact_value), v
    assert value[6] == 0
    inner = slice(1, -1)  # 1/x and 1/x^2 leave the range at the ends
    np.testing.assert_allclose(first[inner], 1 / x[inner], rtol=2 * eps(dtype))
    np.testing.assert_allclose(second[2:-2], -1 / x[2:-2]**2, rtol=4 * eps(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_log1p(dtype):
    x = np.asarray([-1 + 2.0**-20, -.5, -.1, -1e-5, -1e-30, 0.0, 1e-30, 1e-5, .1, 1.0, 1e6, 1e30], dtype)
    value, first, second = orders(log1p)(jnp.asarray(x))
    with mpmath.workdps(60):
        for i, v in enumerate(map(mpmath.mpf, map(float, x))):
            assert abs(float(value[i]) - mpmath.log1p(v)) <= 2 * eps(dtype) * abs(mpmath.log1p(v)), v
            assert abs(float(first[i]) - 1 / (1 + v)) <= 2 * eps(dtype) / (1 + v), v
            if v < 1e10:
                assert abs(float(second[i]) + 1 / (1 + v)**2) <= 4 * eps(dtype) / (1 + v)**2, v


def test_log_near_one_takes_the_excess_where_it_matters():
    x, excess = jnp.float32(1.0), jnp.float32(3e-12)  # 1 + 3e-12 rounds to 1
    assert float(log_near_one(x, excess)) == pytest.approx(3e-12, rel=1e-7)
    slope = jax.grad(log_near_one, (0, 1))(x, excess)
    assert [float(s) for s in slope] == [0, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_atanh_over(dtype):
    z = np.asarray([0.0, 1e-30, 1e-6, .01, (math.sqrt(2) - 1)**4], dtype)
    value, first, second = orders(atanh_over)(jnp.asarray(z))
    with mpmath.workdps(60):
        for i, v in enumerate(map(mpmath.mpf, map(float, z))):
            series = [mpmath.fsum(mpmath.ff(k, d) * v**(k - d) / (2 * k + 1) for k in range(d, 60)) for d in range(3)]
            assert abs(float(value[i]) - series[0]) <= 2 * eps(dtype)
            # the polynomial is fitted to the value, to 5e-18 (3e-9); each derivative of a fit over 0.03 loses more
            assert abs(float(first[i]) - series[1]) <= (4e-14 if dtype == np.float64 else 4e-6)
            assert abs(float(second[i]) - series[2]) <= (4e-11 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_share(dtype):
    points = [(1.0, 3.0), (0.0, 2.0), (2.0, 0.0), (1e-20, 1.0), (1e15, 1e-10), (1e18, 2e18)]
    for found, (p, r) in zip(automatic(share)(points, dtype), points, strict=True):
        p, r = float(dtype(p)), float(dtype(r))
        w = p + r
        wanted = (p / w, r / w**2, -p / w**2, -2 * r / w**3, (p - r) / w**3, 2 * p / w**3)
        sizes = (p / w, r / w**2, p / w**2, 2 * r / w**3, 1 / w**2, 2 * p / w**3)
        for got, want, size in zip(found, wanted, sizes, strict=True):
            assert abs(got - want) <= 8 * eps(dtype) * size + float(np.finfo(dtype).tiny), (p, r)


LOADS = [1e-8, 1e-3, .5, 1.0, 7.5, 60.0, 511.0, 5000.0, 5e6]
COUNTS = [1, 2, 9, 64, 512]


@functools.lru_cache
def poisson():
    def four(load, m):
        return jnp.stack(truncated_poisson(load, Count(m, 512)))

    def all_orders(load, m):
        return four(load, m), jax.jacfwd(four)(load, m), jax.jacfwd(jax.jacfwd(four))(load, m), log_tail(
            load, Count(m, 512)), jax.grad(log_tail)(load, Count(m, 512))

    return jax.jit(jax.vmap(all_orders))


def exact_poisson(load, m):
    """The four results and ln tail by the plain sums."""
    weights = [mpmath.mpf(1)]
    for l in range(1, m + 1):
        weights.append(weights[-1] * load / l)
    total = mpmath.fsum(weights[:m])
    return [weights[m] / total, mpmath.fsum(l * w for l, w in enumerate(weights[:m])) / total, 1 / total,
            mpmath.fsum(weights[1:m]) / total, mpmath.log(weights[m] / total)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_truncated_poisson(dtype):
    points = [(load, m) for load in LOADS for m in COUNTS]
    found = poisson()(jnp.asarray([p[0] for p in points], dtype), jnp.asarray([p[1] for p in points], jnp.int32))
    smallest = 1e-290 if dtype == np.float64 else 1e-30
    for k, (load, m) in enumerate(points):
        with mpmath.workdps(100):
            b = mpmath.mpf(float(dtype(load)))
            h = b * mpmath.mpf(10)**-26
            low, mid, high = (exact_poisson(b + s * h, m) for s in (-1, 0, 1))
            first = [(p - q) / (2 * h) for p, q in zip(high, low, strict=True)]
            second = [(p - 2 * c + q) / h**2 for p, c, q in zip(high, mid, low, strict=True)]
        steps = (4 + m / 4) * eps(dtype)
        for i in range(4):
            if mid[i] < smallest:
                assert 0 <= float(found[0][k, i]) <= 1.01 * smallest
                continue
            assert abs(float(found[0][k, i]) - mid[i]) <= steps * mid[i], (i, load, m)
            # derivatives in ln b; m - 1 - mean is a difference, which the variance multiplies with b - mean
            scale = max(abs(first[i] * b), mid[i] * (1 + min(m, b)), m * b if i == 1 else 0)
            assert abs(float(found[1][k, i]) * b - first[i] * b) <= 16 * steps * scale, (i, load, m)
            scale = max(abs(second[i] * b * b), mid[i] * (1 + min(m, b))**2,
                        m * b * (1 + b if i == 1 else mid[i]))
            assert abs(float(found[2][k, i]) * b * b - second[i] * b * b) <= 64 * steps * scale, (i, load, m)
        assert abs(float(found[3][k]) - mid[4]) <= steps * max(abs(mid[4]), 1), (load, m)
        assert abs(float(found[4][k]) * b - first[4] * b) <= 4 * steps * m, (load, m)


@pytest.mark.parametrize("dtype", DTYPES)
def test_erlang(dtype):
    def formulas(load, _, servers, which):
        weights = [load**l / mpmath.factorial(l) for l in range(servers + 1)]
        if which is erlang_b:
            return weights[-1] / mpmath.fsum(weights)
        tail = weights[-1] * servers / (servers - load)
        return tail / (mpmath.fsum(weights[:-1]) + tail)

    points = [(x, 0.0) for x in (1e-4, .3, 4.0, 8.999)]
    for which in (erlang_b, erlang_c):
        results = automatic(lambda load, _, which=which: which(load, 9) + 0 * _)(points, dtype)
        for found, (load, _) in zip(results, points, strict=True):
            wanted = exact(functools.partial(formulas, servers=9, which=which), dtype(load), 0)
            for got, want in zip(found, wanted, strict=True):
                if wanted[0] > 1e-30:
                    assert abs(got - want) <= 64 * eps(dtype) * max(abs(want), wanted[0] / load), (which, load)


# ---- counts

@pytest.mark.parametrize("number", [1, 2, 3, 11, 17, 30])
def test_climb_is_the_loop_for_static_and_traced_counts(number):
    def step(l, total):
        return total * .5 + l

    expected = 0.0
    for l in range(1, number):
        expected = step(l, expected)
    zero = jnp.zeros(())
    assert float(Count(number).climb(step, zero, zero)) == expected
    assert float(_climbed(number)) == expected


@jax.jit
def _climbed(number):
    zero = jnp.zeros(())
    return Count(number, 40).climb(lambda l, total: total * .5 + l, zero, zero)


def test_climb_rescales_often_enough():
    """Steps of 2^7: without rescaling 160 of them leave the range of float64, eight at a time they do not."""
    one, none = jnp.ones(()), jnp.zeros(())

    def step(_, state):
        return state[0] * 2.0**100, state[1]

    def rescale(state):
        return state[0] / state[0], state[1] + jnp.log2(state[0])

    for count in (Count(161), Count(jnp.int32(161), 200)):
        mantissa, exponent = count.climb(step, (one, none), one, rescale)
        assert float(jnp.log2(mantissa) + exponent) == 16000


@pytest.mark.parametrize("number", [0, 1, 4, 5, 12])
def test_descend_is_the_loop_for_static_and_traced_counts(number):
    def step(j, total):
        return total * .5 + j

    expected = 0.0
    for j in range(number, 0, -1):
        expected = step(j, expected)
    zero = jnp.zeros(())
    assert float(Count(number).descend(step, zero, zero)) == expected
    assert float(jax.jit(lambda n: Count(n, 15).descend(step, zero, zero))(number)) == expected


def test_count_is_structure_or_leaf():
    assert jax.tree.leaves(Count(3)) == [] and jax.tree.leaves(Count(jnp.int32(3), 8)) == [3]
    doubled = jax.tree.map(lambda x: 2 * x, Count(jnp.int32(3), 8))
    assert (int(doubled.value), doubled.bound, doubled.static) == (6, 8, False)
    assert Count.of(4, 9).static and Count.of(np.int64(4), None).value == 4 and not Count.of(jnp.int32(4), 9).static
    same = Count(2)
    assert Count.of(same, 9) is same


def test_count_as_a_number_and_a_choice():
    like = jnp.zeros((), jnp.float32)
    assert Count(3).real(like) == 3.0 and Count(jnp.int32(3), 8).real(like).dtype == jnp.float32
    for count in (Count(2), Count(jnp.int32(2), 8)):
        assert float(count.select(2, lambda: like + 1, lambda: like)) == 1
        assert float(count.select(3, lambda: like + 1, lambda: like)) == 0
