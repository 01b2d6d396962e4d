"""The mean number with its first, or first and second, derivatives in q, r, K and M, written out.

N = base + N', N' = sum_g W_g y_g / sum_g W_g s_g over four groups of states in the scaled weights W_g of weights.py:
the levels below m, the levels m..m+K, the slow servers at the full buffer (y_g is their mean number, s_g = 0), the
waiting line. With phi = ln W, p = W / sum W s, z = y - N' s and subscripts for derivatives, those of z with N' held
fixed,

    N'_i = sum_g p (z phi_i + z_i),        T_i = sum_g p (s phi_i + s_i),
    N'_ij = sum_g p [z (phi_ij + phi_i phi_j) + phi_i z_j + phi_j z_i + z_ij] - N'_i T_j - N'_j T_i.

The coordinates are ln q, ln r, K, M. Most numbers depend on two or three of them, so most terms are absent.
"""

import functools
import itertools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.full_level import PAIRS as FULL_PAIRS
from hetjax.models.stalling.full_level import full_buffer_slopes
from hetjax.models.stalling.weights import Geometric, Weights, weigh
from hetjax.numerics.counting import Count
from hetjax.numerics.erlang import idle_moments
from hetjax.numerics.geometric import finite_terms
from hetjax.numerics.hold import hold
from hetjax.numerics.power_sums import PowerSums, power_sums

AXES = ("q", "r", "K", "M")
PAIRS = tuple(itertools.combinations_with_replacement(AXES, 2))
_FULL = (*"qrK", *("qrK"[i] + "qrK"[k] for i, k in FULL_PAIRS))  # the derivatives of the full buffer
Terms = dict[str, jax.Array]  # derivatives by coordinate ("q" is ln q, "r" ln r) or by two; what is missing is 0


class Group(NamedTuple):
    """Derivatives of phi, and z and s with theirs."""

    phi: Terms
    z: jax.Array
    z_terms: Terms
    s: jax.Array | None
    s_terms: Terms


class Regime(NamedTuple):
    """1 or 0: q > 1 and not, rho > 1, ``Weights.saturated``; and x = -|ln q| where q > 1, elsewhere."""

    over: jax.Array
    under: jax.Array
    rising: jax.Array
    saturated: jax.Array
    x_over: jax.Array
    x_under: jax.Array


def number_slopes(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, m: Count, n: Count,
                  order: int) -> tuple[jax.Array, tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """N at one point, its derivatives by :data:`AXES`, and with ``order`` = 2 the second ones by :data:`PAIRS` (else
    none).

    O(m n), independent of K and M, which may be infinite as in weights.py; at n = 0 with M merged into K.
    """
    K, M = finite_terms(K), finite_terms(M)
    full, slopes = full_buffer_slopes(q, r, K, m, n, order)
    log_h0, slow = (dict(zip(_FULL[:3 + len(x.second)], (*x.first, *x.second), strict=True)) for x in slopes)
    w = weigh(q, r, K, M, m, n, shared=True, full=full).hold(tangents_too=False)
    base, beyond = w.number_parts()
    zero = jnp.zeros_like(q)
    over, rising, saturated = (jnp.where(flag, 1, zero) for flag in (w.buffer.rising, w.waiting.rising, w.saturated))
    regime = Regime(over, 1 - over, rising, saturated, over * w.buffer.log, (1 - over) * w.buffer.log)
    share = w.n / (w.m * r + w.n)  # d ln rho / d ln r
    groups = _groups(w, regime, q * w.m, m, beyond, base, share, _lead(w, regime, log_h0, share), slow, order)
    p = tuple(x * (1 / w.total) for x in (w.below, w.level, w.top, w.line))
    if order == 2:
        p, groups = hold((p, groups))

    first = {i: _sum(*(_product(x, _sum(_product(g.z, g.phi.get(i)), g.z_terms.get(i)))
                       for x, g in zip(p, groups, strict=True))) for i in AXES}
    second = {}
    if order == 2:
        total = {i: _sum(*(_product(x, _sum(_product(g.s, g.phi.get(i)), g.s_terms.get(i)))
                           for x, g in zip(p, groups, strict=True))) for i in AXES}
        first, total = hold((first, total))
        for i, k in PAIRS:
            bent = _sum(*(_product(x, _sum(
                _product(g.z, _sum(g.phi.get(i + k), _product(g.phi.get(i), g.phi.get(k)))), g.z_terms.get(i + k),
                _product(g.phi.get(i), g.z_terms.get(k)), _product(g.phi.get(k), g.z_terms.get(i))))
                for x, g in zip(p, groups, strict=True)))
            second[i + k] = bent - first[i] * total[k] - first[k] * total[i]
        second |= {i + i: second[i + i] - first[i] for i in "qr"}  # q^2 d^2/dq^2 = (q d/dq)^2 - q d/dq
    first |= {"K": first["K"] + over, "M": first["M"] + over * saturated}  # what the base adds
    per = {"q": 1 / q, "r": 1 / r, "K": 1.0, "M": 1.0}
    return (base + beyond, tuple(first[i] * per[i] for i in AXES),
            tuple(second[i + k] * per[i] * per[k] for i, k in (PAIRS if second else ())))


def _lead(w: Weights, regime: Regime, log_h0: Terms, share: jax.Array) -> Terms:
    """Of ``Weights.lead``."""
    x_rising = regime.rising * w.waiting.log
    return _add(log_h0, {
        "q": -regime.rising * w.M - regime.under * w.K, "r": -regime.rising * share * w.M, "K": -regime.x_under,
        "M": x_rising, "qK": -regime.under, "rr": regime.rising * (share * (1 - share)) * w.M,
        "qM": -regime.rising, "rM": -regime.rising * share})


def _groups(w: Weights, regime: Regime, load: jax.Array, m: Count, beyond: jax.Array, base: jax.Array,
            share: jax.Array, lead: Terms, slow: Terms, order: int) -> tuple[Group, ...]:
    over, under, rising, saturated, x_over, x_under = regime
    one, both = jnp.ones_like(over), over * saturated
    if order == 2:
        lead, (idle, variance, third) = hold((lead, idle_moments(load, m)))
    else:
        idle = w.m - 1 - w.poisson.mean
        variance = w.poisson.mean - idle * (load - w.poisson.mean)
        third = variance  # not asked for
    tail = {"q": 1 + idle, "qq": -variance}
    common = _times(saturated, lead)
    level = _add(common, tail)

    below = Group(_add(common, {"q": -over * w.K, "K": x_over, "qK": -over}), w.poisson.mean - base - beyond,
                  {"q": variance, "K": -over, "M": -both, "qq": third}, one, {})
    slope = under * w.m - both * (w.n + w.M) - beyond
    levels = Group(level, *_levels(_power_sums(w.buffer, False, order), w.buffer.log, 1 - 2 * over, slope, both))
    top = Group(_add(level, {"q": under * w.K, "K": x_under, "qK": under}), w.full.slow, slow, None, {})
    ahead = (1 - saturated) * (rising * w.M + w.n + under * (w.m + w.K)) - beyond
    line = Group(_add(tail, _times(saturated - 1, lead)),
                 *_line(_power_sums(w.waiting, w.waiting.rising, order), w.waiting.log, share, 1 - 2 * rising, ahead,
                        (1 - saturated) * under, (1 - saturated) * rising))
    return below, levels, top, line


def _power_sums(sequence: Geometric, from_zero: jax.Array | bool, order: int) -> PowerSums:
    return power_sums(sequence.log, sequence.ratio, sequence.terms, sequence.decay, sequence.sums.parts, from_zero,
                      order + 1)


def _levels(level: PowerSums, x: jax.Array, sign: jax.Array, slope: jax.Array,
            both: jax.Array) -> tuple[jax.Array, Terms, jax.Array, Terms]:
    """z = sign S_1 + slope s and s = 1 + S_0; x = sign ln q, d slope/dM = -both."""
    S, kappa = level.sums, level.edge
    s = 1 + S[0]
    s_terms = {"q": sign * S[1], "K": kappa[0]}
    z_terms = {"q": S[2] + slope * s_terms["q"], "K": sign * kappa[1] + slope * kappa[0], "M": -both * s,
               "qM": -both * s_terms["q"], "KM": -both * kappa[0]}
    if len(S) > 3:
        z_terms |= {"qq": sign * S[3] + slope * S[2], "qK": kappa[2] + slope * (sign * kappa[1]),
                    "KK": sign * (kappa[0] + x * kappa[1]) + slope * (x * kappa[0])}
    return sign * S[1] + slope * s, z_terms, s, s_terms


def _line(line: PowerSums, x: jax.Array, share: jax.Array, sign: jax.Array, ahead: jax.Array, along_K: jax.Array,
          along_M: jax.Array) -> tuple[jax.Array, Terms, jax.Array, Terms]:
    """z = sign S_1 + ahead s and s = S_0; x = sign ln rho, d ahead/dK and d ahead/dM given."""
    S, kappa = line.sums, line.edge
    s_x, z_x = sign * S[1], S[2] + ahead * (sign * S[1])  # along ln rho
    s_terms = {"q": s_x, "r": share * s_x, "M": kappa[0]}
    z_terms = {"q": z_x, "r": share * z_x, "K": along_K * S[0],
               "M": sign * kappa[1] + ahead * kappa[0] + along_M * S[0]}
    if len(S) > 3:
        z_xx, z_xM = sign * S[3] + ahead * S[2], kappa[2] + ahead * (sign * kappa[1]) + along_M * s_x
        z_terms |= {"qq": z_xx, "qr": share * z_xx, "rr": share * (share * z_xx - (1 - share) * z_x),
                    "qK": along_K * s_x, "rK": share * (along_K * s_x), "KM": along_K * kappa[0],
                    "qM": z_xM, "rM": share * z_xM,
                    "MM": sign * (kappa[0] + x * kappa[1]) + ahead * (x * kappa[0]) + 2 * (along_M * kappa[0])}
    return sign * S[1] + ahead * S[0], z_terms, S[0], s_terms


def _add(*terms: Terms) -> Terms:
    found: Terms = {}
    for some in terms:
        found |= {key: found[key] + x if key in found else x for key, x in some.items()}
    return found


def _times(factor: jax.Array, terms: Terms) -> Terms:
    return {key: factor * x for key, x in terms.items()}


def _product(*factors: jax.Array | None) -> Any:
    """None, which stands for 0, if any factor is."""
    present = [x for x in factors if x is not None]
    return functools.reduce(operator.mul, present) if len(present) == len(factors) else None


def _sum(*terms: jax.Array | None) -> Any:
    """Of those that are there; None if none is."""
    present = [x for x in terms if x is not None]
    return functools.reduce(operator.add, present) if present else None
