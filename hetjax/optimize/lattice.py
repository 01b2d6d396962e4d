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


class Table(NamedTuple):
    """All points of a box compared: the best one, its neighbours, and what else was found there."""

    best: Whole
    gap_below: Array  # (d,) value one less, minus the best; infinite outside the box and where violated more
    gap_above: Array  # (d,)
    more: Any  # what the evaluation gave beside value and violation, at the best point


def enumerate_box(value: Callable[[Array], tuple[Array, Array, Any]], space: Space, batch: int) -> Table:
    """The best of all points of the box, ``batch`` of them at a time; of tied ones the first in order.

    ``value``: k (d,) -> value, violation, any pytree.
    """
    sizes = tuple(int(b - a + 1) for a, b in zip(space.first, space.last, strict=True))
    count, d = math.prod(sizes), len(sizes)
    first = jnp.asarray(space.first, jnp.int32)

    def at(number: Array) -> Array:
        return first + jnp.stack(jnp.unravel_index(number, sizes)).astype(jnp.int32)

    shapes = jax.eval_shape(value, first)[2]

    def one(number: Array) -> tuple[Array, Array, list[Array]]:
        found, violation, more = value(at(number))
        filled = [leaf for leaf in jax.tree.leaves(more) if leaf.size]  # batches of nothing are refused
        return jnp.where(jnp.isnan(found), jnp.inf, found), violation, filled

    values, violations, more = lax.map(one, jnp.arange(count, dtype=jnp.int32), batch_size=min(batch, count))
    least = jnp.min(violations)
    worth = jnp.where(violations <= least, values, jnp.inf)
    best = jnp.min(worth)
    tie = worth <= best + noise(best)
    index = jnp.argmax(tie)
    grid, room = worth.reshape(sizes), noise(best)
    lowest = jnp.isfinite(grid)
    gaps = {}
    for offset in itertools.product((-1, 0, 1), repeat=d):
        if any(offset):
            beside = _shifted(grid, offset)
            # a plateau counts once, where it is reached first
            lowest &= (grid < beside - room) if offset < (0,) * d else (grid <= beside + room)
            if sum(map(abs, offset)) == 1:
                gaps[offset] = beside.reshape(-1)[index] - values[index]
    found = Whole(at(index), values[index], violations[index], jnp.maximum(jnp.sum(lowest, dtype=jnp.int32), 1),
                  jnp.sum(tie, dtype=jnp.int32) > 1, jnp.full((), count, jnp.int32))
    below, above = (jnp.stack([gaps[tuple(sign * int(i == j) for i in range(d))] for j in range(d)])
                    for sign in (-1, 1))
    kept = iter(leaf[index] for leaf in more)
    return Table(found, below, above, jax.tree.map(
        lambda shape: next(kept) if shape.size else jnp.zeros(shape.shape, shape.dtype), shapes))


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
        used: Array

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
                     jnp.where(better, least, state.violation), stride, ended, tied & ended, state.used + 1)

    found, violation = value(start)
    begin = State(start, jnp.where(jnp.isnan(found), jnp.inf, found), violation, jnp.full((), widest, jnp.int32),
                  jnp.zeros((), bool), jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    end = lax.while_loop(lambda s: ~s.ended & (s.used < MOVES), look, begin)
    return Whole(end.k, end.value, end.violation, jnp.ones((), jnp.int32), end.tied, end.used * len(cube))


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


class Refined(NamedTuple):
    """A whole point after :func:`refine`, and its neighbours: (d,) one less, one more; infinite outside the box."""

    k: Array
    value: Array
    constraints: Array  # (C,)
    gap_below: Array
    gap_above: Array


def refine(function: Callable[[Array], tuple[Array, Array]], violation: Callable[[Array], Array], found: Whole,
           space: Space) -> Refined:
    """On from ``found`` among tied points, one at a time, while the derivative says that the next one is better.

    ``function``: real (d,) -> value, constraints. A step f(k + 1) - f(k) is taken as the integral of the derivative
    between the two: where f is smooth there, that is exact to the rounding of the derivative, however small the step is
    beside f. An integral over a kink contradicts the difference of the values, and gives way to it. A step below the
    rounding of its own integral is 0.
    """
    first, last = (jnp.asarray(b, jnp.int32) for b in (space.first, space.last))
    d, dtype = space.first.size, found.value.dtype
    nodes, weights = jnp.asarray(NODES / 2, dtype), jnp.asarray(WEIGHTS / 2, dtype)
    shifts = jnp.concatenate([jnp.asarray([-1, 0, 1], dtype), nodes - 0.5, nodes + 0.5])
    ceiling = found.value + noise(found.value)

    def look(k: Array) -> Refined:
        def at(j: Array, shift: Array) -> Any:
            unit = (jnp.arange(d) == j).astype(dtype)
            values, slopes = jax.jvp(function, (k.astype(dtype) + shift * unit,), (unit,))
            return (*values, slopes[0])

        values, constraints, slopes = jax.vmap(lambda j: jax.vmap(functools.partial(at, j))(shifts))(jnp.arange(d))
        values = jnp.where(jnp.isnan(values), jnp.inf, values)
        here = values[0, 1]

        def step(side: int, rows: Array, sign: int, outside: Array) -> Array:
            plain = values[:, side] - here
            parts = rows * weights[None]
            total, size = sign * jnp.sum(parts, axis=1), jnp.sum(jnp.abs(parts), axis=1)
            total = jnp.where(jnp.abs(total) > ROUNDING * jnp.finfo(dtype).eps * size, total, 0)
            agrees = jnp.isfinite(plain) & (jnp.abs(total - plain) <= 4 * noise(here) + 1e-6 * jnp.abs(plain))
            allowed = ~outside & (jax.vmap(violation)(constraints[:, side]) <= found.violation)
            return jnp.where(allowed, jnp.where(agrees, total, plain), jnp.inf)

        count = 3 + len(NODES)
        below = step(0, slopes[:, 3:count], -1, k <= first)
        above = step(2, slopes[:, count:], 1, k >= last)
        return Refined(k, here, constraints[0, 1], below, above)

    class State(NamedTuple):
        at: Refined
        next: Array
        ended: Array
        used: Array

    def on(state: State) -> State:
        new = look(state.next)
        good = (state.used == 0) | (new.value <= ceiling)
        at = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, state.at)
        gains = jnp.concatenate([at.gap_below, at.gap_above])
        best = jnp.argmin(jnp.where(jnp.isnan(gains), jnp.inf, gains))
        unit = (jnp.arange(d) == best % d).astype(jnp.int32)
        return State(at, at.k + jnp.where(best < d, -unit, unit), ~good | ~(gains[best] < 0) | ~found.tied,
                     state.used + 1)

    nowhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(look, found.k))
    begin = State(nowhere, found.k, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    return lax.while_loop(lambda s: ~s.ended & (s.used < MOVES), on, begin).at
