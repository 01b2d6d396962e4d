"""Theorem A2: the optimal stalling buffer for q^K -> 0 (i) and for r -> infinity (ii), as printed and as corrected.

(i) is right as printed. With q^K dropped, Z, h0, s, tau no longer depend on K, the gain N(inf) - N(K) is q^K times a
straight line in K, and its maximum is the line's root minus 1/ln q. Written without the poles at q = 1 that cancel,

    K0 = {(1-q) [s + n tau + S2/h0] - tau} / (q - (1-q) tau) - q / (1-q+p1) - m (1-q) - 1 - 1/ln q,   error O(q^K).

(ii) as printed has a wrong constant: -(1+q)/(1-q) + p2 q/(1-q)^2 stands where the limit of (i) is (p2 q - 1)/(1-q), and
it holds for M = inf only; :func:`finite_line_growth` has the leading term for a finite line.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.buffer_model import Fixed, fixed_parts, phases
from hetjax.models.stalling.params import Params
from hetjax.numerics.counting import Count


class Asymptotes(NamedTuple):
    """Theorem A2's approximations of the real-valued optimal buffer, in places; NaN where q >= 1 or n = 0."""

    i: jax.Array
    ii_printed: jax.Array
    ii_corrected: jax.Array


def point_asymptotes(f: Fixed, r: jax.Array) -> Asymptotes:
    """:class:`Asymptotes` at one point."""
    defined = (f.q < 1) & (f.n > 0)
    slack, log_q = jnp.where(defined, f.slack, 0.5), jnp.where(defined, f.log_q, -1)
    q, end = jnp.where(defined, f.q, 0.5), phases(f, jnp.full_like(f.q, jnp.inf))
    tau = f.s1 * jnp.exp(f.log_s1_unit - end.log_h0)
    waiting = 1 / (slack + f.p1)  # p2 = p1 / (1 - q + p1)
    printed_constant = -(1 + q) / slack + f.p1 * waiting * q / (slack * slack)
    common = f.m * slack
    lead = (slack * (end.s + tau * (f.n + f.line_mean)) - tau) / (q - slack * tau)
    i = lead - q * waiting - common - 1 - 1 / log_q
    values = (i, r * common + printed_constant - common - 1 / log_q,
              common * (r - 1) - (1 + f.p1) * waiting - 1 / log_q)
    return Asymptotes(*(jnp.where(defined, value, jnp.nan) for value in values))


def asymptotes(params: Params) -> Asymptotes:
    """Theorem A2 (i), printed (ii) and corrected (ii) for 0 < q < 1, n >= 1; K of ``params`` plays no part. O(m n).

    Error of (i): O(q^K) at the optimum K, of the corrected (ii): O(1/r), M = inf only. NaN where q >= 1 or n = 0.
    Source: the paper's Theorem A2; correction derived here.

    >>> from hetjax.models.stalling import Params
    >>> from hetjax.models.stalling.asymptotics import asymptotes
    >>> import math
    >>> [round(float(k), 1) for k in asymptotes(Params(q=0.7, r=100.0, K=0, M=math.inf, m=5, n=2))]
    [148.8, 148.6, 148.9]
    """
    m, n = Count(params.m), Count(params.n)

    def point(q: jax.Array, r: jax.Array, M: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(point_asymptotes(fixed_parts(q, r, M, m, n), r))

    return Asymptotes(*jnp.vectorize(point)(params.q, params.r, params.M))


def finite_line_growth(params: Params) -> jax.Array:
    """lim K0 / r as r -> infinity for a waiting line of M places, 0 < q < 1: m (1-q) (1-q^n) / (1 - q^n + q^(n+M)).

    Slow servers of vanishing speed fill up and stay full, so that the line matters however large r is. m (1-q) for
    M = inf. Source: found here; the paper's (ii) has the M = inf value.

    >>> from hetjax.models.stalling import Params
    >>> from hetjax.models.stalling.asymptotics import finite_line_growth
    >>> round(float(finite_line_growth(Params(q=0.5, r=1.0, K=0, M=0, m=2, n=1))), 6)
    0.5
    """
    slow = 1 - params.q ** params.n
    return params.m * (1 - params.q) * slow / (slow + jnp.exp((params.n + params.M) * jnp.log(params.q)))
