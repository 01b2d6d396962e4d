"""One queue before a fast and slow servers that are started by thresholds: exact laws, the best thresholds.

:class:`Params`, :func:`solve`, :func:`metrics`; :func:`poisson_means` and :func:`optimal_threshold` for Poisson
arrivals in closed form.
"""

from hetjax.models.threshold_queue.chain import generator
from hetjax.models.threshold_queue.constant import BestThreshold, best_constant_threshold, mean_numbers
from hetjax.models.threshold_queue.law import Law, Metrics, mean_number, metrics, metrics_of_law, queue_length_law, solve
from hetjax.models.threshold_queue.params import Params, status

__all__ = ["BestThreshold", "Law", "Metrics", "Params", "best_constant_threshold", "generator", "mean_number", "mean_numbers", "metrics", "metrics_of_law", "queue_length_law",
           "solve", "status"]
