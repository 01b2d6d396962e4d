"""The stationary law of the threshold queue and the means that follow from it.

The levels up to the top one are eliminated one by one (:func:`hetjax.ctmc.stationary_levels`) with the infinite part
folded into the top level by its first passage G; above it pi_{n+1} = pi_n R. Sums over the infinite part come from the
balance equations (:func:`hetjax.ctmc.matrix_geometric.tail_sums`): no truncation, and near saturation only the spare
service rate is small. Second routes: truncated chains, simulation, the closed form for Poisson arrivals.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.ctmc import logarithmic_reduction, stationary_levels
from hetjax.ctmc.matrix_geometric import tail_sums
from hetjax.models.threshold_queue.chain import busy_sets, generator, top_level
from hetjax.models.threshold_queue.params import Params, status
from hetjax.result import Solution, Status

Array = jax.Array


class Law(NamedTuple):
    """The stationary law. ``levels`` (top + 1, 2^(c-1), p): P(n customers, busy set B, phase f) up to the top level.
    Beyond it all servers are busy: ``beyond`` (p,) is the law of level top + 1, multiplied by ``R`` (p, p) a level;
    ``tail`` (p,) and ``tail_moment`` (p,) are sums of pi_n and (n - top) pi_n over n > top. All 0 for finite buffers.
    """

    levels: Array
    beyond: Array
    R: Array
    tail: Array
    tail_moment: Array


class Metrics(NamedTuple):
    """Stationary characteristics; times in the unit of 1/mu1, numbers in customers.

    ``p_slow_used``: share of the served customers whom a slow server serves. ``utilization_slow``: busy fraction of
    the slow server, (c - 1,) where mu2 is a list. ``mean_waiting_time``, ``mean_response_time``: of accepted customers.
    """

    mean_number: Array
    mean_waiting: Array
    mean_response_time: Array
    mean_waiting_time: Array
    utilization_fast: Array
    utilization_slow: Array
    p_slow_used: Array
    p_empty: Array
    p_loss: Array
    throughput: Array


def solve(params: Params) -> Solution:
    """The stationary :class:`Law` of one queue (vmap for many), exactly for infinite buffers too.

    ``Solution.status``: that of :func:`hetjax.threshold_queue.status`, else the solver's; values are NaN unless it is
    ok. Relative error about 1e-12 of every entry and 16 eps/(1 - rho) of sums; differentiable in all leaves, at whole
    thresholds with the derivatives to the right. O(max_threshold (2^(c-1) p)^3).

    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_word(1.98, [0, 1, 1], 2.0, 0.2, thresholds=[2, 5, 3])
    >>> law = threshold_queue.solve(p).value
    >>> round(float(law.levels.sum() + law.tail.sum()), 12)
    1.0
    """
    code = status(params)
    params, ok = harmless(params, code)
    p, top = params.phases, top_level(params)
    sets = 2**params.slow_servers
    if params.capacity is None:
        quiet = params.D0
        down = params.total_rate[None, None] * jnp.eye(p, dtype=quiet.dtype)
        G, R = logarithmic_reduction(params.D1, quiet, down)
        solved = stationary_levels(generator(params, top, params.D1 @ G))
        law = solved.value.reshape(top + 1, sets, p)
        last = law[top, -1]
        first = last @ R
        tail, moment, _, _ = tail_sums(last @ params.D1, first, params.D1, quiet, down)
        norm = 1 + jnp.sum(tail)
        value = Law(law / norm, first / norm, R, tail / norm, moment / norm)
    else:
        solved = stationary_levels(generator(params))
        none = jnp.zeros((p,), params.D0.dtype)
        value = Law(solved.value.reshape(top + 1, sets, p), none, none[:, None] * none[None], none, none)
    code = jnp.where(ok, solved.status, code)
    keep = code == int(Status.OK)
    value = jax.tree.map(lambda x: jnp.where(keep, x, jnp.nan), value)
    return Solution(value, code, solved.residual, solved.iterations)


def metrics(params: Params) -> Metrics:
    """All :class:`Metrics` of one queue (vmap for many); NaN where :func:`hetjax.threshold_queue.status` is not OK.

    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_word(1.98, [0, 1, 1], 2.0, 0.2, thresholds=[2, 5, 3])
    >>> round(float(threshold_queue.metrics(p).mean_number), 9)
    1.710022565
    """
    return metrics_of_law(params, solve(params).value)


def mean_number(params: Params) -> Array:
    """Mean number of customers in the node, in service included; see :func:`solve`.

    >>> import jax
    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_rate(1.2, 1.0, 0.5, thresholds=2.5)
    >>> round(float(jax.jit(jax.grad(threshold_queue.mean_number))(p).thresholds[0, 0]), 5)  # to the threshold
    0.37653
    """
    return metrics(params).mean_number


def metrics_of_law(params: Params, law: Law) -> Metrics:
    """:class:`Metrics` from a :class:`Law`: sums and quotients of non-negative numbers."""
    top, slow = law.levels.shape[0] - 1, params.slow_servers
    busy = busy_sets(slow)
    level = jnp.arange(top + 1).astype(law.levels.dtype)
    by_state = jnp.sum(law.levels, axis=2)
    tail, moment = jnp.sum(law.tail), jnp.sum(law.tail_moment)
    ahead = jnp.expand_dims(level, 1) - jnp.asarray(busy.sum(1), level.dtype)[None]  # in the fast server and the queue
    number = level @ jnp.sum(by_state, axis=1) + top * tail + moment
    waiting = jnp.sum(by_state * jnp.maximum(ahead - 1, 0)) + (top - slow - 1) * tail + moment
    fast = jnp.sum(jnp.where(ahead > 0, by_state, jnp.zeros_like(by_state))) + tail
    used = jnp.sum(by_state, axis=0) @ jnp.asarray(busy, level.dtype) + jnp.expand_dims(tail, 0)
    by_slow = jnp.sum(used * params.slow_rates)
    served = fast * params.mu1 + by_slow
    lost = jnp.zeros_like(served)
    if params.capacity is not None:
        lost = jnp.sum(law.levels[top], axis=0) @ jnp.sum(params.D1, axis=1)
    return Metrics(mean_number=number, mean_waiting=waiting, mean_response_time=number / served,
                   mean_waiting_time=waiting / served, utilization_fast=fast,
                   utilization_slow=used.reshape(params.mu2.shape), p_slow_used=by_slow / served,
                   p_empty=by_state[0, 0], p_loss=lost / (served + lost), throughput=served)


def queue_length_law(law: Law, levels: int) -> Array:
    """P(0, .., ``levels`` - 1 customers in the node), (levels,), from a :class:`Law`.

    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_rate(1.0, 2.0, 1.0, thresholds=3)
    >>> [round(float(x), 4) for x in threshold_queue.queue_length_law(threshold_queue.solve(p).value, 3)]
    [0.5204, 0.2641, 0.1282]
    """
    near = jnp.sum(law.levels, axis=(1, 2))
    more = max(levels - near.size, 0)

    def climb(v: Array, _: None) -> tuple[Array, Array]:
        return v @ law.R, jnp.sum(v)

    _, far = jax.lax.scan(climb, law.beyond, None, length=more)
    return jnp.concatenate([near, far])[:levels]


def harmless(params: Params, code: Array) -> tuple[Params, Array]:
    """Illegal points become one legal one, so that no NaN meets a gradient; and which were legal."""
    ok = code == int(Status.OK)
    p, slow = params.phases, params.slow_servers
    eye = jnp.eye(p, dtype=params.D0.dtype)
    ring = jnp.roll(eye, 1, axis=1)
    one = jnp.ones((), eye.dtype)
    tame: dict[str, Any] = {"D0": ring / 2 - eye, "D1": eye / 2, "mu1": one,
                            "mu2": jnp.broadcast_to(one / 2, params.mu2.shape),
                            "thresholds": jnp.ones((slow, p), eye.dtype)}
    leaves = [jnp.where(ok, getattr(params, name), tame[name]) for name in tame]
    return Params.tree_unflatten((params.capacity, params.max_threshold), tuple(leaves)), ok
