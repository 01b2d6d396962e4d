"""All constant thresholds in one pass, and the best thresholds by phase, against evaluations one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import threshold_oracle

from hetjax import threshold_queue
from hetjax.result import Status

Params = threshold_queue.Params
BY_LAW = jax.jit(jax.vmap(lambda a, b, c, d, t: threshold_queue.mean_number(Params(a, b, c, d, t, max_threshold=12))))


def drawn(n, p, high=0.99):
    rng = np.random.default_rng(n + p)
    D0, D1 = threshold_oracle.random_maps(rng, n, p)
    rho, r = rng.uniform(0.1, high, n), rng.uniform(1, 10, n)
    mu1 = np.array([threshold_oracle.map_rate(*x) for x in zip(D0, D1, strict=True)]) / (rho * (1 + 1 / r))
    return [jnp.asarray(x) for x in (D0, D1, mu1, mu1 / r)]


def test_one_pass_equals_the_law_of_each_threshold():
    queues = drawn(24, 2)
    found = jax.jit(jax.vmap(lambda *q: threshold_queue.mean_numbers(Params(*q, 1, max_threshold=1), 12)))(*queues)
    for T in (1, 2, 7, 12):
        np.testing.assert_allclose(found[:, T - 1], BY_LAW(*queues, jnp.full(24, float(T))), rtol=1e-12)


def test_one_pass_for_poisson_arrivals_and_single_precision():
    rng = np.random.default_rng(4)
    r, rho = 10**rng.uniform(0, 2, 64), rng.uniform(0.05, 0.999, 64)
    rates = [jnp.asarray(x) for x in (rho * (1 + 1 / r), np.ones(64), 1 / r)]
    one_pass = jax.jit(jax.vmap(lambda a, b, c: threshold_queue.mean_numbers(
        Params(-a.reshape(1, 1), a.reshape(1, 1), b, c, 1, max_threshold=1), 16)))
    rates[0] = rates[0].at[:4].set(jnp.asarray([1e-3, 1e-4, 1e-5, 1e-6]))  # times upwards beyond float32's range
    rho = np.asarray(rates[0] / (rates[1] + rates[2]))
    single = one_pass(*(x.astype(jnp.float32) for x in rates))
    assert single.dtype == jnp.float32
    for T in (1, 4, 16):
        exact = threshold_queue.poisson_means(*rates, jnp.full(64, float(T))).number
        np.testing.assert_allclose(one_pass(*rates)[:, T - 1], exact, rtol=1e-11)  # eps/(1 - rho), rho to .999
        np.testing.assert_array_less(np.abs(np.asarray(single[:, T - 1]) / np.asarray(exact) - 1), 2e-6 / (1 - rho))


@pytest.mark.slow
def test_best_by_phase_equals_the_search_of_all_pairs():
    n, largest = 16, 8
    rng = np.random.default_rng(2)
    rho, r = rng.uniform(0.3, 0.95, n), rng.uniform(2, 6, n)
    bursts = [jnp.asarray(x) for x in (rho * (1 + 1 / r), rng.choice([0.5, 4.0, 20.0], n), rng.uniform(0.1, 0.9, n),
                                       10**rng.uniform(-1, 2, n), 1 / r)]
    pairs = jnp.asarray([(i, j) for i in range(1, largest + 1) for j in range(1, largest + 1)], float)

    def queue(a, b, s, l, mu2, t):
        return Params(*threshold_queue.bursty(a, b, s, l), jnp.ones(()), mu2, t, max_threshold=largest)

    found = jax.jit(jax.vmap(lambda *q: threshold_queue.best_thresholds(queue(*q, 1), largest)))(*bursts)
    values = np.asarray(jax.jit(jax.vmap(lambda *q: jax.vmap(
        lambda t: threshold_queue.mean_number(queue(*q, t)))(pairs)))(*bursts))
    np.testing.assert_allclose(found.mean_number, values.min(axis=1), rtol=1e-13)
    same = np.asarray([i == j for i, j in np.asarray(pairs)])
    np.testing.assert_allclose(found.constant_mean_number, values[:, same].min(axis=1), rtol=1e-13)
    assert np.any(np.asarray(found.mean_number) < 0.9995 * np.asarray(found.constant_mean_number))
    assert set(np.asarray(found.status).tolist()) <= {int(Status.OK), int(Status.NOT_CONVERGED)}
    np.testing.assert_array_equal(found.status == Status.OK, (found.thresholds < largest).all(axis=1))


def test_the_word_where_the_phase_matters_most():
    given = (1.3592957767505314, [1, 0], 1.0, 0.3592957767505315)
    best = threshold_queue.best_thresholds(Params.from_word(*given, 1), max_threshold=4)
    assert best.thresholds.tolist() == [1, 2]
    assert float(best.mean_number) == pytest.approx(1.1367779611, rel=1e-10)
    assert float(best.constant_mean_number) == pytest.approx(1.1482186381, rel=1e-10)
    assert threshold_queue.best_constant_threshold(Params.from_rate(0.5, 1.0, 0.02, 1), 4).status == 4


def test_only_two_servers():
    with pytest.raises(ValueError, match="one slow server"):
        threshold_queue.mean_numbers(Params.from_rate(1.0, 1.0, [0.5, 0.2], [1, 2]))
