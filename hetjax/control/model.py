"""The optimal allocation as the registry knows it: bursty arrivals, a fast and a slow server, usage (energy) costs.

The cost rate of a policy is linear in the prices w (holding) and u_1, u_2 (usage): g = w N + u_1 U_1 + u_2 U_2, with N
the mean number and U_j busy fractions. By the envelope theorem U_2 = dg/du_2; all work is done, mu_1 U_1 + mu_2 U_2 =
arrival rate; and N follows from g.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.control.allocation import Allocation, optimal_allocation
from hetjax.models.registry import Axis, Metric, Model, inside
from hetjax.models.threshold_queue.arrivals import bursty
from hetjax.models.threshold_queue.law import metrics as law_metrics
from hetjax.models.threshold_queue.model import BURSTS, RATES
from hetjax.models.threshold_queue.params import Params
from hetjax.result import Status, has_value

Array = jax.Array
SEARCHED = 24  # the largest threshold of the second route

LEVELS = Axis("levels", 2, 1024, "customers", "decisions are free up to so many customers", integer=True, shape=True,
              default=64)
AXES = (
    *RATES, *BURSTS,
    Axis("holding_cost", 1e-9, 1e9, "1/time", "cost of a customer in the node per unit time", default=1.0),
    Axis("usage_fast", 0.0, 1e9, "1/time", "cost of the busy fast server per unit time", default=0.0),
    Axis("usage_slow", 0.0, 1e9, "1/time", "cost of the busy slow server per unit time", default=0.0),
    LEVELS,
)
METRICS = (
    Metric("cost", "1/time", "least mean cost per unit time"),
    Metric("cost_gap", "1", "what a better policy could gain at most, relative to the cost; 0 but for rounding",
           differentiable=False),
    Metric("mean_number", "customers", "mean number in the node under the optimal policy", differentiable=False),
    Metric("utilization_fast", "1", "busy fraction of the fast server", differentiable=False),
    Metric("utilization_slow", "1", "busy fraction of the slow server", differentiable=False),
    Metric("threshold_quiet", "customers", "optimal threshold outside bursts", differentiable=False),
    Metric("threshold_burst", "customers", "optimal threshold in bursts", differentiable=False),
    Metric("threshold_type", "1", "1 where the optimal policy is given by its thresholds", differentiable=False),
)


def static_levels(values: Mapping[str, Any], bounds: Mapping[str, int]) -> int:
    """The axis ``levels``: more than asked for changes nothing but the cost."""
    return max(bounds["levels"] if isinstance(values["levels"], jax.core.Tracer) else int(values["levels"]), 2)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One point for the sweep engine."""
    D0, D1 = bursty(*(values[name] for name in ("arrival_rate", "burst_ratio", "burst_share", "burst_length")))
    fast, slow, holding = values["usage_fast"], values["usage_slow"], values["holding_cost"]

    def solve(slow: Array) -> tuple[Array, Allocation]:
        best = optimal_allocation(D0, D1, values["mu1"], values["mu2"], holding, jnp.stack([fast, slow]),
                                  levels=static_levels(values, bounds))
        return best.gain, best

    if {"mean_number", "utilization_fast", "utilization_slow"} & set(metrics):
        cost, used, best = jax.jvp(solve, (slow,), (jnp.ones_like(slow),), has_aux=True)
        used_fast = (values["arrival_rate"] - values["mu2"] * used) / values["mu1"]
        found = {"utilization_fast": used_fast, "utilization_slow": used,
                 "mean_number": (cost - fast * used_fast - slow * used) / holding}
    else:
        cost, best = solve(slow)
        found = {}
    thresholds = best.thresholds[0].astype(cost.dtype)
    found |= {"cost": cost, "cost_gap": 1 - best.lower_bound / cost, "threshold_quiet": thresholds[0],
              "threshold_burst": thresholds[1], "threshold_type": best.threshold_type.astype(cost.dtype)}
    code = jnp.where(inside(AXES, values), best.status, jnp.uint8(Status.OUT_OF_DOMAIN))
    kept = has_value(code)
    return {name: jnp.where(kept, found[name], jnp.nan) for name in metrics}, code


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, None, 0))
def _characteristics(D0: Array, D1: Array, mu1: Array, mu2: Array, thresholds: Array) -> Any:
    return law_metrics(Params(D0, D1, mu1, mu2, thresholds, max_threshold=SEARCHED))


def second_route(values: Mapping[str, float], metrics: tuple[str, ...]) -> dict[str, float]:
    """The best pair of thresholds by exact laws of the threshold queue, pair by neighbouring pair, on the host.

    Nothing where a threshold would exceed 24. Thresholds are left out: neighbours may cost the same in all digits.

    >>> from hetjax.control import model
    >>> point = {"arrival_rate": 4.4, "mu1": 5.0, "mu2": 0.5}
    >>> round(model.second_route(point, ("cost",))["cost"], 6)
    4.492409
    """
    given = {axis.name: float(values.get(axis.name, axis.default or 0.0)) for axis in AXES}
    names = [name for name in ("cost", "mean_number", "utilization_fast", "utilization_slow") if name in metrics]
    D0, D1 = bursty(*(jnp.asarray(given[axis.name]) for axis in (AXES[0], *BURSTS)))
    rates = [jnp.asarray(given[name]) for name in ("mu1", "mu2")]
    here = np.array([1.0, 1.0])
    around = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)], float)
    around = np.concatenate([around, 4 * around])
    least = math.inf
    while names:
        pairs = np.clip(here + around, 1, SEARCHED)
        found = _characteristics(D0, D1, *rates, jnp.asarray(pairs))
        cost = np.asarray(given["holding_cost"] * found.mean_number + given["usage_fast"] * found.utilization_fast
                          + given["usage_slow"] * found.utilization_slow)
        best = int(np.argmin(cost))
        if not cost[best] < least * (1 - 1e-13):
            break
        least, here = float(cost[best]), pairs[best]
        known = {"cost": least} | {name: float(getattr(found, name)[best]) for name in names if name != "cost"}
    return {} if not names or not math.isfinite(least) or here.max() >= SEARCHED else {n: known[n] for n in names}


MODEL = Model(name="allocation", version=1, title="Optimal use of a slow server: bursty arrivals, usage costs",
              axes=AXES, metrics=METRICS, point=point, second_route=second_route,
              golden=(({"arrival_rate": 4.4, "mu1": 5.0, "mu2": 0.5, "levels": 64},
                       {"cost": 4.492409435050055, "mean_number": 4.492409435050055, "threshold_quiet": 3.0}),
                      ({"arrival_rate": 1.2, "mu1": 1.0, "mu2": 0.5, "levels": 64},
                       {"cost": 4.434782608695652, "threshold_burst": 1.0, "threshold_type": 1.0})))
