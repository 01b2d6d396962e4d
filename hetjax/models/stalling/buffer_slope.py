"""How the mean number in system changes with the stalling buffer, scaled so that nothing is lost where it hardly does.

For q < 1 the gain of a buffer decays like q^K: neighbouring values of N are equal in any floating type long before the
optimum. With y = m + K - N, Y = y + n + S2/S1, F_k = int_0^1 s^k q^s ds, g = 1 - F_1/F_0 and the quantities of
:mod:`hetjax.models.stalling.buffer_model` (s, tau = S1 / h0, Z, p1),

    dN/dK = q^K (p1 / Z) { (q / F_0) (y + g) + s' + s ln q + tau + Y (tau ln q + tau') },
    N(K+1) - N(K) = q^K (p1 / Z(K+1)) { q (1 + y + tau(K+1)) + q [s(K+1) - s] - (1 - q) s - Y [tau - q tau(K+1)] },
    N(inf) - N(K) = q^K (p1 / Z) { q/(1-q) [K + m (1-q) + (1+p1)/(1-q+p1)] - s - (Y + N - N(inf)) tau }      (q < 1).

The first is the paper's N-bar (Table 1) differentiated, with its terms in K, m and N collected in y; the second is the
same with a unit step, the third with an infinite one. The braces are linear in K but for terms that decay, so that
their roots are well conditioned. Where tau is large (rho > 1, long line) braces and Z are both divided by it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.stalling.buffer_model import Fixed, Phases, fixed_parts, phases
from hetjax.models.stalling.params import Params
from hetjax.numerics import exponential_moment
from hetjax.numerics.counting import Count


class State(NamedTuple):
    """N(K) and its surroundings at one K; weights are divided by max(1, tau) and, where q > 1, by q^K."""

    K: jax.Array
    phases: Phases
    unit: jax.Array  # 1 / max(1, tau)
    tau: jax.Array  # tau / max(1, tau)
    log_unit: jax.Array  # ln unit
    power: jax.Array  # min(1, q^K)
    one: jax.Array  # min(1, q^-K)
    ramp: jax.Array  # sum_{k=1}^K q^k, over q^K where q > 1
    head: jax.Array  # sum k q^k, likewise
    total: jax.Array  # Z
    room: jax.Array  # y = m + K - N
    reach: jax.Array  # Y = y + n + S2/S1


def state(f: Fixed, K: jax.Array, log_unit: jax.Array | None = None) -> State:
    """:class:`State` at a buffer K. O(n). ``log_unit`` replaces -ln max(1, tau)."""
    at = phases(f, K)
    shift = f.log_s1_unit - at.log_h0
    if log_unit is None:
        log_unit = -lax.stop_gradient(jnp.maximum(shift + jnp.log(jnp.maximum(f.s1, jnp.finfo(f.s1.dtype).tiny)), 0))
    unit, tau = jnp.exp(log_unit), f.s1 * jnp.exp(shift + log_unit)
    small = f.q <= 1
    decay = jnp.exp(K * f.y)
    power, one = jnp.where(small, decay, 1), jnp.where(small, 1, decay)
    h0, h1 = (exponential_moment(order, f.y, K, decay) for order in (0, 1))
    terms = h0 * f.per  # sum_{k<K} e^{yk}
    low = f.ratio * f.per * (h1 + h0 * (1 - f.lag))  # sum_{k<=K} k e^{yk}
    high = f.per * (f.ratio * f.per * (K * h0 - h1) + K * f.lag)  # sum_{k<=K} (K - k) e^{yk}
    ramp = jnp.where(small, f.ratio, 1) * terms
    head, rest = jnp.where(small, low, high), jnp.where(small, high, low)
    below = one * (K + (f.m - f.below_mean)) + f.p1 * rest
    mass, served, tail = one + f.p1 * (one + ramp), f.p1 * power, f.n + f.line_mean
    total = unit * mass + served * tau
    room = (unit * (below - served * at.s) - served * tau * tail) / total
    reach = unit * (below + mass * tail - served * at.s) / total
    return State(K, at, unit, tau, log_unit, power, one, ramp, head, total, room, reach)


def mean_number(f: Fixed, at: State) -> jax.Array:
    """N(K), as a sum of non-negative terms."""
    line = f.m + at.K + f.n + f.line_mean
    return (at.unit * (at.one * f.below_mean + f.p1 * (f.m * (at.one + at.ramp) + at.head + at.power * at.phases.s))
            + f.p1 * at.power * at.tau * line) / at.total


class Bracket(NamedTuple):
    """A brace of the module's formulas over max(1, tau), and the sum of its terms' sizes: it rounds at eps ``size``."""

    value: jax.Array
    size: jax.Array


def _add(gain: jax.Array, *signed: jax.Array) -> Bracket:
    value, size = gain, gain
    for term in signed:
        value, size = value + term, size + jnp.abs(term)
    return Bracket(value, size)


def slope_bracket(f: Fixed, at: State) -> Bracket:
    """The brace of dN/dK."""
    p = at.phases
    return _add(at.unit * (f.density * f.gap + p.s_slope) + at.tau, at.unit * f.density * at.room,
                at.unit * f.log_q * p.s, at.tau * at.reach * (f.log_q - p.h0_slope))


def step_bracket(f: Fixed, at: State) -> Bracket:
    """The brace of N(K+1) - N(K)."""
    p = at.phases
    return _add(at.unit * f.q * (1 + p.s_step) + f.q * at.tau * (1 - p.h0_step), at.unit * f.q * at.room,
                -at.unit * f.slack * p.s, -at.tau * at.reach * (f.q * p.h0_step + f.slack))


def step_total(f: Fixed, at: State) -> jax.Array:
    """Z(K+1), in the units of Z(K)."""
    return at.total + f.p1 * at.power * (f.q * (at.unit - at.tau * at.phases.h0_step) - f.slack * at.tau)


def never_bracket(f: Fixed, at: State) -> tuple[jax.Array, jax.Array]:
    """The brace of N(inf) - N(K), over max(1, tau), and N(inf); both times 1 - q. For q < 1."""
    stalled = f.p1 * f.q / (f.slack + f.p1)  # (1 - q) times the mean number waiting in an endless buffer
    lead = f.q * (at.K + f.m * f.slack + (1 + f.p1) / (f.slack + f.p1)) - f.slack * at.phases.s
    reach = f.slack * (at.K + f.m * f.slack + f.n + f.line_mean) - stalled
    return at.unit * lead - reach * at.tau, f.slack * f.m * f.q + stalled


def rise_from_zero(f: Fixed, zero: State, at: State) -> jax.Array:
    """[N(0) - N(K)] Z(K) / p1, in the units of Z(K); ``zero`` and ``at`` must share ``log_unit``."""
    s0, s = zero.phases.s, at.phases.s
    return (at.unit * (at.one * s0 - at.power * s - zero.room * at.ramp - at.head)
            + at.one * zero.reach * zero.tau - at.power * (zero.reach + at.K) * at.tau)


def buffer_slope_scaled(params: Params) -> jax.Array:
    """dN/dK over min(1, q^K): the slope of the mean number in system in the stalling buffer, customers per place.

    Any real K >= 0, M infinite where rho < 1; scalar leaves, or arrays of one shape. The error is a few roundings of
    the largest term of the brace in the module's formulas: of the slope itself but for K near an optimum, n = 0, or
    small K at r >> 1 with M = inf (there the slope is O(1/r)). Infinite at K = inf. O(m n), independent of K and M.
    Source: derived here from the paper's N-bar (Table 1).

    >>> from hetjax.models.stalling import Params
    >>> from hetjax.models.stalling.buffer_slope import buffer_slope_scaled
    >>> slopes = [float(buffer_slope_scaled(Params(q=0.7, r=20.0, K=k, M=9.0, m=5, n=2))) for k in (27, 28)]
    >>> slopes[0] < 0 < slopes[1]
    True
    """
    def slope(f: Fixed, at: State) -> jax.Array:
        return f.p1 * slope_bracket(f, at).value / at.total

    return _at_each_point(params, slope)


def buffer_difference_scaled(params: Params) -> jax.Array:
    """[N(K+1) - N(K)] / min(1, q^K): the change of the mean number in system with one more place, in customers.

    Domain, errors and complexity as in :func:`buffer_slope_scaled`; K need not be whole.

    >>> from hetjax.models.stalling import Params
    >>> from hetjax.models.stalling.buffer_slope import buffer_difference_scaled
    >>> float(buffer_difference_scaled(Params(q=0.7, r=100.0, K=140, M=9, m=5, n=2))) < 0
    True
    """
    def step(f: Fixed, at: State) -> jax.Array:
        return f.p1 * step_bracket(f, at).value / step_total(f, at)

    return _at_each_point(params, step)


def _at_each_point(params: Params, value: Callable[[Fixed, State], jax.Array]) -> jax.Array:
    m, n = Count(params.m), Count(params.n)

    def point(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array) -> jax.Array:
        f, endless = fixed_parts(q, r, M, m, n), jnp.isposinf(K)
        return jnp.where(endless, jnp.inf, value(f, state(f, jnp.where(endless, 0, K))))

    return jnp.vectorize(point)(params.q, params.r, params.K, params.M)
