"""Markov decision processes of continuous-time chains, and the optimal allocation to heterogeneous servers.

General processes: :func:`from_events`, :func:`from_rates`, then :func:`policy_iteration` and
:func:`relative_value_iteration` (average cost), :func:`discounted_policy_iteration` and :func:`value_iteration`
(discounted). One queue before a fast and slow servers: :func:`optimal_allocation`, on the infinite buffer.
"""

from hetjax.control.allocation import Allocation, allocation_mdp, optimal_allocation
from hetjax.control.mdp import (
    AverageOptimum,
    DiscountedOptimum,
    discounted_policy_iteration,
    policy_iteration,
    relative_value_iteration,
    value_iteration,
)
from hetjax.control.process import MDP, from_events, from_rates

__all__ = [
    "MDP",
    "Allocation",
    "AverageOptimum",
    "DiscountedOptimum",
    "allocation_mdp",
    "discounted_policy_iteration",
    "from_events",
    "from_rates",
    "optimal_allocation",
    "policy_iteration",
    "relative_value_iteration",
    "value_iteration",
]
