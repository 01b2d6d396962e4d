"""Many parallel queues, each arrival joins the shortest of d chosen at random; phase-type service, MAP arrivals.

Source: Doubly exponential solutions for randomized load balancing models with Markovian arrival processes and
phase-type service times; its equations and formula as printed are in ``published``, with their residuals. The default
answers are those of the correct mean field: ``params`` (parameters, domain), ``mean_field`` (the differential
equation), ``recursion`` and ``fixed_point`` (its equilibrium), ``newton`` (the same by another method),
``response_time`` (laws of response and waiting times).
"""

from hetjax.models.supermarket.fixed_point import FixedPoint, fixed_point, level_count
from hetjax.models.supermarket.mean_field import drift
from hetjax.models.supermarket.newton import newton_fixed_point
from hetjax.models.supermarket.params import Params, status
from hetjax.models.supermarket.response_time import TimeLaw, response_time, waiting_time

__all__ = ["FixedPoint", "Params", "TimeLaw", "drift", "fixed_point", "level_count", "newton_fixed_point",
           "response_time", "status", "waiting_time"]
