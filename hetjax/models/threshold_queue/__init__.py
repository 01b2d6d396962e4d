"""One queue before a fast and slow servers that are started by thresholds: exact laws, the best thresholds.

:class:`Params`, :func:`solve`, :func:`metrics`, :func:`response_time` for MAP arrivals; :func:`poisson_means` and
:func:`optimal_threshold` for Poisson arrivals in closed form; :func:`best_constant_threshold`, :func:`best_thresholds`.
"""

from hetjax.models.threshold_queue.arrivals import bursty
from hetjax.models.threshold_queue.by_phase import BestThresholds, best_thresholds, explicit_thresholds
from hetjax.models.threshold_queue.chain import generator
from hetjax.models.threshold_queue.constant import BestThreshold, best_constant_threshold, mean_numbers
from hetjax.models.threshold_queue.law import (
    Law,
    Metrics,
    mean_number,
    metrics,
    metrics_of_law,
    queue_length_law,
    solve,
)
from hetjax.models.threshold_queue.model import MAP_MODEL, MODEL, evaluate
from hetjax.models.threshold_queue.params import Params, status
from hetjax.models.threshold_queue.poisson import Means as PoissonMeans
from hetjax.models.threshold_queue.poisson import means as poisson_means
from hetjax.models.threshold_queue.poisson import queue_length_law as poisson_queue_length_law
from hetjax.models.threshold_queue.response_time import response_time
from hetjax.models.threshold_queue.rule import (
    diffusion_threshold,
    explicit_threshold,
    fastest_first_is_best,
    optimal_threshold,
    simple_threshold,
    threshold_sign,
)

__all__ = [
    "MAP_MODEL", "MODEL", "BestThreshold", "BestThresholds", "Law", "Metrics", "Params", "PoissonMeans",
    "best_constant_threshold", "best_thresholds", "bursty", "diffusion_threshold", "evaluate", "explicit_threshold",
    "explicit_thresholds", "fastest_first_is_best", "generator", "mean_number", "mean_numbers", "metrics",
    "metrics_of_law", "optimal_threshold", "poisson_means", "poisson_queue_length_law", "queue_length_law",
    "response_time", "simple_threshold", "solve", "status", "threshold_sign",
]
