"""Two servers, Poisson arrivals, infinite buffer: every mean in closed form, O(1) in the threshold.

State (x, s): x customers in the fast server and the queue, s = 1 where the slow server is busy; the slow server takes
the head of the queue when the number waiting, newcomer included, reaches the threshold T, so (x, 0) has x <= T. In
units of mu1: q = lambda/mu1, a = mu2/mu1, rho = lambda/(mu1 + mu2). Cuts between x and x + 1 give

    P(x) q = P(x + 1)  (x < T),      P(T + k, 1) = P(T, 1) rho^k,

so the levels carry 1, q, .., q^T and then a geometric tail. With v_l + q = P(l - 1, 1)/P(l, 1) the balance of (l, 1) is

    v_0 = a,    v_{l+1} = a + v_l/(v_l + q),        P(T, 1) = P(T)/h_0,    h_0 = 1 + v_T/q,

only sums, products and quotients of positive numbers. v_T is the stalling queue's recursion for one fast and one slow
server (T = K + 1 levels of one Moebius map, :mod:`hetjax.models.stalling.crossing`): O(1). Summing the balance
of (l, 1) over l <= T, sum_l P(l, 1) = P(T, 1) v_T/a. So, up to the common factor 1/Z,

    Z = sum_{l<=T} q^l + (q^T/h_0) rho/(1 - rho),     E s = (q^T/h_0) [v_T/a + rho/(1 - rho)] / Z,
    E x = { sum_{l<=T} l q^l + (q^T/h_0) [T rho/(1 - rho) + rho/(1 - rho)^2] } / Z.

For q > 1 everything is taken over q^T. The empty node: P(0, 1) = P(T, 1) / prod_{l<T} (v_l + q), in closed form too.

**Real thresholds** T + f, 0 <= f < 1: at each event that makes T customers wait while the slow server idles it is
started with probability 1 - f. Two policies that differ in one decision, mixed there, have a mixture of their two
stationary laws as stationary law: weights 1 - f and f w over their sum, where w is how much less often the decision
comes up under threshold T than under T + 1,

    w = P_T(T, 1) (v_T + a rho) q / [P_{T+1}(T + 1, 1) v_{T+1} (1 + q)].

Every mean is continuous and monotone between two whole numbers, with kinks there; derivatives are those to the right.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.stalling.crossing import cross
from hetjax.models.stalling.recursion import log_rise
from hetjax.models.stalling.weights import fold
from hetjax.numerics.counting import Count
from hetjax.numerics.geometric import descending_sum
from hetjax.numerics.logarithm import log1p, log_near_one
from hetjax.numerics.shares import share


class Means(NamedTuple):
    """Stationary means: customers in the node and waiting, busy fractions of both servers, P(nobody there)."""

    number: jax.Array
    waiting: jax.Array
    fast: jax.Array
    slow: jax.Array
    empty: jax.Array


class _Whole(NamedTuple):
    """The law under a whole threshold, as un-normalised sums (over q^T where q > 1)."""

    means: Means
    v: jax.Array
    inverse_h0: jax.Array
    total: jax.Array


def slow_ratio(q: jax.Array, a: jax.Array, T: jax.Array) -> jax.Array:
    """v_T after T steps of v -> a + v/(v + q) from v = a, for any real T >= 0; O(1).

    >>> import jax.numpy as jnp
    >>> round(float(slow_ratio(jnp.asarray(0.5), jnp.asarray(0.25), jnp.asarray(1.0))), 6)
    0.583333
    """
    one = jnp.ones_like(q)
    return a * cross(one, one, a, q, T, jnp.ones((), q.dtype))


def _whole(rate: jax.Array, mu1: jax.Array, mu2: jax.Array, T: jax.Array) -> _Whole:
    q, a = rate / mu1, mu2 / mu1
    spare = (mu1 - rate) + mu2  # exact to one rounding, however close to saturation
    rising = q > 1
    zero, one = jnp.zeros_like(q), jnp.ones_like(q)
    x = log_near_one(q, (rate - mu1) / mu1)
    levels = fold(x, q, T, rising)
    shorter = fold(x, q, T - 1, rising)
    v = slow_ratio(q, a, T)
    inverse_h0 = q / (q + v)
    top = jnp.where(rising, one, levels.decay) * inverse_h0  # (T, 1)
    tail = top * (rate / spare)  # (T + 1, 1), (T + 2, 1), ..
    busy = jnp.where(rising, one, levels.ratio) * levels.sums.plain  # levels 1..T
    idle = jnp.where(rising, levels.decay, one)  # level 0
    rise, _ = log_rise(q, 1 / a, T - 1, Count(1), 1)  # sum_{l<T} ln(1 + v_l/q)
    empty = idle * -jnp.expm1(-rise - log1p(v / q))
    total = 1 + levels.ratio * levels.sums.plain + tail
    beyond = (mu1 + mu2) / spare  # 1/(1 - rho)
    slow = top * (v / a) + tail
    base = jnp.where(rising, T, zero)
    here = jnp.where(rising, -levels.sums.ascending, levels.sums.ascending)
    number = base + (here + tail * (T - base) + tail * beyond + slow) / total
    queue = jnp.where(rising, descending_sum(shorter.log, shorter.ratio, T - 1, shorter.decay),
                      q * shorter.sums.ascending)
    waiting = (queue + tail * (T - 1) + tail * beyond) / total
    return _Whole(Means(number, waiting, (busy + tail) / total, slow / total, empty / total), v, inverse_h0, total)


def means(rate: jax.Array, mu1: jax.Array, mu2: jax.Array, threshold: jax.Array) -> Means:
    """The :class:`Means` for Poisson arrivals, elementwise in arrays of one shape and dtype; any real threshold >= 1.

    Needs 0 < rate < mu1 + mu2 and mu2 <= mu1 (unchecked: see :func:`hetjax.threshold_queue.status`). O(1); relative
    error about 1e-14 / (1 - rho), differentiable in both modes.

    >>> import jax.numpy as jnp
    >>> found = means(*(jnp.asarray(x) for x in (1.68, 2.0, 0.4, 2.0)))
    >>> round(float(found.number), 6)
    2.758413
    """
    T = lax.stop_gradient(jnp.floor(threshold))
    f = threshold - T
    q = rate / mu1
    both = _whole(*(jnp.stack(pair) for pair in ((rate, rate), (mu1, mu1), (mu2, mu2), (T, T + 1))))
    low, high = (jax.tree.map(lambda x, i=i: x[i], both) for i in (0, 1))
    often = low.inverse_h0 * high.total / (high.inverse_h0 * low.total) * jnp.where(q > 1, q, jnp.ones_like(q))
    w = often * (low.v + mu2 * (rate / (mu1 * (mu1 + mu2)))) / (high.v * (1 + q))
    second = share(f * w, 1 - f)
    return Means(*(m + second * (n - m) for m, n in zip(low.means, high.means, strict=True)))


def whole_means(rate: jax.Array, mu1: jax.Array, mu2: jax.Array, threshold: jax.Array) -> Means:
    """:func:`means` for thresholds that are known to be whole numbers, 7 times as fast.

    >>> import jax.numpy as jnp
    >>> found = whole_means(*(jnp.asarray(x) for x in (1.68, 2.0, 0.4, 2.0)))
    >>> round(float(found.number), 6)
    2.758413
    """
    return _whole(rate, mu1, mu2, threshold).means


def queue_length_law(rate: jax.Array, mu1: jax.Array, mu2: jax.Array, threshold: int, levels: int) -> jax.Array:
    """P(0, .., levels - 1 customers in the node), shape (levels,), for a whole threshold; one scalar point.

    P(l, 1) = P(l + 1, 1)/(v_l + q) and P(l, 0) = [P(l + 1, 0) + P(l + 1, 1) v_l/(v_l + q)]/q downwards from level T:
    nothing is subtracted. O(T + levels); for real thresholds take :func:`hetjax.threshold_queue.solve`.

    >>> import jax.numpy as jnp
    >>> law = queue_length_law(jnp.asarray(1.0), jnp.asarray(2.0), jnp.asarray(1.0), 3, 200)
    >>> [round(float(p), 4) for p in law[:3]], round(float(law.sum()), 12)
    ([0.5204, 0.2641, 0.1282], 1.0)
    """
    T = int(threshold)
    if T != threshold or T < 1:
        raise ValueError(f"threshold = {threshold!r}: must be a whole number >= 1; take solve() for real ones")
    q, a, rho = rate / mu1, mu2 / mu1, rate / (mu1 + mu2)
    law = _whole(rate, mu1, mu2, jnp.full_like(q, T))
    level_T = jnp.where(q > 1, jnp.ones_like(q), q**T) / law.total
    v = [a + 0 * q]
    for _ in range(T - 1):
        v.append(a + v[-1] / (v[-1] + q))
    slow, idle = [level_T * law.inverse_h0], [level_T * (1 - law.inverse_h0)]
    for v_l in reversed(v):
        idle.append((idle[-1] + slow[-1] * (v_l / (v_l + q))) / q)
        slow.append(slow[-1] / (v_l + q))
    tail = slow[0] * jnp.expand_dims(rho, 0) ** jnp.arange(1, max(levels - T, 0) + 1).astype(q.dtype)
    none = jnp.zeros((tail.size,), q.dtype)
    alone = jnp.concatenate([jnp.stack(idle[::-1]), none])  # (n, 0)
    both = jnp.concatenate([jnp.zeros((1,), q.dtype), jnp.stack(slow[::-1]), tail[:-1] if tail.size else tail])
    return alone[:levels] + both[:levels]
