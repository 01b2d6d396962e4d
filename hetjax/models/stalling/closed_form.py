"""The stalling queue's mean number in system, in closed form.

    N = sum over levels of l R_l + P [ q m r (h_0 - 1) + n S_1 ] + P S_2 + (m+K) P S_1        (paper's Table 1,
    corrected)

Only h_0 is hard; see recursion.py. N is written as a base, where most of the probability sits, plus deviations, so
that its derivatives keep their digits when K or M are large.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.models.stalling.number_slopes import AXES, PAIRS, number_slopes
from hetjax.models.stalling.params import Params, point_status
from hetjax.models.stalling.weights import Weights, weigh
from hetjax.numerics.blocks import in_blocks
from hetjax.numerics.counting import Count
from hetjax.result import Status


def mean_number(params: Params) -> jax.Array:
    """Mean number in system N (in service, stalled and waiting), of the shape of the leaves of ``params``.

    Relative error max(1e-12, 16 eps (1 + condition)) in float64 over the whole domain; differentiable in q, r, K, M,
    any number of times, in both modes: with all four first derivatives it takes some 3 times as long, with all second
    ones 9 times (CPU). NaN where :func:`status` is not OK. O(m n) work, independent of K and M.

    >>> from hetjax.models.stalling import Params, mean_number
    >>> round(float(mean_number(Params(q=1.5, r=2.0, K=0, M=25, m=1, n=1))), 4)
    13.7455
    """
    p = params
    leaves = jnp.broadcast_arrays(p.q, p.r, p.K, p.M, p.mu1)
    m, n = Count(p.m), Count(p.n)
    if leaves[0].ndim == 0:
        return _mean_number(*leaves, m, n)
    flat = jax.vmap(lambda *point: _mean_number(*point, m, n))(*(leaf.reshape(-1) for leaf in leaves))
    return flat.reshape(leaves[0].shape)


BLOCK = 64  # points whose work arrays fit a CPU's first-level cache together


def _differentiable(prepare: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., jax.Array]:
    """(q, r, K, M, m, n) -> N of one point (at n = 0 with M merged into K), with the derivatives of number_slopes.py.

    ``prepare`` is applied to what computes N, what computes its first and what computes its second derivatives; third
    ones are those of the latter, without it.
    """
    number = jax.custom_jvp(prepare(lambda q, r, K, M, m, n: number_from(weigh(q, r, K, M, m, n))))
    first = jax.custom_jvp(prepare(lambda q, r, K, M, m, n: number_slopes(q, r, K, M, m, n, 1)[:2]))
    second = jax.custom_jvp(prepare(lambda q, r, K, M, m, n: number_slopes(q, r, K, M, m, n, 2)))

    @number.defjvp
    def _(point: Any, tangents: Any) -> Any:
        N, slopes = first(*point)
        return N, _along(slopes, tangents)

    @first.defjvp
    def _(point: Any, tangents: Any) -> Any:
        N, slopes, curvature = second(*point)
        of = dict(zip(PAIRS, curvature, strict=True))
        rows = ([of[i, k] if (i, k) in of else of[k, i] for k in AXES] for i in AXES)
        return (N, slopes), (_along(slopes, tangents), tuple(_along(row, tangents) for row in rows))

    @second.defjvp
    def _(point: Any, tangents: Any) -> Any:
        m, n = point[4:]
        return jax.jvp(lambda q, r, K, M: number_slopes(q, r, K, M, m, n, 2), point[:4], tuple(tangents[:4]))

    return number


def _along(slopes: Iterable[jax.Array], tangents: Any) -> jax.Array:
    return sum(x * y for x, y in zip(slopes, tangents[:4], strict=True))


_number = _differentiable(lambda function: function)
_number_in_blocks = _differentiable(lambda function: in_blocks(function, BLOCK))


def _checked_mean_number(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, mu1: jax.Array, m: Count,
                         n: Count) -> jax.Array:
    code = point_status(q, r, K, M, m.value, n.value, mu1)
    return jnp.where(code == int(Status.OK), point_mean_number(q, r, K, M, m, n), jnp.nan)


_mean_number = jax.custom_jvp(in_blocks(_checked_mean_number, BLOCK))


@_mean_number.defjvp
def _mean_number_jvp(primals: Any, tangents: Any) -> Any:
    q, r, K, M, mu1, m, n = primals
    value, slope = jax.jvp(lambda q, r, K, M: point_mean_number(q, r, K, M, m, n, _number_in_blocks), (q, r, K, M),
                           tuple(tangents[:4]))
    good = point_status(q, r, K, M, m.value, n.value, mu1) == int(Status.OK)  # has no derivative: not traced for one
    return jnp.where(good, value, jnp.nan), jnp.where(good, slope, 0)


def point_mean_number(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, m: Count, n: Count,
                      number: Callable[..., jax.Array] = _number) -> jax.Array:
    """:func:`mean_number` of loose values, unchecked; ``m``, ``n`` may be traced."""
    # without slow servers the buffer and the line are one queue; kept apart, dN/dK would be lost in cancellation
    K, M = (n.select(0, lambda: K + M, lambda: K), n.select(0, lambda: jnp.zeros_like(M), lambda: M))
    return number(q, r, K, M, m, n)


def number_from(w: Weights) -> jax.Array:
    """The mean number from the weights (at n = 0 with M merged into K)."""
    base, beyond = w.number_parts()
    return base + beyond
