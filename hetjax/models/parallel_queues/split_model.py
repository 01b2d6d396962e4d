"""The best Bernoulli split and the best thresholds of two nodes, found jointly, and what simpler choices lose."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.parallel_queues.bernoulli import best_split, node_numbers
from hetjax.models.parallel_queues.model import RATE_AXES, judged
from hetjax.models.parallel_queues.open_loop import poisson_cost
from hetjax.models.registry import Metric, Model
from hetjax.result import Status, has_value

Array = jax.Array
METRICS = (
    Metric("split", "1", "probability that a customer is sent to node 1", differentiable=False),
    Metric("threshold_node1", "customers", "best threshold of node 1", "nobody is sent there", differentiable=False),
    Metric("threshold_node2", "customers", "best threshold of node 2", "nobody is sent there", differentiable=False),
    Metric("mean_number", "customers", "mean number in both nodes with them"),
    Metric("mean_response_time", "time", "mean time from arrival to departure with them"),
    Metric("marginal_cost", "time", "d mean number / d arrival rate, the same in every node in use",
           differentiable=False),
    Metric("proportional_excess", "1", "excess of the mean number if the split is in proportion to capacity, with the"
           " best thresholds for it", differentiable=False),
    Metric("fastest_first_excess", "1", "excess if slow servers start for everybody who would wait (thresholds 1), with"
           " the same split", differentiable=False),
)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """The asked metrics at one point, for the sweep engine; ``mean_number`` is differentiable by the envelope
    theorem."""
    params, code = judged(RATE_AXES, values)
    best = best_split(params)
    code = jnp.where(code == int(Status.OK), best.status, code)
    known = has_value(code)
    split, thresholds = (lax.stop_gradient(jnp.where(known, x, jnp.ones_like(x) / y)) for x, y in (
        (best.probabilities, 2), (best.thresholds, 1)))
    number = jnp.sum(node_numbers(params, split, thresholds))
    used = jnp.where(split > 0, thresholds, jnp.nan)
    results = {"split": split[0], "threshold_node1": used[0], "threshold_node2": used[1], "mean_number": number,
               "mean_response_time": number / params.arrival_rate, "marginal_cost": best.marginal_cost}
    if "proportional_excess" in metrics:
        rates = params.arrival_rate * params.capacities / jnp.sum(params.capacities)
        results["proportional_excess"] = jnp.sum(poisson_cost(rates, params.mu1, params.mu2)[0]) / number - 1
    if "fastest_first_excess" in metrics:
        first = node_numbers(params, split, jnp.ones_like(params.mu1))
        results["fastest_first_excess"] = jnp.sum(first) / number - 1
    return {name: jnp.where(known, results[name], jnp.nan) for name in metrics}, code.astype(jnp.uint8)


MODEL = Model(name="parallel_queues_split", version=2, title="Two parallel nodes: the best split with the best"
              " thresholds", axes=RATE_AXES, metrics=METRICS, point=point,
              golden=(({"arrival_rate": 2.0, "mu1_node1": 2.0, "mu2_node1": 0.5, "mu1_node2": 1.0, "mu2_node2": 0.2},
                       {"mean_number": 2.7797158797562926, "threshold_node2": 3.0}),))
