"""The waiting time behind a queue of random length, and what follows it, by contour integrals of fixed size.

A customer who joins with w customers ahead of him (w = 0, 1, .. < M with weights e^{a_1} rho^w) waits a sum of w + 1
exponential times of rate nu, then perhaps a Gamma(K, c) time, then is served at rate mu. With d = nu (1 - rho) the
transform of the wait, X say, weights included, is

    f^(s) = nu [g_1(s) - g_2(s)]/(s + d),    g_i = e^{phi_i},
    phi_1 = a_1 + s t - K ln(1 + s/c),       phi_2 = a_2 + s t - K ln(1 + s/c) - M ln(1 + s/nu),    a_2 = a_1 + M ln rho

(e^{st} included), which defines the law for every real K and M >= 0: for K = 0 its density is the non-negative
nu e^{a_1 - d t} Q(M, nu rho t), Q the regularised upper incomplete gamma function. Wanted are

    waiting = P(X > t)                    = (1/2 pi i) int f^(s) ds/(-s)         with 0 to the right of the contour,
    service = P(X <= t < X + Exp(mu))     = (1/2 pi i) int f^(s) ds/(s + mu)     with -mu to the left of the contour,
    density = the density of X            = (1/2 pi i) int f^(s) ds,

all non-negative; waiting + service is the tail of X + Exp(mu), mu service its density. No cost grows with K or M.

Contours. g_1 and g_2 each get a contour through (near) their own saddle point z - c on the real axis,

    s(u) = vertex + width [i sinh u - (cosh u - 1)],

and the trapezoidal rule at u = (k + 1/2) h. Its width and step depend on z^2 phi''(vertex) only, from 1 (a pole seen
from afar) to infinity (a Gaussian); NODES points give 1e-14 for every value. Derivatives are taken with the contour
held fixed.

Soft residues. The poles -d, -mu, 0 lie on the real axis, which the nodes avoid. If p is the image of u = i eta, the
trapezoidal rule for a contour leaves out exactly the share 1/(1 + e^{-2 pi eta/h}) =: lambda(p) of the residue of p

    (sum_k h/(u_k - i eta) = i pi tanh(pi eta/h), while the integral is i pi sign(eta)),

so lambda is 1 for a pole well to the left of the contour, 0 well to the right, and in between the sum of rule and
residues depends smoothly on the poles: they may come as close to the contour as they like, and to each other, as the
residues combine into divided differences. With T = T_1 - T_2 the rules and Lambda = lambda_2 - lambda_1 (g_1 = g_2
at -d), G(p) = (g_1 - g_2)(p)/(p + d) and brackets for divided differences,

    waiting/nu = T + lambda_1(0) G(0) - (Lambda g_2)[0, -d]
    service/nu = T + (1 - lambda_2(-mu)) G(-mu) + (Lambda g_1)[-mu, -d]
    density/nu = T + Lambda(-d) g(-d).

Without a Gamma stage (K = 0) g_1 is entire to the left: T_1 = lambda_1 = 0. For M <= FEW, where g_1 - g_2 is of order
M, both run on one contour as g_1 expm1(-M ln((nu + s)/b)) and Lambda = 0. A Gamma stage keeps the contours to the
right of -c, where the integrands of a short stage (K <= 1) can be 1/K times larger than the tail of X: its tail and
density are those without a stage plus the integrals with e(s) = (1 + s/c)^-K - 1 in place of (1 + s/c)^-K, whose
residues are Lambda(-d) g(-d) e(-d)/d and Lambda(-d) g(-d) e(-d), as e(0) = 0 (:func:`late_passage`).

This formulation is the project's own.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.numerics import log1p, log_near_one, ratio_moments
from hetjax.numerics.angle import cos_sin
from hetjax.numerics.polynomial import polynomial

NODES = 28  # with the width and steps below: 2e-15 for all k = z^2 phi'' in [1, inf)
FEW = 2.0  # up to so many places g_1 - g_2 is integrated as one function
_NEAR = 0.1  # two poles nearer than this share of the width are combined


class Queue(NamedTuple):
    """``e^log_first rho^w`` is the weight of w = 0, 1, .. < ``places`` customers ahead, each leaving at rate ``rate``.

    ``up`` = rho ``rate``, ``gap`` = d = ``rate`` - ``up`` (exact where they nearly agree), ``log_ratio`` = ln rho,
    ``log_last`` = ``log_first`` + ``places`` ``log_ratio``; ``service`` = mu, the rate of the service that follows.
    """

    log_first: jax.Array
    log_last: jax.Array
    log_ratio: jax.Array
    places: jax.Array
    rate: jax.Array
    up: jax.Array
    gap: jax.Array
    service: jax.Array


class Stage(NamedTuple):
    """A Gamma(``shape``, ``rate``) time between the queue and the service."""

    shape: jax.Array
    rate: jax.Array


class Passage(NamedTuple):
    """At one time t: P(X > t), P(X <= t < X + Exp(mu)) and the density of the wait X, with the queue's weights."""

    waiting: jax.Array
    service: jax.Array
    density: jax.Array


class _Contour(NamedTuple):
    vertex: jax.Array
    width: jax.Array
    step: jax.Array
    x: jax.Array  # nodes s = x + i y, weights ds/du h / pi = (p, q), upper half only
    y: jax.Array
    p: jax.Array
    q: jax.Array


def _contour(distance: jax.Array, branch: jax.Array, k: jax.Array) -> _Contour:
    """The contour with vertex ``branch`` + ``distance``, for z^2 phi'' = ``k`` there (z = ``distance``)."""
    dtype = distance.dtype
    width = distance * (2 / jnp.sqrt(1 + (k - 1) / 5))
    step = (1.5 + 2.2 / jnp.sqrt(k)) / NODES
    growth = jnp.exp(step * (jnp.arange(NODES, dtype=dtype) + 0.5))
    decay = 1 / growth
    sinh, cosh = (growth - decay) / 2, (growth + decay) / 2
    vertex = branch + distance
    scale = width * step / math.pi
    contour = _Contour(vertex, width, step, vertex - width * (cosh - 1), width * sinh, -scale * sinh, scale * cosh)
    return lax.stop_gradient(contour)


@jax.custom_jvp
def _log1p_complex(x: jax.Array, y: jax.Array, rate: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both parts of ln(1 + (x + i y)/rate), y > 0; nodes are held fixed, so only ``rate`` has a derivative."""
    u, v = x / rate, y / rate
    excess = u * (2 + u) + v * v
    shifted = 1 + u
    square = jnp.where(excess < -0.5, shifted * shifted + v * v, 1 + excess)
    return log_near_one(square, excess) / 2, jnp.arctan2(v, shifted)


@_log1p_complex.defjvp
def _log1p_complex_jvp(primals: Any, tangents: Any) -> Any:
    x, y, rate = primals
    re, im = _divide(x, y, x + rate, y)
    scale = -tangents[2] / rate
    return _log1p_complex(*primals), (re * scale, im * scale)


def _cos_sin_exp(re: jax.Array, im: jax.Array) -> tuple[jax.Array, jax.Array]:
    size = jnp.exp(re)
    cos, sin = cos_sin(im)
    return size * cos, size * sin


def _expm1_complex(re: jax.Array, im: jax.Array) -> tuple[jax.Array, jax.Array]:
    half = cos_sin(im / 2)[1]
    size = jnp.exp(re)
    return jnp.expm1(re) - 2 * size * half * half, size * cos_sin(im)[1]


def _multiply(used: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(a + i b)(c + i d) where ``used``, else a + i b."""
    return jnp.where(used, a * c - b * d, a), jnp.where(used, a * d + b * c, b)


def _kernels(contour: _Contour, a: jax.Array, b: jax.Array, queue: Queue) -> Passage:
    x, y = contour.x, contour.y
    a, b = a * contour.p - b * contour.q, a * contour.q + b * contour.p
    a, b = _divide(a, b, x + queue.gap, y)
    waiting = -_divide(a, b, x, y)[1]
    service = _divide(a, b, x + queue.service, y)[1]
    return Passage(jnp.sum(waiting), jnp.sum(service), jnp.sum(b))


def _divide(a: jax.Array, b: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    per = 1 / (x * x + y * y)
    return (a * x + b * y) * per, (b * x - a * y) * per


class _Share(NamedTuple):
    """lambda at a pole, 1 - lambda, 2 pi eta/h and sin, cos of eta + pi/4, where they exist (``soft``)."""

    inside: jax.Array
    outside: jax.Array
    logit: jax.Array
    sin: jax.Array
    cos: jax.Array
    soft: jax.Array


def _share(contour: _Contour, pole: jax.Array) -> _Share:
    sin = ((contour.vertex - pole) / contour.width + 1) * math.sqrt(0.5)
    soft = jnp.abs(sin) < 1
    left = sin >= 1
    sin = jnp.where(soft, sin, 0)
    logit = (jnp.arcsin(sin) - math.pi / 4) * (2 * math.pi / contour.step)
    inside = jnp.where(soft, jax.nn.sigmoid(logit), jnp.where(left, 1, 0).astype(sin.dtype))
    outside = jnp.where(soft, jax.nn.sigmoid(-logit), jnp.where(left, 0, 1).astype(sin.dtype))
    return _Share(inside, outside, logit, sin, jnp.sqrt(1 - sin * sin), soft)


def _share_slope(contour: _Contour, p: _Share, q: _Share, distance: jax.Array) -> jax.Array:
    """lambda[p, q] for poles ``distance`` = p - q apart, without 0/0 (tan of half a difference of arcs)."""
    tangent = -math.sqrt(0.5) / contour.width / (p.cos + q.cos)  # tan((eta_p - eta_q)/2)/distance
    slope = 2 * tangent * _arctan_over(tangent * distance) * (2 * math.pi / contour.step)
    logits = jnp.clip(p.logit / 2, -40, 40), jnp.clip(q.logit / 2, -40, 40)
    close = slope / 2 * _sinh_over(slope * distance / 2) / (2 * jnp.cosh(logits[0]) * jnp.cosh(logits[1]))
    apart = (p.inside - q.inside) / jnp.where(distance == 0, 1, distance)
    return jnp.where(p.soft & q.soft & (jnp.abs(tangent * distance) < 0.2), close, apart)


def _arctan_over(x: jax.Array) -> jax.Array:
    """arctan(x)/x for the small x of poles that are combined."""
    z = -jnp.minimum(x * x, 0.05)
    return polynomial([1 / (2 * k + 1) for k in range(12, -1, -1)], z)


def _sinh_over(x: jax.Array) -> jax.Array:
    near = jnp.abs(x) < 1
    z = jnp.where(near, x * x, 0)
    series = jnp.ones_like(z)
    for k in range(8, 0, -1):
        series = 1 + series * z / ((2 * k) * (2 * k + 1))
    far = jnp.where(near, 1, x)
    return jnp.where(near, series, jnp.sinh(far) / far)


def log1p_over(x: jax.Array) -> jax.Array:
    """ln(1 + x)/x for x > -1, analytic at 0."""
    near = jnp.abs(x) < 0.4
    small = jnp.where(near, x, 0)
    s = small / (2 + small)
    far = jnp.where(near, 1, x)
    return jnp.where(near, 2 / (2 + small) * _atanh_over(s * s), log1p(far) / far)


def _atanh_over(z: jax.Array) -> jax.Array:
    return polynomial([1 / (2 * k + 1) for k in range(14, -1, -1)], z)


def exp_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """(e^a - e^b)/(a - b), analytic at a = b."""
    high, low = jnp.where(a > b, a, b), jnp.where(a > b, b, a)
    x = low - high
    return jnp.exp(_bounded(high)) * ratio_moments(x, jnp.exp(x))[0]


def growth_over(x: jax.Array) -> jax.Array:
    """expm1(x)/x, analytic at 0."""
    size = jnp.where(x > 0, -x, x)
    ratio = jnp.exp(size)
    moment = ratio_moments(size, ratio)[0]
    return jnp.where(x > 0, moment / ratio, moment)


def _bounded(exponent: jax.Array) -> jax.Array:
    return jnp.minimum(exponent, 0.9 * math.log(np.finfo(exponent.dtype).max))


def _times_exp(weight: jax.Array, exponent: jax.Array) -> jax.Array:
    """weight e^exponent, 0 where the weight is 0 whatever the exponent."""
    used = weight > 0
    return jnp.where(used, weight * jnp.exp(_bounded(jnp.where(used, exponent, 0))), 0)


class _Pole(NamedTuple):
    """A pole seen from both contours: shares left of each (``None`` without a Gamma stage), their difference Lambda."""

    first: _Share | None
    second: _Share
    inside_first: jax.Array
    rest: jax.Array


def _pole(first: _Contour | None, second: _Contour, few: jax.Array, at: jax.Array) -> _Pole:
    two = _share(second, at)
    one = None if first is None else _share(first, at)
    inside = jnp.where(few, two.inside, 0 if one is None else one.inside)
    return _Pole(one, two, inside, two.inside - inside)


def _bracket(first: _Contour | None, second: _Contour, few: jax.Array, p: _Pole, q: _Pole, phi_p: jax.Array,
             phi_q: jax.Array, distance: jax.Array, slope: jax.Array, scale: jax.Array) -> jax.Array:
    """(Lambda e^phi)[p, q], ``distance`` = p - q, ``slope`` = phi[p, q]; p and q are combined if near on ``scale``."""
    near = jnp.abs(distance) < _NEAR * scale
    rest_slope = _share_slope(second, p.second, q.second, distance)
    if first is not None and p.first is not None and q.first is not None:
        rest_slope -= _share_slope(first, p.first, q.first, distance)
    rest_slope = jnp.where(few, 0, rest_slope)
    used = near & ((p.rest != 0) | (rest_slope != 0))
    phi_p, phi_q = jnp.where(used | ~near, phi_p, 0), jnp.where(used | ~near, phi_q, 0)
    combined = p.rest * exp_difference(phi_p, phi_q) * slope + rest_slope * jnp.exp(_bounded(phi_q))
    apart = (_times_exp(p.rest, phi_p) - _times_exp(q.rest, phi_q)) / jnp.where(near, 1, distance)
    return jnp.where(near, combined, apart)


def passage(t: jax.Array, queue: Queue, stage: Stage | None = None) -> Passage:
    """The three functions of the module's docstring at the time ``t`` > 0, for the weights of ``queue``; O(NODES).

    Scalars of one floating dtype, finite. A ``stage`` is no faster than the queue (``stage.rate`` <= ``queue.rate``),
    and no service is faster than ``queue.rate``. Relative accuracy is that of waiting + service; see
    :func:`late_passage` for a small tail of a wait with a short stage.
    """
    return _passage(t, queue, stage, jnp.zeros((), bool))


def late_passage(t: jax.Array, queue: Queue, stage: Stage, plain: Passage) -> Passage:
    """:func:`passage` with waiting and density right in relative terms also for short stages; ``service`` is not.

    ``plain`` = ``passage(t, queue)``.
    """
    short = stage.shape <= 1
    found = _passage(t, queue, stage, short)
    return jax.tree.map(lambda one, two: jnp.where(short, one + two, two), plain, found)


def _passage(t: jax.Array, queue: Queue, stage: Stage | None, short: jax.Array) -> Passage:
    """``short``: the stage's factor (1 + s/c)^-K is replaced by (1 + s/c)^-K - 1 (then ``service`` has no meaning)."""
    M, nu, d, mu = queue.places, queue.rate, queue.gap, queue.service
    few = M <= FEW
    second, first = _contours(t, queue, stage)
    K = jnp.zeros_like(t) if stage is None else stage.shape
    K_inside = jnp.where(short, 0, K)  # the power that is part of phi

    def weigh(contour: _Contour, a: jax.Array, b: jax.Array, log_re: jax.Array, log_im: jax.Array) -> Passage:
        return _kernels(contour, *_multiply(short, a, b, *_expm1_complex(-K * log_re, -K * log_im)), queue)

    re, im = second.x * t, second.y * t
    stage_re = stage_im = jnp.zeros_like(re)
    if stage is not None:
        stage_re, stage_im = _log1p_complex(second.x, second.y, stage.rate)
        re, im = re - K_inside * stage_re, im - K_inside * stage_im
    log_re, log_im = _log1p_complex(second.x, second.y, nu)
    a, b = _cos_sin_exp(re + queue.log_last - M * log_re, im - M * log_im)
    fall_re, fall_im = (jnp.where(few, M * x, 0) for x in (log_re - queue.log_ratio, log_im))
    a, b = _multiply(few, jnp.where(few, a, -a), jnp.where(few, b, -b), *_expm1_complex(fall_re, fall_im))
    rule = _kernels(second, a, b, queue) if stage is None else weigh(second, a, b, stage_re, stage_im)
    if first is not None and stage is not None:
        log_re, log_im = _log1p_complex(first.x, first.y, stage.rate)
        a, b = _cos_sin_exp(queue.log_first + first.x * t - K_inside * log_re, first.y * t - K_inside * log_im)
        rule = jax.tree.map(lambda one, two: jnp.where(few, 0, one) + two, weigh(first, a, b, log_re, log_im), rule)

    def stage_log(p: jax.Array) -> jax.Array:  # -K ln(1 + p/c); any finite number where p <= -c, which is never used
        if stage is None:
            return jnp.zeros_like(t)
        u = p / stage.rate
        return -K_inside * log1p(jnp.where(u > -1, u, 0))

    at_zero, at_mu, at_gap = (_pole(first, second, few, p) for p in (jnp.zeros_like(d), -mu, -d))
    phi_mu = queue.log_first - mu * t + stage_log(-mu)  # phi_1, as phi_gap
    phi_gap = queue.log_first - d * t + stage_log(-d)
    spare = jnp.where(nu > mu, nu - mu, nu)
    last_mu = phi_mu + (queue.log_last - queue.log_first) - M * log1p(spare / nu - 1)
    fall_zero = M * log1p_over(d / queue.up) / queue.up  # (phi_1 - phi_2)(p)/(p + d) at p = 0 and -mu
    fall_mu = M * log1p_over(jnp.where(nu > mu, (d - mu) / queue.up, 0)) / queue.up
    mass = exp_difference(queue.log_first, queue.log_last) * fall_zero
    outside = at_mu.second.outside
    used = outside > 0
    tilted = exp_difference(jnp.where(used, phi_mu, 0), jnp.where(used, last_mu, 0)) * outside * fall_mu

    slope_zero, slope_mu = t - fall_zero, t
    scale = second.width
    at_pole = _times_exp(at_gap.rest, phi_gap)
    whole_residue, short_residue = at_pole, jnp.zeros_like(t)
    if first is not None and stage is not None:
        c = stage.rate
        ahead = jnp.where(d < c, c - d, c)
        per_gap = K / c * log1p_over(jnp.where(d < c, -d / c, 0))  # -K ln(1 - d/c)/d
        slope_zero -= jnp.where(short, 0, per_gap)
        slope_mu -= K_inside / ahead * log1p_over(jnp.where((d < c) & (mu < c), (d - mu) / ahead, 0))
        scale = first.width
        short_residue = at_pole * per_gap * growth_over(jnp.where(short, per_gap * d, 0))
        whole_residue = jnp.where(short, short_residue * d, at_pole)
    waiting = at_zero.inside_first * mass - _bracket(
        first, second, few, at_zero, at_gap, queue.log_last, phi_gap, d, slope_zero, second.width)
    service = rule.service + tilted + _bracket(
        first, second, few, at_mu, at_gap, phi_mu, phi_gap, d - mu, slope_mu, scale)
    waiting = rule.waiting + jnp.where(short, short_residue, waiting)
    return Passage(nu * waiting, nu * service, nu * (rule.density + whole_residue))


def _contours(t: jax.Array, queue: Queue, stage: Stage | None) -> tuple[_Contour, _Contour | None]:
    """Through the saddle points of phi_2 and phi_1, with one place more than there is."""
    if stage is None:
        k = queue.places + 1
        return _contour(k / t, -queue.rate, k), None
    k = stage.shape + 1
    ahead = queue.rate - stage.rate
    # k/z + M/(z + ahead) = t
    half = (k + queue.places - t * ahead) / 2
    root = jnp.sqrt(half * half + t * ahead * k)
    z = jnp.where(half > 0, (half + root) / t, ahead * k / jnp.where(half > 0, 1, root - half))
    part = z / (z + ahead)
    return _contour(z, -stage.rate, k + queue.places * part * part), _contour(k / t, -stage.rate, k)
