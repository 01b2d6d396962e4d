"""Newton's method in a box and on simplices, by active sets; it ends where rounding does.

Entries on a bound that the gradient presses outwards are fixed; shares move with a sum of zero. With P the projector
onto what is left and H = V diag(w) V' of P H P, the step is -V diag(1/|w|) V' P g: Newton's near a minimum, and
downhill everywhere. It goes to the nearest bound at most and is shortened until it helps. A step that leaves the value
within rounding is still taken if it halves the gradient, which keeps its digits where the value has lost them (N(K)
where K hardly matters any more).

The derivatives of a small problem are taken forwards, so that objectives with a while_loop inside work too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.optimize.space import Space

Array = jax.Array
FORWARD_UP_TO = 8  # entries
ROUNDING = 16  # eps of the value: smaller changes say nothing
SHORTEST = 1e-9  # of a step

Merit = Callable[[Array], tuple[Array, Any]]  # x -> what is minimised, and what else is wanted of the point


class Point(NamedTuple):
    """A point with its derivatives; ``residual``: the largest entry of P g times the width of its variable."""

    x: Array
    merit: Array
    aux: Any
    gradient: Array
    hessian: Array
    residual: Array


class Newton(NamedTuple):
    """Where :func:`newton` ended."""

    at: Point
    steps: Array


def with_derivatives(merit: Merit, x: Array, space: Space) -> Point:
    """``merit`` at x with gradient and Hessian."""
    if x.shape[0] <= FORWARD_UP_TO:
        basis = jnp.eye(x.shape[0], dtype=x.dtype)

        def first(x: Array) -> Any:
            value, slope, aux = jax.vmap(lambda d: jax.jvp(merit, (x,), (d,), has_aux=True),
                                         out_axes=(None, 0, None))(basis)
            return slope, (slope, value, aux)
    else:
        def first(x: Array) -> Any:
            (value, aux), slope = jax.value_and_grad(merit, has_aux=True)(x)
            return slope, (slope, value, aux)

    hessian, (gradient, value, aux) = jax.jacfwd(first, has_aux=True)(x)
    free = projection(held(x, gradient, space), space, x.dtype) @ gradient
    residual = jnp.max(jnp.abs(free) * space.widths(x))
    return Point(x, value, aux, gradient, hessian, residual)


def held(x: Array, gradient: Array, space: Space) -> Array:
    """(n,) which entries are on a bound that they would leave the domain through.

    On a simplex the gradient counts less its mean over the positive shares.
    """
    low, high = jnp.asarray(space.low, x.dtype), jnp.asarray(space.high, x.dtype)
    if len(space.groups):
        groups = jnp.asarray(space.groups, x.dtype)
        inside = groups * (x > 0).astype(x.dtype)[None]
        gradient = gradient - groups.T @ ((inside @ gradient) / jnp.maximum(jnp.sum(inside, axis=1), 1))
    return (x <= low) & ((gradient >= 0) | (low >= high)) | (x >= high) & (gradient <= 0)


def projection(stuck: Array, space: Space, dtype: Any) -> Array:
    """(n, n) the projector P onto the directions that are free if the entries ``stuck`` (n,) are held."""
    free = (~stuck).astype(dtype)
    if not len(space.groups):
        return jnp.diag(free)
    groups = jnp.asarray(space.groups, dtype) * free[None]
    return jnp.diag(free) - groups.T @ (groups / jnp.maximum(jnp.sum(groups, axis=1, keepdims=True), 1))


def spectrum(at: Point, projector: Array, space: Space) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of P H P, with every variable in units of its width."""
    widths = space.widths(at.x)
    finite = jnp.where(jnp.isfinite(at.hessian), at.hessian, 0)  # a point without derivatives goes nowhere
    scaled = projector @ (finite * widths[:, None] * widths[None]) @ projector
    return (scaled[0], jnp.ones_like(scaled)) if len(scaled) == 1 else jnp.linalg.eigh(scaled)


def direction(at: Point, space: Space) -> Array:
    """(n,) the step from a point."""
    widths = space.widths(at.x)
    gradient = jnp.where(jnp.isfinite(at.gradient), at.gradient, 0) * widths
    low, high = jnp.asarray(space.low, at.x.dtype), jnp.asarray(space.high, at.x.dtype)
    stuck = held(at.x, at.gradient, space)

    def along(out: Array) -> tuple[Array, Array]:
        projector = projection(stuck | out, space, at.x.dtype)
        w, V = spectrum(at, projector, space)
        size = jnp.abs(w)
        slope = projector @ gradient
        steep = jnp.max(size) + jnp.max(jnp.abs(slope))  # a line has no curvature, and its step must stay finite
        floor = jnp.finfo(w.dtype).eps * steep + jnp.finfo(w.dtype).tiny
        step = -projector @ (V @ ((V.T @ slope) / jnp.maximum(size, floor)))
        return step / jnp.maximum(jnp.max(jnp.abs(step)), 1), slope

    def leaves(step: Array) -> Array:
        return (at.x <= low) & (step < 0) | (at.x >= high) & (step > 0)

    def again(_: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step, slope = along(state[2])
        return step, slope, leaves(step) | state[2]

    nothing = jnp.zeros_like(stuck)
    if at.x.shape[0] == 1:
        return along(nothing)[0] * widths
    slope = projection(stuck, space, at.x.dtype) @ gradient
    # what Newton's step would push out of the domain is held as well, and the step taken again
    step, rest, _ = lax.fori_loop(0, 2, again, (slope, slope, nothing))
    # nothing may be left over then: downhill, which leads inside
    steepest = -slope / jnp.maximum(jnp.max(jnp.abs(slope)), jnp.finfo(slope.dtype).tiny)
    little = leaves(step).any() | (jnp.max(jnp.abs(rest)) < jnp.max(jnp.abs(slope)) / 2)
    return jnp.where(little, steepest, step) * widths


def move(x: Array, step: Array, space: Space) -> Array:
    """x + step, but not beyond the first bound on the way, which is met exactly."""
    low, high = jnp.asarray(space.low, x.dtype), jnp.asarray(space.high, x.dtype)
    room = jnp.where(step < 0, low - x, high - x)
    ratio = jnp.where(step == 0, jnp.inf, room / jnp.where(step == 0, 1, step))
    share = jnp.minimum(jnp.min(ratio), 1)
    met = (ratio <= share) & (step != 0)
    moved = jnp.where(met, jnp.where(step < 0, low, high), jnp.clip(x + share * step, low, high))
    for group in space.groups.astype(bool):
        at = np.flatnonzero(group)
        moved = moved.at[at].divide(jnp.sum(moved[at]))
    return moved


def newton(merit: Merit, x: Array, space: Space, steps: int) -> Newton:
    """Minimises ``merit`` from ``x`` (n,), n >= 1, in at most ``steps`` evaluations."""
    eps = jnp.finfo(x.dtype).eps

    class State(NamedTuple):
        at: Point
        trial: Array
        length: Array
        used: Array
        done: Array

    def step(state: State) -> State:
        new, old = with_derivatives(merit, state.trial, space), state.at
        noise = ROUNDING * eps * jnp.abs(old.merit)
        better = (new.merit < old.merit - noise) | ((new.merit <= old.merit + noise)
                                                    & (new.residual < old.residual / 2))
        better |= (state.used == 0) & ~jnp.isnan(new.merit)  # the start itself
        better &= jnp.isfinite(new.merit) & jnp.all(jnp.isfinite(new.gradient))
        at = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)
        length = jnp.where(better, jnp.minimum(4 * state.length, 1), state.length / 4).astype(x.dtype)
        way = direction(at, space)
        promised = -jnp.sum(at.gradient * way) * length / 2
        done = ~better & ((promised <= noise) | (length < SHORTEST)) | (at.residual == 0)
        trial = move(at.x, length * way, space)
        done |= jnp.all(trial == at.x) | (~better & (state.used == 0))
        return State(at, trial, length, state.used + 1, done)

    shapes = jax.eval_shape(lambda x: with_derivatives(merit, x, space), x)
    nowhere = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.inf if jnp.issubdtype(leaf.dtype, jnp.floating) else 0,
                                                 leaf.dtype), shapes)._replace(x=x)
    begin = State(nowhere, x, jnp.ones((), x.dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    end = lax.while_loop(lambda s: (s.used < steps) & ~s.done, step, begin)
    return Newton(end.at, end.used)
