"""Every metric of the overflow system by its definition, from a numerical solution of the nine-state chain."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import stationary
from hetjax.models.overflow.closed_form import generator
from hetjax.models.overflow.params import RATE_AXES, Params
from hetjax.result import raise_if_failed

_DEFAULT_COSTS = {"loss_cost_1": 1.0, "loss_cost_2": 1.0, "overflow_cost_1": 0.0, "overflow_cost_2": 0.0}


def second_route(values: Mapping[str, float], metrics: tuple[str, ...]) -> dict[str, float]:
    """``metrics`` at one point, on the host; no closed form enters.

    The nine probabilities are as accurate as the elimination (a few eps); the loss reductions, the margins, the saving
    and the break-even cost are plain differences here, right to that accuracy of the larger side. ValueError for
    values outside the domain.

    >>> from hetjax.models import overflow
    >>> point = {"lambda1": 1.0, "lambda2": 1.0, "mu1": 1.0, "mu2": 1.0}
    >>> round(overflow.MODEL.second_route(point, ("p_loss",))["p_loss"], 6)
    0.4
    """
    params = Params(*(jnp.asarray(values[axis.name], jnp.result_type(float)) for axis in RATE_AXES))
    pi = np.asarray(raise_if_failed(stationary(generator(params))).value, float).reshape(3, 3)
    rate = {t: float(values[f"lambda{t}"]) for t in (1, 2)}
    speed = {t: float(values[f"mu{t}"]) for t in (1, 2)}
    cost = {name: float(values.get(name, default)) for name, default in _DEFAULT_COSTS.items()}
    found = {f"pi{i}{j}": pi[i, j] for i in range(3) for j in range(3)}
    share = {(1, t): pi[t].sum() for t in (1, 2)} | {(2, t): pi[:, t].sum() for t in (1, 2)}  # (server, type)
    loss = found["p_loss"] = pi[1:, 1:].sum()
    served = pi[0].sum() + pi[1:, 0].sum()  # an arrival finds a free server
    own_busy = {1: pi[1:, 0].sum(), 2: pi[0, 1:].sum()}  # the type's own server busy, the other free
    alone, reduction, overflow = {}, {}, {}
    for t in (1, 2):
        alone[t] = rate[t] / (rate[t] + speed[t])
        reduction[t] = alone[t] - loss
        overflow[t] = rate[t] * own_busy[t]
        found |= {f"p_loss_without_overflow_{t}": alone[t], f"overflow_rate_{t}": overflow[t],
                  f"wrong_assignment_ratio_{t}": own_busy[t] / served, f"loss_reduction_{t}": reduction[t],
                  f"throughput_{t}": speed[t] * (share[1, t] + share[2, t]),
                  f"throughput_without_overflow_{t}": speed[t] * alone[t],
                  f"mean_number_{t}": share[1, t] + share[2, t]}
        found |= {f"utilization_server_{t}_type_{u}": share[t, u] for u in (1, 2)}
        found[f"utilization_server_{t}"] = share[t, 1] + share[t, 2]
    found["overflow_rate_total"] = overflow[1] + overflow[2]
    found["throughput_total"] = found["throughput_1"] + found["throughput_2"]
    found["wrong_assignment_ratio_total"] = found["overflow_rate_total"] / found["throughput_total"]
    found |= {"malposition_serious": pi[2, 1], "malposition_light": pi[0, 1] + pi[2, 0],
              "malposition_middle": pi[1, 1] + pi[2, 2],
              "malposition_total": pi[2, 1] + (pi[0, 1] + pi[2, 0]) + (pi[1, 1] + pi[2, 2])}
    lost = {t: rate[t] * loss for t in (1, 2)}
    lost_alone = {t: rate[t] * alone[t] for t in (1, 2)}
    absolute = found["absolute_loss_reduction_margin"] = min(reduction.values())
    relative = found["relative_loss_reduction_margin"] = sum(lost_alone.values()) - sum(lost.values())
    found |= {"absolute_loss_reduction": float(absolute > 0), "relative_loss_reduction": float(relative > 0)}
    losses = sum(cost[f"loss_cost_{t}"] * lost[t] for t in (1, 2))
    losses_alone = sum(cost[f"loss_cost_{t}"] * lost_alone[t] for t in (1, 2))
    found["cost_rate"] = losses + sum(cost[f"overflow_cost_{t}"] * overflow[t] for t in (1, 2))
    found["cost_rate_without_overflow"] = losses_alone
    found["cost_saving"] = losses_alone - found["cost_rate"]
    found["break_even_overflow_cost"] = (losses_alone - losses) / found["overflow_rate_total"]
    return {name: float(found[name]) for name in metrics}
