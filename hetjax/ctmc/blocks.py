"""What the eliminations by levels share: blocks that may be diagonal, masks, and exact powers of two."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc import elimination, panels
from hetjax.ctmc.elimination import reduce, total
from hetjax.ctmc.generator import Levels

LARGE = 24  # phases; beyond, points first and matrix products


def prepare(levels: Levels) -> Levels:
    """One floating dtype, and no rates of phases that do not exist."""
    dtype = jnp.result_type(*levels[:3])
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
    up, local, down = (jnp.asarray(x, dtype) for x in levels[:3])
    if levels.mask is None:
        return Levels(up, local, down)
    mask = jnp.asarray(levels.mask)
    points = local.shape[3:]
    mask = mask.reshape(*mask.shape, *[1] * (len(points) + 2 - mask.ndim))
    mask = jnp.broadcast_to(mask, (*local.shape[:2], *points))
    real = mask.astype(dtype)
    above, below = jnp.roll(real, -1, 0), jnp.roll(real, 1, 0)

    def between(block: jax.Array, other: jax.Array) -> jax.Array:
        return block * real[:, :, None] * other[:, None] if block.ndim == local.ndim else block * real * other

    return Levels(between(up, above), between(local, real), between(down, below), mask)


def power_of_two(exponent: jax.Array, dtype: Any) -> jax.Array:
    """2^exponent for exponents <= 0, exactly 0 below the normal range."""
    info = jnp.finfo(dtype)
    kind = jnp.int64 if info.bits == 64 else jnp.int32
    biased = jnp.maximum(exponent.astype(kind) + (info.maxexp - 1), 0)
    return lax.bitcast_convert_type(biased << info.nmant, dtype)


def binary_exponent(x: jax.Array) -> jax.Array:
    """The binary exponent (int32) of x >= 0; that of the smallest normal number for 0."""
    info = jnp.finfo(x.dtype)
    kind = jnp.int64 if info.bits == 64 else jnp.int32
    bits = lax.bitcast_convert_type(lax.stop_gradient(x), kind) >> info.nmant
    return jnp.clip(bits - (info.maxexp - 1), info.minexp + 1, info.maxexp - 2).astype(jnp.int32)


def scale_down(x: jax.Array, exponent: jax.Array) -> jax.Array:
    """x[i] 2^-exponent for an exponent of either sign."""
    down = power_of_two(-jnp.maximum(exponent, 0), x.dtype)
    up = 1 / power_of_two(jnp.minimum(exponent, 0), x.dtype)
    return x * (down * up)[None]


def step_blocks(levels: Levels) -> tuple[jax.Array, ...]:
    """What step l of the elimination reads, l = 1..L-1: down_l, local_{l-1}, up_{l-1}."""
    return levels.down[1:], levels.local[:-1], levels.up[:-1]


def full_block(block: jax.Array, like: jax.Array) -> jax.Array:
    """The (S, S, ...) matrix of one block that may be given by its diagonal."""
    if block.ndim == like.ndim:
        return block
    zero = jnp.zeros_like(block[0])
    S = block.shape[0]
    return jnp.stack([jnp.stack([block[i] if i == j else zero for j in range(S)]) for i in range(S)])


def block_times(block: jax.Array, x: jax.Array) -> jax.Array:
    """block @ x for a block (S, S, ...), or the diagonal (S, ...) of one, and x (S, m, ...)."""
    if block.ndim < x.ndim:
        return block[:, None] * x
    if x.ndim == 2 and block.shape[0] > LARGE:
        return block @ x
    return total([block[:, k][:, None] * x[k][None] for k in range(block.shape[0])])


def law_times(law: jax.Array, block: jax.Array) -> jax.Array:
    """``law @ block`` for a law (S, ...) and a block (S, S, ...), or the diagonal (S, ...) of one."""
    if block.ndim == law.ndim:
        return law * block
    return law @ block if law.ndim == 1 and law.shape[0] > LARGE else reduce(jnp.add, law[:, None] * block)


def exit_rates(block: jax.Array, like: jax.Array) -> jax.Array:
    """The row sums (S, ...) of a block that may be given by its diagonal."""
    return block if block.ndim < like.ndim else total([block[:, k] for k in range(block.shape[1])])


def legal_rates(local: jax.Array, *blocks: jax.Array) -> jax.Array:
    """Whether all rates are >= 0 (NaN is not), without the diagonal of local."""
    S = local.shape[0]
    diagonal = jnp.eye(S, dtype=bool).reshape(S, S, *[1] * (local.ndim - 2))
    square = [block >= 0 for block in blocks if block.ndim == local.ndim]
    rows = reduce(jnp.logical_and, functools.reduce(jnp.logical_and, square, (local >= 0) | diagonal))
    rows = functools.reduce(jnp.logical_and, [block >= 0 for block in blocks if block.ndim < local.ndim], rows)
    return reduce(jnp.logical_and, rows)


def missing_phases(mask: jax.Array | None) -> jax.Array | int:
    """How many phases of the levels from 1 on do not exist."""
    return 0 if mask is None else jnp.sum(~mask[1:], axis=(0, 1), dtype=jnp.int32)


def block_size(levels: Levels, *_: Any) -> int:
    """Points whose stored levels fit the cache together (measured on CPU)."""
    phases = levels.local.shape[1]
    return 128 if phases == 1 else 64 if phases <= 4 else 16


def points_together(phases: int) -> int:
    """Points of which one level at a time fits the cache."""
    return 64 if phases <= 4 else 32


def close(rates: jax.Array, mask: jax.Array | None) -> jax.Array:
    """The rates of the chain watched on level 0, where phases that do not exist lead to one that does."""
    if mask is None:
        return rates
    real = mask[0]
    lead = jnp.arange(rates.shape[0]).reshape(-1, *[1] * (real.ndim - 1)) == jnp.argmax(real, axis=0)[None]
    return jnp.where(real[:, None], rates, lead[None].astype(rates.dtype))


def measure(rates: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The stationary measure of a closed chain (S, S, ...), and whether it is the only one."""
    form = panels.stationary_measure if rates.shape[0] > LARGE else elimination.stationary_measure
    law, zeros = form(rates)
    unique = lax.cond(jnp.any(zeros > 0), elimination.has_one_class, lambda r: jnp.ones(r.shape[2:], bool),
                      elimination.steps(rates))
    return law, unique
