"""N(K) at one point of the stalling queue, split into what depends on the buffer K and what does not.

Written with weights relative to the states below level m (models as in :mod:`hetjax.models.stalling.closed_form`),

    N(K) = W / Z,   Z = 1 + p1 (sum_{k<=K} q^k + q^K tau),   tau = S1 / h0,
    W = N_b + p1 (sum_{k<=K} (m + k) q^k + q^K [s + (m + K + n) tau + S2 / h0]),

with N_b the mean number below level m, S1 = sum_{1..M} rho^w, S2 = sum w rho^w and s = n X_1 t_1 / t_0 the mean number
in slow servers, waiting line apart, over the mass of level m+K. Everything K does to N goes through X_j (the ratio of
phase j at level m+K) and t_j. K + 1 steps of the Moebius map X -> 1 + m X / (a X + b), a = j / r, from X_{m-1} have
the matrix

    [[v+ E + D kappa, b E], [a E, v- E + D kappa]],   kappa = (w- / w+)^(K+1),  E = 1 - kappa,  determinant D^2 kappa,

so that X'(K) and X(K+1) - X(K) are products of non-negative numbers (f(x) - f(y) = det (x - y) / (den(x) den(y))), and
with them t'(K), s'(K), tau'(K) and the unit steps of all three: nothing here subtracts two large numbers.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.stalling.crossing import small_roots
from hetjax.models.stalling.load import log_rho
from hetjax.numerics import exponential_moment, log, log1p, log_near_one, ratio_moments, truncated_poisson
from hetjax.numerics.counting import Count

RESCALE_AT = 2.0 ** 32  # t_j is brought back below this by a power of two: 512 factors reach 1e4238


class Fixed(NamedTuple):
    """What does not depend on K at one point; arrays with a phase axis have shape (n,), j = 1..n."""

    q: jax.Array
    slack: jax.Array  # 1 - q
    log_q: jax.Array
    m: jax.Array
    n: jax.Array
    p1: jax.Array  # weight of level m, over that of all levels below
    log_p1: jax.Array  # p1 itself underflows for small q and many servers
    below_mean: jax.Array  # N_b
    s1: jax.Array  # S1, over rho^M where rho > 1
    log_s1_unit: jax.Array  # max(0, M ln rho)
    line_mean: jax.Array  # S2 / S1, the mean length of a non-empty line
    y: jax.Array  # -|ln q|
    ratio: jax.Array  # e^y
    per: jax.Array  # 1 / F_0(y)
    lag: jax.Array  # F_1 / F_0 at y
    gap: jax.Array  # g: 1 - F_1 / F_0 at ln q, in (0, 1)
    density: jax.Array  # q / F_0(ln q) = q ln q / (q - 1)
    x_start: jax.Array  # X_{m-1}
    x_step: jax.Array  # X_m - X_{m-1}
    v_plus: jax.Array
    v_minus: jax.Array
    root: jax.Array  # D
    log_ratio: jax.Array  # ln(w+ / w-)
    a: jax.Array  # j / r
    b: jax.Array  # m q
    c: jax.Array  # (n - j + 1) / (r b)


class Phases(NamedTuple):
    """s, h0 and how they change, at one K."""

    s: jax.Array
    s_slope: jax.Array  # ds/dK
    s_step: jax.Array  # s(K+1) - s(K)
    log_h0: jax.Array
    h0_slope: jax.Array  # d ln h0 / dK
    h0_step: jax.Array  # 1 - h0(K) / h0(K+1)


def fixed_parts(q: jax.Array, r: jax.Array, M: jax.Array, m: Count, n: Count) -> Fixed:
    """:class:`Fixed` of one point (scalars, M may be infinite where rho < 1). O(m n)."""
    fast, slow = jnp.asarray(m.real(q), q.dtype), jnp.asarray(n.real(q), q.dtype)
    b, small = q * fast, q <= 1
    below = truncated_poisson(b, m)
    tiny = jnp.finfo(q.dtype).tiny
    log_p1 = jnp.where(below.tail > tiny, log(jnp.maximum(below.tail, tiny)),
                       fast * log(b) - lax.lgamma(fast + 1) + log(jnp.maximum(below.empty, tiny)))
    log_q = log_near_one(q, q - 1)
    y, ratio = jnp.where(small, log_q, -log_q), jnp.where(small, q, 1 / q)
    f0, f1 = ratio_moments(y, ratio)
    per, lag = 1 / f0, f1 / f0
    j = jnp.arange(1, max(n.bound, 1) + 1, dtype=q.dtype)
    a = j / r
    x_start, x_step = _levels_below(a, b, m)
    v_plus, v_minus, root = small_roots(-(fast * (1 - q) + a), a * b)
    line = _waiting_line(log_rho(q, r, fast, slow), M)
    return Fixed(q, 1 - q, log_q, fast, slow, below.tail, log_p1, below.mean, *line,
                 y, ratio, per, lag, jnp.where(small, 1 - lag, lag), jnp.where(small, q, 1) * per,
                 x_start, x_step, v_plus, v_minus, root, log1p(root * (v_plus + b) / (fast * b)), a, b,
                 jnp.maximum(slow - j + 1, 0) / (r * b))


def _levels_below(a: jax.Array, b: jax.Array, m: Count) -> tuple[jax.Array, jax.Array]:
    """X_{m-1} and X_m - X_{m-1} of X_0 = 1, X_l = 1 + l X_{l-1} / (a X_{l-1} + b), without a subtraction.

    The step obeys X_{l+1} - X_l = X_l / (a X_l + b) + l b (X_l - X_{l-1}) / ((a X_l + b) (a X_{l-1} + b)).
    """
    def climb(l: Any, levels: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, step = levels
        rate = 1 / (a * x + b)
        new = 1 + l * x * rate
        return new, (new + l * b * rate * step) / (a * new + b)

    return m.climb(climb, (jnp.ones_like(a), 1 / (a + b)), b)


def _waiting_line(x_rho: jax.Array, M: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """S1 = sum_{w=1}^M rho^w over max(1, rho^M), the logarithm of that unit, and S2 / S1 with S2 = sum w rho^w.

    M = inf (rho < 1) gives the limits; at M = 0, S1 = 0 with S2 / S1 its limit, which derivatives in M need.
    """
    endless, below = jnp.isposinf(M), x_rho <= 0
    x = jnp.where(below, x_rho, -x_rho)
    ratio = jnp.exp(x)
    places = jnp.where(endless, 1, M) + jnp.finfo(M.dtype).eps ** 2  # no quotient 0 / 0 below
    f0, f1 = ratio_moments(x, ratio)
    decay = jnp.exp(x * places)
    h0, h1 = (exponential_moment(order, x, places, decay) for order in (0, 1))
    centre = h1 / h0
    mean = jnp.where(below, centre + (1 - f1 / f0), ratio * (places - centre) / f0 + (places / h0) * (f1 / f0))
    closing = -jnp.expm1(jnp.where(endless & (x < 0), x, -1))
    return (jnp.where(endless, ratio / closing, jnp.where(below, ratio, 1) * h0 / f0),
            jnp.where(below | endless, 0, places * x_rho), jnp.where(endless, 1 / closing, mean))


def phases(f: Fixed, K: jax.Array) -> Phases:
    """:class:`Phases` at level m + K. O(n), whatever K.

    t_{j-1} = 1 + c_j X_j t_j is carried with the share it keeps, t(K) / t(K+1), and the share it gains,
    1 - t(K) / t(K+1): either may be tiny, so neither is one minus the other.
    """
    exponent = (K + 1) * f.log_ratio
    E, tail = -jnp.expm1(-exponent), f.root * jnp.exp(-exponent)
    start = f.a * f.x_start
    here = (start + f.v_minus) * E + tail
    after = (start + f.a * f.x_step + f.v_minus) * E + tail
    x = ((f.v_plus * f.x_start + f.b) * E + tail * f.x_start) / here
    moved = tail * f.x_step / here / x
    growth = moved * f.root / after  # X(K+1) / X(K) - 1
    rows = (f.c * x, moved * f.log_ratio * (start + f.b) / here, growth / (1 + growth), 1 / (1 + growth))

    def climb(carry: Any, row: Any) -> tuple[Any, None]:
        t, unit, rescaled, slope, gained, kept = carry  # t_j, 1 in its units, how often rescaled, d ln t_j / dK
        ratio, x_slope, x_gained, x_kept = row
        up, both = ratio * t, x_kept * kept
        new, later = unit + up, unit * both + up
        big = new > RESCALE_AT
        shrink = jnp.where(big, 1 / RESCALE_AT, 1).astype(t.dtype)
        return (new * shrink, unit * shrink, rescaled + big.astype(t.dtype), up * (x_slope + slope) / new,
                up * (x_gained + x_kept * gained) / later, new * both / later), None

    zero, one = jnp.zeros_like(exponent[0]), jnp.ones_like(exponent[0])
    carry = (one, one, zero, zero, zero, one)
    if len(f.a) > 1:
        upper = jax.tree.map(lambda row: row[1:], rows)
        carry, _ = lax.scan(climb, carry, upper, reverse=True, unroll=min(len(f.a) - 1, 4))
    t, unit, rescaled, slope, gained, kept = carry  # t_1; the last step also gives s = n X_1 / (1 / t_1 + c_1 X_1)
    ratio, x_slope, x_gained, x_kept = (row[0] for row in rows)
    up, both, rise = ratio * t, x_kept * kept, x_gained + x_kept * gained
    h0, later = unit + up, unit * both + up
    s = f.n * x[0] * (t / h0)
    return Phases(s, s * (x_slope + slope) * (unit / h0), s * unit * rise / later,
                  log(h0) + rescaled * math.log(RESCALE_AT), up * (x_slope + slope) / h0, up * rise / later)
