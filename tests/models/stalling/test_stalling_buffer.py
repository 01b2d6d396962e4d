"""The optimal stalling buffer against brute force in many digits, its certificate, derivatives and asymptotics."""

import itertools
import math
import types

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from models.stalling.buffer_oracle import Oracle, digits_for
from mpmath import mpf

import hetjax
from hetjax.models.stalling import Params
from hetjax.models.stalling.asymptotics import asymptotes, finite_line_growth
from hetjax.models.stalling.buffer import Certificate, optimal_buffer
from hetjax.models.stalling.buffer_model import fixed_parts
from hetjax.models.stalling.buffer_search import rises_beyond
from hetjax.models.stalling.buffer_slope import mean_number, state
from hetjax.numerics.counting import Count
from hetjax.result import OptimumStatus, Status


@pytest.fixture(autouse=True)
def many_digits():
    """Differences of the oracle's values are formed here, far below their own size."""
    with mpmath.workdps(400):
        yield


METRICS = ["optimal_buffer", "optimal_buffer_real", "mean_number_at_optimum", "log10_gain", "gain_over_zero",
           "local_minima", "optimum_status", "certified", "asymptotic_i", "error_i", "error_ii_printed",
           "error_ii_corrected"]
POINTS = 60


def sweep(q, r, M, m, n, dtype=np.float64):
    """The registered model on up to 60 points, m and n masked below common bounds: one compilation for all tests."""
    axes = {"q": np.asarray(q, dtype), "r": np.asarray(r, dtype), "M": np.asarray(M, dtype), "m": np.asarray(m),
            "n": np.asarray(n)}
    found = hetjax.evaluate("stalling_buffer", **{name: np.resize(axis, POINTS) for name, axis in axes.items()},
                            max_m=8, max_n=12, metrics=METRICS)
    return types.SimpleNamespace(**{name: np.asarray(found[name])[:len(axes["q"])] for name in (*METRICS, "status")})


def random_queues(seed, count, endless):
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < count:
        m, n = int(rng.integers(1, 9)), int(rng.integers(1, 13))
        r, q = 10 ** rng.uniform(-0.5, 3), rng.choice([rng.uniform(0.05, 1), 1 + n / m * rng.uniform(0, 0.2)])
        M = math.inf if endless else float(rng.integers(0, 12))
        if endless and q * m * r >= 0.999 * (m * r + n):
            continue
        if (m * (1 - q) * r > 70) if q < 1 else (r > 30):
            continue  # keeps the brute force short
        rows.append((q, r, M, m, n))
    return rows


@pytest.fixture(scope="module", params=[True, False], ids=["endless line", "short line"])
def brute_force(request):
    """Random queues, what the model says, and all local minima on 0..150 in many digits."""
    rows = random_queues(3 + request.param, 40, request.param)
    found = sweep(*zip(*rows, strict=True))
    minima = []
    for q, r, M, m, n in rows:
        last = 150
        minima.append(Oracle(q, r, M, m, n, digits_for(q, last) // 2 + 40).minima(last))
    return request.param, rows, found, minima


def test_optimum_is_the_brute_force_one(brute_force):
    endless, rows, found, minima = brute_force
    assert np.all(found.status == Status.OK)
    for i, row in enumerate(rows):
        assert found.optimal_buffer[i] == minima[i][0], row
        assert found.local_minima[i] == len(minima[i]), row
        several, edge = len(minima[i]) > 1, minima[i][0] == 0
        expected = OptimumStatus.MULTIMODAL if several else OptimumStatus.EDGE if edge else OptimumStatus.INTERIOR
        assert found.optimum_status[i] == expected, row
    lengths = {len(some) for some in minima}
    assert lengths == {1} if endless else lengths <= {1, 2}
    assert 3 < sum(some[0] > 0 for some in minima) < len(rows)  # the draws say something


def test_optimum_values(brute_force):
    _, rows, found, minima = brute_force
    assert np.mean(found.certified) > 0.8
    for i, (q, r, M, m, n) in enumerate(rows):
        K = minima[i][0]
        oracle = Oracle(q, r, M, m, n, digits_for(q, K) + 40)
        N = oracle.number(K)
        assert abs(mpf(float(found.mean_number_at_optimum[i])) / N - 1) < 1e-14
        assert abs(mpf(float(found.gain_over_zero[i])) - (1 - N / oracle.number(0))) < 1e-13
        if q < 1:
            # ln p1, K ln q are up to 1e2 in size, and the gain's bracket loses a factor K
            assert abs(float(found.log10_gain[i]) - mpmath.log10(1 - N / oracle.never())) < 1e-11
        K_real = float(found.optimal_buffer_real[i])
        if K_real > 0:
            low, high = (oracle.slope(K_real * (1 + side * 1e-11)) for side in (-1, 1))
            assert low < 0 < high, rows[i]


@pytest.mark.parametrize(("point", "K", "gain"), [((0.7, 20.0, 5, 2), 29, "3.401e-06"),
                                                  ((0.7, 100.0, 5, 2), 149, "7.827e-25")])
def test_gains_far_below_rounding(point, K, gain):
    q, r, m, n = point
    best = optimal_buffer(Params(q, r, 0, math.inf, m, n), enumerate_up_to=256)
    oracle = Oracle(q, r, math.inf, m, n, digits_for(q, K))
    assert best.K == K and best.optimum_status == OptimumStatus.INTERIOR
    assert best.certificate == Certificate.ENUMERATED
    exact = 1 - oracle.number(K) / oracle.never()
    assert f"{float(best.gain_never):.3e}" == gain
    assert abs(mpf(float(best.gain_never)) / exact - 1) < 1e-12  # K ln q = 53 rounds at 1e-14
    assert abs(mpf(float(best.gap_above)) / oracle.difference(K) - 1) < 1e-12
    assert abs(mpf(float(best.gap_below)) / -oracle.difference(K - 1) - 1) < 1e-12
    assert best.gap_below > 0 and best.bracket[0] <= best.K_real <= best.bracket[1]


def test_two_local_minima_are_found_and_weighed():
    found = sweep([0.767, 0.917], [60.0, 60.0], [1.0, 3.0], [5, 3], [1, 12])
    np.testing.assert_array_equal(found.local_minima, [2, 2])
    np.testing.assert_array_equal(found.optimum_status, [OptimumStatus.MULTIMODAL] * 2)
    np.testing.assert_array_equal(found.optimal_buffer, [0, 20])


def test_overload_never_stalls():
    rng = np.random.default_rng(5)
    m, n = rng.integers(1, 9, 60), rng.integers(0, 13, 60)
    r = 10 ** rng.uniform(-2, 3, 60)
    q = (1 + n / (m * r)) * 10 ** rng.uniform(0.001, 1, 60)
    found = sweep(q, r, np.floor(10 ** rng.uniform(0, 5, 60)), m, n)
    np.testing.assert_array_equal(found.optimal_buffer, 0)
    np.testing.assert_array_equal(found.optimum_status, OptimumStatus.EDGE)


def test_edges_and_refusals():
    #           K* > 1e7, no slow servers (line endless, short), unstable, outside
    found = sweep([0.5, 0.5, 0.5, 2.0, -1.0], [1e9, 5.0, 5.0, 5.0, 5.0], [math.inf, math.inf, 4.0, math.inf, 4.0],
                  [5, 2, 2, 2, 2], [2, 0, 0, 2, 2])
    np.testing.assert_array_equal(found.status, [Status.OK] * 3 + [Status.UNSTABLE, Status.OUT_OF_DOMAIN])
    np.testing.assert_array_equal(found.optimum_status, [OptimumStatus.EDGE, OptimumStatus.FLAT, OptimumStatus.EDGE,
                                                         OptimumStatus.FAILED, np.nan])
    np.testing.assert_array_equal(found.optimal_buffer, [1e7, 0, 0, math.nan, math.nan])
    with pytest.raises(ValueError, match="largest"):
        optimal_buffer(Params(0.5, 2.0, 0, 1, 1, 1), largest=2e7)


def test_largest_buffer_and_enumeration_limits():
    params = Params(0.7, 20.0, 0, math.inf, 5, 2)
    short = optimal_buffer(params, largest=10, enumerate_up_to=256)
    assert short.K == 10 and short.optimum_status == OptimumStatus.EDGE and short.certificate == Certificate.ENUMERATED
    quick = optimal_buffer(Params(np.array([0.7, 0.7]), 20.0, 0, math.inf, 5, 2), enumerate_up_to=0)
    assert quick.K.tolist() == [29, 29] and quick.certificate.tolist() == [Certificate.BRACKETED] * 2


def test_the_bound_that_closes_the_enumeration_is_true():
    """Wherever it holds, N rises from there on in many digits, or lies above the minimum; and it does hold soon."""
    @jax.jit
    def closes(q, r, M, m, n, best, K):
        f = fixed_parts(q, r, M, Count(m, 8), Count(n, 12))
        return rises_beyond(f, state(f, K), mean_number(f, state(f, best)))

    closed = 0
    for q, r, M, m, n in random_queues(11, 12, True) + random_queues(12, 12, False):
        oracle = Oracle(q, r, M, m, n, digits_for(q, 120))
        best = oracle.minima(100)[0]
        for K in (0, best // 2, best + 1, 2 * best + 8, 90):
            if not closes(*(jnp.asarray(v) for v in (q, r, M, m, n, float(best), float(K)))):
                continue
            closed += K >= 2 * best + 8
            assert K >= best
            values = [oracle.number(k) for k in range(K, 110, 4)]
            assert all(x < y for x, y in itertools.pairwise(values)) or min(values) > oracle.number(best)
    assert closed > 20


def test_derivatives_of_the_optimum():
    point, m, n = (0.9, 30.0, 25.0), 3, 2

    def best(q, r, M):
        found = optimal_buffer(Params(q, r, 0.0, M, m, n), enumerate_up_to=0)
        return (found.K_real, found.mean_number), (found.K_real, found.K)

    arguments = tuple(jnp.asarray(v) for v in point)
    forward, (near, K) = jax.jit(jax.jacfwd(best, argnums=(0, 1, 2), has_aux=True))(*arguments)
    reverse, again = jax.jit(jax.jacrev(best, argnums=(0, 1, 2), has_aux=True))(*arguments)
    assert K == again[1]
    near, K = float(near), int(K)
    with mpmath.workdps(60):
        h = mpf(10) ** -12

        def root(*p):
            return mpmath.findroot(Oracle(*p, m, n, 60).slope, (near, near + 0.5), tol=1e-30)

        for i in range(3):
            up, down = (tuple(mpf(v) + side * h * (k == i) for k, v in enumerate(point)) for side in (1, -1))
            exact = (root(*up) - root(*down)) / (2 * h)
            envelope = (Oracle(*up, m, n, 60).number(K) - Oracle(*down, m, n, 60).number(K)) / (2 * h)
            for jacobian in (forward, reverse):
                assert abs(mpf(float(jacobian[0][i])) / exact - 1) < 1e-13
                assert abs(mpf(float(jacobian[1][i])) / envelope - 1) < 1e-13


def test_first_asymptote_is_right_as_printed():
    """Theorem A2 (i) is off by O(q^K): by less than K q^K at the optimum, for both kinds of line."""
    q, r, M = np.array([0.7, 0.5, 0.8]), np.array([20.0, 12.0, 25.0]), np.array([math.inf, 3.0, 9.0])
    found = sweep(q, r, M, [5, 2, 5], [2, 3, 2])
    K = np.asarray(found.optimal_buffer_real)
    assert np.all(K > 10) and np.all(np.abs(found.error_i) > 1e-12)
    assert np.all(np.abs(found.error_i) < K * q**K)


def test_first_asymptote_by_the_formula_of_the_paper():
    q, r, M, m, n = 0.6, 15.0, 4.0, 3, 4
    with mpmath.workdps(40):
        qq = mpf(q)
        middle = [qq + 1 + j / (m * mpf(r)) for j in range(n + 1)]
        z = [(e + mpmath.sqrt(e * e - 4 * qq)) / 2 for e in middle]

        def chebyshev(first):
            return sum(mpmath.binomial(n, s) * mpmath.fprod(z[j] / qq - 1 for j in range(first, s + 1))
                       for s in range(first, n + 1))

        h0, h1 = chebyshev(1) + 1, chebyshev(2) + n
        oracle = Oracle(q, r, M, m, n, 40)
        p2 = oracle.p1 / (1 - qq + oracle.p1)
        printed = ((h1 / h0 * z[1] / (z[1] - 1) + (n * oracle.s1 + oracle.s2) / h0 - qq / (1 - qq) ** 2)
                   / (qq / (1 - qq) - oracle.s1 / h0) + qq * p2 / (1 - qq) - m * (1 - qq) - 1 / mpmath.log(qq))
        second = (r * m * (1 - qq) - (1 + qq) / (1 - qq) + p2 * qq / (1 - qq) ** 2 - m * (1 - qq) - 1 / mpmath.log(qq))
        corrected = m * (1 - qq) * (r - 1) + (p2 * qq - 1) / (1 - qq) - 1 / mpmath.log(qq)
        found = asymptotes(Params(q, r, 0, M, m, n))
        for value, exact in zip(found, (printed, second, corrected), strict=True):
            assert abs(mpf(float(value)) / exact - 1) < 1e-13


def test_second_asymptote_needs_its_correction():
    """Errors at r = 1e3, 1e4, 1e5, M = inf: the corrected one falls like 1/r, the printed one tends to a constant."""
    r = np.array([1e3, 1e4, 1e5])
    found = sweep([0.8] * 3, r, [math.inf] * 3, [5] * 3, [2] * 3)
    scaled = found.error_ii_corrected * r
    np.testing.assert_allclose(scaled, scaled[-1], rtol=0.05)
    assert abs(found.error_ii_printed[-1]) > 0.5
    np.testing.assert_allclose(found.error_ii_printed[1:], found.error_ii_printed[-1], rtol=1e-2)


def test_a_finite_line_changes_the_growth():
    q, M, n = np.array([0.5, 0.8, 0.6]), np.array([0.0, 3.0, 1.0]), np.array([1, 2, 4])
    r = 1e6
    found = sweep(q, [r] * 3, M, [2] * 3, n)
    growth = [float(finite_line_growth(Params(q[i], r, 0, M[i], 2, int(n[i])))) for i in range(3)]
    np.testing.assert_allclose(found.asymptotic_i / r, growth, rtol=1e-4)  # the next term is O(1/r) of it
    inner = np.asarray(found.optimal_buffer) > 0
    np.testing.assert_allclose(np.asarray(found.optimal_buffer_real)[inner] / r, np.asarray(growth)[inner], rtol=1e-4)
    assert inner.any()
    assert not np.allclose(growth, 2 * (1 - q), rtol=1e-3)  # what (ii) says
    assert float(finite_line_growth(Params(0.5, r, 0, math.inf, 2, 3))) == 1.0


def test_float32_finds_the_same_buffer():
    rows = random_queues(21, 30, True)
    exact = [[float(np.float32(v)) for v in column] for column in zip(*[row[:3] for row in rows], strict=True)]
    m, n = (np.array(column) for column in list(zip(*rows, strict=True))[3:])
    double, single = sweep(*exact, m, n), sweep(*exact, m, n, np.float32)
    assert single.optimal_buffer.dtype == np.float32
    single, double = ({name: value.astype(float) for name, value in vars(out).items()} for out in (single, double))
    # only a near tie between neighbours may be decided otherwise: the real optimum rounds at 1e-5 K
    assert np.all(np.abs(single["optimal_buffer"] - double["optimal_buffer"]) <= 1)
    assert np.mean(single["optimal_buffer"] == double["optimal_buffer"]) > 0.9
    np.testing.assert_allclose(single["optimal_buffer_real"], double["optimal_buffer_real"], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(single["mean_number_at_optimum"], double["mean_number_at_optimum"], rtol=2e-5)
    np.testing.assert_allclose(single["log10_gain"], double["log10_gain"], rtol=1e-4, atol=1e-3)


def test_single_points_and_batches_agree():
    q = np.array([0.7, 0.95])
    batch = optimal_buffer(Params(q, 25.0, 0.0, 6.0, 5, 2), enumerate_up_to=0)
    swept = sweep(q, [25.0] * 2, [6.0] * 2, [5] * 2, [2] * 2)
    np.testing.assert_array_equal(batch.K, swept.optimal_buffer)
    np.testing.assert_allclose(batch.K_real, swept.optimal_buffer_real, rtol=1e-12)  # other fusions, other roundings
