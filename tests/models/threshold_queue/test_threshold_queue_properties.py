"""Properties on drawn queues: one compilation for all, batches of eight queues under four pairs of thresholds."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax import stalling, threshold_queue

LARGEST, QUEUES = 8, 8


@jax.jit
@jax.vmap
def characteristics(rate, mu2, ratio, share, length, thresholds):
    D0, D1 = threshold_queue.bursty(rate, ratio, share, length)
    return threshold_queue.metrics(threshold_queue.Params(D0, D1, jnp.ones(()), mu2, thresholds,
                                                          max_threshold=LARGEST))


def under(queues, *pairs):
    """The characteristics of all queues under each of four pairs (QUEUES, 2) of thresholds."""
    assert len(pairs) == 4
    found = characteristics(*(jnp.asarray(np.tile(x, 4)) for x in queues), jnp.asarray(np.concatenate(pairs)))
    return [jax.tree.map(lambda x, k=k: np.asarray(x)[QUEUES * k:QUEUES * (k + 1)], found) for k in range(4)]


def columns(*ranges):
    return st.lists(st.tuples(*(st.floats(*r) for r in ranges)), min_size=QUEUES, max_size=QUEUES).map(
        lambda rows: np.array(rows).T)


loads = ((0.05, 0.95), (1.0, 30.0))  # load, mu1/mu2
bursts = ((0.1, 10.0), (0.05, 0.95), (0.1, 100.0))
pairs = columns((1.0, 7.0), (1.0, 7.0)).map(lambda x: x.T)


def rates(load, ratio):
    return load * (1 + 1 / ratio), 1 / ratio


@settings(max_examples=6)
@given(columns(*loads, *bursts), pairs)
def test_balances_and_monotonicity(drawn, real):
    """Little's law, all work is done, and a slow server that starts later works less."""
    load, ratio, *shape = drawn
    rate, mu2 = rates(load, ratio)
    start, step = np.floor(real), np.array([[1.0, 0.0]])
    found = under((rate, mu2, *shape), start, start + step, start + step[:, ::-1], real)
    tolerance = 1e-13 / (1 - load)
    for m in found:
        assert (np.abs(m.mean_response_time * rate / m.mean_number - 1) < tolerance).all()
        assert (np.abs(m.mean_waiting_time * rate - m.mean_waiting) <= tolerance * m.mean_number).all()
        assert (np.abs((m.utilization_fast + mu2 * m.utilization_slow) / rate - 1) < tolerance).all()
        parts = m.mean_waiting + m.utilization_fast + m.utilization_slow
        assert (np.abs(parts / m.mean_number - 1) < tolerance).all()
    for later in found[1:]:
        assert (later.utilization_slow <= found[0].utilization_slow * (1 + tolerance)).all()
        assert (later.utilization_fast >= found[0].utilization_fast * (1 - tolerance)).all()


@settings(max_examples=6)
@given(columns(*loads, *bursts[1:]), st.lists(st.integers(1, 7), min_size=QUEUES, max_size=QUEUES),
       st.floats(0.05, 0.95))
def test_phases_that_do_not_matter(drawn, whole, fraction):
    """Equal rates in both phases: Poisson arrivals, so the closed forms of threshold 1 and of the stalling queue hold,
    and a threshold between two whole ones is between them in the mean number."""
    load, ratio, *shape = drawn
    rate, mu2 = rates(load, ratio)
    T = np.array(whole, float)[:, None] * np.ones((1, 2))
    queues = (rate, mu2, np.ones(QUEUES), *shape)
    one, here, above, between = under(queues, np.ones((QUEUES, 2)), T, T + 1, T + fraction)
    tolerance = 2e-13 / (1 - load)
    A = mu2 * (1 + 2 * load) / (rate * (rate + mu2)) + 1 / (1 - load)
    assert (np.abs(one.mean_number * A * (1 - load)**2 - 1) < tolerance).all()
    q = stalling.evaluate(q=rate, r=ratio, K=T[:, 0] - 1, M=np.inf, m=1, n=1, metrics=["mean_number", "mean_slow"])
    assert (np.abs(here.mean_number / np.asarray(q.mean_number) - 1) < tolerance).all()
    assert (np.abs(here.utilization_slow / np.asarray(q.mean_slow) - 1) < tolerance).all()
    low, high = np.minimum(here.mean_number, above.mean_number), np.maximum(here.mean_number, above.mean_number)
    assert (between.mean_number >= low * (1 - tolerance)).all()
    assert (between.mean_number <= high * (1 + tolerance)).all()
