"""The stalling queue: fast and slow servers, a buffer that stalls customers until a fast server frees, a waiting line.

:func:`Params`, :func:`mean_number`, :func:`metrics`, :func:`evaluate` and the objects they are made of.
"""

from hetjax.models.stalling.closed_form import mean_number
from hetjax.models.stalling.params import AXES, Params, from_rates, status
from hetjax.models.stalling.recursion import FullBuffer, Phases, full_buffer, phases

__all__ = ["AXES", "FullBuffer", "Params", "Phases", "from_rates", "full_buffer", "mean_number", "phases", "status"]
