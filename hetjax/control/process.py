"""Markov decision processes in continuous time: how one is written down, and the checks of it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.processes.checks import as_real, concrete, require

Array = jax.Array
State = tuple[Array, ...]
Event = Callable[[State, Array], tuple[State, Array]]


class MDP(NamedTuple):
    """A Markov decision process of n states, at most m actions and k transitions for each pair.

    Attributes:
      targets: (n, m, k) int32, states moved to.
      rates: (n, m, k), per unit time; transitions from a state to itself have no effect.
      costs: (n, m), per unit time.
      feasible: (n, m) bool.

    Built by :func:`from_events` or :func:`from_rates`. All leaves are arrays: batches of problems by ``vmap``.
    """

    targets: Array
    rates: Array
    costs: Array
    feasible: Array


def from_events(events: Sequence[Event], shape: Sequence[int], actions: int,
                cost: Callable[[State, Array], Array],
                feasible: Callable[[State, Array], Array] | None = None) -> MDP:
    """A process on a grid of states from what can happen in them.

    Args:
      events: functions ``event(state, action) -> (next_state, rate)``. ``state`` is a tuple of int32 arrays, one for
        each coordinate, ``action`` an int32 array (0 .. ``actions`` - 1), which broadcast against each other to (n, m);
        ``next_state`` and ``rate`` likewise. Where an event cannot happen its rate is 0.
      shape: the number of values of each coordinate; state (i, j, ..) has its row-major number, so that results (n,)
        may be reshaped to ``shape``.
      actions: the number m of actions.
      cost: ``cost(state, action)`` per unit time.
      feasible: ``feasible(state, action)`` bool; None: every action everywhere.

    Rates and costs may be traced: build inside ``jit``, ``vmap`` or ``grad``. ValueError for a transition of positive
    rate that leaves the grid, illegal rates or costs, or a state without action; traced: status out_of_domain.

    >>> import jax, jax.numpy as jnp
    >>> from hetjax import control
    >>> def arrival(state, action):  # action 1: accept
    ...     return (state[0] + action,), 0.8
    >>> def service(state, action):
    ...     return (state[0] - 1,), jnp.where(state[0] > 0, 1.0, 0.0)
    >>> def cost(state, action):  # one per customer, five per customer refused at 0.8
    ...     return state[0].astype(float) + jnp.where(action == 0, 4.0, 0.0)
    >>> queue = control.from_events([arrival, service], (6,), 2, cost, lambda s, a: (a == 0) | (s[0] < 5))
    >>> best = jax.jit(control.policy_iteration)(queue).value  # the compiled whole starts sooner than its parts
    >>> best.policy.tolist(), round(float(best.gain), 6)
    ([1, 1, 0, 0, 0, 0], 1.901639)
    """
    shape = tuple(int(size) for size in shape)
    require(len(shape) > 0 and min(shape) >= 1, "shape", shape, "one whole number >= 1 for each coordinate of a state")
    require(actions >= 1 and len(events) >= 1, "actions, events", (actions, len(events)), "at least one of each")
    n = int(np.prod(shape))
    numbers = np.unravel_index(np.arange(n), shape)
    state = tuple(jnp.asarray(x[:, None], jnp.int32) for x in numbers)
    action = jnp.arange(actions, dtype=jnp.int32)[None]

    def spread(x: Any) -> Array:
        return jnp.broadcast_to(x, (n, actions))

    targets, rates = [], []
    for event in events:
        after, rate = event(state, action)
        require(len(after) == len(shape), "next_state", f"{len(after)} coordinates", f"{len(shape)}, as in shape")
        coordinates = [spread(x) for x in after]
        inside = jnp.ones((n, actions), bool)
        number = jnp.zeros((n, actions), jnp.int32)
        for x, size in zip(coordinates, shape, strict=True):
            inside = inside & (x >= 0) & (x < size)
            number = number * size + x.astype(jnp.int32)
        targets.append(jnp.where(inside, number, -1))
        rates.append(spread(as_real(rate)))
    costs = spread(as_real(cost(state, action)))
    dtype = jnp.result_type(costs, *rates)
    may = jnp.ones((n, actions), bool) if feasible is None else spread(feasible(state, action))
    mdp = MDP(jnp.stack(targets, axis=2), jnp.stack([r.astype(dtype) for r in rates], axis=2), costs.astype(dtype), may)
    _check(mdp, lambda s: str(tuple(int(x[s]) for x in numbers)))
    return mdp


def from_rates(rates: Any, costs: Any, feasible: Any = None) -> MDP:
    """A process of n states from dense rates: (m, n, n), ``rates[a, s, t]`` from s to t under a, and costs (n, m).

    ``feasible``: (n, m) bool, None for all. Diagonals are never read. Errors as :func:`from_events`.

    >>> from hetjax import control
    >>> repair = control.from_rates([[[0, 1.0], [0.5, 0]], [[0, 1.0], [2.0, 0]]], [[0.0, 0.0], [5.0, 6.0]])
    >>> repair.costs.shape, repair.rates[0, 1].tolist()  # (states, actions); rates from state 0 under action 1
    ((2, 2), [0.0, 1.0])
    """
    values, charge = as_real(rates), as_real(costs)
    require(values.ndim == 3 and values.shape[1] == values.shape[2], "rates", f"array of shape {values.shape}",
            "(actions, states, states)")
    actions, n = values.shape[:2]
    require(charge.shape == (n, actions), "costs", f"array of shape {charge.shape}", f"(states, actions) {n, actions}")
    dtype = jnp.result_type(values, charge)
    may = jnp.ones((n, actions), bool) if feasible is None else jnp.asarray(feasible, bool)
    require(may.shape == (n, actions), "feasible", f"array of shape {may.shape}", f"(states, actions) {n, actions}")
    off = jnp.where(jnp.eye(n, dtype=bool)[None], jnp.zeros_like(values), values)
    targets = jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32)[None, None], (n, actions, n))
    mdp = MDP(targets, jnp.moveaxis(off, 0, 1).astype(dtype), charge.astype(dtype), may)
    _check(mdp, str)
    return mdp


def _check(mdp: MDP, name: Callable[[int], str]) -> None:
    if not concrete(*mdp):
        return
    targets, rates, costs, feasible = (np.asarray(x) for x in mdp)
    n = costs.shape[0]
    for s in np.flatnonzero(~feasible.any(axis=1))[:1].tolist():
        raise ValueError(f"feasible: state {name(s)} has no action; allow at least one")
    for s, a, k in np.argwhere(~((rates >= 0) & (rates < np.inf)) & feasible[:, :, None])[:1].tolist():
        raise ValueError(f"rate = {rates[s, a, k]:g} of state {name(s)}, action {a}, event {k}: must be finite, >= 0")
    for s, a, k in np.argwhere((rates > 0) & ((targets < 0) | (targets >= n)) & feasible[:, :, None])[:1].tolist():
        raise ValueError(f"next_state of state {name(s)}, action {a}, event {k} leaves the grid; give it rate 0 there"
                         " or forbid the action")
    for s, a in np.argwhere(~np.isfinite(costs) & feasible)[:1].tolist():
        raise ValueError(f"cost = {costs[s, a]:g} in state {name(s)}, action {a}: must be finite; forbid an action by"
                         " feasible")


def tidy(mdp: MDP) -> tuple[MDP, Array]:
    """Nothing of actions that are not feasible; and whether the rest is legal."""
    may = mdp.feasible[:, :, None]
    n = mdp.costs.shape[0]
    rates = jnp.where(may, mdp.rates, jnp.zeros_like(mdp.rates))
    costs = jnp.where(mdp.feasible, mdp.costs, jnp.zeros_like(mdp.costs))
    inside = (mdp.targets >= 0) & (mdp.targets < n)
    legal = jnp.all((rates >= 0) & jnp.isfinite(rates)) & jnp.all(jnp.isfinite(costs))
    legal = legal & jnp.all(inside | (rates == 0)) & jnp.all(jnp.any(mdp.feasible, axis=1))
    keep = legal & inside
    rates = jnp.where(keep, rates, jnp.zeros_like(rates))
    costs = jnp.where(legal, costs, jnp.zeros_like(costs))
    return MDP(jnp.clip(mdp.targets, 0, n - 1), rates, costs, mdp.feasible), legal
