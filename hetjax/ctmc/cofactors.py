"""Up to three phases: the elimination by levels in closed form, a few products and one division a level.

With W the rates inside a level, e the rates down out of its phases and M = diag(e + W 1) - W, the inverse is
N = adj M / det M, and both have only positive terms (matrix-tree theorem: adj M[i, j] sums over the forests of which
one tree leads from i to j and all others to the exit). For two phases

    adj M = [e_1 + W_10, W_01; W_10, e_0 + W_01],    det M = sum_j adj M[i, j] e_j for any i,

and for three an entry is a sum of a few products, see :func:`adjugate`. So nothing is subtracted, and each entry keeps
its relative accuracy, as with :mod:`hetjax.ctmc.elimination`, but there is one division instead of S, and nothing waits
for it. T_l = U_l N_{l+1} is all that level l need know of those above:

    W_l = A_l + T_l D_{l+1},    M_l = f_l + T_l M_{l+1},    pi_{l+1} = pi_l T_l.

The price is range: S rates are multiplied before the division. Points where a positive number of a level is below
2^(minexp/S), or anything else is unusual (a phase that never leaves, phases of very different weight, a negative rate,
a number that is not finite), are marked; for these the callers compute the law, which then also gives the status.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc.blocks import binary_exponent, power_of_two, scale_down
from hetjax.ctmc.elimination import inverse_pivot, total
from hetjax.numerics.hold import hold

PHASES = 3  # at most

Rows = list[list[Any]]  # entries (points), None where there is none by construction
Read = Callable[[Any], tuple[jax.Array, ...]]


class _Carry(NamedTuple):
    rates: Rows
    collected: Rows  # mass and rewards above, times 2^-exponent
    exponent: jax.Array
    signs: jax.Array  # an integer that is negative if any rate was
    least: jax.Array  # the smallest positive number that was multiplied, as an unsigned integer
    inverse: jax.Array  # the smallest inverse determinant, 0 if a phase never leaves
    faint: jax.Array  # the smallest mass, at its scale


def entries(block: jax.Array, points: int, diagonal: bool = True) -> Rows:
    """The entries of a block (S, S, ...), or of one given by its diagonal (S, ...), with ``points`` axes of points."""
    S = block.shape[0]
    if block.ndim == points + 1:
        return [[block[i] if i == j else None for j in range(S)] for i in range(S)]
    return [[block[i, j] if diagonal or i != j else None for j in range(S)] for i in range(S)]


def product(left: Rows, right: Rows, first: Rows | None = None, diagonal: bool = True) -> Rows:
    """first + left @ right; without its diagonal if that is of no interest."""
    rows: Rows = []
    for i, row in enumerate(left):
        rows.append([])
        for j in range(len(right[0])):
            terms = [] if first is None else [first[i][j]]
            terms += [x * right[k][j] for k, x in enumerate(row) if x is not None and right[k][j] is not None]
            rows[-1].append(total(terms) if diagonal or i != j else None)
    return rows


def adjugate(rates: Rows, exits: Sequence[jax.Array]) -> Rows:
    """adj(diag(exits + rates 1) - rates) for one to three states."""
    n, W, e = len(exits), rates, exits
    if n == 1:
        return [[jnp.ones_like(e[0])]]
    if n == 2:
        return [[e[1] + W[1][0], W[0][1]], [W[1][0], e[0] + W[0][1]]]
    adj: Rows = [[None] * 3 for _ in range(3)]
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        adj[i][i] = (e[j] + W[j][i]) * (e[k] + W[k][i] + W[k][j]) + W[j][k] * (e[k] + W[k][i])
        adj[i][j] = W[i][j] * (e[k] + W[k][i] + W[k][j]) + W[i][k] * W[k][j]
        adj[i][k] = W[i][k] * (e[j] + W[j][i] + W[j][k]) + W[i][j] * W[j][k]
    return adj


def _bits(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(lax.stop_gradient(x), jnp.int64 if x.dtype == jnp.float64 else jnp.int32)


def _unsigned(x: jax.Array) -> jax.Array:
    """The order of positive floats, with 0 above all of them."""
    kind = jnp.uint64 if x.dtype == jnp.float64 else jnp.uint32
    return lax.bitcast_convert_type(lax.stop_gradient(x), kind) - jnp.ones((), kind)


def signs(blocks: Sequence[Rows], so_far: jax.Array) -> jax.Array:
    """Negative if ``so_far`` is or a rate is (also -0.0; NaN shows in the results)."""
    for rows in blocks:
        for row in rows:
            for x in row:
                so_far = so_far if x is None else so_far | _bits(x)
    return so_far


def least(numbers: Sequence[Any], so_far: jax.Array) -> jax.Array:
    """The smallest positive number, as :func:`_unsigned`."""
    for x in numbers:
        so_far = so_far if x is None else jnp.minimum(so_far, _unsigned(x))
    return so_far


def in_range(smallest: jax.Array, dtype: Any, S: int) -> jax.Array:
    """Whether products of S numbers not below ``smallest`` are normal numbers."""
    return smallest >= _unsigned(jnp.asarray(2.0 ** (jnp.finfo(dtype).minexp // S + 1), dtype))


def _extremes(numbers: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    most = least = numbers[0]
    for x in numbers[1:]:
        most, least = jnp.maximum(most, x), jnp.minimum(least, x)
    return most, least


def transfer(rates: Rows, down: Rows, up: Rows) -> tuple[Rows, Rows, list[jax.Array], jax.Array]:
    """T = U N, U adj M, the exit rates, and 1/det (0 where it is not a positive finite number)."""
    exits = [total([x for x in row if x is not None]) for row in down]
    if len(exits) == 1:  # nothing is shared but the quotient
        inverse = hold(inverse_pivot(exits[0]))
        return [[up[0][0] * inverse]], up, exits, inverse
    exits = hold(exits)
    adj = adjugate(rates, exits)
    if len(exits) > 2:
        adj = hold(adj)
    determinant = total([a * e for a, e in zip(adj[0], exits, strict=True)])
    inverse = hold(inverse_pivot(determinant))
    steps = product(up, adj)
    return hold([[x * inverse for x in row] for row in steps]), steps, exits, inverse


def expectation(top: tuple[jax.Array, jax.Array], steps: Any, read: Read) -> tuple[jax.Array, jax.Array]:
    """Stationary means (k, ...), and at which points they are right; the points are the last axes.

    ``top`` holds local (S, S, ...) and rewards (k, S, ...) of the last level; ``read`` turns each of ``steps``,
    l = 1..L-1, into down_l, local_{l-1}, up_{l-1}, rewards_{l-1}.
    """
    local, rewards = top
    S, points, dtype = local.shape[0], local.ndim - 2, local.dtype
    zero = jnp.zeros(local.shape[2:], dtype)
    smallest = float(jnp.finfo(dtype).tiny / jnp.finfo(dtype).eps)  # below, numbers may have lost digits

    def columns(rewards: jax.Array, mass: jax.Array) -> Rows:
        return [[mass] + [r[i] * mass for r in rewards] for i in range(S)]

    def levels(carry: _Carry, group: Any, several: int) -> tuple[_Carry, None]:
        """``several`` levels between two changes of scale."""
        rates, collected, unit = carry.rates, carry.collected, power_of_two(-carry.exponent, dtype)
        negative, multiplied, smallest_inverse, faint = carry.signs, carry.least, carry.inverse, carry.faint
        for level in reversed([jax.tree.map(lambda x, i=i: x[i], group) for i in range(several)]):
            down, local, up, rewards = read(level)
            D, A, U = entries(down, points), entries(local, points, diagonal=False), entries(up, points)
            T, _, exits, inverse = transfer(rates, D, U)
            small = [x for row in rates for x in row] + exits if S > 1 else []
            negative, multiplied = signs([D, A, U], negative), least(small, multiplied)
            smallest_inverse = jnp.minimum(smallest_inverse, inverse)
            rates, collected = product(T, D, A, diagonal=False), product(T, collected, columns(rewards, unit))
            if S > 1:
                rates, collected = hold((rates, collected))
            faint = jnp.minimum(faint, _extremes([row[0] for row in collected])[1])
        shift = jnp.maximum(binary_exponent(_extremes([row[0] for row in collected])[0]), 0)
        factor, shift = hold((power_of_two(-shift, dtype), shift))
        collected = [[x * factor for x in row] for row in collected]
        faint = jnp.minimum(faint, _extremes([row[0] for row in collected])[1])
        return _Carry(rates, collected, carry.exponent + shift, negative, multiplied, smallest_inverse, faint), None

    count = jax.tree.leaves(steps)[0].shape[0]
    several = 4 if S == 1 else 2  # more take longer to compile and are no faster
    start = _Carry(entries(local, points, diagonal=False), columns(rewards, zero + 1), zero.astype(jnp.int32),
                   signs([entries(local, points, diagonal=False)], _bits(zero)), _unsigned(zero), zero + 1, zero + 1)
    rest = count % several
    if rest:
        start, _ = levels(start, jax.tree.map(lambda x: x[count - rest:], steps), rest)
    groups = jax.tree.map(lambda x: x[:count - rest].reshape(-1, several, *x.shape[1:]), steps)
    last, _ = lax.scan(lambda carry, group: levels(carry, group, several), start, groups, reverse=True)
    ends = adjugate(last.rates, [zero] * S)[0]
    sums = [total([p * row[c] for p, row in zip(ends, last.collected, strict=True)]) for c in range(len(rewards) + 1)]
    values = jnp.stack([s / sums[0] for s in sums[1:]])
    most, faint = _extremes(ends)
    multiplied = least([x for row in last.rates for x in row], last.least)
    good = (last.signs >= 0) & in_range(multiplied, dtype, S) & (last.inverse > 0) & (last.faint >= smallest)
    good = good & (faint / most >= smallest)
    good = good & (sums[0] / most >= smallest)
    return values, good & jnp.all(jnp.isfinite(values), axis=0)


def law(local: jax.Array, steps: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The law (L, S, ...) 2^exponent (L, ...), not normalised, and at which points it is right.

    ``local`` (S, S, ...) is that of the last level, ``steps`` the down_l, local_{l-1}, up_{l-1} of l = 1..L-1. Right
    means that no positive number was lost on the way: besides what :func:`expectation` asks, every positive T and every
    positive probability, over the largest of its level, is so large that their product is a normal number.
    """
    S, points, dtype = local.shape[0], local.ndim - 2, local.dtype
    zero = jnp.zeros(local.shape[2:], dtype)

    def descend(carry: Any, blocks: Any) -> tuple[Any, Any]:
        rates, sign, multiplied, moved, stuck = carry
        down, local, up = blocks
        D, A, U = entries(down, points), entries(local, points, diagonal=False), entries(up, points)
        T, undivided, exits, inverse = transfer(rates, D, U)
        for row, whole in zip(T, undivided, strict=True):
            moved = least(row, moved)
            for x, y in zip(row, whole, strict=True):
                stuck = stuck | ((x == 0) & (y > 0))
        numbers = [x for row in [*rates, *U] for x in row] + exits if S > 1 else []
        carry = (product(T, D, A, diagonal=False), signs([D, A, U], sign), least(numbers, multiplied), moved,
                 stuck | (inverse == 0))
        return carry, jnp.stack([jnp.stack(row) for row in T])

    top = entries(local, points, diagonal=False)
    start = (top, signs([top], _bits(zero)), _unsigned(zero), _unsigned(zero), zero != 0)
    (rates, sign, multiplied, moved, stuck), transfers = lax.scan(descend, start, steps, reverse=True)
    ends = jnp.stack(adjugate(rates, [zero] * S)[0])
    multiplied = least([x for row in rates for x in row], multiplied)

    def scaled(law: jax.Array, shift: jax.Array) -> jax.Array:
        return hold(scale_down(law, shift))

    def climb(carry: Any, T: jax.Array) -> tuple[Any, Any]:
        below, exponent, faint = carry
        here = hold([total([below[i] * T[i, j] for i in range(S)]) for j in range(S)])
        shift = binary_exponent(_extremes(here)[0])
        here = scaled(jnp.stack(here), shift)
        return (here, exponent + shift, least(list(here), faint)), (here, exponent + shift)

    shift = binary_exponent(_extremes(list(ends))[0])
    first = scaled(ends, shift)
    none = jnp.zeros_like(shift)
    positive = _extremes(list(first))[1] > 0
    (_, _, faint), (law, exponent) = lax.scan(climb, (first, none, least(list(first), _unsigned(zero))), transfers)
    good = (sign >= 0) & in_range(multiplied, dtype, S) & ~stuck & positive
    good = good & in_range(moved, dtype, 2) & in_range(faint, dtype, 2)
    law, exponent = jnp.concatenate([first[None], law]), jnp.concatenate([none[None], exponent])
    return law, exponent, good & jnp.all(jnp.isfinite(law), axis=(0, 1))
