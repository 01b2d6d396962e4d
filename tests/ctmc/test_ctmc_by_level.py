"""Levels given by a function, and the closed form of up to three phases, against the stored levels and the law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ctmc.exact_chains import precise_levels

from hetjax import ctmc
from hetjax.ctmc import cofactors
from hetjax.ctmc.levels import expectation_points
from hetjax.result import Status

COUNT = 4


def family(S, diagonal=False):
    """Blocks in four parameters, two rewards, and the same stored."""
    rng = np.random.default_rng(S)
    up, local, down = (jnp.asarray(x) for x in rng.random((3, S, S)))
    rewards = jnp.asarray(rng.random((2, S)))

    def block(level, p):
        speed = 1 + level.astype(p.dtype)
        a, b, c, d = (x.astype(p.dtype) for x in (up, local, down + 0.1, rewards))
        rates = a * p[0], b * p[1] + 0.1 * p[3], c * (p[2] * speed)
        if diagonal:
            rates = jnp.diagonal(rates[0]), rates[1], jnp.diagonal(rates[2])
        return *rates, d * speed

    def stored(p):
        *rates, columns = jax.vmap(block, in_axes=(0, None))(jnp.arange(COUNT), p)
        return ctmc.Levels(*rates), jnp.moveaxis(columns, 1, 0)

    return block, stored


@pytest.mark.parametrize("S, diagonal", [(1, False), (2, True), (3, False),
                                         pytest.param(3, True, marks=pytest.mark.slow), (4, False)])
def test_by_level_against_stored_levels_and_the_law(S, diagonal):
    block, stored = family(S, diagonal)
    p = jnp.asarray(np.random.default_rng(9).uniform(0.5, 2, (3, 4)))
    found = jax.jit(jax.vmap(lambda q: ctmc.expectation_by_level(block, q, COUNT)))(p)
    assert (np.asarray(found.status) == Status.OK).all()

    def others(q):
        levels, rewards = stored(q)
        law = ctmc.stationary_levels(levels).value
        return expectation_points(levels, rewards)[0], jnp.sum(rewards * law[None], axis=(1, 2))

    general, from_law = jax.jit(jax.vmap(others))(p)
    np.testing.assert_allclose(found.value, general, rtol=4e-15)
    np.testing.assert_allclose(found.value, from_law, rtol=4e-15)
    if S != 3:  # three phases take the way of one and two
        alone = jax.jit(lambda q: ctmc.expectation_by_level(block, q, COUNT).value)(p[0])
        np.testing.assert_allclose(alone, found.value[0], rtol=4e-15)


def test_derivatives_by_level():
    block, stored = family(2)
    p = jnp.array([0.7, 1.1, 0.9, 1.3])
    expected = jax.jit(jax.jacfwd(lambda q: ctmc.expectation_levels(*stored(q)).value))(p)
    reverse = jax.jit(jax.vmap(jax.jacrev(lambda q: ctmc.expectation_by_level(block, q, COUNT).value)))(p[None])
    np.testing.assert_allclose(reverse[0], expected, rtol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_adjugate_is_the_inverse_times_the_determinant(n):
    rng = np.random.default_rng(n)
    rates = rng.random((n, n)) * 10.0 ** rng.uniform(-3, 3, (n, n))
    exits = rng.random(n)
    np.fill_diagonal(rates, 0)
    matrix = np.diag(exits + rates.sum(1)) - rates
    adj = np.array([[float(x) for x in row] for row in cofactors.adjugate(rates.tolist(), list(jnp.asarray(exits)))])
    np.testing.assert_allclose(adj, np.linalg.inv(matrix) * np.linalg.det(matrix), rtol=1e-11)  # LU's conditioning


@pytest.mark.parametrize("dtype, scale", [(jnp.float64, 1e120), (jnp.float32, 1e16)])
def test_products_that_leave_the_range_are_mended(dtype, scale):
    """Three rates of this size do not multiply: these points, not their neighbours, take the general elimination."""
    block, _ = family(3)
    p = jnp.asarray([[1.0, 2.0, 0.7, 1.0]], dtype) * jnp.asarray([[1.0], [scale], [1 / scale]], dtype)
    found = jax.jit(jax.vmap(lambda q: ctmc.expectation_by_level(block, q, COUNT)))(p)
    assert (np.asarray(found.status) == Status.OK).all()
    np.testing.assert_allclose(found.value[1:], np.broadcast_to(found.value[0], (2, 2)),
                               rtol=1e-14 if dtype == jnp.float64 else 2e-6)
    single = jax.jit(jax.vmap(lambda q: ctmc.expectation_by_level(block, q, COUNT).value))(p[:1])
    assert np.array_equal(single[0], found.value[0])


@pytest.mark.parametrize("coupling", [1e-14, 1e-30, 1e-200])
def test_nearly_decomposable_levels(coupling):
    rng = np.random.default_rng(1)
    up, local, down = rng.random((3, 6, 3, 3))
    for rates in (up, local, down):
        rates[:, 0, 1:] *= coupling
        rates[:, 1:, 0] *= coupling / 3
    levels = ctmc.Levels(*map(jnp.asarray, (up, local, down)))
    rewards = rng.random((6, 3))
    found = jax.jit(ctmc.expectation_levels)(levels, jnp.asarray(rewards))
    expected = np.sum(rewards * np.exp(precise_levels(up, local, down)))
    assert found.status == Status.OK
    np.testing.assert_allclose(found.value, expected, rtol=2e-14)


def test_bad_points_get_their_status_and_wrong_arguments_raise():
    block, _ = family(2)
    p = jnp.array([[1.0, 1, 1, 1], [-1, 1, 1, 1], [1, 1, jnp.nan, 1], [1, 1, 0, 1]])
    found = jax.jit(jax.vmap(lambda q: ctmc.expectation_by_level(block, q, COUNT)))(p)
    assert found.status.tolist() == [Status.OK, *[Status.OUT_OF_DOMAIN] * 2, Status.OK]  # the last one only climbs
    assert np.isfinite(np.asarray(found.value[3])).all()
    with pytest.raises(ValueError, match="count = 0"):
        ctmc.expectation_by_level(block, p[0], 0)
    with pytest.raises(ValueError, match="parameters is empty"):
        ctmc.expectation_by_level(block, (), 3)
    with pytest.raises(ValueError, match="block gives shapes"):
        ctmc.expectation_by_level(lambda level, q: (*block(level, q)[:3], q), p[0], 3)
