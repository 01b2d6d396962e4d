"""The stalling buffer that minimises the mean number in system, at one point, on arrays, and as a model to sweep.

The slow-server problem: when are slow servers worth using, and how long should customers be stalled for fast ones
first? Minimising the mean number at a finite waiting line also rewards losing customers (hence the second minimum at
K = 0 with short lines): weigh it against p_loss there.
"""

import enum
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.registry import Metric, Model
from hetjax.models.stalling.asymptotics import point_asymptotes
from hetjax.models.stalling.buffer_model import Fixed, fixed_parts
from hetjax.models.stalling.buffer_search import (
    FLAT,
    Found,
    bracketing_search,
    enumerate_buffers,
    follow_root,
    rises_beyond,
)
from hetjax.models.stalling.buffer_slope import (
    mean_number,
    never_bracket,
    rise_from_zero,
    state,
    step_bracket,
    step_total,
)
from hetjax.models.stalling.params import AXES, Params, point_status
from hetjax.numerics import log
from hetjax.numerics.counting import Count
from hetjax.result import OptimumStatus, Status

LARGEST = 1e7  # the end of the domain of K
ENUMERATED = 1024  # buffers compared one by one for a certificate


class Certificate(enum.IntEnum):
    """How an optimal buffer was established."""

    NONE = 0  # there is no optimum
    BRACKETED = 1  # a sign change of dN/dK was closed in on; no other minimum hides between the doubling trial buffers
    ENUMERATED = 2  # every buffer up to a bound was compared, and N provably does not fall below the minimum beyond it


class OptimalBuffer(NamedTuple):
    """What :func:`optimal_buffer` found, in customers and places; NaN where ``optimum_status`` is FAILED."""

    K: jax.Array  # the whole number of places that minimises N (int32; -1 where FAILED)
    mean_number: jax.Array  # N(K)
    K_real: jax.Array  # the real minimiser, differentiable in q, r and M
    bracket: tuple[jax.Array, jax.Array]  # contains K_real
    gap_below: jax.Array  # [N(K-1) - N(K)] / min(1, q^(K-1)); infinite at K = 0
    gap_above: jax.Array  # [N(K+1) - N(K)] / min(1, q^K)
    gain_never: jax.Array  # 1 - N(K) / N(never use the slow servers); 1 where q >= 1
    log10_gain_never: jax.Array
    gain_zero: jax.Array  # 1 - N(K) / N(0), over using them whenever the fast ones are busy
    log10_gain_zero: jax.Array  # -inf at K = 0
    asymptotic_i: jax.Array  # Theorem A2; NaN where q >= 1 or n = 0
    asymptotic_ii_printed: jax.Array
    asymptotic_ii_corrected: jax.Array
    minima: jax.Array  # local minima found (int32)
    optimum_status: jax.Array  # uint8 code of hetjax.result.OptimumStatus
    certificate: jax.Array  # uint8 code of Certificate
    status: jax.Array  # uint8 code of hetjax.result.Status


def optimal_buffer(params: Params, *, largest: float = LARGEST, enumerate_up_to: int = ENUMERATED) -> OptimalBuffer:
    """The stalling buffer K in 0..``largest`` that minimises the mean number in system; K of ``params`` plays no part.

    Found from the signs of scaled differences, which stay exact to rounding where neighbouring N are equal in floating
    point. The optimum is certified by enumeration if a bound beyond which N provably does not fall below it is at most
    ``enumerate_up_to`` (0: do not try); otherwise it is bracketed, with other minima between the trial buffers
    0, 1/2, 1, 2, 4, .. assumed absent.

    Leaves of ``params``: scalars, or arrays of one shape (or that broadcast) for a batch; works under jit and vmap.
    Gradients in q, r and M: ``K_real`` by the implicit function theorem, the others at fixed K (for ``mean_number``
    that is the envelope theorem). ``optimum_status``: INTERIOR; EDGE (K = 0, or ``largest``); MULTIMODAL (several local
    minima, the best is given); FLAT (a neighbour within rounding); FAILED (outside the domain or unstable: ``status``).
    Cost: about 45 times O(n) after O(m n) once, plus O(n) for each buffer enumerated. ValueError for a ``largest``
    outside [0, 1e7]. Source: section 3.2 of the paper, scaled slope and certificate derived here.

    >>> import math
    >>> from hetjax.models.stalling import Params
    >>> from hetjax.models.stalling.buffer import Certificate, optimal_buffer
    >>> best = optimal_buffer(Params(q=0.7, r=20.0, K=0, M=math.inf, m=5, n=2))
    >>> int(best.K), round(float(best.K_real), 2), Certificate(int(best.certificate)).name
    (29, 28.74, 'ENUMERATED')
    >>> f"{float(best.gain_never):.2e}", f"{float(best.gain_zero):.3f}"
    ('3.40e-06', '0.254')
    """
    if not 0 <= largest <= LARGEST:
        raise ValueError(f"largest = {largest!r} is outside [0, {LARGEST:g}]; give a number of places inside it")
    m, n = Count(params.m), Count(params.n)
    one = functools.partial(point_optimum, m=m, n=n, enumerate_up_to=int(enumerate_up_to))
    shape = jnp.broadcast_shapes(params.q.shape, params.r.shape, params.M.shape)
    flat = [jnp.broadcast_to(leaf, shape).reshape(-1) for leaf in (params.q, params.r, params.M)]
    found = jax.vmap(lambda q, r, M: one(q, r, M, jnp.full_like(q, float(int(largest)))))(*flat)
    return jax.tree.map(lambda leaf: leaf.reshape(shape), found)


@functools.partial(jax.jit, static_argnames=("enumerate_up_to",))
def point_optimum(q: jax.Array, r: jax.Array, M: jax.Array, largest: jax.Array, m: Count, n: Count,
                  enumerate_up_to: int) -> OptimalBuffer:
    """:func:`optimal_buffer` at one point, ``m`` and ``n`` static or traced."""
    status = point_status(q, r, jnp.zeros_like(q), M, m.value, n.value, jnp.ones_like(q))
    legal = status == int(Status.OK)
    # anything harmless where there is nothing to compute, so that no derivative is poisoned
    q, r, M = (jnp.where(legal, value, 0.5) for value in (q, r, M))
    f = fixed_parts(q, r, M, m, n)
    still = lax.stop_gradient(f)
    found = bracketing_search(still, largest)
    certified = jnp.zeros((), bool)
    if enumerate_up_to > 0:
        found, certified = _certify(still, found, largest, enumerate_up_to)
    K = found.K
    here, below = state(f, K), state(f, jnp.maximum(K - 1, 0))
    rise, fall = step_bracket(f, here), step_bracket(f, below)
    N = mean_number(f, here)
    never, log_never = _gain_over_never(f, K, N)
    zero, log_zero = _gain_over_zero(f, K)
    tie = _tied(f, rise.value, rise.size) & (K < largest) | _tied(f, fall.value, fall.size) & (K > 0)
    edge = (K == 0) | (K == largest)
    kind = jnp.where(found.minima > 1, int(OptimumStatus.MULTIMODAL),
                     jnp.where(tie, int(OptimumStatus.FLAT),
                               jnp.where(edge, int(OptimumStatus.EDGE), int(OptimumStatus.INTERIOR))))
    certificate = jnp.where(certified, int(Certificate.ENUMERATED), int(Certificate.BRACKETED))
    real = (N, follow_root(f, found.K_real, largest), (found.low, found.high),
            jnp.where(K > 0, -f.p1 * fall.value / step_total(f, below), jnp.inf),
            f.p1 * rise.value / step_total(f, here),
            never, log_never, zero, log_zero, *point_asymptotes(f, r))
    real = jax.tree.map(lambda leaf: jnp.where(legal, leaf, jnp.nan), real)
    codes = (jnp.where(legal, found.minima, 0).astype(jnp.int32),
             jnp.where(legal, kind, int(OptimumStatus.FAILED)).astype(jnp.uint8),
             jnp.where(legal, certificate, int(Certificate.NONE)).astype(jnp.uint8), status)
    answer: tuple[Any, ...] = (jnp.where(legal, K, -1).astype(jnp.int32), *real, *codes)
    return OptimalBuffer(*answer)


def _tied(f: Fixed, value: jax.Array, size: jax.Array) -> jax.Array:
    """True where the sign of a bracket cannot be trusted; with n = 0 and M = inf nothing depends on K at all."""
    return jnp.abs(value) <= FLAT * jnp.finfo(size.dtype).eps * size


def _certify(f: Fixed, found: Found, largest: jax.Array, limit: int) -> tuple[Found, jax.Array]:
    """The enumerated optimum where a bound of at most ``limit`` closes it, else ``found``; and whether it did."""
    end = jnp.minimum(largest, limit)
    least = mean_number(f, state(f, found.K))
    trials = jnp.minimum(found.K + 2.0 ** jnp.arange(limit.bit_length(), dtype=largest.dtype), end)

    def closes(_: None, K: jax.Array) -> tuple[None, jax.Array]:
        return None, (K >= largest) | rises_beyond(f, state(f, K), least)

    _, closed = lax.scan(closes, None, trials)
    certified = jnp.any(closed) & (found.K <= end)
    K, minima = enumerate_buffers(f, jnp.where(certified, trials[jnp.argmax(closed)], 0))
    # the enumeration may end before a second minimum that is known to lie above the first
    minima = jnp.where(certified, jnp.maximum(minima, found.minima), found.minima)
    return Found(jnp.where(certified, K, found.K), *found[1:4], minima), certified


def _gain_over_never(f: Fixed, K: jax.Array, N: jax.Array) -> tuple[jax.Array, jax.Array]:
    """1 - N(K)/N(inf) and its decimal logarithm, -inf where the gain is not positive."""
    endless = f.q >= 1
    safe = f._replace(q=jnp.where(endless, 0.5, f.q), slack=jnp.where(endless, 0.5, f.slack))
    at = state(f, K)
    gain, reference = never_bracket(safe, at)
    ratio = gain / at.total / reference
    value, logarithm = _with_logarithm(ratio, K * f.log_q + f.log_p1, jnp.exp(K * f.log_q) * f.p1)
    return jnp.where(endless, 1, value), jnp.where(endless, 0, logarithm)


def _gain_over_zero(f: Fixed, K: jax.Array) -> tuple[jax.Array, jax.Array]:
    """1 - N(K)/N(0) and its decimal logarithm, -inf at K = 0."""
    zero = state(f, jnp.zeros_like(K))
    at = state(f, K, zero.log_unit)
    rise = jnp.where(K > 0, rise_from_zero(f, zero, at), 0)
    return _with_logarithm(rise / at.total / mean_number(f, zero), f.log_p1, f.p1)


def _with_logarithm(ratio: jax.Array, log_factor: jax.Array, factor: jax.Array) -> tuple[jax.Array, jax.Array]:
    positive = ratio > 0
    logarithm = (log(jnp.where(positive, ratio, 1)) + log_factor) / jnp.log(jnp.asarray(10.0, ratio.dtype))
    return ratio * factor, jnp.where(positive, logarithm, -jnp.inf)


_UNDEFINED_A2 = "q >= 1 or n = 0"
METRICS = (
    Metric("optimal_buffer", "customers", "whole number of places that minimises the mean number in system",
           differentiable=False),
    Metric("optimal_buffer_real", "customers", "real number of places that minimises it"),
    Metric("mean_number_at_optimum", "customers", "mean number in system with the optimal buffer"),
    Metric("gain", "1", "relative gain over never using the slow servers"),
    Metric("log10_gain", "1", "its decimal logarithm", "the gain is not positive"),
    Metric("gain_over_zero", "1", "relative gain over using the slow servers whenever the fast ones are busy (K = 0)"),
    Metric("log10_gain_over_zero", "1", "its decimal logarithm", "the optimal buffer is 0"),
    Metric("asymptotic_i", "customers", "Theorem A2 (i)", _UNDEFINED_A2),
    Metric("asymptotic_ii_printed", "customers", "Theorem A2 (ii) as printed", _UNDEFINED_A2),
    Metric("asymptotic_ii_corrected", "customers", "Theorem A2 (ii) corrected", _UNDEFINED_A2),
    Metric("error_i", "customers", "error of A2 i against the real optimum", _UNDEFINED_A2),
    Metric("error_ii_printed", "customers", "error of A2 ii as printed", _UNDEFINED_A2),
    Metric("error_ii_corrected", "customers", "error of A2 ii as corrected", _UNDEFINED_A2),
    Metric("local_minima", "1", "local minima found", differentiable=False),
    Metric("optimum_status", "code", "OptimumStatus: 0 failed, 1 interior, 2 edge, 3 flat, 4 multimodal",
           differentiable=False),
    Metric("certified", "1", "1 if proved by enumeration up to 1024 places, 0 if bracketed", expensive=True,
           differentiable=False),
)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, jax.Array], jax.Array]:
    """The registry's point function: the asked metrics at one point, and its status."""
    q, r, M = values["q"], values["r"], values["M"]
    m, n = Count.of(values["m"], bounds.get("m")), Count.of(values["n"], bounds.get("n"))
    # traced counts above the bound they are masked by
    beyond = jnp.asarray(m.value > m.bound) | jnp.asarray(n.value > n.bound)
    limit = ENUMERATED if "certified" in metrics else 0
    best = point_optimum(q, r, M, jnp.full_like(q, LARGEST), m, n, enumerate_up_to=limit)

    def finite(value: jax.Array) -> jax.Array:
        return jnp.where(jnp.isfinite(value), value, jnp.nan)

    legal = best.optimum_status != int(OptimumStatus.FAILED)
    results = {
        "optimal_buffer": jnp.where(legal, best.K.astype(q.dtype), jnp.nan),
        "optimal_buffer_real": best.K_real,
        "mean_number_at_optimum": best.mean_number,
        "gain": best.gain_never,
        "log10_gain": finite(best.log10_gain_never),
        "gain_over_zero": best.gain_zero,
        "log10_gain_over_zero": finite(best.log10_gain_zero),
        "asymptotic_i": best.asymptotic_i,
        "asymptotic_ii_printed": best.asymptotic_ii_printed,
        "asymptotic_ii_corrected": best.asymptotic_ii_corrected,
        "error_i": jnp.abs(best.asymptotic_i - best.K_real),
        "error_ii_printed": jnp.abs(best.asymptotic_ii_printed - best.K_real),
        "error_ii_corrected": jnp.abs(best.asymptotic_ii_corrected - best.K_real),
        "local_minima": best.minima.astype(q.dtype),
        "optimum_status": best.optimum_status.astype(q.dtype),
        "certified": (best.certificate == int(Certificate.ENUMERATED)).astype(q.dtype),
    }
    status = jnp.where(beyond, int(Status.OUT_OF_DOMAIN), best.status).astype(jnp.uint8)
    return {name: jnp.where(beyond, jnp.nan, results[name]) for name in metrics}, status


MODEL = Model(
    name="stalling_buffer",
    version=2,
    title="Stalling queue: the buffer that minimises the mean number in system",
    axes=tuple(axis for axis in AXES if axis.name in ("q", "r", "M", "m", "n")),
    metrics=METRICS,
    point=point,
    golden=(({"q": 0.7, "r": 20.0, "M": float("inf"), "m": 5, "n": 2},
             {"optimal_buffer": 29.0, "mean_number_at_optimum": 4.38160762678}),),
)
