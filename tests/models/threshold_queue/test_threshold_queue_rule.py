"""The exact rule against bisection and against the mean numbers, and how far each approximation is from the best."""

import jax
import jax.numpy as jnp
import numpy as np

from hetjax import threshold_queue
from hetjax.models.threshold_queue.rule import _diffusion

NUMBER = jax.jit(lambda *z: threshold_queue.poisson_means(*z).number)
SIGN = jax.jit(threshold_queue.threshold_sign)
BEST = jax.jit(threshold_queue.optimal_threshold)


def grid(loads, ratios):
    rho, r = (x.ravel() for x in np.meshgrid(loads, ratios))
    return rho, r, [jnp.asarray(x) for x in (rho * (1 + 1 / r), np.ones_like(r), 1 / r)]


def by_bisection(rates):
    low, high = np.zeros(rates[0].size), np.full(rates[0].size, 8192.0)
    for _ in range(14):
        middle = np.maximum(np.floor((low + high) / 2), 1)
        over = np.asarray(SIGN(*rates, jnp.asarray(middle))) >= 0
        high, low = np.where(over, middle, high), np.where(over, low, middle)
    at_one = np.asarray(SIGN(*rates, jnp.ones(rates[0].size))) >= 0
    return np.where(at_one, 1, high)


LOADS = np.concatenate([np.linspace(0.05, 0.99, 95), 1 - np.geomspace(1e-2, 1e-6, 20)])
RHO, R, RATES = grid(LOADS, np.geomspace(1, 3000, 150))


def test_rule_equals_bisection_and_no_threshold_is_better():
    best = np.asarray(BEST(*RATES))
    np.testing.assert_array_equal(best, by_bisection(RATES))
    least = np.asarray(NUMBER(*RATES, jnp.asarray(best)))
    for step in (-3, -2, -1, 1, 2, 3):
        other = np.asarray(NUMBER(*RATES, jnp.asarray(np.maximum(best + step, 1))))
        assert np.all(other >= least * (1 - 1e-13 / (1 - RHO) * 0.01 - 1e-14))


def test_sign_is_that_of_the_difference():
    rng = np.random.default_rng(5)
    rho, r = rng.uniform(0.05, 0.98, 4000), 10**rng.uniform(0, 2, 4000)
    T = np.ceil(10**rng.uniform(0, 1.7, 4000))
    rates = [jnp.asarray(x) for x in (rho * (1 + 1 / r), np.ones(4000), 1 / r)]
    low, high = (np.asarray(NUMBER(*rates, jnp.asarray(T + k))) for k in (0, 1))
    clear = np.abs(high / low - 1) > 1e-11
    assert clear.mean() > 0.7
    np.testing.assert_array_equal((np.asarray(SIGN(*rates, jnp.asarray(T))) > 0)[clear], (high > low)[clear])


def test_where_mean_numbers_tie():
    rates = [jnp.asarray(x) for x in (0.5, 1.0, 1 / 200)]
    assert float(BEST(*rates)) == 100
    assert float(NUMBER(*rates, jnp.asarray(100.0))) == float(NUMBER(*rates, jnp.asarray(101.0)))


def test_fastest_server_first():
    first = np.asarray(threshold_queue.fastest_first_is_best(*RATES))
    np.testing.assert_array_equal(first, np.asarray(BEST(*RATES)) == 1)
    assert first[R <= 2].all() and not first[R > 3.7448].any()


def test_gaps_of_the_approximations():
    rho, _, rates = grid(np.linspace(0.05, 0.99, 189), np.geomspace(1, 200, 400))
    best = np.asarray(BEST(*rates))
    least = np.asarray(NUMBER(*rates, jnp.asarray(best)))

    def gap(rule):
        chosen = rule(*rates)
        return np.asarray(NUMBER(*rates, chosen)) / least - 1, np.mean(np.asarray(chosen) == best)

    explicit, exact = gap(threshold_queue.explicit_threshold)
    assert explicit.max() < 0.0013 and explicit.mean() < 5e-6 and exact > 0.96  # .2 % is what users may count on
    assert np.quantile(explicit, 0.99) < 2e-4
    simple, exact = gap(threshold_queue.simple_threshold)
    assert 0.055 < simple.max() < 0.0565 and 0.003 < simple.mean() < 0.006 and 0.45 < exact < 0.6
    assert simple[rho < 0.25].max() < 0.03


def test_diffusion():
    theta, D, root = _diffusion(*RATES)
    tau = threshold_queue.diffusion_threshold(*RATES) / root
    np.testing.assert_allclose(tau, (theta + D / jnp.tanh(D * tau / 2)) / 2, rtol=1e-12)
    at_one = [jnp.asarray(x) for x in (1 + 1e-6, 1.0, 1e-6)]
    assert abs(float(threshold_queue.diffusion_threshold(*at_one)) / 1e3 - 1.19968) < 1e-3
    near = [jnp.asarray(x) for x in ((1 - 1e-9) * (1 + 1e-6), 1.0, 1e-6)]
    assert abs(float(BEST(*near)) / 1e3 - 1.19968) < 2e-3  # the rule in the limit: 1.19968 sqrt(r)
