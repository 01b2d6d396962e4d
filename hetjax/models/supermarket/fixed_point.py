"""The fixed point of the mean field: queue lengths, waiting and response times in a large system in equilibrium."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.models.supermarket.mean_field import drift
from hetjax.models.supermarket.params import Params, legal_or_harmless
from hetjax.models.supermarket.recursion import NEWTON_STEPS, first_level, next_level, system
from hetjax.processes.checks import concrete
from hetjax.result import Solution, Status

Array = jax.Array
BUCKETS = tuple(sorted({int(b * 2**k) for k in range(3, 17) for b in (1, 1.5)}))  # level counts that are compiled for
MOST_LEVELS_UNCHOSEN = 4096  # at d = 1, where tails are geometric and the means have a closed form


class FixedPoint(NamedTuple):
    """Queues in equilibrium. k counts customers of one queue, the one in service included.

    Attributes:
      log_tails: (levels,) log u_k for k = 1, 2, ...: u_k is the share of queues with at least k customers. Not followed
        beyond 1e-9 of the largest float.
      phase_law: (levels, phases): the phase of the service in progress in a queue with at least k customers; s_k / u_k.
      join_rates: (levels,) r_k: the rate at which one given queue of k customers is joined.
      exact_phases: (levels, phases): x_k / u_k, the queues with exactly k customers among those with at least k.
      mean_queue_length: customers per queue. At d = 1 by the formula of Pollaczek and Khinchine.
      mean_response_time: mean time from arrival to departure, mean_queue_length / lambda.
      mean_waiting_time: mean time before service, sum_{k>=2} u_k / lambda.
      p_wait: an arrival finds all d queues busy, u_1^d.
      neglected: the sum of u_k beyond the last level: a bound for d > 1, exact for d = 1.
    """

    log_tails: Array
    phase_law: Array
    join_rates: Array
    exact_phases: Array
    mean_queue_length: Array
    mean_response_time: Array
    mean_waiting_time: Array
    p_wait: Array
    neglected: Array

    @property
    def tails(self) -> Array:
        """u_k = P(a queue has at least k customers), k = 1, 2, ..., shape (levels,)."""
        return jnp.exp(self.log_tails)

    @property
    def at_least(self) -> Array:
        """s_k: at least k customers, by the phase of the service in progress, shape (levels, phases)."""
        return self.tails[:, None] * self.phase_law

    @property
    def exactly(self) -> Array:
        """x_k: exactly k customers, by the phase of the service in progress, k = 1, 2, ..., shape (levels, phases)."""
        return self.tails[:, None] * self.exact_phases


def level_count(rho: Any, d: Any, scv: Any) -> int:
    """How many levels hold all but about 1e-16 of the queue, the most among the points given, rounded up to a bucket.

    1.05 max(1, (1 + SCV)/2) log(1 + 37 (d-1)/(1-rho))/log d + 6: near rho = 1 queues first shrink slowly, by
    (1-rho)/((1+SCV)/2) a level, then by factors d in the logarithm. Concrete arrays that broadcast; d = 1 asks for at
    most 4096 levels.

    >>> level_count(0.9, 2.0, 1.0), level_count(0.9999, 1.01, 100.0)
    (16, 49152)
    """
    rho, d, scv = np.broadcast_arrays(*(np.asarray(x, float) for x in (rho, d, scv)))
    stretch = 1.05 * np.maximum(1, (1 + scv) / 2)
    room = np.maximum(1 - rho, 1e-12)
    many = np.where(d > 1, np.log1p(37 * (d - 1) / room) / np.log(np.where(d > 1, d, 2)), 37 / room)
    need = np.where(d > 1, stretch * many, np.minimum(stretch * many, MOST_LEVELS_UNCHOSEN - 6)) + 6
    worst = float(need.max())
    return next((b for b in BUCKETS if b >= worst), BUCKETS[-1])


def fixed_point(params: Params, levels: int | None = None, newton_steps: int = NEWTON_STEPS) -> Solution:
    """The equilibrium of infinitely many queues, by the exact level recursion of
    :mod:`hetjax.models.supermarket.recursion`.

    Args:
      params: one system; use ``vmap`` for many.
      levels: how many queue lengths to follow (static). Chosen from the parameters if they are concrete; inside ``jit``
        or ``vmap`` give it, from :func:`level_count` over the whole batch.
      newton_steps: static.

    Returns:
      :class:`hetjax.result.Solution` with a :class:`FixedPoint`. ``residual``: the largest entry of |ds/dt| over
      lambda; ``iterations``: levels. Status: unstable for rho >= 1, out_of_domain for d in (1, 1.01) and the like
      (values are then NaN), not_converged where Newton's method or the number of levels did not suffice (values are
      kept).

    Measured against 50 digits over d in {1.1, ..., 1e6}, rho to 0.9999, SCV to 100: the mean to 3e-13, log u_k to
    3e-12, most of it the error eps/(1 - rho) of the load itself. Cost O(levels newton_steps phases^3); reverse mode
    keeps O(levels phases^2). Differentiable in arrival_rate, d and T, and in alpha along the simplex.

    The published closed form for this model (see :mod:`hetjax.models.supermarket.published`) is something else: it
    agrees for exponential service only, u_k = rho^((d^k - 1)/(d - 1)).

    >>> from hetjax.models.supermarket import Params, fixed_point
    >>> found = fixed_point(Params(0.9, 2, [1.0], [[-1.0]])).value
    >>> [round(float(u), 6) for u in found.tails[:3]]
    [0.9, 0.729, 0.478297]
    >>> round(float(found.mean_queue_length), 10)
    2.3526516396
    """
    if levels is None:
        if not concrete(*jax.tree.leaves(params)):
            raise ValueError("levels = None: the parameters are traced; give levels=level_count(rho, d, scv)")
        levels = level_count(params.rho, params.d, params.service_scv())
    return _fixed_point(params, levels, newton_steps)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _fixed_point(params: Params, levels: int, newton_steps: int) -> Solution:
    sound, code = legal_or_harmless(params)
    value, converged = _solve(sound, levels, newton_steps)
    residual = jnp.max(jnp.abs(drift(sound, lax.stop_gradient(value.at_least)))) / sound.arrival_rate
    enough = value.neglected <= 64 * jnp.finfo(params.T.dtype).eps * value.mean_queue_length
    converged = converged & (enough | (sound.d == 1))
    failed = jnp.where(jnp.isfinite(value.mean_queue_length), int(Status.NOT_CONVERGED), int(Status.NONFINITE))
    final = jnp.where((code == int(Status.OK)) & ~converged, failed, code).astype(jnp.uint8)
    legal = code == int(Status.OK)
    value = jax.tree.map(lambda x: jnp.where(legal, x, jnp.nan), value)
    return Solution(value, final, lax.stop_gradient(jnp.where(legal, residual, jnp.nan)), levels)


def _solve(params: Params, levels: int, newton_steps: int) -> tuple[FixedPoint, Array]:
    s = system(params)

    def step(level: Any, _: None) -> tuple[Any, Any]:
        following, found = next_level(s, level, newton_steps)
        return following, (level.L, level.sigma, found)

    last, (L, sigma, found) = lax.scan(step, first_level(params), None, length=levels)
    u = jnp.exp(-L)
    waiting = jnp.sum(u[1:])
    beyond = jnp.exp(-last.L) / -jnp.expm1(-params.d * found.t[-1])  # t grows by about d a level at the end
    rate, rho = params.arrival_rate, u[0]
    second = params.service.moment(2)
    pollaczek = rate**2 * second / (2 * (1 - rho))
    single = params.d == 1
    neglected = lax.stop_gradient(jnp.where(single, jnp.maximum(pollaczek - waiting, 0), beyond))
    waiting = jnp.where(single, pollaczek, waiting)
    mean = rho + waiting
    value = FixedPoint(-L, sigma, found.rate, found.here, mean, mean / rate, waiting / rate, jnp.exp(-params.d * L[0]),
                       neglected)
    tolerance = float(jnp.finfo(L.dtype).eps) ** 0.5
    return value, jnp.all(found.correction < tolerance)
