"""The expressions of the source paper as it states them, to see where their digits go.

Every function takes Params with a whole number K known when tracing and works in the parameters' own precision.
``corrected=False`` (the default) evaluates the formula as printed; ``corrected=True`` repairs the misprints and
changes nothing else. The misprints: C_1's closed form has M in place of K (equation (10); it enters P_{m,n,K} and so
everything where q != 1), C_2 in N_stalling should be sum (K - s) q^s, N-bar's second term should be
p_2 q / (1 - q), its value at q = 1 should start with K (K + 1) / 2 - m, and p_m in it is p_2.

Equation (6), P_{0,0,0}, P_stuck and P_slow are alternating sums over binomial moments: their terms exceed the result
by factors that grow exponentially with n and with r, so the paper's claim of numerical stability does not hold for
them, printed or corrected; 1 - ... loses P_slow, P_fast and P_stalling near 0. The library's own functions add,
multiply and divide non-negative numbers only: :func:`~hetjax.models.stalling.distribution.state_probabilities`,
:func:`~hetjax.models.stalling.distribution.empty_stuck_slow` and the closed form.

Source: "Stalling in Queuing Systems with Heterogeneous Channels", Theorem A1 and Table 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling import paper_objects as paper
from hetjax.models.stalling.params import Params


class PublishedProbabilities(NamedTuple):
    """``levels[i + k, j]`` = P_{i,j,k}, shape [m + K + 1, n + 1]; ``waiting[k]`` = P_{m,n,K+k}, k = 0..M (whole M)."""

    levels: jax.Array
    waiting: jax.Array


def _signs(params: Params) -> jax.Array:
    return (-1.0) ** jnp.arange(params.n + 1, dtype=params.q.dtype)


def _level_sum(params: Params, phase: int) -> jax.Array:
    """sum_{i<=m+K} A_{i,s} / A_{m+K,s}."""
    A = paper.level_polynomials(params)[:-1, phase]
    return A.sum() / A[-1]


def _first_moment(params: Params) -> jax.Array:
    """h_1 sum_i A_{i,1} / A_{m+K,1}, 0 without slow servers."""
    if params.n == 0:
        return jnp.zeros_like(params.q)
    return paper.moment_ratios(params)[1] * _level_sum(params, 1)


def _level_m(params: Params, corrected: bool) -> jax.Array:
    """h_0 P / q^K, the probability of level m."""
    h0, K = paper.moment_ratios(params)[0], paper.buffer_length(params)
    return h0 * published_p_full(params, corrected=corrected) / params.q**K


def published_p_full(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_{m,n,K} by equation (8).

    >>> from hetjax.models.stalling import Params
    >>> from hetjax.models.stalling.published import published_p_full
    >>> p = Params(q=0.5, r=2.0, K=1, M=4, m=1, n=1)
    >>> round(float(published_p_full(p)), 6), round(float(published_p_full(p, corrected=True)), 6)
    (0.037392, 0.041969)
    """
    return paper.occupancy(params, corrected=corrected)


def published_state_probabilities(params: Params, *, corrected: bool = False) -> PublishedProbabilities:
    """All P_{i,j,k} by equations (6) and (7): an alternating sum over s = j..n for each state; O((m + K) n^2).

    M must be a whole number known when tracing.
    """
    A, h, n = paper.level_polynomials(params)[:-1], paper.moment_ratios(params), params.n
    choose = paper.binomials(n, h.dtype)  # [s, j]
    signs = _signs(params)
    full = published_p_full(params, corrected=corrected)
    signed = choose * jnp.expand_dims(signs, 1) * jnp.expand_dims(signs, 0)  # (-1)^(s - j) C(s, j)
    levels = full * jnp.dot(h[None] * (A / A[-1:]), signed, precision=jax.lax.Precision.HIGHEST)
    return PublishedProbabilities(levels, full * params.rho ** jnp.arange(paper.waiting_places(params) + 1,
                                                                          dtype=h.dtype))


def published_p_empty(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_{0,0,0} = P sum_s (-1)^s h_s / A_{m+K,s} (Table 1, downtime probability): alternating."""
    A = paper.level_polynomials(params)[-2]
    terms = _signs(params) * paper.moment_ratios(params) / A
    return published_p_full(params, corrected=corrected) * terms.sum()


def published_p_slow_only(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_{0,n,0} = P / A_{m+K,n} (Table 1): one term, stable."""
    return published_p_full(params, corrected=corrected) / paper.level_polynomials(params)[-2, params.n]


def published_p_stuck(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_stuck = P sum_{s>=1} (-1)^(s-1) h_s / A_{m+K,s} (Table 1): alternating."""
    A = paper.level_polynomials(params)[-2]
    terms = (_signs(params) * paper.moment_ratios(params) / A)[1:]
    return -published_p_full(params, corrected=corrected) * terms.sum()


def published_mean_stuck(params: Params, *, corrected: bool = False) -> jax.Array:
    """N_stuck = h_1 P / A_{m+K,1} (Table 1): one term, stable; 0 without slow servers."""
    if params.n == 0:
        return jnp.zeros_like(params.q)
    h1, A = paper.moment_ratios(params)[1], paper.level_polynomials(params)[-2, 1]
    return h1 * published_p_full(params, corrected=corrected) / A


def published_p_slow(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_slow = 1 - P sum_s (-1)^s h_s sum_i A_{i,s} / A_{m+K,s} (Table 1): alternating, and 1 - ...; n >= 1."""
    A = paper.level_polynomials(params)[:-1]
    terms = _signs(params) * paper.moment_ratios(params) * A.sum(0) / A[-1]
    return 1 - published_p_full(params, corrected=corrected) * terms.sum()


def published_mean_slow(params: Params, *, corrected: bool = False) -> jax.Array:
    """N_slow = P (h_1 sum_i A_{i,1} / A_{m+K,1} + n S_1) (Table 1): stable while A and h stay in range."""
    full = published_p_full(params, corrected=corrected)
    return full * (_first_moment(params) + params.n * paper.S1(params))


def published_p_fast(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_fast = 1 - h_0 P / (q^K (qm)^m / m!) (Table 1)."""
    servers = jnp.arange(1, params.m + 1, dtype=params.q.dtype)
    weight = jnp.prod(params.q * jnp.asarray(params.m, params.q.dtype) / servers)
    return 1 - _level_m(params, corrected) / weight


def published_mean_fast(params: Params, *, corrected: bool = False) -> jax.Array:
    """N_fast = m - m h_0 P / (q^K p_2) (Table 1)."""
    return params.m - params.m * _level_m(params, corrected) / paper.p2(params)


def published_p_stalling(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_stalling = 1 - h_0 P (1 + p_1) / (p_1 q^K) (Table 1); at K = 0 it gives P_w, where the paper says 0."""
    p1 = paper.p1(params)
    return 1 - _level_m(params, corrected) * (1 + p1) / p1


def published_mean_stalled(params: Params, *, corrected: bool = False) -> jax.Array:
    """N_stalling = K - (h_0 P / q^K) (K / p_1 + C) (Table 1), C = C_2 as printed.

    Corrected: C = sum_{s<=K} (K - s) q^s = K C_1 - C_2.
    """
    C2 = paper.C2(params)
    C = params.K * paper.C1(params) - C2 if corrected else C2
    return params.K - _level_m(params, corrected) * (params.K / paper.p1(params) + C)


def published_p_wait(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_w = P S_1 (Table 1): the waiting line is not empty."""
    return published_p_full(params, corrected=corrected) * paper.S1(params)


def published_mean_waiting(params: Params, *, corrected: bool = False) -> jax.Array:
    """N_w = P S_2 (Table 1)."""
    return published_p_full(params, corrected=corrected) * paper.S2(params)


def published_p_loss(params: Params, *, corrected: bool = False) -> jax.Array:
    """P_loss = P rho^M (Table 1)."""
    return published_p_full(params, corrected=corrected) * params.rho**params.M


def published_mean_number(params: Params, *, corrected: bool = False) -> jax.Array:
    """N-bar by the last row of Table 1. Its differences of 1 / (1 - q)^2 terms lose digits near q = 1.

    Printed: the second term is p_2 q / (1 - q)^2, and at q = 1 the factor of h_0 is K + 1 - m. Corrected:
    p_2 q / (1 - q) and K (K + 1) / 2 - m.
    """
    q, K, m, n = params.q, params.K, params.m, params.n
    h0, p2 = paper.moment_ratios(params)[0], paper.p2(params)
    full, S1, S2 = published_p_full(params, corrected=corrected), paper.S1(params), paper.S2(params)
    slow = _first_moment(params)
    unit = q == 1
    e = jnp.where(unit, 1, 1 - q)
    second = p2 * q / (e if corrected else e**2)
    bracket = (K + m * e - p2 * q / e) * (h0 * q / e - S1) - slow + h0 * q / e**2 - S1 * n - S2
    factor = K * (K + 1) / 2 - m if corrected else K + 1 - m
    at_unit = m + full * (factor * h0 + slow + S2 + S1 * (K + n))
    return jnp.where(unit, at_unit, q * m + second - full * bracket)
