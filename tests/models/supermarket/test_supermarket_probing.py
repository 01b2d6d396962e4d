"""The best number of queues to look at, against enumeration by the second route and against closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax.models.supermarket import Params, best_choices
from hetjax.processes import hyperexponential_balanced
from hetjax.result import OptimumStatus, Status

METRICS = ["best_d", "best_cost", "mean_response_time", "saving", "saving_over_two", "proved"]


def exponential_mean(rate, d):
    """T(d) for exponential services of mean 1: sum of rate^((d^k - 1)/(d - 1)) over rate, in closed form."""
    if d == 1:
        return 1 / (1 - rate)
    return sum(rate ** ((d**k - 1) / (d - 1)) for k in range(1, 60) if k * math.log(d) < 600) / rate


def test_best_number_by_enumeration_of_the_closed_form():
    rng = np.random.default_rng(1)
    rate = np.append(rng.uniform(0.05, 0.97, 80), [0.97, 0.98])
    price = np.append(10 ** rng.uniform(-3, 0.7, 80), 1e-3)
    price = np.append(price, 1e-3)  # 64 looks are too few for the last two
    found = hetjax.evaluate("supermarket_probing", arrival_rate=rate, scv=1.0, price=price, metrics=METRICS)
    assert (found.status == Status.OK).all()
    unproved = 0
    for i, (a, c) in enumerate(zip(rate.tolist(), price.tolist(), strict=True)):
        costs = np.array([exponential_mean(a, d) + c * d for d in range(1, 200)])
        best = int(np.argmin(costs[:64]))
        assert found.best_d[i] == best + 1
        assert math.isclose(found.best_cost[i], costs[best], rel_tol=1e-12)
        assert math.isclose(found.saving[i], 1 - costs[best] / costs[0], abs_tol=1e-12)
        assert math.isclose(found.saving_over_two[i], 1 - costs[best] / costs[1], abs_tol=1e-12)
        if found.proved[i]:
            assert costs.argmin() == best
        unproved += not found.proved[i]
    assert 2 <= unproved < 30


@pytest.mark.slow  # compiles for itself
def test_costs_with_two_minima():
    """With SCV 10 at load .95 T(d) bends upwards at d = 9: a local search may miss the best."""
    d = np.arange(1, 65)
    T = hetjax.evaluate("supermarket", arrival_rate=0.95, d=d.astype(float), scv=10.0, metrics=["mean_response_time"])
    means = np.asarray(T.mean_response_time)
    assert (np.diff(means, 2) < 0).any()
    service = hyperexponential_balanced(1.0, 10.0)
    two = 0
    for price in (0.05, 0.1, 0.111, 0.12, 0.2):  # the third between the two slopes
        costs = means + price * d
        two += ((costs[1:-1] < costs[:-2]) & (costs[1:-1] < costs[2:])).sum() > 1
        assert best_choices(Params.from_service(0.95, 2, service), price) == d[costs.argmin()]
    assert two > 0


@pytest.mark.slow  # compiles for itself
def test_real_number_derivatives_types_and_statuses():
    at = {"arrival_rate": 0.9, "scv": 3.0, "price": 0.1}
    found = hetjax.evaluate("supermarket_probing", **at, metrics=["best_d", "best_d_real", "optimum_status"])
    d = np.linspace(float(found.best_d) - 1, float(found.best_d) + 1, 401)
    T = hetjax.evaluate("supermarket", arrival_rate=0.9, d=d, scv=3.0, metrics=["mean_response_time"])
    assert abs(d[np.argmin(np.asarray(T.mean_response_time) + 0.1 * d)] - float(found.best_d_real)) <= 0.005
    assert int(found.optimum_status) == OptimumStatus.INTERIOR

    def cost(x):
        return hetjax.evaluate("supermarket_probing", arrival_rate=x[0], scv=x[1], price=x[2],
                               metrics=["best_cost"]).best_cost

    x = jnp.array([0.9, 3.0, 0.1])
    forward, backward = jax.jacfwd(cost)(x), jax.jacrev(cost)(x)
    np.testing.assert_allclose(backward, forward, rtol=1e-12)
    assert forward[2] == found.best_d  # envelope theorem
    h = 1e-5
    for i in range(2):
        step = jnp.zeros(3).at[i].set(h)
        slope = (cost(x + step) - cost(x - step)) / (2 * h)  # rounding 1e-16 / h, second order in h
        np.testing.assert_allclose(forward[i], slope, rtol=1e-7)
    narrow = hetjax.evaluate("supermarket_probing", metrics=METRICS, **{k: np.float32(v) for k, v in at.items()})
    assert narrow.best_cost.dtype == np.float32 and float(narrow.best_d) == float(found.best_d)
    np.testing.assert_allclose(narrow.best_cost, cost(x), rtol=1e-5)
    bad = hetjax.evaluate("supermarket_probing", arrival_rate=[1.0, -1.0, 0.5, 0.5], scv=[1.0, 1.0, 0.1, 1.0],
                          price=[1.0, 1.0, 1.0, 0.0], metrics=METRICS)
    assert bad.status.tolist() == [Status.UNSTABLE] + 3 * [Status.OUT_OF_DOMAIN] and np.isnan(bad.best_cost).all()
    with pytest.raises(ValueError, match=r"price = 0.0 is outside"):
        best_choices(Params(0.5, 2, [1.0], [[-1.0]]), 0.0)
