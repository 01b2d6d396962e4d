"""Scalar functions whose value and derivatives stay right at the removable singularities of queueing formulas.

Everything here is elementwise, works in float32 and float64, and can be differentiated again and again in both modes.
"""

from hetjax.numerics.bracket import Bracket, close_in, first_rise, follow
from hetjax.numerics.counting import Count
from hetjax.numerics.decay import decay_and_rest
from hetjax.numerics.erlang import TruncatedPoisson, erlang_b, erlang_c, log_tail, truncated_poisson
from hetjax.numerics.geometric import (
    GeometricSums,
    descending_sum,
    exponential_moment,
    first_moments,
    geometric_sum,
    geometric_sums,
    ratio_moments,
    weighted_geometric_sum,
)
from hetjax.numerics.logarithm import atanh_over, atanh_rest, log, log1p, log_near_one
from hetjax.numerics.shares import share

__all__ = [
    "Bracket", "Count", "GeometricSums", "TruncatedPoisson", "atanh_over", "atanh_rest", "close_in", "decay_and_rest",
    "descending_sum", "erlang_b", "erlang_c", "exponential_moment", "first_moments", "first_rise", "follow",
    "geometric_sum", "geometric_sums", "log", "log1p", "log_near_one", "log_tail", "ratio_moments", "share",
    "truncated_poisson", "weighted_geometric_sum",
]
