"""The state law against exact rationals, p_empty, p_stuck and p_slow against the paper's sums in many digits."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from exact_distribution import alternating_sums, balance_solution
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax.models.stalling import Params, StateProbabilities, empty_stuck_slow, metrics, state_probabilities

NAMES = ("p_empty", "p_stuck", "p_slow")
SMALLEST = {np.float64: 1e-290, np.float32: 1e-30}
TOLERANCE = {np.float64: 1e-12, np.float32: 1e-4}  # what models of this accuracy class are asked for

static = jax.jit(empty_stuck_slow, static_argnums=(4, 5))
bounded = jax.jit(partial(empty_stuck_slow, max_m=40, max_n=20))  # one compilation for many counts
wide = jax.jit(partial(empty_stuck_slow, max_m=512, max_n=40))


def compare(found, exact, dtype):
    for name, value in zip(NAMES, found, strict=True):
        value, wanted = float(value), exact[name]
        if wanted > SMALLEST[dtype]:
            assert abs(value / wanted - 1) <= TOLERANCE[dtype], (name, value, wanted)
        else:
            assert 0 <= value <= 1.01 * SMALLEST[dtype], (name, value, wanted)


def eps(dtype):
    return float(np.finfo(dtype).eps)


# ---- the full law

@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def compiled_law(q, r, K, M, m, n):
    return state_probabilities(Params(q, r, K, M, m, n))


def state_law(q, r, K, M, m, n, dtype):
    return StateProbabilities(*map(np.asarray, compiled_law(dtype(q), dtype(r), K, M, m, n)))


SMALL = [(0.875, 3.0, 2, 3, 2, 3), (1.0, 2.0, 3, 2, 2, 1), (1.25, 4.0, 0, 2, 3, 2), (0.5, 2.0, 1, 4, 1, 0),
         (1.5, 1.0, 1, 0, 2, 1), (2.0**-10, 1024.0, 3, 2, 2, 2),
         (1024.0, 2.0**-9, 3, 2, 2, 2), (0.75, 1e9, 2, 1, 1, 4)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("point", SMALL)
def test_every_state_against_exact_rationals(point, dtype):
    _, _, K, M, m, n = point
    law = state_law(*point, dtype)
    exact = balance_solution(*point)
    assert law.levels.shape == (m + K + 1, n + 1) and law.waiting.shape == (M,) and law.levels.dtype == dtype
    assert law.levels.size + law.waiting.size == len(exact)
    for state, p in exact.items():
        if p > np.finfo(dtype).tiny:
            # a few dozen roundings
            assert float(law.probability(*state, m=m)) == pytest.approx(float(p), rel=32 * eps(dtype)), state


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("q", [2.0**-10, 0.875, 1.0, 1024.0])
def test_every_state_of_a_long_buffer(q, dtype):
    """Plain elimination leaves the range here: neighbouring levels differ by 1e3, 150 of them follow one another."""
    point = (q, 2.0, 150, 20, 2, 1)
    with mpmath.workdps(40):
        exact = balance_solution(*point, number=mpmath.mpf)
    law = state_law(*point, dtype)
    assert float(law.levels.sum() + law.waiting.sum()) == pytest.approx(1, rel=64 * eps(dtype))
    for (i, j, k), p in exact.items():
        value = float(law.probability(i, j, k, m=2))
        if p > SMALLEST[dtype]:
            # the exponent's argument (to ~650 in float64, ~70 in float32) rounds, and the law takes 150 steps
            assert value == pytest.approx(float(p), rel=1000 * eps(dtype)), (i, j, k)
        else:
            assert 0 <= value <= 1.01 * SMALLEST[dtype]


def test_law_sums_to_the_metrics():
    p = Params(0.97, 30.0, 60, 12, 6, 5)
    law, found = state_probabilities(p), jax.jit(metrics)(p)
    levels, waiting = np.asarray(law.levels), np.asarray(law.waiting)
    l, j, w = np.arange(67), np.arange(6), np.arange(1, 13)
    sums = {"mean_number": (levels.sum(1) @ l + levels.sum(0) @ j + waiting @ (w + 66 + 5)),
            "mean_slow": levels.sum(0) @ j + 5 * waiting.sum(), "mean_waiting": waiting @ w,
            "p_empty": levels[0, 0], "p_stuck": levels[0, 1:].sum(), "p_slow": levels[:, 1:].sum() + waiting.sum(),
            "p_full": levels[66, 5], "p_slow_only": levels[0, 5], "p_loss": waiting[-1], "p_wait": waiting.sum(),
            "mean_stuck": levels[0] @ j, "p_fast": levels[1:].sum() + waiting.sum()}
    for name, value in sums.items():
        assert value == pytest.approx(float(getattr(found, name)), rel=1e-13), name


def test_law_is_traceable_and_differentiable_in_the_rates():
    def stuck(q, r):
        return state_probabilities(Params(q, r, 3, 2, 2, 3)).levels[0, 1:].sum()

    x = (jnp.asarray(0.9), jnp.asarray(5.0))
    by_law = jax.jit(jax.grad(stuck, (0, 1)))(*x)
    direct = reverse_mode(*x, jnp.asarray(2.0), jnp.asarray(3.0), 2, 3)
    np.testing.assert_allclose(by_law, [d[1] for d in direct[:2]], rtol=1e-13)


def test_what_gives_shapes_must_be_whole_and_known():
    with pytest.raises(ValueError, match=r"K = 2\.5 gives array shapes"):
        state_probabilities(Params(0.5, 2.0, 2.5, 1, 1, 1))
    with pytest.raises(ValueError, match="M = inf gives array shapes"):
        state_probabilities(Params(0.5, 2.0, 2, math.inf, 1, 1))
    with pytest.raises(ValueError, match="K is traced"):
        jax.jit(lambda K: state_probabilities(Params(0.5, 2.0, K, 1, 1, 1)))(2.0)
    law = state_probabilities(Params(0.5, 2.0, 2, 3, 2, 1))
    for state in [(1, 0, 1), (2, 0, 3), (3, 0, 0), (0, 2, 0), (2, 1, 6), (0, -1, 0)]:
        with pytest.raises(ValueError, match="is no state"):
            law.probability(*state, m=2)


# ---- empty, stuck, slow

def test_reference_rows(reference):
    checked = 0
    for row in reference("stalling")["rows"]:
        if "p_empty" not in row:
            continue
        args = [jnp.asarray(row[k], jnp.float64) for k in "qrKM"]
        small = row["m"] <= 40 and row["n"] <= 20
        found = (bounded if small else wide)(*args, row["m"], row["n"])
        for name, value in zip(NAMES, found, strict=True):
            if name in row:
                checked += 1
                assert float(value) == pytest.approx(float(row[name]), rel=1e-12, abs=0 if float(row[name]) else 1e-300)
    assert checked > 150


near_one = st.builds(lambda sign, k: 1 + sign * 2.0**-k, st.sampled_from([-1, 1]), st.integers(1, 40))


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(lambda x: min(max(math.exp(x), low), high))


@settings(max_examples=200)
@given(q=st.one_of(log_uniform(1e-8, 1e4), log_uniform(0.2, 5), near_one, st.sampled_from([1.0, 1e-8, 1e4])),
       r=st.one_of(log_uniform(1e-3, 1e9), log_uniform(0.1, 50), st.sampled_from([1.0, 1e-3, 1e9])),
       K=st.one_of(st.integers(0, 12), log_uniform(1, 1e7).map(math.floor), st.just(10**7)),
       M=st.one_of(st.integers(0, 20).map(float), log_uniform(0.1, 1e7), st.just(1e7)),
       m=st.integers(1, 40), n=st.integers(0, 20), dtype=st.sampled_from([np.float64, np.float32]))
def test_whole_domain(q, r, K, M, m, n, dtype):
    q, r, K, M = (float(dtype(x)) for x in (q, r, K, M))
    if not 1e-8 <= q <= 1e4 or not 1e-3 <= r <= 1e9:
        q, r = min(max(q, 1.1e-8), 9e3), min(max(r, 1.1e-3), 9e8)  # float32 rounding left the domain
        q, r = float(dtype(q)), float(dtype(r))
    exact = alternating_sums(q, r, int(K), M, m, n, digits=120 + 40 * n)
    compare(bounded(*(dtype(x) for x in (q, r, K, M)), m, n), exact, dtype)


@pytest.mark.parametrize("point", [
    (1.0, 1.3e8, 10**7 - 1, 5.0, 2, 2),  # 2^24 levels, p_stuck = 1e-276
    (1.0005, 1.3e7, 10**6 - 1, 5.0, 3, 5),  # p_stuck and p_empty ~ q^-K: multiplying up level by level would lose K eps
    (0.9995, 1.3e7, 10**6 - 1, 5.0, 3, 5), (0.9999, 1.3e7, 10**6 - 1, 0.5, 3, 5), (1.0, 3e4, 10**5 - 1, 1e6, 5, 3)])
def test_error_does_not_grow_with_the_buffer(point):
    args = [jnp.asarray(float(x)) for x in point[:4]]
    compare(static(*args, *point[4:]), alternating_sums(*point, digits=500), np.float64)


@pytest.mark.parametrize("point", [
    pytest.param((1.0, 0.5, 3, 10.0, 512, 512), marks=pytest.mark.slow),
    (1.1, 1e-3, 40, 3.0, 5, 512), (0.9, 1e6, 2, 0.0, 512, 3)])
def test_most_servers(point):
    args = [jnp.asarray(float(x)) for x in point[:4]]
    compare(static(*args, *point[4:]), alternating_sums(*point, digits=200 + 6 * point[5]), np.float64)


def test_limits():
    q, r, M = jnp.asarray(0.5), jnp.asarray(4.0), jnp.asarray(3.0)
    never = static(q, r, jnp.asarray(math.inf), M, 2, 3)
    assert never.p_stuck == 0 and never.p_slow == 0
    assert float(never.p_empty) == pytest.approx(1 / 3, rel=1e-15)  # M/M/2 at load 1/2
    none = static(q, r, jnp.asarray(2.0), M, 1, 0)
    assert none.p_stuck == 0 and none.p_slow == 0
    assert float(none.p_empty) == pytest.approx(1 / sum(0.5**k for k in range(7)), rel=1e-15)  # M/M/1 with 5 places
    endless = static(q, r, jnp.asarray(1.0), jnp.asarray(math.inf), 2, 3)
    long = static(q, r, jnp.asarray(1.0), jnp.asarray(1e5), 2, 3)
    np.testing.assert_allclose(endless, long, rtol=1e-14)


def test_nan_only_where_undefined():
    def at(q, K, M):
        return np.isnan(np.asarray(static(*(jnp.asarray(float(x)) for x in (q, 2.0, K, M)), 2, 1)))

    assert at(0.5, 2.5, 3).all()  # K not whole
    assert at(1.0, math.inf, 3).all() and at(2.0, 1, math.inf).all() and at(0.0, 1, 1).all()  # unstable, outside
    assert not at(0.5, 2, 3).any() and not at(0.5, math.inf, math.inf).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bounds_change_nothing(dtype):
    for m, n in [(1, 0), (3, 2)]:
        args = [jnp.asarray(x, dtype) for x in (0.9, 3.0, 21.0, 4.5)]
        np.testing.assert_allclose(bounded(*args, m, n), static(*args, m, n), rtol=32 * eps(dtype))


def test_traced_once_for_all_buffers():
    traces = []

    @jax.jit
    def f(q, K, m, n):
        traces.append(1)
        return jax.vmap(lambda q, K, m, n: empty_stuck_slow(
            q, jnp.full_like(q, 3), K, jnp.full_like(q, 2), m, n, max_m=3, max_n=3))(q, K, m, n)

    q, K = jnp.array([0.5, 1.0, 2.0]), jnp.array([0.0, 7.0, 1000.0])
    m, n = jnp.array([1, 2, 3]), jnp.array([3, 0, 2])
    found = f(q, K, m, n)
    f(q * 1.5, K + 3, m[::-1], n[::-1])
    assert len(traces) == 1
    for i in range(3):
        alone = static(q[i], jnp.asarray(3.0), K[i], jnp.asarray(2.0), int(m[i]), int(n[i]))
        np.testing.assert_allclose([v[i] for v in found], alone, rtol=1e-14)


def all_three(q, r, M, K, m, n):
    return jnp.stack(empty_stuck_slow(q, r, K, M, m, n, max_m=3, max_n=4))


reverse_mode, forward_mode = (jax.jit(d(all_three, (0, 1, 2))) for d in (jax.jacrev, jax.jacfwd))


@pytest.mark.parametrize("point", [(0.8, 5.0, 20, 7.0, 3, 4), (1.0, 5.0, 20, 7.0, 3, 4), (1.0, 1.0, 20, 0.0, 3, 4),
                                   (1.5, 1.0, 6, 3.0, 2, 1), (0.999, 1e5, 5000, 2.5, 2, 3)])
def test_gradients_against_many_digits(point):
    q, r, K, M, m, n = point
    args = [jnp.asarray(float(x)) for x in (q, r, M, K)]
    reverse, forward = (np.stack(d(*args, m, n), 1) for d in (reverse_mode, forward_mode))
    np.testing.assert_allclose(reverse, forward, rtol=1e-12, atol=1e-290)
    step, digits = mpmath.mpf(10)**-25, 260
    with mpmath.workdps(digits):
        for i in range(3):
            high, low = ([mpmath.mpf(v) + s * step * (i == c) for c, v in enumerate((q, r, M))] for s in (1, -1))
            above, below = (alternating_sums(a, b, K, c, m, n, digits) for a, b, c in (high, low))
            for row, name in enumerate(NAMES):
                slope = (above[name] - below[name]) / (2 * step)
                floor = 1e-3 * float(above[name]) / max(float((q, r, max(M, 1))[i]), 1e-300)
                assert abs(forward[row, i] - slope) <= 1e-9 * max(abs(slope), floor), (name, i)


def test_no_slope_in_a_whole_number():
    found = jax.jit(jax.grad(lambda K: all_three(jnp.asarray(0.9), jnp.asarray(2.0), jnp.asarray(1.0), K, 2, 2).sum()))
    assert float(found(jnp.asarray(3.0))) == 0
