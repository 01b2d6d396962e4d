"""Who waits for what: the mixture behind the response time of accepted customers, and its value at one time.

An accepted arrival sees the stationary state, given that it is not the full one (PASTA). In units of mu1, with b = q m,
nu = m + n/r and phi = m/nu, and all times independent:

    level l < m                     serves at once,                                                  Exp(1)
    level m+k, k = 0..K-1           waits Erlang(k+1, m),                                            then Exp(1)
    level m+K, a slow server free   serves at once,                                                  Exp(1/r)
    w = 0..M-1 in the line          waits Erlang(w+1, nu), then with probability phi Erlang(K, m),   then Exp(1)
                                    else nothing more,                                               then Exp(1/r)

The levels have weights 1/p1 (below m, together), q^k, q^K (1 - 1/h_0) and q^K rho^w/h_0. They are carried as
logarithms, in a frame where the heaviest ones are of order 1, and less that of the mass of the customers asked for. A
rare kind has its own law: q^K, which can be 1e-1000000, is left out for those of slow servers, also in the limit of an
endless buffer.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.models.stalling.full_level import full_buffer
from hetjax.models.stalling.load import log_rho
from hetjax.models.stalling.response_contour import (
    Passage,
    Queue,
    Stage,
    exp_difference,
    growth_over,
    late_passage,
    passage,
)
from hetjax.numerics.counting import Count
from hetjax.numerics.erlang import log_tail
from hetjax.numerics.geometric import finite_terms
from hetjax.numerics.logarithm import log

Kind = Literal["response", "waiting"]
Server = Literal["any", "fast", "slow"]


class Law(NamedTuple):
    """One point's mixture in units of mu1, for the customers of one server type or any.

    ``below``, ``free``: ln of the weights of those served at once by a fast and by a slow server. ``buffer``,
    ``line_fast``, ``line_slow``: those who wait; the line's weights are still to be multiplied by ``to_fast``,
    ``to_slow``. ``stage``: the buffer that the line's fast customers pass. Where ``server`` is "slow" the parts of
    the fast ones mean nothing.
    """

    below: jax.Array
    free: jax.Array
    buffer: Queue
    line_fast: Queue
    line_slow: Queue
    stage: Stage
    to_fast: jax.Array
    to_slow: jax.Array
    mu: jax.Array


def make_law(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, m: Count, n: Count, server: Server) -> Law:
    """The mixture at one point, unchecked; O(m n), independent of K and M."""
    fast_servers, slow_servers = m.real(q), n.real(q)
    places, line_places = finite_terms(K), finite_terms(M)
    b = q * fast_servers
    mu = 1 / r
    log_q, log_load = log(q), log_rho(q, r, fast_servers, slow_servers)
    nu = fast_servers + slow_servers * mu
    to_fast, to_slow = fast_servers / nu, slow_servers * mu / nu
    full = full_buffer(q, r, K, m, n)
    # the frame of the heaviest states: level m, or the full buffer, or the full line at ln weight 0
    climb, growth = places * log_q, line_places * log_load
    over = jnp.ones((), bool) if server == "slow" else log_q > 0
    end = jnp.where(over, 0, climb)
    first = end - full.log_h0
    last = first + growth
    saturated = (log_load > 0) & (last > 0)
    first, last = jnp.where(saturated, -growth, first), jnp.where(saturated, 0, last)
    end = jnp.where(saturated, first + full.log_h0, end)
    start = jnp.where(over | saturated, end - climb, 0)
    below = start - log_tail(b, m)
    # the share of level m+K with a slow server free, ln of 1 - 1/h_0
    free_share = full.slow * (mu / b)
    free = end + log(jnp.maximum(free_share, np.finfo(q.dtype).tiny))
    one = jnp.ones_like(q)
    gap = -nu * jnp.expm1(log_load)
    m_rate = fast_servers * one
    law = Law(below, free, Queue(start, end, log_q, places, m_rate, b, fast_servers * (1 - q), one),
              Queue(first, last, log_load, line_places, nu, b, gap, one),
              Queue(first, last, log_load, line_places, nu, b, gap, mu),
              Stage(places, m_rate), to_fast, to_slow, mu)
    return _shift(law, _log_mass(law, server, n))


def _log_mass(law: Law, server: Server, n: Count) -> jax.Array:
    """ln of the total weight of the customers who end with ``server``."""
    tops = jax.lax.stop_gradient(_peaks(law, server))
    top = jnp.max(jnp.stack(tops))
    fast, slow = masses(_shift(law, top), n)
    total = {"any": fast + slow, "fast": fast, "slow": slow}[server]
    return top + jnp.log(total)


def _peaks(law: Law, server: Server) -> list[jax.Array]:
    line = jnp.maximum(law.line_slow.log_first, law.line_slow.log_last)
    fast = [law.below, jnp.maximum(law.buffer.log_first, law.buffer.log_last), line]
    slow = [law.free, line + jnp.log(jnp.maximum(law.to_slow, np.finfo(line.dtype).tiny))]
    return {"any": fast + slow, "fast": fast, "slow": slow}[server]


def _shift(law: Law, top: jax.Array) -> Law:
    def queue(one: Queue) -> Queue:
        return one._replace(log_first=one.log_first - top, log_last=one.log_last - top)

    return law._replace(below=law.below - top, free=law.free - top, buffer=queue(law.buffer),
                        line_fast=queue(law.line_fast), line_slow=queue(law.line_slow))


def masses(law: Law, n: Count) -> tuple[jax.Array, jax.Array]:
    """The weights of all customers who end with a fast server and with a slow one."""
    line = queue_mass(law.line_slow)
    fast = jnp.exp(law.below) + queue_mass(law.buffer) + law.to_fast * line
    return fast, slow_part(n, lambda: jnp.exp(law.free) + law.to_slow * line, fast)


def waiting_mass(law: Law, server: Server, n: Count) -> jax.Array:
    """P(waiting time > 0)."""
    line = queue_mass(law.line_slow)
    fast = queue_mass(law.buffer) + law.to_fast * line
    slow = slow_part(n, lambda: law.to_slow * line, fast)
    return {"any": fast + slow, "fast": fast, "slow": slow}[server]


def slow_part(n: Count, value: Any, like: jax.Array) -> jax.Array:
    """``value()``, or 0 where there is no slow server."""
    return n.select(0, lambda: jnp.zeros_like(like), value)


def queue_mass(queue: Queue) -> jax.Array:
    """e^log_first sum_{w<M} rho^w for real M."""
    return exp_difference(queue.log_first, queue.log_last) * queue.places / growth_over(queue.log_ratio)


def tail_and_density(law: Law, t: jax.Array, kind: Kind, server: Server, n: Count) -> tuple[jax.Array, jax.Array]:
    """(P(time > t), density right of t) in units of mu1, for a scalar ``t``; O(1)."""
    shortest, longest = (1e-9, 1e15) if np.dtype(t.dtype) == np.float32 else (1e-60, 1e60)
    now = jnp.clip(t, shortest, longest)
    one, zero = jnp.ones_like(t), jnp.zeros_like(t)
    plain: list[tuple[jax.Array, Queue]] = []  # share, queue without a stage
    parts: list[tuple[jax.Array, jax.Array, Passage]] = []  # share, rate of the service, passage
    at_once: list[tuple[jax.Array, jax.Array]] = []  # survival, rate
    if server != "slow":
        plain += [(one, law.buffer)]
        at_once += [(jnp.exp(law.below - now), one)]
    if server != "fast" and not (n.static and n.value == 0):
        plain += [(law.to_slow, law.line_slow)]
        at_once += [(slow_part(n, lambda: jnp.exp(law.free - law.mu * now), t), law.mu)]
    if server != "slow" and kind == "waiting":
        plain += [(zero, law.line_fast)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(queue for _, queue in plain))
    passed = jax.vmap(lambda queue: passage(now, queue))(stacked)
    for i, (share, queue) in enumerate(plain):
        parts += [(share, queue.service, jax.tree.map(lambda leaf, i=i: leaf[i], passed))]
    if server != "slow":
        through = late_passage(now, law.line_fast, law.stage, parts[-1][2]) if kind == "waiting" else \
            passage(now, law.line_fast, law.stage)
        parts += [(law.to_fast, one, through)]
    tail = sum((share * p.waiting for share, _, p in parts), zero)
    if kind == "waiting":
        density = sum((share * p.density for share, _, p in parts), zero)
    else:
        tail = sum((share * p.service for share, _, p in parts), tail) + sum((part for part, _ in at_once), zero)
        density = sum((share * rate * p.service for share, rate, p in parts), zero)
        density = density + sum((rate * part for part, rate in at_once), zero)
    return jnp.where(t < 0, 1, tail), jnp.where(t < 0, 0, density)
