"""Erlang's formulas and the truncated Poisson distribution behind them, by positive recursions.

With load b the numbers i_s = (sum_{l<s} b^l/l!)/(b^s/s!) obey i_1 = 1/b, i_{s+1} = (1 + i_s)(s+1)/b. Nothing is
subtracted, and an overflow of i to infinity stands for the right answer 0 of what is formed from it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.counting import Count
from hetjax.numerics.hold import hold
from hetjax.numerics.logarithm import log


class TruncatedPoisson(NamedTuple):
    """Of the Poisson weights b^l/l!, l < m, and the next one:

    ``tail`` = (b^m/m!)/sum_{l<m} b^l/l!,  ``mean`` = sum_{l<m} l b^l/l! / sum_{l<m} b^l/l!,
    ``empty`` = 1/sum_{l<m} b^l/l!,  ``busy`` = 1 - ``empty`` (formed without a subtraction).
    """

    tail: jax.Array
    mean: jax.Array
    empty: jax.Array
    busy: jax.Array


@jax.custom_jvp
def truncated_poisson(load: jax.Array, count: Count) -> TruncatedPoisson:
    """The first ``count`` = m >= 1 states of a Poisson distribution of mean ``load`` = b > 0; O(m).

    Derivatives by the identities d ln tail = (m - mean) d ln b, d ln empty = -mean d ln b and
    d mean = (mean - (m - 1 - mean)(b - mean)) d ln b, the variance.

    >>> import jax.numpy as jnp
    >>> [round(float(v), 4) for v in truncated_poisson(jnp.asarray(2.0), Count(2))]
    [0.6667, 0.6667, 0.3333, 0.6667]
    """
    per = 1 / load
    zero = jnp.zeros_like(load)

    def step(s: Any, state: Any) -> Any:
        inverse, _, excess, term = state
        term = term * (load * (1 / s))
        return (1 + inverse) * ((s + 1) * per), inverse, excess + term, term

    # i_0 = 0 makes the mean of m = 1 come out as 0
    _, before, excess, _ = count.climb(step, (per, zero, zero, jnp.ones_like(load)), load)
    huge = np.finfo(load.dtype).max / 16  # its inverse is a normal number
    before, excess = jnp.minimum(before, huge), jnp.minimum(excess, huge)
    share = 1 / (1 + before)
    empty = 1 / (1 + excess)
    tail = jnp.where(before < huge, load * share * (1 / count.real(load)), 0)
    return TruncatedPoisson(tail, load * (before * share), empty, excess * empty)


@truncated_poisson.defjvp
def _truncated_poisson_jvp(primals: Any, tangents: Any) -> Any:
    load, count = primals
    out = hold(truncated_poisson(load, count))
    m = count.real(load)
    d = tangents[0] / load
    mean = (out.mean - (m - 1 - out.mean) * (load - out.mean)) * d
    empty = out.empty * out.mean * d
    return out, TruncatedPoisson(out.tail * (m - out.mean) * d, mean, -empty, empty)


class IdleMoments(NamedTuple):
    """Of the number idle, m - 1 - l, of a truncated Poisson state l < m: ``mean``; and of l, along ln b: ``variance`` =
    d E l/d ln b and ``third`` = d variance/d ln b, its third cumulant. No small one is a difference of large ones."""

    mean: jax.Array
    variance: jax.Array
    third: jax.Array


def idle_moments(load: jax.Array, count: Count) -> IdleMoments:
    """With the first ``count`` = m >= 1 states of a Poisson distribution of mean ``load`` = b > 0; O(m).

    The mean number idle of states l <= s, d_s, obeys d_s = s (1 + d_{s-1})/(1 + b + d_{s-1}), d_0 = 0, which with
    D = 1 + b + d_{s-1} is differentiated along ln b: variance_s = s b (1 + d_{s-1} + variance_{s-1})/D^2.

    >>> import jax.numpy as jnp
    >>> [round(float(v), 4) for v in idle_moments(jnp.asarray(2.0), Count(2))]
    [0.3333, 0.2222, -0.0741]
    """
    def step(s: Any, state: Any) -> Any:
        idle, variance, third = state
        per = 1 / (1 + load + idle)
        room = 1 + idle + variance
        new = (s * load) * room * (per * per)
        return (s * (1 + idle) * per, new, new * (1 - 2 * (load - variance) * per + (third - variance) / room))

    zero = jnp.zeros_like(load)
    return IdleMoments(*count.climb(step, (zero, zero, zero), load))


@jax.custom_jvp
def log_tail(load: jax.Array, count: Count) -> jax.Array:
    """ln of :func:`truncated_poisson`'s tail, also where the tail is below the range of the dtype; O(m).

    >>> import jax.numpy as jnp
    >>> round(float(log_tail(jnp.asarray(2.0), Count(2))), 5)
    -0.40547
    """
    per = 1 / load
    one = jnp.ones_like(load)

    def step(s: Any, state: Any) -> Any:
        inverse, unit, put_aside = state
        return (unit + inverse) * ((s + 1) * per), unit, put_aside

    def rescale(state: Any) -> Any:
        inverse, unit, put_aside = state
        shrink = jnp.where(inverse > 1, 1 / inverse, 1)
        return inverse * shrink, unit * shrink, put_aside - log(shrink)

    chunk = 1 if np.dtype(load.dtype) == np.float32 else 8
    inverse, _, put_aside = count.climb(step, (per, one, 0 * one), load, rescale, chunk)
    return -log(inverse) - put_aside


@log_tail.defjvp
def _log_tail_jvp(primals: Any, tangents: Any) -> Any:
    load, count = primals
    mean = truncated_poisson(load, count).mean
    return log_tail(load, count), (count.real(load) - mean) * tangents[0] / load


def erlang_b(load: jax.Array, servers: int) -> jax.Array:
    """Erlang's loss probability of M/M/m/m, m = ``servers`` >= 1, offered ``load`` = arrival rate / service rate > 0;
    O(m).

    >>> import jax.numpy as jnp
    >>> round(float(erlang_b(jnp.asarray(2.0), 2)), 6)
    0.4
    """
    tail = truncated_poisson(load, Count(servers)).tail
    return tail / (1 + tail)


def erlang_c(load: jax.Array, servers: int | Count) -> jax.Array:
    """Erlang's probability of waiting in M/M/m, m = ``servers`` >= 1, 0 < ``load`` < m; O(m).

    >>> import jax.numpy as jnp
    >>> round(float(erlang_c(jnp.asarray(1.0), 2)), 6)
    0.333333
    """
    count = Count.of(servers, None)
    tail, m = truncated_poisson(load, count).tail, count.real(load)
    return tail / (tail + (m - load) / m)
