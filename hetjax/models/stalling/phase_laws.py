"""How many slow servers are still busy after a random time, as probability vectors.

While no customer enters the slow servers each busy one finishes on its own at rate mu2, so that j busy ones become
i with probability E[C(j, i) X^i (1 - X)^(j - i)], X = exp(-mu2 T), whatever the random time T. As a matrix over the
phases j = 0..n that is f(Delta), f the Laplace transform of T and Delta the death generator with its sign changed.
These matrices commute, and the *last row* of one, the law of the phase reached from n, holds all of it: taking one
of k servers away at random turns the law from k into the law from k - 1,

    row_{k-1}[i] = ((k - i) row_k[i] + (i + 1) row_k[i + 1]) / k.                                               (thin)

A law is therefore a vector of n + 1 probabilities. Products and resolvents of laws cost O(n^2), and every term is
non-negative, so each operation keeps the *relative* accuracy of every entry; each result is scaled to sum 1, which
stops the slow drift that thousands of multiplied levels would otherwise pick up. In eigenvalues, at Delta = j / r,
the same quantities are the paper's A_{i,j}; going back from those to probabilities needs the alternating sums of
its (6), which these vectors avoid.

Vectors have ``size`` = (largest n) + 1 entries, zero beyond n. ``n`` may be traced, below that bound.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

UNROLLED = 4  # loops over up to so many phases are written out


def whole_numbers(stop: int, like: Any) -> jax.Array:
    """0 .. ``stop`` - 1 in the integer type of ``like``, a count that may be traced."""
    return jnp.arange(stop, dtype=jnp.result_type(like))


def starting_law(n: Any, size: int, dtype: Any) -> jax.Array:
    """The law of no time at all: phase n surely."""
    return (whole_numbers(size, n) == n).astype(dtype)


def _thin(row: jax.Array, k: jax.Array) -> jax.Array:
    i = jnp.arange(row.shape[0], dtype=row.dtype)
    above = jnp.concatenate([row[1:], jnp.zeros(1, row.dtype)])
    return ((k - i) * row + (i + 1) * above) / k


def over_rows(step: Callable[[Any, jax.Array, jax.Array], tuple[Any, Any]], carry: Any, law: jax.Array, n: Any,
              ) -> tuple[Any, Any]:
    """Runs ``carry, out = step(carry, k, row_k)`` for k = n, n-1, ..., 0; ``out`` comes back indexed by k.

    ``row_k`` is the law from phase k. Phases above a traced ``n`` leave the carry alone and give out = 0.
    """
    size = law.shape[0]
    masked = not isinstance(n, int)

    def body(state: tuple[jax.Array, Any], k: jax.Array) -> tuple[tuple[jax.Array, Any], Any]:
        row, old = state
        new, out = step(old, k, row)
        thinner = _thin(row, jnp.maximum(k, 1).astype(row.dtype))
        if masked:
            new = jax.tree.map(lambda a, b: jnp.where(k <= n, a, b), new, old)
            out = jax.tree.map(lambda a: jnp.where(k <= n, a, jnp.zeros_like(a)), out)
            thinner = jnp.where(k <= n, thinner, row)
        return (thinner, new), out

    (_, carry), out = jax.lax.scan(body, (law, carry), whole_numbers(size, n), reverse=True, unroll=size <= UNROLLED)
    return carry, out


def _normalized(law: jax.Array) -> jax.Array:
    return law / law.sum(-1, keepdims=True)


def product(mixture: jax.Array, law: jax.Array, n: Any) -> jax.Array:
    """The phase after ``law``'s time, started from the phase distribution ``mixture`` [..., size]; sums to 1.

    For two laws it is the law of the sum of the independent times.
    """
    def step(total: jax.Array, k: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
        return total + jnp.expand_dims(mixture[..., k], -1) * jnp.expand_dims(row, tuple(range(mixture.ndim - 1))), None

    return _normalized(over_rows(step, jnp.zeros_like(mixture), law, n)[0])


def geometric_compound(start: jax.Array, law: jax.Array, again: jax.Array, stop: jax.Array, n: Any) -> jax.Array:
    """The law of ``start`` plus N independent times of ``law``, P(N = k) = stop again^k; again + stop = 1.

    y = stop start (I - again F)^-1 by back substitution from phase n. The pivot 1 - again F[k, k] is formed as
    stop + again sum_{i<k} F[k, i]; at phase 0, where it is ``stop`` itself, it cancels. ``stop`` may underflow to 0.
    """
    below = whole_numbers(law.shape[0], n)

    def step(carry: jax.Array, k: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        into = start[k] + again * carry[k]
        pivot = stop + again * jnp.where(below < k, row, 0).sum()
        visits = jnp.where(k > 0, into / jnp.where(k > 0, pivot, 1), 0)
        return carry + visits * row, jnp.where(k > 0, stop * visits, into)

    return _normalized(over_rows(step, jnp.zeros_like(start), law, n)[1])


def first_passage_up(law: jax.Array, up: jax.Array, down: jax.Array, slow: jax.Array, n: Any) -> jax.Array:
    """The law of the first passage one level up, from a level with rates ``up`` and ``down``.

    ``law`` is that of the level below, ``slow`` the rate of one slow server:
    G_l = up (up + Delta + down (I - G_{l-1}))^-1. With down = 0 it is the law of an exponential time of rate ``up``.
    """
    below = whole_numbers(law.shape[0], n)

    def step(carry: tuple[jax.Array, jax.Array], k: jax.Array, row: jax.Array,
             ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        total, previous = carry
        phase = k.astype(law.dtype)
        into = jnp.where(k == n, up, (phase + 1) * slow * previous) + down * total[k]
        visits = into / (up + phase * slow + down * jnp.where(below < k, row, 0).sum())
        return (total + visits * row, visits), visits

    carry = (jnp.zeros_like(law), jnp.zeros((), law.dtype))
    return _normalized(over_rows(step, carry, law, n)[1])


def distribution_at_full_buffer(law: jax.Array, up: jax.Array, down: jax.Array, slow: jax.Array, n: Any) -> jax.Array:
    """The phase distribution within the level of the full buffer (empty waiting line), sums to 1.

    ``law`` is the first passage back up from the level below. Arrivals move the phase j - 1 -> j at rate ``up``; the
    rates the other way across that cut are j ``slow`` from j, and ``down`` times the chance that an excursion from
    k >= j comes back below j. Equating them gives pi_{j-1} from pi_j..pi_n. The entries span up to 4000 decades:
    powers of two are divided out on the way, and entries that leave the range are flushed to 0.
    """
    below = whole_numbers(law.shape[0], n)
    half = float(jnp.finfo(law.dtype).maxexp // 2)
    limit, shrink = jnp.asarray(2.0**half, law.dtype), jnp.asarray(2.0**-half, law.dtype)

    def step(carry: tuple[jax.Array, jax.Array, jax.Array], k: jax.Array, row: jax.Array,
             ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        found, total, current = carry
        found = found.at[k].set(current)
        total = total + current * row
        lower = (k.astype(law.dtype) * slow * current + down * jnp.where(below < k, total, 0).sum()) / up
        scale = jnp.where(lower > limit, shrink, 1)
        return (found * scale, total * scale, lower * scale), None

    carry = (jnp.zeros_like(law), jnp.zeros_like(law), jnp.ones((), law.dtype))
    (found, _, _), _ = over_rows(step, carry, law, n)
    return _normalized(found)
