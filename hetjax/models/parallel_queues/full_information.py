"""The bound below every router: both nodes seen, each customer sent and each slow server started as is best.

State (x1, s1, x2, s2): x_i customers in the fast server and the queue of node i, s_i = 1 where its slow server is busy;
cost x1 + s1 + x2 + s2. After any event slow servers may be started, T V(.., x_i, 0, ..) = min{V, V(.., x_i - 1, 1, ..)}
for x_i >= 2, at both nodes; and with L the sum of all rates

    L V = x1 + s1 + x2 + s2 - g + lambda min_i TV(x_i + 1) + sum_i { mu1_i TV((x_i - 1)+) + mu2_i [s_i TV(s_i = 0)
          + (1 - s_i) V] }.

Relative value iteration with the bounds of Odoni (1969) on min and max of the difference, as
:func:`hetjax.control.relative_value_iteration` does for any process; here on arrays of shifted values, one sweep of
10^4 states in .05 ms, which :func:`joint_process` states as a general process for the second route.

**Truncation** at ``size`` values of each x_i: a full node gets nobody; with both full the customer is turned away at a
cost per customer turned away. At no cost the optimum can only be lower than that of the unbounded system (a customer
less never hurts: whoever is turned away is served by nobody, the others as before), hence a lower bound. With the cost
of 4 ``size`` / (spare service rate), twice the time in which the full nodes drain, being turned away is dearer than
staying: the upper end. The two differ by about P(full) times that cost.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.control import MDP, from_events
from hetjax.control.process import Event, State
from hetjax.models.parallel_queues.params import Params, harmless, status
from hetjax.processes.checks import require
from hetjax.result import Status, has_value

Array = jax.Array


class FullInformation(NamedTuple):
    """``mean_number`` (the middle of ``lower`` and ``upper``); ``route`` (X, 2, X, 2) bool: the customer who finds
    (x1, s1, x2, s2) goes to node 1; ``sweeps``; ``status``: not_converged where the bounds are further apart
    than asked."""

    mean_number: Array
    lower: Array
    upper: Array
    route: Array
    sweeps: Array
    status: Array


def full_information(params: Params, size: int = 50, tolerance: float | None = None,
                     max_sweeps: int = 100_000) -> FullInformation:
    """The least mean number of two nodes if the router and the servers know the state, on a truncated grid.

    ``size``: values 0..size-1 of x_i. Stops where the bounds of the iteration are closer than ``tolerance`` (default
    1e-8; float32 1e-3) relative to the mean; ``lower`` and ``upper`` take in the truncation as well, see the module.
    O(size^2) a sweep, some hundred sweeps at low load and 10^5 near saturation. One point (vmap for many); not
    differentiable.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.full_information(pq.Params(1.2, [1.0, 1.0], [0.5, 0.1]), size=30)
    >>> round(float(found.mean_number), 5)
    1.62707
    """
    require(params.nodes == 2, "params", f"{params.nodes} nodes", "two nodes")
    require(size >= 3, "size", size, "a whole number >= 3")
    return _full_information(params, size, tolerance, max_sweeps)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _full_information(params: Params, size: int, tolerance: float | None, max_sweeps: int) -> FullInformation:
    params = jax.tree.map(lax.stop_gradient, params)
    code = status(params)
    params = harmless(params, code)
    rate, mu1, mu2 = params.arrival_rate, params.mu1, params.mu2
    dtype = mu1.dtype
    asked = tolerance if tolerance is not None else 1e-8 if jnp.finfo(dtype).bits == 64 else 1e-3
    total = 1.01 * (rate + jnp.sum(mu1) + jnp.sum(mu2))
    x, s = jnp.arange(size).astype(dtype), jnp.arange(2).astype(dtype)
    cost = x[:, None, None, None] + s[None, :, None, None] + x[None, None, :, None] + s[None, None, None, :]
    spare = jnp.sum(params.capacities) - rate

    def started(V: Array) -> Array:
        for axis in (0, 2):
            V = jnp.moveaxis(V, (axis, axis + 1), (0, 1))
            better = jnp.where(mu2[axis // 2] > 0, jnp.minimum(V[2:, 0], V[1:-1, 1]), V[2:, 0])
            V = jnp.moveaxis(jnp.stack([jnp.concatenate([V[:2, 0], better]), V[:, 1]], axis=1), (0, 1),
                             (axis, axis + 1))
        return V

    def joined(TV: Array) -> tuple[Array, Array]:
        """The values after a customer more at node 1, and at node 2; infinite where it is full."""
        full1, full2 = jnp.full_like(TV[:1], jnp.inf), jnp.full_like(TV[:, :, :1], jnp.inf)
        return jnp.concatenate([TV[1:], full1]), jnp.concatenate([TV[:, :, 1:], full2], axis=2)

    def sweep(V: Array, price: Array) -> Array:
        TV = started(V)
        first, second = joined(TV)
        arrival = jnp.minimum(first, second)
        arrival = jnp.where(jnp.isinf(arrival), TV + price, arrival)
        new = cost + rate * arrival
        for axis, fast, slow in ((0, mu1[0], mu2[0]), (2, mu1[1], mu2[1])):
            A, B = (jnp.moveaxis(Y, (axis, axis + 1), (0, 1)) for Y in (TV, V))
            left = jnp.concatenate([A[:1], A[:-1]])
            freed = jnp.stack([B[:, 0], A[:, 0]], axis=1)
            new = new + jnp.moveaxis(fast * left + slow * freed, (0, 1), (axis, axis + 1))
        return (new + (total - rate - jnp.sum(mu1) - jnp.sum(mu2)) * V) / total

    def least(V: Array, price: Array) -> tuple[Array, Array, Array, Array]:
        def going(state: tuple[Array, Array, Array, Array]) -> Array:
            _, low, high, count = state
            return (count < max_sweeps) & ((count == 0) | ~(high - low <= asked * high))

        def once(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            V, _, _, count = state
            new = sweep(V, price)
            gain = new - V
            return new - new[0, 0, 0, 0], jnp.min(gain) * total, jnp.max(gain) * total, count + 1

        zero = jnp.zeros((), dtype)
        return lax.while_loop(going, once, (V, zero, zero, jnp.zeros((), jnp.int32)))

    start = cost * cost / (2 * spare)
    V, lower, free, count = least(start, jnp.zeros((), dtype))
    V, low, upper, sweeps = least(V, 4 * size / spare)
    wide = ~((free - lower <= asked * free) & (upper - low <= asked * upper) & (upper - lower <= 8 * asked * upper))
    first, second = joined(started(V))
    code = jnp.where((code == int(Status.OK)) & wide, int(Status.NOT_CONVERGED), code).astype(jnp.uint8)
    known = has_value(code)
    lower, upper = (jnp.where(known, y, jnp.nan) for y in (lower, upper))
    return FullInformation((lower + upper) / 2, lower, upper, first <= second, count + sweeps, code)


def joint_process(params: Params, size: int) -> MDP:
    """The same as a general process for :mod:`hetjax.control`: 8 actions (start at node 1, at node 2, route) taken just
    after each event; customers who find both nodes full are turned away at no cost. The slow second route.

    State (x1, s1, x2, s2) on the grid (size, 2, size, 2), in row-major order.

    >>> from hetjax import control, parallel_queues as pq
    >>> process = pq.joint_process(pq.Params(0.3, [1.0, 1.0], [0.5, 0.1]), 4)
    >>> process.costs.shape
    (64, 8)
    """
    rate, mu1, mu2 = params.arrival_rate, params.mu1, params.mu2

    def after(state: State, action: Array) -> State:
        x1, s1, x2, s2 = state
        begin1, begin2 = action % 2, action // 2 % 2
        return x1 - begin1, s1 + begin1, x2 - begin2, s2 + begin2

    def arrival(state: State, action: Array) -> tuple[State, Array]:
        x1, s1, x2, s2 = after(state, action)
        first = (action >= 4) & (x1 < size - 1) | (x2 >= size - 1)
        full = (x1 >= size - 1) & (x2 >= size - 1)
        up1, up2 = (jnp.where(~full & chosen, 1, 0).astype(x1.dtype) for chosen in (first, ~first))
        return (x1 + up1, s1, x2 + up2, s2), jnp.where(full, 0, rate)

    def departure(i: int, slow: bool) -> Event:
        def event(state: State, action: Array) -> tuple[State, Array]:
            now = list(after(state, action))
            place = 2 * i + int(slow)
            busy = now[place] > 0
            now[place] = now[place] - busy.astype(now[place].dtype)
            return tuple(now), jnp.where(busy, (mu2 if slow else mu1)[i], 0)

        return event

    def feasible(state: State, action: Array) -> Array:
        x1, s1, x2, s2 = state
        may1 = (action % 2 == 0) | ((x1 >= 2) & (s1 == 0) & (mu2[0] > 0))
        return may1 & ((action // 2 % 2 == 0) | ((x2 >= 2) & (s2 == 0) & (mu2[1] > 0)))

    def cost(state: State, action: Array) -> Array:
        return sum(state[1:], state[0]).astype(mu1.dtype)

    events = [arrival] + [departure(i, slow) for i in (0, 1) for slow in (False, True)]
    return from_events(events, (size, 2, size, 2), 8, cost, feasible)
