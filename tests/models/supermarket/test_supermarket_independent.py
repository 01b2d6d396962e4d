"""N independent queues: their formula at one arrival phase, their two limits, and a simulation with one choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.models.supermarket import Params, compare_with_independent, independent_queues, simulate
from hetjax.processes import erlang, exponential, hyperexponential_balanced, mmpp, poisson, renewal
from hetjax.result import Status

STREAM = mmpp([[0.0, 0.5], [1.0, 0.0]], [0.2, 1.1])  # rate 0.5
H2 = hyperexponential_balanced(1.0, 4.0)


@jax.jit
def mean_number(N):
    return independent_queues(STREAM, N, H2).value.mean_number


def test_poisson_and_the_limit_of_many_queues():
    """One arrival phase: Pollaczek and Khinchine for every N. Several: that at N = infinity, error of order 1/N."""
    exact = 0.5 + 0.25 * 5 / (2 * 0.5)
    assert float(independent_queues(poisson(0.5), 7, H2).value.mean_number) == pytest.approx(exact, rel=1e-13)
    over = [N * (float(mean_number(N)) - exact) for N in (1e3, 1e4, 1e5)]
    assert over[0] > 0 and over[1] == pytest.approx(over[2], rel=1e-3)
    alike = independent_queues(STREAM, 1, H2).value.mean_number
    assert float(independent_queues(STREAM, 9, H2, environment="slow").value.mean_number) == float(alike)


@pytest.mark.slow
def test_one_choice_simulated():
    """d = 1 makes each of N queues that MAP/PH/1, in both scalings; once with the control variate."""
    for environment in ("fast", "slow"):
        exact = independent_queues(STREAM, 3, H2, environment=environment).value
        params = Params.from_map(STREAM, 1, H2)
        found = simulate(params, 3, jax.random.key(1), events=40_000, levels=80, arrivals=STREAM,
                         environment=environment, control=environment == "fast")
        assert found.status == Status.OK
        mean, width = map(float, found.mean_queue_length)
        assert abs(mean - float(exact.mean_number)) < 2 * width < 0.2  # four standard errors
        busy, width = (float(x[0]) for x in found.tails)
        assert abs(busy - 1 + float(exact.p_empty)) < 2 * width < 0.02


def test_comparison():
    """Renewal arrivals of low variability, both parts by themselves."""
    arrivals = renewal(erlang(2, 1.6))  # rate 0.8
    found = compare_with_independent(arrivals, 2, 2, exponential(1.0))
    assert found.status == Status.OK
    k = np.arange(1, 12)
    limit = np.sum(0.8 ** (2.0**k - 1))
    # GI/M/1: sigma is the interarrival transform at 1 - sigma; that of (2 D0, 2 D1), an Erlang
    # stream with stages of rate 3.2, kept with probability 1/2, is f/(2 - f), f = (3.2/(3.2 + s))^2
    sigma = 0.5
    for _ in range(200):
        f = (3.2 / (4.2 - sigma)) ** 2
        sigma = f / (2 - f)
    assert float(found.value.supermarket) == pytest.approx(limit, rel=1e-13)
    assert float(found.value.independent) == pytest.approx(0.8 / (1 - sigma), rel=1e-12)
    assert float(found.value.gain) == pytest.approx(0.8 / (1 - sigma) / limit, rel=1e-12)
    assert compare_with_independent(poisson(0.9), 5, 1, exponential(1.0)).value.gain == pytest.approx(1, rel=1e-12)


def test_overload_and_bad_input():
    assert independent_queues(poisson(1.5), 2, H2).status == Status.UNSTABLE
    for make, word in ((lambda: independent_queues(STREAM, 0, H2), "N = 0"),
                       (lambda: independent_queues(STREAM, 2, H2, environment="odd"), "environment"),
                       (lambda: independent_queues(renewal(erlang(2, 1.0)), 2, H2, environment="slow"), "MMPP")):
        with pytest.raises(ValueError, match=word):
            make()


def test_gradient():
    slope = float(jax.jit(jax.grad(mean_number))(jnp.asarray(4.0)))
    assert slope == pytest.approx(float(mean_number(4.001) - mean_number(3.999)) / 0.002, rel=1e-6)
