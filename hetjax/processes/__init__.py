"""Phase-type distributions (service times) and Markovian arrival processes."""

from hetjax.processes.arrivals import MAP, erlang_arrivals, mmpp, poisson, renewal, superpose
from hetjax.processes.phase_type import (
    PH,
    coxian,
    coxian_two_moments,
    erlang,
    erlang_mixture,
    exponential,
    from_moments,
    hyperexponential,
    hyperexponential_balanced,
    hyperexponential_three_moments,
)

__all__ = [
    "MAP",
    "PH",
    "coxian",
    "coxian_two_moments",
    "erlang",
    "erlang_arrivals",
    "erlang_mixture",
    "exponential",
    "from_moments",
    "hyperexponential",
    "hyperexponential_balanced",
    "hyperexponential_three_moments",
    "mmpp",
    "poisson",
    "renewal",
    "superpose",
]
