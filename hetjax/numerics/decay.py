"""e^-s and 1 - e^-s together, of vector arithmetic only, each with full relative accuracy for every s >= 0.

    s = n ln 2 + f with |f| <= ln(2)/2,  e^-f = 1 + p(f),  e^-s = 2^-n (1 + p),  1 - e^-s = (1 - 2^-n) - 2^-n p,

with p = -f + f^2 c(f). Where n = 0, c(s) = (e^-s - 1 + s)/s^2 also gives moments of e^-st without cancellation.

The whole number n appears in the last bits of s/ln 2 + 1.5 2^52 (2^23 in float32), from where it is shifted into an
exponent; so no conversion of floats to integers is needed, which some vector units lack.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.hold import hold
from hetjax.numerics.polynomial import polynomial

# (e^x - 1 - x)/x^2 on |x| <= ln(2)/2, near-minimax, highest power first: error of e^x - 1 below 9e-17 and 3e-9
_SECOND = {
    np.dtype(np.float64): (2.510038549551032e-08, 2.7620088445409746e-07, 2.7557268459997064e-06,
                           2.4801521295954376e-05, 0.00019841269863053618, 0.0013888888917213717, 0.008333333333330062,
                           0.04166666666662413, 0.16666666666666669, 0.5),
    np.dtype(np.float32): (0.000198909908, 0.001393365, 0.00833331093, 0.0416664649, 0.166666667, 0.500000001),
}
# integer type, mantissa bits, ln 2 in two parts (the first with trailing zeros), from which s on e^-s counts as 0
_LAYOUT: dict[Any, tuple[Any, int, float, float, float]] = {
    np.dtype(np.float64): (np.int64, 52, 0.6931471803691238, 1.9082149292705877e-10, 700.0),
    np.dtype(np.float32): (np.int32, 23, 0.693145751953125, 1.428606765330187e-06, 86.0),
}


def decay_parts(s: jax.Array, shared: bool = False) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """:func:`decay_and_rest`, whether n = 0 (s <= ln(2)/2), and there c(s) = (e^-s - 1 + s)/s^2; no derivative.

    ``shared``: several results will be formed from these; the polynomial is then kept and not computed for each.

    >>> import jax.numpy as jnp
    >>> float(decay_parts(jnp.float32(0.0))[3])
    0.5
    """
    kind = np.dtype(s.dtype)
    integer, width, high, low, most = _LAYOUT[kind]
    here = s < most
    s = jnp.minimum(s, most)
    magic = kind.type(1.5 * 2.0**width)
    shifted = s * kind.type(1 / np.log(2.0)) + magic
    n = shifted - magic
    x = (n * high - s) + n * low  # -f
    series = polynomial(_SECOND[kind], x)
    if shared:
        series = jax.lax.optimization_barrier(series)
    p = x + (x * x) * series
    # the bits of `magic` itself leave no trace: its last ones are 0 and the rest is shifted out
    one = jax.lax.bitcast_convert_type(jnp.ones_like(s), integer)
    power = jax.lax.bitcast_convert_type(one - (jax.lax.bitcast_convert_type(shifted, integer) << integer(width)), kind)
    return jnp.where(here, power + power * p, 0), (1 - power) - power * p, n == 0, series


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def decay_and_rest(s: jax.Array, shared: bool = False) -> tuple[jax.Array, jax.Array]:
    """(e^-s, 1 - e^-s) for s >= 0, infinity included; (0, 1) from s = 700 (float32: 86) on; ``shared`` as above.

    >>> import jax.numpy as jnp
    >>> [float(x) for x in decay_and_rest(jnp.float32(1e-20))]
    [1.0, 9.999999682655225e-21]
    """
    return decay_parts(s, shared)[:2]


@decay_and_rest.defjvp
def _decay_and_rest_jvp(_shared: bool, primals: Any, tangents: Any) -> Any:
    kept, lost = hold(decay_and_rest(*primals, True))
    change = kept * tangents[0]
    return (kept, lost), (-change, change)
