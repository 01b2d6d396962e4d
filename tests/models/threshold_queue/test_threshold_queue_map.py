"""MAP arrivals: the exact law against tables, event-by-event chains, closed forms, the stalling queue, simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import threshold_oracle

from hetjax import ctmc, stalling, threshold_queue
from hetjax.result import Status

Params = threshold_queue.Params
METRICS = jax.jit(threshold_queue.metrics)


SHORT = [0, 1, 4, 5]  # words of two or three letters; five or six take longer to compile


@pytest.mark.parametrize("rows", [SHORT, pytest.param([2, 3], marks=pytest.mark.slow)])
def test_word_routing_table(reference, rows):
    for row in (reference("word_routing")["rows"][i] for i in rows):
        p = Params.from_word(row["router_rate"], row["word"], row["mu1"], row["mu2"], row["thresholds_by_phase"],
                             max_threshold=6)
        found = METRICS(p)
        assert float(found.mean_number) == pytest.approx(row["mean_number"], rel=1e-11)
        assert float(found.throughput) == pytest.approx(float(p.arrival_rate), rel=1e-13)
        parts = found.mean_waiting + found.utilization_fast + found.utilization_slow
        assert float(found.mean_number) == pytest.approx(float(parts), rel=1e-13)


def test_poisson_closed_form_and_stalling_queue():
    """Whole and real thresholds, values and slopes; and whole ones with two phases that do not matter. (Phase changes
    are events, at which a real threshold draws anew: it then is another policy.)"""
    rng = np.random.default_rng(7)
    n = 40
    rho, r, t = rng.uniform(0.05, 0.995, n), 10**rng.uniform(0, 2, n), rng.uniform(1, 9, n)
    t[::2] = np.floor(t[::2])
    points = [jnp.asarray(x) for x in (rho * (1 + 1 / r), np.ones(n), 1 / r, t)]

    def by_law(rate, mu1, mu2, t):
        p = Params(-rate.reshape(1, 1), rate.reshape(1, 1), mu1, mu2, t, max_threshold=9)

        def mean(p):
            found = threshold_queue.metrics(p)
            return found.mean_number, found

        (value, found), gradient = jax.value_and_grad(mean, has_aux=True)(p)
        return value, gradient.mu1, gradient.mu2, jnp.sum(gradient.thresholds), found

    def closed(*z):
        value, gradient = jax.value_and_grad(lambda *z: threshold_queue.poisson_means(*z).number, (1, 2, 3))(*z)
        return value, *gradient, threshold_queue.poisson_means(*z)

    *found, metrics = jax.jit(jax.vmap(by_law))(*points)
    *expected, means = jax.jit(jax.vmap(closed))(*points)
    tolerance = 1e-13 + 1e-14 / (1 - rho)
    for a, b in zip(found, expected, strict=True):
        scale = np.abs(np.asarray(b)) + np.asarray(found[0]) * 1e-3
        assert np.all(np.abs(np.asarray(a) - np.asarray(b)) <= 10 * tolerance / (1 - rho) * scale)
    np.testing.assert_array_less(np.abs(np.asarray(found[0] / expected[0]) - 1), tolerance)
    for name, value in (("utilization_fast", means.fast), ("utilization_slow", means.slow), ("p_empty", means.empty),
                        ("mean_waiting", means.waiting)):
        np.testing.assert_allclose(getattr(metrics, name), value, rtol=1e-11)
    whole = np.arange(0, n, 2)
    moves = jnp.asarray([[-3.0, 3.0], [0.1, -0.1]])
    two = jax.jit(jax.vmap(lambda rate, mu1, mu2, t: threshold_queue.mean_number(
        Params(moves - rate * jnp.eye(2), rate * jnp.eye(2), mu1, mu2, t, max_threshold=9))))
    np.testing.assert_allclose(two(*(x[whole] for x in points)), expected[0][whole], rtol=1e-11)
    q = stalling.evaluate(q=np.asarray(points[0])[whole], r=r[whole], K=t[whole] - 1, M=np.inf, m=1, n=1,
                          metrics=["mean_number"])
    np.testing.assert_allclose(np.asarray(found[0])[whole], q.mean_number, rtol=2e-12)


CASES = [  # slow rates, thresholds by server and phase, capacity
    ([0.3], [[2.3, 1.6]], 25), ([0.5, 0.2], [[1.25, 2.5], [2.75, 2.5]], 20),
    ([0.5], [[1, 4]], 30), ([0.5, 0.2], [[1, 2], [3, 4]], 24), ([0.6, 0.3, 0.1], [[1, 1], [2, 1.5], [3.5, 3]], 12),
    ([0.4], [[20, 30]], 8),
]


@pytest.mark.parametrize("case", [0, 1, *(pytest.param(i, marks=pytest.mark.slow) for i in range(2, len(CASES)))])
def test_finite_buffers_event_by_event(case):
    slow, thresholds, capacity = CASES[case]
    D0, D1 = np.array([[-1.0, 0.3], [0.7, -3.2]]), np.array([[0.5, 0.2], [0.4, 2.1]])
    p = Params(D0, D1, 1.0, slow if len(slow) > 1 else slow[0], thresholds, capacity=capacity)
    solved = jax.jit(threshold_queue.solve)(p)
    assert int(solved.status) == Status.OK
    expected = np.zeros((capacity + 1, 2**len(slow), 2))
    for (x, busy, f), probability in threshold_oracle.law(D0, D1, 1.0, slow, thresholds, capacity).items():
        expected[x + sum(busy), sum(2**j for j, b in enumerate(busy) if b), f] += probability
    np.testing.assert_allclose(solved.value.levels, expected, rtol=1e-9, atol=1e-14)  # the sparse solve's own error
    found = threshold_queue.metrics_of_law(p, solved.value)
    n = np.arange(capacity + 1)
    assert float(found.mean_number) == pytest.approx(expected.sum((1, 2)) @ n, rel=1e-12)
    lost = expected[-1].sum(0) @ D1.sum(1)
    assert float(found.p_loss) == pytest.approx(lost / threshold_oracle.map_rate(D0, D1), rel=1e-10)
    assert float(found.throughput) == pytest.approx(threshold_oracle.map_rate(D0, D1) - lost, rel=1e-12)


@pytest.mark.parametrize("cases", [
    [([0.4], [[3, 1.5]])], pytest.param([([0.5, 0.3], [[1, 2], [2, 5]]), ([0.2], [[6, 2]])], marks=pytest.mark.slow)])
def test_infinite_buffers_against_long_finite_ones(cases):
    D0, D1 = threshold_oracle.random_maps(np.random.default_rng(8), 3, 2)
    for i, (slow, thresholds) in enumerate(cases):
        scale = (1 + sum(slow)) * 0.7 / threshold_oracle.map_rate(D0[i], D1[i])
        given = (D0[i] * scale, D1[i] * scale, 1.0, slow if len(slow) > 1 else slow[0], thresholds)
        p = Params(*given)
        law = jax.jit(threshold_queue.solve)(p).value
        levels = ctmc.stationary_levels(threshold_queue.generator(p, 600)).value
        queue = np.asarray(levels).sum(1)
        np.testing.assert_allclose(threshold_queue.queue_length_law(law, 50), queue[:50], rtol=1e-11)
        found = threshold_queue.metrics_of_law(p, law)
        assert float(found.mean_number) == pytest.approx(queue @ np.arange(601), rel=1e-11)
        busy = np.asarray(found.utilization_slow).reshape(-1) @ slow + float(found.utilization_fast)
        assert busy == pytest.approx(float(p.arrival_rate), rel=1e-12)  # all work is done


@pytest.mark.slow
def test_near_saturation():
    """Two phases so far apart that ten doublings of the first passage are not enough."""
    D0 = np.array([[-3.06366, 0.0091885], [0.0038675, -0.3856767]])
    D1 = np.diag(-D0.sum(1))
    p = Params(D0, D1, 1.0, 0.2352793, 2)
    assert float(METRICS(p).mean_number) == pytest.approx(1805.8395, rel=3e-6)  # the printed rates are rounded
    levels = threshold_queue.generator(p, 60_000)
    rewards = jnp.stack([jnp.arange(60_001.0)] * 4, axis=1)
    truncated = float(jax.jit(ctmc.expectation_levels)(levels, rewards).value)
    assert float(METRICS(p).mean_number) == pytest.approx(truncated, rel=1e-9)


@pytest.mark.slow
def test_gradients_against_the_event_by_event_chain():
    D0, D1 = np.array([[-1.0, 0.3], [0.7, -3.2]]), np.array([[0.5, 0.2], [0.4, 2.1]])
    p = Params(D0, D1, 1.0, 0.4, [2.3, 1.6], capacity=14)
    reverse = jax.jit(jax.grad(threshold_queue.mean_number))(p)
    forward = jax.jit(jax.jacfwd(threshold_queue.mean_number))(p)
    for a, b in zip(jax.tree.leaves(reverse), jax.tree.leaves(forward), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)

    def mean(mu1=1.0, mu2=0.4, first=2.3, second=1.6):
        return threshold_oracle.mean_number(D0, D1, mu1, [mu2], [[first, second]], 14)

    h = 1e-4
    for name, value, slope in (("mu1", 1.0, reverse.mu1), ("mu2", 0.4, reverse.mu2),
                               ("first", 2.3, reverse.thresholds[0, 0]), ("second", 1.6, reverse.thresholds[0, 1])):
        difference = (mean(**{name: value + h}) - mean(**{name: value - h})) / (2 * h)
        assert float(slope) == pytest.approx(difference, rel=1e-6)  # h^2 of the third derivative


def test_single_precision():
    p = Params.from_word(1.98, [0, 1, 1], 2.0, 0.2, [2, 5, 3], max_threshold=6)
    single = METRICS(jax.tree.map(lambda x: x.astype(jnp.float32), p))
    for a, b in zip(single, METRICS(p), strict=True):
        assert a.dtype == jnp.float32
        assert float(a) == pytest.approx(float(b), rel=1e-5, abs=0)


def test_status_of_traced_points():
    def solved(rate, mu1, mu2, t):
        p = Params(-rate.reshape(1, 1), rate.reshape(1, 1), mu1, mu2, t, max_threshold=4)
        found = threshold_queue.solve(p)
        gradient = jax.grad(lambda t: jnp.sum(threshold_queue.solve(p.with_thresholds(t)).value.beyond))(t)
        return found.status, jnp.sum(found.value.levels), gradient

    points = [(1.0, 1.0, 0.5, 2.0), (1.5, 1.0, 0.5, 2.0), (1.0, 1.0, 2.0, 2.0), (1.0, 1.0, 0.5, 0.5),
              (1.0, 1.0, 0.5, 5.0), (-1.0, 1.0, 0.5, 2.0), (np.nan, 1.0, 0.5, 2.0)]
    code, total, gradient = jax.jit(jax.vmap(solved))(*(jnp.asarray(x) for x in zip(*points, strict=True)))
    bad = int(Status.OUT_OF_DOMAIN)
    assert code.tolist() == [Status.OK, Status.UNSTABLE, bad, bad, bad, bad, bad]
    assert np.isfinite(total[0]) and np.isnan(total[1:]).all() and np.isfinite(gradient[0])


@pytest.mark.parametrize(("change", "words"), [
    ({"mu2": 2.0}, "swap the two"), ({"thresholds": 0.5}, r"\[1, 1e4\]"), ({"thresholds": [1, 2, 3]}, "shape"),
    ({"mu1": 0.2, "mu2": 0.2}, "below 0.4, the service rate of all servers"), ({"mu1": -1.0}, "positive"),
    ({"D0": [[-1.0]], "D1": [[2.0]]}, "rows that sum to 0"), ({"capacity": 1}, "the number of servers"),
    ({"mu2": [0.5, 0.6], "thresholds": [1, 2]}, "swap the two"), ({"thresholds": float("nan")}, "thresholds = nan"),
    ({"mu2": [0.5, 0.2], "thresholds": [3, 2]}, "a slower server starts later"),
    ({"max_threshold": 1, "thresholds": 2}, "the largest threshold"), ({"max_threshold": 2.5}, "whole number"),
    ({"mu1": [1.0, 2.0]}, "use vmap"), ({"mu2": []}, "one rate"),
])
def test_bad_input_is_one_line(change, words):
    given = {"D0": [[-1.0]], "D1": [[1.0]], "mu1": 1.0, "mu2": 0.5, "thresholds": 2} | change
    with pytest.raises(ValueError, match=words) as caught:
        Params(**given)
    assert "\n" not in str(caught.value)


def test_bad_words():
    for word in ([0, 0], [1, 2], [], [[1]]):
        with pytest.raises(ValueError, match="at least one 1"):
            Params.from_word(1.0, word, 1.0, 0.5, 1)
    with pytest.raises(ValueError, match="truncation"):
        threshold_queue.generator(Params.from_rate(1.0, 1.0, 0.5, 1))
    with pytest.raises(ValueError, match="thresholds are traced"):
        jax.jit(lambda t: Params.from_rate(1.0, 1.0, 0.5, t))(2.0)


@pytest.mark.slow
def test_simulation():
    word, rate, mu1, mu2, t = jnp.asarray([0, 1, 1], jnp.int32), 1.98, 2.0, 0.2, jnp.asarray([2, 5, 3], jnp.int32)
    expected = METRICS(Params.from_word(rate, [0, 1, 1], mu1, mu2, [2, 5, 3], max_threshold=6))

    def rates(state):
        x, slow, _ = state
        return rate, jnp.where(x > 0, mu1, 0.0), jnp.where(slow > 0, mu2, 0.0)

    def move(state, event):
        x, slow, f = state
        x = x + jnp.where(event == 0, word[f], jnp.where(event == 1, -1, 0))
        slow = jnp.where(event == 2, 0, slow)
        f = jnp.where(event == 0, (f + 1) % 3, f)
        start = (slow == 0) & (x - 1 >= t[f])
        return x - jnp.where(start, 1, 0), jnp.where(start, 1, slow), f

    found = ctmc.simulate(ctmc.transition_chain(rates, move), (0, 0, 0), jax.random.key(1),
                          rewards=lambda s: {"number": s[0] + s[1], "fast": jnp.minimum(s[0], 1), "slow": s[1]},
                          events=20_000, warmup=2000, replications=256, confidence=0.999)
    for name, value in (("number", expected.mean_number), ("fast", expected.utilization_fast),
                        ("slow", expected.utilization_slow)):
        assert abs(float(found.mean[name]) - float(value)) < float(found.half_width[name]) < 0.02 * float(value)
