"""Derivatives of the step over the levels m..L (crossing.py), first or first and second, in closed form.

G = (D/2) coth(k theta) is an analytic function of D^2, V+- = G -+ B/2. With p = V+ V- - ab = G^2 - D^2/4,
tau = theta/D, E = (W - 2kG)/D^2 and subscripts for derivatives

    G_a = k/2 + G E,    G_k = -2 tau p,    q G_q = (B G_a + G)/2,    p_a = 2 p E,    p_k = 2 G G_k,
    G_aa = G_a E + G E_a,  E_a = (1 - k^2 - 2kGE - 2WE)/D^2,  q G_aq = B G_aa/2,  G_ak = -2 (tau_a + 2 tau E) p,
    (q d/dq)^2 G = (b G_a + B^2 G_aa/2 + q G_q)/2,  q G_qk = (B G_ak + G_k)/2,  G_kk = 8 tau^2 G p,
    tau_a = (1 - W tau)/D^2.

Where k is large these take the forms G_a = (W G - 2kp)/D^2, G_aa = [2kp (4kG - W) - 4mbG]/D^4, in which k p is small.
Where s = 2 k theta is small they cancel; there, with z = D^2/W^2, u = (k theta)^2, A = W tau = 1 + z R, R = 1/3 + z R_2
and sqrt(u) coth(sqrt u) = 1 + u phi_1, phi_1 = 1/3 + u phi_2,

    W E = R/A - k^2 A phi_1,    W^2 E_a = (R - 3 R_2)/A + k^2 (R + 3 k^2 A^3 phi_2) + (W E)^2,    W^2 tau_a = -R.

X Q = V+ x + b with Q = a x + V- is differentiated as it stands, x = X_{m-1} included; V+ - a X = p/Q.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.models.stalling.roots import half_log_ratio, small_roots
from hetjax.numerics.decay import decay_and_rest
from hetjax.numerics.hold import hold
from hetjax.numerics.logarithm import atanh_rest
from hetjax.numerics.polynomial import polynomial


class Level(NamedTuple):
    """x = X_{m-1} and what is known of its derivatives: ``fall`` = -dx/da, ``rise`` = b dx/db, ``second`` =
    (d^2x/da^2, b d^2x/da db, (b d/db)^2 x) or ()."""

    x: jax.Array
    fall: jax.Array
    rise: jax.Array
    second: tuple[jax.Array, ...] = ()


class Crossed(NamedTuple):
    """X_L, its derivatives in (a, ln q, k), its six second ones, row by row, or (), and dX_L/dx with all else fixed."""

    X: jax.Array
    first: tuple[jax.Array, ...]
    second: tuple[jax.Array, ...]
    along_x: jax.Array


class _Growth(NamedTuple):
    G: jax.Array
    plus: jax.Array
    minus: jax.Array
    p: jax.Array
    tau: jax.Array
    a: jax.Array  # G_a
    aa: Any = None  # G_aa, where asked for
    log_a: Any = None  # G_ak/G_k


def cross_slopes(low: Level, a: jax.Array, q: jax.Array, k: jax.Array, m: Any) -> Crossed:
    """X_L in (a, ln q, k), with second derivatives if ``low`` has them; O(1)."""
    x, fall, rise, low_second = low
    b = q * m
    B = m * (q - 1) - a
    grown = _growth(a, b, B, k, m, bool(low_second))
    G, plus, minus, p, tau, G_a, G_aa, log_a = grown
    G_k = -2 * tau * p
    G_q = 0.5 * (B * G_a + G)
    per_Q = hold(1 / (a * x + minus))
    X = hold((plus * x + b) * per_Q)
    ahead, slope, mean = x - X, p * per_Q, 0.5 * (x + X)
    X_a = (ahead * G_a + mean - x * X - slope * fall) * per_Q
    X_q = (ahead * G_q - b * (mean - 1) + slope * rise) * per_Q
    X_k = ahead * G_k * per_Q
    if not low_second:
        return Crossed(X, (X_a, X_q, X_k), (), slope * per_Q)
    x_aa, x_aq, x_qq = low_second
    X_a, X_q, X_k, G_k, G_q = hold((X_a, X_q, X_k, G_k, G_q))
    G_aq, G_ak, G_kk = 0.5 * B * G_aa, G_k * log_a, -4 * tau * G * G_k
    G_qq, G_qk = 0.5 * (b * G_a + B * G_aq + G_q), 0.5 * (B * G_ak + G_k)
    Q_a, Q_q = x - a * fall + G_a - 0.5, a * rise + G_q + 0.5 * b
    up_a, up_q = G_a + 0.5 - X, G_q - 0.5 * b
    second = (
        ahead * G_aa + slope * x_aa - 2 * (up_a * fall + X_a * Q_a),
        ahead * G_aq + slope * x_aq + up_a * rise - up_q * fall - X_a * Q_q - X_q * Q_a,
        ahead * G_ak - G_k * fall - X_a * G_k - X_k * Q_a,
        ahead * G_qq - b * (mean - 1) + slope * x_qq + 2 * (up_q * rise - X_q * Q_q),
        ahead * G_qk + G_k * rise - X_q * G_k - X_k * Q_q,
        ahead * G_kk - 2 * X_k * G_k)
    return Crossed(X, (X_a, X_q, X_k), tuple(y * per_Q for y in second), slope * per_Q)


def _growth(a: jax.Array, b: jax.Array, B: jax.Array, k: jax.Array, m: Any, second: bool) -> _Growth:
    W = a + m + b
    plus, minus, D = small_roots(B, a * b)
    theta, near = half_log_ratio(a, b, m, B, D)
    plus, minus, D, theta = hold((plus, minus, D, theta))
    s = 2 * k * theta
    gentle = near & (s < 1)

    def pick(soft: jax.Array, steep: jax.Array) -> jax.Array:
        return jnp.where(gentle, soft, steep)

    kept, lost = hold(decay_and_rest(pick(jnp.ones_like(s), s), shared=True))
    per_D = 1 / (D * lost)
    g, per_D = hold((D * D * kept * per_D, lost * per_D))
    per_D2 = per_D * per_D
    steep_p, steep_G = g * (g + D), g + 0.5 * D
    double = 2 * k * steep_p

    inverse = hold(1 / W)
    few = pick(k, jnp.ones_like(k))
    z = pick(B * B + 4 * a * b, jnp.zeros_like(W)) * (inverse * inverse)
    if second:
        R2 = hold(_atanh_second(z))
        R = hold(1 / 3 + z * R2)
    else:
        R = hold(atanh_rest(z))
    A = 1 + z * R
    span = few * A
    u = span * span * z
    S, phi_1, *phi_2 = hold(_coth_parts(u, second))
    per_S, per_A = hold((1 / S, 1 / A))
    phi_1 = phi_1 * per_S
    half = 0.5 * W * (per_A / few)
    soft_G, root_p = (1 + u * phi_1) * half, per_S * half
    e = R * per_A - few * span * phi_1
    soft_a = 0.5 * few + soft_G * (e * inverse)
    G, p, G_a, tau = hold((pick(soft_G, steep_G), pick(root_p * root_p, steep_p),
                           pick(soft_a, (W * steep_G - double) * per_D2), pick(A * inverse, theta * per_D)))
    plus, minus = hold((pick(G - 0.5 * B, plus + g), pick(G + 0.5 * B, minus + g)))
    if not second:
        return _Growth(G, plus, minus, p, tau, G_a)
    e_a = (R - 3 * R2) * per_A + few * few * (R + 3 * span * span * A * (phi_2[0] * per_S)) + e * e
    G_aa = pick((soft_a * e + soft_G * (e_a * inverse)) * inverse,
                (double * (4 * k * steep_G - W) - 4 * m * b * steep_G) * (per_D2 * per_D2))
    tau_a = pick(-R * inverse * inverse, (1 - W * tau) * per_D2)
    E = pick(e * inverse, (W - 2 * k * steep_G) * per_D2)
    return _Growth(G, plus, minus, p, tau, G_a, *hold((G_aa, tau_a / tau + 2 * E)))


_TERMS = 9


def _coth_parts(u: jax.Array, second: bool) -> list[jax.Array]:
    """For 0 <= u < 1/4: S = sinh(sqrt u)/sqrt u, S phi_1 = (cosh(sqrt u) - S)/u and, if ``second``, S phi_2."""
    numbers = range(_TERMS - 1, -1, -1)
    found = [polynomial([1 / math.factorial(2 * i + 1) for i in numbers], u),
             polynomial([2 * (i + 1) / math.factorial(2 * i + 3) for i in numbers], u)]
    if second:
        found.append(polynomial([-4 * (i + 1) * (i + 2) / (3 * math.factorial(2 * i + 5)) for i in numbers], u))
    return found


def _atanh_second(z: jax.Array) -> jax.Array:
    """((atanh(sqrt z)/sqrt z - 1)/z - 1/3)/z = 1/5 + z/7 + .. for 0 <= z <= 0.0294."""
    terms = 4 if np.dtype(z.dtype) == np.float32 else 10
    return polynomial([1 / (2 * i + 5) for i in reversed(range(terms))], z)
