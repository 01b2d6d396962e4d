"""The stalling queue as the registry knows it: axes, metrics and the evaluation of one point."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.models.registry import Evaluation, Metric, Model
from hetjax.models.registry import evaluate as evaluate_model
from hetjax.models.stalling.generator import generator, metrics_of_law
from hetjax.models.stalling.golden import GOLDEN
from hetjax.models.stalling.host_law import host_law
from hetjax.models.stalling.metrics import Metrics, point_metrics
from hetjax.models.stalling.params import AXES, Params, point_status
from hetjax.models.stalling.response_time import RESPONSE_METRICS, response_metric_values
from hetjax.numerics.counting import Count
from hetjax.result import Status, has_value

_WHOLE = "K not a whole number"

METRICS = (
    Metric("mean_number", "customers", "mean number in system"),
    Metric("mean_fast", "customers", "mean number of busy fast servers"),
    Metric("mean_slow", "customers", "mean number of busy slow servers"),
    Metric("mean_stalled", "customers", "mean number in the stalling buffer"),
    Metric("mean_waiting", "customers", "mean number in the waiting line"),
    Metric("mean_stuck", "customers", "mean number of busy slow servers, counted while no fast server is busy"),
    Metric("p_full", "1", "all servers busy, the stalling buffer full, the waiting line empty"),
    Metric("p_empty", "1", "nobody in the system", _WHOLE, expensive=True, differentiable=False),
    Metric("p_slow_only", "1", "all slow servers busy and no fast one"),
    Metric("p_stuck", "1", "some slow server busy and no fast one", _WHOLE, expensive=True, differentiable=False),
    Metric("p_slow", "1", "at least one slow server busy", _WHOLE, expensive=True, differentiable=False),
    Metric("p_fast", "1", "at least one fast server busy"),
    Metric("p_stalling", "1", "someone stalled or waiting"),
    Metric("p_wait", "1", "someone in the waiting line"),
    Metric("p_loss", "1", "an arrival is lost"),
    Metric("throughput", "1/time", "customers served per unit time"),
    Metric("utilization_fast", "1", "busy fraction of a fast server"),
    Metric("utilization_slow", "1", "busy fraction of a slow server (0 without any)"),
    Metric("mean_response_time", "time", "mean time in system of an accepted customer"),
    Metric("mean_response_time_fast", "time", "the same of a customer served by a fast server"),
    Metric("mean_response_time_slow", "time", "the same of a customer served by a slow server", "n = 0"),
    *RESPONSE_METRICS,
)
_RESPONSE = frozenset(metric.name for metric in RESPONSE_METRICS)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, jax.Array], jax.Array]:
    """One point for the sweep engine: ``metrics`` by name, NaN where the status is not OK, and the status."""
    q, r, K, M, mu1 = (values[name] for name in ("q", "r", "K", "M", "mu1"))
    code = point_status(q, r, K, M, values["m"], values["n"], mu1)
    counts = []
    for name in ("m", "n"):
        count = values[name]
        if isinstance(count, int):
            if not next(axis for axis in AXES if axis.name == name).contains(count):
                return dict.fromkeys(metrics, jnp.full_like(q, jnp.nan)), code
            counts.append(Count(count))
        else:
            code = jnp.where(count > bounds[name], int(Status.OUT_OF_DOMAIN), code).astype(jnp.uint8)
            counts.append(Count(count, bounds[name]))
    m, n = counts
    found = point_metrics(q, r, K, M, mu1, m, n, (name for name in metrics if name not in _RESPONSE))
    percentiles = tuple(name for name in metrics if name in _RESPONSE)
    if percentiles:
        times, solved = response_metric_values(values, percentiles, m, n)
        found |= times
        code = jnp.where(code == int(Status.OK), solved, code)
    kept = has_value(code)
    return {name: jnp.where(kept, found[name], jnp.nan) for name in metrics}, code


SECOND_ROUTE_LARGEST = 2**15  # states: half a second
SECOND_ROUTE_TAIL = 1e-21  # an endless waiting line is cut where its places are that much less likely than the first


def second_route(values: Mapping[str, float], metrics: tuple[str, ...]) -> dict[str, float]:
    """``metrics`` at one point from the stationary law of all states (:func:`generator`), on the host.

    It has no response time percentiles and leaves them out. An infinite M is replaced by one so long that its end, of
    weight rho^M, does not matter (then p_loss is left out). The result is empty where K is not a whole number or
    infinite, or M no whole number, where the chain has more than 2^15 states, and where its law leaves the range of
    floating point numbers. ValueError for values outside the domain.

    >>> from hetjax.models import stalling
    >>> found = stalling.MODEL.second_route({"q": 1.5, "r": 2.0, "K": 0, "M": 25, "m": 1, "n": 1}, ("mean_number",))
    >>> round(found["mean_number"], 4)
    13.7455
    """
    q, r, K, M = (values[name] for name in ("q", "r", "K", "M"))
    params = Params(q, r, K, M, int(values["m"]), int(values["n"]), values.get("mu1", 1.0))
    chosen = [name for name in metrics if name in Metrics._fields and not (M == math.inf and name == "p_loss")]
    if M == math.inf and K <= SECOND_ROUTE_LARGEST and 0 < params.rho < 1:
        above = params.m + K + 1
        M = 2.0 ** math.ceil(math.log2(above + math.log(SECOND_ROUTE_TAIL) / math.log(params.rho))) - above
    whole = float(K).is_integer() and float(M).is_integer()
    if not chosen or not whole or (params.m + K + M + 1) * (params.n + 1) > SECOND_ROUTE_LARGEST:
        return {}
    params = replace(params, M=jnp.asarray(M, params.q.dtype))
    law = host_law(generator(params))
    if law is None:
        return {}
    found = metrics_of_law(params, jnp.asarray(law, params.q.dtype))
    return {name: float(found[name]) for name in chosen}


MODEL = Model(name="stalling", version=4, title="fast and slow servers, a stalling buffer and a waiting line",
              axes=AXES, metrics=METRICS, point=point, second_route=second_route, golden=GOLDEN)


def evaluate(**arrays: Any) -> Evaluation:
    """The stalling queue on numpy-like arrays that broadcast: ``hetjax.evaluate("stalling", **arrays)``, which see.

    Axes q, r, K, M, m, n and mu1 (default 1); ``metrics=[...]`` chooses, ``max_m``, ``max_n`` bound traced or varying
    counts.

    >>> from hetjax.models import stalling
    >>> out = stalling.evaluate(q=[0.5, 1.2], r=10.0, K=3, M=5, m=2, n=[[1], [2]], metrics=["mean_number", "p_loss"])
    >>> out.mean_number.shape, out.status.tolist()
    ((2, 2), [[1, 1], [1, 1]])
    """
    return evaluate_model(MODEL, **arrays)
