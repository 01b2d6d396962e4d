"""Exact simulation of N queues on counts, many paths side by side.

The state is n[k, i], the number of queues with at least k customers and the service in progress in phase i, and the
phase of the arrival process: nothing else about N exchangeable queues matters. An event costs O(levels phases),
whatever N is. Two random words an event: which event and which queue; where an arrival goes. For the shortest of d the
length joined is at least k with probability (n_k/N)^d, so one uniform number gives it: the number of k with
(n_k/N)^d > U. Time averages weigh states by their mean holding times, see :mod:`hetjax.ctmc.simulate`, from which the
random numbers and the quantiles come too.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.ctmc.elimination import off_diagonal
from hetjax.ctmc.simulate import random_words, student_quantile
from hetjax.models.supermarket.fixed_point import fixed_point
from hetjax.models.supermarket.mean_field import drift
from hetjax.models.supermarket.params import Params
from hetjax.models.supermarket.policies import SHORTEST_OF_D, Policy
from hetjax.processes import MAP, poisson
from hetjax.processes.checks import require
from hetjax.result import Status

Array = jax.Array


class Simulated(NamedTuple):
    """Estimates with the half widths of their confidence intervals, as pairs (mean, half_width).

    mean_queue_length: customers per queue; mean_response_time: by Little's law; p_wait: an arrival finds no idle queue
    among those it looks at; tails: (levels,) shares of queues with at least k customers. ``status``: not_converged
    where a queue met the last level (raise ``levels``).
    """

    mean_queue_length: tuple[Array, Array]
    mean_response_time: tuple[Array, Array]
    p_wait: tuple[Array, Array]
    tails: tuple[Array, Array]
    status: Array


def simulate(params: Params, N: int, key: Array, *, events: int = 200_000, warmup: int | None = None, lanes: int = 32,
             batches: int = 4, levels: int | None = None, policy: Policy = SHORTEST_OF_D, arrivals: MAP | None = None,
             environment: str = "fast", confidence: float = 0.95, control: bool = False) -> Simulated:
    """Equilibrium of N queues by simulation, with confidence intervals.

    Args:
      params: one system, concrete. A d between two whole numbers is simulated as the mixture of both with mean d, which
        is not the mean field of that real d.
      N: the number of queues. key: of ``jax.random``; equal keys give equal results.
      events: counted events of each lane, a multiple of ``batches``; warmup: events before, ``events // 4`` by default
        (lanes start near the mean field). lanes: paths side by side.
      levels: longest queue kept, chosen if None.
      policy: see :mod:`hetjax.models.supermarket.policies`, like ``without_replacement(2)``.
      arrivals: a MAP per server instead of Poisson arrivals. environment "fast": descriptor (N D0, N D1), the phase
        moves N times faster than a queue; "slow": an MMPP whose environment moves at the speed of a queue, descriptor
        (D0 off the diagonal, N D1).
      control: take what is known to be 0 off the mean queue length and response time, see :func:`_weights`. For large
        N intervals of theirs are shorter by a factor of order sqrt(N); an event costs a quarter more, with two phases
        3.5 times as much.

    Samples of the interval: lanes x batches. Cost about events x lanes x levels x phases; 1e-7 s an event.

    >>> import jax
    >>> from hetjax.models.supermarket import Params, simulate
    >>> found = simulate(Params(0.7, 2, [1.0], [[-1.0]]), 10, jax.random.key(0), events=20_000)
    >>> bool(abs(found.mean_queue_length[0] - 1.2193) < 0.03)
    True
    """
    warmup = events // 4 if warmup is None else warmup
    require(N >= 1 and N == int(N), "N", N, "a whole number >= 1")
    require(events % batches == 0 and events > 0, "events", events, f"a positive multiple of batches = {batches}")
    require(lanes * batches >= 2, "lanes", lanes, "so many that lanes x batches >= 2: an interval needs two samples")
    require(environment in ("fast", "slow"), "environment", repr(environment), "'fast' or 'slow'")
    require(0 < confidence < 1, "confidence", confidence, "in (0, 1)")
    if arrivals is None:
        arrivals = poisson(params.arrival_rate)
    D1 = np.asarray(arrivals.D1)
    require(environment == "fast" or not np.any(D1 - np.diag(np.diag(D1))), "arrivals", "D1 with off-diagonal rates",
            "an MMPP (diagonal D1) for a slow environment")
    if levels is None:
        levels = _levels(params, N)
    many = jnp.asarray(N, arrivals.D0.dtype)
    off = off_diagonal(arrivals.D0)
    moves = jnp.concatenate([many * arrivals.D1, (many if environment == "fast" else 1) * off], axis=1)
    return run(params, moves, many, key, (events, warmup, lanes, batches, levels, confidence), policy, control)


def _levels(params: Params, N: int) -> int:
    """So long that a longer queue is met about once in 1e12 events: the mean field's depth, and a geometric rest."""
    found = fixed_point(params).value
    depth = int(np.searchsorted(np.asarray(-found.log_tails), 28.0))
    stretch = max(1.0, (1 + float(params.service_scv())) / 2)
    return depth + 4 + math.ceil(28 * stretch / (-N * math.log(float(params.rho))))


class _Rates(NamedTuple):
    """What an event looks up, once computed."""

    moves: Array  # (a, 2a): rates of the arrival process from each phase, with an arrival first, then without
    move_sums: Array
    speeds: Array  # (p,) -T_ii
    start_sums: Array  # (p,) cumulative alpha
    onward_sums: Array  # (p, p) cumulative probabilities of the next phase; what is missing to 1: served


def _rates(params: Params, moves: Array) -> _Rates:
    speeds = -jnp.diag(params.T)
    onward = off_diagonal(params.T) / speeds[:, None]
    return _Rates(moves, jnp.cumsum(moves, axis=1), speeds, jnp.cumsum(params.alpha), jnp.cumsum(onward, axis=1))


def _count(flags: Array) -> Array:
    return jnp.sum(flags, dtype=jnp.int32)


def _pick(sums: Array, level: Array) -> Array:
    """The number of the interval between partial sums that holds ``level``; the last one takes what rounding leaves."""
    return _count(level >= sums[:-1])


def _before(sums: Array, i: Array) -> Array:
    return jnp.where(i > 0, sums[jnp.maximum(i - 1, 0)], 0)


def _event(rates: _Rates, chance: Array, n: Array, phase: Array, u: Array, v: Array) -> tuple[Array, ...]:
    """One event of one lane: the new n and phase, the exit rate of the old state, and whether a level was missing."""
    levels, p = n.shape
    phases_a = rates.moves.shape[0]
    real = n.astype(u.dtype)
    busy = jnp.cumsum(real[0] * rates.speeds)
    external = rates.move_sums[phase, -1]
    exit_rate = external + busy[-1]
    level = u * exit_rate
    outside = level < external
    # the arrival process moves, with an arrival or without; ``rest`` is uniform given which move it is
    what = _pick(rates.move_sums[phase], level)
    rest = jnp.clip((level - _before(rates.move_sums[phase], what)) / rates.moves[phase, what], 0, 1)
    arrival = outside & (what < phases_a)
    length = _count(chance > v)
    ladder = jnp.concatenate([n, jnp.zeros_like(n[:1])])
    here = (ladder[jnp.maximum(length - 1, 0)] - ladder[jnp.maximum(length, 1)]).astype(u.dtype)
    sums = jnp.cumsum(here)
    joined = jnp.where(length > 0, _pick(sums, rest * sums[-1]), _pick(rates.start_sums, rest))
    # or a service moves: of the queues in phase i, longest first, the one with number ``index``
    inside = jnp.maximum(level - external, 0)
    i = _pick(busy, inside)
    index = jnp.minimum(jnp.floor((inside - _before(busy, i)) / rates.speeds[i]), real[0, i] - 1)
    held = _count(real[:, i] > index)
    j = _count(v >= rates.onward_sums[i])
    left = rates.onward_sums[i, -1]
    again = _pick(rates.start_sums, (v - left) / jnp.where(left < 1, 1 - left, 1))
    served = j >= p
    # every event takes one queue out of a cell (length, phase) and puts it into another
    from_length = jnp.where(outside, jnp.where(arrival, length, 0), held)
    to_length = jnp.where(outside, jnp.where(arrival, length + 1, 0), jnp.where(served, held - 1, held))
    from_phase = jnp.where(outside, joined, i)
    to_phase = jnp.where(outside, joined, jnp.where(served, again, j))
    full = to_length > levels
    step, cell = jnp.arange(1, levels + 1, dtype=jnp.int32)[:, None], jnp.arange(p, dtype=jnp.int32)[None]
    into = ((step <= to_length) & (cell == to_phase)).astype(n.dtype)
    out = ((step <= from_length) & (cell == from_phase)).astype(n.dtype)
    new_phase = jnp.where(outside, what % phases_a, phase).astype(phase.dtype)
    return jnp.where(full, n, n + into - out), new_phase, exit_rate, full


def _weights(params: Params, levels: int, policy: Policy) -> Array:
    """The control variate: weights g (levels, phases) of the drift, g DF = (1, ..., 1) at the fixed point.

    Let F(n) be the mean rate of change of n/N in state n. In equilibrium n/N does not change on average, so that the
    long-run average of g F(n) is 0 for every g. With this g it is the queue length less its mean field, but for terms
    of second order in the fluctuations: the queue length less g F(n) fluctuates by 1/N instead of 1/sqrt(N).
    """
    s = fixed_point(params, levels=max(levels, 64)).value.at_least[:levels]
    J = jax.jacfwd(lambda x: drift(params, x.reshape(s.shape), policy.join).reshape(-1))(s.reshape(-1))
    return jnp.linalg.solve(J.T, jnp.ones(s.size, s.dtype)).reshape(s.shape)


def _weighted_drift(params: Params, g: Array, s: Array, chance: Array, coming: Array) -> Array:
    """g F: ``chance`` as the policy gives it, ``coming`` the arrivals per queue and unit time."""
    def join(_: Params, u: Array) -> Array:
        exactly = u[:-1] - u[1:]
        flow = -coming * jnp.diff(chance, prepend=1)
        return jnp.where(exactly > 0, flow / jnp.where(exactly > 0, exactly, 1), 0)

    return jnp.sum(g * drift(params, s, join))


@functools.partial(jax.jit, static_argnums=(4, 5, 6))
def run(params: Params, moves: Array, many: Array, key: Array, static: tuple[int, int, int, int, int, float],
        policy: Policy, control: bool = False) -> Simulated:
    """:func:`simulate` for traced arguments. ``moves`` (a, 2a): rates of the arrival process, with an arrival first,
    then without; ``many`` = N; ``static``: events, warmup, lanes, batches, levels, confidence."""
    events, warmup, lanes, batches, levels, confidence = static
    dtype = params.T.dtype
    found = fixed_point(params, levels=max(levels, 64))
    start = jnp.floor(many * found.value.at_least[:levels] + 1e-9).astype(jnp.int32)
    rates = _rates(params, moves)
    arriving = jnp.sum(moves[:, :moves.shape[0]], axis=1)
    seed = jax.random.bits(key, (2,), jnp.uint32)
    below_one = 1 - float(jnp.finfo(dtype).eps)
    g = _weights(params, levels, policy) if control else None

    def one(n: Array, phase: Array, lane: Array, number: Array) -> tuple[Array, Array, Array, Array]:
        words = random_words((seed[0], seed[1]), (lane, number))
        u, v = (jnp.minimum((word.astype(dtype) + 0.5) * 2.0**-32, below_one) for word in words)
        reach = jnp.sum(n, axis=1).astype(dtype)
        chance = policy.chance(params, reach, many)
        new, new_phase, exit_rate, full = _event(rates, chance, n, phase, u, v)
        weight = 1 / exit_rate
        coming = arriving[phase] * weight
        known = jnp.zeros_like(weight)
        if g is not None:
            known = weight * _weighted_drift(params, g, n.astype(dtype) / many, chance, arriving[phase] / many)
        paid = jnp.concatenate([jnp.stack([weight, coming, coming * chance[0], known]), weight * reach / many])
        return new, new_phase, full, paid

    lane_numbers = jnp.arange(lanes, dtype=jnp.uint32)

    def step(carry: Any, number: Array) -> tuple[Any, None]:
        n, phase, missed, total = carry
        n, phase, full, paid = jax.vmap(one, in_axes=(0, 0, 0, None))(n, phase, lane_numbers, number)
        return (n, phase, missed | full, total + paid), None

    def batch(carry: Any, first: Array) -> tuple[Any, Array]:
        n, phase, missed = carry
        numbers = first + jnp.arange(events // batches, dtype=jnp.uint32)
        start = (n, phase, missed, jnp.zeros((lanes, 4 + levels), dtype))
        (n, phase, missed, total), _ = lax.scan(step, start, numbers)
        return (n, phase, missed), total

    n = jnp.broadcast_to(start, (lanes, *start.shape))
    phase = (lane_numbers % moves.shape[0]).astype(jnp.int32)
    nothing = jnp.zeros((lanes, 4 + levels), dtype)
    state = (n, phase, jnp.zeros((lanes,), bool), nothing)
    (n, phase, missed, _), _ = lax.scan(step, state, jnp.arange(warmup, dtype=jnp.uint32))
    firsts = warmup + (events // batches) * jnp.arange(batches, dtype=jnp.uint32)
    (_, _, missed), totals = lax.scan(batch, (n, phase, missed), firsts)
    totals = totals.reshape(-1, 4 + levels)
    time, came, waited, lengths = totals[:, 0], totals[:, 1], totals[:, 2], totals[:, 4:]
    quantile = student_quantile(0.5 + confidence / 2, totals.shape[0] - 1).astype(dtype)

    def ratio(top: Array, bottom: Array) -> tuple[Array, Array]:
        count = top.shape[0]
        mean = jnp.sum(top) / jnp.sum(bottom)
        spread = jnp.sum((top - mean * bottom) ** 2) / (count * (count - 1))
        return mean, quantile * jnp.sqrt(spread) / jnp.mean(bottom)

    number = jnp.sum(lengths, axis=1) - totals[:, 3]
    code = jnp.where(jnp.any(missed), int(Status.NOT_CONVERGED), int(Status.OK))
    code = jnp.where(jnp.all(jnp.isfinite(totals)), code, int(Status.NONFINITE)).astype(jnp.uint8)
    tails = jax.vmap(ratio, in_axes=(1, None))(lengths, time)
    return Simulated(ratio(number, time), ratio(number, came / many), ratio(waited, came), tails, code)
