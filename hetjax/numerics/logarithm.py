"""Logarithms made of vector arithmetic only.

The float64 logarithm of the XLA CPU backend is a call of the scalar library function for every element; this one is an
exponent taken from the bits, one division and a polynomial:

    x = 2^e y with y in [sqrt(1/2), sqrt 2),   ln x = e ln 2 + 2 s p(s^2),
    s = (y - 1)/(y + 1),   p(z) = atanh(sqrt z)/sqrt z.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.polynomial import polynomial

# (p(z) - 1)/z on [0, (sqrt 2 - 1)^4], near-minimax, highest power first: error of p below 5e-18 and 3e-9
_ATANH = {
    np.dtype(np.float64): (0.07308224842544453, 0.07665860800275845, 0.0909144456263094, 0.11111105567397539,
                           0.14285714312987743, 0.19999999999949752, 0.3333333333333335),
    np.dtype(np.float32): (0.14789974696003785, 0.19994390283010352, 0.33333342519787934),
}
_LAYOUT: dict[Any, tuple[Any, int, int]] = {  # integer type of that width, mantissa bits, bit pattern of sqrt(1/2)
    np.dtype(np.float64): (np.int64, 52, 0x3FE6A09E667F3BCD),
    np.dtype(np.float32): (np.int32, 23, 0x3F3504F3),
}


def atanh_over(z: jax.Array) -> jax.Array:
    """atanh(sqrt z)/sqrt z for 0 <= z <= (sqrt 2 - 1)^4 = 0.0294, an analytic function of z.

    >>> import jax.numpy as jnp
    >>> round(float(atanh_over(jnp.asarray(0.01))), 6)
    1.003353
    """
    return 1 + z * atanh_rest(z)


def atanh_rest(z: jax.Array) -> jax.Array:
    """(atanh(sqrt z)/sqrt z - 1)/z, in the same range.

    >>> import jax.numpy as jnp
    >>> round(float(atanh_rest(jnp.asarray(0.01))), 6)
    0.335348
    """
    return polynomial(_ATANH[np.dtype(z.dtype)], z)


def split_exponent(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(e, y) with x = 2^e y and y in [sqrt(1/2), sqrt 2), both of x's dtype, for positive normal x; no derivative."""
    kind, width, root = _LAYOUT[np.dtype(x.dtype)]
    bits = jax.lax.bitcast_convert_type(x, kind) - kind(root)
    y = jax.lax.bitcast_convert_type((bits & kind((1 << width) - 1)) + kind(root), x.dtype)
    return (bits >> kind(width)).astype(x.dtype), y


@jax.custom_jvp
def log_near_one(x: jax.Array, excess: jax.Array) -> jax.Array:
    """ln x of a positive normal number whose ``excess`` x - 1 is known more exactly than x itself.

    Accurate to two units in the last place whatever x is, if ``excess`` is right where 1/2 < x < 2 and ``x`` elsewhere.
    Derivative: d ln x = d(excess)/x.

    >>> import jax.numpy as jnp
    >>> float(log_near_one(jnp.float32(1.0), jnp.float32(1e-20)))
    9.999999682655225e-21
    """
    exponent, y = split_exponent(x)
    s = jnp.where(exponent == 0, excess, y - 1) / (y + 1)
    return exponent * np.log(2.0).astype(x.dtype) + 2 * (s * atanh_over(s * s))


@log_near_one.defjvp
def _log_near_one_jvp(primals: Any, tangents: Any) -> Any:
    x, excess = primals
    return jax.lax.optimization_barrier(log_near_one(x, excess)), tangents[1] / x


def log(x: jax.Array) -> jax.Array:
    """ln x for positive normal numbers (no zeros, subnormals, infinities or NaN: they give no meaningful number).

    >>> import jax.numpy as jnp
    >>> round(float(log(jnp.asarray(10.0))), 5)
    2.30259
    """
    return log_near_one(x, x - 1)


def log1p(excess: jax.Array) -> jax.Array:
    """ln(1 + excess) for excess > -1, within the range of :func:`log`.

    >>> import jax.numpy as jnp
    >>> float(log1p(jnp.float32(1e-20)))
    9.999999682655225e-21
    """
    return log_near_one(1 + excess, excess)
