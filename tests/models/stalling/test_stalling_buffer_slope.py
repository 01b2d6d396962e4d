"""The scaled slope, difference and gains of the stalling buffer against many digits."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from models.stalling.buffer_oracle import Oracle, digits_for
from mpmath import mpf

from hetjax.models.stalling import Params
from hetjax.models.stalling.buffer_model import fixed_parts
from hetjax.models.stalling.buffer_slope import (
    buffer_difference_scaled,
    buffer_slope_scaled,
    mean_number,
    never_bracket,
    rise_from_zero,
    slope_bracket,
    state,
    step_bracket,
    step_total,
)
from hetjax.numerics.counting import Count


@pytest.fixture(autouse=True)
def many_digits():
    """Differences of the oracle's values are formed here, far below their own size."""
    with mpmath.workdps(400):
        yield


def exact_mean_number(q, r, K, M, m, n):
    """N from the balance equations, in exact rationals."""
    q, r = Fraction(q), Fraction(r)
    states = [(l, j) for l in range(m + K + 1) for j in range(n + 1)] + [(m + K + w, n) for w in range(1, M + 1)]
    index = {s: i for i, s in enumerate(states)}
    size = len(states)
    balance = [[Fraction(0)] * size + [Fraction(0)] for _ in range(size)]

    def flow(source, target, rate):
        balance[index[target]][index[source]] += rate
        balance[index[source]][index[source]] -= rate

    for l, j in states:
        top = m + K
        if l < top:
            flow((l, j), (l + 1, j), q * m)
        elif j < n:
            flow((l, j), (l, j + 1), q * m)
        elif l < top + M:
            flow((l, j), (l + 1, j), q * m)
        if l > top:
            flow((l, j), (l - 1, j), m + n / r)
        else:
            if l > 0:
                flow((l, j), (l - 1, j), Fraction(min(l, m)))
            if j > 0:
                flow((l, j), (l, j - 1), j / r)
    balance[0] = [Fraction(1)] * (size + 1)
    for i in range(size):  # Gauss-Jordan
        pivot = next(k for k in range(i, size) if balance[k][i])
        balance[i], balance[pivot] = balance[pivot], balance[i]
        balance[i] = [x / balance[i][i] for x in balance[i]]
        for k in range(size):
            if k != i and balance[k][i]:
                factor = balance[k][i]
                balance[k] = [x - factor * y for x, y in zip(balance[k], balance[i], strict=True)]
    return sum((l + j) * balance[index[(l, j)]][-1] for l, j in states)


@pytest.mark.parametrize("point", [(0.75, 4, 2, 2, 2, 2), (1.25, 8, 3, 1, 1, 2), (0.5, 0.5, 0, 3, 3, 1),
                                   (1, 2, 1, 0, 2, 3)])
def test_oracle_is_the_balance_equations(point):
    q, r, K, M, m, n = point
    exact = exact_mean_number(*point)
    found = Oracle(q, r, M, m, n).number(K)
    assert abs(found - mpf(exact.numerator) / exact.denominator) < mpf(10) ** -45


def draws(seed, m, n, count):
    rng = np.random.default_rng(seed)
    points = []
    for _ in range(count):
        r = 10 ** rng.uniform(-1, 5)
        q = rng.choice([10 ** rng.uniform(-3, 0), 1 - 10 ** rng.uniform(-5, -0.3), 1.0, 1 + n / (m * r) * rng.uniform(),
                        10 ** rng.uniform(0, 1)])
        K = rng.choice([0.0, float(rng.integers(1, 40)), 10 ** rng.uniform(-1, 2)])
        M = rng.choice([0.0, 1.0, float(rng.integers(2, 200)), 7.25, math.inf])
        if math.isinf(M) and q * m * r >= (m * r + n) * (1 - 1e-6):
            M = 3.0
        points.append((q, r, K, M))
    return points


def everything(q, r, K, M, m, n):
    """Each value with the scale of its rounding; m and n as Count."""
    f = fixed_parts(q, r, M, m, n)
    at, zero = state(f, K), state(f, jnp.zeros_like(K))
    slope, step = slope_bracket(f, at), step_bracket(f, at)
    raised = state(f, K, zero.log_unit)
    gain, reference = never_bracket(f, at)
    return (mean_number(f, at), f.p1 * slope.value / at.total, f.p1 * slope.size / at.total,
            f.p1 * step.value / step_total(f, at), f.p1 * step.size / step_total(f, at),
            f.p1 * rise_from_zero(f, zero, raised) / raised.total, f.p1 * gain / at.total, reference)


@jax.jit
def masked(m, n, *columns):
    """One compilation for all m <= 5, n <= 12."""
    return jax.vmap(lambda *p: everything(*p, Count(m, 5), Count(n, 12)))(*columns)


def static(m, n, *columns):
    return jax.jit(jax.vmap(lambda *p: everything(*p, Count(m), Count(n))))(*columns)


@pytest.mark.parametrize(("m", "n", "dtype", "compute"), [
    *((m, n, dtype, masked) for m, n in ((1, 1), (5, 2), (3, 12), (2, 0)) for dtype in (np.float64, np.float32)),
    (3, 4, np.float64, static), (2, 0, np.float64, static)])
def test_every_scaled_quantity_against_many_digits(m, n, dtype, compute):
    points = [tuple(float(dtype(v)) for v in p) for p in draws(7 * m + n, m, n, 12)]
    columns = (jnp.asarray(column, dtype) for column in zip(*points, strict=True))
    found = compute(m, n, *columns)
    assert found[0].dtype == dtype
    # roundings: about 10 m + 10 n operations behind each term, few of them in one direction
    eps = float(np.finfo(dtype).eps) * 40
    for i, (q, r, K, M) in enumerate(points):
        oracle = Oracle(q, r, M, m, n, digits_for(q, K) + 40)
        N, slope, slope_size, step, step_size, from_zero, never, reference = (mpf(float(v[i])) for v in found)
        assert abs(N / oracle.number(K) - 1) < eps, points[i]
        assert abs(slope - oracle.slope(K)) < eps * slope_size, points[i]
        assert abs(step - oracle.difference(K)) < eps * step_size, points[i]
        # N(0) - N(K): the terms it is made of are at most about those of one step times the number of steps
        assert abs(from_zero - oracle.number(0) + oracle.number(K)) < eps * step_size * (1 + K), points[i]
        if q < 1:
            assert abs(reference / (1 - mpf(q)) / oracle.never() - 1) < eps
            gain = (oracle.never() - oracle.number(K)) / oracle.scale(K) * (1 - mpf(q))
            assert abs(never - gain) < eps * (step_size * (1 + K) + abs(gain)), points[i]


def test_difference_and_slope_keep_relative_accuracy_where_n_is_flat():
    """q^K = 1e-31: N itself changes by less than one rounding from K = 5 on."""
    q, r, m, n = 0.7, 100.0, 5, 2
    both = jax.jit(lambda params: (buffer_slope_scaled(params), buffer_difference_scaled(params)))
    for K in (100.0, 160.0, 200.0):
        oracle = Oracle(q, r, math.inf, m, n, digits_for(q, K))
        slope, difference = both(Params(q, r, K, math.inf, m, n))
        # K = 100 and more cancel like 1 - K/149 at worst
        assert abs(mpf(float(slope)) / oracle.slope(K) - 1) < 1e-13
        assert abs(mpf(float(difference)) / oracle.difference(K) - 1) < 1e-13


def test_batches_and_endless_buffers():
    scaled = jax.jit(buffer_slope_scaled)
    batch = scaled(Params(np.array([0.5, 0.9]), 10.0, np.array([3.0, math.inf]), 4.0, 2, 2))
    assert batch.shape == (2,) and np.isposinf(batch[1])
    single = scaled(Params(0.5, 10.0, 3.0, 4.0, 2, 2))
    np.testing.assert_allclose(batch[0], single, rtol=1e-14)  # kernels of other shapes may fuse differently


def test_slope_is_the_derivative_of_mean_number():
    from hetjax.models.stalling import mean_number as closed_form

    params = Params(0.9, 12.0, 2.5, 3.5, 2, 2)
    derivative = jax.jit(jax.grad(closed_form, allow_int=True))(params).K
    np.testing.assert_allclose(derivative, jax.jit(buffer_slope_scaled)(params) * 0.9**2.5, rtol=2e-12)
