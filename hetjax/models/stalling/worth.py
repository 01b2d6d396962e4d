"""What the n-th slow server is worth, and how many are worth having at a price; endless waiting line, best buffers.

With an endless line nobody is lost: the mean number is the arrival rate times the mean response time, so both ask for
the same buffer, and a customer in the system may be given the cost 1 per unit time. With N_k the mean number with k
slow servers and the best whole buffer for them, the n-th one is worth N_{n-1} - N_n: the price per unit time at which
having it or not is the same. At the price c the best number k minimises N_k + c k; it is found by comparing all of
0..n, whatever the shape of N_k.

At low load the slow servers gain ever less (like q^K), below the rounding of N itself. While they save less than half,
N_{n-1} - N_n = N_0 (g_n - g_{n-1}) with the gains g_k = 1 - N_k / N_0 of :mod:`.buffer`, which keep their digits; near
q = 1, where N_0 is large and most of it is saved, the difference itself does.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.registry import Axis, Metric, Model, evaluate
from hetjax.models.stalling.buffer import LARGEST, point_optimum
from hetjax.models.stalling.params import AXES as STALLING_AXES
from hetjax.numerics import erlang_c
from hetjax.numerics.counting import Count
from hetjax.result import OptimumStatus, Status

Array = jax.Array
_TIED = 64  # costs nearer to each other than this many roundings are the same


class ByServers(NamedTuple):
    """Arrays (bound + 1,) over k = 0, 1, .. slow servers, each with its best whole buffer.

    ``buffer``: places. ``number``: N_k, infinite without steady state. ``saved``: N_0 - N_k, infinite where N_0 is.
    """

    buffer: Array
    number: Array
    saved: Array


def by_servers(q: Array, r: Array, m: Count, bound: int) -> ByServers:
    """:class:`ByServers` at one point for k up to ``bound``; differentiable in q and r at fixed buffers."""
    endless, largest = jnp.full_like(q, jnp.inf), jnp.full_like(q, LARGEST)

    def one(k: Array) -> tuple[Array, Array, Array]:
        found = point_optimum(q, r, endless, largest, m, Count(k, max(bound, 1)), enumerate_up_to=0)
        stable = found.optimum_status != int(OptimumStatus.FAILED)
        gain = jnp.where(k > 0, found.gain_never, 0)
        return (jnp.where(stable, found.K.astype(q.dtype), jnp.nan), jnp.where(stable, found.mean_number, jnp.inf),
                jnp.where(stable, gain, 0))

    buffer, number, gain = jax.vmap(one)(jnp.arange(bound + 1, dtype=jnp.int32))
    alone = q < 1
    load = jnp.where(alone, q, 0.5)
    without = m.real(q) * load + erlang_c(m.real(q) * load, m) * load / (1 - load)  # M/M/m
    number = number.at[0].set(jnp.where(alone, without, jnp.inf))
    return ByServers(buffer, number, jnp.where(alone, without * gain, jnp.inf))


AXES = (
    *(axis for axis in STALLING_AXES if axis.name in ("q", "r", "m")),
    Axis("n", 1, 512, "servers", "number of slow servers; best_servers looks at 0..n", integer=True, shape=True),
    Axis("price", 0.0, 1e12, "customers", "cost of having a slow server, per unit time, where a customer in the system"
         " costs 1", default=0.0),
)
_ALONE = "no steady state with n - 1 slow servers"
_NO_ONE = "no steady state without slow servers"
METRICS = (
    Metric("optimal_buffer", "customers", "best whole number of places with n slow servers", differentiable=False),
    Metric("mean_number", "customers", "mean number in system with n slow servers and that buffer"),
    Metric("worth", "customers", "by how much the n-th slow server lowers the mean number, each with the best buffer",
           _ALONE),
    Metric("worth_relative", "1", "the same as a share of the mean number with n - 1", _ALONE),
    Metric("worth_all", "customers", "by how much all n lower it together", _NO_ONE),
    Metric("best_servers", "servers", "number of slow servers up to n that minimises mean number + price * number",
           differentiable=False),
    Metric("best_buffer", "customers", "best whole number of places with as many", differentiable=False),
    Metric("best_cost", "customers", "mean number + price * number there"),
    Metric("tied", "1", "numbers of slow servers that cost as little, but for rounding", differentiable=False),
)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """The asked metrics at one point, for the sweep engine."""
    q, r, price = values["q"], values["r"], values["price"]
    m, n = Count.of(values["m"], bounds.get("m")), Count.of(values["n"], bounds.get("n"))
    legal = ~(jnp.asarray(m.value > m.bound) | jnp.asarray(n.value > n.bound) | jnp.asarray(n.value < 1)
              | jnp.asarray(m.value < 1) | jnp.asarray(m.value > 512) | jnp.asarray(n.value > 512))
    if n.bound > 512 or m.bound > 512 or m.bound < 1:  # nothing to compute; the masks above say so too
        return dict.fromkeys(metrics, jnp.full_like(q, jnp.nan)), jnp.full((), int(Status.OUT_OF_DOMAIN), jnp.uint8)
    found = by_servers(q, r, m, n.bound)
    k = jnp.arange(len(found.number), dtype=jnp.int32)
    last = jnp.clip(jnp.asarray(n.value, jnp.int32), 1, n.bound)
    stable = jnp.isfinite(found.number[last])
    before, here = found.number[last - 1], found.number[last]
    # what little is saved would be lost in N_0, and N_0 where most of it is saved
    little = jnp.isfinite(found.saved[last]) & (found.saved[last] < here)
    shifted = jnp.where(little, -found.saved, found.number) + price * k.astype(q.dtype)
    shifted = jnp.where((k <= last) & jnp.isfinite(found.number), shifted, jnp.inf)
    best = jnp.argmin(shifted)
    least = shifted[best]
    tied = jnp.abs(shifted - least) <= _TIED * jnp.finfo(q.dtype).eps * jnp.maximum(jnp.abs(least), price)
    common = jnp.where(little, found.number[0], 0)
    alone, saved = jnp.isfinite(before), [jnp.where(little, x, 0) for x in (found.saved[last - 1], found.saved[last])]
    gained = jnp.where(little, saved[1] - saved[0], jnp.where(alone, before, 0) - jnp.where(stable, here, 0))
    results = {
        "optimal_buffer": found.buffer[last], "mean_number": here,
        "worth": jnp.where(alone, gained, jnp.nan),
        "worth_relative": jnp.where(alone, gained / jnp.where(alone, before, 1), jnp.nan),
        "worth_all": jnp.where(jnp.isfinite(found.saved[last]), found.saved[last], jnp.nan),
        "best_servers": best.astype(q.dtype),
        "best_buffer": jnp.where(best > 0, found.buffer[best], 0),
        "best_cost": common + least,
        "tied": jnp.sum(tied).astype(q.dtype),
    }
    code = jnp.where(stable, int(Status.OK), int(Status.UNSTABLE))
    code = jnp.where(legal, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)
    kept = code == int(Status.OK)
    return {name: jnp.where(kept, results[name], jnp.nan) for name in metrics}, code


MODEL = Model(name="stalling_worth", version=2, title="Stalling queue: what slow servers are worth at a price",
              axes=AXES, metrics=METRICS, point=point,
              golden=(({"q": 0.7, "r": 20.0, "m": 5, "n": 2, "price": 0.0}, {"mean_number": 4.38160762678}),))


def worth_of_slow_servers(q: Any, r: Any, m: Any, n: Any, **more: Any) -> Array:
    """By how much the n-th of n >= 1 slow servers lowers the mean number in system, in customers; endless line.

    Each number of slow servers with its best whole buffer. q = lambda/(m mu1) in [1e-8, 1e4], r = mu1/mu2 in
    [1e-3, 1e9]; arrays broadcast (``max_m``, ``max_n`` bound traced counts). NaN outside the domain, without steady
    state, and where n - 1 of them have none, so that the n-th is worth anything. Divide by the arrival rate for the
    mean response time. Differentiable in q and r (envelope theorem). n + 1 searches of the best buffer a point.

    >>> from hetjax.models.stalling.worth import worth_of_slow_servers
    >>> [f"{float(worth_of_slow_servers(q, 20.0, 5, 2)):.2e}" for q in (0.3, 0.9)]
    ['3.55e-38', '2.77e-01']
    """
    return evaluate(MODEL, q=q, r=r, m=m, n=n, metrics=["worth"], **more)["worth"]
