"""Thresholds by phase of the arrival process: the best, by exact evaluation of neighbours, and a formula."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc import elimination
from hetjax.models.threshold_queue.constant import best_constant_threshold
from hetjax.models.threshold_queue.law import mean_number
from hetjax.models.threshold_queue.params import Params, status
from hetjax.models.threshold_queue.rule import explicit_threshold
from hetjax.result import Status

Array = jax.Array
_HORIZON = 0.7  # mean slow services


class BestThresholds(NamedTuple):
    """``thresholds`` (p,) by phase, their ``mean_number`` and that of the best constant threshold, ``steps`` taken.

    ``status``: ok, or not_converged where a threshold reached the bound or the steps ran out.
    """

    thresholds: Array
    mean_number: Array
    constant_mean_number: Array
    steps: Array
    status: Array


def best_thresholds(params: Params, max_threshold: int = 16, max_steps: int = 100) -> BestThresholds:
    """Thresholds 1..``max_threshold`` by phase that no single step improves, from the best constant one.

    In each round the 2 p thresholds that differ by one in one phase, and the two that differ by one in all, are
    evaluated exactly and the best is taken if it gains more than rounding. (A search of all pairs found nothing better
    in two phases, see the tests.) Two servers, infinite buffer; one point, vmap for many; not differentiable.

    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_word(1.3592957767505314, [1, 0], 1.0, 0.3592957767505315, thresholds=1)
    >>> best = threshold_queue.best_thresholds(p, max_threshold=4)
    >>> best.thresholds.tolist(), round(float(best.mean_number), 10)
    ([1.0, 2.0], 1.1367779611)
    """
    params = jax.tree.map(lax.stop_gradient, params)
    p, dtype = params.phases, params.D0.dtype
    constant = best_constant_threshold(params, max_threshold)
    moves = jnp.concatenate([jnp.eye(p, dtype=dtype), jnp.ones((1, p), dtype)] if p > 1 else [jnp.eye(p, dtype=dtype)])
    moves = jnp.concatenate([moves, -moves])
    gain = 1 - 64 * float(jnp.finfo(dtype).eps)

    def evaluate(thresholds: Array) -> Array:
        return mean_number(params.with_thresholds(thresholds, max_threshold))

    def search(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        here, value, steps, _ = state
        around = jnp.clip(here[None] + moves, 1, max_threshold)
        values = jax.vmap(evaluate)(around)
        best = jnp.argmin(values)
        better = values[best] < value * gain
        return (jnp.where(better, around[best], here), jnp.where(better, values[best], value),
                steps + better.astype(jnp.int32), better)

    start = jnp.broadcast_to(constant.threshold.astype(dtype), (p,))
    found, value, steps, going = lax.while_loop(
        lambda s: s[3] & (s[2] < max_steps), search,
        (start, constant.mean_number, jnp.zeros((), jnp.int32), jnp.isfinite(constant.mean_number)))
    code = status(params.with_thresholds(1, 1))
    edge = going | jnp.any(found >= max_threshold)
    code = jnp.where(edge & (code == int(Status.OK)), int(Status.NOT_CONVERGED), code).astype(jnp.uint8)
    return BestThresholds(found, value, constant.mean_number, steps, code)


def explicit_thresholds(D0: Array, D1: Array, mu1: Array, mu2: Array) -> Array:
    """A formula for thresholds by phase, (p,): that for Poisson arrivals, :func:`explicit_threshold`, at the arrival
    rate to be expected in each phase over the near future.

    The future that counts is about as long as a slow service: the rate at an exponential time of mean tau = .7/mu2,

        rate = (1 - tau (D0 + D1))^-1 D1 1,

    solved without subtraction. tau = 0 (the rate of the phase itself) is good for long phases only, tau = inf (the mean
    rate) for short ones only; each loses up to a tenth or more where it is wrong. .7 was fitted: over loads .05-.99 and
    speed ratios 1-200 the mean number was at most 1.1 % above the least possible for bursts (4 and 20 times the
    arrivals, any length) and .7 % for renewal arrivals with SCV .25-100; for Poisson arrivals it is at most .13 %.
    Traced arrays of one dtype; O(p^3).

    >>> import jax.numpy as jnp
    >>> from hetjax import threshold_queue
    >>> D0, D1 = threshold_queue.bursty(*(jnp.asarray(x) for x in (0.55, 4.0, 0.2, 30.0)))
    >>> explicit_thresholds(D0, D1, jnp.asarray(1.0), jnp.asarray(0.1)).tolist()
    [6.0, 3.0]
    """
    p = D0.shape[0]
    moves = (D0 * (1 - jnp.eye(p, dtype=D0.dtype)) + D1) * (_HORIZON / mu2)
    rate, _ = elimination.solve(moves, jnp.ones_like(moves[0]), jnp.sum(D1, axis=1, keepdims=True))
    return explicit_threshold(rate[:, 0], jnp.broadcast_to(mu1, (p,)), jnp.broadcast_to(mu2, (p,)))
