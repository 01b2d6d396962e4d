"""How many queues should an arrival look at, if each look costs something?

Looking at d queues costs ``price`` d per customer, waiting costs 1 per customer and unit time, so that the best d
minimises

    C(d) = T(d) + price d,        T(d) the mean response time in the large system.

T is not always convex (with SCV 10 at load .95 it bends upwards at d = 9), so C can have several minima and no local
search finds the best: d = 1..64 are compared one by one. As T(d) is at least the mean service time S, no d above
(C(b) - S) / price is better than b: where that is at most 64 the best is proved. Gradients of the least cost are those
at the best whole d.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.models.registry import Axis, Metric, Model
from hetjax.models.supermarket.metrics import point_metrics
from hetjax.models.supermarket.model import AXES as SUPERMARKET_AXES
from hetjax.models.supermarket.model import service_params
from hetjax.models.supermarket.params import SMALLEST_D, Params, legal_or_harmless
from hetjax.numerics import close_in
from hetjax.result import OptimumStatus, Status

Array = jax.Array
LARGEST = 64  # whole numbers compared one by one
_STEPS = 9
_REAL = ("arrival_rate", "scv", "service_rate", "price")

AXES = (
    *(axis for axis in SUPERMARKET_AXES if axis.name != "d"),
    Axis("price", 1e-9, 1e9, "time", "cost of looking at one queue, in the cost of a customer's unit of time"),
)
METRICS = (
    Metric("best_d", "queues", "number of queues from 1 to 64 that minimises response time + price * number",
           differentiable=False),
    Metric("best_d_real", "queues", "real number beside it that minimises it, from 1.01 on", "the best number is 64",
           differentiable=False),
    Metric("best_cost", "time", "mean response time + price * number at the best whole number"),
    Metric("mean_response_time", "time", "mean response time there"),
    Metric("saving", "1", "share saved over looking at one queue only"),
    Metric("saving_over_two", "1", "share saved over looking at two queues"),
    Metric("proved", "1", "1 if no number above 64 can be better", differentiable=False),
    Metric("optimum_status", "code", "OptimumStatus of the real optimum: 1 interior, 2 edge (1.01 or 64)",
           differentiable=False),
)


def _mean(given: Array, d: Array, phases: int) -> Array:
    """T(d); ``given`` = (arrival_rate, scv, service_rate, price). Forward mode only."""
    values = dict(zip(_REAL, given, strict=True))
    params, _ = legal_or_harmless(service_params({**values, "d": d, "phases": phases}, {})[0])
    return point_metrics(params).mean_queue_length / given[0]


def _mean_in_both_modes(phases: int) -> Any:
    """:func:`_mean`, d held fixed, whose forward derivatives serve reverse mode too."""
    mean = jax.custom_jvp(lambda given, d: _mean(given, d, phases))

    @mean.defjvp
    def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
        def twice(given: Array) -> tuple[Array, Array]:
            value = _mean(given, primals[1], phases)
            return value, value

        slope, value = jax.jacfwd(twice, has_aux=True)(primals[0])
        return value, slope @ tangents[0]

    return mean


def cost_slope(given: Array, x: Array, phases: int) -> Array:
    """dC/dd at d = e^x; ``given`` = (arrival_rate, scv, service_rate, price)."""
    d = jnp.exp(x)
    _, slope = jax.jvp(lambda d: _mean(given, d, phases), (d,), (jnp.ones_like(d),))
    return slope + given[3]


def _real_optimum(given: Array, best: Array, phases: int) -> tuple[Array, Array]:
    """The real d between the neighbours of the best whole one at which C is least, and whether it is 1.01."""
    low = jnp.log(jnp.maximum(best - 1, SMALLEST_D * (1 + 4 * float(jnp.finfo(given.dtype).eps))))
    high = jnp.log(best + 1)

    def slope(x: Array) -> Array:
        return cost_slope(given, x, phases)

    f = lax.map(slope, jnp.stack([low, high]))
    *_, root = close_in(slope, low, high, f[0], f[1], _STEPS)
    end = f[0] >= 0
    return jnp.where(end, jnp.exp(low), jnp.where(f[1] >= 0, jnp.exp(root), jnp.nan)), end


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """The asked metrics at one point, for the sweep engine."""
    params, fits = service_params({**values, "d": jnp.full_like(values["price"], 2)}, bounds)
    phases = params.phases
    _, code = legal_or_harmless(params)
    code = jnp.where(fits, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)
    legal = code == int(Status.OK)
    harmless = jnp.asarray([0.5, 1, 1, 1], params.T.dtype)
    given = jnp.where(legal, jnp.stack([values[name] for name in _REAL]), harmless)
    whole = jnp.arange(1, LARGEST + 1, dtype=given.dtype)
    mean = _mean_in_both_modes(phases)
    means = lax.map(lambda d: mean(given, d), whole)
    costs = means + given[3] * whole
    at = jnp.argmin(costs)
    least = costs[at]
    results = {
        "best_d": whole[at], "best_cost": least, "mean_response_time": means[at],
        "saving": 1 - least / costs[0], "saving_over_two": 1 - least / costs[1],
        "proved": (1 / given[2] + given[3] * (LARGEST + 1) >= least).astype(given.dtype),
    }
    if {"best_d_real", "optimum_status"} & set(metrics):
        real, end = _real_optimum(lax.stop_gradient(given), lax.stop_gradient(whole[at]), phases)
        last = at == LARGEST - 1
        results["best_d_real"] = jnp.where(last, jnp.nan, real)
        results["optimum_status"] = jnp.where(end | last, int(OptimumStatus.EDGE), int(OptimumStatus.INTERIOR)).astype(
            given.dtype)
    return {name: jnp.where(legal, results[name], jnp.nan) for name in metrics}, code


MODEL = Model(name="supermarket_probing", version=2, title="Supermarket model: how many queues to look at, at a price",
              axes=AXES, metrics=METRICS, point=point,
              golden=(({"arrival_rate": 0.9, "scv": 1.0, "service_rate": 1.0, "phases": 2, "price": 0.1},
                       {"best_d": 5.0}),))


def best_choices(params: Params, price: Any) -> int:
    """The whole d that minimises mean response time + ``price`` d for one system; ``d`` of ``params`` plays no part.

    Any phase-type service. d = 1, 2, .. are compared until S + price d, below which no cost with d choices lies, is
    above the least cost found: proved. ValueError where that takes more than 10,000 of them (price too small).

    >>> from hetjax.models.supermarket import Params
    >>> best_choices(Params(0.9, 2, [1.0], [[-1.0]]), 0.1)
    5
    """
    if not 0 < float(price) < float("inf"):
        raise ValueError(f"price = {price!r} is outside its domain (0, inf); give the cost of looking at one queue")
    service, rate = float(params.mean_service), float(params.arrival_rate)
    cost = jax.jit(lambda d: point_metrics(Params(params.arrival_rate, d, params.alpha, params.T)).mean_queue_length)
    best, least, d = 1, np.inf, 1
    while service + float(price) * d < least:
        if d > 10_000:
            raise ValueError(f"price = {price!r} is so small that more than 10000 choices may be best; give a larger"
                             " one, or use the model supermarket_probing")
        here = float(cost(jnp.asarray(d, params.T.dtype))) / rate + float(price) * d
        best, least, d = (d, here, d + 1) if here < least else (best, least, d + 1)
    return best


