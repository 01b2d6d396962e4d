"""Percentiles of the response and waiting times: a safeguarded Newton iteration, and the implicit function theorem."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.models.stalling.response_law import Kind, Law, Server, tail_and_density, waiting_mass
from hetjax.models.stalling.response_moments import mean_and_variance
from hetjax.numerics.counting import Count
from hetjax.result import Solution, Status

STEPS = 100  # bisection alone, in powers and then in differences, ends well before


class _Search(NamedTuple):
    low: jax.Array
    high: jax.Array
    t: jax.Array
    change: jax.Array
    step: jax.Array


def solve_percentile(law: Law, p: jax.Array, kind: Kind, server: Server, n: Count) -> Solution:
    """The time t with P(time > t) = 1 - ``p`` in units of 1/mu1, 0 where P(time > 0) <= 1 - p; scalar ``p`` in (0, 1).

    Newton's iteration on the logarithm of the tail as a function of t, which is nearly a line for nearly exponential
    tails (in ln t it would stall), inside the bracket of Cantelli's inequality mean -+ deviation (p/(1-p))^(+-1/2); a
    step that leaves the bracket bisects it. The last step is taken outside the loop and carries the derivatives
    dt = dP(time > t)/density in q, r, K, M and p, in both modes.
    """
    rest = 1 - p
    fixed, target = lax.stop_gradient(law), lax.stop_gradient(rest)
    eps = float(np.finfo(p.dtype).eps)
    mean, variance = mean_and_variance(fixed, kind, server, n)
    deviation = jnp.sqrt(jnp.maximum(variance, 0))
    odds = jnp.sqrt((1 - target) / target)
    margin = 1 + 64 * eps
    tolerance = eps ** 0.75  # the step after the loop squares it; the derivatives are taken this near
    high = (mean + deviation * odds) * margin + np.finfo(p.dtype).tiny
    low = jnp.maximum((mean - deviation / odds) / margin, 0)
    log_target = jnp.log(target)

    def advance(state: _Search) -> _Search:
        tail, density = tail_and_density(fixed, state.t, kind, server, n)
        above = tail > target
        low, high = jnp.where(above, state.t, state.low), jnp.where(above, state.high, state.t)
        newton = state.t + (jnp.log(tail) - log_target) * (tail / density)
        wide = high > 4 * jnp.maximum(low, 1e-3 * high)
        middle = jnp.where(wide, jnp.sqrt(jnp.maximum(low, 1e-3 * high) * high), (low + high) / 2)
        settled = jnp.abs(newton - state.t) <= tolerance * state.t  # inside the bracket but for rounding
        t = jnp.where(((newton > low) & (newton < high)) | settled, newton, middle)
        exact = jnp.abs(tail - target) <= 8 * eps * target
        return _Search(low, high, t, jnp.where(exact, 0, jnp.abs(t - state.t)), state.step + 1)

    def going(state: _Search) -> jax.Array:
        apart = state.high - state.low > 2 * eps * state.high
        return (state.step < STEPS) & (state.change > tolerance * state.t) & apart

    start = jnp.clip(jnp.where(low > 0, mean + deviation * jnp.log(odds), -mean * log_target), low, high)
    begun = _Search(low, high, start, high, jnp.zeros((), jnp.int32))
    found = lax.while_loop(going, advance, begun)
    t = lax.stop_gradient(found.t)
    atom = waiting_mass(fixed, server, n) <= target if kind == "waiting" else jnp.zeros((), bool)
    tail, density = tail_and_density(law, t, kind, server, n)
    step = (tail - rest) / lax.stop_gradient(density)
    value = jnp.where(atom, 0, t + step)
    good = jnp.isfinite(value)
    settled = atom | (jnp.abs(step) <= 1e3 * eps * t) | (found.high - found.low <= 4 * eps * found.high)
    status = jnp.where(good, jnp.where(settled, int(Status.OK), int(Status.NOT_CONVERGED)), int(Status.NONFINITE))
    return Solution(value, status.astype(jnp.uint8), jnp.where(atom, 0, tail - rest), found.step)
