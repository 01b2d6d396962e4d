"""Two parallel nodes as the registry knows them: under a Bernoulli split, under a mechanical word, at their best."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.models.parallel_queues.bernoulli import best_split
from hetjax.models.parallel_queues.full_information import full_information
from hetjax.models.parallel_queues.node import NodeMeans
from hetjax.models.parallel_queues.open_loop import best_word, density_means
from hetjax.models.parallel_queues.params import Params
from hetjax.models.parallel_queues.words import mechanical_word
from hetjax.models.registry import Axis, Metric, Model, inside
from hetjax.models.threshold_queue.law import metrics as law_metrics
from hetjax.models.threshold_queue.params import Params as ThresholdParams
from hetjax.models.threshold_queue.poisson import means as poisson_means
from hetjax.result import Status, has_value

Array = jax.Array
WORD_THRESHOLD = 16  # the largest threshold of the model with words
BEST_THRESHOLD = 8  # the largest one that the search for the best word tries
GRID = 50

_NODES = ("node1", "node2")
RATE_AXES = (
    Axis("arrival_rate", 1e-6, 1e6, "1/time", "mean number of arrivals per unit time, before the router"),
    *(Axis(f"{name}_{node}", low, 1e6, "1/time", f"service rate of the {kind} server of {node}{more}")
      for node in _NODES for name, low, kind, more in (("mu1", 1e-6, "fast", ""),
                                                       ("mu2", 1e-9, "slow", ", at most that of the fast one"))),
)
_STARTS = "customers waiting, the newcomer included, at which the slow server starts; randomised between whole ones"
_SPLIT = Axis("split", 0.0, 1.0, "1", "probability that a customer is sent to node 1", open_low=True, open_high=True)


def _thresholds(high: float) -> tuple[Axis, ...]:
    return tuple(Axis(f"threshold_{node}", 1.0, high, "customers", f"{node}: {_STARTS}", default=1.0)
                 for node in _NODES)


AXES = (*RATE_AXES, _SPLIT, *_thresholds(1e6))
WORD_AXES = (
    *RATE_AXES,
    Axis("length", 2, 256, "letters", "letters of the mechanical word", integer=True, shape=True),
    Axis("ones", 1, 255, "letters", "customers of each period sent to node 1; the density is ones/length",
         integer=True),
    *_thresholds(WORD_THRESHOLD),
)
BEST_AXES = (*RATE_AXES, Axis("max_length", 2, 64, "letters", "longest period tried", integer=True, shape=True,
                           default=40))
_OF_A_NODE = {  # in the order of the fields of NodeMeans
    "mean_number": ("customers", "mean number"), "mean_waiting": ("customers", "mean number waiting"),
    "utilization_fast": ("1", "busy fraction of the fast server"),
    "utilization_slow": ("1", "busy fraction of the slow server"),
    "p_empty": ("1", "probability that nobody is there"),
}
_COMMON = (
    Metric("mean_number", "customers", "mean number in both nodes, in service included"),
    Metric("mean_response_time", "time", "mean time from arrival to departure"),
    *(Metric(f"{name}_{node}", unit, f"{meaning} of {node}") for node in _NODES
      for name, (unit, meaning) in _OF_A_NODE.items()),
)
METRICS = (
    *_COMMON,
    *(Metric(name, unit, meaning, expensive=True, differentiable=False) for name, unit, meaning in (
        ("best_split", "1", "the best split with the best thresholds"),
        ("best_mean_number", "customers", "mean number under them"),
        ("excess", "1", "mean number over that, minus 1"))),
)
BEST_METRICS = tuple(Metric(*m, differentiable=False) for m in (
    ("density", "1", "share of the customers sent to node 1 by the best word"),
    ("period", "letters", "its length"),
    ("threshold_node1", "customers", "the best constant threshold of node 1"),
    ("threshold_node2", "customers", "the best constant threshold of node 2"),
    ("mean_number", "customers", "mean number under the best word and thresholds"),
    ("bernoulli_split", "1", "the best Bernoulli split with the best thresholds"),
    ("bernoulli_mean_number", "customers", "mean number under the best Bernoulli split and thresholds"),
    ("bernoulli_over_word", "1", "excess of Bernoulli's mean number over that of the best word"),
)) + tuple(Metric(*m, expensive=True, differentiable=False) for m in (
    ("full_information_mean_number", "customers", "mean number if router and servers know the state"),
    ("word_over_full_information", "1", "excess of the best word's mean number over that with full information"),
    ("bernoulli_over_full_information", "1", "excess of Bernoulli's mean number over that with full information"),
))


def _pair(values: Mapping[str, Any], name: str) -> Array:
    return jnp.stack([values[f"{name}_{node}"] for node in _NODES])


def judged(axes: tuple[Axis, ...], values: Mapping[str, Any], shares: Array | None = None) -> tuple[Params, Array]:
    """Parameters, harmless where the status beside them is not OK; ``shares`` (2,) of the customers, if given."""
    rate, mu1, mu2 = values["arrival_rate"], _pair(values, "mu1"), _pair(values, "mu2")
    legal = inside(axes, values) & jnp.all(mu2 <= mu1)
    flows = rate if shares is None else rate * shares
    capacity = jnp.sum(mu1 + mu2) if shares is None else mu1 + mu2
    code = jnp.where(jnp.all(flows < capacity), int(Status.OK), int(Status.UNSTABLE))
    code = jnp.where(legal, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)
    ok = code == int(Status.OK)
    one = jnp.ones_like(mu1)
    return Params(*(jnp.where(ok, x, y) for x, y in ((rate, one[0] / 4), (mu1, one), (mu2, one / 2)))), code


def _results(params: Params, found: NodeMeans) -> dict[str, Array]:
    number = jnp.sum(found.number)
    return {"mean_number": number, "mean_response_time": number / params.arrival_rate,
            **{f"{name}_{node}": x[i] for i, node in enumerate(_NODES)
               for name, x in zip(_OF_A_NODE, found, strict=True)}}


def _shown(found: dict[str, Array], code: Array, metrics: tuple[str, ...]) -> tuple[dict[str, Array], Array]:
    known = has_value(code)
    return {name: jnp.where(known, found[name], jnp.nan) for name in metrics}, code


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One point under a Bernoulli split for the sweep engine."""
    p = values["split"]
    shares = jnp.stack([p, 1 - p])
    params, code = judged(AXES, values, shares)
    ok = code == int(Status.OK)
    shares, thresholds = (jnp.where(ok, x, jnp.full_like(x, y)) for x, y in ((shares, 0.5),
                                                                             (_pair(values, "threshold"), 1.0)))
    found = _results(params, NodeMeans(*poisson_means(params.arrival_rate * shares, params.mu1, params.mu2,
                                                      thresholds)))
    if {"best_split", "best_mean_number", "excess"} & set(metrics):
        best = best_split(params)
        found |= {"best_split": best.probabilities[0], "best_mean_number": best.mean_number,
                  "excess": found["mean_number"] / best.mean_number - 1}
        code = jnp.where(ok, best.status, code)
    return _shown(found, code, metrics)


def word_point(values: Mapping[str, Any], metrics: tuple[str, ...],
               bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One point under a mechanical word for the sweep engine."""
    size = bounds["length"] if "length" in bounds else int(values["length"])
    b, k = jnp.asarray(values["length"], jnp.int32), values["ones"]
    fits = (b >= 2) & (b <= size) & (k >= 1) & (k < b.astype(k.dtype))
    share = jnp.where(fits, k / jnp.maximum(b, 1).astype(k.dtype), 0.5)
    params, code = judged(WORD_AXES, values, jnp.stack([share, 1 - share]))
    code = jnp.where(fits, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)
    ok = code == int(Status.OK)
    thresholds = jnp.where(ok, _pair(values, "threshold"), 1)
    ones, length = jnp.where(ok, k.astype(jnp.int32), 1), jnp.where(ok, b, 2)
    if size < 2:
        return {name: jnp.full_like(k, jnp.nan) for name in metrics}, code
    tame = Params(jnp.where(fits, params.arrival_rate, jnp.min(params.capacities) / 2), params.mu1, params.mu2)
    found = density_means(tame, ones, length, thresholds, size, WORD_THRESHOLD)
    return _shown(_results(tame, found), code, metrics)


def best_point(values: Mapping[str, Any], metrics: tuple[str, ...],
               bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """The best policies of one point for the sweep engine."""
    if "max_length" in bounds:
        raise ValueError("max_length: several values in one evaluation; it gives the size of the search, evaluate each"
                         " value by itself")
    max_length = int(values["max_length"])
    params, code = judged(BEST_AXES, values)
    dtype = params.mu1.dtype
    if not 2 <= max_length <= 64:
        return {name: jnp.full((), jnp.nan, dtype) for name in metrics}, jnp.full((), int(Status.OUT_OF_DOMAIN),
                                                                                 jnp.uint8)
    found: dict[str, Array] = {}

    def worse(new: Array) -> Array:
        return jnp.where(code == int(Status.OK), new, code)

    asked = set(metrics)
    full = any("full_information" in name for name in metrics)
    if asked & {"density", "period", "threshold_node1", "threshold_node2", "mean_number", "bernoulli_over_word",
                "word_over_full_information"}:
        word = best_word(params, max_length, BEST_THRESHOLD)
        code = worse(word.status)
        found |= {"density": word.ones.astype(dtype) / word.length.astype(dtype), "period": word.length.astype(dtype),
                  "threshold_node1": word.thresholds[0], "threshold_node2": word.thresholds[1],
                  "mean_number": word.mean_number}
    if any("bernoulli" in name for name in metrics):
        split = best_split(params)
        code = worse(split.status)
        found |= {"bernoulli_split": split.probabilities[0], "bernoulli_mean_number": split.mean_number}
        if "mean_number" in found:
            found["bernoulli_over_word"] = split.mean_number / word.mean_number - 1
    if full:
        bound = full_information(params, GRID, 1e-6)
        code = worse(bound.status)
        found["full_information_mean_number"] = bound.mean_number
        for name, policy in (("word", "mean_number"), ("bernoulli", "bernoulli_mean_number")):
            if policy in found:
                found[f"{name}_over_full_information"] = found[policy] / bound.mean_number - 1
    return _shown(found, code, metrics)


def second_route(values: Mapping[str, float], metrics: tuple[str, ...]) -> dict[str, float]:
    """The model with words by the chain with levels, for words up to 6 letters and whole thresholds up to 4; host.

    >>> from hetjax.models import parallel_queues
    >>> point = {"arrival_rate": 2.0, "mu1_node1": 2.0, "mu2_node1": 0.5, "mu1_node2": 1.0, "mu2_node2": 0.2,
    ...          "length": 4, "ones": 3.0, "threshold_node1": 2.0, "threshold_node2": 3.0}
    >>> round(parallel_queues.WORD_MODEL.second_route(point, ("mean_number",))["mean_number"], 6)
    2.441161
    """
    length, ones = int(values["length"]), int(values["ones"])
    starts = [values[f"threshold_{node}"] for node in _NODES]
    if length > 6 or max(starts) > 4:
        return {}
    word = mechanical_word(ones, length)
    parts = [_by_levels(ThresholdParams.from_word(
        values["arrival_rate"], letters, values[f"mu1_{node}"], values[f"mu2_{node}"], start, max_threshold=4))
        for node, letters, start in zip(_NODES, (word, tuple(1 - x for x in word)), starts, strict=True)]
    found = {f"{name}_{node}": float(getattr(part, name))
             for node, part in zip(_NODES, parts, strict=True) for name in _OF_A_NODE}
    found["mean_number"] = found["mean_number_node1"] + found["mean_number_node2"]
    found["mean_response_time"] = found["mean_number"] / values["arrival_rate"]
    return {name: found[name] for name in metrics if name in found}


_by_levels = jax.jit(law_metrics)


_PLACE = {"arrival_rate": 2.0, "mu1_node1": 2.0, "mu2_node1": 0.5, "mu1_node2": 1.0, "mu2_node2": 0.2}
MODEL = Model(name="parallel_queues", version=2, title="Two parallel nodes under a Bernoulli split", axes=AXES,
              metrics=METRICS, point=point,
              golden=(({**_PLACE, "split": 0.5, "threshold_node1": 1.0, "threshold_node2": 1.0},
                       {"mean_number": 6.555199144613739}),))
WORD_MODEL = Model(name="parallel_queues_word", version=2, title="Two parallel nodes under a mechanical word",
                   axes=WORD_AXES, metrics=_COMMON, point=word_point, second_route=second_route,
                   golden=(({**_PLACE, "length": 31, "ones": 23.0, "threshold_node1": 2.0, "threshold_node2": 3.0},
                            {"mean_number": 2.4406551835701693}),), inner_batch=16)
BEST_MODEL = Model(name="parallel_queues_best", version=2, title="Two parallel nodes, the best word and the best split",
                   axes=BEST_AXES, metrics=BEST_METRICS, point=best_point,
                   golden=(({**_PLACE, "max_length": 8}, {"mean_number": 2.441161261766866, "density": 0.75}),),
                   inner_batch=1)
