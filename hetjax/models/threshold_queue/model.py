"""The threshold queue as the registry knows it: Poisson arrivals in closed form, and bursty arrivals by two phases."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.models.registry import Axis, Evaluation, Metric, Model, inside
from hetjax.models.registry import evaluate as evaluate_model
from hetjax.models.threshold_queue.arrivals import bursty
from hetjax.models.threshold_queue.by_phase import best_thresholds
from hetjax.models.threshold_queue.constant import best_constant_threshold
from hetjax.models.threshold_queue.law import metrics_of_law, solve
from hetjax.models.threshold_queue.params import Params
from hetjax.models.threshold_queue.poisson import means
from hetjax.models.threshold_queue.response_time import response_time
from hetjax.models.threshold_queue.rule import (
    diffusion_threshold,
    explicit_threshold,
    optimal_threshold,
    simple_threshold,
)
from hetjax.result import Status, has_value

Array = jax.Array
LARGEST_RATIO = 1e6  # mu1/mu2
MAP_THRESHOLD = 16  # the largest threshold of the model with bursty arrivals: 18 levels

RATES = (
    Axis("arrival_rate", 1e-6, 1e9, "1/time", "mean number of arrivals per unit time"),
    Axis("mu2", 1e-9, 1e9, "1/time", "service rate of the slow server, at most mu1"),
    Axis("mu1", 1e-3, 1e9, "1/time", "service rate of the fast server; sets the time unit", default=1.0),
)
BURSTS = (
    Axis("burst_ratio", 1e-3, 1e6, "1", "arrival rate in bursts over that outside", default=1.0),
    Axis("burst_share", 1e-6, 1 - 1e-6, "1", "fraction of time in bursts", default=0.5),
    Axis("burst_length", 1e-6, 1e9, "time", "mean length of a burst", default=1.0),
)
_THRESHOLD = "customers waiting, the newcomer included, at which the slow server starts; randomised between whole ones"
AXES = (*RATES, Axis("threshold", 1.0, 1e6, "customers", _THRESHOLD))
MAP_AXES = (
    *RATES,
    Axis("threshold_quiet", 1.0, MAP_THRESHOLD, "customers", f"outside bursts: {_THRESHOLD}"),
    Axis("threshold_burst", 1.0, MAP_THRESHOLD, "customers", f"in bursts: {_THRESHOLD}"),
    *BURSTS,
)
_COMMON = (
    Metric("mean_number", "customers", "mean number in the node, in service included"),
    Metric("mean_waiting", "customers", "mean number waiting"),
    Metric("mean_response_time", "time", "mean time from arrival to departure"),
    Metric("mean_waiting_time", "time", "mean time from arrival to the start of service"),
    Metric("utilization_fast", "1", "busy fraction of the fast server"),
    Metric("utilization_slow", "1", "busy fraction of the slow server"),
    Metric("p_slow_used", "1", "share of the customers whom the slow server serves"),
    Metric("p_empty", "1", "nobody in the node"),
)
_RULES: dict[str, tuple[Callable[..., Array], str]] = {
    "optimal": (optimal_threshold, "the best threshold, exactly"),
    "explicit": (explicit_threshold, "the explicit formula's threshold, within .13 % of the best"),
    "simple": (simple_threshold, "the usual heuristic (mu1 - lambda)(1/mu2 - 1/mu1)"),
    "diffusion": (diffusion_threshold, "the diffusion limit's threshold sqrt(r) tau"),
}
METRICS = (
    *_COMMON,
    Metric("excess", "1", "mean number over that under the best threshold, minus 1", differentiable=False),
    *(Metric(f"{name}_threshold", "customers", meaning, differentiable=False)
      for name, (_, meaning) in _RULES.items()),
    *(Metric(f"{name}_excess", "1", f"mean number under {name}_threshold over the best, minus 1", differentiable=False)
      for name in ("explicit", "simple")),
)
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
MAP_METRICS = (
    *_COMMON,
    Metric("best_threshold", "customers", "the best of the constant thresholds 1 to 16", differentiable=False),
    Metric("best_threshold_quiet", "customers", "the best threshold outside bursts", expensive=True,
           differentiable=False),
    Metric("best_threshold_burst", "customers", "the best threshold in bursts", expensive=True, differentiable=False),
    Metric("by_phase_gain", "1", "mean number under the best constant threshold over that under the best by phase,"
           " minus 1", expensive=True, differentiable=False),
    *(Metric(f"response_time_{name}", "time", f"the time within which {p:.0%} of the customers leave", expensive=True,
             differentiable=False) for name, p in _PERCENTILES.items()),
)


def _status(axes: tuple[Axis, ...], values: Mapping[str, Any]) -> Array:
    rate, mu1, mu2 = values["arrival_rate"], values["mu1"], values["mu2"]
    legal = inside(axes, values) & (mu2 <= mu1) & (mu1 <= LARGEST_RATIO * mu2) & (rate >= 1e-6 * mu1)
    code = jnp.where((mu1 - rate) + mu2 > 0, int(Status.OK), int(Status.UNSTABLE))
    return jnp.where(legal, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)


def _legal_or_harmless(axes: tuple[Axis, ...], values: Mapping[str, Any]) -> tuple[dict[str, Any], Array]:
    code = _status(axes, values)
    ok = code == int(Status.OK)
    harmless = {"arrival_rate": 0.5, "mu1": 1.0, "mu2": 0.5, "burst_share": 0.5}
    return {name: jnp.where(ok, x, jnp.asarray(harmless.get(name, 1.0), x.dtype)) for name, x in values.items()}, code


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One point with Poisson arrivals for the sweep engine."""
    values, code = _legal_or_harmless(AXES, values)
    rate, mu1, mu2 = values["arrival_rate"], values["mu1"], values["mu2"]
    thresholds = {"here": values["threshold"]}
    if any(name.endswith("excess") for name in metrics):
        thresholds |= {name: _RULES[name][0](rate, mu1, mu2) for name in ("optimal", "explicit", "simple")}
    asked = jnp.stack(list(thresholds.values()))
    under = means(*jnp.broadcast_arrays(rate[None], mu1[None], mu2[None], asked))
    here = jax.tree.map(lambda x: x[0], under)
    found = {"mean_number": here.number, "mean_waiting": here.waiting, "mean_response_time": here.number / rate,
             "mean_waiting_time": here.waiting / rate, "utilization_fast": here.fast, "utilization_slow": here.slow,
             "p_slow_used": here.slow * (mu2 / rate), "p_empty": here.empty}
    for name, (rule, _) in _RULES.items():
        if f"{name}_threshold" in metrics:
            found[f"{name}_threshold"] = thresholds[name] if name in thresholds else rule(rate, mu1, mu2)
    if "optimal" in thresholds:
        number = dict(zip(thresholds, under.number, strict=True))
        found |= {key: number[name] / number["optimal"] - 1
                  for key, name in (("excess", "here"), ("explicit_excess", "explicit"), ("simple_excess", "simple"))}
    return {name: jnp.where(code == int(Status.OK), found[name], jnp.nan) for name in metrics}, code


def map_point(values: Mapping[str, Any], metrics: tuple[str, ...],
              bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One point with bursty arrivals for the sweep engine."""
    values, code = _legal_or_harmless(MAP_AXES, values)
    D0, D1 = bursty(*(values[name] for name in ("arrival_rate", "burst_ratio", "burst_share", "burst_length")))
    params = Params(D0, D1, values["mu1"], values["mu2"],
                    jnp.stack([values["threshold_quiet"], values["threshold_burst"]]), max_threshold=MAP_THRESHOLD)
    found: dict[str, Array] = {}
    common = {metric.name for metric in _COMMON}
    if any(name in common or name.startswith("response") for name in metrics):
        solved = solve(params)
        code = jnp.where(code == int(Status.OK), solved.status, code)
        found |= metrics_of_law(params, solved.value)._asdict()
        if any(name.startswith("response") for name in metrics):
            law = response_time(params, solved.value)
            for name, p in _PERCENTILES.items():
                if f"response_time_{name}" in metrics:
                    time = law.percentile(jnp.asarray(p, D0.dtype))
                    found[f"response_time_{name}"] = time.value
                    code = jnp.where(code == int(Status.OK), time.status, code)
    if "best_threshold" in metrics:
        found["best_threshold"] = best_constant_threshold(params, MAP_THRESHOLD).threshold.astype(D0.dtype)
    if any(name in metrics for name in ("best_threshold_quiet", "best_threshold_burst", "by_phase_gain")):
        best = best_thresholds(params, MAP_THRESHOLD)
        found |= {"best_threshold_quiet": best.thresholds[0], "best_threshold_burst": best.thresholds[1],
                  "by_phase_gain": best.constant_mean_number / best.mean_number - 1}
    kept = has_value(code)
    return {name: jnp.where(kept, found[name], jnp.nan) for name in metrics}, code


def second_route(values: Mapping[str, float], metrics: tuple[str, ...]) -> dict[str, float]:
    """The common metrics with Poisson arrivals from the chain with levels instead of the closed form, on the host.

    >>> from hetjax.models import threshold_queue
    >>> point = {"arrival_rate": 1.68, "mu1": 2.0, "mu2": 0.4, "threshold": 2.0}
    >>> round(threshold_queue.MODEL.second_route(point, ("mean_number",))["mean_number"], 6)
    2.758413
    """
    chosen = [name for name in metrics if name in {metric.name for metric in _COMMON}]
    if not chosen or values["threshold"] > 1000:
        return {}
    bound = 1 << max(math.ceil(values["threshold"]) - 1, 3).bit_length()  # few sizes, few compilations
    params = Params.from_rate(values["arrival_rate"], values.get("mu1", 1.0), values["mu2"], values["threshold"],
                              max_threshold=bound)
    found = _metrics_by_law(params)
    return {name: float(getattr(found, name)) for name in chosen}


@jax.jit
def _metrics_by_law(params: Params) -> Any:
    return metrics_of_law(params, solve(params).value)


MODEL = Model(name="threshold_queue", version=3, title="Fast and slow server, slow one started by a threshold",
              axes=AXES, metrics=METRICS, point=point, second_route=second_route,
              golden=(({"arrival_rate": 1.2, "mu1": 1.0, "mu2": 0.5, "threshold": 1.0},
                       {"mean_number": 4.434782608695652}),
                      ({"arrival_rate": 4.4, "mu1": 5.0, "mu2": 0.5, "threshold": 3.0},
                       {"mean_number": 4.492409435050055, "optimal_threshold": 3.0})))
MAP_MODEL = Model(name="threshold_queue_map", version=2, title="The same with bursty arrivals, thresholds by phase",
                  axes=MAP_AXES, metrics=MAP_METRICS, point=map_point,
                  golden=(({"arrival_rate": 1.2, "mu1": 1.0, "mu2": 0.5, "threshold_quiet": 1.0,
                            "threshold_burst": 1.0, "burst_ratio": 1.0, "burst_share": 0.5, "burst_length": 1.0},
                           {"mean_number": 4.434782608695652, "best_threshold": 1.0}),))


def evaluate(**arrays: Any) -> Evaluation:
    """Poisson arrivals, numpy-like arrays that broadcast: ``hetjax.evaluate("threshold_queue", **arrays)``, which see.

    Axes arrival_rate, mu1 (default 1), mu2, threshold.

    >>> from hetjax.models import threshold_queue
    >>> out = threshold_queue.evaluate(arrival_rate=1.68, mu1=2.0, mu2=0.4, threshold=[1, 2, 3],
    ...                                metrics=["mean_number", "optimal_threshold"])
    >>> [round(float(x), 6) for x in out.mean_number], float(out.optimal_threshold[0])
    ([2.861635, 2.758413, 2.791159], 2.0)
    """
    return evaluate_model(MODEL, **arrays)
