"""The state law of the stalling queue, and the three probabilities that need it, by non-negative terms alone.

State (i, j, k): i fast servers busy, j slow servers busy, k customers stalled or waiting. Level l = i + k <= L = m + K,
phase j. The level process below the waiting line is M/M/m with K places, whatever the phase, so with R_l its marginal

    P(level l, phase j) = R_l (pi_L G_{L-1} G_{L-2} ... G_l)_j,

where G_l is the law of the phase change over a first passage l -> l + 1 (:mod:`~hetjax.models.stalling.phase_laws`)
and pi_L the phase distribution within level L. (Balance of level l + 1 against l gives P_l = P_{l+1} c_{l+1} G_l / b,
c_l = min(l, m), b = q m, and R_l = R_{l+1} c_{l+1} / b.) Hence, with H = G_{L-1} ... G_0,

    p_empty = R_0 (pi_L H)_0,      p_stuck = R_0 sum_{j>=1} (pi_L H)_j,
    p_slow  = R_L b r sum_{j>=1} pi_{L,j-1} / j + P S_1:

phase j is entered at rate b from (L, j - 1) and left at rate j / r, which gives its probability over all levels.

The paper gets the same from binomial moments by alternating sums (its equation (6)); the recursion for G_l and all of
this are the project's own. They reach the last digits where the paper's form has none left, for any load.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.excursions import passages
from hetjax.models.stalling.paper_objects import buffer_length, waiting_places
from hetjax.models.stalling.params import Params, point_status
from hetjax.models.stalling.phase_laws import (
    distribution_at_full_buffer,
    first_passage_up,
    product,
    starting_law,
    whole_numbers,
)
from hetjax.models.stalling.weights import weigh
from hetjax.numerics.counting import Count
from hetjax.result import Status


class EmptyStuckSlow(NamedTuple):
    """``p_empty`` = P_{0,0,0}; ``p_stuck``: slow servers busy, no fast one; ``p_slow``: some slow server busy."""

    p_empty: jax.Array
    p_stuck: jax.Array
    p_slow: jax.Array


class PhaseShares(NamedTuple):
    """``empty``, ``stuck``: chances of phase 0 and of phases >= 1 within level 0; they sum to 1.

    ``slow``: probability that some slow server is busy, without the waiting line, over the probability of level L.
    """

    empty: jax.Array
    stuck: jax.Array
    slow: jax.Array


def phase_shares(q: jax.Array, r: jax.Array, K: jax.Array, m: Count, n: Count) -> PhaseShares:
    """The part of :func:`empty_stuck_slow` that does not depend on M; scalars, K a finite whole number."""
    if n.bound == 0:
        return PhaseShares(jnp.ones_like(q), jnp.zeros_like(q), jnp.zeros_like(q))
    up, down, slow = q * m.real(q), jnp.ones_like(q) * m.real(q), 1 / r
    to_full = passages(q, r, K, m.value, n.value, max_m=m.bound, max_n=n.bound)
    top = distribution_at_full_buffer(to_full.top, up, down, slow, n.value)
    bottom = product(top, to_full.bottom, n.value)
    busy = 1 + whole_numbers(n.bound, n.value)
    entered = jnp.where(busy <= n.value, top[:-1] / busy.astype(q.dtype), 0).sum()
    return PhaseShares(bottom[0], bottom[1:].sum(), up * r * entered)


def empty_stuck_slow(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, m: Any, n: Any, *,
                     max_m: int | None = None, max_n: int | None = None) -> EmptyStuckSlow:
    """p_empty, p_stuck and p_slow of one point, for any whole K to 1e7 and real M; K, M infinite where stable.

    ``q, r, K, M``: scalars of one floating dtype, traced or not (vmap for batches); ``m, n``: Python ints, or traced
    whole numbers at most ``max_m``, ``max_n``. NaN where K is not a whole number, and where
    :func:`~hetjax.models.stalling.status` is not OK. Differentiable in q, r and M, not in K.

    Relative error about 1e-13 in float64 where the value exceeds 1e-290, and 1e-5 in float32 above 1e-30: nothing is
    ever subtracted. O((m + log K) n^2) work; reverse mode keeps O((m + log K + n) n) numbers.

    >>> import jax.numpy as jnp
    >>> from hetjax.models.stalling.distribution import empty_stuck_slow
    >>> found = empty_stuck_slow(*(jnp.asarray(x) for x in (1.5, 2.0, 0.0, 25.0)), 1, 1)
    >>> [round(float(p), 6) for p in found]
    [0.018182, 0.018182, 0.963636]
    """
    fast, few = Count.of(m, max_m), Count.of(n, max_n)
    K = jax.lax.stop_gradient(K)
    endless = jnp.isposinf(K)
    whole = jnp.isfinite(K) & (K == jnp.floor(K))
    legal = (whole | endless) & (point_status(q, r, K, M, fast.value, few.value, jnp.ones_like(q)) == Status.OK)
    w = weigh(q, r, K, M, fast, few)
    share = phase_shares(q, r, jnp.where(whole, K, 0), fast, few)
    level_0 = w.below / w.total * w.poisson.empty
    # q^K of level L in two halves, as b r may be 1e15 and the whole power leave the range before the product does
    half = jnp.where(w.buffer.rising, 0, w.buffer.log * w.K / 2)
    slow = w.level / w.total * share.slow * jnp.exp(half) * jnp.exp(half) + w.line_mass / w.total
    found = EmptyStuckSlow(jnp.where(endless, level_0, level_0 * share.empty),
                           jnp.where(endless, 0, level_0 * share.stuck),
                           jnp.where(endless | (few.value == 0), 0, slow))
    return jax.tree.map(lambda p: jnp.where(legal, p, jnp.nan), found)


class StateProbabilities(NamedTuple):
    """All P_{i,j,k}: ``levels[i + k, j]``, [m + K + 1, n + 1], for k <= K; ``waiting[w - 1]`` = P_{m,n,K+w}, [M]."""

    levels: jax.Array
    waiting: jax.Array

    def probability(self, i: int, j: int, k: int, m: int) -> jax.Array:
        """P_{i,j,k} of the queue with ``m`` fast servers; ValueError for a state it does not have."""
        buffer, n = self.levels.shape[0] - 1 - m, self.levels.shape[1] - 1
        legal = 0 <= j <= n and ((k == 0 and 0 <= i <= m) or (
            i == m and (0 < k <= buffer or (j == n and buffer < k <= buffer + self.waiting.shape[0]))))
        if not legal:
            raise ValueError(f"(i, j, k) = {(i, j, k)} is no state; i <= {m}, j <= {n}, k > 0 only with i = {m},"
                             f" k > {buffer} only with j = {n} too, k <= {buffer + self.waiting.shape[0]}")
        return self.levels[i + k, j] if k <= buffer else self.waiting[k - buffer - 1]


def state_probabilities(params: Params) -> StateProbabilities:
    """The stationary law of all (m + K + 1)(n + 1) + M states; they sum to 1.

    K and M must be whole numbers known when tracing (they give shapes; ValueError otherwise), q and r may be traced.
    NaN where :func:`~hetjax.models.stalling.status` is not OK. Every probability has a relative error of a few
    hundred eps at most, however small it is, down to the smallest normal number; below that it is 0.
    O((m + K) n^2 + M) work. For p_empty, p_stuck and p_slow alone take :func:`empty_stuck_slow`, O(log K) in K.

    >>> from hetjax.models.stalling import Params, state_probabilities
    >>> law = state_probabilities(Params(q=1.5, r=2.0, K=0, M=2, m=1, n=1))
    >>> law.levels.shape, law.waiting.shape, round(float(law.probability(1, 1, 2, m=1)), 6)
    ((2, 2), (2,), 0.222222)
    """
    return _state_probabilities(params, buffer_length(params), waiting_places(params))


@partial(jax.jit, static_argnums=(1, 2))
def _state_probabilities(params: Params, K: int, M: int) -> StateProbabilities:
    q, m, n = params.q, params.m, params.n
    up, slow, start = q * Count(m).real(q), 1 / params.r, starting_law(n, n + 1, q.dtype)

    def climb(law: jax.Array, level: jax.Array) -> tuple[jax.Array, jax.Array]:
        law = first_passage_up(law, up, jnp.minimum(level, m).astype(q.dtype), slow, n)
        return law, law

    def fall(phases: jax.Array, law: jax.Array) -> tuple[jax.Array, jax.Array]:
        phases = product(phases, law, n)
        return phases, phases

    last, laws = jax.lax.scan(climb, start, jnp.arange(m + K))
    top = distribution_at_full_buffer(last, up, jnp.ones_like(q) * Count(m).real(q), slow, n)
    phases = jnp.concatenate([jax.lax.scan(fall, top, laws, reverse=True)[1], top[None]])
    w = weigh(q, params.r, params.K, params.M, Count(m), Count(n))
    stalled, waiting = jnp.arange(K + 1, dtype=q.dtype), jnp.arange(1, M + 1, dtype=q.dtype)
    marginal = jnp.concatenate([
        w.below * _truncated_poisson_law(up, m),
        w.level * jnp.exp(w.buffer.log * jnp.where(w.buffer.rising, K - stalled, stalled))])
    line = w.line * jnp.exp(w.waiting.log * jnp.where(w.waiting.rising, M - waiting, waiting))
    legal = point_status(q, params.r, params.K, params.M, m, n, params.mu1) == Status.OK
    found = StateProbabilities(phases * (marginal / w.total)[:, None], line / w.total)
    return jax.tree.map(lambda p: jnp.where(legal, p, jnp.nan), found)


def _truncated_poisson_law(load: jax.Array, m: int) -> jax.Array:
    """load^l / l!, l < m, scaled to sum 1: products outwards from the largest one, so that none overflows."""
    l = jnp.arange(m, dtype=load.dtype)
    grows = (l > 0) & (l <= load)
    after = jnp.cumprod(jnp.where((l > 0) & ~grows, load / jnp.maximum(l, 1), 1))
    falls = jnp.where(grows, l / load, 1)
    before = jnp.concatenate([jnp.cumprod(falls[:0:-1])[::-1], jnp.ones(1, load.dtype)])
    weights = after * before
    return weights / weights.sum()
