"""Sums of powers under a geometric weight, S_i = sum_s s^i e^{xs}, i = 0..3, with a real number of terms.

In the names of geometric.py: S_0 = g H_0 with g = e^x/F_0 where the sum goes from 1 to K, 1/F_0 from 0 to K - 1. Each
S_i is the x-derivative of the one before. With f = F_1/F_0 and u = g'/g, that is 1 - f or -f,

    S_1 = g (H_1 + u H_0),    S_2 = g (H_2 + 2 u H_1 + c_2 H_0),    S_3 = g (H_3 + 3 u H_2 + 3 c_2 H_1 + c_3 H_0),
    c_2 = u^2 - f',           c_3 = u (c_2 - 2 f') - f'',

and the K-derivative of S_0 is kappa = g e^{xK}, of which kappa_x = kappa (K + u), kappa_xx = kappa ((K + u)^2 - f').
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.geometric import BERNOULLI, Parts
from hetjax.numerics.hold import hold
from hetjax.numerics.polynomial import polynomial


class PowerSums(NamedTuple):
    """``sums`` = (S_0, S_1, S_2, S_3) and ``edge`` = (kappa, kappa_x, kappa_xx), so that along the number of terms
    S_0 goes with kappa, S_1 with kappa_x, S_2 with kappa_xx."""

    sums: tuple[jax.Array, ...]
    edge: tuple[jax.Array, ...]


def power_sums(x: jax.Array, ratio: jax.Array, terms: jax.Array, decay: jax.Array, parts: Parts,
               from_zero: jax.Array | bool, order: int = 3) -> PowerSums:
    """The sums up to S_``order`` (2 or 3), s = 1..K, or s = 0..K-1 where ``from_zero``, from those of geometric.py.

    K = ``terms`` >= 0 may be any real number, x <= 0, ``ratio`` = e^x, ``decay`` = e^{xK}; ``parts`` as
    :func:`hetjax.numerics.geometric.geometric_sums` finds them. The edge has ``order`` entries. O(1).

    >>> import jax.numpy as jnp
    >>> from hetjax.numerics.geometric import geometric_sums
    >>> one, zero, three = jnp.ones(()), jnp.zeros(()), jnp.full((), 3.0)
    >>> parts = geometric_sums(zero, one, three, one).parts
    >>> [float(s) for s in power_sums(zero, one, three, one, parts, False).sums]
    [3.0, 6.0, 14.0, 36.0]
    """
    h0, h1, g, f = parts
    near = x > -1
    small = jnp.where(near, x * x, 0)
    steep, gap = jnp.where(near, 1, x), jnp.where(near, 1, ratio - 1)
    inverse = 1 / (steep * gap)
    per, turn = gap * inverse, steep * inverse  # 1/x, 1/(e^x - 1)
    f1 = jnp.where(near, _series(small, 1), per * per - ratio * turn * turn)
    g = g * jnp.where(from_zero, jnp.ones_like(x), ratio)
    u = jnp.where(from_zero, -f, 1 - f)
    g, u, f1 = hold((g, u, f1))
    c2 = u * u - f1
    kappa = g * decay
    away = terms + u
    edge = (kappa, kappa * away, kappa * (away * away - f1))
    h = _higher_moments(x, terms, decay, h1, order)
    sums = (g * h0, g * (h1 + u * h0), g * (h[0] + 2 * u * h1 + c2 * h0))
    if order == 2:
        return PowerSums(sums, edge[:2])
    f2 = jnp.where(near, x * _series(small, 2), turn * (ratio * (ratio + 1) * turn * turn) - 2 * per * per * per)
    c3 = u * (c2 - 2 * f1) - f2
    return PowerSums((*sums, g * (h[1] + 3 * (u * h[0] + c2 * h1) + c3 * h0)), edge)


def _series(z: jax.Array, derivative: int) -> jax.Array:
    """The derivatives of x c(x) (geometric.py), over x if second, as series in z = x^2 < 1."""
    terms = 6 if np.dtype(z.dtype) == np.float32 else 10
    falling = [(2 * k + 1) * (2 * k if derivative == 2 else 1) * BERNOULLI[k] for k in range(derivative - 1, terms)]
    return polynomial(falling[::-1], z)


def _higher_moments(x: jax.Array, length: jax.Array, decay: jax.Array, h1: jax.Array, order: int) -> list[jax.Array]:
    """H_2 (and H_3): downwards from a power series where s = -xK is small; elsewhere upwards, losing 1/s a step."""
    s = -x * length
    near = s < (0.5 if order == 2 else 1)
    small = jnp.where(near, s, 0)
    terms = (8 if order == 2 else 10) if np.dtype(x.dtype) == np.float32 else 14 if order == 2 else 18
    low = polynomial([(-1) ** i / (math.factorial(i) * (order + 1 + i)) for i in reversed(range(terms))], small)
    per = 1 / jnp.where(near, jnp.ones_like(s), s)
    square = length * length
    cube = square * length
    # over K^(i+1): J_i = int_0^1 t^i e^{-st} dt, (i+1) J_i = e^{-s} + s J_{i+1}
    up = (2 * length * h1 - cube * decay) * per
    if order == 2:
        return [hold(jnp.where(near, low * cube, up))]
    h2 = hold(jnp.where(near, (decay + small * low) * (1 / 3) * cube, up))
    return [h2, hold(jnp.where(near, low * cube, (3 * h2 - cube * decay) * per) * length)]
