"""Beyond the paper: several dedicated servers a side, and service rates that depend on the server as well.

Side t has ``servers[t-1]`` servers dedicated to type t. A type-t arrival takes a free server of its own side, else of
the other side, else it is lost; a type-t customer at side s is served at rate mu_{t,s}. No closed form is known; the
chain counts how many customers of each type each side serves, and is solved by :func:`hetjax.ctmc.stationary`. With one
server a side and mu_{t,1} = mu_{t,2} it is the paper's system. If the rate does not depend on the side, the system
loses like Erlang's with c1 + c2 servers and load lambda1/mu1 + lambda2/mu2 (insensitivity to the service law).
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import generator, stationary
from hetjax.models.overflow.golden import GENERAL_GOLDEN
from hetjax.models.overflow.params import RATE_AXES, domain_status
from hetjax.models.registry import Axis, Metric, Model
from hetjax.result import Status

LARGEST = 4  # servers a side: 225 states
Servers = tuple[Any, Any]


class GeneralParams(NamedTuple):
    """Rates per unit time: ``lambda1, lambda2`` of arrival, ``mu_ts`` of service of type t at side s.

    >>> from hetjax.models.overflow.general import GeneralParams
    >>> GeneralParams(1.0, 2.0, 1.0, 0.8, 1.0, 1.2).mu12
    0.8
    """

    lambda1: Any
    lambda2: Any
    mu11: Any
    mu12: Any
    mu21: Any
    mu22: Any


class GeneralMetrics(NamedTuple):
    """Scalars; units and meanings in :data:`GENERAL_MODEL`."""

    p_loss: jax.Array
    overflow_rate_1: jax.Array
    overflow_rate_2: jax.Array
    wrong_assignment_ratio_1: jax.Array
    wrong_assignment_ratio_2: jax.Array
    throughput_1: jax.Array
    throughput_2: jax.Array
    mean_number_11: jax.Array
    mean_number_12: jax.Array
    mean_number_21: jax.Array
    mean_number_22: jax.Array
    utilization_side_1: jax.Array
    utilization_side_2: jax.Array
    loss_reduction_1: jax.Array
    loss_reduction_2: jax.Array


class _Space(NamedTuple):
    states: np.ndarray  # (n, 4): type 1 and 2 at side 1, type 1 and 2 at side 2; the empty state first
    busy: np.ndarray  # (n, 2)
    ups: tuple[tuple[np.ndarray, np.ndarray], ...]  # for each of the four counts: state numbers before and after + 1


@functools.lru_cache(maxsize=64)
def _space(bounds: tuple[int, int]) -> _Space:
    """(c1+1)(c1+2)/2 times (c2+1)(c2+2)/2 states."""
    for name, count in zip(("servers1", "servers2"), bounds, strict=True):
        if not 1 <= count <= LARGEST:
            raise ValueError(f"{name} = {count!r} is outside its domain whole numbers in [1, {LARGEST}];"
                             " simulate larger systems with hetjax.ctmc.simulate")
    sides = [[(a, b) for a in range(c + 1) for b in range(c + 1 - a)] for c in bounds]
    states = np.array([first + second for first in sides[0] for second in sides[1]])
    number = {tuple(state): k for k, state in enumerate(states.tolist())}
    ups = []
    for place in range(4):
        after = states + (np.arange(4) == place)
        pairs = [(k, number[tuple(state)]) for k, state in enumerate(after.tolist()) if tuple(state) in number]
        ups.append((np.array([k for k, _ in pairs]), np.array([k for _, k in pairs])))
    return _Space(states, np.stack([states[:, :2].sum(1), states[:, 2:].sum(1)], 1), tuple(ups))


def general_generator(params: GeneralParams, servers: Servers, bounds: tuple[int, int] | None = None) -> jax.Array:
    """The dense generator. ``servers``: whole numbers, or traced integers up to the static ``bounds``.

    With bounds there are states that more servers would allow; they are left and never entered.

    >>> from hetjax.models.overflow.general import GeneralParams, general_generator
    >>> general_generator(GeneralParams(1.0, 2.0, 1.0, 1.0, 1.0, 1.0), (1, 1)).shape
    (9, 9)
    """
    space = _space(bounds or (int(servers[0]), int(servers[1])))
    free = [jnp.asarray(count, jnp.int32) - jnp.asarray(space.busy[:, side], jnp.int32)
            for side, count in enumerate(servers)]
    real = jnp.result_type(*(jnp.asarray(x) for x in params), 0.0)
    arrivals = [jnp.asarray(x).astype(real) for x in params[:2]]
    services = [jnp.asarray(x).astype(real) for x in params[2:]]
    transitions: list[tuple[Any, Any, Any]] = []
    for place, (before, after) in enumerate(space.ups):
        side, t = divmod(place, 2)
        taken = free[t] > 0 if side == t else (free[t] <= 0) & (free[side] > 0)
        transitions.append((before, after, jnp.where(taken[before], arrivals[t], 0)))
        transitions.append((after, before, services[2 * t + side] * space.states[after, place].astype(real)))
    return generator(transitions, len(space.states))


def general_metrics(params: GeneralParams, servers: Servers = (1, 1),
                    bounds: tuple[int, int] | None = None) -> tuple[GeneralMetrics, jax.Array]:
    """All characteristics of one system (scalars; :func:`jax.vmap` for many) and the status of its stationary solve.

    ``servers`` a side: whole numbers, or traced integers up to the static ``bounds``. Cost n^3/3 for n states (9 with
    one server a side, 36 with two, 100, 225). Differentiable. Losses without overflow are Erlang's,
    B(c_t, lambda_t/mu_tt); the loss reductions are plain differences, with an error of about 1e-14 of the larger
    probability.

    >>> from hetjax.models.overflow.general import GeneralParams, general_metrics
    >>> found, status = general_metrics(GeneralParams(1.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    >>> round(float(found.p_loss), 6), int(status)
    (0.4, 1)
    """
    limit = bounds or (int(servers[0]), int(servers[1]))
    states, busy, _ = _space(limit)
    solution = stationary(general_generator(params, servers, limit))
    law = solution.value
    full = [jnp.asarray(busy[:, side], jnp.int32) >= jnp.asarray(c, jnp.int32) for side, c in enumerate(servers)]

    def expect(values: Any) -> jax.Array:
        return law @ jnp.asarray(values).astype(law.dtype)

    lambda1, lambda2 = (jnp.asarray(x).astype(law.dtype) for x in params[:2])
    sizes = [jnp.asarray(count).astype(law.dtype) for count in servers]
    p_loss, served = expect(full[0] & full[1]), expect(~(full[0] & full[1]))
    o1, o2 = lambda1 * expect(full[0] & ~full[1]), lambda2 * expect(full[1] & ~full[0])
    alone = [_erlang_loss(count, bound, (arrival / jnp.asarray(rate)).astype(law.dtype)) for count, bound, arrival, rate
             in zip(servers, limit, (lambda1, lambda2), (params.mu11, params.mu22), strict=True)]
    return GeneralMetrics(
        p_loss, o1, o2, o1 / (lambda1 * served), o2 / (lambda2 * served), lambda1 * served, lambda2 * served,
        expect(states[:, 0]), expect(states[:, 2]), expect(states[:, 1]), expect(states[:, 3]),
        expect(busy[:, 0]) / sizes[0], expect(busy[:, 1]) / sizes[1], alone[0] - p_loss, alone[1] - p_loss,
    ), solution.status


def _erlang_loss(servers: Any, bound: int, load: jax.Array) -> jax.Array:
    """B(c, a) by B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1))."""
    blocked = jnp.ones_like(load)
    for k in range(1, bound + 1):
        blocked = jnp.where(k <= jnp.asarray(servers), load * blocked / (k + load * blocked), blocked)
    return blocked


_SIDES = (
    Axis("servers1", 1, LARGEST, "servers", "servers dedicated to type 1", integer=True, shape=True, default=1),
    Axis("servers2", 1, LARGEST, "servers", "servers dedicated to type 2", integer=True, shape=True, default=1),
)
_RATES = (*RATE_AXES[:2], *(Axis(f"mu{t}{s}", 1e-6, 1e6, "1/time", f"service rate of a type-{t} customer at side {s}")
                            for t in (1, 2) for s in (1, 2)))


def _point(values: Mapping[str, Any], metrics: tuple[str, ...],
           bounds: Mapping[str, int]) -> tuple[dict[str, jax.Array], jax.Array]:
    params = GeneralParams(*(values[axis.name] for axis in _RATES))
    servers = (values["servers1"], values["servers2"])
    limit = tuple(bounds.get(axis.name, LARGEST) if isinstance(count, jax.Array) else int(count)
                  for axis, count in zip(_SIDES, servers, strict=True))
    found, solved = general_metrics(params, servers, (limit[0], limit[1]))
    inside = domain_status(_RATES, tuple(params))
    status = jnp.where(inside == int(Status.OK), solved, inside)
    return {name: found._asdict()[name] for name in metrics}, status


GENERAL_MODEL = Model(
    name="overflow_general", version=2, title="Overflow between two groups of servers", axes=(*_RATES, *_SIDES),
    metrics=(
        Metric("p_loss", "1", "probability that an arrival is lost, the same for both types"),
        *(Metric(f"overflow_rate_{t}", "customers/time", f"rate of type-{t} customers served by the other side")
          for t in (1, 2)),
        *(Metric(f"wrong_assignment_ratio_{t}", "1", f"share of served type-{t} customers that the other side serves")
          for t in (1, 2)),
        *(Metric(f"throughput_{t}", "customers/time", f"rate of type-{t} customers served") for t in (1, 2)),
        *(Metric(f"mean_number_{t}{s}", "customers", f"mean number of type-{t} customers in service at side {s}")
          for t in (1, 2) for s in (1, 2)),
        *(Metric(f"utilization_side_{s}", "1", f"share of busy servers at side {s}") for s in (1, 2)),
        *(Metric(f"loss_reduction_{t}", "1", f"loss probability of type {t} without overflow minus with it")
          for t in (1, 2)),
    ), point=_point, golden=GENERAL_GOLDEN)
