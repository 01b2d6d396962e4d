"""Response times: M/M/2 in closed form, Little's law, and every customer of a simulated path."""

import heapq
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax import threshold_queue

Params = threshold_queue.Params


@jax.jit
def summary(p):
    solved = threshold_queue.solve(p)
    law = threshold_queue.response_time(p, solved.value, steps=2047)
    times = law.percentile(jnp.asarray([0.5, 0.9, 0.99]))
    return law.mean(), threshold_queue.metrics_of_law(p, solved.value).mean_response_time, times, law


def test_two_equal_servers():
    """T = 1, r = 1 is M/M/2: P(W > t) = C e^(-(2 - lambda) t), response = W + service."""
    rate = 0.8
    mean, little, times, law = summary(Params.from_rate(rate, 1.0, 1.0, 1))
    rho = rate / 2
    C = 2 * rho**2 / (1 + rho)  # Erlang C for two servers
    assert float(mean) == pytest.approx(1 / (1 - rho**2), rel=1e-13)
    t = np.array([0.1, 1.0, 5.0, 20.0])
    spare = 2 - rate
    tail = (1 - C) * np.exp(-t) + C * (spare * np.exp(-t) - np.exp(-spare * t)) / (spare - 1)
    np.testing.assert_allclose(law.tail(t), tail, rtol=1e-12)
    np.testing.assert_allclose(law.tail(times.value), [0.5, 0.1, 0.01], rtol=1e-12)
    assert float(little) == pytest.approx(float(mean), rel=1e-13)


@pytest.mark.parametrize("given", [(0.9, 1.0, 0.2, 2.4), (0.5, 1.0, 0.05, 6.0)])
def test_littles_law_and_gradient(given):
    p = Params.from_rate(*given)
    mean, little, times, _ = summary(p)
    assert float(mean) == pytest.approx(float(little), rel=1e-12)
    assert times.status.tolist() == [1, 1, 1]


@pytest.mark.slow
def test_littles_law_by_phase_and_gradients():
    p = Params.from_word(1.2, [1, 1, 0], 1.0, 0.2, [1, 2.5, 3])

    def p90(p):
        return threshold_queue.response_time(p, threshold_queue.solve(p).value, levels=96, steps=511).percentile(0.9)

    mean, little, times, _ = summary(p)
    assert float(mean) == pytest.approx(float(little), rel=1e-12)
    slope = jax.jit(jax.grad(lambda mu1: p90(Params(p.D0, p.D1, mu1, p.mu2, p.thresholds, max_threshold=3)).value))
    values = jax.jit(lambda mu1: p90(Params(p.D0, p.D1, mu1, p.mu2, p.thresholds, max_threshold=3)).value)
    h = 1e-4
    difference = (values(1.0 + h) - values(1.0 - h)) / (2 * h)
    assert float(values(1.0)) == pytest.approx(float(times.value[1]), rel=1e-10)
    assert float(slope(1.0)) == pytest.approx(float(difference), rel=1e-6)  # h^2 of the third derivative


def test_what_it_does_not_reach():
    p = Params.from_rate(1.18, 1.0, 0.2, 2)
    law = threshold_queue.response_time(p, threshold_queue.solve(p).value, levels=64, steps=128)
    assert int(law.percentile(0.99).status) == 4
    with pytest.raises(ValueError, match="levels = 3"):
        threshold_queue.response_time(p, threshold_queue.solve(p).value, levels=3)
    finite = Params.from_rate(1.0, 1.0, 0.2, 2, capacity=5)
    with pytest.raises(ValueError, match="infinite buffer"):
        threshold_queue.response_time(finite, threshold_queue.solve(finite).value)


def simulated(rate, word, mu1, mu2, thresholds, customers, seed):
    """Response times of single customers, first come first served, by an event list."""
    rng = np.random.default_rng(seed)
    events, queue, times, fast, slow, f, made = [(0.0, 0, None)], [], [], False, False, 0, 0
    while made < customers:
        now, kind, born = heapq.heappop(events)
        if kind == 0:
            heapq.heappush(events, (now + rng.exponential(1 / rate), 0, None))
            if word[f]:
                queue.append(now)
            f = (f + 1) % len(word)
        else:
            times.append(now - born)
            made += 1
            fast, slow = (False, slow) if kind == 1 else (fast, False)
        if queue and not fast:
            fast = True
            heapq.heappush(events, (now + rng.exponential(1 / mu1), 1, queue.pop(0)))
        if not slow and len(queue) >= thresholds[f]:
            slow = True
            heapq.heappush(events, (now + rng.exponential(1 / mu2), 2, queue.pop(0)))
    return np.array(times)


@pytest.mark.slow
def test_every_customer_of_simulated_paths():
    word, t = [1, 1, 0], [1, 4, 6]
    _, _, _, law = summary(Params.from_word(1.2, word, 1.0, 0.2, t))
    at = np.array([0.5, 2.0, 6.0, 12.0])
    shares = np.array([[np.mean(times > x) for x in at] for times in
                       (simulated(1.2, word, 1.0, 0.2, t, 40_000, seed) for seed in range(24))])
    half = 3.77 * shares.std(axis=0, ddof=1) / math.sqrt(24)  # Student, 23 degrees of freedom, 99.9 %
    assert np.all(np.abs(shares.mean(axis=0) - np.asarray(law.tail(at))) < half) and np.all(half < 0.01)
