"""Every mean and probability of the stalling queue, in closed form (the paper's Table 1, and what an operator asks
for).

All are quotients of the weights of weights.py. Where a result is nearly its upper bound (all fast servers busy, a
full line), it is formed from what is missing, so that values near 0 and gradients near the bound both keep their
digits.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.closed_form import number_from, point_mean_number
from hetjax.models.stalling.distribution import empty_stuck_slow
from hetjax.models.stalling.params import Params, point_status
from hetjax.models.stalling.recursion import log_rise
from hetjax.models.stalling.weights import Weights, weigh
from hetjax.numerics.counting import Count
from hetjax.numerics.erlang import log_tail
from hetjax.numerics.geometric import descending_sum, endless
from hetjax.numerics.logarithm import log
from hetjax.numerics.shares import share
from hetjax.result import Status


class Metrics(NamedTuple):
    """The characteristics of one point, or arrays of them; also by name, ``metrics["p_loss"]``.

    Means (customers): ``mean_number`` in system, ``mean_fast`` and ``mean_slow`` in service, ``mean_stalled`` in the
    buffer,
    ``mean_waiting`` in the line, ``mean_stuck`` in service at slow servers while no fast server is busy (counted
    there only). Probabilities (fractions of time): ``p_full``: exactly the buffer full, all servers busy and the line
    empty; ``p_empty``;
    ``p_slow_only``: all slow servers and no fast one busy; ``p_stuck``: some slow and no fast one; ``p_slow``,
    ``p_fast``: at least one slow / fast server busy; ``p_stalling``: someone stalled or waiting; ``p_wait``: someone
    in the line;
    ``p_loss``: an arrival is lost.
    ``throughput``: departures per unit time; ``utilization_fast``, ``utilization_slow``: busy fraction of a server;
    ``mean_response_time``, of accepted customers, and of those served fast / slow, in the time unit of mu1.
    """

    mean_number: jax.Array
    mean_fast: jax.Array
    mean_slow: jax.Array
    mean_stalled: jax.Array
    mean_waiting: jax.Array
    mean_stuck: jax.Array
    p_full: jax.Array
    p_empty: jax.Array
    p_slow_only: jax.Array
    p_stuck: jax.Array
    p_slow: jax.Array
    p_fast: jax.Array
    p_stalling: jax.Array
    p_wait: jax.Array
    p_loss: jax.Array
    throughput: jax.Array
    utilization_fast: jax.Array
    utilization_slow: jax.Array
    mean_response_time: jax.Array
    mean_response_time_fast: jax.Array
    mean_response_time_slow: jax.Array

    def __getitem__(self, key: Any) -> Any:
        """By position, as any tuple, or by name."""
        return getattr(self, key) if isinstance(key, str) else tuple.__getitem__(self, key)


FROM_STATE_LAW = ("p_empty", "p_stuck", "p_slow")


def metrics(params: Params) -> Metrics:
    """All :class:`Metrics` of ``params``, each of the shape of its leaves.

    O(m n) work but for p_empty, p_stuck and p_slow: O((m + log K) n^3), and NaN where K is not a whole number. The
    slow response time is NaN at n = 0. Everything is NaN where :func:`status` is not OK.

    >>> from hetjax.models.stalling import Params, metrics
    >>> found = metrics(Params(q=1.5, r=2.0, K=0, M=25, m=1, n=1))
    >>> round(float(found.mean_waiting), 4), round(float(found["p_loss"]), 4)
    (11.8182, 0.0364)
    """
    def one(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, mu1: jax.Array) -> Metrics:
        found = point_metrics(q, r, K, M, mu1, Count(params.m), Count(params.n), Metrics._fields)
        code = point_status(q, r, K, M, params.m, params.n, mu1)
        return Metrics(**{k: jnp.where(code == int(Status.OK), v, jnp.nan) for k, v in found.items()})

    leaves = jnp.broadcast_arrays(params.q, params.r, params.K, params.M, params.mu1)
    if leaves[0].ndim == 0:
        return one(*leaves)
    flat = jax.vmap(one)(*(leaf.reshape(-1) for leaf in leaves))
    return jax.tree.map(lambda v: v.reshape(leaves[0].shape), flat)


def point_metrics(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, mu1: jax.Array, m: Count, n: Count,
                  names: Iterable[str]) -> dict[str, jax.Array]:
    """The metrics ``names`` at one point, unchecked; nothing else is computed that costs more than O(m n)."""
    names = tuple(names)
    shared = len(names) > 2
    w = weigh(q, r, K, M, m, n, shared)
    w = w.hold() if shared else w
    found: dict[str, jax.Array] = {}
    if any(name in FROM_STATE_LAW for name in names):
        found |= empty_stuck_slow(q, r, K, M, m, n)._asdict()

    def mean_number() -> jax.Array:
        return point_mean_number(q, r, K, M, m, n) if not n.static or n.value == 0 else number_from(w)

    def throughput() -> jax.Array:
        return mu1 * (mean_fast(w) + mean_slow(w, n) / r)

    def response_time_fast() -> jax.Array:
        to_fast = w.m * r / (w.m * r + w.n)  # the share of the waiting line that ends in fast servers
        fast = mean_fast(w)
        return (fast + mean_stalled(w) + to_fast * mean_waiting(w)) / (fast * mu1)

    def response_time_slow() -> jax.Array:
        return n.select(0, lambda: jnp.full_like(q, jnp.nan), lambda: (1 + _wait_before_slow(w, r)) * (r / mu1))

    how: dict[str, Callable[[], jax.Array]] = {
        "mean_number": mean_number,
        "mean_fast": lambda: mean_fast(w),
        "mean_slow": lambda: mean_slow(w, n),
        "mean_stalled": lambda: mean_stalled(w),
        "mean_waiting": lambda: mean_waiting(w),
        "mean_stuck": lambda: mean_stuck(w, q, r, m, n),
        "p_full": lambda: p_full(w),
        "p_slow_only": lambda: p_slow_only(w, q, r, m, n),
        "p_fast": lambda: share(w.below * w.poisson.busy + w.levels + w.line_mass, w.below * w.poisson.empty),
        "p_stalling": lambda: p_stalling(w),
        "p_wait": lambda: share(w.line_mass, w.below + w.levels),
        "p_loss": lambda: p_loss(w),
        "throughput": throughput,
        "utilization_fast": lambda: mean_fast(w) / w.m,
        "utilization_slow": lambda: mean_slow(w, n) / jnp.maximum(w.n, 1),
        "mean_response_time": lambda: mean_number() / throughput(),
        "mean_response_time_fast": response_time_fast,
        "mean_response_time_slow": response_time_slow,
    }
    return {name: found[name] if name in found else how[name]() for name in names}


def _at_least_one(w: Weights, n: Count) -> Any:
    """n, for what is not used at n = 0: a traced n must not give 0/0 there, whose derivatives would spread."""
    return w.n if n.static else jnp.maximum(w.n, 1)


def mean_fast(w: Weights) -> jax.Array:
    """Mean number of busy fast servers."""
    busy = w.poisson.mean / w.m
    return w.m * share(w.below * busy + w.levels + w.line_mass, w.below * (1 - busy))


def mean_slow(w: Weights, n: Count) -> jax.Array:
    """Mean number of busy slow servers, P [q m r (h_0 - 1) + n S_1]."""
    in_top = w.top * w.full.slow
    some = _at_least_one(w, n)
    return n.select(0, lambda: jnp.zeros_like(in_top),
                    lambda: w.n * share(in_top + some * w.line_mass, some * (w.below + w.levels) - in_top))


def mean_stalled(w: Weights) -> jax.Array:
    """Mean number in the stalling buffer, sum_k k R_{m+k} + K P S_1."""
    rising = w.K - (w.K * w.below + w.level * w.buffer.sums.ascending) / w.total
    return jnp.where(w.buffer.rising, rising, (w.level * w.buffer.sums.ascending + w.K * w.line_mass) / w.total)


def mean_waiting(w: Weights) -> jax.Array:
    """Mean number in the waiting line, P S_2."""
    saturated = w.M - (w.M * (w.below + w.levels) + w.line * w.waiting.sums.lagging) / w.total
    return jnp.where(w.saturated, saturated, w.line * _weighted_line(w) / w.total)


def _weighted_line(w: Weights) -> jax.Array:
    """sum_{s=1}^M s rho^s, over rho^M where rho > 1."""
    falling = w.waiting
    turned = descending_sum(falling.log, falling.ratio, falling.terms, falling.decay)
    return jnp.where(falling.rising, turned, falling.sums.ascending)


def _wait_before_slow(w: Weights, r: jax.Array) -> jax.Array:
    """(1 - phi) N_waiting/N_slow, a quotient that exists also where both vanish (an endless buffer)."""
    lead = w.full.log_h0 + jnp.where(w.waiting.rising, w.waiting.log * w.M, 0)
    scale = jnp.exp(-jnp.abs(lead))
    line = jnp.where(lead < 0, 1, scale)
    serving = w.full.slow * jnp.where(lead < 0, scale, 1) + line * w.n * w.line_sum
    return w.n / (w.m * r + w.n) * line * _weighted_line(w) / serving


def p_full(w: Weights) -> jax.Array:
    """P_{m,n,K}: all servers busy, the buffer full, the line empty."""
    return w.line * jnp.where(w.waiting.rising, w.waiting.decay, 1) / w.total


def p_loss(w: Weights) -> jax.Array:
    """P rho^M: the line is full; 0 if it is endless."""
    full = w.line * jnp.where(w.waiting.rising, 1, w.waiting.decay) / w.total
    return jnp.where(w.M >= endless(w.M.dtype), 0, full)


def p_stalling(w: Weights) -> jax.Array:
    """R_m sum_{s=1}^K q^s + P S_1 (at K = 0 this is p_wait)."""
    rising, plain = w.buffer.rising, w.buffer.sums.plain
    stalled = w.level * jnp.where(rising, plain, w.buffer.ratio * plain)
    return share(stalled + w.line_mass, w.below + w.level * jnp.where(rising, w.buffer.decay, 1))


def p_slow_only(w: Weights, q: jax.Array, r: jax.Array, m: Count, n: Count) -> jax.Array:
    """P_{0,n,0} = P/A_{L,n} = R_0 (A_{L,0}/A_{L,n})/h_0."""
    empty = w.below / w.total * w.poisson.empty
    return n.select(0, lambda: empty, lambda: empty * jnp.exp(
        -log_rise(q, r, w.K, m, _at_least_one(w, n))[0] - w.full.log_h0))


def mean_stuck(w: Weights, q: jax.Array, r: jax.Array, m: Count, n: Count) -> jax.Array:
    """h_1 P/A_{L,1}: mean number of busy slow servers, counted only while no fast server is busy."""
    empty = w.below / w.total * w.poisson.empty

    def some() -> jax.Array:
        rise, x1 = log_rise(q, r, w.K, m, 1.0)
        return empty * (w.full.slow / x1) * jnp.exp(-rise)

    return n.select(0, lambda: jnp.zeros_like(empty), some)


def log_p_full(params: Params) -> jax.Array:
    """ln P_{m,n,K}, also where :func:`metrics`' p_full is below the range of its dtype; O(m n).

    NaN where :func:`status` is not OK; -inf for an endless buffer.

    >>> from hetjax.models.stalling import Params, log_p_full
    >>> round(float(log_p_full(Params(q=0.001, r=0.001, K=10.0, M=0.0, m=1, n=512))))
    -9836
    """
    p = params
    m, n = Count(p.m), Count(p.n)
    w = weigh(p.q, p.r, p.K, p.M, m, n)
    line = log_tail(p.q * w.m, m) - jnp.where(w.saturated, 0, w.lead)
    value = line + jnp.where(w.waiting.rising, w.waiting.log * w.M, 0) - log(w.total)
    value = jnp.where(jnp.isposinf(p.K), -jnp.inf, value)
    return jnp.where(point_status(p.q, p.r, p.K, p.M, p.m, p.n, p.mu1) == int(Status.OK), value, jnp.nan)
