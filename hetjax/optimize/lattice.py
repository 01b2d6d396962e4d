"""The best whole point: every one compared, or a search that ends where a whole neighbourhood is worse.

A point is worth (violation, value), compared in that order; "tied" values differ by less than rounding. The search
looks at all points of a cube around the best one so far, first far apart and then, each time none of them is better,
closer together, until the cube of neighbours itself holds none: then the point is the best of all within that cube, and
of all points if the values fall towards it from everywhere (which is assumed, not proved).
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.optimize.newton import ROUNDING
from hetjax.optimize.space import Space

Array = jax.Array
CUBE = 729  # neighbours looked at together, at most
WIDEST = 16
MOVES = 100_000
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
Value = Callable[[Array], tuple[Array, Array]]  # k (d,) -> value, violation


class Whole(NamedTuple):
    """A whole point: its worth, how many local minima were seen, and whether another point is tied with it."""

    k: Array  # (d,) int32
    value: Array
    violation: Array
    minima: Array  # int32
    tied: Array
    evaluations: Array  # int32


def noise(value: Array) -> Array:
    """Differences of values below this say nothing."""
    return ROUNDING * jnp.finfo(value.dtype).eps * jnp.where(jnp.isfinite(value), jnp.abs(value), 0)


def reach(space: Space) -> int:
    """w: the search proves its result within +-w of it."""
    d = space.first.size
    return next((w for w in (WIDEST, 8, 4, 2) if (2 * w + 1) ** d <= CUBE), 1)


def enumerate_box(value: Value, space: Space, batch: int) -> Whole:
    """The best of all points of the box, ``batch`` of them at a time; of tied ones the first in order."""
    sizes = tuple(int(b - a + 1) for a, b in zip(space.first, space.last, strict=True))
    count = math.prod(sizes)
    first = jnp.asarray(space.first, jnp.int32)

    def at(number: Array) -> Array:
        return first + jnp.stack(jnp.unravel_index(number, sizes)).astype(jnp.int32)

    def one(number: Array) -> tuple[Array, Array]:
        found, violation = value(at(number))
        return jnp.where(jnp.isnan(found), jnp.inf, found), violation

    values, violations = lax.map(one, jnp.arange(count, dtype=jnp.int32), batch_size=min(batch, count))
    least = jnp.min(violations)
    worth = jnp.where(violations <= least, values, jnp.inf)
    best = jnp.min(worth)
    tie = worth <= best + noise(best)
    index = jnp.argmax(tie)
    grid, room = worth.reshape(sizes), noise(best)
    lowest = jnp.isfinite(grid)
    for offset in itertools.product((-1, 0, 1), repeat=len(sizes)):
        if any(offset):
            beside = _shifted(grid, offset)
            # a plateau counts once, where it is reached first
            lowest &= (grid < beside - room) if offset < (0,) * len(sizes) else (grid <= beside + room)
    return Whole(at(index), values[index], violations[index], jnp.maximum(jnp.sum(lowest, dtype=jnp.int32), 1),
                 jnp.sum(tie, dtype=jnp.int32) > 1, jnp.full((), count, jnp.int32))


def _shifted(grid: Array, offset: tuple[int, ...]) -> Array:
    """The neighbour at ``offset`` of every point; infinite outside the box."""
    padded = jnp.pad(grid, 1, constant_values=jnp.inf)
    return padded[tuple(slice(1 + o, 1 + o + n) for o, n in zip(offset, grid.shape, strict=True))]


def search_box(value: Value, space: Space, start: Array) -> Whole:
    """From ``start`` (d,) to a point that is the best within +-:func:`reach` of it."""
    w, d = reach(space), space.first.size
    cube = jnp.asarray([o for o in itertools.product(range(-w, w + 1), repeat=d) if any(o)], jnp.int32)
    first, last = (jnp.asarray(b, jnp.int32) for b in (space.first, space.last))
    widest = max(int(np.max(space.last - space.first)) // (2 * w), 1)

    class State(NamedTuple):
        k: Array
        value: Array
        violation: Array
        stride: Array
        ended: Array
        tied: Array
        count: Array

    def look(state: State) -> State:
        # far offsets may leave int32: they are clipped before they are added
        offsets = jnp.clip(cube.astype(state.value.dtype) * state.stride.astype(state.value.dtype),
                           (first - state.k).astype(state.value.dtype)[None],
                           (last - state.k).astype(state.value.dtype)[None]).astype(jnp.int32)
        points = state.k[None] + offsets
        values, violations = jax.vmap(value)(points)
        values = jnp.where(jnp.isnan(values), jnp.inf, values)
        least = jnp.min(violations)
        worth = jnp.where(violations <= least, values, jnp.inf)
        index = jnp.argmin(worth)
        new = worth[index]
        room = noise(state.value)
        better = (least < state.violation) | (least == state.violation) & (new < state.value - room)
        other = jnp.any(points != state.k[None], axis=1)
        tied = jnp.any(other & (violations <= state.violation) & (values <= state.value + room))
        ended = ~better & (state.stride == 1)
        stride = jnp.where(better, state.stride, jnp.maximum(state.stride // (2 * w), 1))
        return State(jnp.where(better, points[index], state.k), jnp.where(better, new, state.value),
                     jnp.where(better, least, state.violation), stride, ended, tied & ended, state.count + 1)

    found, violation = value(start)
    begin = State(start, jnp.where(jnp.isnan(found), jnp.inf, found), violation, jnp.full((), widest, jnp.int32),
                  jnp.zeros((), bool), jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    end = lax.while_loop(lambda s: ~s.ended & (s.count < MOVES), look, begin)
    return Whole(end.k, end.value, end.violation, jnp.ones((), jnp.int32), end.tied, end.count * len(cube))


def best_of(found: Whole, space: Space) -> Whole:
    """The best of several searches (leading axis); ends further apart than +-:func:`reach` are other minima."""
    room = noise(jnp.min(found.value))
    least = jnp.min(found.violation)
    worth = jnp.where(found.violation <= least, found.value, jnp.inf)
    tie = worth <= jnp.min(worth) + room
    index = jnp.argmax(tie)
    gap = jnp.max(jnp.abs(found.k[:, None] - found.k[None]), axis=2)
    known = jnp.isfinite(worth)
    seen = jnp.any((gap <= reach(space)) & jnp.tril(jnp.ones(gap.shape, bool), -1) & known[None], axis=1)
    others = tie & (gap[index] > 0)
    return Whole(found.k[index], found.value[index], found.violation[index],
                 jnp.maximum(jnp.sum(known & ~seen, dtype=jnp.int32), 1), found.tied[index] | jnp.any(others),
                 jnp.sum(found.evaluations))


def steps_by_derivative(relaxed: Callable[[Array], Array], k: Array, dtype: Any) -> tuple[Array, Array]:
    """f(k - e_j) - f(k) and f(k + e_j) - f(k), (d,) each, as integrals of the derivative between the whole points.

    Where f is smooth there this is exact to the rounding of the derivative, however small the step is beside f. A step
    below the rounding of its own integral is 0.
    """
    d = k.shape[0]
    nodes = jnp.asarray(NODES / 2, dtype)
    weights = jnp.asarray(WEIGHTS / 2, nodes.dtype)
    here = k.astype(nodes.dtype)

    def slope(j: Array, shift: Array) -> Array:
        unit = (jnp.arange(d) == j).astype(nodes.dtype)
        return jax.jvp(relaxed, (here + shift * unit,), (unit,))[1]

    places = jnp.concatenate([nodes - 0.5, nodes + 0.5])
    slopes = jax.vmap(lambda j: jax.vmap(functools.partial(slope, j))(places))(jnp.arange(d))
    count = len(NODES)

    def integral(rows: Array) -> Array:
        parts = rows * weights[None]
        total, size = jnp.sum(parts, axis=1), jnp.sum(jnp.abs(parts), axis=1)
        return jnp.where(jnp.abs(total) > ROUNDING * jnp.finfo(total.dtype).eps * size, total, 0)

    return -integral(slopes[:, :count]), integral(slopes[:, count:])


def walk(relaxed: Callable[[Array], Array], value: Value, found: Whole, space: Space) -> Whole:
    """On among tied points, one at a time, while the derivative says that the next one is better."""
    first, last = (jnp.asarray(b, jnp.int32) for b in (space.first, space.last))
    d = space.first.size
    ceiling = found.value + noise(found.value)

    def way(k: Array) -> tuple[Array, Array]:
        """The neighbour that the derivative prefers, and whether it does."""
        below, above = steps_by_derivative(relaxed, k, found.value.dtype)
        gains = jnp.concatenate([jnp.where(k > first, below, jnp.inf), jnp.where(k < last, above, jnp.inf)])
        gains = jnp.where(jnp.isnan(gains), jnp.inf, gains)
        best = jnp.argmin(gains)
        unit = (jnp.arange(d) == best % d).astype(jnp.int32)
        return k + jnp.where(best < d, -unit, unit), gains[best] < 0

    class State(NamedTuple):
        k: Array
        ended: Array
        count: Array

    def on(state: State) -> State:
        new, wanted = way(state.k)
        worth, violation = value(new)
        allowed = wanted & (worth <= ceiling) & (violation <= found.violation)
        return State(jnp.where(allowed, new, state.k), ~allowed, state.count + 1)

    end = lax.while_loop(lambda s: ~s.ended & (s.count < MOVES), on,
                         State(found.k, ~found.tied, jnp.zeros((), jnp.int32)))
    worth, violation = value(end.k)
    return found._replace(k=end.k, value=worth, violation=violation)
