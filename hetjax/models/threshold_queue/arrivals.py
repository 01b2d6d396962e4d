"""A bursty arrival process of two phases by scalar parameters, for sweeps.

An MMPP: quiet phase 0 and burst phase 1. ``burst_ratio`` b = arrival rate in a burst over that outside, ``burst_share``
s = fraction of time in bursts, ``burst_length`` = mean length of a burst (exponential), and the mean arrival rate:

    rate outside = arrival_rate/(1 - s + s b),   burst -> quiet at 1/length,   quiet -> burst at s/((1 - s) length).

b = 1 is a Poisson process; long bursts make interarrival times correlated.
"""

import jax
import jax.numpy as jnp

Array = jax.Array


def bursty(arrival_rate: Array, burst_ratio: Array, burst_share: Array, burst_length: Array) -> tuple[Array, Array]:
    """(D0, D1), (2, 2) each, of scalars of one dtype; phase 1 is the burst. Differentiable; nothing is checked.

    >>> import jax.numpy as jnp
    >>> from hetjax.processes import MAP
    >>> D0, D1 = bursty(*(jnp.asarray(x) for x in (0.9, 4.0, 0.25, 10.0)))
    >>> round(float(MAP(D0, D1).rate()), 12), [round(float(x), 4) for x in jnp.diag(D1)]
    (0.9, [0.5143, 2.0571])
    """
    quiet = arrival_rate / (1 - burst_share + burst_share * burst_ratio)
    leave = 1 / burst_length
    enter = burst_share / ((1 - burst_share) * burst_length)
    rates = jnp.stack([quiet, quiet * burst_ratio])
    moves = jnp.stack([enter, leave])
    zero = jnp.zeros_like(quiet)
    D1 = jnp.diag(rates)
    return jnp.stack([jnp.stack([zero, enter]), jnp.stack([leave, zero])]) - jnp.diag(moves + rates), D1
