"""The rule with memory: its equilibrium against the drift, and both against an event loop over many queues."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.models.supermarket import Params, drift
from hetjax.models.supermarket.memory import memory_tails, shortest_with_memory


def event_loop(load, d, queues, events, seed):
    """Time averages of the shares of queues with at least 1..5 customers, and their mean length, second half."""
    source = np.random.default_rng(seed)
    uniform, picks = source.random(events), source.integers(0, queues, (events, d))
    length, busy, place = [0] * queues, [], [-1] * queues  # place[i]: where queue i stands among the busy ones
    memory, at_least = 0, [queues] + [0] * 60
    sums, clock = np.zeros(60), 0.0
    for k in range(events):
        rate = load * queues + len(busy)
        if k >= events // 2:
            sums += np.array(at_least[1:]) / rate
            clock += 1 / rate
        if uniform[k] * rate < load * queues:
            seen = [memory, *picks[k].tolist()]
            chosen = min(seen, key=length.__getitem__)
            length[chosen] += 1
            at_least[length[chosen]] += 1
            if length[chosen] == 1:
                place[chosen] = len(busy)
                busy.append(chosen)
            memory = min(seen, key=length.__getitem__)
        else:
            done = busy[int((uniform[k] * rate - load * queues) * len(busy) / (rate - load * queues))]
            at_least[length[done]] -= 1
            length[done] -= 1
            if length[done] == 0:
                last = busy.pop()
                if last != done:
                    busy[place[done]], place[last] = last, place[done]
    return np.append(sums[:5], sums.sum()) / (clock * queues)


@pytest.mark.parametrize("load, d", [(0.7, 1), (0.9, 1), (0.8, 2)])
def test_many_queues(load, d):
    u = np.asarray(memory_tails(load, d))
    found = np.array([event_loop(load, d, 1000, 120_000, seed) for seed in range(4)])
    error = found.std(axis=0, ddof=1) / 2
    exact = np.append(u[1:6], u[1:].sum())
    # three standard errors of four runs, and 5/N for finitely many queues
    assert np.all(np.abs(found.mean(axis=0) - exact) < 4 * error + 0.005), (found.mean(axis=0), exact, error)


def test_equilibrium_of_the_drift_and_its_derivative():
    for d in (1, 2, 5):
        u = memory_tails(0.95, d)
        change = drift(Params(0.95, d, [1.0], [[-1.0]]), u[1:, None], shortest_with_memory)
        assert float(jnp.max(jnp.abs(change))) < 1e-15
        assert np.all(np.diff(u) <= 0) and u[-1] == 0
    h = 1e-5

    @jax.jit
    def mean(load):
        return jnp.sum(memory_tails(load, 1)[1:])

    np.testing.assert_allclose(jax.jit(jax.grad(mean))(0.9), (mean(0.9 + h) - mean(0.9 - h)) / (2 * h), rtol=1e-7)
    single = memory_tails(np.float32(0.9), 2)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, memory_tails(0.9, 2), rtol=1e-5, atol=1e-30)


def test_depth_of_the_tails():
    """d = 1: -log u_k grows by (3 + sqrt 5)/2 = 2.618 a level in the end, more than the 2 of two choices without
    memory; but the mean is larger than theirs, as short queues are found less often."""
    u = memory_tails(0.95, 1, levels=11)
    logs = -np.log(np.asarray(u[8:12]))
    np.testing.assert_allclose(logs[1:] / logs[:-1], (3 + 5**0.5) / 2, rtol=0.02)
    two_choices = sum(0.95 ** (2**k - 1) for k in range(1, 12))
    assert two_choices < float(jnp.sum(u[1:]))
