"""Many parallel queues, each arrival joins the shortest of d chosen at random; phase-type service, MAP arrivals.

Source: Doubly exponential solutions for randomized load balancing models with Markovian arrival processes and
phase-type service times; its equations and formula as printed are in ``published``, with their residuals. The default
answers are those of the correct mean field. Which files hold what: ``params`` (parameters, domain), ``mean_field`` (the
differential equation), ``recursion`` and ``fixed_point`` (its equilibrium), ``newton`` (the same by another method),
``response_time`` (laws of response and waiting times), ``transient`` (trajectories and their speed), ``refined`` and
``simulate`` (finitely many queues), ``generator`` (a few queues, exactly), ``policies`` (other joining rules),
``memory`` (one queue remembered: mean field only), ``environment`` (arrivals modulated as slowly as a queue),
``independent`` (no choice at all),
``metrics`` and ``model`` (the registry entry), ``tails_model`` and ``finite_model`` (entries for studies).
"""

from hetjax.ctmc.time_law import TimeLaw
from hetjax.models.supermarket.environment import slow_environment
from hetjax.models.supermarket.fixed_point import FixedPoint, fixed_point, level_count
from hetjax.models.supermarket.generator import SmallSystem, generator
from hetjax.models.supermarket.independent import Comparison, compare_with_independent, independent_queues
from hetjax.models.supermarket.mean_field import drift
from hetjax.models.supermarket.memory import memory_tails, shortest_with_memory
from hetjax.models.supermarket.model import MODEL, evaluate
from hetjax.models.supermarket.newton import newton_fixed_point
from hetjax.models.supermarket.params import Params, status
from hetjax.models.supermarket.policies import (
    JOIN_IDLE_QUEUE,
    SHORTEST_OF_D,
    Policy,
    one_plus_beta,
    without_replacement,
)
from hetjax.models.supermarket.probing import best_choices
from hetjax.models.supermarket.published import (
    PublishedFixedPoint,
    lipschitz_constant,
    published_fixed_point,
    published_ode,
    published_roots,
)
from hetjax.models.supermarket.refined import Refined, refined
from hetjax.models.supermarket.response_time import response_time, waiting_time
from hetjax.models.supermarket.simulate import Simulated, simulate
from hetjax.models.supermarket.transient import relaxation_time, spectral_gap, transient

__all__ = [
    "JOIN_IDLE_QUEUE", "MODEL", "SHORTEST_OF_D", "Comparison", "FixedPoint", "Params", "Policy", "PublishedFixedPoint",
    "Refined", "Simulated", "SmallSystem", "TimeLaw", "best_choices", "compare_with_independent", "drift", "evaluate",
    "fixed_point", "generator", "independent_queues", "level_count", "lipschitz_constant", "memory_tails",
    "newton_fixed_point", "one_plus_beta", "published_fixed_point", "published_ode", "published_roots", "refined",
    "relaxation_time", "response_time", "shortest_with_memory", "simulate", "slow_environment", "spectral_gap",
    "status", "transient", "waiting_time", "without_replacement",
]
