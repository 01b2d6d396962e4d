"""Mean and variance of the response and waiting times, from sums over the queue length seen.

A customer behind w others waits w + 1 exponential times of rate nu; the sums sum rho^w (w+1)^k for real M are the
derivatives of the geometric sum, taken in the direction in which the terms fall: for rho > 1 the free places
j = M - 1 - w are counted, and w + 1 = M - j. The variance is the mean square distance from the mean, so that it
keeps its digits where the times hardly vary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.response_contour import Queue
from hetjax.models.stalling.response_law import Kind, Law, Server, slow_part
from hetjax.numerics.counting import Count
from hetjax.numerics.geometric import exponential_moment


class _Lengths(NamedTuple):
    """Sums of the weights times 1, v, v^2, where w + 1 = ``anchor`` + ``sign`` v."""

    plain: jax.Array
    first: jax.Array
    second: jax.Array
    anchor: jax.Array
    sign: jax.Array


def _lengths(queue: Queue) -> _Lengths:
    rising = queue.log_ratio > 0
    M = queue.places
    x = jnp.where(rising, -queue.log_ratio, queue.log_ratio)
    one, ratio, decay = jnp.ones_like(x), jnp.exp(x), jnp.exp(x * M)
    f0, f1, f2 = (exponential_moment(k, x, one, ratio) for k in range(3))
    h0, h1, h2 = (exponential_moment(k, x, M, decay) for k in range(3))
    plain = h0 / f0
    # H_k = int over [s, s+1] summed: s^k against s, and against s + 1
    index = (h1 - plain * f1) / f0
    index_square = (h2 - 2 * index * f1 - plain * f2) / f0
    up = f0 - f1
    count = (h1 + plain * up) / f0
    count_square = (h2 + 2 * count * up - plain * (up - (f1 - f2))) / f0
    scale = jnp.exp(jnp.where(rising, queue.log_last + x, queue.log_first))
    zero = jnp.zeros_like(x)
    return _Lengths(scale * plain, scale * jnp.where(rising, index, count),
                    scale * jnp.where(rising, index_square, count_square), jnp.where(rising, M, zero),
                    jnp.where(rising, -one, one))


class _Part(NamedTuple):
    """Customers whose time is a sum of w + 1 exponentials of rate ``rate``, and of an independent rest."""

    weight: jax.Array
    lengths: _Lengths
    rate: jax.Array
    rest_mean: jax.Array
    rest_variance: jax.Array


def mean_and_variance(law: Law, kind: Kind, server: Server, n: Count) -> tuple[jax.Array, jax.Array]:
    """Mean (1/mu1) and variance (1/mu1^2) of the ``kind`` of time; O(1)."""
    zero, one = jnp.zeros_like(law.mu), jnp.ones_like(law.mu)
    served = one if kind == "response" else zero
    parts, at_once = [], []
    if server != "slow":
        passing = law.stage.shape / law.stage.rate
        parts += [_Part(one, _lengths(law.buffer), law.buffer.rate, served, served),
                  _Part(law.to_fast, _lengths(law.line_fast), law.line_fast.rate, passing + served,
                        passing / law.stage.rate + served)]
        at_once += [(jnp.exp(law.below), served)]
    if server != "fast" and not (n.static and n.value == 0):
        slow = served / law.mu
        parts += [_Part(law.to_slow, _lengths(law.line_slow), law.line_slow.rate, slow, slow * slow)]
        at_once += [(slow_part(n, lambda: jnp.exp(law.free), zero), slow)]
    mean = zero
    for weight, time in at_once:
        mean += weight * time
    for part in parts:
        v = part.lengths
        per_place = ((v.anchor / part.rate + part.rest_mean) * v.plain + v.sign * v.first / part.rate)
        mean += part.weight * per_place
    variance = zero
    for weight, time in at_once:
        variance += weight * (time * time + (time - mean) ** 2)
    for part in parts:
        v = part.lengths
        per = 1 / part.rate
        distance = v.anchor * per + part.rest_mean - mean
        length = v.anchor * v.plain + v.sign * v.first  # w + 1, summed
        variance += part.weight * (part.rest_variance * v.plain + length * per * per + distance * distance * v.plain
                                   + 2 * distance * v.sign * v.first * per + v.second * per * per)
    return mean, variance
