"""Mean number and its gradients against the reference table, exact rationals and a many-digit oracle over the whole
domain."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stalling_oracle import Oracle, exact_means

from hetjax.models.stalling import Params, mean_number
from hetjax.models.stalling.closed_form import point_mean_number
from hetjax.models.stalling.metrics import point_metrics
from hetjax.numerics.counting import Count

EPS = np.finfo(np.float64).eps
EPS32 = float(np.finfo(np.float32).eps)
AXES = ("q", "r", "K", "M")


@functools.lru_cache
def masked(bound, dtype=np.float64, forward=False):
    """Value and gradient for traced counts up to ``bound``, compiled once."""
    def value(q, r, K, M, m, n):
        return point_mean_number(q, r, K, M, Count(m, bound), Count(n, bound))

    def both(q, r, K, M, m, n):
        if forward:
            return value(q, r, K, M, m, n), jax.jacfwd(value, (0, 1, 2, 3))(q, r, K, M, m, n)
        return jax.value_and_grad(value, (0, 1, 2, 3))(q, r, K, M, m, n)

    return jax.jit(both if dtype == np.float64 else value)


@functools.partial(jax.jit, static_argnums=(4, 5))
def static(q, r, K, M, m, n):
    return jax.value_and_grad(lambda *x: mean_number(Params(*x, m, n)), (0, 1, 2, 3))(q, r, K, M)


def numbers(point, dtype=np.float64):
    return [jnp.asarray(x, dtype) for x in point[:4]]


def check_value(value, exact, condition):
    assert abs(float(value) - float(exact)) <= max(1e-12, 16 * EPS * (1 + condition)) * float(exact)


def check_gradient(gradient, exact, value, point):
    for axis, got, want, x in zip(AXES, gradient, exact, point[:4], strict=True):
        if math.isinf(x):
            assert float(got) == 0, axis
            continue
        scale = max(x, 1.0) if axis in "KM" else x
        assert abs(float(got) - float(want)) <= 1e-9 * max(abs(float(want)), 1e-3 * float(value) / scale), axis


def check_point(point, found):
    oracle = Oracle(*point)
    exact = oracle.value("mean_number")
    gradient = [oracle.derivative("mean_number", a) if math.isfinite(x) else 0
                for a, x in zip(AXES, point[:4], strict=True)]
    check_value(found[0], exact, oracle.condition("mean_number"))
    check_gradient(found[1], gradient, exact, point)


def test_reference_table(reference):
    """All rows at once, m and n traced below one bound."""
    rows = reference("stalling")["rows"]
    bound = max(max(row["m"], row["n"]) for row in rows)
    columns = [jnp.asarray([row[a] for row in rows], float) for a in AXES]
    counts = [jnp.asarray([row[a] for row in rows], jnp.int32) for a in "mn"]
    values, gradients = jax.jit(jax.vmap(masked(bound)))(*columns, *counts)
    for i, row in enumerate(rows):
        exact = float(row["mean_number"])
        slopes = [float(row[f"d_mean_number__d_{a}"]) for a in AXES]
        condition = sum(abs(x * d) for x, d in zip((row[a] for a in AXES), slopes, strict=True)) / exact
        check_value(values[i], exact, condition)
        check_gradient([g[i] for g in gradients], slopes, exact, [row[a] for a in AXES])


def test_reference_table_in_float32(reference):
    """Compared at the float32-rounded inputs with the float64 result, itself checked above."""
    rows = reference("stalling")["rows"]
    columns32 = [jnp.asarray([row[a] for row in rows], jnp.float32) for a in AXES]
    columns = [c.astype(jnp.float64) for c in columns32]
    counts = [jnp.asarray([row[a] for row in rows], jnp.int32) for a in "mn"]
    exact, gradients = jax.jit(jax.vmap(masked(300)))(*columns, *counts)
    got = jax.jit(jax.vmap(masked(300, np.float32)))(*columns32, *counts)
    assert got.dtype == jnp.float32
    condition = sum(jnp.abs(x * d) for x, d in zip(columns, gradients, strict=True)) / exact
    error = jnp.abs(got.astype(jnp.float64) - exact) / exact
    assert bool(jnp.all(error <= jnp.maximum(2e-5, 16 * EPS32 * (1 + condition))))


@pytest.mark.parametrize("point", [
    (.5, 2, 0, 0, 1, 1), (1.5, 2, 0, 3, 1, 1), (1, .375, 2, 2, 2, 3), (.875, 10, 3, 0, 3, 2), (2.25, 3.5, 1, 4, 2, 1),
    (.0078125, .125, 2, 1, 2, 2), (1.5, 1, 1, 2, 2, 1), (1.25, 4, 2, 3, 4, 4), (.75, 8, 3, 2, 2, 0)])
def test_exact_rationals(point):
    """The balance equations solved in fractions: nothing of the closed form enters, here or into the oracle's check."""
    exact = exact_means(*point)
    oracle = Oracle(*point)
    with mpmath.workdps(80):
        for name, want in exact.items():
            if name != "p_empty":
                want = mpmath.mpf(want.numerator) / want.denominator
                assert abs(oracle.value(name) - want) <= mpmath.mpf(10) ** -60 * want, name
    value, _ = masked(12)(*numbers(point), jnp.int32(point[4]), jnp.int32(point[5]))
    assert abs(float(value) - float(exact["mean_number"])) <= 1e-14 * float(exact["mean_number"])


TRAPS = {
    "branches of the roots at rho near 1":
        (11.079384948583106, .5952744171005633, 3.586557629003811e-05, 608.9493783480533, 1, 6),
    "branches of the roots at rho near 1, two":
        (15.675220420746632, .11357012834440762, 21.747671845610675, 274.0, 3, 5),
    "log rho at rho near 1": (1.0000001 * (1 + 2 / (3 * 7.3)), 7.3, 2.0, 1e7, 3, 2),
    "K F_0(Kx) where q^K is small": (.1, 50.0, 300.0, 4.0, 4, 2),
    "geometric sum of a small K": (.7, 3.0, 1e-6, 5.0, 2, 2),
    "n = 0 unmerged": (.9916463, 5.0, 112.0, 20836.0, 14, 0),
    "sum of parts, long buffer": (1.5, 3.0, 1e7, 10.0, 3, 2),
    "sum of parts, long line": (2.5, 3.0, 10.0, 1e7, 3, 2),
    "r at q near 1, K near 0": (1 - 1e-9, 2.5e6, 1e-3, 7.0, 5, 2),
    "r at q = 1, K = 0": (1.0, 2.5e6, 0.0, 7.0, 5, 2),
    "log1p(q-1) of a small q": (1e-8, 10.0, 2.0, 2.0, 3, 2),
    "rho = 1: 3/2": (1.5, 1.0, 3.0, 40.0, 2, 1),
    "rho = 1: 2": (2.0, 2.0, 3.5, 1e6, 1, 2),
    "rho = 1: 5/4": (1.25, 4.0, 0.0, 12.0, 8, 8),
    "rho = 1: 9": (9.0, .125, 2.0, 1000.0, 4, 4),
    "rho = 1: 1 + 2^-20": (1 + 2.0**-20, 2.0**20, 5.0, 1e7, 1, 1),
    "M in (0, 1)": (.9, 3.0, 2.0, .3, 3, 2),
    "M in (0, 1), overload": (3.0, 3.0, 2.0, .3, 3, 2),
    "m = 1": (.8, 20.0, 5.0, 9.0, 1, 3),
    "all at the upper end": (1e4, 1e-3, 5.0, 7.0, 512, 1),
    "light and slow": (1e-8, 1e9, 3.0, 4.0, 2, 2),
    "h_0 near rho^M": (1.8, .4, 3.0, 47.0, 2, 8),
    "huge h_0": (1e-3, 1e-3, 2.0, 3.0, 1, 512),
    "everything zero": (1.0, 1.0, 0.0, 0.0, 1, 0),
    "q = 1 with no room": (1.0, 8.0, 0.0, 0.0, 3, 2),
    "endless line": (1.02, 4.0, 6.0, math.inf, 4, 3),
    "endless buffer": (.97, 4.0, math.inf, 5.0, 4, 3),
    "both endless": (.97, 4.0, math.inf, math.inf, 4, 3),
}


@pytest.mark.parametrize("name", TRAPS)
def test_traps(name):
    """Points where a plausible formulation loses its digits; both modes."""
    *point, m, n = TRAPS[name]
    arguments = (*numbers(point), jnp.int32(m), jnp.int32(n))
    bound = 12 if max(m, n) <= 12 else 512
    found = masked(bound)(*arguments)
    check_point(TRAPS[name], found)
    _, forward = masked(bound, forward=True)(*arguments)
    for one, two, x in zip(found[1], forward, point, strict=True):
        scale = 1.0 if x == 0 or math.isinf(x) else x
        assert abs(float(one - two)) <= 1e-11 * max(abs(float(two)), 1e-3 * float(found[0]) / scale)


@pytest.mark.parametrize("m,n", [(5, 2), (16, 16), (1, 0)])
def test_static_counts(m, n):
    """Counts known to the compiler: loops written out, or rolled up in part."""
    check_point((.9, 4.0, 3.5, 6.0, m, n), static(*numbers((.9, 4.0, 3.5, 6.0)), m, n))


@pytest.mark.slow
def test_largest_size():
    """m = n = 512 at the smallest r."""
    point = (.7, 1e-3, 3.0, 5.0, 512, 512)
    check_point(point, static(*numbers(point), 512, 512))


def log_uniform(low, high):
    return st.floats(math.log10(low), math.log10(high)).map(lambda e: 10.0**e)


NEAR_ONE = st.tuples(st.sampled_from((-1, 1)), st.integers(1, 52)).map(lambda sk: 1 + sk[0] * 2.0**-sk[1])
LENGTHS = st.one_of(st.just(0.0), st.just(1e7), st.integers(1, 60).map(float), log_uniform(1e-6, 1e7),
                    log_uniform(1, 1e7).map(round).map(float))


@st.composite
def points(draw, largest=12):
    m, n = draw(st.integers(1, largest)), draw(st.integers(0, largest))
    r = draw(st.one_of(st.sampled_from((1e-3, 1.0, 1e9)), log_uniform(1e-3, 1e9), log_uniform(.1, 100)))
    q = draw(st.one_of(st.sampled_from((1e-8, 1e4, 1.0)), NEAR_ONE, log_uniform(1e-8, 1e4), st.floats(.3, 2)))
    if draw(st.booleans()) and draw(st.booleans()):
        q = min(1e4, draw(NEAR_ONE) * (1 + n / (m * r)))  # rho near 1
    K, M = draw(LENGTHS), draw(LENGTHS)
    if draw(st.integers(0, 9)) == 0 and q * m < m + n / r - 1e-9 * m:
        M = math.inf
    if draw(st.integers(0, 9)) == 0 and q < 1:
        K = math.inf
    return q, r, K, M, m, n


@settings(max_examples=50)
@given(points())
@example((1.0, 1.0, 0.0, 0.0, 1, 0))
def test_whole_domain(point):
    """Value and reverse-mode gradient against the many-digit oracle."""
    check_point(point, masked(12)(*numbers(point), jnp.int32(point[4]), jnp.int32(point[5])))


@settings(max_examples=40)
@given(points())
def test_whole_domain_in_float32(point):
    rounded = [float(np.float32(x)) for x in point[:4]]
    q, r, K, M = rounded
    if (math.isinf(K) and q >= 1) or (math.isinf(M) and q * point[4] * r >= point[4] * r + point[5]):
        return
    oracle = Oracle(*rounded, *point[4:])
    exact = float(oracle.value("mean_number"))
    got = masked(12, np.float32)(*numbers(point, np.float32), jnp.int32(point[4]), jnp.int32(point[5]))
    assert got.dtype == jnp.float32
    assert abs(float(got) - exact) <= max(2e-5, 16 * EPS32 * (1 + oracle.condition("mean_number"))) * exact


SECOND = {
    "ordinary": (.8, 12.0, 4.5, 7.0, 4, 3), "q = 1": (1.0, 12.0, 4.0, 7.0, 3, 2),
    "rho = 1": (1.5, 1.0, 3.0, 12.0, 2, 1),
    "no buffer, no line": (.9, 5.0, 0.0, 0.0, 3, 2), "no slow servers": (1.1, 5.0, 2.0, 3.0, 3, 0),
    "overload": (3.0, 2.0, 6.0, 30.0, 2, 2),
    "equal counts": (.95, 3.0, 5.0, 4.0, 4, 4), "q near 1, long buffer": (1 - 2.0**-20, 30.0, 1000.0, 5.0, 3, 2)}


@functools.lru_cache
def hessian(outer, bound=4):
    """All second derivatives for traced counts up to ``bound``, compiled once."""
    def value(q, r, K, M, m, n):
        return point_mean_number(q, r, K, M, Count(m, bound), Count(n, bound))

    return jax.jit(outer(jax.grad(value, (0, 1, 2, 3)), (0, 1, 2, 3)))


def check_hessian(found, point, digits=1e-9):
    """Against second differences with many digits; those of terms of the size of N need one factor more."""
    oracle = Oracle(*point, digits=160)  # q = 1 costs it some 50 of them
    value = float(oracle.value("mean_number"))
    for i, k in itertools.product(range(4), range(4)):
        if math.isinf(point[i]) or math.isinf(point[k]):
            assert float(found[i][k]) == 0, (AXES[i], AXES[k])
            continue
        exact = float(oracle.derivative("mean_number", AXES[i], AXES[k]))
        scale = math.prod(max(point[a], 1) if a > 1 else point[a] for a in (i, k))
        assert abs(float(found[i][k]) - exact) <= digits * max(abs(exact), 1e-3 * value / scale), (AXES[i], AXES[k])


@pytest.mark.parametrize("outer", [jax.jacfwd, pytest.param(jax.jacrev, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name, outer):
    """Hessians, forward over reverse and reverse over reverse."""
    *point, m, n = SECOND[name]
    check_hessian(hessian(outer)(*numbers(point), jnp.int32(m), jnp.int32(n)), SECOND[name])


@functools.lru_cache
def metric_hessians(names):
    def values(q, r, K, M, m, n):
        return point_metrics(q, r, K, M, jnp.ones_like(q), Count(m, 4), Count(n, 4), names)

    return jax.jit(jax.hessian(values, (0, 1, 2, 3)))


@pytest.mark.parametrize("name", ["ordinary", "no buffer, no line", "overload", "rho = 1"])
def test_second_derivatives_of_other_metrics(name):
    """They differentiate the weights, and in them the recursion by its own rule."""
    *point, m, n = SECOND[name]
    oracle = Oracle(*SECOND[name], digits=160)
    names = ("mean_slow", "p_full", "p_loss", "throughput")
    found = metric_hessians(names)(*numbers(point), jnp.int32(m), jnp.int32(n))
    for metric, i, k in itertools.product(names, range(4), range(4)):
        exact = float(oracle.derivative(metric, AXES[i], AXES[k]))
        scale = math.prod(max(point[a], 1) if a > 1 else point[a] for a in (i, k))
        size = max(abs(exact), 1e-3 * float(oracle.value(metric)) / scale)
        assert abs(float(found[metric][i][k]) - exact) <= 1e-9 * size, (metric, AXES[i], AXES[k])


@settings(max_examples=25)
@given(points())
@example((1e4, 4.0, 0.0, 0.0, 11, 6))  # the variance of the levels below m, where it is small
@example((1.0, 1622455.7, 0.0, 7.6e-4, 2, 4))
@example((1e-8, 1e-3, 0.0, 0.0, 7, 7))
def test_second_derivatives_over_the_whole_domain(point):
    """Up to 2,000 places: at rho near 1 the terms grow like their square, and so does what rounding them costs."""
    point = (*point[:2], *(x if math.isinf(x) else min(x, 2000.0) for x in point[2:4]), *point[4:])
    check_hessian(hessian(jax.jacfwd, 12)(*numbers(point), jnp.int32(point[4]), jnp.int32(point[5])), point, 1e-8)


def test_second_derivatives_in_float32():
    """Against float64 at the rounded inputs, all over the domain; no NaN where float64 has a number."""
    rng = np.random.default_rng(8)
    count = 300
    q, r = 10 ** rng.uniform(-8, 4, count), 10 ** rng.uniform(-3, 9, count)
    q[::2], r[::2] = rng.uniform(.3, 2, count // 2), 10 ** rng.uniform(-1, 2, count // 2)
    K, M = (rng.integers(0, 60, count).astype(float) for _ in range(2))
    points = [np.asarray(x, np.float32) for x in (q, r, K, M)]
    m, n = (jnp.asarray(rng.integers(1, 12, count), jnp.int32) for _ in range(2))
    single, double = (np.asarray(jax.jit(jax.vmap(hessian(jax.jacfwd, 12)))(*(jnp.asarray(x, kind) for x in points),
                                                                              m, n)).astype(np.float64)
                      for kind in (np.float32, np.float64))
    value = np.asarray(jax.vmap(masked(12))(*(jnp.asarray(x, np.float64) for x in points), m, n)[0])
    scales = [points[0], points[1], np.maximum(points[2], 1), np.maximum(points[3], 1)]
    for i, k in itertools.product(range(4), range(4)):
        size = np.maximum(np.abs(double[i, k]), .1 * value / (scales[i].astype(float) * scales[k]))
        error = np.abs(single[i, k] - double[i, k]) / size
        # slow servers 1e7 times as slow, at the load where they begin to matter: ln h_0 is steep there
        assert np.max(error) < 3e-2, (AXES[i], AXES[k])
        assert np.quantile(error, .95) < 2e-5, (AXES[i], AXES[k])


def test_third_derivatives_in_one_parameter():
    """Reverse mode three times and outermost, where the tangents of the other parameters are known zeros."""
    def along_q(q):
        return mean_number(Params(q, 12.0, 4.5, 7.0, 1, 1))

    step = 1e-5
    up, down = (float(jax.jit(jax.grad(jax.grad(along_q)))(.8 + s * step)) for s in (1, -1))
    for third in (jax.grad(jax.grad(jax.grad(along_q))), jax.grad(jax.jacfwd(jax.grad(along_q)))):
        assert abs(float(jax.jit(third)(.8)) - (up - down) / (2 * step)) < 1e-6 * abs(up - down) / (2 * step)


def test_third_derivatives():
    """Of the second ones, which are differentiated as they stand: against differences of them."""
    def second(q, r, K, M):
        return jax.hessian(lambda *x: mean_number(Params(*x, 2, 1)), (0, 1, 2, 3))(q, r, K, M)

    point = jnp.asarray([.8, 12.0, 4.5, 7.0])
    third = jax.jit(jax.jacfwd(second, (0, 1, 2, 3)))(*point)
    moved = jax.jit(jax.vmap(second))
    for axis in range(4):
        step = 1e-5 * point[axis] * jnp.eye(4)[axis]
        up, down = (np.asarray(x) for x in (moved(*(point + s * step)[:, None]) for s in (1, -1)))
        exact = (up - down)[..., 0] / (2e-5 * float(point[axis]))
        got = np.asarray([[third[i][k][axis] for k in range(4)] for i in range(4)])
        # the differences are good to 1e-10 of the second derivatives, over 1e-5
        np.testing.assert_allclose(got, exact, rtol=2e-5, atol=1e-7)


def test_plain_vmap_of_derivatives():
    """In blocks of a long batch, the last one filled up: what few points give."""
    rng, count = np.random.default_rng(1), 200
    points = [jnp.asarray(x) for x in (rng.uniform(.3, 1.2, count), rng.uniform(2, 50, count),
                                       rng.uniform(0, 9, count), rng.uniform(0, 9, count))]

    def value(q, r, K, M):
        return mean_number(Params(q, r, K, M, 3, 2))

    for derivative in (jax.grad(value, (0, 1, 2, 3)), jax.hessian(value, (0, 1, 2, 3))):
        compiled = jax.jit(jax.vmap(derivative))
        few = jnp.asarray([0, 63, 64, count - 1])
        together, alone = (jax.tree.leaves(compiled(*columns)) for columns in (points, [x[few] for x in points]))
        # other code for other batches: sums are fused differently, and small entries are differences of N's size
        np.testing.assert_allclose([x[few] for x in together], alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("m", "n"), [(15, 64), (17, 512), (33, 512)])
def test_gradients_at_the_corners_of_the_domain(m, n):
    """At light load N = q m, and the slow servers add r b P with P = b^L/(m! m^K), b = q m, L = m + K: to O(q)."""
    q, K = 1e-8, 3
    slopes = jax.jit(jax.grad(lambda q, r: mean_number(Params(q, r, K, 5, m, n)), (0, 1)))
    log_slope = (m + K + 1) * math.log(q * m) - math.lgamma(m + 1) - K * math.log(m)
    for r in (1e-3, 1e9):
        along_q, along_r = slopes(q, r)
        assert abs(along_q / m - 1) < 1e-6
        assert abs(along_r / math.exp(log_slope) - 1) < 1e-5  # O(q), and 1e-13 of the logarithm
