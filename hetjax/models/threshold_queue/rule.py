"""The best threshold for Poisson arrivals: exactly, in O(1), and three approximations of it.

With L(T) the mean number under threshold T, q = lambda/mu1, r = mu1/mu2, v = v_T (:mod:`.poisson`), c = 1 + r (1 - q)
and the double geometric sum U = sum_{s<T} (T - 1 - s) q^s, the difference L(T + 1) - L(T) has the sign of

    G(T) = q^2 U [v (c^2 + q r) + q c] + T [v ((r + 1)^2 + q c - q^2 r (c - 1)) + q (1 + q) c]
           - v [(c - 1)(r^2 + r (1 + q) - 1) - 1] - q (q r + r^2 - 1),

which turns from negative to positive once. So the best threshold is the least T >= 1 with G(T) >= 0. (L itself cannot
tell: at q = 1/2, r = 200 its values around T = 100 are equal in float64.) The identity was verified symbolically and
the optima in several hundred digits; it is this project's own result.

Fastest server first (T = 1) is best where G(1) >= 0, that is where

    q^2 r (r^2 + 1) + q (4 r^2 + 5 r + 1) + 2 + 5 r + 3 r^2 - r^3 - r^4 >= 0:    always for r <= 2, never for r > 3.745.

Near saturation, with theta = sqrt(r)(1 - q), the best threshold is sqrt(r) tau where tau solves

    tau = [theta + D coth(D tau/2)]/2,     D = sqrt(theta^2 + 4);      tau = 1.19968 at rho = 1.
"""

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.stalling.weights import fold
from hetjax.models.threshold_queue.poisson import slow_ratio
from hetjax.numerics.geometric import descending_sum
from hetjax.numerics.logarithm import log_near_one

Array = jax.Array
_EDGE = 5.757  # 4 times 1.19968^2


def threshold_sign(rate: Array, mu1: Array, mu2: Array, threshold: Array) -> Array:
    """G(T), of the sign of L(T + 1) - L(T); elementwise, any real T >= 1 (between whole numbers: a continuation).

    >>> import jax.numpy as jnp
    >>> signs = [threshold_sign(*(jnp.asarray(x) for x in (4.4, 5.0, 0.5, T))) for T in (1.0, 2.0, 3.0, 4.0)]
    >>> [bool(g > 0) for g in signs]
    [False, False, True, True]
    """
    q, a, r, T = rate / mu1, mu2 / mu1, mu1 / mu2, threshold
    gap = (mu1 - rate) / mu1
    c = 1 + r * gap
    v = slow_ratio(q, a, T)
    # sum_{s<T} (T-1-s) q^s; above 1 in powers of 1/q: q^(T-1) sum_s s q^-s
    f = fold(log_near_one(q, -gap), q, T - 1, q > 1)
    U = jnp.where(f.rising, f.sums.ascending / f.decay, descending_sum(f.log, f.ratio, f.terms, f.decay))
    return (q * q * U * (v * (c * c + q * r) + q * c)
            + T * (v * ((r + 1) ** 2 + q * c - q * q * r * (c - 1)) + q * (1 + q) * c)
            - v * ((c - 1) * (r * r + r * (1 + q) - 1) - 1) - q * (q * r + r * r - 1))


def fastest_first_is_best(rate: Array, mu1: Array, mu2: Array) -> Array:
    """Whether starting the slow server for every customer who would wait is best (threshold 1); bool.

    >>> import jax.numpy as jnp
    >>> [bool(fastest_first_is_best(jnp.asarray(q), jnp.asarray(1.0), jnp.asarray(0.4))) for q in (0.1, 0.9)]
    [False, True]
    """
    q, r = rate / mu1, mu1 / mu2
    return (q * q * (r * (r * r + 1)) + q * (4 * r * r + 5 * r + 1) + 2 + 5 * r + 3 * r * r) >= (r + 1) * r ** 3


def optimal_threshold(rate: Array, mu1: Array, mu2: Array) -> Array:
    """The whole threshold that minimises the mean number for Poisson arrivals, as a real number; O(1), elementwise.

    Two secant steps on G from the diffusion's estimate, then G itself decides between the neighbours. Not
    differentiable (piecewise constant). Needs 0 < rate < mu1 + mu2, mu2 <= mu1.

    >>> import jax.numpy as jnp
    >>> float(optimal_threshold(jnp.asarray(0.5), jnp.asarray(1.0), jnp.asarray(1 / 200)))
    100.0
    """
    rate, mu1, mu2 = (lax.stop_gradient(x) for x in jnp.broadcast_arrays(rate, mu1, mu2))

    def G(T: Array) -> Array:
        at = [jnp.broadcast_to(x, T.shape) for x in (rate, mu1, mu2)]  # T may be two rows
        return threshold_sign(at[0], at[1], at[2], T)

    def secant(s: Array, t: Array, Gs: Array, Gt: Array) -> Array:
        rise = Gt - Gs
        step = Gt * (t - s) / jnp.where(rise > 0, rise, jnp.ones_like(rise))
        return jnp.maximum(t - jnp.where(rise > 0, step, jnp.zeros_like(step)), 1)

    r = mu1 / mu2
    drift = r * ((mu1 - rate) / mu1)
    start = jnp.maximum((drift + jnp.sqrt(drift * drift + _EDGE * r)) / 2 - 1, 1)
    near = start + 0.5
    G0, G1 = G(jnp.stack([start, near]))
    third = secant(start, near, G0, G1)
    found = jnp.maximum(jnp.ceil(secant(near, third, G1, G(third))), 1)
    below = jnp.maximum(found - 1, 1)
    at, before = G(jnp.stack([found, below]))
    return jnp.where(at < 0, found + 1, jnp.where(before >= 0, below, found))


def simple_threshold(rate: Array, mu1: Array, mu2: Array) -> Array:
    """The usual heuristic max(1, floor((mu1 - lambda)(1/mu2 - 1/mu1)) + 1): no faster to wait for the fast server.

    Exact for half of a broad grid, too low in heavy traffic: the mean number is up to 5.6 % above the best
    (rho = .71, r = 6.5). O(1), elementwise.

    >>> import jax.numpy as jnp
    >>> float(simple_threshold(jnp.asarray(0.5), jnp.asarray(1.0), jnp.asarray(1 / 200)))
    100.0
    """
    return jnp.maximum(jnp.floor((mu1 - rate) * (1 / mu2 - 1 / mu1)) + 1, 1)


def diffusion_threshold(rate: Array, mu1: Array, mu2: Array) -> Array:
    """sqrt(r) tau: the best threshold of the heavy-traffic diffusion, a real number; elementwise.

    tau is the fixed point of tau = [theta + D coth(D tau/2)]/2, found by Newton's method (monotone from its start).

    >>> import jax.numpy as jnp
    >>> round(float(diffusion_threshold(jnp.asarray(1.0), jnp.asarray(1.0), jnp.asarray(1e-6))) / 1000, 4)
    1.1997
    """
    theta, D, root_r = _diffusion(rate, mu1, mu2)
    tau = (theta + D) / 2  # a lower bound, as coth > 1; the difference is convex and falls: Newton stays below the root
    for _ in range(6):
        coth = 1 / jnp.tanh(D * tau / 2)
        fall = 1 + D * D / 4 * (coth * coth - 1)
        tau = tau + ((theta + D * coth) / 2 - tau) / fall
    return root_r * tau


def explicit_threshold(rate: Array, mu1: Array, mu2: Array) -> Array:
    """A formula within .13 % of the best mean number for rho .05-.99, r 1-200 (exact at 97 % of that grid); O(1).

    1 where :func:`fastest_first_is_best`, else max(2, ceil(sqrt(r) tau - 2 + 1.2/(theta^2 + 1.4))) with one step
    of the diffusion's fixed point from the estimate tau0 = [theta + sqrt(theta^2 + 5.757)]/2. The shift, a function of
    theta to good accuracy, was fitted to the exact rule.

    >>> import jax.numpy as jnp
    >>> float(explicit_threshold(jnp.asarray(0.5), jnp.asarray(1.0), jnp.asarray(1 / 200)))
    100.0
    """
    theta, D, root_r = _diffusion(rate, mu1, mu2)
    tau = (theta + jnp.sqrt(theta * theta + _EDGE)) / 2
    tau = (theta + D / jnp.tanh(D * tau / 2)) / 2
    later = jnp.maximum(jnp.ceil(root_r * tau - 2 + 1.2 / (theta * theta + 1.4)), 2)
    return jnp.where(fastest_first_is_best(rate, mu1, mu2), jnp.ones_like(later), later)


def _diffusion(rate: Array, mu1: Array, mu2: Array) -> tuple[Array, Array, Array]:
    root_r = jnp.sqrt(mu1 / mu2)
    theta = root_r * ((mu1 - rate) / mu1)
    return theta, jnp.sqrt(theta * theta + 4), root_r
