"""The level recursion of the fixed point: from the queues with at least k customers to those with at least k + 1.

Let s_k (phases,) be the share of queues with at least k customers by the phase of the service in progress,
u_k = s_k 1, t0 = -T 1. In equilibrium what enters the levels above k, lambda u_k^d, leaves them, s_{k+1} t0; with that
the mean-field equations of :mod:`hetjax.models.supermarket.mean_field` become

    s_1 = lambda alpha (-T)^-1,      s_{k+1} (r_k I - T) = r_k s_k + lambda u_{k+1}^d alpha,
    r_k = lambda (u_k^d - u_{k+1}^d) / (u_k - u_{k+1}),

one unknown scalar u_{k+1} = s_{k+1} 1 a level, every term positive: no truncation, nothing cancels. For levels far
below the range of the floating point numbers we carry

    L = -log u_k,  sigma = s_k / u_k,  t = log(u_k / u_{k+1}) > 0 (the unknown),
    w = lambda u_k^(d-1) = lambda e^-(d-1)L,
    phi = (1 - e^-dt) / (1 - e^-t),  M = (w phi I - T)^-1:

    form B:  e^-t = w (phi sigma + e^-dt alpha) M 1.

While nearly all queues have k customers (t small) form B loses digits: it asks for the difference of two numbers near
1. The same equation for x_k = s_k - s_{k+1}, with c = r_{k-1} x_{k-1} / u_k (the flow into level k from below):

    form A:  (1 - e^-t) alpha M t0 = c M 1,      x_k / u_k = (c + w phi (1 - e^-t) alpha) M,

from c_1 = lambda (1 - u_1^d)/u_1 alpha on. Newton's method solves the logarithm of either form, in log t or t, inside a
bracket. Derivatives pass through one more Newton step from the solution, which is held constant.

(rI - T)^-1 is applied by elimination without subtractions (:mod:`hetjax.ctmc.elimination`), here on single entries, so
that a batch of systems is vectorised entry by entry.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc.elimination import total
from hetjax.models.supermarket.params import Params
from hetjax.numerics.logarithm import log

Array = jax.Array
NEWTON_STEPS = 8
SMALL_STEP, SHALLOW = 0.5, 0.7  # form A where t and L are below these


class Level(NamedTuple):
    """The state of the recursion at level k: ``L`` = -log u_k, ``step`` (a guess of t_k), ``ratio`` of two successive
    t, ``sigma`` and ``c`` of shape (phases,)."""

    L: Array
    step: Array
    ratio: Array
    sigma: Array
    c: Array


class LevelStep(NamedTuple):
    """What one step found at level k: ``t`` = log(u_k/u_{k+1}), ``rate`` = r_k, ``here`` = x_k/u_k (phases,), the
    relative size of the last Newton ``correction``."""

    t: Array
    rate: Array
    here: Array
    correction: Array


class _Inverse:
    """(r I - T)^-1 with exit rates t0, entry by entry: lists of scalars."""

    def __init__(self, rates: list[list[Array]], exits: list[Array], r: Array) -> None:
        n = len(exits)
        W = [list(row) for row in rates]
        leave = [x + r for x in exits]
        self.n, self.W, self.inverse = n, W, [r] * n
        self.move: list[list[Array]] = [[] for _ in range(n)]
        for k in range(n - 1, -1, -1):
            self.inverse[k] = inverse = 1 / total([leave[k], *W[k][:k]])
            self.move[k] = [W[k][j] * inverse for j in range(k)]
            out = leave[k] * inverse
            for i in range(k):
                leave[i] = leave[i] + W[i][k] * out
                for j in range(k):
                    if j != i:
                        W[i][j] = W[i][j] + W[i][k] * self.move[k][j]

    def right(self, b: list[Array]) -> list[Array]:
        b = list(b)
        for k in range(self.n - 1, -1, -1):
            b[k] = b[k] * self.inverse[k]
            for i in range(k):
                b[i] = b[i] + self.W[i][k] * b[k]
        for k in range(1, self.n):
            b[k] = total([b[k], *(self.move[k][j] * b[j] for j in range(k))])
        return b

    def left(self, v: list[Array]) -> list[Array]:
        v = list(v)
        for k in range(self.n - 1, 0, -1):
            for j in range(k):
                v[j] = v[j] + v[k] * self.move[k][j]
        for k in range(self.n):
            v[k] = total([v[k], *(v[j] * self.W[j][k] for j in range(k))]) * self.inverse[k]
        return v


def _dot(a: list[Array], b: list[Array]) -> Array:
    return total([x * y for x, y in zip(a, b, strict=True)])


def choice_ratio(d: Array, t: Array) -> Array:
    """phi = (1 - e^-dt)/(1 - e^-t) for t > 0: lambda u^(d-1) phi is the arrival rate at each queue of one length."""
    return jnp.expm1(-d * t) / jnp.expm1(-t)


def first_level(params: Params) -> Level:
    """Level 1: u_1 = rho, s_1 = lambda alpha (-T)^-1."""
    rate, d = params.arrival_rate, params.d
    busy = params.busy_phases()
    mean = jnp.sum(busy)
    L = -jnp.log(rate * mean)
    c = -jnp.expm1(-d * L) / mean * params.alpha
    return Level(L, d * L, jnp.broadcast_to(d, L.shape), busy / mean, c)


class System(NamedTuple):
    """What the recursion reads of the parameters, as scalars."""

    d: Array
    log_rate: Array
    alpha: list[Array]
    exits: list[Array]
    rates: list[list[Array]]


def system(params: Params) -> System:
    """The scalars of ``params``."""
    p = range(params.phases)
    exits = params.exit_rates
    return System(params.d, jnp.log(params.arrival_rate), [params.alpha[i] for i in p], [exits[i] for i in p],
                  [[params.T[i, j] for j in p] for i in p])


def _equation(s: System, t: Array, sigma: list[Array], c: list[Array], log_w: Array,
              shallow: Array) -> tuple[Array, Array]:
    """The logarithm of form A (where shallow) or B at t, and its derivative in t."""
    e_t, one_minus = jnp.exp(-t), -jnp.expm1(-t)
    e_dt, one_minus_d = jnp.exp(-s.d * t), -jnp.expm1(-s.d * t)
    phi = one_minus_d / one_minus
    phi_slope = (s.d * e_dt - phi * e_t) / one_minus
    w = jnp.exp(log_w)
    r, r_slope = w * phi, w * phi_slope
    M = _Inverse(s.rates, s.exits, r)
    z = M.right([jnp.ones_like(t)] * len(c))
    z2 = M.right(z)
    az, az2, sz, sz2, cz = (_dot(x, y) for x, y in ((s.alpha, z), (s.alpha, z2), (sigma, z), (sigma, z2), (c, z)))
    ends = _dot(s.alpha, M.right(s.exits))
    h = phi * sz + e_dt * az
    h_slope = phi_slope * sz - s.d * e_dt * az - (phi * sz2 + e_dt * az2) * r_slope
    flow = jnp.where(shallow, cz, 1)
    slope_a = e_t / one_minus + (_dot(c, z2) / flow - (az - r * az2) / ends) * r_slope
    g = jnp.where(shallow, log(one_minus * ends / flow), t + log_w + log(h))
    return g, jnp.where(shallow, slope_a, 1 + h_slope / h)


def _root(s: System, guess: Array, steps: int, *known: Any) -> tuple[Array, Array]:
    """t by ``steps`` bracketed Newton steps, in log t below SMALL_STEP; and the last relative change."""
    small = guess < SMALL_STEP

    def newton(_: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        t, low, high, _correction = carry
        g, slope = _equation(s, t, *known)
        low, high = jnp.where(g < 0, t, low), jnp.where(g < 0, high, t)
        change = g / slope
        new = jnp.where(small, t * jnp.exp(jnp.clip(-change / t, -3, 3)), t - change)
        middle = jnp.where(jnp.isinf(high), 4 * t, (low + high) / 2)
        new = jnp.where((new > low) & (new < high), new, middle)
        found = jnp.abs(change) <= 4 * float(jnp.finfo(t.dtype).eps) * t  # here the bracket is noise
        new = jnp.where(found, t, new)
        return new, low, high, jnp.abs(change) / t

    far = jnp.full_like(guess, jnp.inf)
    t, _, _, correction = lax.fori_loop(0, steps, newton, (guess, jnp.zeros_like(guess), far, far))
    return t, correction


def next_level(s: System, level: Level, newton_steps: int = NEWTON_STEPS) -> tuple[Level, LevelStep]:
    """One level of the recursion. A level with -log u beyond 1e-9 of the largest float is not followed further."""
    p = range(len(s.exits))
    frozen = level.L > float(jnp.finfo(level.L.dtype).max) * 1e-9
    L = jnp.where(frozen, 1, level.L)
    sigma, c = [level.sigma[i] for i in p], [level.c[i] for i in p]
    log_w = s.log_rate - (s.d - 1) * L
    guess, before = (lax.stop_gradient(jnp.where(frozen, 1, x)) for x in (level.step, level.step / level.ratio))
    shallow = (guess < SMALL_STEP) & (L < SHALLOW)
    known = (sigma, c, log_w, shallow)
    held, constant = lax.stop_gradient((s, known))
    root, correction = _root(held, guess, newton_steps, *constant)
    g, slope = _equation(s, root, *known)
    t = root - g / lax.stop_gradient(slope)
    one_minus = -jnp.expm1(-t)
    phi, e_dt = choice_ratio(s.d, t), jnp.exp(-s.d * t)
    r = jnp.exp(log_w) * phi
    M = _Inverse(s.rates, s.exits, r)
    above = M.left([phi * x + e_dt * a for x, a in zip(sigma, s.alpha, strict=True)])
    here = M.left([x + r * one_minus * a for x, a in zip(c, s.alpha, strict=True)])
    h = total(above)
    ratio = lax.stop_gradient(jnp.clip(t / before, 0.5, 2 * s.d))
    following = Level(jnp.where(frozen, level.L, L + t), lax.stop_gradient(t) * ratio, ratio,
                      jnp.stack([x / h for x in above]), jnp.stack([x * (phi / h) for x in here]))
    return following, LevelStep(t, r, jnp.stack(here), jnp.where(frozen, 0, correction))
