"""Geometric sums with a real number of terms, right in value and all derivatives at and around ratio 1.

Everything rests on the moments, for a log-ratio x <= 0 and a length K >= 0,

    H_k(x, K) = int_0^K s^k e^{xs} ds,      dH_k/dx = H_{k+1},      dH_k/dK = K^k e^{Kx},

which are positive and have no singularity. Sums follow from them; with F_k = H_k(x, 1):

    sum_{s=0}^{K-1} e^{xs}   = H_0/F_0,                         K may be any real number >= 0
    sum_{s=1}^{K} s e^{xs}   = e^x [H_1 F_0 + H_0 (F_0 - F_1)]/F_0^2
    sum_{s=0}^{K} (K-s) e^{xs} = {e^x [K H_0 - H_1] + K F_1}/F_0^2

(the first by summing, the second as the x-derivative of the first, shifted by one term; the third from both). With
the Bernoulli numbers, c(x) = sum_k B_2k x^(2k-2)/(2k)!, the quotients that they need are

    1/F_0 = x/(e^x - 1) = 1 - x/2 + x^2 c,    F_1/F_0 = e^x/(e^x - 1) - 1/x = 1/2 + x c,
    F_2/F_0 - (F_1/F_0)^2 = 1/x^2 - e^x/(e^x - 1)^2 = (x c)'.

A ratio
above 1 is turned over by the caller: sum_{s=0}^{K-1} q^s = q^{K-1} sum_{s=0}^{K-1} q^{-s}.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.decay import decay_parts
from hetjax.numerics.hold import hold
from hetjax.numerics.logarithm import log
from hetjax.numerics.polynomial import polynomial

_SERIES_BELOW = 0.5  # |x K| where the power series takes over from the recursion, which loses 1/|xK| there
BERNOULLI = tuple(number / math.factorial(2 * k) for k, number in enumerate((
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330), 1))
_BERNOULLI_TERMS = {  # for |x| < 1/2 and for |x| < 1: they fall like (x/2pi)^2k
    np.dtype(np.float64): (7, 10), np.dtype(np.float32): (4, 5)}
_SERIES_TERMS = {np.dtype(np.float64): 14, np.dtype(np.float32): 7}  # (1/2)^i / i! falls below the rounding


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def exponential_moment(order: int, x: jax.Array, length: jax.Array, decay: jax.Array) -> jax.Array:
    """H_k(x, K) = int_0^K s^k e^{xs} ds with k = ``order``, x <= 0, K = ``length`` >= 0 and ``decay`` = e^{xK}.

    ``decay`` is handed in because the caller needs it as well (or knows it better, as a ratio); it must be the
    function of x and K that it says, its tangent is not used. Relative error within 40 k! units in the last place.

    >>> import jax.numpy as jnp
    >>> x, K = jnp.asarray(-1e-9), jnp.asarray(2.0)
    >>> round(float(exponential_moment(1, x, K, jnp.exp(x * K))), 6)
    2.0
    """
    y = x * length
    near = y > -_SERIES_BELOW
    small = jnp.where(near, y, 0)
    terms = _SERIES_TERMS[np.dtype(y.dtype)]
    series = polynomial([1 / (math.factorial(i) * (order + 1 + i)) for i in reversed(range(terms))], small)
    per = -1 / jnp.where(near, jnp.full_like(x, -1), x)
    far = (1 - decay) * per
    power = decay  # K^k e^{Kx}
    for k in range(1, order + 1):
        power = power * length
        far = (k * far - power) * per
    return jnp.where(near, series * _power(length, order + 1), far)


@exponential_moment.defjvp
def _exponential_moment_jvp(order: int, primals: Any, tangents: Any) -> Any:
    x, length, decay = primals
    along_x = exponential_moment(order + 1, x, length, decay)
    return exponential_moment(order, *primals), along_x * tangents[0] + _power(length, order) * decay * tangents[1]


def _power(base: jax.Array, exponent: int) -> jax.Array:
    result = jnp.ones_like(base)
    for _ in range(exponent):
        result = result * base
    return result


@jax.custom_jvp
def first_moments(x: jax.Array, length: jax.Array, decay: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(H_0, H_1) of :func:`exponential_moment`, cheaper together: without a power series.

    >>> import jax.numpy as jnp
    >>> [float(h) for h in first_moments(jnp.zeros(()), jnp.full((), 2.0), jnp.ones(()))]
    [2.0, 2.0]
    """
    return _moments(x, 1 / _below_zero(x), length, decay, False)


@first_moments.defjvp
def _first_moments_jvp(primals: Any, tangents: Any) -> Any:
    found = hold(first_moments(*primals))
    return found, _moments_tangent(primals, found, tangents)


def _below_zero(x: jax.Array) -> jax.Array:
    return jnp.minimum(x, -np.finfo(x.dtype).tiny)


def _moments(x: jax.Array, per_x: jax.Array, length: jax.Array, decay: jax.Array,
             shared: bool) -> tuple[jax.Array, jax.Array]:
    """(H_0, H_1), 1/x given; at small s = -xK, (1 - e^-s)/s = 1 - s c and (1 - e^-s - s e^-s)/s^2 = 1 - (1 + s) c."""
    s = -x * length
    _, lost, near, c = decay_parts(s, shared)
    scale = jnp.where(near, length, per_x)
    h0 = scale * jnp.where(near, 1 - s * c, -lost)
    return h0, scale * jnp.where(near, length - (length + s * length) * c, length * decay - h0)


def _moments_tangent(primals: Any, found: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    x, length, decay = primals
    step = decay * tangents[1]
    h2 = exponential_moment(2, x, length, decay)
    return found[1] * tangents[0] + step, h2 * tangents[0] + length * step


def ratio_moments(x: jax.Array, ratio: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(F_0, F_1)(x) = int_0^1 (1, s) e^{xs} ds for x <= 0 and ``ratio`` = e^x.

    >>> import jax.numpy as jnp
    >>> [float(f) for f in ratio_moments(jnp.asarray(0.0), jnp.asarray(1.0))]
    [1.0, 0.5]
    """
    return first_moments(x, jnp.ones_like(x), ratio)


class Parts(NamedTuple):
    """What the sums are made of: H_0, H_1, 1/F_0 and F_1/F_0."""

    h0: jax.Array
    h1: jax.Array
    per: jax.Array
    lag: jax.Array


class GeometricSums(NamedTuple):
    """``plain`` = sum_{s=0}^{K-1} e^{xs}, ``lagging`` = sum_{s=0}^{K-1} s e^{xs}, ``ascending`` = sum_{s=1}^{K} s
    e^{xs}; ``parts``: of them."""

    plain: jax.Array
    lagging: jax.Array
    ascending: jax.Array
    parts: Parts


def geometric_sums(x: jax.Array, ratio: jax.Array, terms: jax.Array, decay: jax.Array,
                   shared: bool = False) -> GeometricSums:
    """The sums of K = ``terms`` (any real number >= 0) powers of ``ratio`` = e^x <= 1, with ``decay`` = e^{xK}.

    ``lagging`` is negative for K < 1, as the continuation of K (K-1)/2; it is formed with absolute error
    O(eps ``plain``), the other two with relative error O(eps). ``shared``: more than a number or two will be formed
    from them; what they have in common is then computed once.

    >>> import jax.numpy as jnp
    >>> one, zero, three = jnp.ones(()), jnp.zeros(()), jnp.full((), 3.0)
    >>> [float(s) for s in geometric_sums(zero, one, three, one)[:3]]
    [3.0, 3.0, 6.0]
    """
    h0, h1, per, lag = parts = Parts(*_parts(shared, x, terms, decay, ratio))
    plain = h0 * per
    second = h1 * per
    return GeometricSums(plain, second - plain * lag, ratio * (second + plain * (1 - lag)), parts)


def descending_sum(x: jax.Array, ratio: jax.Array, terms: jax.Array, decay: jax.Array) -> jax.Array:
    """sum_{s=0}^{K} (K - s) e^{xs} for K = ``terms``, ``ratio`` = e^x <= 1, ``decay`` = e^{xK}.

    >>> import jax.numpy as jnp
    >>> float(descending_sum(jnp.zeros(()), jnp.ones(()), jnp.full((), 3.0), jnp.ones(())))
    6.0
    """
    h0, h1, per, lag = _parts(False, x, terms, decay, ratio)
    return (ratio * (terms * h0 - h1) * per + terms * lag) * per


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _parts(shared: bool, x: jax.Array, length: jax.Array, decay: jax.Array, ratio: jax.Array) -> tuple[jax.Array, ...]:
    """H_0, H_1, 1/F_0, F_1/F_0 with one division."""
    near = x > -0.5
    gap = jnp.where(near, -1, ratio - 1)
    inverse = 1 / (_below_zero(x) * gap)
    lead = x * _bernoulli(x, 0)
    if shared:
        lead = jax.lax.optimization_barrier(lead)
    per = jnp.where(near, 1, 0) + x * jnp.where(near, lead - 0.5, x * inverse)
    lag = jnp.where(near, 0.5 + lead, (ratio * x - gap) * inverse)
    return (*_moments(x, inverse * gap, length, decay, shared), per, lag)


@_parts.defjvp
def _parts_jvp(_shared: bool, primals: Any, tangents: Any) -> Any:
    found = hold(_parts(True, *primals))
    x, _, _, ratio = primals
    near = x > -1
    steep, gap = jnp.where(near, 1, x), jnp.where(near, 1, ratio - 1)
    spread = jnp.where(near, _bernoulli(jnp.where(near, x, 0), 1), 1 / (steep * steep) - ratio / (gap * gap))
    return found, (*_moments_tangent(primals[:3], found, tangents), -found[2] * found[3] * tangents[0],
                   spread * tangents[0])


def _bernoulli(x: jax.Array, derivative: int) -> jax.Array:
    """c(x) for |x| < 1/2, or with ``derivative`` = 1 the derivative of x c(x) for |x| < 1."""
    terms = _BERNOULLI_TERMS[np.dtype(x.dtype)][derivative]
    return polynomial([BERNOULLI[k] * (2 * k + 1) ** derivative for k in reversed(range(terms))], x * x)


def geometric_sum(ratio: jax.Array, terms: jax.Array) -> jax.Array:
    """sum_{s=0}^{K-1} ratio^s for any ``ratio`` > 0 and real K = ``terms`` >= 0; infinite K needs ratio < 1.

    Overflows to infinity where the sum does.

    >>> import jax.numpy as jnp
    >>> [round(float(geometric_sum(jnp.asarray(x), jnp.asarray(3.0))), 4) for x in (1.0, 2.0)]
    [3.0, 7.0]
    """
    x, inner, decay, terms = _turned(ratio, terms)
    plain = geometric_sums(x, inner, terms, decay).plain
    return jnp.where(ratio > 1, plain * inner * _growth(ratio, x, terms), plain)


def weighted_geometric_sum(ratio: jax.Array, terms: jax.Array) -> jax.Array:
    """sum_{s=1}^{K} s ratio^s for any ``ratio`` > 0 and real K = ``terms`` >= 0; infinite K needs ratio < 1.

    >>> import jax.numpy as jnp
    >>> round(float(weighted_geometric_sum(jnp.asarray(1.0), jnp.asarray(4.0))), 5)
    10.0
    >>> round(float(weighted_geometric_sum(jnp.asarray(2.0), jnp.asarray(3.0))), 4)
    34.0
    """
    x, inner, decay, terms = _turned(ratio, terms)
    ascending = geometric_sums(x, inner, terms, decay).ascending
    above = descending_sum(x, inner, terms, decay) * _growth(ratio, x, terms)
    return jnp.where(ratio > 1, above, ascending)


def _turned(ratio: jax.Array, terms: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    terms = finite_terms(terms)
    x = log(ratio)
    x = jnp.where(ratio > 1, -x, x)
    return x, jnp.where(ratio > 1, 1 / ratio, ratio), jnp.exp(x * terms), terms


def _growth(ratio: jax.Array, x: jax.Array, terms: jax.Array) -> jax.Array:
    """ratio^K where ``ratio`` > 1 (1/decay would leave the range in its second derivative long before this does)."""
    return jnp.exp(jnp.where(ratio > 1, -x * terms, 0))


def finite_terms(terms: jax.Array) -> jax.Array:
    """``terms`` with infinity replaced by :func:`endless`, from where on every ratio <= 1 - eps/2 decays to nothing."""
    return jnp.minimum(terms, endless(terms.dtype))


def endless(dtype: Any) -> float:
    """The number of terms that stands for infinity; its fourth power is finite, (1 - eps/2)^endless < e^-50."""
    return 1e9 if np.dtype(dtype) == np.float32 else 1e25
