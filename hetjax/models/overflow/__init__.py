"""Two customer types, two dedicated servers, overflow to the other server, no waiting room.

Source: Overflow in systems with two servers: the negative consequences. Which files hold what: ``params`` (parameters,
domain), ``closed_form`` (all stationary quantities of the paper), ``model`` (the registry entry), ``general`` (beyond
the paper: several servers a side, rates that depend on the server, through the CTMC engine).
"""

from hetjax.models.overflow.closed_form import Metrics, generator, loss_rate_reduction, metrics, probabilities
from hetjax.models.overflow.general import (
    GENERAL_MODEL,
    GeneralMetrics,
    GeneralParams,
    general_generator,
    general_metrics,
)
from hetjax.models.overflow.model import MODEL, evaluate
from hetjax.models.overflow.params import Costs, Params, status

__all__ = ["GENERAL_MODEL", "MODEL", "Costs", "GeneralMetrics", "GeneralParams", "Metrics", "Params", "evaluate",
           "general_generator", "general_metrics", "generator", "loss_rate_reduction", "metrics", "probabilities",
           "status"]
