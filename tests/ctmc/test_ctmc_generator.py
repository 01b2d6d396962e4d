import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax import ctmc


def test_generator_from_rate_functions():
    def build(arrival, service):
        climb = np.arange(4)
        arrivals = climb, climb + 1, lambda a, s: a
        services = climb + 1, climb, lambda a, s: s * jnp.arange(1.0, 5.0)
        return ctmc.generator([arrivals, services, (2, 2, 7.0)], 5, arrival, service)

    Q = build(2.0, 3.0)
    assert np.array_equal(np.diag(Q, 1), [2.0] * 4)
    assert np.array_equal(np.diag(Q, -1), [3.0, 6.0, 9.0, 12.0])
    np.testing.assert_allclose(np.sum(Q, axis=1), 0, atol=1e-14)
    assert np.array_equal(jax.jit(build)(2.0, 3.0), Q)
    batch = jax.vmap(build, (0, None))(jnp.array([1.0, 2.0]), 3.0)
    assert np.array_equal(batch[1], Q)
    slope = jax.jacfwd(build)(2.0, 3.0)
    assert slope[0, 1] == 1.0 and slope[0, 0] == -1.0


def test_equal_transitions_add_up_and_dtype_is_kept():
    Q = ctmc.generator([(0, 1, jnp.float32(1.0)), (0, 1, jnp.float32(2.0)), (1, 0, jnp.float32(1.0))], 2)
    assert Q.dtype == jnp.float32 and Q[0, 1] == 3.0


@pytest.mark.parametrize("transitions, words", [
    ([(0, 3, 1.0)], "target = 3"), ([(-1, 0, 1.0)], "source = -1"), ([(0.5, 1, 1.0)], "source = 0.5"), ([], "empty")])
def test_bad_transitions_are_named(transitions, words):
    with pytest.raises(ValueError, match=words):
        ctmc.generator(transitions, 3)


def test_explored_queue_with_breakdowns():
    def moves(state):
        n, up = state
        if n < 6:
            yield (n + 1, up), "arrival", 1
        if n and up:
            yield (n - 1, up), "service", 1
        yield (n, not up), "fail" if up else "mend", 1

    space = ctmc.explore((0, True), moves)
    assert len(space.states) == 14 and space.number((0, True)) == 0
    rates = {"arrival": 0.7, "service": 1.0, "fail": 0.1, "mend": 0.5}
    Q = space.generator(rates)
    law = ctmc.stationary(Q).value
    up = sum(law[i] for i, s in enumerate(space.states) if s[1])
    np.testing.assert_allclose(up, 0.5 / 0.6, rtol=1e-14)
    with pytest.raises(ValueError, match="'mend' is missing"):
        space.generator({"arrival": 1.0, "service": 1.0, "fail": 1.0})
    with pytest.raises(ValueError, match="max_states = 10"):
        ctmc.explore((0, True), moves, max_states=10)


def test_levels_and_dense_are_the_same_chain():
    rng = np.random.default_rng(0)
    up, local, down = rng.random((3, 4, 2, 2))
    levels = ctmc.Levels(jnp.asarray(up), jnp.asarray(local), jnp.asarray(down))
    Q = ctmc.levels_to_dense(levels)
    np.testing.assert_allclose(np.sum(Q, axis=1), 0, atol=1e-14)
    assert Q[0, 2] == up[0, 0, 0] and Q[3, 0] == down[1, 1, 0] and Q[4, 5] == local[2, 0, 1]
    again = ctmc.levels_to_dense(ctmc.dense_to_levels(Q, 2))
    assert np.array_equal(Q, again)
    diagonal = ctmc.Levels(jnp.asarray(up[:, 0]), jnp.asarray(local), jnp.asarray(down))
    assert ctmc.levels_to_dense(diagonal)[0, 2] == up[0, 0, 0] and ctmc.levels_to_dense(diagonal)[0, 3] == 0
    with pytest.raises(ValueError, match="jumps over a level"):
        ctmc.dense_to_levels(Q.at[0, 7].set(1.0), 2)
    with pytest.raises(ValueError, match="multiple of phases"):
        ctmc.dense_to_levels(Q, 3)


def test_classes():
    Q = np.zeros((5, 5))
    Q[0, 1] = Q[1, 2] = Q[2, 1] = Q[0, 3] = Q[3, 4] = Q[4, 3] = 1
    assert ctmc.classes(Q) == ctmc.Classes(((1, 2), (3, 4)), (0,))
    with pytest.raises(ValueError, match=r"2 recurrent classes, of states \{1, 2\} and \{3, 4\}"):
        ctmc.check_generator(Q)
    Q[4, 0] = 1
    with pytest.raises(ValueError, match="transient states 0, 3, 4"):
        ctmc.check_generator(Q, irreducible=True)
    ctmc.check_generator(Q)


@pytest.mark.parametrize("entry, words", [(-1.0, r"Q\[0, 1\] = -1"), (np.nan, r"Q\[0, 1\] = nan"), (np.inf, "inf")])
def test_bad_rates_are_named(entry, words):
    with pytest.raises(ValueError, match=words):
        ctmc.check_generator([[0.0, entry], [1.0, 0.0]])


def test_bad_levels_are_named():
    one = jnp.ones((3, 1, 1))
    ctmc.check_levels(ctmc.Levels(one, one, one))
    with pytest.raises(ValueError, match=r"down\[2, 0, 0\] = -1"):
        ctmc.check_levels(ctmc.Levels(one, one, one.at[2].set(-1)))
    with pytest.raises(ValueError, match=r"transient states \(0, 0\), \(1, 0\)"):
        ctmc.check_levels(ctmc.Levels(one, one, one.at[2].set(0)), irreducible=True)
    with pytest.raises(ValueError, match="up has shape"):
        ctmc.check_levels(ctmc.Levels(one[:2], one, one))
    with pytest.raises(ValueError, match="local has shape"):
        ctmc.check_levels(ctmc.Levels(one, one[0], one))
    pair = jnp.ones((3, 2))
    unconnected = ctmc.Levels(pair, jnp.zeros((3, 2, 2)), pair)
    with pytest.raises(ValueError, match="2 recurrent classes"):
        ctmc.check_levels(unconnected)
    ctmc.check_levels(unconnected._replace(mask=jnp.array([[True, False]] * 3)))
