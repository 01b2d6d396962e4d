"""Finitely many queues: the refined mean field, mean + V/N, and mean + V/N + V2/N^2.

With N queues the shares of queues x (exactly k customers, service in phase i) fluctuate around the fixed point by
1/sqrt(N) with covariance W/N, and the curvature of the drift F turns that into a shift V/N of their means:

    A W + W A^T + Q = 0,      A V = -(C + 1/2 sum_ij d2F/dx_i dx_j W_ij),      A = DF(x),

where Q is the sum over all transitions of rate times jump jump^T and C the part of order 1/N of the drift itself: zero
if the d queues are chosen with replacement; without, d different queues are all at least k long with probability
u_k^d - d (d-1)/(2N) u_k^(d-1) (1 - u_k) + O(1/N^2). The error is then O(1/N^2) (Gast and Van Houdt, 2017). For V2 see
:mod:`hetjax.models.supermarket.second_order`.

An MMPP stream (N D0, N D1) has fluctuations of its own that do not average out at this order: with
c = integral of cov(lambda(0), lambda(t)) dt and f = dF/d lambda, 2 c f f^T joins Q and c Df f joins C. The environment
must be fast against a queue: a slow one does not approach this limit.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.ctmc.elimination import off_diagonal
from hetjax.ctmc.stationary import stationary
from hetjax.models.supermarket.fixed_point import fixed_point
from hetjax.models.supermarket.mean_field import Join, drift, shortest_of_d, tails_of
from hetjax.models.supermarket.newton import newton_fixed_point
from hetjax.models.supermarket.params import Params
from hetjax.models.supermarket.second_order import DOUBLINGS, second_order_shift, third_jump_moments
from hetjax.processes import MAP
from hetjax.processes.checks import concrete, require
from hetjax.result import Solution, Status

Array = jax.Array


class Refined(NamedTuple):
    """Attributes:

    mean_queue_length: mean field + V/N (+ V2/N^2), customers per queue.
    mean_response_time: mean_queue_length / lambda.
    tails: (levels,) u_k + V/N (+ V2/N^2), the mean share of queues with at least k customers.
    limit: the mean field's mean queue length.
    correction: the sum of V over queue lengths: mean_queue_length = limit + correction / N (+ second / N^2).
    covariance: (levels, levels): N times the covariance of the shares u_k, in the limit.
    second: the sum of V2 over queue lengths; None unless asked for.
    """

    mean_queue_length: Array
    mean_response_time: Array
    tails: Array
    limit: Array
    correction: Array
    covariance: Array
    second: Array | None = None


def refined(params: Params, N: float | Array, *, replacement: bool = True, arrivals: MAP | None = None,
            levels: int | None = None, join: Join = shortest_of_d, order: int = 1) -> Solution:
    """Mean queue lengths of N queues in equilibrium, to O(1/N^2) or O(1/N^3).

    Args:
      params: one system, d > 1 (real).
      N: the number of queues.
      replacement: whether the d queues may coincide (then d may be any real number; else a whole number <= N).
      arrivals: an MMPP (diagonal D1) per server, descriptor (N D0, N D1), whose rate must be that of params.
      levels: queue lengths kept (static); chosen where params are concrete, so that u_k^min(1, d-1) < 1e-13 at the end.
      join: the joining rule, see :mod:`hetjax.models.supermarket.mean_field`; others than the default start from
        Newton's iteration on the truncated mean field.
      order: 1 for V/N; 2 for V2/N^2 as well: Poisson arrivals, replacement, d >= 2 only, and dearer.

    Returns:
      Solution with :class:`Refined`; ``residual`` that of the Lyapunov equation, relative. Differentiable. Cost
      O(10 (levels phases)^3), a power more for order 2. V2/V grows with the load: exponential service, N = 10,
      d = 2, rho = .9: limit 2.3527, order 1 2.7513, order 2 2.8045, simulated 2.8002.

    >>> from hetjax.models.supermarket import Params, refined
    >>> found = refined(Params(0.9, 2, [1.0], [[-1.0]]), 10).value
    >>> round(float(found.correction), 6), round(float(found.mean_queue_length), 4)
    (3.986427, 2.7513)
    """
    if levels is None:
        if not concrete(*jax.tree.leaves(params)):
            raise ValueError("levels = None: the parameters are traced; give levels")
        levels = _levels(params)
    if arrivals is not None and concrete(arrivals.D1):
        D1 = np.asarray(arrivals.D1)
        require(not np.any(D1 - np.diag(np.diag(D1))), "arrivals", "D1 with off-diagonal rates",
                "an MMPP: diagonal D1")
    if not replacement and concrete(params.d):
        require(float(params.d) == int(params.d) and float(params.d) <= float(N), "d", float(params.d),
                f"a whole number <= N = {N} without replacement")
    require(order in (1, 2), "order", order, "1 or 2")
    if order == 2:
        require(replacement and arrivals is None, "order", order, "1 without replacement or with an MMPP stream")
        if concrete(params.d):
            require(float(params.d) >= 2, "d", float(params.d), ">= 2 for order = 2")
    return _refined(params, jnp.asarray(N, params.T.dtype), arrivals, replacement, levels, join, order)


def _levels(params: Params) -> int:
    found = fixed_point(params).value
    depth = np.asarray(-found.log_tails) * min(1.0, float(params.d) - 1)
    least = -np.log(float(jnp.finfo(params.T.dtype).eps))
    return int(np.searchsorted(depth, least)) + 1


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _refined(params: Params, N: Array, arrivals: MAP | None, replacement: bool, levels: int, join: Join,
             order: int) -> Solution:
    p = params.phases
    if join is shortest_of_d:
        start = fixed_point(params, levels=max(levels, 8))
        x, code = start.value.exactly[:levels], start.status
    else:
        other = newton_fixed_point(params, levels, field=lambda q, s: drift(q, s, join))
        s, code = other.value, other.status
        x = s - jnp.concatenate([s[1:], jnp.zeros((1, p), s.dtype)])

    def cumulate(x: Array) -> Array:
        return lax.cumsum(x.reshape(levels, p), axis=0, reverse=True)

    def differences(s: Array) -> Array:
        return (s - jnp.concatenate([s[1:], jnp.zeros((1, p), s.dtype)])).reshape(-1)

    def rule(params: Params, u: Array) -> Array:
        # derivatives of powers of a vanishing u_k lose all digits; for d >= 2 what is below rounding does not matter
        return join(params, jnp.where(u > jnp.where(params.d >= 2, float(jnp.finfo(u.dtype).eps), 0), u, 0))

    def F(x: Array) -> Array:
        return differences(drift(params, cumulate(x), rule))

    def entering(per_queue: Array, x: Array) -> Array:
        """What arrivals at the rates ``per_queue`` do to x."""
        s = cumulate(x)
        first = per_queue[0] * (1 - jnp.sum(s[0])) * params.alpha
        return differences(jnp.concatenate([first[None], per_queue[1:, None] * x.reshape(levels, p)[:-1]]))

    x = x.reshape(-1)
    A = jax.jacfwd(F)(x)

    def flows(x: Array) -> tuple[Array, Array, Array]:
        return _flows(params, x.reshape(levels, p), rule(params, tails_of(cumulate(x))))

    Q = _noise(*flows(x))
    own = jnp.zeros_like(x)
    if not replacement:
        u = tails_of(cumulate(x))
        d = params.d
        lost = d * (d - 1) / 2 * jnp.exp((d - 1) * jnp.log(u)) * (1 - u)
        flow = -params.arrival_rate * (lost[:-1] - lost[1:])
        exactly = u[:-1] - u[1:]
        own = own + entering(flow / exactly, x)
    if arrivals is not None:
        c = _rate_covariance(arrivals)

        def per_rate(x: Array) -> Array:
            return entering(join(params, tails_of(cumulate(x))) / params.arrival_rate, x)

        f, change = jax.jvp(per_rate, (x,), (per_rate(x),))
        Q = Q + 2 * c * f[:, None] * f[None]
        own = own + c * change
    W = lyapunov(A, Q, 1 / params.mean_service)
    residual = jnp.max(jnp.abs(A @ W + W @ A.T + Q)) / jnp.max(jnp.abs(Q))

    def curvature(direction: Array, column: Array) -> Array:
        return jax.jvp(lambda y: jax.jvp(F, (y,), (direction,))[1], (x,), (column,))[1]

    bend = jnp.sum(jax.vmap(curvature)(jnp.eye(x.size, dtype=x.dtype), W), axis=0)
    shift = jnp.linalg.solve(A, -(own + bend / 2))
    V = cumulate(shift)
    correction = jnp.sum(V)
    s = cumulate(x)
    limit = jnp.sum(s)
    lengths = jnp.einsum("kilj->kl", _cumulated(W, levels, p))
    second, total = None, V / N
    if order == 2:
        V2 = cumulate(second_order_shift(F, lambda y: _noise(*flows(y)), third_jump_moments(*flows(x)), x, shift, W,
                                         lambda G: lyapunov(A, G, 1 / params.mean_service)))
        second, total = jnp.sum(V2), total + V2 / N**2
        code = jnp.where((code == int(Status.OK)) & (params.d < 2), int(Status.OUT_OF_DOMAIN), code)
    mean = limit + jnp.sum(total)
    value = Refined(mean, mean / params.arrival_rate, jnp.sum(s + total, axis=1), limit, correction, lengths, second)
    good = jnp.isfinite(mean) & (residual < 1e6 * float(jnp.finfo(x.dtype).eps))
    failed = jnp.where(jnp.isfinite(mean), int(Status.NOT_CONVERGED), int(Status.NONFINITE))
    code = jnp.where((code == int(Status.OK)) & ~good, failed, code).astype(jnp.uint8)
    return Solution(value, code, lax.stop_gradient(residual), DOUBLINGS)


def _cumulated(W: Array, levels: int, p: int) -> Array:
    W = W.reshape(levels, p, levels, p)
    return lax.cumsum(lax.cumsum(W, axis=0, reverse=True), axis=2, reverse=True)


def _flows(params: Params, x: Array, r: Array) -> tuple[Array, Array, Array]:
    """Rates between the states (k, i), k >= 1, from outside (idle queues) and to it; a state to itself: none."""
    levels, p = x.shape
    off = off_diagonal(params.T)
    k = jnp.arange(levels)
    flow = jnp.zeros((levels, p, levels, p), x.dtype)
    flow = flow.at[k, :, k, :].add(x[:, :, None] * off[None])
    up = x[:-1] * r[1:, None]
    flow = flow.at[k[:-1], :, k[1:], :].add(up[:, :, None] * jnp.eye(p, dtype=x.dtype)[None])
    done = x[:, :, None] * (params.exit_rates[:, None] * params.alpha[None])[None]
    flow = flow.at[k[1:], :, k[:-1], :].add(done[1:])
    born = jnp.zeros_like(x).at[0].add(r[0] * (1 - jnp.sum(x)) * params.alpha)
    gone = jnp.zeros_like(x).at[0].add(x[0] * params.exit_rates)
    return flow.reshape(levels * p, levels * p), born.reshape(-1), gone.reshape(-1)


def _noise(flow: Array, born: Array, gone: Array) -> Array:
    """Q: in + out on the diagonal, minus the flows between two states off it."""
    return jnp.diag(jnp.sum(flow, axis=0) + jnp.sum(flow, axis=1) + born + gone) - flow - flow.T


def lyapunov(A: Array, Q: Array, shift: Array) -> Array:
    """W with A W + W A^T + Q = 0 for a stable A (n, n) and symmetric Q, by doubling.

    With B = (qI - A)^-1 (qI + A) the answer is the sum of B^j P B^jT, P = 2q (qI - A)^-1 Q (qI - A)^-T, and 2^m terms
    of it take m squarings (Smith 1968): 7 to 10 as a rule. ``shift`` q > 0 near the geometric mean of the rates.
    Derivatives by the implicit function theorem. O(10 n^3), O(40 n^3) at most.

    >>> import jax.numpy as jnp
    >>> float(lyapunov(jnp.array([[-2.0]]), jnp.array([[4.0]]), jnp.asarray(1.0))[0, 0])
    1.0
    """
    W = lax.custom_linear_solve(lambda W: -(A @ W + W @ A.T), Q, lambda _, Q: _doubling(A, Q, shift),
                                lambda _, Q: _doubling(A.T, Q, shift))
    return (W + W.T) / 2


def _doubling(A: Array, Q: Array, shift: Array) -> Array:
    n = A.shape[0]
    identity = jnp.eye(n, dtype=A.dtype)
    both = jnp.linalg.solve(shift * identity - A, jnp.concatenate([shift * identity + A, Q], axis=1))
    B, half = both[:, :n], both[:, n:]
    W = 2 * shift * jnp.linalg.solve(shift * identity - A, half.T).T
    enough = float(jnp.finfo(A.dtype).eps) / 64

    def going(state: tuple[Array, Array, Array, Array]) -> Array:
        _, W, added, m = state
        return (added > enough * jnp.max(jnp.abs(W))) & (m < DOUBLINGS)  # the next term is smaller still, by a square

    def double(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        B, W, _, m = state
        more = B @ W @ B.T
        return B @ B, W + more, jnp.max(jnp.abs(more)), m + 1

    return lax.while_loop(going, double, (B, W, jnp.max(jnp.abs(W)), jnp.zeros((), jnp.int32)))[1]


def _rate_covariance(arrivals: MAP) -> Array:
    """c = integral over t > 0 of cov(lambda(0), lambda(t)) = gamma L (1 gamma - Q)^-1 (L 1 - lambda 1)."""
    generator = arrivals.D0 + arrivals.D1
    gamma = stationary(generator).value
    rates = jnp.sum(arrivals.D1, axis=1)
    around = rates - gamma @ rates
    ones = jnp.ones_like(gamma)
    return (gamma * rates) @ jnp.linalg.solve(ones[:, None] * gamma[None] - generator, around)


__all__ = ["Refined", "lyapunov", "refined"]
