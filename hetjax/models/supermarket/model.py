"""The supermarket model as the registry and the sweep engine see it: service by its mean and SCV."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.models import registry
from hetjax.models.registry import Axis, Evaluation, Metric, Model
from hetjax.models.supermarket.fixed_point import fixed_point, level_count
from hetjax.models.supermarket.metrics import TAILS, point_metrics, service_by_scv
from hetjax.models.supermarket.newton import newton_fixed_point
from hetjax.models.supermarket.params import LARGEST_D, Params, legal_or_harmless
from hetjax.models.supermarket.response_time import response_time
from hetjax.result import Status, has_value

Array = jax.Array
AXES = (
    Axis("arrival_rate", 0.0, 1e6, "1/time", "arrivals per server", open_low=True),
    Axis("d", 1.0, LARGEST_D, "queues", "queues an arrival looks at; 1, or from 1.01 on", default=2.0),
    Axis("scv", 0.0, 1e4, "1", "squared coefficient of variation of a service, from 1/phases on", default=1.0,
         open_low=True),
    Axis("service_rate", 0.0, 1e6, "1/time", "1 / mean service time", default=1.0, open_low=True),
    Axis("phases", 2, 32, "phases", "phases of the service law", integer=True, shape=True, default=2),
)
_REAL = ("arrival_rate", "d", "scv", "service_rate")
_PERCENTILES = {"response_time_p50": 0.5, "response_time_p90": 0.9, "response_time_p99": 0.99,
                "response_time_p999": 0.999}
_LEVELS, _STEPS = 192, 2048  # for percentiles
METRICS = (
    Metric("mean_queue_length", "customers", "mean number at a server, the one in service included"),
    Metric("mean_response_time", "time", "mean time from arrival to departure"),
    Metric("mean_waiting_time", "time", "mean time from arrival to the start of service"),
    Metric("p_wait", "1", "an arrival finds all the queues it looks at busy"),
    Metric("gain", "1", "mean response time with d = 1 over that with d"),
    Metric("load", "1", "share of time a server is busy"),
    *(Metric(f"tail_{k}", "1", f"share of queues with at least {k} customers") for k in range(1, TAILS + 1)),
    *(Metric(name, "time", f"the response time that {100 * p:g} % of the customers do not exceed", expensive=True)
      for name, p in _PERCENTILES.items()),
)


def _params(values: Mapping[str, Any], phases: int) -> Params:
    alpha, T = service_by_scv(values["scv"], 1 / values["service_rate"], phases)
    return Params(values["arrival_rate"], values["d"], alpha, T)


def service_params(values: Mapping[str, Any], bounds: Mapping[str, int]) -> tuple[Params, Array]:
    """The system at the values of AXES, and whether its SCV is within reach of its phases."""
    real = {name: jnp.asarray(values[name]) for name in _REAL}
    given = values["phases"]
    phases = max(given if isinstance(given, int) else bounds["phases"], 2)
    allowed = jnp.asarray(given).astype(real["scv"].dtype)
    eps = float(jnp.finfo(real["scv"].dtype).eps)
    fits = (real["scv"] * allowed >= 1 - 16 * eps) & (allowed >= 2) & (allowed <= phases)
    return _params(real, phases), fits


def _plain(theta: Array, phases: int) -> tuple[Array, Array]:
    """All metrics but the percentiles, in the order of METRICS, at theta = (arrival_rate, d, scv, service_rate), and
    whether the recursion converged."""
    params, _ = legal_or_harmless(_params(dict(zip(_REAL, theta, strict=True)), phases))
    found = point_metrics(params)
    load = found.tails[0]
    mean, wait = found.mean_queue_length / params.arrival_rate, found.waiting / params.arrival_rate
    random = params.mean_service + params.arrival_rate * params.service.moment(2) / (2 * (1 - load))
    first = jnp.stack([found.mean_queue_length, mean, wait, jnp.exp(params.d * jnp.log(load)), random / mean, load])
    return jnp.concatenate([first, found.tails]), found.ok


def _differentiable(phases: int) -> Any:
    """_plain with derivatives in both modes: four forward passes, then a product."""
    plain = jax.custom_jvp(lambda theta: _plain(theta, phases))

    @plain.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
        def both(theta: Array) -> tuple[Array, tuple[Array, Array]]:
            value, ok = _plain(theta, phases)
            return value, (value, ok)

        J, (value, ok) = jax.jacfwd(both, has_aux=True)(primals[0])
        return (value, ok), (J @ tangents[0], np.zeros(ok.shape, jax.dtypes.float0))

    return plain


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One point for the sweep engine: ``metrics`` by name, NaN where the status is not OK, and the status."""
    params, fits = service_params(values, bounds)
    sound, code = legal_or_harmless(params)
    code = jnp.where(fits, code, int(Status.OUT_OF_DOMAIN))
    results: dict[str, Array] = {}
    numbers, ok = _differentiable(params.phases)(jnp.stack([jnp.asarray(values[name]) for name in _REAL]))
    for i, metric in enumerate(METRICS[:-len(_PERCENTILES)]):
        if metric.name in metrics:
            results[metric.name] = numbers[i]
    asked = [name for name in _PERCENTILES if name in metrics]
    if asked:
        found = fixed_point(sound, levels=_LEVELS).value
        times = response_time(sound, found, steps=_STEPS).percentile(jnp.array([_PERCENTILES[a] for a in asked]))
        results |= {name: times.value[i] for i, name in enumerate(asked)}
        ok = ok & jnp.all(times.status == int(Status.OK))
    code = jnp.where((code == int(Status.OK)) & ~ok, int(Status.NOT_CONVERGED), code).astype(jnp.uint8)
    kept = has_value(code)
    return {name: jnp.where(kept, results[name], jnp.nan) for name in metrics}, code


def second_route(values: Mapping[str, float], metrics: tuple[str, ...]) -> dict[str, float]:
    """Means and tails by Newton's iteration on the truncated mean field, d > 1, on the host; others are left out."""
    params = _params({k: jnp.asarray(float(v)) for k, v in values.items() if k != "phases"}, int(values["phases"]))
    rate, d, mean_service = float(params.arrival_rate), float(params.d), float(params.mean_service)
    if d == 1:
        wait = rate * float(params.service.moment(2)) / (2 * (1 - rate * mean_service))
        found = {"mean_waiting_time": wait, "mean_response_time": wait + mean_service,
                 "mean_queue_length": rate * (wait + mean_service)}
    else:
        levels = level_count(params.rho, params.d, params.service_scv())
        u = np.asarray(newton_fixed_point(params, levels).value.sum(1))
        found = {"mean_queue_length": u.sum(), "mean_response_time": u.sum() / rate, "p_wait": u[0] ** d, "load": u[0],
                 "mean_waiting_time": u[1:].sum() / rate}
        found |= {f"tail_{k + 1}": u[k] for k in range(min(TAILS, levels))}
    return {name: float(found[name]) for name in metrics if name in found}


MODEL = Model(name="supermarket", version=2, title="Supermarket model: the shortest of d queues", axes=AXES,
              metrics=METRICS, point=point, second_route=second_route,
              golden=(({"arrival_rate": 0.9, "d": 2.0, "scv": 10.0, "service_rate": 1.0, "phases": 2},
                       {"mean_queue_length": 6.076210347422023}),
                      ({"arrival_rate": 0.7, "d": 2.0, "scv": 1.0, "service_rate": 1.0, "phases": 2},
                       {"mean_queue_length": 1.130117639222398})))


def evaluate(*, metrics: Sequence[str] | None = None, **arrays: Any) -> Evaluation:
    """The model on numpy-like arrays that broadcast: ``arrival_rate, d, scv, service_rate`` and ``phases``.

    See :func:`hetjax.evaluate`.

    >>> from hetjax.models import supermarket
    >>> out = supermarket.evaluate(arrival_rate=0.9, d=[1.0, 2.0], metrics=["mean_response_time"])
    >>> [round(float(x), 6) for x in out.mean_response_time]
    [10.0, 2.614057]
    """
    return registry.evaluate(MODEL, metrics=metrics, **arrays)
