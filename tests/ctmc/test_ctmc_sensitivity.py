import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ctmc.exact_chains import exact_derivative

from hetjax import ctmc
from hetjax.result import Status

METHODS = ["elimination", "adjoint"]


def dense_chain(Q, dQ, rewards):
    return lambda x: (Q + x * dQ, rewards)


@pytest.mark.parametrize("method", METHODS)
def test_published_dense_chain(method, reference):
    table = reference("published")["ctmc_sensitivity"]
    Q, dQ = (jnp.asarray(table[k], float) for k in ("Q", "dQ"))
    solution = ctmc.sensitivity(dense_chain(Q, dQ, jnp.eye(5)), 0.0, method)
    assert solution.status == Status.OK
    np.testing.assert_allclose(solution.value.value, table["pi"], atol=6e-9)  # printed to 8 digits
    np.testing.assert_allclose(solution.value.gradient, table["dpi"], atol=6e-9)
    np.testing.assert_allclose(solution.value.gradient, exact_derivative(table["Q"], table["dQ"]), rtol=1e-13)


LEVELS, PHASES = 3, 3


def chain(p):
    rng = np.random.default_rng(3)
    a, b, c, d = (jnp.asarray(x) for x in rng.random((4, LEVELS, PHASES, PHASES)))
    rewards = jnp.stack([jnp.arange(1.0 * LEVELS)[:, None] * jnp.ones((1, PHASES)), d[:, 0] * p["up"]])
    return ctmc.Levels(a * p["up"], b * p["local"], c * p["down"][0] + d * p["down"][1]), rewards


POINT = {"up": jnp.array(1.0), "local": jnp.array(2.0), "down": jnp.array([0.5, 0.7])}


@functools.cache
def gradient(method):
    return jax.jit(lambda p: ctmc.sensitivity(chain, p, method))(POINT)


@functools.cache
def plain_gradient():
    def dense(p):
        levels, rewards = chain(p)
        return rewards.reshape(2, -1) @ ctmc.stationary(ctmc.levels_to_dense(levels)).value

    return jax.jit(jax.jacfwd(dense))(POINT)


@pytest.mark.parametrize("method", METHODS)
def test_levels_against_the_dense_elimination(method):
    expected = plain_gradient()
    solution = gradient(method)
    assert solution.status == Status.OK
    for name in POINT:
        np.testing.assert_allclose(solution.value.gradient[name], expected[name], rtol=2e-13)
    batch = jax.jit(jax.vmap(lambda p: ctmc.sensitivity(chain, p, method)))(
        jax.tree.map(lambda x: jnp.stack([x] * 3), POINT))
    np.testing.assert_allclose(batch.value.gradient["down"][2], expected["down"], rtol=2e-13)


@pytest.mark.parametrize("method", METHODS)
def test_rewards_differentiate_in_both_modes(method):
    def first(p):
        return jnp.log(ctmc.stationary_reward(chain, p, method)[0])

    value = gradient("elimination").value
    expected = jax.tree.map(lambda g: g[0] / value.value[0], value.gradient)
    for derivative in (jax.grad, jax.jacfwd):
        found = jax.jit(derivative(first))(POINT)
        for name in POINT:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-13)
    batch = jax.jit(jax.vmap(jax.grad(first)))(jax.tree.map(lambda x: jnp.stack([x, 2 * x]), POINT))
    np.testing.assert_allclose(batch["down"][0], expected["down"], rtol=1e-13)


@pytest.mark.parametrize("coupling", [1e-6, 1e-14])
def test_elimination_is_right_on_nearly_decomposable_chains(coupling):
    """Two groups of three states; the adjoint loses about eps/coupling there, the default nothing."""
    rng = np.random.default_rng(0)
    Q, dQ = rng.random((6, 6)), rng.random((6, 6))
    for m in (Q, dQ):
        m[:3, 3:] *= coupling
        m[3:, :3] *= coupling
    exact = exact_derivative(Q, dQ)
    build = dense_chain(jnp.asarray(Q), jnp.asarray(dQ), jnp.eye(6))
    np.testing.assert_allclose(ctmc.sensitivity(build, 0.0).value.gradient, exact, rtol=1e-12)
    cheap = ctmc.sensitivity(build, 0.0, "adjoint").value.gradient
    np.testing.assert_allclose(cheap, exact, rtol=1e-13 + 1e2 * 2.0**-52 / coupling)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("load", [1e-2, 0.9, 1e2])
def test_long_buffers_at_any_load(method, load):
    """M/M/1/K: d mean / d load in closed form, over 400 levels whose law spans 1e800."""
    L = 400

    def buffer(x):
        levels = ctmc.Levels(jnp.full((L, 1), 1.0) * x, jnp.zeros((L, 1, 1)), jnp.ones((L, 1)))
        return levels, jnp.arange(1.0 * L)[:, None]

    r = min(load, 1 / load)
    slope = 1 / (1 - r) ** 2  # of r/(1 - r); the other end, K + 1 terms away, adds less than 1e-15
    expected = slope if load < 1 else slope * r**2
    solution = jax.jit(lambda x: ctmc.sensitivity(buffer, x, method))(load)
    assert solution.status == Status.OK
    # above load 1 the mean is close to L - 1 and hardly moves: the slope is a difference of terms L mean / load
    cancels = 16 * L * 2.0**-52 * float(solution.value.value) / load
    np.testing.assert_allclose(solution.value.gradient, expected, rtol=1e-11, atol=cancels if load > 1 else 0)


@pytest.mark.parametrize("method", METHODS)
def test_more_phases_than_are_unrolled(method):
    rng = np.random.default_rng(4)
    a, b, c = (jnp.asarray(x) for x in rng.random((3, 2, 26, 26)))

    def wide(x):
        return ctmc.Levels(a * x, b, c), jnp.array([[0.0], [1.0]]) * jnp.ones((1, 26))

    @jax.jit
    def dense(x):
        return ctmc.stationary(ctmc.levels_to_dense(wide(x)[0])).value[26:].sum()

    slope = (dense(1.0 + 1e-5) - dense(1.0 - 1e-5)) / 2e-5
    found = jax.jit(lambda x: ctmc.sensitivity(wide, x, method))(1.0)
    np.testing.assert_allclose(found.value.gradient, slope, rtol=1e-9)  # the difference quotient's own error


def test_a_phase_that_nothing_leads_to_keeps_the_status():
    """Phase 1 of level 0 is left and never entered: its probability is exactly 0, which is no lost digit."""
    up = jnp.zeros((5, 2, 2)).at[:, 0, 0].set(0.5).at[1:, 1, 1].set(0.5)
    local = jnp.zeros((5, 2, 2)).at[0, 1, 0].set(1.0).at[1:, 0, 1].set(0.3)
    reward = jnp.arange(5.0)[:, None] * jnp.ones((1, 2))

    def mean(rate):
        down = jnp.zeros((5, 2, 2)).at[1:, 0, 0].set(rate).at[2:, 1, 1].set(rate).at[1, 1, 0].set(rate)
        found = ctmc.expectation_levels(ctmc.Levels(up, local, down), reward)
        return found.value, found.status

    (value, code), (slope, _) = jax.jvp(mean, (jnp.asarray(1.0),), (jnp.asarray(1.0),))
    plain, expected = mean(1.0)
    assert int(code) == int(expected) == int(Status.OK) and abs(float(value - plain)) < 1e-14
    step = 1e-4
    assert abs(float((mean(1 + step)[0] - mean(1 - step)[0]) / (2 * step) - slope)) < 1e-7  # central difference


def test_bad_input():
    with pytest.raises(ValueError, match="method"):
        ctmc.sensitivity(chain, POINT, "implicit")
    with pytest.raises(ValueError, match="floating"):
        ctmc.sensitivity(lambda x: (jnp.ones((2, 2)) * x, jnp.ones(2)), 1)
    split = dense_chain(jnp.zeros((2, 2)), jnp.zeros((2, 2)), jnp.ones(2))
    assert ctmc.sensitivity(split, 1.0).status == Status.OUT_OF_DOMAIN
    assert np.isnan(ctmc.stationary_reward(split, 1.0))
