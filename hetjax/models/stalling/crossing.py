"""Levels m..L of the stalling queue in closed form: one fixed Moebius map applied k = K+1 times.

The map's matrix has trace W = a+m+b and determinant mb (a = j/r, b = q m, see recursion.py); with D^2 = W^2 - 4mb =
B^2 + 4ab, B = m(q-1) - a, the eigenvalues are w+- = (W +- D)/2. With v+- = (D -+ B)/2, formed from v+ v- = ab without
cancellation, theta = ln(w+/w-)/2 and g = D/(e^{2 k theta} - 1),

    X_L = (V+ X + b)/(a X + V-),    V+- = v+- + g,    V+ V- - ab = g (g + D):

sums of positive terms for every real k, g = 0 where k is infinite. Derivatives: G = g + D/2 = (D/2) coth(k theta) is an
analytic function of D^2, V+- = G -+ B/2, and with dtheta = (da + db B/(2b))/D

    dG/da = [W (2g + D) - 4 k g (g + D)]/(2 D^2),    dG/dq = (B dG/da + G)/(2q),    dG/dk = -2 (theta/D) g (g + D).

Where s = 2 k theta is small the first one cancels; there S = sinh(k theta)/D and C = cosh(k theta) are power series,
G = C/(2S), g (g + D) = 1/(4 S^2), dG/da = (W C S - k)/(2 S^2 D^2) with the D^2 taken out of the numerator. With Q the
denominator of X_L then

    dX_L/dX = g (g + D)/Q^2,                    a-derivative: [(X - X_L) dG/da + (X + X_L)/2 - X X_L]/Q,
    k-derivative: (X - X_L) (dG/dk)/Q,          q-derivative: [(X - X_L)(B dG/da + G) - b (X + X_L - 2)]/(2 q Q).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.decay import decay_and_rest
from hetjax.numerics.logarithm import atanh_over, atanh_rest, log1p, split_exponent
from hetjax.numerics.polynomial import polynomial

hold = jax.lax.optimization_barrier  # keeps the compiler from computing shared work once for each of its uses

_SERIES = 8  # terms of the hyperbolic functions on |k theta| < 1/2


@jax.custom_jvp
def small_roots(B: jax.Array, ab: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(v+, v-, D) with v+- = (D -+ B)/2, D = sqrt(B^2 + 4ab), each with full relative accuracy; ab > 0.

    The derivative has no branch: kernels that round B differently must not mix the two forms.
    """
    D = jnp.sqrt(B * B + 4 * ab)
    large = (jnp.abs(B) + D) * 0.5
    small = ab / large
    return jnp.where(B < 0, large, small), jnp.where(B < 0, small, large), D


@small_roots.defjvp
def _small_roots_jvp(primals: Any, tangents: Any) -> Any:
    plus, minus, D = jax.lax.optimization_barrier(small_roots(*primals))
    dB, dab = tangents
    per = 1 / D
    return (plus, minus, D), ((dab - plus * dB) * per, (dab + minus * dB) * per, (primals[0] * dB + 2 * dab) * per)


@jax.custom_jvp
def cross(Y: jax.Array, w: jax.Array, a: jax.Array, q: jax.Array, k: jax.Array, m: Any) -> jax.Array:
    """X_L from X_{m-1} = Y/w over ``k`` = K+1 >= 1 levels (real) at fast rate ``m`` (a number); O(1).

    Numerator and denominator are taken times (1 - e^-s) max(v+, v-), which leaves one division.
    """
    b = q * m
    B = m * (q - 1) - a
    ab = a * b
    D = jnp.sqrt(B * B + 4 * ab)
    large = (jnp.abs(B) + D) * 0.5
    growth = D * (a + m + b + D) * (1 / b * (0.5 / m))  # w+/w- - 1
    kept, lost = decay_and_rest(k * log1p(growth))
    both = large * D * kept
    far = large * lost
    square, mixed = large * far, ab * lost
    up = jnp.where(B < 0, square, mixed) + both
    down = jnp.where(B < 0, mixed, square) + both
    return (up * Y + b * far * w) / (a * far * Y + down * w)


@cross.defjvp
def _cross_jvp(primals: Any, tangents: Any) -> Any:
    Y, w, a, q, k, m = primals
    dY, dw, da, dq, dk = tangents[:5]
    low = Y / w
    along = cross_with_derivatives(low, a, q, k, m)
    return cross(*primals), (along.low * ((dY - low * dw) / w) + along.a * da + along.q * (dq / q) + along.k * dk)


class Crossing(NamedTuple):
    """``X`` = X_L, its derivatives along X_{m-1} (``low``), ``a`` and ``k``, and q times that along q."""

    X: jax.Array
    low: jax.Array
    a: jax.Array
    q: jax.Array
    k: jax.Array


def cross_with_derivatives(low: jax.Array, a: jax.Array, q: jax.Array, k: jax.Array, m: Any) -> Crossing:
    """:func:`cross` from X_{m-1} = ``low``, and derivatives, themselves differentiable any number of times; O(1)."""
    b = q * m
    B = m * (q - 1) - a
    W = a + m + b
    plus, minus, D = small_roots(B, a * b)
    theta, near = half_log_ratio(a, b, m, B, D)
    plus, minus, D, theta = hold((plus, minus, D, theta))
    s = 2 * k * theta
    gentle = near & (s < 1)
    # steep: in D itself
    kept, lost = hold(decay_and_rest(jnp.where(gentle, 1, s), shared=True))
    per = 1 / (D * lost)
    g = D * D * kept * per
    product = g * (g + D)
    per = lost * per
    along_a = (W * (0.5 * per) * (2 * g + D) - (2 * k) * (product * per)) * per
    # gentle: in D^2
    inverse = 1 / W
    D2 = jnp.where(gentle, B * B + 4 * a * b, 0)
    z = D2 * (inverse * inverse)
    rest = hold(atanh_rest(z))
    tau = (1 + z * rest) * inverse  # theta/D
    span = jnp.where(gentle, k, 1) * tau
    C, S, ahead = hold((*_cosh_sinh(span * span * D2), _sinh_rest(4 * span * span * D2)))
    per_S = hold(1 / (2 * S * span))
    square = per_S * per_S
    gentle_a = (2 * jnp.where(gentle, k, 1)) * square * (
        rest * (inverse * inverse) + (4 * span * span) * ahead * (1 + z * rest))

    G = jnp.where(gentle, C * per_S, g + 0.5 * D)
    G_a = jnp.where(gentle, gentle_a, along_a)
    G, G_a = hold((G, G_a))
    plus = jnp.where(gentle, G - 0.5 * B, plus + g)
    minus = jnp.where(gentle, G + 0.5 * B, minus + g)
    product = jnp.where(gentle, square, product)
    G_k = -2 * jnp.where(gentle, tau, theta * per) * product
    plus, minus, product = hold((plus, minus, product))
    per_Q = hold(1 / (a * low + minus))
    X = (plus * low + b) * per_Q
    X, ahead = hold((X, (low - X) * per_Q))
    return Crossing(X, product * per_Q * per_Q, ahead * G_a + (0.5 * (low + X) - low * X) * per_Q,
                    0.5 * (ahead * (B * G_a + G) - b * (low + X - 2) * per_Q), ahead * G_k)


@jax.custom_jvp
def half_log_ratio(a: jax.Array, b: jax.Array, m: Any, B: jax.Array, D: jax.Array) -> tuple[jax.Array, jax.Array]:
    """theta = ln(w+/w-)/2 = atanh(D/W), and whether w+/w- < sqrt 2; d theta = (da + db B/(2b))/D, without
    cancellation."""
    W = a + m + b
    product = m * b
    top = (W + D) / 2
    exponent, y = split_exponent(top * top / product)
    near = exponent == 0
    z = jnp.where(near, D, y - 1) / jnp.where(near, W, y + 1)
    return exponent * np.asarray(np.log(2.0) / 2, D.dtype) + z * atanh_over(z * z), near


@half_log_ratio.defjvp
def _half_log_ratio_jvp(primals: Any, tangents: Any) -> Any:
    _, b, _, B, D = primals
    theta, near = half_log_ratio(*primals)
    return (theta, near), ((tangents[0] + tangents[1] * B / (2 * b)) / D, np.zeros(jnp.shape(near), jax.dtypes.float0))


class LogCrossing(NamedTuple):
    """X after the levels m..L as ``numerator``/``denominator``, and the way it was formed.

    ``denominator`` is w_L/w_{m-1} over D^-1 w+^k, or over (mb)^(k/2) where ``gentle``.
    """

    numerator: jax.Array
    denominator: jax.Array
    gentle: jax.Array
    plus: jax.Array
    D: jax.Array


def cross_buffer(Y: jax.Array, w: jax.Array, a: jax.Array, q: jax.Array, k: jax.Array, m: Any) -> LogCrossing:
    """X after ``k`` = K+1 steps at fast rate ``m`` from X = Y/w, with the growth of w; O(1), any real k >= 1."""
    b = q * m
    B = m * (q - 1) - a
    W = a + m + b
    plus, minus, D = small_roots(B, a * b)
    theta, near = half_log_ratio(a, b, m, B, D)
    plus, minus, D, theta = hold((plus, minus, D, theta))
    s = 2 * k * theta
    kappa = hold(jnp.exp(-s))
    E = 1 - kappa
    numerator = (plus * E + D * kappa) * Y + b * E * w
    denominator = E * (a * Y + minus * w) + D * kappa * w
    gentle = near & (s < 1)
    per = 1 / W
    D2 = jnp.where(gentle, B * B + 4 * a * b, 0)
    g = k * per * atanh_over(D2 * per * per)
    C, S = hold(_cosh_sinh(jnp.where(gentle, g * g * D2, 0)))
    S = S * g
    return LogCrossing(jnp.where(gentle, (C - S * B) * Y + 2 * b * S * w, numerator),
                       jnp.where(gentle, (C + S * B) * w + 2 * S * a * Y, denominator), gentle, plus, D)


def _cosh_sinh(u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cosh(sqrt u) and sinh(sqrt u)/sqrt u for 0 <= u < 1/4."""
    C, S = jnp.ones_like(u), jnp.ones_like(u)
    for i in range(_SERIES, 0, -1):
        C = 1 + C * (u * (1 / ((2 * i - 1) * (2 * i))))
        S = 1 + S * (u * (1 / ((2 * i) * (2 * i + 1))))
    return C, S


def _sinh_rest(v: jax.Array) -> jax.Array:
    """(sinh(sqrt v)/sqrt v - 1)/v for 0 <= v < 1."""
    return polynomial([1 / math.factorial(2 * i + 3) for i in reversed(range(_SERIES))], v)
