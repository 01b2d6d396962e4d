"""Every metric against the reference table and the oracle; conservation laws; limits; masks, batches, statuses."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from stalling_oracle import Oracle
from test_stalling_closed_form import AXES, EPS, points

import hetjax
from hetjax.models import stalling
from hetjax.models.stalling import MODEL, Metrics, Params, from_rates, log_p_full, mean_number, metrics, status
from hetjax.models.stalling.metrics import FROM_STATE_LAW, point_metrics
from hetjax.numerics.counting import Count
from hetjax.result import Status

CLOSED = tuple(name for name in Metrics._fields if name not in FROM_STATE_LAW)


@jax.jit
def small(q, r, K, M, m, n):
    return point_metrics(q, r, K, M, jnp.ones_like(q), Count(m, 12), Count(n, 12), CLOSED)


def evaluate_rows(rows, dtype, names):
    columns = {a: jnp.asarray([row[a] for row in rows], dtype) for a in AXES}
    counts = {a: np.asarray([row[a] for row in rows]) for a in "mn"}
    return hetjax.evaluate("stalling", **columns, **counts, max_m=300, max_n=300, metrics=names)


def test_reference_table_of_metrics(reference):
    rows = reference("stalling")["rows"]
    names = [name for name in CLOSED if name in rows[0]]
    found = evaluate_rows(rows, jnp.float64, names)
    assert set(np.asarray(found.status)) == {int(Status.OK)}
    for name in names:
        assert sum(name in row for row in rows) >= 50  # the table leaves out what is 0 or took too long
        for row, got in zip(rows, np.asarray(found[name]), strict=True):
            if name not in row:
                continue
            exact = float(row[name])
            if exact > 1e-290:
                # the means' own condition number is at most that of ln P: K ln q, M ln rho, ln h_0, each a few units
                condition = abs(math.log(exact)) if exact < 1e-3 else 0
                assert abs(got - exact) <= max(1e-12, 16 * EPS * (1 + condition)) * exact, (name, row)
            else:
                assert 0 <= got < 1e-280


@settings(max_examples=40)
@given(points())
def test_metrics_over_the_whole_domain(point):
    *real, m, n = point
    found = small(*(jnp.asarray(x, float) for x in real), jnp.int32(m), jnp.int32(n))
    oracle = Oracle(*point)
    for name in CLOSED:
        if name == "mean_response_time_slow" and n == 0:
            assert np.isnan(found[name])
            continue
        exact, got = oracle.value(name), float(found[name])
        if exact < 1e-290:
            assert 0 <= got < 1e-280, name
        else:
            assert abs(got - float(exact)) <= max(1e-12, 16 * EPS * (1 + oracle.condition(name))) * float(exact), name


@settings(max_examples=50)
@given(points())
def test_conservation(point):
    """N is the sum of its parts, departures balance accepted arrivals, probabilities are probabilities."""
    q, r, K, M, m, n = point
    raw = small(*(jnp.asarray(x, float) for x in (q, r, K, M)), jnp.int32(m), jnp.int32(n))
    found = {k: float(v) for k, v in raw.items()}
    parts = found["mean_fast"] + found["mean_slow"] + found["mean_stalled"] + found["mean_waiting"]
    # the parts lose |ln weight| eps where the weights themselves are steep functions
    slack = 1e-11 if max(K if K < 1e9 else 0, M if M < 1e9 else 0) <= 1e4 else 1e-7
    assert abs(parts - found["mean_number"]) <= slack * found["mean_number"]
    accepted = q * m * (1 - found["p_loss"])
    assert abs(found["throughput"] - accepted) <= slack * found["throughput"] + 8 * EPS * q * m
    assert math.isclose(found["mean_response_time"] * found["throughput"], found["mean_number"], rel_tol=1e-13)
    by_class = found["mean_response_time_fast"] * found["mean_fast"]
    if n and found["mean_slow"] > 0:
        by_class += found["mean_response_time_slow"] * found["mean_slow"] / r
    assert abs(by_class - parts) <= slack * parts
    for name in CLOSED:
        if name.startswith(("p_", "utilization")):
            assert 0 <= found[name] <= 1 + 4 * EPS, name


def erlang_loss_queue(load, servers, places):
    """Mean number and loss of M/M/c/c+places by its birth-death weights."""
    weights = [1.0]
    for l in range(1, servers + places + 1):
        weights.append(weights[-1] * load / min(l, servers))
    total = sum(weights)
    return sum(l * w for l, w in enumerate(weights)) / total, weights[-1] / total


@pytest.mark.parametrize("q,r,K,M,m,n,servers,places", [
    (.8, 7.0, 0, 6, 4, 0, 4, 6),  # no slow servers, no buffer
    (1.3, 7.0, 5, 6, 3, 0, 3, 11),  # no slow servers: buffer and line are one
    (1.4, 1.0, 0, 5, 3, 2, 5, 5),  # equal servers, no buffer
    (.7, 1.0, 0, 0, 2, 4, 6, 0)])
def test_homogeneous_limits(q, r, K, M, m, n, servers, places):
    found = metrics(Params(q, r, K, M, m, n))
    number, loss = erlang_loss_queue(q * m, servers, places)
    assert math.isclose(float(found.mean_number), number, rel_tol=1e-14)
    assert math.isclose(float(found.p_loss), loss, rel_tol=1e-13)


def test_endless_buffer_is_the_limit_and_erlang_c():
    near, limit = (metrics(Params(.7, 20.0, K, 4, 3, 2)) for K in (2000, math.inf))
    for name in CLOSED:
        if name not in ("mean_response_time_slow",):
            assert math.isclose(float(near[name]), float(limit[name]), rel_tol=1e-12, abs_tol=1e-280), name
    assert float(limit.mean_slow) == 0 and float(limit.p_loss) == 0
    number, _ = erlang_loss_queue(2.1, 3, 3000)
    assert math.isclose(float(limit.mean_number), number, rel_tol=1e-13)
    assert math.isclose(float(near.mean_response_time_slow), float(limit.mean_response_time_slow), rel_tol=1e-12)


def test_unused_slow_servers_at_tiny_load():
    found = metrics(Params(1e-8, 10.0, 2, 3, 4, 2))
    assert math.isclose(float(found.mean_number), 4e-8, rel_tol=1e-13)
    assert math.isclose(float(found.mean_response_time), 1.0, rel_tol=1e-13)


def test_time_unit():
    """Rates ten times as large: the same queue, ten times as fast."""
    slow, fast = (metrics(from_rates(3 * s, 2 * s, .5 * s, 4, 10, 2, 3)) for s in (1.0, 10.0))
    for name in CLOSED:
        factor = 10 if name == "throughput" else .1 if "response" in name else 1
        assert math.isclose(float(fast[name]), factor * float(slow[name]), rel_tol=1e-14), name
    gradient = jax.grad(lambda l, u, v: mean_number(from_rates(l, u, v, 4, 10, 2, 3)), (0, 1, 2))(3.0, 2.0, .5)
    # the mean number does not change when all rates are scaled
    assert abs(3.0 * gradient[0] + 2.0 * gradient[1] + .5 * gradient[2]) < 1e-12 * abs(3.0 * gradient[0])


def test_log_p_full():
    p = Params(.5, 2.0, 1.0, 1.0, 2, 2)
    assert math.isclose(float(log_p_full(p)), math.log(float(metrics(p).p_full)), rel_tol=1e-14)
    for point in ((1e-3, 1e-3, 10.0, 0.0, 1, 120), (1e-8, 2.0, 100.0, 3.0, 12, 3), (1e4, 2.0, 100.0, 1e4, 12, 3)):
        P = Oracle(*point).value("p_full")
        exact = math.log(float(P)) if P > 1e-300 else float(mpmath.log(P))
        assert math.isclose(float(log_p_full(Params(*point))), exact, rel_tol=1e-13)


@functools.lru_cache
def jacobian(mode):
    return jax.jit(mode(small, (0, 1, 2, 3)))


def test_gradients_of_all_metrics():
    """Reverse and forward mode against the oracle, at an ordinary, a critical, a saturated and a light point."""
    for point in ((.8, 12.0, 4.5, 7.0, 4, 3), (1.5, 1.0, 3.0, 12.0, 2, 1), (2.5, 3.0, 10.0, 1e6, 3, 2),
                  (1.3, 3.0, 1e6, 10.0, 3, 2), (1e-3, 5.0, 1.0, 2.0, 3, 2), (1.0, 4.0, 0.0, 0.0, 3, 2)):
        *real, m, n = point
        arguments = [jnp.asarray(x, float) for x in real]
        forward, reverse = (jacobian(mode)(*arguments, jnp.int32(m), jnp.int32(n))
                            for mode in (jax.jacfwd, jax.jacrev))
        oracle = Oracle(*point)
        for name in CLOSED:
            value = abs(float(oracle.value(name)))
            for i, axis in enumerate(AXES):
                exact = float(oracle.derivative(name, axis))
                scale = max(real[i], 1) if axis in "KM" else real[i]
                for got in (forward[name][i], reverse[name][i]):
                    bound = 1e-9 * max(abs(exact), 1e-3 * value / scale) + 1e-290
                    assert abs(float(got) - exact) <= bound, (name, axis, point)


def test_transformations():
    """vmap is the loop, jit is eager, masked counts are static ones, grad and vmap commute."""
    q = jnp.asarray([.3, .9, 1.0, 1.7])

    def f(q):
        return mean_number(Params(q, 9.0, 3.5, 6.0, 4, 3))

    looped = jnp.stack([f(x) for x in q])
    np.testing.assert_allclose(jax.vmap(f)(q), looped, rtol=4e-16)
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(q), looped, rtol=1e-15)
    np.testing.assert_allclose(mean_number(Params(q, 9.0, 3.5, 6.0, 4, 3)), looped, rtol=1e-15)
    one = jax.vmap(jax.grad(f))(q)
    two = jax.grad(lambda q: jax.vmap(f)(q).sum())(q)
    np.testing.assert_allclose(one, two, rtol=1e-13)
    np.testing.assert_allclose(one, jax.vmap(jax.jacfwd(f))(q), rtol=1e-13)
    masked = stalling.evaluate(q=q, r=9.0, K=3.5, M=6.0, m=4, n=3, max_m=7, max_n=5, metrics=["mean_number"])
    np.testing.assert_allclose(masked.mean_number, looped, rtol=1e-15)


def test_traced_once():
    count = 0

    @jax.jit
    def f(q, r, K, M):
        nonlocal count
        count += 1
        return mean_number(Params(q, r, K, M, 3, 2))

    for q in (.5, 1.0, 2.0):
        f(*(jnp.asarray(x) for x in (q, 3.0, 4.0, 5.0)))
    assert count == 1


def test_float32_in_a_64_bit_process():
    p = Params(jnp.float32(.9), 9.0, 3, 6, 4, 3)
    assert mean_number(p).dtype == jnp.float32
    assert all(jnp.asarray(v).dtype == jnp.float32 for v in metrics(p))
    exact = mean_number(Params(float(np.float32(.9)), 9.0, 3, 6, 4, 3))
    assert math.isclose(float(mean_number(p)), float(exact), rel_tol=3e-7)


def test_statuses():
    out = stalling.evaluate(q=np.array([.5, 1.5, 2e4, np.nan, .5, .5]), r=3.0, K=np.array([2, np.inf, 2, 2, -1, 2.0]),
                            M=np.array([np.inf, 2, 2, 2, 2, 1e8]), m=2, n=2, metrics=["mean_number", "p_loss"])
    assert out.status.tolist() == [Status.OK, Status.UNSTABLE, *[Status.OUT_OF_DOMAIN] * 4]
    assert np.isnan(out.mean_number).tolist() == [False] + [True] * 5
    assert stalling.evaluate(q=.5, r=3.0, K=2, M=2, m=513, n=2).status == Status.OUT_OF_DOMAIN
    assert int(status(Params(2.0, 3.0, 1, math.inf, 2, 1))) == Status.UNSTABLE
    assert np.isnan(mean_number(Params(2.0, 3.0, 1, math.inf, 2, 1)))


@pytest.mark.parametrize("change,word", [
    ({"q": 0.0}, "q = "), ({"r": 1e10}, "r = "), ({"K": -1}, "K = "), ({"M": math.nan}, "M = "), ({"m": 0}, "m = "),
    ({"n": 2.5}, "n = "), ({"mu1": -1.0}, "mu1 = "), ({"q": jnp.asarray([.5, -.5])}, "q = ")])
def test_bad_input_is_refused_by_name(change, word):
    with pytest.raises(ValueError, match=word) as error:
        Params(**({"q": .5, "r": 2.0, "K": 1, "M": 1, "m": 2, "n": 1} | change))
    assert "\n" not in str(error.value) and "give" in str(error.value)


def test_params_survive_transformations():
    p = Params(.5, 2.0, 1, 1, 2, 1)
    q = jax.tree.map(lambda x: x * 2, p)
    assert float(q.q) == 1.0 and (q.m, q.n) == (2, 1)
    slopes = jax.grad(mean_number)(p)
    assert isinstance(slopes, Params) and float(slopes.mu1) == 0


def test_evaluate_broadcasts_and_says_what_is_missing():
    out = stalling.evaluate(q=[[.5], [.9]], r=2.0, K=[1, 2, 3], M=1, m=[1, 2, 4], n=1, metrics=["mean_number"])
    assert out.mean_number.shape == (2, 3)
    assert math.isclose(float(out.mean_number[1, 2]), float(mean_number(Params(.9, 2.0, 3, 1, 4, 1))), rel_tol=1e-15)
    with pytest.raises(ValueError, match="'r'"):
        stalling.evaluate(q=.5, K=1, M=1, m=1, n=1)
    with pytest.raises(ValueError, match="max_m"):
        jax.jit(lambda m: stalling.evaluate(q=.5, r=2.0, K=1, M=1, m=m, n=1).mean_number)(3)


def test_reverse_mode_where_a_traced_count_is_zero():
    names = ("mean_slow", "utilization_slow", "throughput", "mean_response_time", "mean_stuck", "p_slow_only")

    def found(x, n):
        values = {"q": x[0], "r": x[1], "K": x[2], "M": x[3], "mu1": jnp.ones_like(x[0]), "m": 2, "n": n}
        return MODEL.point(values, names, {"m": 2, "n": 4})[0]

    x = jnp.asarray([0.5, 3.0, 4.0, 5.0])
    reverse, forward = (jax.jit(mode(found))(x, jnp.asarray(0)) for mode in (jax.jacrev, jax.jacfwd))
    for name in names:
        np.testing.assert_allclose(reverse[name], forward[name], rtol=1e-13, atol=1e-15)
        assert np.all(np.isfinite(reverse[name])), name


def test_stability_of_an_endless_line_is_decided_exactly():
    """Loads within a few roundings of 1, on either side, against rationals."""
    rng = np.random.default_rng(11)
    m, n = rng.integers(1, 40, 2000), rng.integers(0, 40, 2000)
    r = np.exp(rng.uniform(-3, 8, 2000))
    q = 1 + n / (m * r)
    q = np.where(rng.random(2000) < 0.5, q, np.nextafter(q, rng.choice([0.0, np.inf], 2000)))
    found = hetjax.evaluate("stalling", q=q, r=r, K=3.0, M=np.inf, m=m, n=n, metrics=["p_loss"])
    excess = [int(a) * Fraction(b) * (Fraction(c) - 1) - int(d) for a, b, c, d in zip(m, r, q, n, strict=True)]
    stable = np.array([x < 0 for x in excess])
    assert 400 < stable.sum() < 1600
    np.testing.assert_array_equal(found.status, np.where(stable, int(Status.OK), int(Status.UNSTABLE)))
    assert np.all(np.asarray(found.p_loss)[stable] == 0)


def test_endless_lines_in_float32():
    """The last load below 1 is served, what rounds to 1 is not called stable; nobody is lost."""
    q = np.asarray([1.0, 1.0, 1 - 2.0**-24, 0.9], np.float32)
    found = hetjax.evaluate("stalling", q=q, r=np.float32(1e9), K=np.float32(3), M=np.float32(np.inf),
                            m=[16, 1, 1, 2], n=[1, 1, 0, 2], metrics=["mean_number", "p_loss"])
    assert found.status.tolist() == [Status.UNSTABLE, Status.UNSTABLE, Status.OK, Status.OK]
    assert found.p_loss[2:].tolist() == [0, 0]
    np.testing.assert_allclose(found.mean_number[2], 2.0**24, rtol=1e-6)
