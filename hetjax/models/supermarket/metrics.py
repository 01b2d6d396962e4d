"""What a sweep asks of one point: a few numbers, without keeping the levels they come from."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.supermarket.params import Params
from hetjax.models.supermarket.recursion import Level, first_level, next_level, system

Array = jax.Array
MOST_LEVELS = 100_000
TAILS = 10  # u_1..u_10 are reported


class PointMetrics(NamedTuple):
    """``mean_queue_length``, ``waiting`` = sum_{k>=2} u_k, ``tails`` u_1..u_10, ``levels`` followed, ``ok``:
    converged."""

    mean_queue_length: Array
    waiting: Array
    tails: Array
    levels: Array
    ok: Array


class _State(NamedTuple):
    level: Level
    k: Array
    waiting: Array
    tails: Array
    beyond: Array  # a bound of the sum of u_{k+1}, u_{k+2}, ...
    correction: Array


def point_metrics(params: Params) -> PointMetrics:
    """The recursion until what is left of the queue is below rounding: as many levels as the point needs, up to 1e5.

    For legal parameters (see :func:`hetjax.models.supermarket.status`). Under ``vmap`` a batch runs as long as its
    slowest point. Forward-mode derivatives only; for reverse mode see
    :func:`hetjax.models.supermarket.fixed_point`.

    >>> from hetjax.models.supermarket import Params
    >>> round(float(point_metrics(Params(0.9, 2, [1.0], [[-1.0]])).mean_queue_length), 10)
    2.3526516396
    """
    s = system(params)
    first = first_level(params)
    eps = float(jnp.finfo(first.L.dtype).eps)
    number = jnp.arange(1, TAILS + 1, dtype=jnp.int32)
    u_1 = jnp.exp(-first.L)
    single = params.d == 1

    def going(state: _State) -> Array:
        more = ~single & (state.beyond > eps / 8 * (u_1 + state.waiting)) & (state.k < MOST_LEVELS)
        return more | (state.k < TAILS)

    def step(state: _State) -> _State:
        level, found = next_level(s, state.level)
        k = state.k + 1
        u = jnp.exp(-level.L)
        beyond = lax.stop_gradient(u * jnp.exp(-s.d * found.t) / -jnp.expm1(-s.d * found.t))
        return _State(level, k, state.waiting + u, jnp.where(number == k, u, state.tails), beyond,
                      jnp.maximum(state.correction, found.correction))

    zero = jnp.zeros_like(u_1)
    start = _State(first, jnp.ones((), jnp.int32), zero, jnp.where(number == 1, u_1, 0), jnp.ones_like(u_1), zero)
    last = lax.while_loop(going, step, start)
    pollaczek = params.arrival_rate**2 * _second_moment(params) / (2 * (1 - u_1))
    waiting = jnp.where(single, pollaczek, last.waiting)
    ok = (single | (last.k < MOST_LEVELS)) & (last.correction < eps**0.5)
    return PointMetrics(u_1 + waiting, waiting, last.tails, last.k, ok)


def _second_moment(params: Params) -> Array:
    return params.service.moment(2)


def service_by_scv(scv: Array, mean: Array, phases: int) -> tuple[Array, Array]:
    """(alpha, T) of a law of a given mean and SCV >= 1/phases with ``phases`` >= 2 phases, all of them traced.

    SCV > 1: hyperexponential with balanced means; 1/k <= SCV <= 1/(k-1): mixture of Erlang(k-1) and Erlang(k) of one
    rate. The derivative in the SCV is infinite at SCV = 1.

    >>> import jax.numpy as jnp
    >>> from hetjax.processes import PH
    >>> [round(float(PH(*service_by_scv(jnp.asarray(c), jnp.asarray(2.0), 4)).scv()), 12) for c in (0.25, 0.7, 9.0)]
    [0.25, 0.7, 9.0]
    """
    wide = scv > 1
    low, high = jnp.where(wide, 1, scv), jnp.where(wide, scv, 2)
    k = jnp.clip(jnp.ceil(lax.stop_gradient(1 / low) * (1 - 8 * float(jnp.finfo(scv.dtype).eps))), 2, phases)
    root = jnp.sqrt(jnp.maximum(k * (1 - (k - 1) * jnp.where(wide, 0, low)), 0))
    short = jnp.clip((k * low - root) / (1 + low), 0, 1)
    at = jnp.arange(phases, dtype=jnp.int32).astype(scv.dtype)
    alpha_low = jnp.where(at == phases - k, 1 - short, jnp.where(at == phases - k + 1, short, 0))
    shift = jnp.eye(phases, k=1, dtype=scv.dtype) - jnp.eye(phases, dtype=scv.dtype)
    T_low = (k - short) / mean * shift
    small = 1 / ((high + 1) * (1 + jnp.sqrt((high - 1) / (high + 1))))
    weights = jnp.where(at == 0, 1 - small, jnp.where(at == 1, small, 0))
    T_high = -jnp.diag(jnp.where(at < 2, 2 * weights, 1) / mean)
    return jnp.where(wide, weights, alpha_low), jnp.where(wide, T_high, T_low)
