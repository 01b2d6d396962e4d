"""Multilevel aggregation against product forms, dense linear algebra and its own residual."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.ctmc.iterative import stationary_iterative
from hetjax.result import Status

solve = jax.jit(stationary_iterative, static_argnames=("shape", "max_cycles"))


def geometric(load, size):
    weights = load ** np.arange(size)
    return weights / weights.sum()


def dense(moves, shape):
    """The law by dense least squares, from the moves read one state at a time."""
    n = int(np.prod(shape))
    Q = np.zeros((n, n))
    for s, r in moves.items():
        full = np.broadcast_to(np.asarray(r, float), shape)
        for state in np.ndindex(*shape):
            target = tuple(np.add(state, s))
            if all(0 <= k < size for k, size in zip(target, shape, strict=True)):
                Q[np.ravel_multi_index(state, shape), np.ravel_multi_index(target, shape)] += full[state]
    A = Q - np.diag(Q.sum(1))
    return np.linalg.lstsq(np.vstack([A.T, np.ones(n)]), np.r_[np.zeros(n), 1.0], rcond=None)[0].reshape(shape)


@pytest.mark.parametrize("shape", [(64, 64), (37, 50)])
@pytest.mark.parametrize("loads", [(0.5, 0.8), (1.3, 0.97)])
def test_two_independent_queues(shape, loads):
    moves = {(1, 0): loads[0], (-1, 0): 1.0, (0, 1): loads[1], (0, -1): 1.0}
    answer = solve(moves, shape)
    assert int(answer.status) == Status.OK and float(answer.residual) <= 1e-12
    exact = np.outer(geometric(loads[0], shape[0]), geometric(loads[1], shape[1]))
    assert np.abs(answer.value - exact).sum() < 1e-8  # residual times the relaxation time in sweeps
    np.testing.assert_allclose(answer.value.sum(), 1.0, rtol=1e-14)


def test_number_of_cycles_does_not_grow_with_the_lattice():
    cycles = [int(solve({(1,): 0.7, (-1,): 1.0}, (size,)).iterations) for size in (64, 4096)]
    assert cycles[1] <= cycles[0] + 10


def test_one_queue_with_a_twenty_thousand_places():
    answer = solve({(1,): 0.7, (-1,): 1.0}, (20_001,))
    assert int(answer.status) == Status.OK
    np.testing.assert_allclose(answer.value[:30], geometric(0.7, 20_001)[:30], rtol=1e-9, atol=1e-11)


CASES = {
    "batch arrivals": ({(2,): 0.3, (-1,): 1.0}, (11,)),
    "tandem": ({(1, 0): 0.5, (-1, 1): 1.0, (0, -1): 0.8}, (9, 12)),
    "rates that depend on the state": ({(1, 0): 1.0, (-1, 0): np.arange(8.0)[:, None], (0, 1): 0.3,
                                        (0, -1): np.minimum(np.arange(5.0), 2), (-3, 2): 0.05}, (8, 5)),
    "three axes": ({(1, 0, 0): 0.6, (-1, 1, 0): 1.0, (0, -1, 1): 1.2, (0, 0, -1): 0.9}, (5, 4, 6)),
    "phases that modulate": ({(0, 1): np.array([0.1, 0.0]), (0, -1): np.array([0.0, 0.2]),
                              (1, 0): np.array([0.2, 1.5]), (-1, 0): 1.0}, (20, 2)),
    "one smallest lattice": ({(1, 0): 0.5, (-1, 0): 1.0, (0, 1): 2.0, (0, -1): 1.0}, (2, 2)),
    "a thin lattice": ({(1, 0): 0.5, (-1, 0): 1.0}, (6, 1)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_against_dense_linear_algebra(name):
    moves, shape = CASES[name]
    answer = solve(moves, shape)
    assert int(answer.status) == Status.OK
    np.testing.assert_allclose(answer.value, dense(moves, shape), atol=1e-11)


@pytest.mark.parametrize("coupling", [1e-3, 1e-8])
def test_nearly_decomposable(coupling):
    """Two queues, switched between rarely: plain sweeps would need 1/coupling of them."""
    moves = {(1, 0): np.array([0.5, 0.9]), (-1, 0): 1.0, (0, 1): np.array([coupling, 0.0]),
             (0, -1): np.array([0.0, 3 * coupling])}
    answer = solve(moves, (16, 2))
    assert int(answer.status) == Status.OK
    np.testing.assert_allclose(answer.value.sum(0), [0.75, 0.25], rtol=1e-9)


def test_states_that_cannot_be_reached_get_nothing():
    """From (0, 0) only the first row can be reached."""
    start = jnp.zeros((6, 3)).at[0, 0].set(1.0)
    answer = solve({(0, 1): 0.5, (0, -1): 1.0}, (6, 3), start=start)
    np.testing.assert_allclose(answer.value[0], geometric(0.5, 3), rtol=1e-12)
    assert (np.asarray(answer.value[1:]) == 0).all()


def test_transient_states_vanish():
    answer = solve({(1,): jnp.array([1.0, 1.0, 0.5, 0.5]), (-1,): jnp.array([0, 0, 0, 1.0])}, (4,))
    np.testing.assert_allclose(answer.value, [0, 0, 2 / 3, 1 / 3], atol=1e-12)


def test_vmap_float32_and_start():
    loads = jnp.asarray([0.3, 0.6, 0.9], jnp.float32)
    answer = jax.jit(jax.vmap(lambda load: stationary_iterative({(1,): load, (-1,): jnp.float32(1)}, (30,))))(loads)
    assert answer.value.dtype == jnp.float32 and (np.asarray(answer.status) == Status.OK).all()
    for load, law in zip((0.3, 0.6, 0.9), answer.value, strict=True):
        assert np.abs(np.asarray(law) - geometric(load, 30)).sum() < 3e-3  # the residual 1e-5 times the relaxation time
    exact = geometric(0.9, 64)
    good = solve({(1,): 0.9, (-1,): 1.0}, (64,), start=jnp.asarray(exact))
    assert int(good.iterations) == 0


def test_status_codes():
    stopped = solve({(1,): 0.9, (-1,): 1.0}, (64,), max_cycles=1)
    assert int(stopped.status) == Status.NOT_CONVERGED and float(stopped.residual) > 1e-12
    assert int(solve({(1,): -0.9, (-1,): 1.0}, (64,)).status) == Status.OUT_OF_DOMAIN
    assert int(solve({(1,): jnp.nan, (-1,): 1.0}, (64,)).status) == Status.NONFINITE
    assert int(solve({(1,): 0.0, (-1,): 0.0}, (64,)).status) == Status.NONFINITE  # nothing ever moves


@pytest.mark.parametrize(("moves", "shape", "options", "message"), [
    ({}, (3,), {}, "moves is empty"),
    ({(1, 0): 1.0}, (3,), {}, r"move \(1, 0\) must have 1 entries, not all 0"),
    ({(0,): 1.0}, (3,), {}, r"move \(0,\) must have 1 entries, not all 0"),
    ({(1,): np.ones(4)}, (3,), {}, r"the rates of move \(1,\) have shape \(4,\)"),
    ({(1,): 1.0}, (3,), dict(sweeps=0), "sweeps = 0 must be at least 1"),
    ({(1,): 1.0}, (3,), dict(start=np.ones(2)), r"start has shape \(2,\), but the lattice \(3,\)"),
])
def test_bad_input(moves, shape, options, message):
    with pytest.raises(ValueError, match=message):
        stationary_iterative(moves, shape, **options)


@pytest.mark.slow
def test_a_million_states():
    moves = {(1, 0): 0.6, (-1, 0): 1.0, (0, 1): 0.9, (0, -1): 1.0}
    answer = stationary_iterative(moves, (1000, 1000))
    assert int(answer.status) == Status.OK
    assert np.abs(answer.value - np.outer(geometric(0.6, 1000), geometric(0.9, 1000))).sum() < 1e-8
