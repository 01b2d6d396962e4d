"""The threshold queue as a Markov chain with levels.

Level n = customers in the node, inner state (B, f): B the set of busy slow servers (a bit mask), f the phase of the
arrival process. x = n - |B| customers are in the fast server and the queue, max(x - 1, 0) of them wait. Starting a
server changes B only, so events move the level by at most one:

    arrival       (n, B, f) -> (n + 1, B, f')      D1[f, f']
    phase         (n, B, f) -> (n, B, f')          D0[f, f']
    fast server   (n, B, f) -> (n - 1, B, f)       mu1, x >= 1
    slow server j (n, B, f) -> (n - 1, B - j, f)   mu_j, j in B

and after each of them the rule J is applied to the state it leads to: while some server idles, the fastest idle one, j,
starts with probability p_j = clip(1 + waiting - q_j, 0, 1) (that is 1 from q_j on; in between for a real q_j), and so
on with one customer less waiting and j busy. With whole thresholds J moves to one state.

States that J leaves have no inflow: they are transient and get probability 0. From level top = max q + c - 1 on all
servers are busy after any event; with an infinite buffer the levels above it are a MAP/M/1 queue with p phases and
service rate mu1 + .. + mu_c, whose first passage G back to level top closes the chain there.
"""

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import Levels
from hetjax.models.threshold_queue.params import Params

Array = jax.Array


def top_level(params: Params) -> int:
    """The capacity, or for an infinite buffer the level from which on all servers are busy."""
    return params.max_threshold + params.slow_servers if params.capacity is None else params.capacity


def busy_sets(slow: int) -> np.ndarray:
    """(2^slow, slow) booleans: which slow servers are busy in inner state B."""
    return (np.arange(2**slow)[:, None] >> np.arange(slow)) & 1 == 1


def start_probability(waiting: Array, threshold: Array) -> Array:
    """clip(1 + waiting - threshold, 0, 1) for whole ``waiting``; the derivative at a whole threshold is the right one.

    >>> import jax.numpy as jnp
    >>> start_probability(jnp.arange(4.0), jnp.full(4, 1.25)).tolist()
    [0.0, 0.75, 1.0, 1.0]
    """
    whole = jax.lax.stop_gradient(jnp.floor(threshold))
    some = jnp.where(waiting == whole, 1 - (threshold - whole), jnp.zeros_like(threshold))
    return jnp.where(waiting > whole, jnp.ones_like(threshold), some)


def starting_rule(params: Params, last: int) -> Array:
    """J, (last + 1, p, 2^(c-1), 2^(c-1)): from B to B' at each level 0..``last`` and phase."""
    busy = busy_sets(params.slow_servers)
    t = params.thresholds
    n = np.arange(last + 1)
    eye = jnp.eye(len(busy), dtype=t.dtype)
    rows: list[Array] = [jnp.zeros(())] * len(busy)
    shape = (last + 1, params.phases, len(busy))
    for B in reversed(range(len(busy))):
        here = jnp.broadcast_to(eye[B], shape)
        if busy[B].all():
            rows[B] = here
            continue
        j = int(np.argmin(busy[B]))
        waiting = jnp.asarray(np.maximum(n - busy[B].sum() - 1, 0)[:, None], t.dtype)
        start = start_probability(waiting, t[j][None])
        rows[B] = (1 - start)[:, :, None] * here + start[:, :, None] * rows[B | 1 << j]
    return jnp.stack(rows, axis=2)


def generator(params: Params, last: int | None = None, closing: Array | None = None) -> Levels:
    """The chain for :mod:`hetjax.ctmc`: levels 0..``last`` with 2^(c-1) p states each, (B, f) at number B p + f.

    Arrivals at level ``last`` are lost (the phase moves on), or move the phase by ``closing`` (p, p), by default D1.
    ``last``: the capacity by default; it must be given for an infinite buffer, and is then a truncation. States with
    more busy servers than customers are masked.

    >>> from hetjax import ctmc, threshold_queue
    >>> p = threshold_queue.Params.from_rate(1.0, 1.0, 0.5, thresholds=2, capacity=4)
    >>> law = ctmc.stationary_levels(threshold_queue.generator(p)).value
    >>> law.shape, [round(float(x), 4) for x in law.sum(1)]
    ((5, 2), [0.2436, 0.2715, 0.2297, 0.1531, 0.1021])
    """
    if last is None:
        if params.capacity is None:
            raise ValueError("last = None: give the last level of a truncation where the buffer is infinite")
        last = params.capacity
    p, dtype = params.phases, params.D0.dtype
    busy = busy_sets(params.slow_servers)
    sets, count = len(busy), busy.sum(1)
    n = np.arange(last + 1)
    J = starting_rule(params, last + 1)
    fast = jnp.asarray(n[:, None] > count[None], dtype) * params.mu1[None, None]
    leave = fast[:, :, None] * jnp.eye(sets, dtype=dtype)[None]  # (n, B, B before the rule)
    for j, rate in enumerate(params.slow_rates):
        moves = np.zeros((sets, sets))
        moves[busy[:, j], np.flatnonzero(busy[:, j]) - (1 << j)] = 1
        leave = leave + (jnp.asarray(moves, dtype) * rate[None, None])[None]
    still = jnp.eye(p, dtype=dtype)
    lower = jnp.concatenate([J[:1], J[:last]])  # J one level down
    quiet = params.D0 * (1 - still)
    up = jnp.einsum("fg,ngBC->nBfCg", params.D1, J[1:])
    local = jnp.einsum("fg,ngBC->nBfCg", quiet, J[:last + 1])
    lost = jnp.einsum("fg,gBC->BfCg", params.D1 if closing is None else closing, J[last])
    down = jnp.einsum("nBM,nfMC,fg->nBfCg", leave, lower, still)
    size = (last + 1, sets * p, sets * p)
    local = local.at[last].add(lost)
    exists = np.repeat(n[:, None] >= count[None], p, axis=1)
    return Levels(up.reshape(size), local.reshape(size), down.reshape(size), jnp.asarray(exists))
