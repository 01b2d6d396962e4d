"""Without any choice: N independent queues MAP/PH/1, the paper's comparison.

An arrival that goes to one of N queues chosen at random (d = 1) makes each queue see the stream (N D0, N D1) with an
arrival kept with probability 1/N, independently: a MAP again, (N D0 + (N-1) D1, D1). So each is exactly a MAP/PH/1
queue for every N; all N share the arrival phase, but means do not notice. Its phase moves N times faster than a queue:
as N grows the stream becomes Poisson and the queue M/PH/1. In a slow environment, (D0 off the diagonal, N D1), each
queue sees (D0, D1) itself, whatever N is.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import map_ph_1
from hetjax.models.supermarket.fixed_point import fixed_point
from hetjax.models.supermarket.params import Params
from hetjax.processes import MAP, PH
from hetjax.processes.checks import concrete, require
from hetjax.result import Solution, Status

Array = jax.Array


class Comparison(NamedTuple):
    """``independent``, ``supermarket``: mean number per queue without choice among N queues, and with d choices among
    infinitely many; ``gain``: the first over the second, by Little's law the ratio of mean response times too."""

    independent: Array
    supermarket: Array
    gain: Array


def independent_queues(arrivals: MAP, N: Any, service: PH, *, environment: str = "fast") -> Solution:
    """One of N queues that share an arrival stream at random, in equilibrium: MAP/PH/1, exactly.

    Args:
      arrivals: a MAP per server, as in :func:`hetjax.models.supermarket.simulate`.
      N: the number of queues, >= 1.
      service: the law of a service time.
      environment: "fast": descriptor (N D0, N D1); "slow": an MMPP, descriptor (D0 off the diagonal, N D1).

    Returns:
      The Solution of :func:`hetjax.ctmc.map_ph_1`, with a ``Queue``: mean_number, mean_response_time, p_empty, the
      whole law. Status unstable for a load >= 1. Differentiable. Cost O((arrival phases x service phases)^3).

    >>> from hetjax.models.supermarket import independent_queues
    >>> from hetjax.processes import exponential, mmpp
    >>> stream = mmpp([[0.0, 1.0], [1.0, 0.0]], [0.2, 1.0])
    >>> [round(float(independent_queues(stream, N, exponential(1.0)).value.mean_number), 4) for N in (1, 10, 10**6)]
    [1.6721, 1.5196, 1.5]
    """
    require(environment in ("fast", "slow"), "environment", repr(environment), "'fast' or 'slow'")
    if concrete(N):
        require(float(N) >= 1, "N", N, ">= 1")
    if environment == "slow":
        if concrete(arrivals.D1):
            D1 = np.asarray(arrivals.D1)
            require(not np.any(D1 - np.diag(np.diag(D1))), "arrivals", "D1 with off-diagonal rates",
                    "an MMPP (diagonal D1) for a slow environment")
        return map_ph_1(arrivals.D0, arrivals.D1, service.alpha, service.T)
    many = jnp.asarray(N, arrivals.D0.dtype)
    return map_ph_1(many * arrivals.D0 + (many - 1) * arrivals.D1, arrivals.D1, service.alpha, service.T)


def compare_with_independent(arrivals: MAP, N: Any, d: Any, service: PH, *, levels: int | None = None) -> Solution:
    """How much longer N independent queues are than those of the supermarket model with d choices.

    Arguments as in :func:`independent_queues` (fast environment); ``levels`` as in
    :func:`hetjax.models.supermarket.fixed_point`. Returns a Solution with a :class:`Comparison`; the status is the
    first that is not ok, and the residual the larger one.

    >>> from hetjax.models.supermarket import compare_with_independent
    >>> from hetjax.processes import exponential, poisson
    >>> found = compare_with_independent(poisson(0.9), 100, 2, exponential(1.0)).value
    >>> [round(float(x), 4) for x in found]
    [9.0, 2.3527, 3.8255]
    """
    alone = independent_queues(arrivals, N, service)
    shared = fixed_point(Params.from_map(arrivals, d, service), levels=levels)
    first, second = alone.value.mean_number, shared.value.mean_queue_length
    status = jnp.where(alone.status == int(Status.OK), shared.status, alone.status)
    return Solution(Comparison(first, second, first / second), status, jnp.maximum(alone.residual, shared.residual),
                    shared.iterations)
