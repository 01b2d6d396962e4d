"""The mean number under every constant threshold 1, 2, .., N at once: one pass upwards over the levels.

Two servers, infinite buffer. Level n = customers in the node, s = 1 where the slow server is busy. Below its threshold
no server is started, so the first passages from level n to n + 1 do not depend on it. By the phase they end in, with s
before and after (p x p matrices, M^-1 X solved without subtraction):

    (mu1 - D0 - mu1 G00_{n-1}) G00_n = D1,        (mu1 + mu2 - D0 - mu1 G11_{n-1}) G11_n = D1,
    (mu1 + mu2 - D0 - mu1 G11_{n-1}) G10_n = (mu2 G00_{n-1} + mu1 G10_{n-1}) G00_n,

G00_0 = (-D0)^-1 D1, and without the terms in mu1 for s = 1 at n = 1. Expected time and customer-time until the passage
ride along as two more columns. Threshold T closes the chain at (T + 1, s = 1), which every passage from level T leads
to:

    C = D0 - mu1 - mu2 + D1 G + mu2 G00_T + mu1 (G10_T + G11_T),      y C = 0,

with G the first passage down of the MAP/M/1 queue above, and the mean number is a quotient of two rewards under y.

Time tau and customer-time kappa of that first passage down: with K = mu - D0 - D1 - D1 G (mu = mu1 + mu2) they solve
K tau = 1 and K kappa = 1 + D1 tau. As K (1 - G) = -(D0 + D1) and gamma K = (mu - lambda) g (gamma, g the stationary
laws of D0 + D1 and G),

    K x = h:    x = (1 - G) u + c 1,    c = gamma h/(mu - lambda),    -(D0 + D1) u = h - c (mu - D1 1),

where only mu - lambda is small near saturation. Times upwards grow like (mu1/lambda)^n: they and what each level adds
are scaled by a common power of two, which the quotient does not see. The pass is this project's own derivation; its
second route is :func:`hetjax.threshold_queue.solve`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc import elimination, logarithmic_reduction
from hetjax.ctmc.batching import points_last
from hetjax.ctmc.blocks import block_times
from hetjax.models.threshold_queue.law import harmless
from hetjax.models.threshold_queue.params import Params, status
from hetjax.result import Status

Array = jax.Array
_LARGE = 2.0**32  # times upwards are scaled back beyond it
_Climb = tuple[Array, Array, Array, Array, Array, Array]


class BestThreshold(NamedTuple):
    """``threshold`` (int32), its ``mean_number``, and ``status``: ok, or not_converged where the largest was best."""

    threshold: Array
    mean_number: Array
    status: Array


def mean_numbers(params: Params, count: int = 16) -> Array:
    """The mean number under the constant thresholds 1..``count``, shape (count,); those of ``params`` are not read.

    Two servers and an infinite buffer, one point (vmap for many: points go to the last axis). Relative error
    max(1e-12, 16 eps/(1 - rho)). O(count p^3): for 16 thresholds .0001 / .012 ms a point with 1 / 4 phases. Values
    only: for derivatives take :func:`hetjax.threshold_queue.mean_number`. NaN where the queue is unstable.

    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_rate(1.68, 2.0, 0.4, thresholds=1)
    >>> [round(float(x), 6) for x in threshold_queue.mean_numbers(p, 3)]
    [2.861635, 2.758413, 2.791159]
    """
    if params.slow_servers != 1 or params.capacity is not None:
        raise ValueError(f"mu2 has {params.slow_servers} rates, capacity = {params.capacity}: mean_numbers is for one"
                         " slow server and an infinite buffer; take mean_number for each threshold")
    params = jax.tree.map(lax.stop_gradient, params.with_thresholds(1, 1))
    params, ok = harmless(params, status(params))
    reference = jnp.argmax(params.phase_law)  # a recurrent phase becomes phase 0
    D0, D1 = (jnp.roll(x, -reference, (0, 1)) for x in (params.D0, params.D1))
    return jnp.where(ok, _batched(count)(D0, D1, params.mu1, params.slow_rates[0]), jnp.nan)


def best_constant_threshold(params: Params, count: int = 16) -> BestThreshold:
    """The best threshold among 1..``count`` if it may not depend on the phase.

    Compares mean numbers, so thresholds whose means agree in all digits count as equal (the least is given); for
    Poisson arrivals :func:`hetjax.threshold_queue.optimal_threshold` decides exactly.

    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_word(1.3592957767505314, [1, 0], 1.0, 0.3592957767505315, thresholds=1)
    >>> best = threshold_queue.best_constant_threshold(p)
    >>> int(best.threshold), round(float(best.mean_number), 10)
    (1, 1.1482186381)
    """
    found = mean_numbers(params, count)
    least = jnp.argmin(found)
    code = status(params.with_thresholds(1, 1))
    edge = (least == count - 1) & (code == int(Status.OK))
    return BestThreshold(least.astype(jnp.int32) + 1, found[least],
                         jnp.where(edge, int(Status.NOT_CONVERGED), code).astype(jnp.uint8))


@functools.lru_cache(maxsize=64)
def _batched(count: int) -> Callable[..., Array]:
    def width(D0: Array, *_: Any) -> int:
        return 256 if D0.shape[0] == 1 else 64 if D0.shape[0] <= 4 else 16

    return points_last(functools.partial(_all_thresholds, count=count), width)


def _first_passage_down(D1: Array, quiet: Array, G: Array, mu1: Array, mu2: Array) -> tuple[Array, Array]:
    """tau and kappa, (p, 1, ...)."""
    p = D1.shape[0]
    one = jnp.ones_like(D1[:, :1])
    gamma, _ = elimination.stationary_measure(quiet + D1)
    gamma = gamma / jnp.sum(gamma, axis=0)[None]
    arrive = jnp.sum(D1, axis=1, keepdims=True)
    rate = jnp.sum(gamma[:, None] * arrive, axis=(0, 1))
    spare = (mu1 - rate) + mu2
    all_rate = (mu1 + mu2)[None, None]

    def solve(h: Array) -> Array:
        c = (jnp.sum(gamma[:, None] * h, axis=(0, 1)) / spare)[None, None]
        x = c * one
        if p == 1:
            return x
        rest = h - c * (all_rate - arrive)
        moves = quiet + D1
        u, _ = elimination.solve(moves[1:, 1:], moves[1:, 0], rest[1:])
        u = jnp.concatenate([jnp.zeros_like(u[:1]), u])
        return x + (u - block_times(G, u))

    tau = solve(one)
    return tau, solve(one + block_times(D1, tau))


def _all_thresholds(D0: Array, D1: Array, mu1: Array, mu2: Array, *, count: int) -> Array:
    """(count, ...) from (p, p, ...) and (...): points last."""
    p = D0.shape[0]
    eye = jnp.eye(p, dtype=D0.dtype).reshape(p, p, *[1] * (D0.ndim - 2))
    quiet = D0 * (1 - eye)
    one = jnp.ones_like(D1[:, :1])
    fast, slow = mu1[None, None], mu2[None, None]
    arrive = jnp.sum(D1, axis=1)
    times = block_times
    G, _ = logarithmic_reduction(D1, D0, (fast + slow) * eye)
    tau, kappa = _first_passage_down(D1, quiet, G, mu1, mu2)
    closing, time_above, more = quiet + times(D1, G), one + times(D1, tau), times(D1, kappa)

    def passages(rates: Array, exits: Array, right: list[Array]) -> tuple[Array, Array]:
        """The passage matrix and the two columns (time, customer-time)."""
        x, _ = elimination.solve(rates, exits, jnp.concatenate(right, axis=1))
        return x[:, :-2], x[:, -2:]

    def climb(state: _Climb, n: Array) -> tuple[_Climb, Array]:
        G00, c0, G11, G10, c1, unit = state
        here = unit * jnp.concatenate([one, n * one], axis=1)
        new00, new0 = passages(quiet + fast * G00, arrive, [D1, here + fast * c0])
        swap = slow * G00 + fast * G10
        x, new1 = passages(quiet + fast * G11, arrive + mu2[None] + mu1[None] * jnp.sum(G10, axis=1),
                           [D1, times(swap, new00), here + slow * c0 + fast * c1 + times(swap, new0)])
        new11, new10 = x[:, :p], x[:, p:]
        y, _ = elimination.stationary_measure(closing + slow * new00 + fast * (new10 + new11))
        columns = slow * new0 + fast * new1
        above = unit * jnp.concatenate([time_above, (n + 1) * time_above + more], axis=1)
        time, number = jnp.sum(y[:, None] * (above + columns), axis=0)
        large = jnp.max(columns, axis=(0, 1), keepdims=True) > _LARGE
        scale = jnp.where(large, jnp.full_like(unit, 1 / _LARGE), jnp.ones_like(unit))
        return (new00, new0 * scale, new11, new10, new1 * scale, unit * scale), number / time

    none = jnp.zeros_like(D1)
    empty = jnp.concatenate([one, 0 * one], axis=1)
    G00, c0 = passages(quiet, arrive, [D1, empty])
    start = (G00, c0, none, none, 0 * empty, jnp.ones_like(fast))
    return lax.scan(climb, start, jnp.arange(1, count + 1).astype(D0.dtype))[1]
