"""Smooth maps of unbounded variables u onto a box or a simplex: x = x(u).

    low <= x <= high    x = low + (high - low) s(u), or low (high/low)^s(u) on a wide positive interval
    low <= x            x = low + softplus(u);     x <= high    x = high - softplus(u)
    sum x = 1, x >= 0   x = softmax(u)

s is the logistic function. An optimum on a bound lies at infinity here: the loops come close, and the Newton steps that
follow (:mod:`hetjax.optimize.newton`) put it there.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.optimize.space import LOGARITHMIC, Space

Array = jax.Array
INSIDE = 1e-3  # a start on a bound, where the maps have no slope, moves inside by this part of the interval


def _kinds(space: Space) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    left, right = np.isfinite(space.low), np.isfinite(space.high)
    with np.errstate(all="ignore"):
        wide = left & right & (space.low > 0) & (space.high > LOGARITHMIC * space.low)
    return wide, left & right, left, right


def _ends(space: Space, dtype: jnp.dtype) -> tuple[Array, Array]:
    """The bounds, harmless where they are infinite."""
    low, high = (np.where(np.isfinite(b), b, 0) for b in (space.low, space.high))
    return jnp.asarray(low, dtype), jnp.asarray(high, dtype)


def constrained(space: Space, u: Array) -> Array:
    """x(u), (n,)."""
    wide, both, left, right = map(jnp.asarray, _kinds(space))
    low, high = _ends(space, u.dtype)
    share = jax.nn.sigmoid(u)
    ratio = jnp.log(jnp.where(wide, high / jnp.where(wide, low, 1), 1))
    x = jnp.where(left, low + jax.nn.softplus(u), jnp.where(right, high - jax.nn.softplus(u), u))
    x = jnp.where(both, low + (high - low) * share, x)
    x = jnp.where(wide, low * jnp.exp(ratio * share), x)
    x = jnp.where(both, jnp.clip(x, low, high), x)  # rounding
    for group in space.groups.astype(bool):
        at = np.flatnonzero(group)
        x = x.at[at].set(jax.nn.softmax(u[at]))
    return x


def unconstrained(space: Space, x: Array) -> Array:
    """u with x(u) = x, (n,); x on a bound is moved inside first."""
    wide, both, left, right = map(jnp.asarray, _kinds(space))
    low, high = _ends(space, x.dtype)
    ratio = jnp.log(jnp.where(wide, high / jnp.where(wide, low, 1), math.e))
    span = jnp.where(both & (high > low), high - low, 1)
    share = jnp.where(wide, jnp.log(jnp.where(wide, x / jnp.where(wide, low, 1), 1)) / ratio, (x - low) / span)
    share = jnp.clip(share, INSIDE, 1 - INSIDE)
    above = jnp.maximum(jnp.where(left, x - low, high - x), INSIDE)
    u = jnp.where(left | right, above + jnp.log(-jnp.expm1(-above)), x)
    u = jnp.where(both, jnp.log(share / (1 - share)), u)
    for group in space.groups.astype(bool):
        at = np.flatnonzero(group)
        u = u.at[at].set(jnp.log(jnp.maximum(x[at], INSIDE / len(at))))
    return u
