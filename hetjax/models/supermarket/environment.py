"""The other limit of MAP arrivals: an environment that moves as slowly as a queue does.

With descriptor (D0 off the diagonal, N D1), D1 = diag(lambda_1, ...), the environment I(t) keeps its speed as N grows.
The queues follow the mean field of the moment, ds/dt = drift with the rate lambda_I(t): a random trajectory, not a
fixed point. Its long-run averages are found by simulation of I(t) with the differential equation between its jumps.

With (N D0, N D1) instead the phase moves N times faster than a queue and only its mean rate remains: that limit is
``Params.from_map``.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.ctmc.simulate import student_quantile
from hetjax.models.supermarket.fixed_point import fixed_point
from hetjax.models.supermarket.mean_field import Join, drift, shortest_of_d, tails_of
from hetjax.models.supermarket.params import Params
from hetjax.models.supermarket.simulate import Simulated
from hetjax.processes import MAP, PH
from hetjax.processes.checks import require
from hetjax.result import Status

Array = jax.Array


def slow_environment(arrivals: MAP, d: Any, service: PH, key: Array, *, time: float = 2000.0, warmup: float = 100.0,
                     lanes: int = 32, levels: int = 48, step: float = 0.05, join: Join = shortest_of_d,
                     confidence: float = 0.95) -> Simulated:
    """Long-run averages of infinitely many queues in a slow random environment.

    Args:
      arrivals: an MMPP (diagonal D1), rates per server; its mean rate must leave the queues stable, single rates may
        exceed the service rate.
      d, service: as in :class:`hetjax.models.supermarket.Params`.
      time, warmup: of each lane, in time units. lanes: independent paths.
      levels: longest queue kept; ``status`` is not_converged if the last level ever holds more than 1e-6.
      step: of the fourth-order integration, in mean service times; the environment is read at these instants, which
      errs
        by about (speed of the environment x step)^2 / 12.

    Returns:
      :class:`hetjax.models.supermarket.Simulated`; intervals from the lanes. O(lanes time / step levels phases).

    >>> import jax
    >>> from hetjax.processes import exponential, mmpp
    >>> stream = mmpp([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.5])  # no modulation: the fixed point
    >>> found = slow_environment(stream, 2, exponential(1.0), jax.random.key(0), time=50.0, lanes=4, levels=10)
    >>> round(float(found.mean_queue_length[0]), 6)
    0.632843
    """
    D1 = np.asarray(arrivals.D1)
    require(not np.any(D1 - np.diag(np.diag(D1))), "arrivals", "D1 with off-diagonal rates", "an MMPP: diagonal D1")
    require(lanes >= 2, "lanes", lanes, "at least 2: the interval compares them")
    params = Params.from_map(arrivals, d, service)
    h = step * float(params.mean_service)
    start = fixed_point(params, levels=max(levels, 8)).value.at_least[:levels]
    counts = (max(1, round(warmup / h)), max(1, round(time / h)))
    return _run(params, arrivals, start, key, h, (*counts, lanes, confidence), join)


@functools.partial(jax.jit, static_argnums=(5, 6))
def _run(params: Params, arrivals: MAP, start: Array, key: Array, h: Array, static: tuple[int, int, int, float],
         join: Join) -> Simulated:
    warmup, count, lanes, confidence = static
    rates = jnp.diag(arrivals.D1)
    dtype = rates.dtype
    h = jnp.asarray(h, dtype)
    moves = jnp.cumsum(jax.scipy.linalg.expm((arrivals.D0 + arrivals.D1) * h), axis=1)

    def flow(rate: Array, s: Array) -> Array:
        return drift(Params(rate, params.d, params.alpha, params.T), s, join)

    def advance(s: Array, phase: Array, uniform: Array) -> tuple[Array, Array, Array, Array]:
        rate = rates[phase]
        k1 = flow(rate, s)
        k2 = flow(rate, s + h / 2 * k1)
        k3 = flow(rate, s + h / 2 * k2)
        k4 = flow(rate, s + h * k3)
        new = jnp.maximum(s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), 0)
        u = tails_of((s + new) / 2)
        waits = rate * (1 - join(Params(rate, params.d, params.alpha, params.T), u)[0] * (1 - u[1]) / rate)
        phase = jnp.sum(uniform >= moves[phase, :-1], dtype=jnp.int32)
        return new, phase, jnp.concatenate([jnp.stack([rate, waits]), u[1:]]), u[-1]

    def tick(carry: Any, number: Array) -> tuple[Any, None]:
        s, phase, total, worst = carry
        uniform = jax.random.uniform(jax.random.fold_in(key, number), (lanes,), dtype)
        s, phase, paid, top = jax.vmap(advance)(s, phase, uniform)
        return (s, phase, total + paid, jnp.maximum(worst, top)), None

    s = jnp.broadcast_to(start, (lanes, *start.shape))
    nothing = jnp.zeros((lanes, 2 + start.shape[0]), dtype)
    phase = jnp.arange(lanes, dtype=jnp.int32) % rates.shape[0]
    state = (s, phase, nothing, jnp.zeros((lanes,), dtype))
    (s, phase, _, worst), _ = lax.scan(tick, state, jnp.arange(warmup, dtype=jnp.uint32))
    numbers = jnp.arange(warmup, warmup + count, dtype=jnp.uint32)
    (_, _, total, worst), _ = lax.scan(tick, (s, phase, nothing, worst), numbers)
    total = total / count
    quantile = student_quantile(0.5 + confidence / 2, lanes - 1).astype(dtype)

    def ratio(top: Array, bottom: Array) -> tuple[Array, Array]:
        mean = jnp.sum(top) / jnp.sum(bottom)
        spread = jnp.sum((top - mean * bottom) ** 2) / (lanes * (lanes - 1))
        return mean, quantile * jnp.sqrt(spread) / jnp.mean(bottom)

    came, waited, lengths = total[:, 0], total[:, 1], total[:, 2:]
    number = jnp.sum(lengths, axis=1)
    ones = jnp.ones_like(number)
    code = jnp.where(jnp.any(worst > 1e-6), int(Status.NOT_CONVERGED), int(Status.OK))
    code = jnp.where(jnp.all(jnp.isfinite(total)), code, int(Status.NONFINITE)).astype(jnp.uint8)
    tails = jax.vmap(ratio, in_axes=(1, None))(lengths, ones)
    return Simulated(ratio(number, ones), ratio(number, came), ratio(waited, came), tails, code)
