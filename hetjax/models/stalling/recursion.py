"""The slow servers at the full buffer: one positive recursion over levels, O(1) in K, and one over phases.

Level l = fast servers busy + customers stalled, phase j = slow servers busy; level L = m + K is the full buffer. In
units of mu1 the up rate is b = q m, a fast completion at level l has rate c_l = min(l, m), a slow one a = j/r. The
ratios A_{l+1,j}/A_{l,j} of the paper's Lemma A1, written as c_{l+1} u_l = v_l + b with X = v/a, are

    X_0 = 1,    X_l = 1 + c_l X_{l-1}/(a X_{l-1} + b),

only sums, products and quotients of non-negative numbers (the paper's own form cancels). From them

    t_n = 1,    t_{j-1} = 1 + c_j t_j,    c_j = (n-j+1) X_{L,j}/(r b),        h_j = C(n,j) t_j,

where h_j P is the probability of phase j at level L, P = p_full; so h_0 P is the probability of level L.

Levels 1..m-1. With X = Y/w: w' = a Y + b w, Y' = w' + l Y. Levels m..L are one step of crossing.py. full_level.py has
the derivatives.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.models.stalling.crossing import cross, cross_buffer
from hetjax.numerics.counting import Count
from hetjax.numerics.geometric import finite_terms
from hetjax.numerics.hold import hold
from hetjax.numerics.logarithm import log, log1p


class Phases(NamedTuple):
    """The recursion in full: h_0 = ``mantissa`` 2^``exponent``, ``t1_over_t0`` = t_1/t_0, ``x1`` = X_{L,1}.

    ``exponent`` is a whole number in the dtype of the mantissa and has no derivative.
    """

    mantissa: jax.Array
    exponent: jax.Array
    t1_over_t0: jax.Array
    x1: jax.Array


def ascend(a: jax.Array, b: jax.Array, m: Count) -> tuple[jax.Array, jax.Array]:
    """(Y, w), up to a common factor, with X_{m-1} = Y/w; O(m).

    Both are taken a level up at once, Y' = (a + l) Y + b w, as one after the other takes twice as long; in float64
    over b, which leaves two operations.
    """
    per, up, single = unit(b)
    over = a * per

    def step(l: Any, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        Y, w = state
        w = up * w
        return (l * per + over) * Y + w, over * Y + w

    def rescale(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return state[0] / state[1], jnp.ones_like(b)

    one = jnp.ones_like(a * b)
    return m.climb(step, (one, one), b, rescale, chunk=4 if single else 16)


def unit(b: jax.Array) -> tuple[Any, Any, bool]:
    """1/s, b/s and whether s, in units of which a level is climbed, is 1: in float32, where powers of b leave the range
    too soon; else s = b."""
    return (1, b, True) if np.dtype(b.dtype) == np.float32 else (1 / b, 1, False)


def log_rise(q: jax.Array, r: jax.Array, K: jax.Array, m: Count, j: Any) -> tuple[jax.Array, jax.Array]:
    """ln(A_{L,j}/A_{L,0}) = sum_{l<L} ln(1 + v_l/b) >= 0 and X_{L,j} of phase ``j`` >= 1 (a number); O(m), any real K.

    The product below level m is taken up to a power that is put aside as a logarithm every few levels.
    """
    m_real, k = m.real(q), finite_terms(K) + 1
    b = q * m_real
    a = j / r + 0 * b
    over = a / b

    def step(l: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        Y, w, log_w = state
        w = over * Y + w
        return w + (l / b) * Y, w, log_w

    def rescale(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        Y, w, log_w = state
        return Y / w, jnp.ones_like(w), log_w + log(w)

    one = jnp.ones_like(over)
    chunk = 1 if np.dtype(b.dtype) == np.float32 else 8
    Y, w, log_w = hold(m.climb(step, (one, one, 0 * one), b, rescale, chunk=chunk))
    crossing = hold(cross_buffer(Y, w, a, q, k, m_real))
    rise = log(crossing.denominator / jnp.where(crossing.gentle, 1, crossing.D))
    return (log_w + rise + k * jnp.where(crossing.gentle, -log(q) / 2, log1p(crossing.plus / b)),
            crossing.numerator / crossing.denominator)


def _rescaling(dtype: Any) -> tuple[float, int]:
    """(threshold, power of two): c_j <= 2^55, so that one step from below the threshold cannot overflow."""
    return (2.0**32, 64) if np.dtype(dtype) == np.float32 else (2.0**256, 512)


def advance(t: jax.Array, one: jax.Array, exponent: jax.Array, term: jax.Array, n: Count) -> tuple[jax.Array, ...]:
    """t_{j-1} = ``one`` + ``term`` and its unit and exponent, and the power of two they were shrunk by."""
    if 55 * n.bound < np.finfo(t.dtype).maxexp:  # h_0 itself is in range
        return one + term, one, exponent, one
    threshold, power = _rescaling(t.dtype)
    t = one + term
    large = t > threshold
    shrink = jnp.where(large, 2.0**-power, 1.0).astype(t.dtype)
    return t * shrink, one * shrink, exponent + jnp.where(large, float(power), 0.0).astype(t.dtype), shrink


def phases(q: jax.Array, r: jax.Array, K: jax.Array, m: Any, n: Any, max_m: int | None = None,
           max_n: int | None = None) -> Phases:
    """The recursion in full, differentiable by plain autodiff; O(m n), independent of K (any real number >= 0, or
    infinite).

    ``m``, ``n``: Python ints, or traced whole numbers at most ``max_m``, ``max_n``. At n = 0: h_0 = 1, the rest of no
    meaning.

    >>> import jax.numpy as jnp
    >>> found = phases(jnp.asarray(0.5), jnp.asarray(2.0), jnp.asarray(0.0), 1, 1)
    >>> round(float(found.mantissa * 2**found.exponent), 4)
    3.0
    """
    m, n = Count.of(m, max_m), Count.of(n, max_n)
    mreal, nreal, k = m.real(q), n.real(q), finite_terms(K) + 1
    b = q * mreal
    per_r = 1 / r
    per = per_r * (1 / b)

    def step(j: Any, state: Any) -> Any:
        t, one, exponent, _, _ = state
        a = j * per_r
        Y, w = ascend(a, b, m)
        X = cross(Y, w, a, q, k, mreal)
        before = t
        t, one, exponent, shrink = advance(t, one, exponent, (nreal + 1 - j) * per * X * t, n)
        return t, one, exponent, X, before * shrink

    begin = start(q * r * k)
    t, _one, exponent, x1, t1 = n.descend(step, begin, q)
    return Phases(t, exponent, t1 / t, x1)


def log_of(mantissa: jax.Array, exponent: jax.Array) -> jax.Array:
    return log(mantissa) + exponent * np.asarray(np.log(2.0), mantissa.dtype)


def start(like: jax.Array) -> tuple[jax.Array, ...]:
    one, zero = jnp.ones_like(like), jnp.zeros_like(like)
    return one, one, zero, one, zero  # t_j, the unit of the mantissa, the exponent, X_{L,1}, t_1
