"""What threshold rules lose against the optimal policy: the mean number under each over the least possible, less 1.

Rules, from what they know:

    fastest_first    threshold 1
    simple           the usual heuristic, from the mean arrival rate
    explicit         the explicit formula for Poisson arrivals, from the mean arrival rate
    poisson          the exact rule for Poisson arrivals, from the mean arrival rate
    constant         the best constant threshold for the arrival process
    explicit_phase   the explicit formula by phase (:func:`hetjax.threshold_queue.explicit_thresholds`)
    phase            the best thresholds by phase, by search of neighbours (1 to 64)

The optimum is that of :func:`hetjax.control.optimal_allocation`, over all policies on the infinite buffer. All constant
thresholds come from one pass (:func:`hetjax.threshold_queue.mean_numbers`).

Two registered models for each of two arrival processes, bursts (an MMPP of two phases) and renewal (interarrival times
of a given squared coefficient of variation): the gaps at a point, and their distribution over a grid of loads and
speed ratios, ``side`` of each, equally and geometrically spaced.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.control.allocation import optimal_allocation
from hetjax.control.model import LEVELS, static_levels
from hetjax.models.registry import Axis, Metric, Model, inside
from hetjax.models.supermarket.metrics import service_by_scv
from hetjax.models.threshold_queue.arrivals import bursty
from hetjax.models.threshold_queue.by_phase import best_thresholds, explicit_thresholds
from hetjax.models.threshold_queue.constant import mean_numbers
from hetjax.models.threshold_queue.law import mean_number
from hetjax.models.threshold_queue.model import BURSTS, RATES
from hetjax.models.threshold_queue.params import Params
from hetjax.models.threshold_queue.rule import explicit_threshold, optimal_threshold, simple_threshold
from hetjax.processes import PH, renewal
from hetjax.result import Status, has_value

Array = jax.Array
SEARCHED = 64  # the largest threshold by phase that the search tries
RENEWAL_PHASES = 4  # of the interarrival times: SCV 1/4 and more
_CONSTANT: dict[str, tuple[Callable[..., Array] | None, str]] = {
    "fastest_first": (lambda rate, mu1, mu2: jnp.ones_like(rate), "threshold 1"),
    "simple": (simple_threshold, "the usual heuristic"),
    "explicit": (explicit_threshold, "the explicit formula"),
    "poisson": (optimal_threshold, "the best threshold for Poisson arrivals"),
    "constant": (None, "the best constant threshold"),
}
_BY_PHASE = {"explicit_phase": "the explicit formula by phase", "phase": "the best thresholds by phase"}
_QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True)
class Arrivals:
    """A family of arrival processes: its axes, and (D0, D1) from the mean arrival rate and their values."""

    suffix: str
    title: str
    axes: tuple[Axis, ...]
    process: Callable[..., tuple[Array, Array]]


def _renewal(rate: Array, scv: Array) -> tuple[Array, Array]:
    found = renewal(PH(*service_by_scv(scv, 1 / rate, RENEWAL_PHASES)))
    return found.D0, found.D1


BURSTY = Arrivals("", "bursty arrivals", BURSTS, bursty)
RENEWAL = Arrivals("_renewal", "renewal arrivals", (
    Axis("scv", 1 / RENEWAL_PHASES, 1e4, "1", "squared coefficient of variation of interarrival times"),),
    _renewal)


def gaps(D0: Array, D1: Array, mu1: Array, mu2: Array, levels: int, rules: tuple[str, ...]) -> tuple[
        Array, dict[str, Array], Array]:
    """The least mean number, what each of ``rules`` loses, and the status; one point, traced.

    not_converged where the optimum, or a rule's threshold, is beyond ``levels``.

    >>> import jax.numpy as jnp
    >>> at = [jnp.asarray(x) for x in ([[-1.0]], [[1.0]], 1.0, 0.2)]
    >>> least, lost, code = gaps(*at, levels=16, rules=("fastest_first", "explicit"))
    >>> round(float(least), 4), round(float(lost["fastest_first"]), 4), abs(round(float(lost["explicit"]), 4))
    (5.5021, 0.0153, 0.0)
    """
    best = optimal_allocation(D0, D1, mu1, mu2, levels=levels)
    params = Params(D0, D1, mu1, mu2, 1, max_threshold=1)
    code = best.status
    number: dict[str, Array] = {}
    if set(rules) & set(_CONSTANT):
        every = mean_numbers(params, levels)
        rate = params.arrival_rate
        for name in (name for name in _CONSTANT if name in rules):
            rule = _CONSTANT[name][0]
            if rule is None:
                number[name] = jnp.min(every)
                continue
            threshold = rule(rate, mu1, mu2)
            beyond = (threshold > levels) & (code == int(Status.OK))
            code = jnp.where(beyond, jnp.uint8(Status.NOT_CONVERGED), code)
            number[name] = every[jnp.clip(threshold, 1, levels).astype(jnp.int32) - 1]
    if "explicit_phase" in rules:
        here = explicit_thresholds(D0, D1, mu1, mu2)
        beyond = jnp.any(here > levels) & (code == int(Status.OK))
        code = jnp.where(beyond, jnp.uint8(Status.NOT_CONVERGED), code)
        number["explicit_phase"] = mean_number(params.with_thresholds(jnp.clip(here, 1, levels), levels))
    if "phase" in rules:
        number["phase"] = best_thresholds(params, SEARCHED).mean_number
    return best.gain, {name: number[name] / best.gain - 1 for name in rules}, code


def _gap_model(arrivals: Arrivals, shape: Mapping[str, float], least: float) -> Model:
    axes = (*RATES, *arrivals.axes, LEVELS)
    metrics = [Metric("optimal_mean_number", "customers", "least mean number over all policies", differentiable=False)]
    metrics += [Metric(f"{name}_gap", "1", f"{meaning}: mean number over the least, minus 1", differentiable=False)
                for name, (_, meaning) in _CONSTANT.items()]
    metrics += [Metric(f"{name}_gap", "1", f"{meaning}: mean number over the least, minus 1", expensive=True,
                       differentiable=False) for name, meaning in _BY_PHASE.items()]

    def point(values: Mapping[str, Any], metrics: tuple[str, ...],
              bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
        D0, D1 = arrivals.process(values["arrival_rate"], *(values[axis.name] for axis in arrivals.axes))
        rules = tuple(name.removesuffix("_gap") for name in metrics if name.endswith("_gap"))
        least, lost, code = gaps(D0, D1, values["mu1"], values["mu2"], static_levels(values, bounds), rules)
        found = {"optimal_mean_number": least} | {f"{name}_gap": value for name, value in lost.items()}
        code = jnp.where(inside(axes, values), code, jnp.uint8(Status.OUT_OF_DOMAIN))
        return {name: jnp.where(has_value(code), found[name], jnp.nan) for name in metrics}, code

    return Model(f"allocation_gap{arrivals.suffix}", 2, f"What threshold rules lose: {arrivals.title}", axes,
                 tuple(metrics), point,
                 golden=(({"arrival_rate": 0.5, "mu1": 1.0, "mu2": 0.25, "levels": 32, **shape},
                          {"optimal_mean_number": least}),))


def _law_model(arrivals: Arrivals, poisson: Mapping[str, float]) -> Model:
    axes = (
        *arrivals.axes,
        Axis("load_low", 1e-3, 0.999, "1", "least load of the grid", default=0.05),
        Axis("load_high", 1e-3, 0.999, "1", "largest load of the grid", default=0.99),
        Axis("ratio_low", 1.0, 1e4, "1", "least mu1/mu2 of the grid", default=1.0),
        Axis("ratio_high", 1.0, 1e4, "1", "largest mu1/mu2 of the grid", default=200.0),
        Axis("side", 2, 256, "1", "loads, and speed ratios, of the grid", integer=True, shape=True, default=16),
        LEVELS,
    )
    rules = {name: meaning for name, (_, meaning) in _CONSTANT.items()} | _BY_PHASE
    metrics = tuple(Metric(f"{rule}_{label}", "1", f"{meaning}: {label} over the grid of what it loses",
                           expensive=rule in _BY_PHASE, differentiable=False)
                    for rule, meaning in rules.items() for label in _QUANTILES)

    def point(values: Mapping[str, Any], metrics: tuple[str, ...],
              bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
        if isinstance(values["side"], jax.core.Tracer):
            raise ValueError("side is traced; give one whole number for all points")
        chosen = tuple(dict.fromkeys(name.rpartition("_")[0] for name in metrics))
        steps = jnp.linspace(0, 1, max(values["side"], 2)).astype(values["load_low"].dtype)
        load = values["load_low"] + (values["load_high"] - values["load_low"]) * steps
        ratio = values["ratio_low"] * (values["ratio_high"] / values["ratio_low"]) ** steps
        shape = [values[axis.name] for axis in arrivals.axes]

        def lost(load: Array, ratio: Array) -> tuple[dict[str, Array], Array]:
            D0, D1 = arrivals.process(load * (1 + 1 / ratio), *shape)
            return gaps(D0, D1, jnp.ones_like(load), 1 / ratio, static_levels(values, bounds), chosen)[1:]

        grid = [x.reshape(-1) for x in jnp.meshgrid(load, ratio)]
        every, codes = jax.vmap(lost)(*grid)
        code = jnp.where(jnp.all(codes == int(Status.OK)), jnp.uint8(Status.OK), jnp.max(codes))
        code = jnp.where(inside(axes, values), code, jnp.uint8(Status.OUT_OF_DOMAIN))
        found = {f"{rule}_{label}": jnp.quantile(every[rule], jnp.asarray(q, load.dtype))
                 for rule in chosen for label, q in _QUANTILES.items()}
        return {name: jnp.where(has_value(code), found[name], jnp.nan) for name in metrics}, code

    return Model(f"allocation_gap_law{arrivals.suffix}", 2,
                 f"How much threshold rules lose over a grid of loads and speed ratios: {arrivals.title}", axes,
                 metrics, point,
                 golden=(({"load_low": 0.2, "load_high": 0.9, "ratio_low": 2.0, "ratio_high": 18.0, "side": 3,
                           "levels": 48, **poisson}, {"fastest_first_max": 1.218750000400843}),), inner_batch=1)


# the least means by policy iteration of a truncated node in numpy, the law by Poisson arrivals in 40 digits
GAP_MODEL = _gap_model(BURSTY, {"burst_ratio": 3.0, "burst_share": 0.25, "burst_length": 2.0}, 0.98220424787453)
RENEWAL_GAP_MODEL = _gap_model(RENEWAL, {"scv": 2.0}, 1.0061682269821)
GAP_LAW_MODEL, RENEWAL_GAP_LAW_MODEL = _law_model(BURSTY, {}), _law_model(RENEWAL, {"scv": 1.0})
