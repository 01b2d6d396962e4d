"""The stalling queue: fast and slow servers, a buffer that stalls customers until a fast server frees, a waiting line.

:func:`Params`, :func:`mean_number`, :func:`metrics`, :func:`evaluate` and the objects they are made of.
"""

from hetjax.models.stalling.params import AXES, Params, from_rates, status

__all__ = ["AXES", "Params", "from_rates", "status"]
