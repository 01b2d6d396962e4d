"""Levels m..L of the stalling queue in closed form: one fixed Moebius map applied k = K+1 times.

The map's matrix has trace W = a+m+b and determinant mb (a = j/r, b = q m, see recursion.py); with D^2 = W^2 - 4mb =
B^2 + 4ab, B = m(q-1) - a, the eigenvalues are w+- = (W +- D)/2. With v+- = (D -+ B)/2, formed from v+ v- = ab without
cancellation, theta = ln(w+/w-)/2 and g = D/(e^{2 k theta} - 1),

    X_L = (V+ X + b)/(a X + V-),    V+- = v+- + g,    V+ V- - ab = g (g + D):

sums of positive terms for every real k, g = 0 where k is infinite. Derivatives: crossing_slopes.py.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.crossing_slopes import Level, cross_slopes
from hetjax.models.stalling.roots import half_log_ratio, small_roots
from hetjax.numerics.decay import decay_and_rest
from hetjax.numerics.hold import hold
from hetjax.numerics.logarithm import atanh_over, log1p

_SERIES = 8  # terms of the hyperbolic functions on |k theta| < 1/2


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
    x = Y / w
    zero = jnp.zeros_like(x)
    found = cross_slopes(Level(x, zero, zero), a, q, k, m)
    along_a, along_q, along_k = found.first
    return cross(*primals), found.along_x * ((dY - x * dw) / w) + along_a * da + along_q * (dq / q) + along_k * dk


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
