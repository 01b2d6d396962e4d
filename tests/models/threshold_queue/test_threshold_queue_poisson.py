"""Poisson arrivals: the closed form against tables, the stalling queue, event-by-event chains and many digits."""

import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import threshold_oracle

from hetjax import stalling, threshold_queue

MEANS = jax.jit(threshold_queue.poisson_means)
GRADIENT = jax.jit(jax.vmap(jax.grad(lambda *z: threshold_queue.poisson_means(*z).number, argnums=(0, 1, 2, 3))))


def by_digits(rate, mu1, mu2, threshold, digits=60):
    """Mean number under a whole threshold in many digits: level by level, no closed form of the sums or of v."""
    with mp.workdps(digits):
        rate, mu1, mu2 = (mp.mpf(x) for x in (rate, mu1, mu2))
        T = int(threshold)
        q, a, rho = rate / mu1, mu2 / mu1, rate / (mu1 + mu2)
        busy, v = [mp.mpf(1)], a  # P(x, 1) over P(0, 1), upwards
        for _ in range(T):
            busy.append(busy[-1] * (v + q))
            v = a + v / (v + q)
        level = [mp.mpf(0)] * T + [busy[T] * (1 + v / q)]  # P(x), downwards by the cuts
        for x in range(T - 1, -1, -1):
            level[x] = level[x + 1] / q
        mass = mp.fsum(level) + busy[T] * rho / (1 - rho)
        number = mp.fsum(x * p for x, p in enumerate(level)) + busy[T] * (T * rho / (1 - rho) + rho / (1 - rho)**2)
        return (number + mp.fsum(busy) + busy[T] * rho / (1 - rho)) / mass


def test_reference_table(reference):
    rows = [(row["arrival_rate"], row["mu1"], row["mu2"], float(T), value)
            for row in reference("threshold_queue")["rows"] for T, value in row["mean_number_by_threshold"].items()]
    *point, value = (jnp.asarray(x) for x in zip(*rows, strict=True))
    np.testing.assert_allclose(MEANS(*point).number, value, rtol=1e-9)  # the table's own error
    rows = [(row["arrival_rate"], row["mu1"], row["mu2"], row["best_threshold"])
            for row in reference("threshold_queue")["rows"]]
    *point, best = (jnp.asarray(x) for x in zip(*rows, strict=True))
    np.testing.assert_array_equal(jax.jit(threshold_queue.optimal_threshold)(*point), best)


def test_fastest_server_first_as_published(reference):
    for row in reference("published")["fastest_server_first_infinite"]["rows"]:
        rate, mu1, mu2 = row["arrival_rate"], row["mu1"], row["mu2"]
        rho = rate / (mu1 + mu2)
        A = mu1 * mu2 * (1 + 2 * rho) / (rate * (rate + mu2)) + 1 / (1 - rho)
        found = float(MEANS(*(jnp.asarray(float(x)) for x in (rate, mu1, mu2, 1))).number)
        assert found == pytest.approx(1 / (A * (1 - rho)**2), rel=1e-13)
        assert found == pytest.approx(row["mean_number"], rel=1e-9)


def test_equals_the_stalling_queue():
    rng = np.random.default_rng(3)
    rho, r = rng.uniform(0.01, 0.999, 200), np.geomspace(1, 1e4, 200)
    K = np.floor(10**rng.uniform(0, 3, 200)) - 1
    rate, mu2 = rho * (1 + 1 / r), 1 / r
    found = MEANS(*(jnp.asarray(x) for x in (rate, np.ones(200), mu2, K + 1)))
    q = stalling.evaluate(q=rate, r=1 / mu2, K=K, M=math.inf, m=1, n=1,
                          metrics=["mean_number", "mean_fast", "mean_slow"])
    for name, value in (("number", q.mean_number), ("fast", q.mean_fast), ("slow", q.mean_slow)):
        np.testing.assert_allclose(getattr(found, name), value, rtol=2e-12 if name == "slow" else 1e-12)
    waiting = np.asarray(q.mean_number - q.mean_fast - q.mean_slow)
    np.testing.assert_allclose(found.waiting, waiting, rtol=1e-11, atol=1e-14)  # the difference cancels


POINTS = [(1.2, 1.0, 0.5, 2.3), (0.8, 1.0, 0.1, 4.7), (0.5, 1.0, 0.2, 1.5), (1.05, 1.0, 0.2, 3.0), (1.0, 1.0, 0.3, 2.0)]


@pytest.mark.parametrize("point", POINTS)
def test_real_thresholds_event_by_event(point):
    rate, mu1, mu2, t = point
    found = MEANS(*(jnp.asarray(x) for x in point))
    states = threshold_oracle.law([[-rate]], [[rate]], mu1, [mu2], [[t]], 320)
    expected = {"number": sum(p * (x + b[0]) for (x, b, _), p in states.items()),
                "waiting": sum(p * max(x - 1, 0) for (x, _, _), p in states.items()),
                "fast": sum(p for (x, _, _), p in states.items() if x),
                "slow": sum(p for (_, b, _), p in states.items() if b[0]), "empty": states[0, (False,), 0]}
    for name, value in expected.items():
        # .875^320 = 3e-19 is cut off; the sparse solve is good to about 1e-13
        assert float(getattr(found, name)) == pytest.approx(value, rel=1e-10)


def test_queue_length_law_event_by_event():
    law = jax.jit(threshold_queue.poisson_queue_length_law, static_argnums=(3, 4))
    for rate, mu2, T in ((1.1, 0.4, 3), (0.6, 0.1, 5)):
        states = threshold_oracle.law([[-rate]], [[rate]], 1.0, [mu2], [[T]], 250)
        expected = np.zeros(251)
        for (x, busy, _), p in states.items():
            expected[x + busy[0]] += p
        found = law(jnp.asarray(rate), jnp.asarray(1.0), jnp.asarray(mu2), T, 40)
        np.testing.assert_allclose(found, expected[:40], rtol=1e-12, atol=1e-15)  # of the sparse solve
    with pytest.raises(ValueError, match="whole number"):
        threshold_queue.poisson_queue_length_law(jnp.asarray(1.0), jnp.asarray(1.0), jnp.asarray(0.5), 2.5, 9)


DEEP = [(0.9999, 1.0, 1.0, 1.0), (1.0, 1.0, 1e-4, 100.0), (1.0009, 1.0, 1e-3, 40.0), (1e-4, 1.0, 0.5, 2.0),
        (1.999, 1.0, 1.0, 3.0), (0.7, 1.0, 1e-5, 1000.0), (1 + 2**-30, 1.0, 0.25, 7.0), (4.4, 5.0, 0.5, 3.0)]


def test_values_and_gradients_against_many_digits():
    points = [jnp.asarray(x) for x in zip(*DEEP, strict=True)]
    values, gradients = MEANS(*points).number, GRADIENT(*points)
    for i, point in enumerate(DEEP):
        spare = (point[1] - point[0] + point[2]) / (point[1] + point[2])
        exact = by_digits(*point)
        assert float(values[i]) == pytest.approx(float(exact), rel=1e-14 + 4e-16 / spare)
        for k in range(3):
            h = mp.mpf(10)**-20

            def moved(s, k=k, point=point, h=h):
                with mp.workdps(60):
                    return by_digits(*(mp.mpf(x) * (1 + s * h) if j == k else x for j, x in enumerate(point)))

            with mp.workdps(60):
                slope = (moved(1) - moved(-1)) / (2 * h) / mp.mpf(point[k])
            scale = float(exact) / point[k]
            assert float(gradients[k][i]) == pytest.approx(float(slope), rel=1e-11, abs=1e-11 * scale)


def test_threshold_slopes_are_those_of_the_mixture():
    for rate, mu1, mu2, t in POINTS[:3]:
        ends = [float(MEANS(*(jnp.asarray(x) for x in (rate, mu1, mu2, t + h))).number) for h in (1e-4, -1e-4)]
        slope = GRADIENT(*(jnp.asarray([x]) for x in (rate, mu1, mu2, t)))[3][0]
        assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6)  # second differences: 1e-8


def test_single_precision():
    points = [jnp.asarray(x, jnp.float32) for x in zip(*DEEP, strict=True)]
    single = MEANS(*points)
    exact = MEANS(*(x.astype(jnp.float64) for x in points))
    assert single.number.dtype == jnp.float32
    spare = np.asarray((points[1] - points[0] + points[2]) / (points[1] + points[2]))
    for name in ("number", "waiting", "fast", "slow", "empty"):
        value = np.asarray(getattr(exact, name))
        error = np.abs(np.asarray(getattr(single, name)) / value - 1)
        assert np.all((error < 2e-5 + 4e-7 / spare) | (value < 1e-30)), name
