"""Weighted least squares inside bounds by Levenberg and Marquardt's method, pure, for a batch of starts at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
_MOST_STEPS = 200


class Fitted(NamedTuple):
    """``z`` (p,) in (0, 1), ``chi_square`` there, ``steps`` tried, ``settled``: the last step changed nothing."""

    z: Array
    chi_square: Array
    steps: Array
    settled: Array


class _State(NamedTuple):
    u: Array
    trial: Array  # looked at next
    chi_square: Array
    normal: Array  # J'J at u
    descent: Array  # -J'r at u
    damping: Array
    steps: Array
    done: Array


def minimize_residuals(residuals: Callable[[Array], Array], start: Array) -> Fitted:
    """The z in (0, 1)^p that minimises the sum of squares of ``residuals(z)`` (N,), from ``start`` (p,); pure.

    Works on the logits of z. A step to where a residual is not finite is refused, so that the search stays where the
    model has values. Forward mode derivatives of ``residuals``; at most 200 steps of O(N p^2) and p tangents.

    >>> import jax.numpy as jnp
    >>> found = minimize_residuals(lambda z: jnp.stack([z[0] - 0.25, 10 * (z[1] - z[0])]), jnp.asarray([0.5, 0.9]))
    >>> [round(float(x), 9) for x in found.z], bool(found.settled)
    ([0.25, 0.25], True)
    """
    eps, p = float(jnp.finfo(start.dtype).eps), start.shape[0]

    def twice(u: Array) -> tuple[Array, Array]:
        r = residuals(jax.nn.sigmoid(u))
        return r, r

    def step(state: _State) -> _State:
        J, r = jax.jacfwd(twice, has_aux=True)(state.trial)
        value = jnp.sum(r * r)
        better = value < state.chi_square  # not where it is NaN
        little = state.chi_square - value <= 4 * eps * (state.chi_square + eps)
        still = jnp.max(jnp.abs(state.trial - state.u)) <= eps**0.75
        u = jnp.where(better, state.trial, state.u)
        normal = jnp.where(better, jnp.swapaxes(J, 0, 1) @ J, state.normal)
        descent = jnp.where(better, -(r @ J), state.descent)
        damping = jnp.clip(jnp.where(better, state.damping / 5, state.damping * 4), 1e-12, 1e12)
        size = jnp.diag(normal)
        lift = damping * jnp.diag(size + eps * jnp.max(size) + jnp.finfo(size.dtype).tiny)
        move = jnp.linalg.solve(normal + lift, descent)
        move = jnp.clip(jnp.where(jnp.isfinite(move), move, 0), -4, 4)
        begun = state.steps > 0
        done = begun & ((better & little) | still | (damping >= 1e12)) | ~(begun | better)
        return _State(u, jnp.clip(u + move, -30, 30), jnp.where(better, value, state.chi_square), normal, descent,
                      jnp.where(begun, damping, state.damping), state.steps + 1, done)

    u = jnp.log(start) - jnp.log1p(-start)
    nothing = jnp.zeros_like(u)
    begun = _State(u, u, jnp.full_like(u[0], jnp.inf), jnp.eye(p, dtype=u.dtype), nothing, jnp.full_like(u[0], 1e-2),
                   jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    end = lax.while_loop(lambda s: ~s.done & (s.steps < _MOST_STEPS), step, begun)
    return Fitted(jax.nn.sigmoid(end.u), end.chi_square, end.steps, end.done & jnp.isfinite(end.chi_square))
