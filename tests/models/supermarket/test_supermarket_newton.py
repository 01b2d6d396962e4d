"""Two routes to the fixed point that share nothing but the parameters; laws of response and waiting times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.models.supermarket import (
    Params,
    fixed_point,
    newton_fixed_point,
    response_time,
    waiting_time,
)
from hetjax.models.supermarket.newton import solve_tridiagonal, tridiagonal_jacobian
from hetjax.processes import erlang, exponential, hyperexponential_balanced
from hetjax.result import Status

PERCENTILES = {  # p50, p90, p99, p99.9 at d = 2, rho = 0.9, mean service 1, from an independent calculation
    "exponential": (exponential(1.0), (2.20187242888, 5.28700015406, 8.79097020496, 11.93161631487)),
    "erlang": (erlang(2, 2.0), (1.96042364882, 4.03603213516, 6.22292624915, 8.10359827102)),
    "hyperexponential": (hyperexponential_balanced(1.0, 10.0),
                         (2.30723459148, 19.88649744776, 49.76511654546, 78.82289884188)),
}


@pytest.mark.parametrize(("law", "rate", "d"), [
    (erlang(8, 8.0), 0.95, 3.0),  # where root solvers on the ODE fail
    (hyperexponential_balanced(1.0, 100.0), 0.9, 3.0),
    (hyperexponential_balanced(1.0, 10.0), 0.99, 1.5),
    (exponential(1.0), 0.7, 2.0),
], ids=["E8", "H2 100", "H2 10", "exp"])
def test_newton_agrees_with_the_recursion(law, rate, d):
    params = Params.from_service(rate, d, law)
    exact = fixed_point(params).value
    found = newton_fixed_point(params, levels=exact.at_least.shape[0])
    assert found.status == Status.OK
    # the truncated system is solved to eps in its residual; its condition number is of the order 1/(1 - rho)^2
    np.testing.assert_allclose(found.value, exact.at_least, atol=2e-15 / (1 - rate) ** 2)


def test_tridiagonal_pieces():
    key = jax.random.key(0)
    lower, diagonal, upper = jax.random.normal(key, (3, 7, 2, 2))
    diagonal = diagonal + 6 * jnp.eye(2)[None]
    dense = np.zeros((14, 14))
    for k in range(7):
        for offset, blocks in ((-1, lower), (0, diagonal), (1, upper)):
            if 0 <= k + offset < 7:
                dense[2 * k:2 * k + 2, 2 * (k + offset):2 * (k + offset) + 2] = blocks[k]
    right = jax.random.normal(jax.random.key(1), (7, 2))
    x = solve_tridiagonal(lower, diagonal, upper, right)
    known = np.linalg.solve(dense, np.asarray(right).reshape(-1))
    np.testing.assert_allclose(x.reshape(-1), known, rtol=1e-12, atol=1e-13)
    found = tridiagonal_jacobian(lambda s: jnp.reshape(jnp.asarray(dense) @ s.reshape(-1), (7, 2)), right)
    for k in range(7):
        np.testing.assert_allclose(found[1][k], diagonal[k], rtol=1e-14)
        if k > 0:
            np.testing.assert_allclose(found[0][k], lower[k], rtol=1e-14)
        if k < 6:
            np.testing.assert_allclose(found[2][k], upper[k], rtol=1e-14)


@pytest.mark.parametrize("name", PERCENTILES)
def test_response_time(name):
    law, known = PERCENTILES[name]
    params = Params.from_service(0.9, 2, law)
    found = fixed_point(params, levels=64).value
    response, waiting = response_time(params, found), waiting_time(params, found)
    p = jnp.array([0.5, 0.9, 0.99, 0.999])
    percentiles = response.percentile(p)
    assert bool(jnp.all(percentiles.status == Status.OK))
    np.testing.assert_allclose(percentiles.value, known, rtol=4e-12)  # printed to 12 digits
    np.testing.assert_allclose(response.tail(percentiles.value), 1 - p, rtol=1e-12)
    assert float(response.mean()) == pytest.approx(float(found.mean_response_time), rel=1e-13)
    assert float(waiting.mean()) == pytest.approx(float(found.mean_waiting_time), rel=1e-13)
    assert float(waiting.tail(0.0)) == pytest.approx(0.81, rel=1e-12)
    assert float(waiting.percentile(0.1).value) == 0  # 19 % do not wait
    assert response.missing < 1e-14 and waiting.missing < 1e-14


def test_response_time_of_the_single_queue_is_exponential():
    """M/M/1: exponential with rate mu - lambda."""
    params = Params(0.6, 1, [1.0], [[-1.0]])
    law = response_time(params, fixed_point(params, levels=96).value, steps=512)
    x = jnp.array([0.1, 1.0, 10.0, 40.0])
    np.testing.assert_allclose(law.tail(x), np.exp(-0.4 * np.asarray(x)), rtol=1e-11)


def test_percentiles_say_when_they_are_out_of_reach():
    params = Params(0.9, 2, [1.0], [[-1.0]])
    law = response_time(params, fixed_point(params).value, steps=16)
    found = law.percentile(jnp.array([0.5, 0.9999]))
    assert found.status[1] == Status.NOT_CONVERGED
    few = response_time(params, fixed_point(params, levels=3).value)
    assert few.percentile(0.5).status == Status.NOT_CONVERGED


def test_derivative_of_a_percentile():
    """M/M/1: x = -log(1 - p)/(mu - lambda)."""
    def percentile(rate):
        params = Params(rate, 1.0, [1.0], [[-1.0]])
        return response_time(params, fixed_point(params, levels=96).value, steps=256).percentile(0.9).value

    value, slope = jax.jit(jax.value_and_grad(percentile))(0.5)
    assert float(value) == pytest.approx(np.log(10) / 0.5, rel=1e-12)
    assert float(slope) == pytest.approx(np.log(10) / 0.25, rel=1e-10)
