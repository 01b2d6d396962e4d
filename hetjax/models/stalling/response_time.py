"""Response and waiting time of the stalling queue's accepted customers: survival, density, moments, percentiles.

The waiting time ends where service starts; the response time ends with the service. ``server`` picks the customers
served by a fast or by a slow server. Times are in the unit of 1/mu1. Service within the buffer and the line is first
come, first served. The derivation is in response_law.py (who waits for what) and response_contour.py (the integrals).

Accuracy in float64: 1e-13 relative for K, M <= 1e4, growing to eps t density/survival (the rounding of t) at 1e7, in
the tail as well as in the middle; derivatives 1e-9. In float32: 1e-5 for K, M <= 1000 where the survival is above 1e-6,
1e-4 at 10,000, and eps32 t density/survival beyond, which near the steep part of the law of a long full line is large.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hetjax.models.registry import Metric
from hetjax.models.stalling.params import Params, point_status
from hetjax.models.stalling.response_law import Kind, Law, Server, make_law, tail_and_density
from hetjax.models.stalling.response_moments import mean_and_variance
from hetjax.models.stalling.response_percentile import solve_percentile
from hetjax.numerics.counting import Count
from hetjax.result import Solution, Status


class Moments(NamedTuple):
    """``mean`` (time), ``second_moment`` and ``variance`` (time^2)."""

    mean: jax.Array
    second_moment: jax.Array
    variance: jax.Array


def response_time_survival(params: Params, t: ArrayLike, kind: Kind = "response", server: Server = "any") -> jax.Array:
    """P(time > t) of an accepted customer; ``t`` in the unit of 1/mu1, broadcast against the leaves of ``params``.

    1 for t < 0; at t = 0 the probability of waiting at all if ``kind`` is "waiting". NaN where :func:`status` is not
    OK. ValueError for an unknown kind or server and for the slow servers of n = 0. Differentiable in q, r, K, M, mu1,
    t, in both modes, under vmap. O(m n) a point of ``params`` and O(1) a time, whatever K and M.

    >>> from hetjax.models.stalling import Params, response_time_survival
    >>> p = Params(q=0.8, r=3.0, K=2.0, M=50.0, m=5, n=2)
    >>> round(float(response_time_survival(p, 2.0)), 4), round(float(response_time_survival(p, 0.0, kind="waiting")), 4)
    (0.2089, 0.3926)
    """
    return _at("survival", params, t, kind, server)


def response_time_density(params: Params, t: ArrayLike, kind: Kind = "response", server: Server = "any") -> jax.Array:
    """The density of the time at ``t`` (1/time); a waiting time has besides an atom at 0. As
    :func:`response_time_survival`.

    >>> from hetjax.models.stalling import Params, response_time_density
    >>> round(float(response_time_density(Params(q=0.8, r=3.0, K=2.0, M=50.0, m=5, n=2), 2.0)), 4)
    0.1754
    """
    return _at("density", params, t, kind, server)


def response_time_moments(params: Params, kind: Kind = "response", server: Server = "any") -> Moments:
    """Mean, second moment and variance, of the shape of the leaves of ``params``; O(m n).

    NaN where :func:`status` is not OK. The mean response time is N/throughput (Little). ValueErrors as
    :func:`response_time_survival`.

    >>> from hetjax.models.stalling import Params, response_time_moments
    >>> moments = response_time_moments(Params(q=0.8, r=3.0, K=2.0, M=50.0, m=5, n=2))
    >>> round(float(moments.mean), 4), round(float(moments.variance), 4)
    (1.3358, 1.926)
    """
    return _at("moments", params, 0.0, kind, server)


def response_time_percentile(params: Params, p: ArrayLike, kind: Kind = "response",
                             server: Server = "any") -> jax.Array:
    """The time that a fraction ``p`` in (0, 1) of the customers does not exceed, broadcast against the leaves of
    ``params``.

    0 where the waiting time's atom holds ``p``. Differentiable once in q, r, K, M, mu1 and p, in both modes, by the
    implicit function theorem. NaN where :func:`status` is not OK or p outside (0, 1); :func:`solve_response_time`
    gives the status as well. ValueErrors as :func:`response_time_survival`, and for a concrete p outside (0, 1).

    >>> from hetjax.models.stalling import Params, response_time_percentile
    >>> round(float(response_time_percentile(Params(q=0.8, r=3.0, K=2.0, M=50.0, m=5, n=2), 0.95)), 4)
    3.7925
    """
    return solve_response_time(params, p, kind, server).value


def solve_response_time(params: Params, p: ArrayLike, kind: Kind = "response", server: Server = "any") -> Solution:
    """:func:`response_time_percentile` as a Solution: value, status, residual in the tail, iterations.

    >>> from hetjax.models.stalling import Params, solve_response_time
    >>> int(solve_response_time(Params(q=0.8, r=3.0, K=2.0, M=50.0, m=5, n=2), 0.95).status)
    1
    """
    if not isinstance(p, jax.core.Tracer) and not np.all((np.asarray(p) > 0) & (np.asarray(p) < 1)):
        raise ValueError(f"p = {p!r} is outside its domain (0, 1); give a probability like 0.95")

    return _at("percentile", params, p, kind, server)


def _survival(law: Law, t: jax.Array, mu1: jax.Array, kind: Kind, server: Server, n: Count) -> jax.Array:
    return tail_and_density(law, t * mu1, kind, server, n)[0]


def _density(law: Law, t: jax.Array, mu1: jax.Array, kind: Kind, server: Server, n: Count) -> jax.Array:
    return tail_and_density(law, t * mu1, kind, server, n)[1] * mu1


def _moments(law: Law, _: jax.Array, mu1: jax.Array, kind: Kind, server: Server, n: Count) -> Moments:
    mean, variance = mean_and_variance(law, kind, server, n)
    mean, variance = mean / mu1, variance / (mu1 * mu1)
    return Moments(mean, variance + mean * mean, variance)


def _percentile(law: Law, p: jax.Array, mu1: jax.Array, kind: Kind, server: Server, n: Count) -> Solution:
    inside = (p > 0) & (p < 1)
    found = solve_percentile(law, jnp.where(inside, p, 0.5), kind, server, n)
    status = jnp.where(inside, found.status, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)
    return found._replace(value=jnp.where(inside, found.value / mu1, jnp.nan), status=status)


_FUNCTIONS: dict[str, Callable[..., Any]] = {"survival": _survival, "density": _density, "moments": _moments,
                                             "percentile": _percentile}


def _at(what: str, params: Params, x: ArrayLike, kind: Kind, server: Server) -> Any:
    if kind not in get_args(Kind):
        raise ValueError(f"kind = {kind!r} is unknown; choose from {', '.join(get_args(Kind))}")
    if server not in get_args(Server):
        raise ValueError(f"server = {server!r} is unknown; choose from {', '.join(get_args(Server))}")
    if server == "slow" and params.n == 0:
        raise ValueError("server = 'slow' has no customers where n = 0; take n >= 1 or another server")
    return _compiled_at(what, kind, server, params, jnp.asarray(x).astype(params.q.dtype))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _compiled_at(what: str, kind: Kind, server: Server, params: Params, at: jax.Array) -> Any:
    """The function called ``what`` over the broadcast shape of the leaves and ``at``; floats are NaN where not OK."""
    m, n = Count(params.m), Count(params.n)
    q, r, K, M, mu1 = jnp.broadcast_arrays(params.q, params.r, params.K, params.M, params.mu1)
    given = q.shape
    code = point_status(q, r, K, M, params.m, params.n, mu1)

    def build(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array) -> Law:
        return make_law(q, r, K, M, m, n, server)

    def guarded(law: Law, x: jax.Array, mu1: jax.Array, code: jax.Array) -> Any:
        good = code == int(Status.OK)
        out = _FUNCTIONS[what](law, x, mu1, kind, server, n)
        if isinstance(out, Solution):
            value, status = jnp.where(good, out.value, jnp.nan), jnp.where(good, out.status, code)
            return out._replace(value=value, status=status)
        return jax.tree.map(lambda v: jnp.where(good, v, jnp.nan), out)

    law = build(q, r, K, M) if not given else jax.vmap(build)(*(leaf.reshape(-1) for leaf in (q, r, K, M)))
    shape = jnp.broadcast_shapes(given, at.shape)
    if not shape:
        return guarded(law, at, mu1, code)

    def flat(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(leaf.reshape((1,) * (len(shape) - len(given)) + given), shape).reshape(-1)

    at = jnp.broadcast_to(at.reshape((1,) * (len(shape) - at.ndim) + at.shape), shape).reshape(-1)
    out = jax.vmap(guarded)(jax.tree.map(flat, law), at, flat(mu1), flat(code))
    return jax.tree.map(lambda v: v.reshape(shape), out)


_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_NAMES: dict[str, tuple[Kind, Server, float]] = {}
_CUSTOMERS: dict[Server, str] = {"any": "an accepted customer", "fast": "a customer served by a fast server",
                                 "slow": "a customer served by a slow server"}


def _declare() -> tuple[Metric, ...]:
    declared = []
    for server, who in _CUSTOMERS.items():
        for kind in get_args(Kind):
            for label, p in _PERCENTILES.items():
                name = f"{kind}_time_{label}" + ("" if server == "any" else f"_{server}")
                _NAMES[name] = (kind, server, p)
                declared.append(Metric(name, "time", f"{100 * p:g} % quantile of the {kind} time of {who}",
                                       "n = 0" if server == "slow" else "", expensive=True))
    return tuple(declared)


RESPONSE_METRICS = _declare()


def response_metric_values(values: Mapping[str, Any], names: tuple[str, ...], m: Count, n: Count,
                           ) -> tuple[dict[str, jax.Array], jax.Array]:
    """The :data:`RESPONSE_METRICS` called ``names`` at one unchecked point, and OK or the worst status of the searches.

    Slow ones are NaN at n = 0. Percentiles of one kind of time are searched side by side.
    """
    q, r, K, M, mu1 = (values[name] for name in ("q", "r", "K", "M", "mu1"))
    groups: dict[tuple[Kind, Server], list[str]] = {}
    for name in names:
        groups.setdefault(_NAMES[name][:2], []).append(name)
    found: dict[str, jax.Array] = {}
    status = jnp.full((), int(Status.OK), jnp.uint8)
    for (kind, server), members in groups.items():
        if server == "slow" and n.static and n.value == 0:
            found |= dict.fromkeys(members, jnp.full_like(q, jnp.nan))
            continue
        law = make_law(q, r, K, M, m, n, server)
        p = jnp.asarray([_NAMES[name][2] for name in members], q.dtype)

        def solve(p: jax.Array, law: Law = law, kind: Kind = kind, server: Server = server) -> Solution:
            return solve_percentile(law, p, kind, server, n)

        solved = jax.vmap(solve)(p)
        defined = jnp.asarray(n.value) > 0 if server == "slow" else jnp.asarray(True)
        for i, name in enumerate(members):
            found[name] = jnp.where(defined, solved.value[i] / mu1, jnp.nan)
        status = jnp.maximum(status, jnp.where(defined, jnp.max(solved.status), int(Status.OK)).astype(jnp.uint8))
    return found, status
