"""The best way to use slow servers: one queue, a fast server that never idles while a customer could be served, slow
servers that may wait, MAP arrivals; holding cost per customer and time, usage cost per busy server and time.

State: n customers in the node, busy slow servers B, phase f. After any event, phase changes included, any of the idle
slow servers may be started, each on a customer who waits. Policy iteration with exact evaluation on the *infinite*
buffer (:mod:`.policy_levels`): decisions are free up to level N, above it all servers are started.

**What the truncation costs.** The policy found is a policy of the infinite system, so its cost ``gain`` is an upper
bound of the optimum. Its values h satisfy the optimality equation up to the ``residual`` m <= 0: no decision in any
state, *those above N included*, lowers the cost rate plus the drift of h by more than -m. Above N waiting with server j
idle gains u_j - mu_j d_n per unit time, d_n = h_n - h_{n-1} the cost of one customer more, which grows with n
(d_{n+1} = G d_n + w tau): one level decides them all. So

    gain + m <= optimum <= gain

over all policies under which E[n_t^2]/t -> 0 (h grows as n^2; discounted: E[n_t^2] exp(-b t) -> 0). Where m is 0 but
for rounding the policy is optimal for the infinite buffer and the status is OK: the truncation costs nothing. This
project's own result; second routes in the tests: value iteration on a truncated buffer, search over all thresholds.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.control.policy_levels import allowed, solver
from hetjax.control.process import MDP, from_events
from hetjax.ctmc import stationary
from hetjax.models.threshold_queue.chain import busy_sets
from hetjax.processes import MAP
from hetjax.processes.checks import as_real, as_reals, concrete, require
from hetjax.result import Status

Array = jax.Array
LARGEST_SERVERS = 6  # 2^(c-1) busy sets a level
LARGEST_LEVELS = 1024  # where levels are chosen automatically


class Allocation(NamedTuple):
    """The optimal allocation.

    Attributes:
      gain: least average cost per unit time; discounted: ``discount_rate`` times the discounted cost from an empty node
        with the phase in stationarity (which tends to the former as the rate falls).
      lower_bound: no policy costs less, see the module's docstring; ``gain`` up to rounding where status is ok.
      thresholds: (2^(c-1) - 1, p) int32: with busy set B in phase f, the least number of waiting customers, a newcomer
        included, at which a slow server is started. Two servers: (1, p), as ``threshold_queue.Params`` takes them.
      threshold_type: bool, whether a slow server is started at *every* larger number too, the fastest idle one first.
      fastest_first: bool, whether slow servers are started as soon as anyone waits (all thresholds 1).
      policy: (N + 1, 2^(c-1), p) int32, the busy set after the decision at (n, B, f); bit j of a set is server j + 2.
      values: (N + 1, 2^(c-1), p), relative values after the decision, 0 in the empty node in the likeliest phase; or
        the discounted costs. States with more busy servers than customers do not exist.
      evaluations: int32, policies evaluated.
      status: ok; not_converged where N = ``policy.shape[0] - 1`` is too small for the optimum (``lower_bound`` still
        holds) or the evaluations ran out; unstable; out_of_domain.
    """

    gain: Array
    lower_bound: Array
    thresholds: Array
    threshold_type: Array
    fastest_first: Array
    policy: Array
    values: Array
    evaluations: Array
    status: Array


def optimal_allocation(D0: Any, D1: Any, mu1: Any, mu2: Any, holding_cost: Any = 1.0, usage_costs: Any = 0.0,
                       discount_rate: Any = None, levels: int | None = None, max_iterations: int = 200) -> Allocation:
    """The policy of least cost for one fast and c - 1 slow servers with MAP arrivals and an infinite buffer.

    Args:
      D0, D1: (p, p) rates of phase changes without and with an arrival.
      mu1: service rate of the fast server, a scalar; it serves whenever there is a customer not in another server.
      mu2: service rate of the slow server, a scalar, or (c - 1,) falling rates.
      holding_cost: positive, per customer in the node and unit time. With 1 and no usage costs the gain is the mean
        number in the node.
      usage_costs: (c,) per unit time in which a server is busy, that of the fast one first; one number for all. >= 0.
      discount_rate: None for the average cost; else positive, per unit time (then any load is legal).
      levels: static N >= c, decisions are free up to N customers. None: doubled from 16 until enough; needs concrete
        arguments. For ``jit`` and ``vmap`` give a number; status says where it was too small.
      max_iterations: static, of Howard's policy iteration (3 to 5 are usual).

    Concrete arguments are checked (ValueError); traced ones get a status. One point; under ``vmap`` points go to the
    last axis: .05 to .14 ms a point with 4 phases and 24 levels (tests/benchmarks/mdp.py). Cost of an evaluation
    O(levels (2^(c-1) p)^3); compiled in 10 s with 4 phases, over half a minute beyond 12. Differentiable: derivatives
    of ``gain`` and ``values`` at the policy found, which are those of the optimum where the policy does not change (the
    envelope theorem).

    >>> from hetjax import control
    >>> word = dict(D0=[[-1.36, 0], [1.36, -1.36]], D1=[[0, 1.36], [0, 0]])  # every second customer of a stream
    >>> best = control.optimal_allocation(**word, mu1=1.0, mu2=0.36)
    >>> best.thresholds.tolist(), round(float(best.gain), 6), bool(best.threshold_type), int(best.status)
    ([[1, 2]], 1.136932, True, 1)
    >>> costly = control.optimal_allocation(**word, mu1=1.0, mu2=0.36, usage_costs=[0.0, 1.0])  # energy of server 2
    >>> costly.thresholds.tolist()
    [[2, 3]]
    """
    given = {"D0": D0, "D1": D1, "mu1": mu1, "mu2": mu2, "holding_cost": holding_cost, "usage_costs": usage_costs,
             "discount_rate": 0.0 if discount_rate is None else discount_rate}
    leaves = dict(zip(given, as_reals(*given.values()), strict=True))
    _check_shapes(leaves)
    servers = 1 + leaves["mu2"].size
    leaves["usage_costs"] = jnp.broadcast_to(leaves["usage_costs"], (servers,))
    known = concrete(*leaves.values())
    if known:
        _check_values(leaves, discount_rate is not None)
    require(isinstance(max_iterations, int | np.integer) and max_iterations >= 1, "max_iterations", max_iterations,
            "a whole number >= 1")
    if levels is not None:
        require(isinstance(levels, int | np.integer) and levels >= servers, "levels", levels,
                f"None or a whole number >= {servers}, the number of servers")
        return _solve(leaves, int(levels), discount_rate is not None, int(max_iterations))
    require(known, "levels", None, "a whole number where other arguments are traced (jit, vmap, grad)")
    levels = 16
    while True:
        result = _solve(leaves, levels, discount_rate is not None, int(max_iterations))
        if int(result.status) != Status.NOT_CONVERGED or levels >= LARGEST_LEVELS:
            return result
        levels *= 2


def _check_shapes(leaves: dict[str, Array]) -> None:
    D0, D1, mu2, usage = leaves["D0"], leaves["D1"], leaves["mu2"], leaves["usage_costs"]
    require(D0.ndim == 2 and D0.shape[0] == D0.shape[1] and D0.shape[0] > 0, "D0", f"array of shape {D0.shape}",
            "a square matrix (phases, phases); use vmap for many queues")
    require(D1.shape == D0.shape, "D1", f"array of shape {D1.shape}", f"of the shape of D0, {D0.shape}")
    require(mu2.ndim <= 1 and 1 <= mu2.size < LARGEST_SERVERS, "mu2", f"array of shape {mu2.shape}",
            f"one rate, or a list of 1 to {LARGEST_SERVERS - 1}, one for each slow server")
    require(usage.shape in ((), (mu2.size + 1,)), "usage_costs", f"array of shape {usage.shape}",
            f"one cost, or {mu2.size + 1}, one for each server, the fast one first")
    for name in ("mu1", "holding_cost", "discount_rate"):
        require(leaves[name].shape == (), name, f"array of shape {leaves[name].shape}",
                "one number; use vmap for many queues")


def _check_values(leaves: dict[str, Array], discounted: bool) -> None:
    arrivals = MAP(leaves["D0"], leaves["D1"])
    rates = np.concatenate([np.asarray(leaves["mu1"]).reshape(1), np.asarray(leaves["mu2"]).reshape(-1)])
    for name, rate in zip(["mu1", *(["mu2"] * leaves["mu2"].size)], rates.tolist(), strict=True):
        require(0 < rate < np.inf, name, rate, "positive and finite (customers per unit time)")
    require(bool(np.all(np.diff(rates) <= 0)), "mu1, mu2", rates.tolist(),
            "falling, as servers go from fast to slow; swap them")
    require(0 < float(leaves["holding_cost"]) < np.inf, "holding_cost", float(leaves["holding_cost"]),
            "positive and finite; without it nobody ever needs a slow server")
    usage = np.asarray(leaves["usage_costs"])
    require(bool(np.all((usage >= 0) & (usage < np.inf))), "usage_costs", usage.tolist(), ">= 0 and finite")
    if discounted:
        require(0 < float(leaves["discount_rate"]) < np.inf, "discount_rate", float(leaves["discount_rate"]),
                "positive and finite; None is the average cost")
    else:
        rate, work = float(arrivals.rate()), float(rates.sum())
        require(rate < work, "arrival rate of (D0, D1)", rate,
                f"below {work:g}, the service rate of all servers, or queues grow for ever; give a discount_rate")


def _status(leaves: dict[str, Array], mu: Array, usage: Array, rate: Array, discounted: bool) -> Array:
    legal = MAP(leaves["D0"], leaves["D1"]).is_valid()
    holding, discount = leaves["holding_cost"], leaves["discount_rate"]
    legal = legal & jnp.all((mu > 0) & jnp.isfinite(mu)) & jnp.all(jnp.diff(mu) <= 0) & (holding > 0)
    legal = legal & jnp.isfinite(holding) & jnp.all((usage >= 0) & jnp.isfinite(usage))
    if discounted:
        legal = legal & (discount > 0) & jnp.isfinite(discount)
        stable = jnp.ones((), bool)
    else:
        stable = rate < jnp.sum(mu)
    return jnp.where(legal, jnp.where(stable, int(Status.OK), int(Status.UNSTABLE)), int(Status.OUT_OF_DOMAIN))


@partial(jax.jit, static_argnums=(1, 2, 3))
def _solve(leaves: dict[str, Array], levels: int, discounted: bool, max_iterations: int) -> Allocation:
    D0, D1, dtype = leaves["D0"], leaves["D1"], leaves["D0"].dtype
    mu = jnp.concatenate([leaves["mu1"].reshape(1), leaves["mu2"].reshape(-1)])
    usage = leaves["usage_costs"]
    law = stationary(D0 + D1).value
    rate = law @ jnp.sum(D1, axis=1)
    code = _status(leaves, mu, usage, rate, discounted)
    ok = code == int(Status.OK)
    p = D0.shape[0]
    eye = jnp.eye(p, dtype=dtype)
    one = jnp.ones((), dtype)
    tame = (jnp.roll(eye, 1, axis=1) / 2 - eye, eye / 2, jnp.ones_like(mu), 0 * jnp.ones_like(mu), one, one, one / 2)
    real = (D0, D1, mu, usage, leaves["holding_cost"], leaves["discount_rate"], lax.stop_gradient(rate))
    safe = [jnp.where(ok, x, y) for x, y in zip(real, tame, strict=True)]  # no NaN meets the loop or a gradient
    shift = jnp.where(ok, jnp.argmax(lax.stop_gradient(law)), 0)  # a recurrent phase becomes phase 0
    turned = [jnp.roll(x, -shift, (0, 1)) for x in safe[:2]]
    found = solver(levels, discounted, max_iterations)(*turned, *safe[2:])
    policy = jnp.roll(lax.stop_gradient(found.policy), shift, 2).astype(jnp.int32)
    values = jnp.roll(found.values.after, shift, 2)
    gain = found.values.gain
    if discounted:
        gain = safe[5] * (jnp.where(ok, law, jnp.ones_like(law)) @ values[0, 0])
    lower = lax.stop_gradient(gain + (found.lower - found.values.gain))
    solved = found.settled & found.enough
    finite = jnp.isfinite(gain)
    code = jnp.where(ok, jnp.where(finite, jnp.where(solved, int(Status.OK), int(Status.NOT_CONVERGED)),
                                   int(Status.NONFINITE)), code)
    thresholds, ordered = _thresholds(policy, mu.size - 1)
    return Allocation(
        gain=jnp.where(ok, gain, jnp.nan), lower_bound=jnp.where(ok, lower, jnp.nan), thresholds=thresholds,
        threshold_type=ordered & ok, fastest_first=ordered & ok & jnp.all(thresholds == 1), policy=policy,
        values=jnp.where(ok, values, jnp.nan), evaluations=found.evaluations, status=code.astype(jnp.uint8))


def _thresholds(policy: Array, slow: int) -> tuple[Array, Array]:
    """Thresholds by busy set and phase, and whether they describe the policy."""
    levels = policy.shape[0] - 1
    busy = busy_sets(slow)
    thresholds, ordered = [], jnp.ones((), bool)
    for B in range(len(busy) - 1):
        size = int(busy[B].sum())
        chosen = policy[size + 2:, B]  # one customer waits, two wait, ..
        started = chosen != B
        first = jnp.where(jnp.any(started, axis=0), jnp.argmax(started, axis=0), levels - size - 1)
        thresholds.append(first.astype(jnp.int32) + 1)
        below = jnp.arange(started.shape[0])[:, None] < first[None]
        fastest = 1 << int(np.argmin(busy[B]))
        ordered = ordered & jnp.all(started != below) & jnp.all(~started | (chosen & fastest != 0))
    return jnp.stack(thresholds), ordered


def allocation_mdp(D0: Any, D1: Any, mu1: Any, mu2: Any, holding_cost: Any = 1.0, usage_costs: Any = 0.0,
                   capacity: int = 40) -> MDP:
    """The same problem with room for ``capacity`` customers as a general :class:`hetjax.control.MDP`: the second route.

    Customers who find the node full are lost at no cost. State (n, B, f), action C (the busy set wanted). Arguments as
    for :func:`optimal_allocation`.

    >>> from hetjax import control
    >>> small = control.allocation_mdp([[-1.0]], [[1.0]], 1.0, 0.5, capacity=30)
    >>> small.costs.shape, small.feasible.reshape(31, 2, 2)[:3, 0].tolist()  # start the slow server with two customers
    ((62, 2), [[True, False], [True, False], [True, True]])
    """
    D0, D1, mu1, mu2, holding, usage = (as_real(x) for x in (D0, D1, mu1, mu2, holding_cost, usage_costs))
    slow = mu2.reshape(-1)
    p, sets = D0.shape[0], 2**slow.size
    require(isinstance(capacity, int | np.integer) and capacity > slow.size, "capacity", capacity,
            f"a whole number >= {slow.size + 1}, the number of servers")
    usage = jnp.broadcast_to(usage, (slow.size + 1,))
    size = jnp.asarray(busy_sets(slow.size).sum(1), jnp.int32)
    cost_of_set = jnp.asarray(busy_sets(slow.size), usage.dtype) @ usage[1:]

    def feasible(state: tuple[Array, ...], action: Array) -> Array:
        return jnp.asarray(allowed(capacity, sets))[state[0], state[1], action]

    def cost(state: tuple[Array, ...], action: Array) -> Array:
        fast = (state[0] > size[action]).astype(usage.dtype)
        return state[0].astype(usage.dtype) * holding + fast * usage[0] + cost_of_set[action]

    def change(phases: int, arrivals: int, rates: Array) -> Any:
        def event(state: tuple[Array, ...], action: Array) -> tuple[tuple[Array, ...], Array]:
            n, _, f = state
            g = (f + phases) % p
            return (jnp.minimum(n + arrivals, capacity), action + 0 * n, g), rates[f, g]
        return event

    def served_fast(state: tuple[Array, ...], action: Array) -> tuple[tuple[Array, ...], Array]:
        n, _, f = state
        works = n > size[action]
        return (jnp.where(works, n - 1, n), action + 0 * n, f), jnp.where(works, mu1, jnp.zeros_like(mu1))

    def served_slow(j: int) -> Any:
        def event(state: tuple[Array, ...], action: Array) -> tuple[tuple[Array, ...], Array]:
            n, _, f = state
            works = ((action >> j) & 1 == 1) & (n > 0)
            after = jnp.where(works, action - (1 << j), action)
            return (jnp.where(works, n - 1, n), after + 0 * n, f), jnp.where(works, slow[j], jnp.zeros_like(slow[j]))
        return event

    events = [served_fast] + [served_slow(j) for j in range(slow.size)]
    events += [change(k, 1, D1) for k in range(p)] + [change(k, 0, D0) for k in range(1, p)]
    return from_events(events, (capacity + 1, sets, p), sets, cost, feasible)
