"""The elimination of :mod:`hetjax.ctmc.elimination` for many states: panels of states, matrix products between them.

A panel K is eliminated at once: with ``N_K`` of the states in K, whose exits are their rates to the states before K and
out of the chain, ``X_K = N_K [W[K, :low], right]`` and ``W[:low, :low] += W[:low, K] X_K``. Still no subtraction.
States are on the last two axes (points first under ``vmap``), where matrix products are fastest.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

PANEL = 32


class _Panel(NamedTuple):
    low: int
    times: jax.Array  # N_K; a state with pivot 0 counts one unit of time
    left: jax.Array  # N_K W[K, :low]
    right: jax.Array  # N_K right
    above: jax.Array  # W[:low, K] when K is eliminated
    trapped: jax.Array  # pivot 0


def _times(core: jax.Array, exits: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``N right`` and which pivots are 0, state by state inside a panel."""
    size = core.shape[0]
    index = jnp.arange(size)

    def down(step: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        core, exits, right, trapped = carry
        p = size - 1 - step
        before = (index < p).astype(core.dtype)
        row = core[p] * before
        pivot = jnp.sum(row) + exits[p]
        zero = pivot == 0
        inverse = 1 / jnp.where(zero, jnp.ones_like(pivot), pivot)
        row, leave, rhs = row * inverse, exits[p] * inverse, right[p] * inverse
        rates = core[:, p] * before
        core = (core + rates[:, None] * row[None]).at[p].set(row)
        exits = (exits + rates * leave).at[p].set(leave)
        right = (right + rates[:, None] * rhs[None]).at[p].set(rhs)
        return core, exits, right, trapped.at[p].set(zero)

    core, _, right, trapped = lax.fori_loop(0, size, down, (core, exits, right, jnp.zeros(size, bool)))

    def up(p: jax.Array, x: jax.Array) -> jax.Array:
        return x.at[p].add((core[p] * (index < p).astype(core.dtype)) @ x)

    return lax.fori_loop(0, size, up, right), trapped


def _eliminate(rates: jax.Array, exits: jax.Array, right: jax.Array) -> list[_Panel]:
    n = rates.shape[0]
    panels = []
    for high in range(n, 0, -PANEL):
        low = max(high - PANEL, 0)
        identity = jnp.eye(high - low, dtype=rates.dtype)
        rows = jnp.concatenate([rates[low:, :low], right[low:], exits[low:, None], identity], axis=1)
        x, trapped = _times(rates[low:, low:], exits[low:] + jnp.sum(rates[low:, :low], axis=1), rows)
        left, solved, leave, times = jnp.split(x, [low, low + right.shape[1], low + right.shape[1] + 1], axis=1)
        above = rates[:low, low:]
        panels.append(_Panel(low, times, left, solved, above, trapped))
        rates = rates[:low, :low] + above @ left
        exits = exits[:low] + above @ leave[:, 0]
        right = right[:low] + above @ solved
    return panels


def solve(rates: jax.Array, exits: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``N right`` and which pivots are 0 (there N counts one unit of time). Shapes (n, n), (n,), (n, m)."""
    panels = _eliminate(rates, exits, right)
    x = panels[-1].right
    for panel in panels[-2::-1]:
        x = jnp.concatenate([x, panel.right + panel.left @ x])
    return x, jnp.concatenate([panel.trapped for panel in panels[::-1]])


def apply_left(times: jax.Array, trapped: jax.Array, left: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """:func:`hetjax.ctmc.elimination.apply_left` from N (n, n) and its pivots 0."""
    here = left @ times
    reached = trapped & (here > 0)
    some = jnp.any(reached)
    last = trapped.shape[0] - 1 - jnp.argmax(reached[::-1])
    return jnp.where(some, times[last], here), some.astype(jnp.int32), jnp.sum(trapped & ~reached, dtype=jnp.int32)


def stationary_measure(rates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The stationary measure (not normalised) of a closed chain (n, n), and how many states have pivot 0."""
    n = rates.shape[0]
    panels = _eliminate(rates, jnp.zeros(n, rates.dtype), jnp.zeros((n, 0), rates.dtype))
    zeros = jnp.zeros((), jnp.int32)
    measure = jnp.zeros(0, rates.dtype)
    for panel in reversed(panels):
        size = panel.trapped.shape[0]
        inflow = measure @ panel.above if panel.low else jnp.zeros(size, rates.dtype).at[0].set(1)
        trapped = panel.trapped if panel.low else panel.trapped.at[0].set(False)
        some = jnp.any(trapped)
        last = size - 1 - jnp.argmax(trapped[::-1])
        x = jnp.where(some, panel.times[last], inflow @ panel.times)
        measure = jnp.concatenate([jnp.where(some, jnp.zeros_like(measure), measure), x])
        zeros = zeros + jnp.sum(trapped, dtype=jnp.int32)
    return measure, zeros
