import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax import ctmc
from hetjax.result import Status

ONE = jnp.ones((1, 1))
ERLANG2 = jnp.array([1.0, 0.0]), jnp.array([[-2.0, 2.0], [0.0, -2.0]])
solve_map_ph_1 = jax.jit(ctmc.map_ph_1)


def test_published_map_map_1(reference):
    table = reference("published")["map_map_1"]
    solution = jax.jit(ctmc.map_map_1)(*(jnp.asarray(table[k], float) for k in ("D0", "D1", "S0", "S1")))
    queue = solution.value
    assert solution.status == Status.OK
    np.testing.assert_allclose([queue.probability(k) for k in range(4)], table["p"], atol=5e-6)  # printed to 5 digits
    np.testing.assert_allclose(queue.mean_number, table["mean_number"], atol=5e-6)
    np.testing.assert_allclose(queue.mean_response_time, table["mean_sojourn"], atol=5e-6)


@pytest.mark.parametrize("gap", [0.5, 2.0**-10, 2.0**-20, 2.0**-27])  # 1 - rho, exact; the last is 7e-9
def test_pollaczek_khinchine_up_to_saturation(gap):
    rho = 1 - gap
    solution = solve_map_ph_1(-rho * ONE, rho * ONE, *ERLANG2)
    expected = rho + rho**2 * 1.5 / (2 * gap)
    np.testing.assert_allclose(solution.value.mean_number, expected, rtol=max(1e-12, 16 * 2.0**-52 / gap))
    np.testing.assert_allclose(solution.value.p_empty, gap, rtol=max(1e-12, 16 * 2.0**-52 / gap))
    np.testing.assert_allclose(solution.value.arrival_rate, rho, rtol=1e-14)
    assert solution.status == Status.OK


@pytest.mark.parametrize("gap", [0.5, 2.0**-10, 2.0**-27])
def test_first_passages_and_rates_entrywise(gap):
    """Two phases with different arrival rates, 1 - rho = gap, against logarithmic reduction in 50 digits."""
    up = np.diag([1.0, 0.3]) * (1 - gap)
    local = np.array([[0, 1e-3], [2.0, 0]])
    drift_free = np.array([2.0, 1e-3]) / 2.001  # the law of the phases alone
    down = np.eye(2) * (drift_free @ [1.0, 0.3])
    G, R = jax.jit(ctmc.logarithmic_reduction)(*map(jnp.asarray, (up, local, down)))
    with mpmath.workdps(50):
        u, d, w = mpmath.matrix(up), mpmath.matrix(down), mpmath.matrix(local)
        a = w.copy()
        for i in range(2):
            a[i, i] = -sum(w[i, j] + u[i, j] + d[i, j] for j in range(2))
        h, low = (-a) ** -1 * u, (-a) ** -1 * d
        g, t = low.copy(), h.copy()
        for _ in range(60):
            inverse = (mpmath.eye(2) - h * low - low * h) ** -1
            h, low = inverse * h * h, inverse * low * low
            g += t * low
            t = t * h
        residual = d + a * g + u * g * g
        assert max(abs(x) for x in residual) < mpmath.mpf(10) ** -35
        r = u * (-(a + u * g)) ** -1
        exact_G, exact_R = (np.array(m.tolist(), float) for m in (g, r))
    np.testing.assert_allclose(G, exact_G, rtol=1e-14)
    np.testing.assert_allclose(R, exact_R, rtol=1e-14)


def test_float32():
    rho = np.float32(1 - 2.0**-8)
    solution = solve_map_ph_1(-rho * ONE.astype(jnp.float32), rho * ONE.astype(jnp.float32),
                              *(x.astype(jnp.float32) for x in ERLANG2))
    assert solution.value.mean_number.dtype == jnp.float32 and solution.status == Status.OK
    np.testing.assert_allclose(solution.value.mean_number, rho + rho**2 * 1.5 * 2**7, rtol=16 * 2.0**-23 * 2**8)


@pytest.mark.parametrize("rate", [1.0, 1.2])
def test_unstable_queues_get_a_status(rate):
    solution = solve_map_ph_1(-rate * ONE, rate * ONE, *ERLANG2)
    assert solution.status == Status.UNSTABLE and np.isnan(solution.value.mean_number)


def test_the_tail_is_the_limit_of_finite_levels():
    rng = np.random.default_rng(1)
    up, local, down = rng.random((3, 3, 3)) * np.array([0.4, 1.0, 1.0])[:, None, None]
    boundary, boundary_up = rng.random((2, 2)), rng.random((2, 3))
    boundary_down = rng.random((3, 2))
    boundary_down *= (down.sum(1) / boundary_down.sum(1))[:, None]
    blocks = map(jnp.asarray, (boundary, boundary_up, boundary_down, up, local, down))
    solution = jax.jit(ctmc.matrix_geometric)(*blocks)
    n = 60
    Q = np.zeros((2 + 3 * n, 2 + 3 * n))
    Q[:2, :2], Q[:2, 2:5], Q[2:5, :2] = boundary, boundary_up, boundary_down
    for k in range(n):
        at = slice(2 + 3 * k, 5 + 3 * k)
        Q[at, at] = local
        if k + 1 < n:
            after = slice(5 + 3 * k, 8 + 3 * k)
            Q[at, after], Q[after, at] = up, down
    law = np.asarray(jax.jit(ctmc.stationary)(jnp.asarray(Q)).value)
    levels = law[2:].reshape(n, 3)
    value = solution.value
    np.testing.assert_allclose(value.boundary, law[:2], rtol=1e-13)
    np.testing.assert_allclose(value.first, levels[0], rtol=1e-13)
    np.testing.assert_allclose(value.level(9), levels[8], rtol=1e-13)
    np.testing.assert_allclose(value.mass, levels.sum(0), rtol=1e-12)
    np.testing.assert_allclose(value.mean_level, np.sum(levels.sum(1) * np.arange(1, n + 1)), rtol=1e-12)


def test_renewal_arrivals():
    """E2/M/1: sigma is the root in (0, 1) of sigma = (2 l/(2 l + 1 - sigma))^2, the mean number rho/(1 - sigma)."""
    queue = ctmc.ph_ph_1(jnp.array([1.0, 0.0]), 0.5 * jnp.array([[-2.0, 2.0], [0.0, -2.0]]), jnp.ones(1), -ONE).value
    sigma = 0.3
    for _ in range(200):
        sigma = (1 / (1 + 1 - sigma)) ** 2
    np.testing.assert_allclose(queue.mean_number, 0.5 / (1 - sigma), rtol=1e-14)
    np.testing.assert_allclose(queue.arrival_rate, 0.5, rtol=1e-14)


def test_derivatives_in_both_modes_and_batches():
    def mean(rate):
        return ctmc.map_ph_1(-rate * ONE, rate * ONE, *ERLANG2).value.mean_number

    exact = 1 + 0.75 * (2 * 0.5 / 0.5 + 0.25 / 0.25)
    np.testing.assert_allclose([jax.jit(jax.jacfwd(mean))(0.5), jax.jit(jax.grad(mean))(0.5)], exact, rtol=1e-13)
    rates = jnp.array([0.2, 0.5, 1.5])
    batch = jax.jit(jax.vmap(lambda x: ctmc.map_ph_1(-x * ONE, x * ONE, *ERLANG2)))(rates)
    assert batch.status.tolist() == [Status.OK, Status.OK, Status.UNSTABLE]
    alone = jax.jit(mean)
    np.testing.assert_allclose(batch.value.mean_number[:2], [alone(0.2), alone(0.5)], rtol=1e-14)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="alpha has 2 phases, T has 1"):
        ctmc.map_ph_1(-ONE, ONE, jnp.array([0.5, 0.5]), -ONE)
    with pytest.raises(ValueError, match="D1 has shape"):
        ctmc.map_ph_1(-ONE, jnp.ones((1, 2)), jnp.ones(1), -ONE)
    with pytest.raises(ValueError, match="boundary_up has shape"):
        ctmc.matrix_geometric(ONE, jnp.ones((2, 1)), ONE, ONE, ONE, ONE)
    with pytest.raises(ValueError, match="different row sums"):
        ctmc.matrix_geometric(ONE, ONE, 2 * ONE, ONE, ONE, 3 * ONE)
    assert jax.jit(ctmc.matrix_geometric)(ONE, ONE, 2 * ONE, ONE, ONE, 3 * ONE).status == Status.OUT_OF_DOMAIN
    assert ctmc.matrix_geometric(ONE, ONE, 3 * ONE, -ONE, ONE, 3 * ONE).status == Status.OUT_OF_DOMAIN


@settings(max_examples=25)
@given(st.floats(0.01, 0.999), st.floats(0.05, 20.0), st.floats(0.01, 0.99))
def test_hyperexponential_service(rho, ratio, p):
    """M/H2/1 against Pollaczek-Khinchine."""
    rates = np.array([1.0, ratio])
    rates *= np.sum(np.array([p, 1 - p]) / rates)  # mean 1
    second = np.sum(2 * np.array([p, 1 - p]) / rates**2)
    queue = solve_map_ph_1(-rho * ONE, rho * ONE, jnp.array([p, 1 - p]), jnp.diag(-jnp.asarray(rates)))
    assert queue.status == Status.OK
    np.testing.assert_allclose(queue.value.mean_number, rho + rho**2 * second / (2 * (1 - rho)), rtol=1e-12)
