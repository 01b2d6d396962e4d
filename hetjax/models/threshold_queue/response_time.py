"""The law of the response time, first come first served: two servers, infinite buffer.

A customer's wait depends on those behind as well, for newcomers can start the slow server, which takes the head of the
queue. So a tagged customer is followed through states (a, b, s, f): a customers ahead in the queue, b behind, s = 1
where the slow server is busy, f the phase of the arrivals; a + 1 + b wait. b matters only below the threshold and is
counted up to max_threshold - 1, from where on the slow server always starts. Per unit time

    arrival         b -> b + 1                        D1[f, f']
    phase           f -> f'                           D0[f, f']
    fast server     a -> a - 1, or own service        mu1
    slow server     s -> 0                            mu2, s = 1

and where s = 0 afterwards the slow server starts by the rule of :mod:`.chain`: a -> a - 1, s = 1, or the own service
there. Then follow the service, exponential at mu1 or mu2, and the departure. Uniformised, with b_n the probability not
to have left after n steps, P(response > t) is a Poisson mixture of the b_n: sums of positive terms, so that small
tails keep their digits. The state found on arrival comes from the stationary law.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc.time_law import TimeLaw
from hetjax.models.threshold_queue.chain import start_probability, top_level
from hetjax.models.threshold_queue.law import Law
from hetjax.models.threshold_queue.params import Params

Array = jax.Array
CHECKPOINTED = 32  # steps of the chain between two states that reverse differentiation keeps


class _Tagged(NamedTuple):
    """Probabilities of the tagged customer: waiting with the slow server idle or busy (a, b, f), in service."""

    idle: Array
    busy: Array
    fast: Array
    slow: Array


def response_time(params: Params, law: Law, levels: int = 256, steps: int = 1024) -> TimeLaw:
    """The law of the time from arrival to departure, from the stationary ``law`` of :func:`solve`.

    ``levels`` (static): customers ahead that are told apart; what lies beyond is ``missing``. ``steps`` (static) of
    uniformisation at rate R = mu1 + mu2 + max |D0_ff|: tails are right while R t + 10 sqrt(R t) < steps. Percentiles
    say not_converged where either was too small. Differentiable; O(steps levels max_threshold p^2).

    >>> from hetjax import threshold_queue
    >>> p = threshold_queue.Params.from_rate(0.5, 1.0, 1.0, thresholds=1)  # M/M/2
    >>> law = threshold_queue.response_time(p, threshold_queue.solve(p).value, levels=64)
    >>> round(float(law.percentile(0.9).value), 6), round(float(law.mean()), 6)
    (2.434302, 1.066667)
    """
    if params.slow_servers != 1 or params.capacity is not None:
        raise ValueError(f"mu2 has {params.slow_servers} rates, capacity = {params.capacity}: response_time is for one"
                         " slow server and an infinite buffer")
    top, bound, dtype = top_level(params), params.max_threshold, law.levels.dtype
    if levels <= top:
        raise ValueError(f"levels = {levels}: must be more than {top}, the level from which on both servers are busy")
    mu1, mu2 = params.mu1, params.slow_rates[0]
    stay = jnp.diag(params.D0)
    quiet = params.D0 - jnp.diag(stay)
    rate = mu1 + mu2 + jnp.max(-stay)
    per = 1 / rate
    waiting = (jnp.arange(levels)[:, None] + jnp.arange(bound)[None] + 1).astype(dtype)[:, :, None]
    start = start_probability(waiting, params.thresholds[0][None, None])

    def ahead(v: Array) -> Array:  # one customer ahead less; row 0 leaves
        return jnp.concatenate([v[1:], jnp.zeros_like(v[:1])])

    def behind(v: Array) -> Array:  # one more behind, the last column collects
        return jnp.concatenate([jnp.zeros_like(v[:, :1]), v[:, :-2], v[:, -2:-1] + v[:, -1:]],
                               axis=1) if bound > 1 else v

    def land(v: Array) -> _Tagged:
        """The rule for the states (rows, b, f) with the slow server idle."""
        rows = v.shape[0]
        begun = v * start[:rows]
        rest = (v - begun)[:bound] if rows > bound else v - begun
        moved = jnp.concatenate([ahead(begun), jnp.zeros((levels - rows, *v.shape[1:]), dtype)])
        return _Tagged(rest, moved, jnp.zeros((), dtype), jnp.sum(begun[0]))

    def step(state: _Tagged, _: None) -> tuple[_Tagged, Array]:
        idle, busy, fast, slow = state
        woken = land((behind(idle @ params.D1) + idle @ quiet) * per)
        freed = land(busy * (mu2 * per)[None, None, None])
        kept = (1 + (stay - mu1) * per)[None, None]
        new_idle = idle * kept + ahead(idle) * (mu1 * per)[None, None, None] + woken.idle + freed.idle
        new_busy = (busy * (kept - mu2[None, None, None] * per[None, None, None])
                    + (ahead(busy) * mu1[None, None, None] + behind(busy @ params.D1) + busy @ quiet)
                    * per[None, None, None] + woken.busy + freed.busy)
        new_fast = fast * (1 - mu1 * per) + (jnp.sum(idle[0]) + jnp.sum(busy[0])) * (mu1 * per)
        new_slow = slow * (1 - mu2 * per) + woken.slow + freed.slow
        survives = jnp.sum(idle) + jnp.sum(busy) + fast + slow
        return _Tagged(new_idle, new_busy, new_fast, new_slow), survives

    first = _on_arrival(params, law, levels, land)

    def block(state: _Tagged, _: None) -> tuple[_Tagged, Array]:
        return lax.scan(step, state, None, length=CHECKPOINTED)

    _, survival = lax.scan(jax.checkpoint(block), first, None, length=-(-(steps + 1) // CHECKPOINTED))
    survival = survival.reshape(-1)[:steps + 1]
    return TimeLaw(rate, survival, lax.stop_gradient(jnp.abs(1 - survival[0])))


def _on_arrival(params: Params, law: Law, levels: int, land: Callable[[Array], _Tagged]) -> _Tagged:
    """The tagged customer just after the arrival."""
    dtype, bound = law.levels.dtype, params.max_threshold
    top = law.levels.shape[0] - 1
    joined = params.D1 / params.arrival_rate
    alone = law.levels[:, 0] @ joined  # x = n customers in the fast server and the queue
    both = law.levels[1:, 1] @ joined  # x = n - 1

    def climb(v: Array, _: None) -> tuple[Array, Array]:
        return v @ law.R, v @ joined

    _, far = lax.scan(climb, law.beyond, None, length=levels - top + 1)
    ahead = jnp.concatenate([both[1:], far])[:levels]

    def without_others_behind(v: Array) -> Array:
        return jnp.concatenate([v[:, None], jnp.zeros((v.shape[0], bound - 1, v.shape[1]), dtype)], axis=1)

    landed = land(without_others_behind(alone[1:bound + 1]))
    served = jnp.sum(alone[0]) + jnp.sum(both[0])
    return landed._replace(busy=landed.busy + without_others_behind(ahead), fast=served)
