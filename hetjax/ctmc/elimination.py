"""Subtraction-free elimination: what every direct solver of this package is made of.

For off-diagonal rates W >= 0 between n states and exit rates e >= 0 out of them, let
``N = (diag(e + W 1) - W)^-1``; ``N[i, j]`` is the expected time spent in j before leaving, starting in i.
States are eliminated from the last to the first. The pivot of state k is the sum of what is left of its row,
``s_k = e_k + sum_{j<k} W[k, j]`` (Grassmann, Taksar and Heyman, Oper. Res. 33, 1985): diagonals are never read and
nothing is ever subtracted, so every entry keeps its relative accuracy, however nearly decomposable the chain is
(O'Cinneide, Numer. Math. 65, 1993). Rows are divided by their pivot first; the quotients are probabilities, so the
elimination cannot overflow.

Arrays are *points last*: states on the leading axes, any number of trailing axes for independent problems, which
are vectorised over. Pivots are taken in blocks of four: inside a block everything is unrolled, the rest of the matrix
gets one fused rank-4 update. A pivot 0 marks a state that never leaves the states after it (or padding): its row is
replaced by zeros, and :func:`apply_left` starts the stationary mass there.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.numerics.hold import hold

PIVOTS = 4  # states eliminated between two updates of the rest of the matrix
UNROLLED = 32  # states; beyond, compiling what is written out takes longer (4 s at 32, 47 s at 36)


class _Block(NamedTuple):
    """The finished rows of one block of pivots."""

    low: int
    core: dict[tuple[int, int], jax.Array]  # below the diagonal: row / pivot; above it: rates when eliminated
    row: dict[int, jax.Array]  # columns before the block: row / pivot
    column: dict[int, jax.Array]  # rows before the block: rates when eliminated
    inverse: dict[int, jax.Array]  # 1 / pivot
    right: dict[int, jax.Array]  # right-hand sides / pivot


def inverse_pivot(pivot: jax.Array) -> jax.Array:
    """1/pivot, and 0 for a pivot that is 0 (NaN stays NaN), with finite derivatives."""
    zero = pivot == 0
    return jnp.where(zero, jnp.zeros_like(pivot), 1 / jnp.where(zero, jnp.ones_like(pivot), pivot))


def off_diagonal(matrix: jax.Array) -> jax.Array:
    """A square matrix with zeros on its diagonal. Subtracting the diagonal leaves rounding there where the compiler
    computes it twice and fuses once: rates below zero.

    >>> import jax.numpy as jnp
    >>> off_diagonal(jnp.asarray([[-1.0, 1.0], [2.0, -2.0]])).tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """
    return jnp.where(jnp.eye(matrix.shape[0], dtype=bool), jnp.zeros_like(matrix), matrix)


def total(terms: Sequence[Any]) -> Any:
    """The sum of at least one array, added from left to right."""
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def reduce(operation: Any, x: jax.Array, axis: int = 0) -> jax.Array:
    """``jnp.add``, ``jnp.logical_and`` and the like over one axis of states, vectorised over the points.

    XLA's own reduction on CPU takes the points one by one.
    """
    if x.ndim == 1 or x.shape[axis] > UNROLLED:
        return operation.reduce(x, axis=axis).astype(x.dtype)
    return functools.reduce(operation, [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])])


def _guard(states: int) -> Callable[[Any], Any]:
    """What keeps XLA from computing shared terms repeatedly; one or two states have none."""
    return hold if states > 2 else lambda arrays: arrays


def _bands(n: int) -> list[range]:
    """The states in blocks of pivots, the last states first, as they are eliminated."""
    return [range(max(high - PIVOTS, 0), high) for high in range(n, 0, -PIVOTS)]


def _eliminate(rates: jax.Array, exits: jax.Array | None, right: jax.Array | None) -> list[_Block]:
    """Eliminates all states; the blocks come in the order of elimination (last states first)."""
    n = rates.shape[0]
    guard = _guard(n)
    blocks = []
    for states in _bands(n):
        low = states.start
        core = {(p, q): rates[p, q] for p in states for q in states if p != q}
        row = {p: rates[p, :low] for p in states} if low else {}
        column = {p: rates[:low, p] for p in states} if low else {}
        leave = {} if exits is None else {p: exits[p] for p in states}
        rhs = {} if right is None else {p: right[p] for p in states}
        inverse: dict[int, jax.Array] = {}
        for p in reversed(states):
            terms = ([leave[p]] if leave else []) + [core[p, q] for q in range(low, p)]
            terms += [row[p][q] for q in range(low)]
            inverse[p] = inverse_pivot(total(terms)) if terms else jnp.zeros_like(rates[0, 0])
            core |= {(p, q): core[p, q] * inverse[p] for q in range(low, p)}
            for vector in (row, rhs):
                if vector:
                    vector[p] = vector[p] * inverse[p][None]
            if leave:
                leave[p] = leave[p] * inverse[p]
            core, row, leave, rhs = guard((core, row, leave, rhs))
            for i in range(low, p):
                rate = core[i, p]
                core |= {(i, q): core[i, q] + rate * core[p, q] for q in range(low, p) if q != i}
                for vector in (row, rhs):
                    if vector:
                        vector[i] = vector[i] + rate[None] * vector[p]
                if leave:
                    leave[i] = leave[i] + rate * leave[p]
                if column:
                    column[i] = column[i] + column[p] * core[p, i][None]
        if low:
            core, row, column, leave, rhs = guard((core, row, column, leave, rhs))
            rates = rates[:low, :low] + total([column[p][:, None] * row[p][None] for p in states])
            if exits is not None:
                exits = exits[:low] + total([column[p] * leave[p][None] for p in states])
            if right is not None:
                right = right[:low] + total([column[p][:, None] * rhs[p][None] for p in states])
            rates, exits, right = guard((rates, exits, right))
        blocks.append(_Block(low, core, row, column, inverse, rhs))
    return blocks


def _substitute(blocks: list[_Block]) -> jax.Array:
    """X[k] = right[k] + sum_{j<k} row[k, j] X[j], block by block from the first state on."""
    guard = _guard(3 if len(blocks) > 1 else 0)
    done: list[tuple[int, jax.Array]] = []
    for block in reversed(blocks):
        states = sorted(block.right)
        sums = guard(jnp.stack([block.right[p] for p in states]))
        if block.low:
            rows = guard(jnp.stack([block.row[p] for p in states]))
            for start, x in done:
                sums = guard(sums + total([rows[:, start + k][:, None] * x[k][None] for k in range(x.shape[0])]))
        solved: list[jax.Array] = []
        for p in states:
            inside = [block.core[p, block.low + j][None] * x for j, x in enumerate(solved)]
            solved.append(total([sums[p - block.low], *inside]))
        done.append((block.low, guard(jnp.stack(solved))))
    return done[0][1] if len(done) == 1 else jnp.concatenate([x for _, x in done])


def _pack(blocks: list[_Block]) -> jax.Array:
    """The factors as one (n, n, ...) array: probabilities below the diagonal, 1/pivot on it, rates above it."""
    bands = []
    for block in reversed(blocks):
        states = sorted(block.inverse)
        parts = [jnp.stack([block.row[p] for p in states])] if block.low else []
        parts.append(jnp.stack([jnp.stack([block.inverse[p] if p == q else block.core[p, q] for q in states])
                                for p in states]))
        parts += [jnp.stack([later.column[q][block.low:block.low + len(states)] for q in sorted(later.column)], axis=1)
                  for later in reversed(blocks) if later.low > block.low]
        bands.append(jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0])
    return jnp.concatenate(bands) if len(bands) > 1 else bands[0]


def solve(rates: jax.Array, exits: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``N right`` and the number of pivots 0 (int32). Shapes (n, n, ...), (n, ...), (n, m, ...)."""
    blocks = _eliminate(rates, exits, right)
    zeros = total([(inverse == 0).astype(jnp.int32) for block in blocks for inverse in block.inverse.values()])
    return _substitute(blocks), zeros


def solve_and_factor(rates: jax.Array, exits: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``N right`` and the factors of N, packed as :func:`factor` does."""
    blocks = _eliminate(rates, exits, right)
    return _substitute(blocks), _pack(blocks)


def factor(rates: jax.Array, exits: jax.Array | None = None) -> jax.Array:
    """The factors of N in one (n, n, ...) array: probabilities below the diagonal, 1/pivot on it, rates above it.

    Without ``exits`` the chain is closed: state 0 has pivot 0.
    """
    return _pack(_eliminate(rates, exits, None))


def apply_right(factors: jax.Array, right: jax.Array) -> jax.Array:
    """``N right`` from the factors, for any right (n, m, ...) of either sign."""
    n = factors.shape[0]
    guard = _guard(n)
    before = right
    x: dict[int, jax.Array] = {}
    for states in _bands(n):
        low = states.start
        rows = {p: before[p] for p in states}
        for p in reversed(states):
            rows[p] = rows[p] * factors[p, p][None]
            rows |= {i: rows[i] + factors[i, p][None] * rows[p] for i in range(low, p)}
        rows = guard(rows)
        if low:
            before = guard(before[:low] + total([factors[:low, p][:, None] * rows[p][None] for p in states]))
        x |= rows
    after = jnp.stack([x[p] for p in range(n)])
    for states in reversed(_bands(n)):
        low, high = states.start, states.stop
        for p in states:
            x[p] = total([after[p - low]] + [factors[p, j][None] * x[j] for j in range(low, p)])
        x = guard(x)
        if high < n:
            after = guard(after[high - low:] + total([factors[high:, p][:, None] * x[p][None] for p in states]))
    return jnp.stack([x[p] for p in range(n)])


def apply_left(factors: jax.Array, left: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``left N`` for inflows left >= 0, shape (n, ...): expected times, or a stationary measure where mass is trapped.

    Also returns two integers: how often mass reached a state with pivot 0 (the mass of all states before it, here and
    in earlier levels, is then 0, and the measure starts there with 1), and how many states with pivot 0 no mass reached
    (padding, or a further recurrent class).
    """
    n = factors.shape[0]
    guard = _guard(n)
    before = left
    flow: dict[int, jax.Array] = {}
    for states in _bands(n):
        low = states.start
        here = {p: before[p] for p in states}
        for p in reversed(states):
            here |= {j: here[j] + here[p] * factors[p, j] for j in range(low, p)}
        here = guard(here)
        if low:
            before = guard(before[:low] + total([here[p][None] * factors[p, :low] for p in states]))
        flow |= here
    return _measure(factors, jnp.stack([flow[p] for p in range(n)]))


def _measure(factors: jax.Array, flow: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """x_k = (flow_k + sum_{j<k} x_j rate[j, k]) / pivot_k, and the two numbers of :func:`apply_left`."""
    n = factors.shape[0]
    guard = _guard(n)
    starts = unreached = jnp.zeros(flow.shape[1:], jnp.int32)
    one = jnp.ones_like(flow[0])
    measure = flow[:0]
    for states in reversed(_bands(n)):
        low, high = states.start, states.stop
        x: dict[int, jax.Array] = {}
        keep = one
        for p in states:
            inflow = total([flow[p - low] * keep] + [x[j] * factors[j, p] for j in x])
            trapped = factors[p, p] == 0
            reached = trapped & (inflow > 0)
            stay = jnp.where(reached, jnp.zeros_like(one), one)
            x = {j: v * stay for j, v in x.items()} | {p: jnp.where(reached, one, inflow * factors[p, p])}
            keep = keep * stay
            starts = starts + reached.astype(jnp.int32)
            unreached = unreached + (trapped & ~reached).astype(jnp.int32)
        x, keep, starts, unreached = guard((x, keep, starts, unreached))
        measure = jnp.concatenate([measure * keep[None], jnp.stack([x[p] for p in states])])
        if high < n:
            flow = guard(flow[high - low:] * keep[None] + total([x[p][None] * factors[p, high:] for p in states]))
    return measure, starts, unreached


def stationary_measure(rates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The stationary measure (not normalised) of a closed chain (n, n, ...), and how many states have pivot 0.

    x_0 = 1, x_k = sum_{j<k} x_j rate[j, k] / pivot_k. A state with pivot 0 never returns to those before it. The last
    such state is recurrent (all states after it lead back): mass starts there. If there are none, state 0 is
    recurrent and all states lead to it; else :func:`has_one_class` tells whether the distribution is unique.
    """
    guard = _guard(rates.shape[0])
    zero, one = jnp.zeros_like(rates[0, 0]), jnp.ones_like(rates[0, 0])
    measure: jax.Array | None = None
    zeros = jnp.zeros(rates.shape[2:], jnp.int32)
    for block in reversed(_eliminate(rates, None, None)):
        states = sorted(block.inverse)
        flow = {p: zero if measure is None else reduce(jnp.add, measure * block.column[p]) for p in states}
        x: dict[int, jax.Array] = {0: one} if block.low == 0 else {}
        keep = one
        for p in states[1:] if block.low == 0 else states:
            inflow = total([flow[p] * keep] + [x[j] * block.core[j, p] for j in x])
            trapped = block.inverse[p] == 0
            here = jnp.where(trapped, zero, one)
            x = {j: v * here for j, v in x.items()} | {p: jnp.where(trapped, one, inflow * block.inverse[p])}
            keep = keep * here
            zeros = zeros + trapped.astype(jnp.int32)
        solved = jnp.stack([x[p] for p in states])
        measure = guard(solved if measure is None else jnp.concatenate([measure * keep[None], solved]))
    assert measure is not None
    return measure, zeros


def steps(rates: jax.Array) -> jax.Array:
    """Which states (n, n, ...) lead to which in at most one step."""
    n = rates.shape[0]
    return (rates > 0) | jnp.eye(n, dtype=bool).reshape(n, n, *[1] * (rates.ndim - 2))


def has_one_class(reach: jax.Array) -> jax.Array:
    """Whether the chain with these :func:`steps` has a single recurrent class: all states lead to one of them."""
    n = reach.shape[0]
    for _ in range(max(n - 1, 1).bit_length()):
        paths = reach.astype(jnp.float32)
        reach = jnp.einsum("ij...,jk...->ik...", paths, paths) > 0
    return jnp.any(jnp.all(reach, axis=0), axis=0)
