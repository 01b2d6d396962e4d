"""Policy iteration by levels for the allocation problem of :mod:`.allocation`: the kernel, points last.

Level n = customers in the node, B = busy slow servers (a bit mask), f = phase. A decision takes (n, B, f) to
(n, C, f) with C a superset of B, at once, before anything else happens; after it the state is left at the rates of

    arrival  D1[f, g] to (n + 1, C, g),   phase  D0[f, g] to (n, C, g),
    fast server  mu_1 to (n - 1, C, f) where n > |C|,   slow server j in C  mu_j to (n - 1, C - j, f),

each of which is decided anew. Cost rate: w n + u_1 [n > |C|] + sum_{j in C} u_j. With h the relative value after the
decision, H = min over C of h the one before it, a policy's values satisfy 0 = cost - g + sum rate (H(next) - h)
(average cost g), or the same with -b h for -g (discounting at rate b).

*Evaluation.* From level n + 1 the first passage down ends before a decision at level n, by law Gamma_{n+1}, after cost
kappa_{n+1} and time tau_{n+1}: h_{n+1} = Gamma_{n+1} H_n + kappa_{n+1} - g tau_{n+1}. Gamma_n follows from
Gamma_{n+1} by eliminating level n: positive terms only, nothing is subtracted (:mod:`hetjax.ctmc.elimination`). Level 0
closes the chain and gives g; then the values follow upwards, as means of those one level below.

*Tail.* Above the last level N all servers are busy after any decision, and the levels repeat: Gamma_n = G for the
phase, with G the first passage of a MAP/M/1 queue with rate mu = sum mu_j (the server that finishes last is j with
probability mu_j/mu), and costs (w n + U) tau + w kappa, where

    K tau = 1,   K kappa = D1 tau,   K = b + mu - D0 - D1 - D1 G,   U = sum u_j.

Discounting is killing at rate b: a passage of discounted time tau is killed with probability b tau, which adds to the
exits of the level below; G is found with one more phase for the dead, which only goes down.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.ctmc import elimination, logarithmic_reduction, panels
from hetjax.ctmc.batching import points_last
from hetjax.ctmc.blocks import LARGE, block_times
from hetjax.models.threshold_queue.chain import busy_sets

Array = jax.Array
_UNROLLED = 8  # states; a single point with more is solved in loops, which compile faster
_ROUNDING = 64  # a decision is changed, and the tail found wanting, beyond so many units of rounding of the values


class Problem(NamedTuple):
    """(p, p, ...) blocks; (c, ...) service rates and usage costs; holding cost and discount rate (...)."""

    D0: Array
    D1: Array
    mu: Array
    usage: Array
    holding: Array
    discount: Array


class Values(NamedTuple):
    """gain (...); values after the decision (N + 1, sets, p, ...); those of level N + 1 and their rise to N + 2
    (p, ...); what rounding may do to values."""

    gain: Array
    after: Array
    above: Array
    rise: Array
    rounding: Array


class Outcome(NamedTuple):
    """The last policy (N + 1, sets, p, ...), its values, the lower bound of the gain, evaluations, whether the
    policy stopped changing and whether the levels suffice."""

    policy: Array
    values: Values
    lower: Array
    evaluations: Array
    settled: Array
    enough: Array


def supersets(sets: int) -> list[list[int]]:
    """The sets that contain set B, B first."""
    return [[C for C in range(sets) if C & B == B] for B in range(sets)]


def allowed(levels: int, sets: int) -> np.ndarray:
    """(levels + 1, B, C): whether C may be chosen: it contains B, and the fast server keeps a customer."""
    size = np.array([B.bit_count() for B in range(sets)])
    n = np.arange(levels + 1)[:, None, None]
    contains = (np.arange(sets)[None] & np.arange(sets)[:, None]) == np.arange(sets)[:, None]
    return contains[None] & ((size[None, None] < n) | np.eye(sets, dtype=bool)[None])


def _solve(rates: Array, exits: Array, right: Array) -> Array:
    form = panels.solve if rates.ndim == 2 and rates.shape[0] > _UNROLLED else elimination.solve
    return form(rates, exits, right)[0]


def _quiet(D0: Array) -> Array:
    p = D0.shape[0]
    return D0 * (1 - jnp.eye(p, dtype=D0.dtype).reshape(p, p, *[1] * (D0.ndim - 2)))


class Tail(NamedTuple):
    """G (p, p, ...), tau and kappa (p, ...)."""

    G: Array
    tau: Array
    kappa: Array


def tail(problem: Problem, discounted: bool) -> Tail:
    """First passage one level down where all servers are busy."""
    D0, D1 = problem.D0, problem.D1
    p, quiet = D0.shape[0], _quiet(D0)
    mu = jnp.sum(problem.mu, axis=0)
    size = p + discounted
    down = mu[None, None] * jnp.eye(size, dtype=D0.dtype).reshape(size, size, *[1] * (D0.ndim - 2))
    if discounted:
        dead = jnp.broadcast_to(problem.discount[None, None], (p, 1, *D0.shape[2:]))
        none = jnp.zeros_like(D1[:1])

        def extend(block: Array, column: Array) -> Array:
            return jnp.concatenate([jnp.concatenate([block, column], axis=1),
                                    jnp.concatenate([none, none[:, :1]], axis=1)])

        G = logarithmic_reduction(extend(D1, 0 * dead), extend(quiet, dead), down)[0][:p, :p]
    else:
        G = logarithmic_reduction(D1, quiet, down)[0]
    climb = block_times(D1, G)
    rates, exits = quiet + D1 + climb, mu[None] - jnp.sum(climb, axis=1)
    if discounted:
        exits = exits + problem.discount[None]
    tau = _solve(rates, exits, jnp.ones_like(D1[:, :1]))
    return Tail(G, tau[:, 0], _solve(rates, exits, block_times(D1, tau))[:, 0])


def _chosen(policy: Array, B: int, C: int, dtype: Any) -> Array:
    return (policy[B] == C).astype(dtype)


def before(policy: Array, after: Array) -> Array:
    """What is known before the decision of one level, (sets, p, m, ...), from what is known after it."""
    sets = after.shape[0]
    rows = []
    for B, larger in enumerate(supersets(sets)):
        row = after[B]
        for C in larger[1:]:
            row = jnp.where((policy[B] == C)[:, None], after[C], row)
        rows.append(row)
    return jnp.stack(rows)


def _decide(policy: Array, columns: Array) -> Array:
    """Rates (S, sets, p, ...) to states before the decision become rates to states after it."""
    sets = columns.shape[1]
    flows: list[list[Array]] = [[] for _ in range(sets)]
    for B, larger in enumerate(supersets(sets)):
        for C in larger:
            flows[C].append(columns[:, B] * _chosen(policy, B, C, columns.dtype)[None])
    return jnp.stack([elimination.total(f) for f in flows], axis=1)


def _level(problem: Problem, n: Array) -> tuple[Array, Array]:
    """The rates down (sets, p, sets, p, ...) and the cost rates (sets, p, ...) of level n after a decision."""
    slow = problem.mu.shape[0] - 1
    busy = busy_sets(slow)
    sets, p = len(busy), problem.D0.shape[0]
    zero = jnp.zeros_like(problem.holding)
    eye = jnp.eye(p, dtype=problem.D0.dtype).reshape(p, p, *[1] * zero.ndim)
    blocks, costs = [], []
    for B in range(sets):
        fast = (n > int(busy[B].sum())).astype(zero.dtype)
        rows = [zero] * sets
        rows[B] = fast * problem.mu[0]
        cost = n.astype(zero.dtype) * problem.holding + fast * problem.usage[0]
        for j in np.flatnonzero(busy[B]):
            rows[B - (1 << j)] = problem.mu[j + 1]
            cost = cost + problem.usage[j + 1]
        blocks.append(jnp.stack([rate[None, None] * eye for rate in rows]))
        costs.append(jnp.broadcast_to(cost[None], (p, *zero.shape)))
    return jnp.moveaxis(jnp.stack(blocks), 1, 2), jnp.stack(costs)


def evaluate(policy: Array, problem: Problem, closing: Tail, discounted: bool) -> Values:
    """The exact values of a policy (N + 1, sets, p, ...)."""
    levels, sets, p = policy.shape[0] - 1, *policy.shape[1:3]
    points = policy.shape[3:]
    S, dtype = sets * p, problem.D0.dtype
    D1, quiet = problem.D1, _quiet(problem.D0)
    mu = jnp.sum(problem.mu, axis=0)
    zero = jnp.zeros(points, dtype)
    stay = jnp.stack([jnp.concatenate([quiet if C == B else 0 * quiet for C in range(sets)], axis=1)
                      for B in range(sets)])  # (sets, p, S)
    share = [zero] * sets
    share[-1] = problem.mu[0] / mu
    for j in range(problem.mu.shape[0] - 1):
        share[sets - 1 - (1 << j)] = problem.mu[j + 1] / mu
    holding = problem.holding[None]
    top_cost = (((levels + 1) * holding + jnp.sum(problem.usage, axis=0, keepdims=True)) * closing.tau
                + holding * closing.kappa)  # (p, ...), from level N + 1
    first = jnp.concatenate([closing.G * s[None, None] for s in share] + [top_cost[:, None], closing.tau[:, None]],
                            axis=1)
    first = jnp.broadcast_to(first[None], (sets, *first.shape))

    def down(above: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        n, choice = at
        climbed = jnp.stack([block_times(D1, above[B]) for B in range(sets)])
        moves = (climbed[:, :, :S] + stay).reshape(S, sets, p, *points)
        leave, cost = _level(problem, n)
        exits = jnp.sum(leave, axis=(2, 3)).reshape(S, *points)
        if discounted:
            exits = exits + problem.discount[None] * (1 + climbed[:, :, S + 1].reshape(S, *points))
        right = jnp.concatenate([leave.reshape(S, S, *points), (cost + climbed[:, :, S]).reshape(S, 1, *points),
                                 (1 + climbed[:, :, S + 1]).reshape(S, 1, *points)], axis=1)
        solved = _solve(_decide(choice, moves).reshape(S, S, *points), exits, right).reshape(sets, p, S + 2, *points)
        return before(choice, solved), solved

    numbers = jnp.arange(1, levels + 1, dtype=jnp.int32)
    above, passages = lax.scan(down, first, (numbers, policy[1:]), reverse=True)
    empty = block_times(D1, above[0])  # (p, S + 2)
    closed, cost, time = quiet + empty[:, :p], empty[:, S], 1 + empty[:, S + 1]
    if discounted:
        gain = zero
        ground = _solve(closed, problem.discount[None] * time, cost[:, None])[:, 0]
    else:
        measure = panels.stationary_measure if closed.ndim == 2 and p > LARGE else elimination.stationary_measure
        law, _ = measure(closed)
        gain = jnp.sum(law * cost, axis=0) / jnp.sum(law * time, axis=0)
        ground = jnp.zeros_like(cost)
        if p > 1:
            rest = _solve(closed[1:, 1:], closed[1:, 0], (cost - gain[None] * time)[1:, None])[:, 0]
            ground = jnp.concatenate([ground[:1], rest])

    def up(below: Array, at: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        passage, choice = at
        flat = passage.reshape(S, S + 2, *points)
        own = flat[:, S] - gain[None] * flat[:, S + 1]
        here = (block_times(flat[:, :S], below.reshape(S, 1, *points))[:, 0] + own).reshape(sets, p, *points)
        size = jnp.max(flat[:, S] + jnp.abs(gain)[None] * flat[:, S + 1], axis=0)
        return before(choice, here[:, :, None])[:, :, 0], (here, size)

    # busy slow servers in an empty node do not exist: their rates lead nowhere that is reached
    ground = jnp.concatenate([ground[None], jnp.zeros((sets - 1, *ground.shape), dtype)])
    highest, (after, local) = lax.scan(up, ground, (passages, policy[1:]))
    own = top_cost - gain[None] * closing.tau
    above_top = jnp.sum(first[0][:, :S] * highest.reshape(1, S, *points), axis=1) + own
    next_cost = own + holding * closing.tau
    rise = block_times(closing.G, above_top[:, None])[:, 0] + next_cost - above_top
    scale = jnp.max(jnp.abs(after), axis=(0, 1, 2)) + jnp.max(local, axis=0)
    return Values(gain, jnp.concatenate([ground[None], after]), above_top, rise, float(jnp.finfo(dtype).eps) * scale)


def improve(policy: Array, problem: Problem, values: Values, discounted: bool) -> tuple[Array, Array, Array]:
    """The better policy; the most that one deviation gains per unit time at a level up to N, and above (both <= 0)."""
    levels, sets = policy.shape[0] - 1, policy.shape[1]
    points = policy.shape[3:]
    ones = [1] * len(points)
    after = values.after
    margin = (_ROUNDING * values.rounding)[None, None]
    may = allowed(levels, sets)
    leave = jnp.moveaxis(-jnp.diagonal(problem.D0, axis1=0, axis2=1), -1, 0)  # (p, ...)
    busy = busy_sets(problem.mu.shape[0] - 1)
    served = [elimination.total([jnp.zeros_like(problem.holding)] + [problem.mu[j + 1] for j in np.flatnonzero(row)])
              for row in busy]
    fast = np.arange(levels + 1)[:, None] > busy.sum(1)[None]
    choices, least = [], jnp.zeros(points, after.dtype)
    here = jax.vmap(lambda c, a: before(c, a[:, :, None])[:, :, 0])(policy, after)
    for B, larger in enumerate(supersets(sets)):
        best, value = policy[:, B], here[:, B] - margin
        for C in larger:
            legal = jnp.asarray(may[:, B, C]).reshape(-1, 1, *ones)
            gain = jnp.where(legal, after[:, C] - here[:, B], jnp.zeros_like(here[:, B]))
            exits = jnp.asarray(fast[:, C], after.dtype).reshape(-1, 1, *ones) * problem.mu[0][None, None] + (
                leave + served[C][None])[None]
            least = jnp.minimum(least, jnp.min(gain * exits, axis=(0, 1)))
            better = legal & (after[:, C] < value)
            best = jnp.where(better, jnp.full_like(best, C), best)
            value = jnp.where(better, after[:, C], value)
        choices.append(best)
    return jnp.stack(choices, axis=1), least, _above(problem, here[-1], values, discounted)


def _above(problem: Problem, highest: Array, values: Values, discounted: bool) -> Array:
    """The most that waiting gains per unit time above level N, where the policy never waits (<= 0).

    Waiting with servers C busy instead of all: at level N + 1 by the values of level N; at level n >= N + 2 it gains
    sum over idle j of u_j - mu_j d_n, d_n = h_n - h_{n-1}. As d_{n+1} = G d_n + w tau (undiscounted: G is stochastic),
    d grows and level N + 2 decides. Discounted, it tends to w/b, for (1 - G)^-1 tau = 1/b, as K (1 - G) = b - D0 - D1;
    d_n - w/b is multiplied by G >= 0, G 1 <= 1, so that min(d_{N+2}, w/b) bounds all.
    """
    sets = highest.shape[0]
    slow = problem.mu.shape[0] - 1
    busy = busy_sets(slow)
    rise = jnp.min(values.rise, axis=0)
    if discounted:
        rise = jnp.minimum(rise, problem.holding / problem.discount)
    least = jnp.zeros_like(rise)
    full, mu = sets - 1, problem.mu[:, None]
    for C in range(full):
        change = mu[0] * (highest[C] - highest[full])
        steady = jnp.zeros_like(rise)
        for j in range(slow):
            lost = highest[full - (1 << j)]
            if busy[C, j]:
                change = change + mu[j + 1] * (highest[C - (1 << j)] - lost)
            else:
                change = change + mu[j + 1] * (values.above - lost) - problem.usage[j + 1][None]
                steady = steady + problem.mu[j + 1] * rise - problem.usage[j + 1]
        least = jnp.minimum(least, jnp.minimum(jnp.min(change, axis=0), steady))
    return least


def start(problem: Problem, levels: int, rate: Array) -> Array:
    """Thresholds of the heavy-traffic diffusion for Poisson arrivals, server by server, as a policy; later by as many
    customers as make one customer more, about w n/(mu - lambda), cost what the server does (u_j/mu_j)."""
    mu = problem.mu
    slow = mu.shape[0] - 1
    busy = busy_sets(slow)
    p, points = problem.D0.shape[0], problem.D0.shape[2:]
    n = jnp.arange(levels + 1).reshape(-1, *[1] * len(points))
    faster = jnp.cumsum(mu, axis=0)
    spare = jnp.maximum(faster[-1] - rate, 0)
    rows: list[Array] = [jnp.zeros(())] * len(busy)
    for B in reversed(range(len(busy))):
        stay = jnp.full((levels + 1, *points), B, jnp.int8)
        if B == len(busy) - 1:
            rows[B] = stay
            continue
        j = int(np.argmin(busy[B]))
        ratio = faster[j] / mu[j + 1]
        drift = (faster[j] - rate) / mu[j + 1]
        threshold = jnp.maximum((drift + jnp.sqrt(drift * drift + 5.757 * ratio)) / 2 - 1, 1)
        threshold = threshold + problem.usage[j + 1] * spare / (mu[j + 1] * problem.holding)
        waiting = n - int(busy[B].sum()) - 1
        rows[B] = jnp.where((waiting >= 1) & (waiting.astype(drift.dtype) >= threshold[None]), rows[B | 1 << j], stay)
    policy = jnp.stack(rows, axis=1)
    return jnp.broadcast_to(policy[:, :, None], (*policy.shape[:2], p, *points))


def iterate(D0: Array, D1: Array, mu: Array, usage: Array, holding: Array, discount: Array, rate: Array, *,
            levels: int, discounted: bool, max_iterations: int) -> Outcome:
    """Howard's policy iteration."""
    problem = Problem(D0, D1, mu, usage, holding, discount)
    closing = tail(problem, discounted)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        _, policy, *_, count, _ = state
        values = evaluate(policy, problem, closing, discounted)
        better, within, above = improve(policy, problem, values, discounted)
        return policy, better, values, within, above, count + 1, jnp.any(better != policy, axis=(0, 1, 2))

    first = start(problem, levels, rate)
    outline = jax.eval_shape(step, (first, first, None, None, None, jnp.zeros((), jnp.int32), None))
    state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), outline)
    state = (first, first, *state[2:-1], jnp.ones_like(state[-1]))
    policy, _, values, within, above, count, moving = lax.while_loop(
        lambda s: jnp.any(s[-1]) & (s[-2] < max_iterations), step, state)
    gain = values.gain
    enough = above >= -_ROUNDING * values.rounding * jnp.sum(mu, axis=0)
    return Outcome(policy, values, gain + jnp.minimum(within, above), jnp.broadcast_to(count, gain.shape), ~moving,
                   enough)


@lru_cache(maxsize=64)
def solver(levels: int, discounted: bool, max_iterations: int) -> Callable[..., Outcome]:
    """:func:`iterate` with the points last under vmap; derivatives of the values are those at the policy found."""
    run = partial(iterate, levels=levels, discounted=discounted, max_iterations=max_iterations)

    def width(D0: Array, D1: Array, mu: Array, *_: Any) -> int:
        return 128 if D0.shape[0] * 2 ** (mu.shape[0] - 1) <= 2 else 16

    batched = points_last(run, width)

    @jax.custom_jvp
    def solve(*arrays: Array) -> Outcome:
        states = arrays[0].shape[0] * 2 ** (arrays[2].shape[0] - 1)
        found = batched(*arrays) if states <= LARGE else run(*arrays)
        return found._replace(policy=found.policy.astype(arrays[0].dtype))

    @solve.defjvp
    def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Outcome, Outcome]:
        found = solve(*primals)

        def at_policy(*arrays: Array) -> Outcome:
            problem = Problem(*arrays[:6])
            values = evaluate(found.policy, problem, tail(problem, discounted), discounted)
            return found._replace(values=values)

        _, change = jax.jvp(at_policy, primals, tangents)
        return found, change

    return solve
