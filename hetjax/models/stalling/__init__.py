"""The stalling queue: fast and slow servers, a buffer that stalls customers until a fast server frees, a waiting line.

:func:`Params`, :func:`mean_number`, :func:`metrics`, :func:`evaluate` and the objects they are made of.
"""

from hetjax.models.stalling import applications, paper_objects
from hetjax.models.stalling.asymptotics import asymptotes, finite_line_growth
from hetjax.models.stalling.buffer import Certificate, OptimalBuffer, optimal_buffer
from hetjax.models.stalling.buffer_slope import buffer_difference_scaled, buffer_slope_scaled
from hetjax.models.stalling.closed_form import mean_number
from hetjax.models.stalling.distribution import (
    EmptyStuckSlow,
    StateProbabilities,
    empty_stuck_slow,
    state_probabilities,
)
from hetjax.models.stalling.full_level import FullBuffer, full_buffer
from hetjax.models.stalling.generator import generator, metrics_of_law
from hetjax.models.stalling.metrics import Metrics, log_p_full, metrics
from hetjax.models.stalling.model import MODEL, evaluate
from hetjax.models.stalling.params import AXES, Params, from_rates, status
from hetjax.models.stalling.pays import load_where_slow_servers_pay
from hetjax.models.stalling.published import (
    PublishedProbabilities,
    published_mean_fast,
    published_mean_number,
    published_mean_slow,
    published_mean_stalled,
    published_mean_stuck,
    published_mean_waiting,
    published_p_empty,
    published_p_fast,
    published_p_full,
    published_p_loss,
    published_p_slow,
    published_p_slow_only,
    published_p_stalling,
    published_p_stuck,
    published_p_wait,
    published_state_probabilities,
)
from hetjax.models.stalling.recursion import Phases, phases
from hetjax.models.stalling.response_time import (
    Moments,
    response_time_density,
    response_time_moments,
    response_time_percentile,
    response_time_survival,
    solve_response_time,
)
from hetjax.models.stalling.sizing import LeastServers, least_servers
from hetjax.models.stalling.worth import worth_of_slow_servers

__all__ = [
    "AXES", "MODEL", "Certificate", "EmptyStuckSlow", "FullBuffer", "LeastServers", "Metrics", "Moments",
    "OptimalBuffer", "Params", "Phases", "PublishedProbabilities", "StateProbabilities", "applications", "asymptotes",
    "buffer_difference_scaled", "buffer_slope_scaled", "empty_stuck_slow", "evaluate", "finite_line_growth",
    "from_rates", "full_buffer", "generator", "least_servers", "load_where_slow_servers_pay", "log_p_full",
    "mean_number", "metrics", "metrics_of_law", "optimal_buffer", "paper_objects", "phases", "published_mean_fast",
    "published_mean_number", "published_mean_slow", "published_mean_stalled", "published_mean_stuck",
    "published_mean_waiting", "published_p_empty", "published_p_fast", "published_p_full", "published_p_loss",
    "published_p_slow", "published_p_slow_only", "published_p_stalling", "published_p_stuck", "published_p_wait",
    "published_state_probabilities", "response_time_density", "response_time_moments", "response_time_percentile",
    "response_time_survival", "solve_response_time", "state_probabilities", "status", "worth_of_slow_servers",
]
