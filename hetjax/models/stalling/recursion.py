"""The slow servers at the full buffer: one positive recursion over levels, O(1) in K, and one over phases.

Level l = fast servers busy + customers stalled, phase j = slow servers busy; level L = m + K is the full buffer. In
units of mu1 the up rate is b = q m, a fast completion at level l has rate c_l = min(l, m), a slow one a = j/r. The
ratios A_{l+1,j}/A_{l,j} of the paper's Lemma A1, written as c_{l+1} u_l = v_l + b with X = v/a, are

    X_0 = 1,    X_l = 1 + c_l X_{l-1}/(a X_{l-1} + b),

only sums, products and quotients of non-negative numbers (the paper's own form cancels). From them

    t_n = 1,    t_{j-1} = 1 + c_j t_j,    c_j = (n-j+1) X_{L,j}/(r b),        h_j = C(n,j) t_j,

where h_j P is the probability of phase j at level L, P = p_full; so h_0 P is the probability of level L.

Levels 1..m-1. With X = Y/w: w' = a Y + b w, Y' = w' + l Y. The derivatives of X need no differentiated recursion:
Gamma = Y w_a - Y_a w >= 0 obeys Gamma' = l (b Gamma + Y^2), positive as well, and dX/da = -Gamma/w^2; and as Y, w are
Charlier polynomials (an Appell sequence in b: dY_l/db = l Y_{l-1}), b d ln X/db = b (1 - 1/X) - (m-1) + a (X - 1).

Levels m..L. The map is one fixed Moebius map, applied k = K+1 times. Its matrix has trace W = a+m+b and determinant
mb, so with D^2 = W^2 - 4mb = B^2 + 4ab, B = m(q-1) - a, eigenvalues w+- = (W +- D)/2 and s = k ln(w+/w-),

    X_L = [(v+ E + D kappa) X + b E] / [E (a X + v-) + D kappa],    kappa = e^{-s},  E = 1 - kappa,

v+ = (D-B)/2, v- = (D+B)/2 formed from v+ v- = ab without cancellation. Where s is small, all is written in D^2, of
which it is an analytic function: theta = s/(2k), C = cosh(k theta), S = sinh(k theta)/D,

    X_L = [(C - S B) X + 2 b S] / [C + S B + 2 S a X].
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.counting import Count
from hetjax.numerics.geometric import finite_terms
from hetjax.numerics.logarithm import atanh_over, log, log1p, split_exponent

_SERIES = 8  # terms of cosh and sinh on |k theta| < 1/2


class FullBuffer(NamedTuple):
    """What the recursion tells of the full buffer: ``log_h0`` = ln h_0 and ``slow`` = n X_1 t_1/t_0.

    h_0 itself reaches 1e4238. ``slow`` = r b (h_0 - 1)/h_0 is the mean number of busy slow servers given level L.
    """

    log_h0: jax.Array
    slow: jax.Array


class Phases(NamedTuple):
    """The recursion in full: h_0 = ``mantissa`` 2^``exponent``, ``t1_over_t0`` = t_1/t_0, ``x1`` = X_{L,1}.

    ``exponent`` is a whole number in the dtype of the mantissa and has no derivative.
    """

    mantissa: jax.Array
    exponent: jax.Array
    t1_over_t0: jax.Array
    x1: jax.Array


class Crossing(NamedTuple):
    """X after the levels m..L as ``numerator``/``denominator``, and the way it was formed.

    ``denominator`` is w_L/w_{m-1} over D^-1 w+^k, or over (mb)^(k/2) where ``gentle``.
    """

    numerator: jax.Array
    denominator: jax.Array
    gentle: jax.Array
    plus: jax.Array
    D: jax.Array


@jax.custom_jvp
def small_roots(B: jax.Array, ab: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(v+, v-, D) with v+- = (D -+ B)/2, D = sqrt(B^2 + 4ab), each with full relative accuracy; ab > 0.

    The derivative has no branch: kernels that round B differently must not mix the two forms.
    """
    D = jnp.sqrt(B * B + 4 * ab)
    large = (jnp.abs(B) + D) / 2
    small = ab / large
    return jnp.where(B < 0, large, small), jnp.where(B < 0, small, large), D


@small_roots.defjvp
def _small_roots_jvp(primals: Any, tangents: Any) -> Any:
    plus, minus, D = small_roots(*primals)
    dB, dab = tangents
    per = 1 / D
    return (plus, minus, D), ((dab - plus * dB) * per, (dab + minus * dB) * per, (primals[0] * dB + 2 * dab) * per)


def ascend(a: jax.Array, b: jax.Array, m: Count) -> tuple[jax.Array, jax.Array]:
    """(Y, w), up to a common factor, with X_{m-1} = Y/w; O(m)."""

    def step(l: Any, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        Y, w = state
        w = a * Y + b * w
        return w + l * Y, w

    def rescale(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return state[0] / state[1], jnp.ones_like(b)

    one = jnp.ones_like(a * b)
    return m.climb(step, (one, one), b, rescale, chunk=4 if np.dtype(b.dtype) == np.float32 else 8)


def ascend_with_derivative(a: jax.Array, b: jax.Array, m: Count) -> tuple[jax.Array, jax.Array, jax.Array]:
    """X = X_{m-1}, -dX/da and b dX/db; O(m)."""

    def step(l: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        Y, w, fall = state
        fall = l * (b * fall + Y * Y)
        w = a * Y + b * w
        return w + l * Y, w, fall

    def rescale(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        per = 1 / state[1]
        return state[0] * per, jnp.ones_like(b), state[2] * per * per

    one = jnp.ones_like(a * b)
    state = m.climb(step, (one, one, 0 * one), b, rescale, chunk=2 if np.dtype(b.dtype) == np.float32 else 8)
    X, _, fall = rescale(state)
    return X, fall, b * (X - 1) + X * (a * (X - 1) - (m.real(b) - 1))


def cross_buffer(Y: jax.Array, w: jax.Array, a: jax.Array, q: jax.Array, k: jax.Array, m: Any) -> Crossing:
    """X after ``k`` = K+1 steps at fast rate ``m`` from X = Y/w; O(1), any real k >= 1."""
    b = q * m
    B = m * (q - 1) - a
    W = a + m + b
    plus, minus, D = small_roots(B, a * b)
    theta, near = _half_log_ratio(a, b, m, B, D)
    s = 2 * k * theta
    kappa = jnp.exp(-s)
    E = 1 - kappa
    numerator = (plus * E + D * kappa) * Y + b * E * w
    denominator = E * (a * Y + minus * w) + D * kappa * w
    gentle = near & (s < 1)
    per = 1 / W
    D2 = jnp.where(gentle, B * B + 4 * a * b, 0)
    g = k * per * atanh_over(D2 * per * per)
    C, S = _cosh_sinh(jnp.where(gentle, g * g * D2, 0))
    S = S * g
    return Crossing(jnp.where(gentle, (C - S * B) * Y + 2 * b * S * w, numerator),
                    jnp.where(gentle, (C + S * B) * w + 2 * S * a * Y, denominator), gentle, plus, D)


@jax.custom_jvp
def _half_log_ratio(a: jax.Array, b: jax.Array, m: Any, B: jax.Array, D: jax.Array) -> tuple[jax.Array, jax.Array]:
    """theta = ln(w+/w-)/2 = atanh(D/W), and whether w+/w- < sqrt 2; d theta = (da + db B/(2b))/D, without
    cancellation."""
    W = a + m + b
    product = m * b
    top = (W + D) / 2
    exponent, y = split_exponent(top * top / product)
    near = exponent == 0
    z = jnp.where(near, D, y - 1) / jnp.where(near, W, y + 1)
    return exponent * np.asarray(np.log(2.0) / 2, D.dtype) + z * atanh_over(z * z), near


@_half_log_ratio.defjvp
def _half_log_ratio_jvp(primals: Any, tangents: Any) -> Any:
    _, b, _, B, D = primals
    theta, near = _half_log_ratio(*primals)
    return (theta, near), ((tangents[0] + tangents[1] * B / (2 * b)) / D, np.zeros(jnp.shape(near), jax.dtypes.float0))


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
    Y, w, log_w = m.climb(step, (one, one, 0 * one), b, rescale, chunk=1 if np.dtype(b.dtype) == np.float32 else 8)
    crossing = cross_buffer(Y, w, a, q, k, m_real)
    steep = log(crossing.denominator / crossing.D) + k * log1p(crossing.plus / b)
    gentle = log(jnp.where(crossing.gentle, crossing.denominator, 1)) - k * log(q) / 2
    return log_w + jnp.where(crossing.gentle, gentle, steep), crossing.numerator / crossing.denominator


def _cosh_sinh(u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cosh(sqrt u) and sinh(sqrt u)/sqrt u for 0 <= u < 1/4."""
    C, S = jnp.ones_like(u), jnp.ones_like(u)
    for i in range(_SERIES, 0, -1):
        C = 1 + C * u / ((2 * i - 1) * (2 * i))
        S = 1 + S * u / ((2 * i) * (2 * i + 1))
    return C, S


def _rescaling(dtype: Any) -> tuple[float, int]:
    """(threshold, power of two): c_j <= 2^55, so that one step from below the threshold cannot overflow."""
    return (2.0**32, 64) if np.dtype(dtype) == np.float32 else (2.0**256, 512)


def _advance(t: jax.Array, one: jax.Array, exponent: jax.Array, term: jax.Array) -> tuple[jax.Array, ...]:
    """t_{j-1} = ``one`` + ``term`` and its unit and exponent, and the power of two they were shrunk by."""
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
    per = 1 / (r * b)

    def step(j: Any, state: Any) -> Any:
        t, one, exponent, _, _ = state
        a = j / r
        crossing = cross_buffer(*ascend(a, b, m), a, q, k, mreal)
        X = crossing.numerator / crossing.denominator
        before = t
        t, one, exponent, shrink = _advance(t, one, exponent, (nreal + 1 - j) * per * X * t)
        return t, one, exponent, X, before * shrink

    start = _start(q * r * k)
    t, _one, exponent, x1, t1 = n.descend(step, start, q)
    return Phases(t, exponent, t1 / t, x1)


@jax.custom_jvp
def full_buffer(q: jax.Array, r: jax.Array, K: jax.Array, m: Count, n: Count) -> FullBuffer:
    """ln h_0 and the mean number of busy slow servers given level L, as :class:`FullBuffer`; O(m n).

    Value and derivatives to about 1e-14 absolute in ln h_0 over the whole domain, K infinite included.

    >>> import jax.numpy as jnp
    >>> found = full_buffer(jnp.asarray(0.5), jnp.asarray(2.0), jnp.asarray(0.0), Count(1), Count(1))
    >>> [round(float(v), 4) for v in found]
    [1.0986, 0.6667]
    """
    found = phases(q, r, K, m, n)
    return FullBuffer(_log_h0(found.mantissa, found.exponent), n.real(q) * found.x1 * found.t1_over_t0)


def _log_h0(mantissa: jax.Array, exponent: jax.Array) -> jax.Array:
    return log(mantissa) + exponent * np.asarray(np.log(2.0), mantissa.dtype)


@full_buffer.defjvp
def _full_buffer_jvp(primals: Any, tangents: Any) -> Any:
    """Partial derivatives along q, r, K ride in the phase recursion as u_j = d ln t_j: u_{j-1} = (c_j t_j/t_{j-1})(d
    ln c_j + u_j)."""
    q, r, K, m, n = primals
    mreal, nreal = m.real(q), n.real(q)
    k = finite_terms(K) + 1
    b = q * mreal
    per = 1 / (r * b)

    def crossed(X: jax.Array, a: jax.Array, q: jax.Array, k: jax.Array) -> jax.Array:
        crossing = cross_buffer(X, jnp.ones_like(X), a, q, k, mreal)
        return crossing.numerator / crossing.denominator

    def step(j: Any, state: Any) -> Any:
        t, one, exponent, _, _, u, _ = state
        a = j / r + 0 * b
        X, fall, rise = ascend_with_derivative(a, b, m)
        X, pull = jax.vjp(crossed, X, a, q + 0 * a, k + 0 * a)
        along_X, along_a, along_q, along_k = pull(jnp.ones_like(X))
        dq = (along_q + along_X * rise / q) / X
        dr = (along_X * fall - along_a) * a / (r * X)
        c = (dq - 1 / q, dr - 1 / r, along_k / X)
        before = t
        term = (nreal + 1 - j) * per * X * t
        weight = term / (one + term)
        t, one, exponent, shrink = _advance(t, one, exponent, term)
        return t, one, exponent, X, before * shrink, tuple(weight * (v + w) for v, w in zip(c, u, strict=True)), \
            tuple(v + w for v, w in zip(c, u, strict=True))

    zero = jnp.zeros_like(q * r * k)
    t, _, exponent, x1, t1, u, v = n.descend(step, (*_start(q * r * k), (zero,) * 3, (zero,) * 3), q)
    out = FullBuffer(_log_h0(t, exponent), nreal * x1 * (t1 / t))
    # slow = r b (1 - 1/h_0) = n X_1 t_1/t_0, and v = d ln(c_1 t_1) = d ln(X_1 t_1) - d ln(r b)
    own = (1 / q, 1 / r, 0.0)
    d = tangents[:3]
    log_h0 = sum(x * y for x, y in zip(u, d, strict=True))
    slow = sum(out.slow * (v[i] - u[i] + own[i]) * d[i] for i in range(3))
    return out, FullBuffer(log_h0, slow)


def _start(like: jax.Array) -> tuple[jax.Array, ...]:
    one, zero = jnp.ones_like(like), jnp.zeros_like(like)
    return one, one, zero, one, zero  # t_j, the unit of the mantissa, the exponent, X_{L,1}, t_1
