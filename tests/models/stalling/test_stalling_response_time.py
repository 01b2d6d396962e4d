"""The law of the response and waiting time against reference rows, an absorbing chain, Little's law and simulation."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from response_oracle import after_stage, chain_law, queue_tails, simulate, weights

import hetjax
from hetjax.models import stalling
from hetjax.models.stalling.response_law import make_law, tail_and_density
from hetjax.numerics.counting import Count
from hetjax.result import Status


@functools.partial(jax.jit, static_argnums=(7, 8))
def law_at(q, r, K, M, m, n, t, kind, server):
    """(tail, density) at flat arrays of points, m <= 64 and n <= 16 traced: one compilation for all sizes."""
    def one(q, r, K, M, m, n, t):
        m, n = Count(m, 64), Count(n, 16)
        return tail_and_density(make_law(q, r, K, M, m, n, server), t, kind, server, n)

    return jax.vmap(one)(q, r, K, M, m, n, t)


def columns(rows, names, size=64):
    """Arrays of one ``size``, padded by repetition: one compilation serves all tables."""
    assert len(rows) <= size
    kinds = {name: np.int32 if name in "mn" else np.float64 for name in names}
    return [jnp.asarray(np.resize(np.array([row[name] for row in rows], kinds[name]), size)) for name in names]


def survival(params, t, kind="response"):
    """P(time > t) at up to 1200 times, in one compilation for all parameters with the same m and n."""
    t = np.atleast_1d(np.asarray(t, float))
    return np.asarray(stalling.response_time_survival(params, np.resize(t, 1200), kind))[:len(t)]


@pytest.mark.parametrize("kind, key", [("response", "sf_T"), ("waiting", "sf_W")])
def test_survival_of_the_reference_rows(reference, kind, key):
    rows = reference("response_time")["rows"]
    tails, _ = law_at(*columns(rows, ("q", "r", "K", "M", "m", "n", "t")), kind, "any")
    checked = 0
    for row, tail in zip(rows, tails, strict=False):
        exact = float(row[key])
        if exact < 1e-300:
            assert tail < 1e-290
            continue
        checked += 1
        assert abs(tail / exact - 1) < (1e-11 if max(row["K"], row["M"]) <= 1e4 else 1e-10), row
    assert checked >= 18


def test_percentile_metrics_of_the_reference_rows(reference):
    rows = reference("response_time")["rows"]
    arrays = {name: np.array([row[name] for row in rows]) for name in "qrKMmn"}
    found = hetjax.evaluate("stalling", **arrays, metrics=["response_time_p95", "response_time_p99"])
    assert np.all(found.status == Status.OK)
    for label in ("p95", "p99"):
        exact = np.array([float(row[label]) for row in rows])
        # 1 - 0.99 carries 1e-14 of the tail and a quarter of that of the time
        np.testing.assert_allclose(found[f"response_time_{label}"], exact, rtol=2e-13)


CHAINS = [(0.7, 3.0, 3, 4, 2, 2), (1.3, 0.5, 2, 5, 1, 3), (2.0, 1.0, 0, 6, 1, 1), (0.9, 40.0, 5, 0, 3, 1),
          (1.0, 7.0, 4, 3, 2, 1), (0.5, 0.1, 0, 4, 1, 1)]


@pytest.mark.parametrize("kind, server", [
    ("response", "any"), ("waiting", "any"), ("response", "slow"), ("waiting", "fast"),
    pytest.param("response", "fast", marks=pytest.mark.slow), pytest.param("waiting", "slow", marks=pytest.mark.slow)])
def test_whole_buffers_against_the_absorbing_chain(kind, server):
    times = [0.01, 0.4, 2.5, 9.0]
    points = [(*chain, t) for chain in CHAINS for t in times]
    names = ("q", "r", "K", "M", "m", "n", "t")
    tails, densities = law_at(*columns([dict(zip(names, p, strict=True)) for p in points], names), kind, server)
    for point, tail, density in zip(points, tails, densities, strict=False):
        with mpmath.workdps(40):
            exact_tail, exact_density = chain_law(*point, kind, server)
        if exact_tail > 1e-30:
            assert abs(float(tail / float(exact_tail)) - 1) < 3e-14, point  # eps times the largest exponent, about 40
            assert abs(float(density / float(exact_density)) - 1) < 3e-14, point
        else:
            assert tail < 1e-29


def test_real_buffers_against_incomplete_gamma_functions():
    """The share of every branch at real K and M, n = 2 slow servers; 30 digits, the fast line by quadrature."""
    for q, r, K, M, t in ((0.8, 3.0, 2.4, 5.7, 3.0), (1.4, 0.7, 1.3, 0.6, 1.5), (1.1, 9.0, 6.5, 12.3, 7.0)):
        tail = survival(stalling.Params(q, r, K, M, 2, 2), t)[0]
        waits = survival(stalling.Params(q, r, K, M, 2, 2), t, "waiting")[0]
        with mpmath.workdps(30):
            exact_tail, exact_waits = (float(x) for x in two_and_two(*(mpmath.mpf(x) for x in (q, r, K, M, t))))
        assert abs(float(waits) / exact_waits - 1) < 1e-14
        assert abs(float(tail) / exact_tail - 1) < 1e-14


@pytest.mark.slow
def test_percentile_and_its_gradient_to_high_precision():
    """The percentile solves survival = 1 - p, and its slopes are -S_x / S_t, both of the formula at 40 digits."""
    def percentile(x):
        return stalling.response_time_percentile(stalling.Params(*x, 2, 2), 0.95)

    points = jnp.asarray([(0.8, 3.0, 2.4, 5.7), (1.4, 0.7, 1.3, 0.6), (1.1, 9.0, 6.5, 12.3)])
    times, slopes = jax.jit(jax.vmap(lambda x: (percentile(x), jax.jacfwd(percentile)(x))))(points)
    for point, t, slope in zip(points, times, slopes, strict=True):
        with mpmath.workdps(40):
            x = [mpmath.mpf(float(v)) for v in (*point, t)]
            h = mpmath.mpf(10)**-13  # error h^2, digits lost 13 of 40
            partial = [(two_and_two(*x[:i], v + h, *x[i + 1:])[0] - two_and_two(*x[:i], v - h, *x[i + 1:])[0]) / (2 * h)
                       for i, v in enumerate(x)]
            gap = float((two_and_two(*x)[0] - (1 - mpmath.mpf("0.95"))) / partial[4])
            exact = np.array([float(-p / partial[4]) for p in partial[:4]])
        assert abs(gap) < 3e-14 * float(t)
        np.testing.assert_allclose(slope, exact, rtol=1e-11)


def two_and_two(q, r, K, M, t):
    """P(response > t) and P(waiting > t) for m = n = 2 from incomplete gamma functions, at real K and M."""
    below, _, P, h = weights(q, r, K, M, 2, 2)
    b, mu, nu = 2 * q, 1 / r, 2 + 2 / r
    buffer = queue_tails(t, 2 - b, mpmath.mpf(2), b, K, mpmath.mpf(1))
    slow = queue_tails(t, nu - b, nu, b, M, mu)
    fast = after_stage(t, nu - b, nu, b, M, K, mpmath.mpf(2), mpmath.mpf(1))
    to_fast, to_slow = 2 / nu, 2 * mu / nu
    total = below + (1 - q**K) / (1 - q) + P * (h - 1) + P * (1 - (b / nu)**M) / (1 - b / nu)
    wait = buffer[0] + P * (to_slow * slow[0] + to_fast * fast[0])
    rest = below * mpmath.exp(-t) + P * (h - 1) * mpmath.exp(-mu * t)
    return (wait + rest + buffer[1] + P * (to_slow * slow[1] + to_fast * fast[1])) / total, wait / total


def test_less_than_one_place():
    """Few places of the buffer or the line: the waiting tail keeps its digits and derivative down to none."""
    def tail(K, M, t):
        params = stalling.Params(0.5, 0.1, K, M, 1, 1)  # nu = 11, m = 1: the tail at K = 0 is far below e^-t
        return stalling.response_time_survival(params, t, "waiting")

    t = jnp.asarray(2.2)
    with mpmath.workdps(40):
        exact = float(chain_law(0.5, 0.1, 0, 4, 1, 1, 2.2, "waiting")[0])
    at_zero, slope = jax.value_and_grad(tail)(jnp.asarray(0.0), jnp.asarray(4.0), t)
    assert exact < 1e-6 and abs(at_zero / exact - 1) < 1e-13
    for K in (1e-9, 1e-6):
        assert abs((tail(jnp.asarray(K), jnp.asarray(4.0), t) - at_zero) / K / slope - 1) < 1e-5
    small = jax.vmap(tail, (0, 0, None))(jnp.asarray([0.0, 0.0, 0.0]), jnp.asarray([0.0, 1e-9, 1e-6]), t)
    assert small[0] == 0
    np.testing.assert_allclose(small[2] / small[1], 1e3, rtol=1e-5)


def test_little_over_the_domain():
    """The mean of the law against N/throughput, which uses none of its sums."""
    rng = np.random.default_rng(5)
    size = 400
    q, r = 10 ** rng.uniform(-1, 1, size), 10 ** rng.uniform(-3, 6, size)
    q[::4] = 1 + rng.normal(size=size // 4) * 10 ** rng.uniform(-12, -2, size // 4)
    K, M = 10 ** rng.uniform(-6, 7, size), 10 ** rng.uniform(-6, 7, size)
    params = stalling.Params(q, r, K, M, 5, 2)
    for server, name in (("any", "mean_response_time"), ("fast", "mean_response_time_fast"),
                         ("slow", "mean_response_time_slow")):
        mean = stalling.response_time_moments(params, server=server).mean
        np.testing.assert_allclose(mean, getattr(stalling.metrics(params), name), rtol=2e-13)


def test_moments_are_those_of_the_tail():
    """E T = int P(T > t) dt and E T^2 = int 2 t P(T > t) dt by Gauss-Legendre panels."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.concatenate([[0.0], np.geomspace(0.01, 400, 30)])
    t = np.concatenate([(a + b) / 2 + (b - a) / 2 * nodes for a, b in itertools.pairwise(edges)])
    w = np.concatenate([(b - a) / 2 * weights for a, b in itertools.pairwise(edges)])
    params = stalling.Params(1.1, 4.0, 2.5, 7.3, 2, 2)
    for kind in ("response", "waiting"):
        tail = survival(params, t, kind)
        moments = stalling.response_time_moments(params, kind)
        np.testing.assert_allclose([moments.mean, moments.second_moment], [w @ tail, 2 * w @ (t * tail)], rtol=1e-12)


def test_variance_keeps_its_digits_where_times_hardly_vary():
    """A buffer that is always full: nearly Erlang(K, m) + Exp(1), variance K/m^2 + 1 with corrections of order 1."""
    moments = stalling.response_time_moments(stalling.Params(50.0, 1e9, 1e6, 0.0, 2, 0))
    # K - j customers ahead, j geometric(1/50) : variance of (K - j)/4-type terms
    x = 1 / 50
    j_mean, j_var = x / (1 - x), x / (1 - x) ** 2
    exact = (1e6 - j_mean) / 4 + j_var / 4 + 1
    assert abs(moments.variance / exact - 1) < 1e-11


def test_endless_lines_are_the_limits_of_long_ones():
    t = jnp.asarray([0.0, 0.3, 5.0])
    for endless, long in (({"K": math.inf, "M": 3.0}, {"K": 1e6, "M": 3.0}),
                          ({"K": 2.0, "M": math.inf}, {"K": 2.0, "M": 1e6})):
        for kind in ("response", "waiting"):
            got, near = (survival(stalling.Params(0.8, 5.0, **places, m=2, n=2), t, kind)
                         for places in (endless, long))
            np.testing.assert_allclose(got, near, rtol=1e-11)
    # K = inf is M/M/2, whose waiting time is exponential
    waits = survival(stalling.Params(0.8, 5.0, math.inf, 3.0, 2, 2), t, "waiting")
    np.testing.assert_allclose(waits, 0.8 * 1.6 / 1.8 * np.exp(-0.4 * np.asarray(t)), rtol=1e-13)


def test_time_unit_and_bounds():
    p = stalling.Params(0.9, 4.0, 3.0, 6.0, 2, 2)
    hours = stalling.Params(0.9, 4.0, 3.0, 6.0, 2, 2, mu1=60.0)
    t = jnp.asarray([-1.0, 0.0, 1e-9, 2.0, 1e4, jnp.inf])
    tail = survival(p, t)
    np.testing.assert_allclose(survival(hours, t / 60), tail, rtol=1e-14)
    density = stalling.response_time_density(p, t)
    np.testing.assert_allclose(stalling.response_time_density(hours, t / 60), 60 * density, rtol=1e-13)
    assert tail[0] == 1 and abs(tail[1] - 1) < 1e-15 and tail[-1] == 0
    in_hours, plain = (stalling.response_time_percentile(x, 0.9) for x in (hours, p))
    assert abs(in_hours * 60 / plain - 1) < 1e-14
    unstable = stalling.Params(1.5, 4.0, 3.0, math.inf, 2, 2)
    solution = stalling.solve_response_time(unstable, 0.9)
    assert solution.status == Status.UNSTABLE and jnp.isnan(solution.value)
    assert np.isnan(survival(unstable, 1.0))


@pytest.mark.slow
def test_no_waiting_where_the_atom_holds_the_percentile():
    p = stalling.Params(0.9, 4.0, 3.0, 6.0, 2, 2)
    assert stalling.response_time_percentile(p, 0.01, "waiting") == 0  # most do not wait at all


def test_bad_input():
    p = stalling.Params(0.9, 4.0, 3.0, 6.0, 2, 0)
    with pytest.raises(ValueError, match=r"p = 1\.0"):
        stalling.response_time_percentile(p, 1.0)
    with pytest.raises(ValueError, match="kind = 'sojourn'"):
        stalling.response_time_survival(p, 1.0, "sojourn")
    with pytest.raises(ValueError, match="server = 'quick'"):
        stalling.response_time_survival(p, 1.0, server="quick")
    with pytest.raises(ValueError, match="n = 0"):
        stalling.response_time_moments(p, server="slow")


@pytest.mark.slow
def test_simulation():
    """Tails of both times by server type within five standard errors of 20 independent runs."""
    point = (0.9, 3.0, 2, 4, 2, 2)
    params = stalling.Params(*(float(x) for x in point[:4]), *point[4:])
    runs = [simulate(*point, customers=6000, seed=seed) for seed in range(20)]
    for server in ("any", "fast", "slow"):
        for kind, t in (("response", 1.0), ("response", 5.0), ("waiting", 0.0), ("waiting", 1.2)):
            shares = []
            for wait, length, slow in runs:
                chosen = np.ones(len(wait), bool) if server == "any" else slow == (server == "slow")
                shares.append(np.mean((wait + (length if kind == "response" else 0))[chosen] > t))
            error = np.std(shares, ddof=1) / math.sqrt(len(shares))
            exact = stalling.response_time_survival(params, t, kind, server)
            assert abs(np.mean(shares) - exact) < 5 * error + 1e-12


def test_float32():
    """Against float64 at the rounded inputs; the exponents reach 30, of which float32 keeps 2e-6."""
    rng = np.random.default_rng(3)
    size = 64
    arrays = [10 ** rng.uniform(-1, 0.5, size), 10 ** rng.uniform(-1, 3, size), rng.uniform(0, 100, size),
              rng.uniform(0, 100, size), 10 ** rng.uniform(-1, 1.5, size)]
    narrow = [jnp.asarray(a, jnp.float32) for a in arrays]
    counts = jnp.full(size, 3, jnp.int32), jnp.full(size, 2, jnp.int32)
    got, _ = law_at(*narrow[:4], *counts, narrow[4], "response", "any")
    exact, _ = law_at(*(a.astype(jnp.float64) for a in narrow[:4]), *counts, narrow[4].astype(jnp.float64), "response",
                      "any")
    assert got.dtype == jnp.float32
    kept = np.asarray(exact) > 1e-6
    assert np.max(np.abs(np.asarray(got, np.float64) / exact - 1)[kept]) < 1e-4
    small = stalling.Params(*(a[:8] for a in narrow[:4]), 3, 2)
    mean = stalling.response_time_moments(small).mean
    assert mean.dtype == jnp.float32
    np.testing.assert_allclose(mean, stalling.metrics(small).mean_response_time, rtol=2e-5)
