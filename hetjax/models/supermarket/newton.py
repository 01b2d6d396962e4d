"""The fixed point a second time, by another method: Newton's iteration on the truncated mean field.

The unknowns are s_1..s_K, the equation is drift(s) = 0. Its Jacobian couples level k with k-1, k and k+1 only and is
found from the drift by automatic differentiation of three coloured directions a phase. Each Newton step is one
block-tridiagonal elimination; an implicit Euler step of a growing length, it follows the flow to its fixed point first
and is Newton's step in the end. Slower than the recursion and dependent on a start; it shares nothing with it but the
parameters, and works for other joining rules as well.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.supermarket.mean_field import drift
from hetjax.models.supermarket.params import Params
from hetjax.result import Solution, Status

Array = jax.Array
Drift = Callable[[Array], Array]


def tridiagonal_jacobian(field: Drift, s: Array) -> tuple[Array, Array, Array]:
    """The blocks of the Jacobian of ``field`` at s (levels, phases): (lower, diagonal, upper), each of shape
    (levels, phases, phases); lower[k, i, j] is the derivative of entry (k, i) in (k-1, j). 3 phases forward passes.

    >>> import jax.numpy as jnp
    >>> lower, diagonal, upper = tridiagonal_jacobian(lambda s: s * s, jnp.array([[1.0], [2.0]]))
    >>> diagonal[:, 0, 0].tolist(), float(abs(lower).max() + abs(upper).max())
    ([2.0, 4.0], 0.0)
    """
    levels, phases = s.shape
    colour = jnp.arange(levels) % 3
    seeds = (colour[None, :] == jnp.arange(3)[:, None]).astype(s.dtype)  # (3, levels)
    directions = seeds[:, None, :, None] * jnp.eye(phases, dtype=s.dtype)[None, :, None, :]

    def push(direction: Array) -> Array:
        return jax.jvp(field, (s,), (direction,))[1]

    columns = jax.vmap(jax.vmap(push))(directions)  # (3, phases j, levels k, phases i)
    columns = jnp.moveaxis(columns, (0, 1), (2, 3))  # (k, i, colour, j)

    def block(offset: int) -> Array:
        wanted = ((jnp.arange(levels) + offset) % 3)[:, None, None, None]
        found = jnp.take_along_axis(columns, wanted, axis=2)[:, :, 0]
        inside = (jnp.arange(levels) + offset >= 0) & (jnp.arange(levels) + offset < levels)
        return jnp.where(inside[:, None, None], found, 0)

    return block(-1), block(0), block(1)


def solve_tridiagonal(lower: Array, diagonal: Array, upper: Array, right: Array) -> Array:
    """x with lower_k x_{k-1} + diagonal_k x_k + upper_k x_{k+1} = right_k; blocks (levels, p, p), right (levels, p)."""
    def forward(carry: tuple[Array, Array], blocks: tuple[Array, ...]) -> tuple[Any, Any]:
        G, y = carry
        low, mid, up, rhs = blocks
        both = jnp.linalg.solve(mid - low @ G, jnp.concatenate([up, (rhs - low @ y)[:, None]], axis=1))
        carry = both[:, :-1], both[:, -1]
        return carry, carry

    phases = right.shape[1]
    start = jnp.zeros((phases, phases), right.dtype), jnp.zeros((phases,), right.dtype)
    _, (G, y) = lax.scan(forward, start, (lower, diagonal, upper, right))

    def backward(x: Array, blocks: tuple[Array, Array]) -> tuple[Array, Array]:
        x = blocks[1] - blocks[0] @ x
        return x, x

    return lax.scan(backward, jnp.zeros_like(right[0]), (G, y), reverse=True)[1]


def newton_fixed_point(params: Params, levels: int, steps: int = 60, start: Array | None = None,
                       field: Callable[[Params, Array], Array] = drift) -> Solution:
    """A zero of the truncated mean field by block-tridiagonal Newton steps with a growing time step.

    Args:
      params: one system, rho < 1, d > 1.
      levels: queue lengths kept (static); arrivals to a queue of that length are lost.
      steps: Newton steps at most; stops where the residual is at rounding level.
      start: (levels, phases); s_k = rho^k alpha-shaped by default, far from the answer but decreasing.
      field: the drift, (params, s) -> ds/dt, coupling neighbouring levels.

    Returns:
      Solution with s of shape (levels, phases), ``residual`` max |ds/dt|, ``iterations``. Entries are right to about
      eps in absolute terms, so that deep tails have no digits; not_converged if the residual stays above 1e4 eps
      lambda. Cost O(steps levels phases^3). Not reverse-mode differentiable (use the recursion).

    >>> from hetjax.models.supermarket import Params
    >>> found = newton_fixed_point(Params(0.9, 2, [1.0], [[-1.0]]), levels=12)
    >>> [round(float(u), 6) for u in found.value[:3, 0]]
    [0.9, 0.729, 0.478297]
    """
    if start is None:
        busy = params.busy_phases()
        start = params.rho ** jnp.arange(levels).astype(busy.dtype)[:, None] * (params.arrival_rate * busy)[None]
    return _newton(params, start, steps, field)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _newton(params: Params, start: Array, steps: int, field: Callable[[Params, Array], Array]) -> Solution:
    def here(s: Array) -> Array:
        return field(params, s)

    def size(s: Array) -> Array:
        return jnp.max(jnp.abs(here(s)))

    identity = jnp.eye(start.shape[1], dtype=start.dtype)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        s, residual, count, time = carry
        lower, diagonal, upper = tridiagonal_jacobian(here, s)
        new = _decreasing(s + solve_tridiagonal(lower, diagonal - identity[None] / time, upper, -here(s)))
        new_residual = size(new)
        return new, new_residual, count + 1, time * jnp.where(new_residual < residual, 4, 1)

    def going(carry: tuple[Array, Array, Array, Array]) -> Array:
        return (carry[2] < steps) & (carry[1] > 2 * float(jnp.finfo(start.dtype).eps) * params.arrival_rate)

    first = (start, size(start), jnp.zeros((), jnp.int32), params.mean_service)
    s, residual, count, _ = lax.while_loop(going, step, first)
    small = residual <= 1e4 * float(jnp.finfo(start.dtype).eps) * params.arrival_rate
    code = jnp.where(small, int(Status.OK), int(Status.NOT_CONVERGED))
    code = jnp.where(jnp.all(jnp.isfinite(s)), code, int(Status.NONFINITE)).astype(jnp.uint8)
    return Solution(s, code, residual, count)


def _decreasing(s: Array) -> Array:
    """s made decreasing in each phase, with entries >= 0 and u_1 <= 1."""
    s = lax.cummin(jnp.maximum(s, 0), axis=0)
    return s / jnp.maximum(jnp.sum(s[0]), 1)
