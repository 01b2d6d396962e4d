"""The best split for fixed thresholds: equal marginal costs, by steps that are exact for single servers.

Wanted are rates x_i >= 0 with sum lambda and N_i'(x_i) = nu where x_i > 0, N_i'(0) >= nu where x_i = 0. With

    g_i(x) = N_i'(x)^(-1/2),      s = nu^(-1/2)

that is g_i(x_i) = s, or x_i = 0 and g_i(0) <= s. For a single server N' = mu/(mu - x)^2, so g = (mu - x)/sqrt(mu) is a
straight line down to 0 at the capacity; with a second server g is nearly one. A step replaces each g_i by a line
through (x_i, g_i), first the one to (capacity, 0), then the secant through the point before, and solves

    y_i = max(0, A_i - B_i s),   A_i = x_i + g_i B_i,   -1/B_i the slope of the line,   sum y_i = lambda,

exactly: in falling order of A_i/B_i the first k nodes are used, k being the only number with s_k < A_k/B_k and
s_k >= A_{k+1}/B_{k+1}, s_k = (sum A - lambda)/sum B over them. For single servers the first step gives the square-root
rule, otherwise steps shrink with the order of the secant method, 1.6. The direction y - x lowers sum N_i whatever
B_i > 0 is: sum_i (N_i' - nu) (y_i - x_i) has terms (g_i^-2 - s^-2) (g_i - s) B_i <= 0, and those of nodes that are
emptied as well. So cutting a step that overshoots ends it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
NEARLY_ALL = 0.9  # of the way to the capacity that one step may go
APART = 1e-6  # of the capacity: nearer points give no better slope than is known


class _State(NamedTuple):
    rates: Array  # (n,) the best so far
    g: Array  # (n,) there
    cost: Array
    inverse_slope: Array  # (n,) B
    step: Array  # (n,) to be tried next
    done: Array
    tries: Array


def equal_margins(number: Callable[[Array], Array], total: Array, capacities: Array, start: Array, steps: int) -> Array:
    """Rates (n,) with sum ``total`` that minimise the sum of ``number(rates)`` (n,), elementwise and convex.

    ``capacities`` (n,): ``number`` is finite below them, and their sum exceeds ``total``. ``start`` (n,): rates below
    them with that sum. At most ``steps`` evaluations with one derivative; pure, one point (vmap for many).

    >>> import jax.numpy as jnp
    >>> mu = jnp.asarray([2.0, 1.0, 0.1])
    >>> rates = equal_margins(lambda x: x / (mu - x), jnp.asarray(1.0), mu, mu / 3.1, 3)
    >>> [round(float(x), 6) for x in rates]
    [0.828427, 0.171573, 0.0]
    """
    eps = float(jnp.finfo(start.dtype).eps)

    def look(rates: Array) -> tuple[Array, Array]:
        numbers, slopes = jax.jvp(number, (rates,), (jnp.ones_like(rates),))
        return jnp.sum(numbers), lax.rsqrt(slopes)

    def direction(rates: Array, g: Array, b: Array) -> Array:
        a = rates + g * b
        worth = a / b
        # the node at place k of the falling order: for each node the sums over those that come before it
        before = (worth[None] > worth[:, None]) | ((worth[None] == worth[:, None])
                                                   & (jnp.arange(g.size)[None] <= jnp.arange(g.size)[:, None]))
        s = (jnp.sum(jnp.where(before, a[None], 0), axis=1) - total) / jnp.sum(jnp.where(before, b[None], 0), axis=1)
        level = jnp.max(jnp.where(s < worth, s, -jnp.inf))  # s_k rises in k while nodes are used
        step = jnp.maximum(a - b * level, 0) - rates
        up = step > 0
        room = jnp.where(up, NEARLY_ALL * (capacities - rates) / jnp.where(up, step, 1), jnp.inf)
        return jnp.minimum(jnp.min(room), 1) * step

    def going(state: _State) -> Array:
        return ~state.done & (state.tries < steps)

    def advance(state: _State) -> _State:
        tried = jnp.maximum(state.rates + state.step, 0)
        cost, g = look(tried)
        better = cost <= state.cost + 64 * eps * jnp.abs(state.cost)
        secant = -(tried - state.rates) / (g - state.g)
        apart = jnp.abs(tried - state.rates) > APART * capacities
        first = (capacities - tried) / g
        known = jnp.where(state.tries == 0, first, state.inverse_slope)
        b = jnp.where(apart, jnp.where((secant > 0) & (secant < 100 * first), secant, first), known)
        step = jnp.where(better, direction(tried, g, b), state.step / 4)
        done = jnp.max(jnp.abs(step) / capacities) <= 16 * eps
        return _State(jnp.where(better, tried, state.rates), jnp.where(better, g, state.g),
                      jnp.where(better, cost, state.cost), jnp.where(better, b, state.inverse_slope), step, done,
                      state.tries + 1)

    begin = _State(start, jnp.zeros_like(start), jnp.full((), jnp.inf, start.dtype), jnp.ones_like(start),
                   jnp.zeros_like(start), jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    end = lax.while_loop(going, advance, begin)
    return jnp.maximum(end.rates + end.step, 0)
