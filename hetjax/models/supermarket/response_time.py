"""The law of the response time and of the waiting time in the mean field, first come first served.

An arrival joins a queue of exactly m customers in service phase i with probability y_i = r_m x_{m,i} / lambda, an empty
one with probability 1 - u_1^d. It then needs m + 1 services, the first of which is in phase i (or starts afresh). So
the response time is the absorption time of the chain that starts in (m + 1, i) by y, moves by T inside a level and from
(n, i) to (n - 1, j) at rate t0_i alpha_j; the waiting time the same with m services. Uniformised at rate
R = max_i |T_ii|, with b_n the mass not absorbed after n steps,

    P(response > x) = sum_n e^(-Rx) (Rx)^n / n! b_n.

All b_n are found once; each x then costs one sum. Nothing is subtracted, so small tails keep their relative accuracy.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc.time_law import TimeLaw
from hetjax.models.supermarket.fixed_point import FixedPoint
from hetjax.models.supermarket.params import Params

Array = jax.Array


def found_by_arrivals(params: Params, found: FixedPoint) -> Array:
    """y (levels, phases): the probability that an arrival joins a queue of exactly m = 1, 2, ... customers whose
    service in progress is in phase i. Sums to u_1^d, the probability of waiting.
    """
    return found.join_rates[:, None] * found.exactly / params.arrival_rate


def response_time(params: Params, found: FixedPoint, steps: int = 1024) -> TimeLaw:
    """The law of the time from arrival to departure; ``steps`` (static) of uniformisation, O(steps levels phases^2).

    Source: the uniformisation is the usual one; percentiles checked against an independent calculation.
    """
    joined = found_by_arrivals(params, found)
    empty = -jnp.expm1(params.d * found.log_tails[0]) * params.alpha
    return _law(params, jnp.concatenate([empty[None], joined]), steps, jnp.ones((), joined.dtype))


def waiting_time(params: Params, found: FixedPoint, steps: int = 1024) -> TimeLaw:
    """The law of the time from arrival to the start of service; P(wait > 0) = u_1^d."""
    return _law(params, found_by_arrivals(params, found), steps, found.p_wait)


@functools.partial(jax.jit, static_argnums=2)
def _law(params: Params, start: Array, steps: int, whole: Array) -> TimeLaw:
    rate = jnp.max(-jnp.diag(params.T))
    inside = jnp.eye(params.phases, dtype=rate.dtype) + params.T / rate
    leave = params.exit_rates / rate

    def step(v: Array, _: None) -> tuple[Array, Array]:
        done = jnp.concatenate([v[1:] @ leave, jnp.zeros((1,), v.dtype)])
        return v @ inside + done[:, None] * params.alpha[None], jnp.sum(v)

    _, survival = lax.scan(step, start, None, length=steps + 1)
    return TimeLaw(rate, survival, lax.stop_gradient(jnp.abs(whole - jnp.sum(start))))
