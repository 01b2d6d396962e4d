"""Joining rules as data: how an arrival chooses its queue, in the mean field and among N queues.

``join(params, u)``: u_0..u_K -> r_0..r_{K-1}, the rate at which one given queue of k customers is joined (mean field).
``chance(params, n, N)``: n_1..n_K (numbers of queues with at least k customers) -> the probability that the queue
joined has at least k customers, exactly, for N queues. Mean field, refinement, Newton's iteration and simulation take a
rule as it is; among queues of one length all rules choose at random.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.supermarket.mean_field import Join, divided_power, shortest_of_d
from hetjax.models.supermarket.params import Params
from hetjax.processes.checks import require

Array = jax.Array
Chance = Callable[[Params, Array, Array], Array]


class Policy(NamedTuple):
    """A joining rule: its mean field and its exact form for N queues."""

    join: Join
    chance: Chance


def power(share: Array, d: Array) -> Array:
    """share^d for real d with 0^d = 0; for d between two whole numbers the mixture of both powers that has mean d."""
    low = jnp.floor(d)
    log = jnp.log(jnp.maximum(share, float(jnp.finfo(share.dtype).tiny)))
    mixed = (low + 1 - d) * jnp.exp(low * log) + (d - low) * jnp.exp((low + 1) * log)
    return jnp.where(share > 0, mixed, 0)


def _with_replacement(params: Params, n: Array, N: Array) -> Array:
    return power(n / N, params.d)


def without_replacement(choices: int) -> Policy:
    """The shortest of ``choices`` different queues. In the mean field the same as with replacement.

    >>> import jax.numpy as jnp
    >>> from hetjax.models.supermarket import Params
    >>> rule = without_replacement(2)
    >>> rule.chance(Params(0.5, 2, [1.0], [[-1.0]]), jnp.array([3.0, 1.0]), jnp.asarray(4.0)).tolist()
    [0.5, 0.0]
    """
    require(isinstance(choices, int) and choices >= 1, "choices", choices, "a whole number >= 1")
    return Policy(shortest_of_d, _different(choices))


def _different(choices: int) -> Chance:
    def chance(params: Params, n: Array, N: Array) -> Array:
        product = jnp.ones_like(n)
        for i in range(choices):
            product = product * jnp.maximum(n - i, 0) / (N - i)
        return product

    return chance


def one_plus_beta(beta: float) -> Policy:
    """With probability ``beta`` the shortest of d, else one queue at random (the (1 + beta)-choice process).

    >>> import jax.numpy as jnp
    >>> from hetjax.models.supermarket import Params
    >>> one_plus_beta(0.5).join(Params(0.8, 2, [1.0], [[-1.0]]), jnp.array([1.0, 0.5])).round(12).tolist()
    [1.0]
    """
    require(0 <= beta <= 1, "beta", beta, "in [0, 1]")

    def join(params: Params, u: Array) -> Array:
        return params.arrival_rate * (beta * divided_power(u[:-1], u[1:], params.d) + (1 - beta))

    def chance(params: Params, n: Array, N: Array) -> Array:
        return beta * power(n / N, params.d) + (1 - beta) * n / N

    return Policy(join, chance)


def _join_idle(params: Params, u: Array) -> Array:
    idle = 1 - u[1]
    r = params.arrival_rate / jnp.where(idle > 0, idle, 1)
    return jnp.zeros_like(u[:-1]).at[0].set(jnp.where(idle > 0, r, 0))


def _chance_idle(params: Params, n: Array, N: Array) -> Array:
    return jnp.where(n[0] >= N, n / N, 0)


SHORTEST_OF_D = Policy(shortest_of_d, _with_replacement)
JOIN_IDLE_QUEUE = Policy(_join_idle, _chance_idle)  # an idle queue if there is one, else one at random; d is not read
