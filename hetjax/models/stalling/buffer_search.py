"""The search behind :func:`hetjax.models.stalling.buffer.optimal_buffer`: one point, fixed iteration counts, pure.

N(K) hardly changes near its minimum (the gain decays like q^K), so the search follows the signs of the scaled slope and
of the scaled differences of :mod:`hetjax.models.stalling.buffer_slope`, never values of N. For an endless waiting line
N(K) fell and then rose in every case tried; a short line can add a second local minimum at K = 0 (the system that loses
more customers holds fewer). Hence: find the *last* place where N stops falling, and weigh it against K = 0.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.stalling.buffer_model import Fixed, phases
from hetjax.models.stalling.buffer_slope import (
    State,
    rise_from_zero,
    slope_bracket,
    state,
    step_bracket,
    step_total,
)
from hetjax.numerics.bracket import close_in, follow

ROOT_STEPS = 10  # interpolation steps on a bracket [K, 2K]: the slope is close to a straight line there
FLAT = 8  # neighbours whose scaled difference is below this many roundings of its terms cannot be told apart


class Found(NamedTuple):
    """An optimum at one point. ``K`` whole, ``K_real`` the root of dN/dK between ``low`` and ``high`` (or an end)."""

    K: jax.Array
    K_real: jax.Array
    low: jax.Array
    high: jax.Array
    minima: jax.Array  # local minima seen, as a float


def bracketing_search(f: Fixed, largest: jax.Array) -> Found:
    """Brackets the last sign change of dN/dK among 0, 1/2, 1, 2, 4, .., ``largest``, closes in, weighs it against 0."""
    zero = jnp.zeros_like(largest)
    at_zero = state(f, zero)
    start, size = slope_bracket(f, at_zero)

    def slope(K: jax.Array) -> jax.Array:
        return slope_bracket(f, state(f, K)).value

    def scan(carry: Any, K: jax.Array) -> tuple[Any, None]:
        before, f_before, *kept = carry
        here = slope(K)
        turns = (f_before < 0) & (here >= 0)
        new = (before, K, f_before, here)
        return (K, here, *(jnp.where(turns, x, y) for x, y in zip(new, kept, strict=True))), None

    grid = jnp.minimum(2.0 ** jnp.arange(-1, 24, dtype=largest.dtype), largest)
    (_, f_end, low, high, f_low, f_high), _ = lax.scan(scan, (zero, start, zero, zero, start, start), grid)
    turned, falls_on = high > low, f_end < 0
    low, high, root = close_in(slope, low, high, f_low, f_high, ROOT_STEPS)
    interior = turned & ~falls_on
    last = jnp.where(falls_on, largest, jnp.where(interior, root, 0))
    # the same candidate among whole numbers: N(K+1) >= N(K) first holds at floor(last) or just after
    floor = jnp.floor(last)
    whole = jnp.where(interior & (step_bracket(f, state(f, floor)).value < 0), floor + 1, floor)
    rises_at_zero = (start > FLAT * jnp.finfo(start.dtype).eps * size) & (last > 0)

    def weigh(K: jax.Array) -> jax.Array:
        better = rise_from_zero(f, at_zero, state(f, K, at_zero.log_unit)) > 0
        return jnp.where(rises_at_zero & ~better, zero, K)

    idle = f.n == 0  # then N only rises with K (or M = inf and nothing depends on K): nothing but rounding was found
    K, K_real = jnp.where(idle, 0, jax.vmap(weigh)(jnp.stack([whole, last])))
    edge = (K_real == 0) | (K_real == largest)
    return Found(K, K_real, jnp.where(edge, K_real, low), jnp.where(edge, K_real, high),
                 jnp.where(idle | ~rises_at_zero, 1, 2).astype(K.dtype))


def follow_root(f: Fixed, K_real: jax.Array, largest: jax.Array) -> jax.Array:
    """``K_real`` with the derivatives of the implicit function dN/dK = 0; a constant where it lies on an end."""
    settled = (K_real <= 0) | (K_real >= largest)

    def equation(K: jax.Array) -> jax.Array:
        return jnp.where(settled, K - K_real, slope_bracket(f, state(f, jnp.where(settled, 1, K))).value)

    return follow(equation, K_real)


def rises_beyond(f: Fixed, at: State, least: jax.Array) -> jax.Array:
    """True only if N(k), k >= ``at.K``, stays above ``least`` or rises from there on; by either of two bounds.

    1. The levels alone hold at least what M/M/m/m+k holds, which grows with k: above ``least`` at K, above it for good.
    2. q < 1: X_j, t_j, h0 and s grow with K and tau falls. So with e = tau(K) - q tau(inf) and y = m + k - N(k) the
       sign of N(k+1) - N(k) is at least that of y (q - e) + q + q tau(inf) - (1-q) s(inf) - (n + S2/S1) e; and y is at
       least y(K) Z(K) with s(inf) for s, over 1 + p1/(1-q) >= Z(k). If q > e and both are positive, N rises from K on.
    """
    margin = 1 + 64 * jnp.finfo(least.dtype).eps
    mass = at.one + f.p1 * (at.one + at.ramp)
    levels = (at.one * f.below_mean + f.p1 * (f.m * (at.one + at.ramp) + at.head)) / mass
    end = phases(f, jnp.full_like(at.K, jnp.inf))
    tau_end = f.s1 * jnp.exp(f.log_s1_unit - end.log_h0 + at.log_unit)
    excess, tail = at.tau - f.q * tau_end, f.n + f.line_mean
    steep = f.q * at.unit - excess
    needed = (at.unit * f.slack * end.s + tail * excess - f.q * (at.unit + tau_end)) / jnp.where(steep > 0, steep, 1)
    room = at.total * at.room - at.unit * f.p1 * at.power * (end.s - at.phases.s)
    most = at.unit * (1 + f.p1 / jnp.where(f.q < 1, f.slack, 1))
    rising = (f.q < 1) & (steep > 0) & (room > margin * most * jnp.maximum(needed, 0))
    return rising | (levels > margin * least)


def enumerate_buffers(f: Fixed, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best of K = 0..``count`` and the number of local minima there, by adding up scaled differences from the best.

    N is taken to rise beyond ``count``. O(n count).
    """
    def body(carry: Any) -> Any:
        K, best, above, minima, fell = carry
        at = state(f, K)
        rise = step_bracket(f, at).value / step_total(f, at)
        minima = minima + jnp.where(fell & (rise >= 0), 1, 0)
        above = (above + rise) / jnp.minimum(f.q, 1)  # N(K+1) - N(best), over q^(K+1) where q < 1
        better = above < 0
        return K + 1, jnp.where(better, K + 1, best), jnp.where(better, 0, above), minima, rise < 0

    zero = jnp.zeros_like(count)
    start = (zero, zero, zero, zero, jnp.ones_like(count, bool))
    _, best, _, minima, fell = lax.while_loop(lambda carry: carry[0] < count, body, start)
    return best, minima + jnp.where(fell, 1, 0)
