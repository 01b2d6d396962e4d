"""Cosine and sine made of vector arithmetic only: the float64 ones of the XLA CPU backend call the scalar library.

    x = k pi/2 + y with |y| <= pi/4 (k pi/2 taken off in three parts),  cos y and sin y by their power series.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_HALF_PI = {  # parts of pi/2: the first two have trailing zeros, so that k times them is exact for |k| < 2^20 (2^11)
    np.dtype(np.float64): (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
    np.dtype(np.float32): (1.5703125, 4.837512969970703e-4, 7.549790126404332e-8),
}
_TERMS = {np.dtype(np.float64): 9, np.dtype(np.float32): 5}  # (pi/4)^(2 terms)/(2 terms)! is below the rounding


@jax.custom_jvp
def cos_sin(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(cos x, sin x), right to 2 units in the last place of 1 for |x| < 1e6 (float32: 3e3), beyond only bounded by 2.

    >>> import jax.numpy as jnp
    >>> [round(float(v), 6) for v in cos_sin(jnp.asarray(2.0))]
    [-0.416147, 0.909297]
    """
    kind = np.dtype(x.dtype)
    first, second, third = _HALF_PI[kind]
    turns = jnp.round(x * (2 / math.pi))
    y = ((x - turns * first) - turns * second) - turns * third
    y = jnp.clip(y, -1, 1)  # far outside the range
    z = y * y
    cos = sin = jnp.zeros_like(x)
    for i in range(_TERMS[kind], 0, -1):
        cos = (1 + cos) * (z * (-1 / ((2 * i - 1) * (2 * i))))
        sin = (1 + sin) * (z * (-1 / ((2 * i) * (2 * i + 1))))
    cos, sin = 1 + cos, y + y * sin
    quarter = turns - 4 * jnp.floor(turns / 4)
    odd = (quarter == 1) | (quarter == 3)
    c = jnp.where(odd, sin, cos)
    s = jnp.where(odd, cos, sin)
    return jnp.where((quarter == 1) | (quarter == 2), -c, c), jnp.where(quarter >= 2, -s, s)


@cos_sin.defjvp
def _cos_sin_jvp(primals: Any, tangents: Any) -> Any:
    cos, sin = cos_sin(*primals)
    return (cos, sin), (-sin * tangents[0], cos * tangents[0])
