"""Phase laws of the two passages that fix the state law of the stalling queue, for a buffer of any length.

Level l = customers in fast servers + stalled. Below the full buffer (level L = m + K) customers do not enter the
slow servers, so every passage between levels changes the phase (busy slow servers) by a law of
:mod:`~hetjax.models.stalling.phase_laws`. Two of them fix everything:

* G, the first passage from level L - 1 back to L, gives the phase distribution within level L;
* H, the first passage from level 0 to L, carries it down to level 0, as the level process is reversible:
  P(level 0, phase j) = R_0 (pi_L H)_j.

Levels 0..m-1 are taken one by one. The buffer's levels m..L-1 all have rates b up and m down, so blocks of
1, 2, 4, ... of them are made by doubling, and those of K's binary digits are stacked on top. For a block of k levels
the chances of leaving at the far end are gambler's-ruin probabilities, known in closed form,

    up through: q^k / sum_{i<=k} q^i,     down through: 1 / sum_{i<=k} q^i,                     return: the complements,

and by symmetry one law ``through`` serves both passages and one law ``back`` both returns. Only laws (summing to 1)
are multiplied; the probabilities enter as exact weights, so the error does not grow with the number of levels.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.phase_laws import (
    first_passage_up,
    geometric_compound,
    product,
    starting_law,
    whole_numbers,
)
from hetjax.numerics.logarithm import log

DIGITS = 24  # binary digits of K, for K up to 1e7


class Passages(NamedTuple):
    """``bottom``: law of the passage 0 -> L. ``top``: law of the passage L - 1 -> L. Each [size], from phase n."""

    bottom: jax.Array
    top: jax.Array


class _Ruin(NamedTuple):
    up: jax.Array  # enters at the bottom, leaves at the top
    back_down: jax.Array  # 1 - up
    down: jax.Array  # enters at the top, leaves at the bottom
    back_up: jax.Array  # 1 - down


def fast_levels(up: jax.Array, slow: jax.Array, m: Any, n: Any, size: int, max_m: int) -> Passages:
    """Passages 0 -> m and m - 1 -> m through the levels with idle fast servers; O(m n^2)."""
    start = starting_law(n, size, up.dtype)
    masked = not isinstance(m, int)

    @jax.checkpoint
    def climb(state: Passages, level: jax.Array) -> tuple[Passages, None]:
        top = first_passage_up(state.top, up, level.astype(up.dtype), slow, n)
        new = Passages(product(state.bottom, top, n), top)
        return (jax.tree.map(partial(jnp.where, level < m), new, state) if masked else new), None

    return jax.lax.scan(climb, Passages(start, start), whole_numbers(max_m if masked else m, m))[0]


def _ruin(q: jax.Array, power: jax.Array, terms: jax.Array) -> _Ruin:
    """Of a block of k levels; with x = min(q, 1/q): ``power`` = x^k, ``terms`` = 1 + x + ... + x^(k-1)."""
    x = jnp.where(q <= 1, q, 1 / q)
    more = 1 + x * terms
    likely, unlikely = 1 / more, power / more
    rest_of_likely, rest_of_unlikely = x * terms / more, terms / more
    light = q <= 1
    return _Ruin(jnp.where(light, unlikely, likely), jnp.where(light, rest_of_unlikely, rest_of_likely),
                 jnp.where(light, likely, unlikely), jnp.where(light, rest_of_likely, rest_of_unlikely))


def _stack(below: Passages, through: jax.Array, back: jax.Array, ruin: _Ruin, n: Any) -> Passages:
    """Puts a block on top of the levels below it."""
    dip = product(below.top, back, n)  # below the block and back, then back to the block's bottom
    climb = geometric_compound(through, dip, ruin.back_down, ruin.up, n)  # from the block's bottom level past its top
    moved = product(jnp.stack([below.bottom, product(through, below.top, n)]), climb, n)
    return Passages(moved[0], ruin.back_up * back + ruin.down * moved[1])


def _double(through: jax.Array, back: jax.Array, ruin: _Ruin, n: Any) -> tuple[jax.Array, jax.Array]:
    """The laws of two equal blocks, one on the other."""
    again = ruin.back_up * ruin.back_down
    stop = ruin.down + ruin.back_up * ruin.up
    crossed = geometric_compound(product(through, through, n), product(back, back, n), again, stop, n)
    deep = ruin.down * ruin.up / stop  # relative weight of the returns that enter the far block
    return crossed, (back + deep * product(crossed, back, n)) / (1 + deep)


def passages(q: jax.Array, r: jax.Array, K: jax.Array, m: Any, n: Any, *, max_m: int, max_n: int) -> Passages:
    """The passages 0 -> L and L - 1 -> L for a whole number K in [0, 2^24); O((m + log K) n^2) work.

    ``K`` is a real scalar of q's dtype and may be traced; so may ``m <= max_m`` and ``n <= max_n``.
    """
    size = max_n + 1
    one = jnp.ones((), q.dtype)
    up, slow = q * jnp.asarray(m).astype(q.dtype), 1 / r
    digits = K.astype(jnp.int32)
    step = jnp.where(q <= 1, log(q), -log(q))
    single = first_passage_up(starting_law(n, size, q.dtype), up + jnp.asarray(m).astype(q.dtype), 0 * one, slow, n)

    def grow(state: tuple[Passages, jax.Array, jax.Array, jax.Array], digit: jax.Array) -> tuple[Any, None]:
        stacked, through, back, terms = state
        power = jnp.exp((one * 2) ** digit.astype(q.dtype) * step)
        ruin = _ruin(q, power, terms)
        used = (digits >> digit) & 1 == 1
        new = _stack(stacked, through, back, ruin, n)
        stacked = jax.tree.map(partial(jnp.where, used), new, stacked)
        return (stacked, *_double(through, back, ruin, n), terms * (1 + power)), None

    @jax.checkpoint
    def grow_if_needed(state: Any, digit: jax.Array) -> tuple[Any, None]:
        return jax.lax.cond(digits >> digit > 0, grow, lambda state, _: (state, None), state, digit)

    low = fast_levels(up, slow, m, n, size, max_m)
    state = (low, single, single, one)
    return jax.lax.scan(grow_if_needed, state, jnp.arange(DIGITS, dtype=jnp.int32))[0][0]
