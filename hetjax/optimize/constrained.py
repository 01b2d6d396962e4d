"""Constraints c(x) <= 0 by an augmented Lagrangian.

    F(x; mu, rho) = f(x) + sum_i [max(0, mu_i + rho c_i(x))^2 - mu_i^2] / (2 rho)

is minimised again and again with mu <- max(0, mu + rho c) and a rho that grows while the violation does not fall by
four. At the end mu are the multipliers of the constraints: what one unit more of room would save. Source: Hestenes
(1969), Powell (1969), Rockafellar (1973).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.optimize.loops import Method, descend
from hetjax.optimize.newton import FORWARD_UP_TO, Point, newton
from hetjax.optimize.space import Space

Array = jax.Array
Function = Callable[[Array], tuple[Array, Array]]  # x -> value, constraints (C,)
ROUNDS = 30  # of multipliers
GROWTH, LARGEST = 10.0, 1e8  # of rho, in a round and altogether
POLISHED_UP_TO = 64  # variables: a Hessian is formed


class Scale(NamedTuple):
    """What is large: of the value, and of each constraint (C,)."""

    value: Array
    constraints: Array


class Local(NamedTuple):
    """A local minimum in x, or where the search for it ended."""

    x: Array
    value: Array
    constraints: Array  # (C,)
    multipliers: Array  # (C,)
    gradient: Array  # (n,) of the Lagrangian
    hessian: Array  # (n, n) of the augmented Lagrangian
    residual: Array  # largest projected slope over a variable's width, over the value's scale
    violation: Array  # largest constraint over its scale, 0 if none is violated by more than the tolerance
    converged: Array
    steps: Array


def tolerance_of(dtype: Any) -> float:
    """What a residual must come below: the square root of the rounding unit."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def lagrangian(function: Function, x: Array, multipliers: Array, rho: Array) -> tuple[Array, tuple[Array, Array]]:
    """F and (f, c)."""
    value, constraints = function(x)
    if not constraints.shape[0]:
        return value, (value, constraints)
    pressed = jnp.maximum(multipliers + rho * constraints, 0)
    return value + jnp.sum((pressed * pressed - multipliers * multipliers) / (2 * rho)), (value, constraints)


def local_minimum(function: Function, x: Array, space: Space, method: Method, steps: int, scale: Scale) -> Local:
    """Down from ``x`` (n,), n >= 1: the loop of ``method``, then Newton steps with ``steps`` evaluations at most.

    "auto": Newton steps alone for a few variables, whose derivatives are taken forwards; L-BFGS first for more.
    """
    if method == "auto":
        method = "newton" if x.shape[0] <= FORWARD_UP_TO else "lbfgs"
    tolerance = tolerance_of(x.dtype)
    allowed = float(jnp.finfo(x.dtype).eps) ** 0.7  # of a constraint, over its scale: far from what counts as violated
    count = scale.constraints.shape[0]
    rho = GROWTH * scale.value / (scale.constraints * scale.constraints)
    used = jnp.zeros((), jnp.int32)
    multipliers = jnp.zeros_like(scale.constraints)
    if method != "newton":
        def smooth(x: Array) -> Array:
            return lagrangian(function, x, jnp.zeros_like(multipliers), rho)[0]

        x, used = descend(smooth, x, space, method, steps, tolerance * scale.value)
    polish = x.shape[0] <= POLISHED_UP_TO

    def minimise(x: Array, multipliers: Array, rho: Array) -> tuple[Point, Array]:
        def merit(x: Array) -> Any:
            return lagrangian(function, x, multipliers, rho)

        end = newton(merit, x, space, steps if polish else 1)
        return end.at, end.steps

    if not count:
        at, more = minimise(x, multipliers, rho)
        used = used + more
    else:
        class State(NamedTuple):
            at: Point
            multipliers: Array
            rho: Array
            missed: Array
            used: Array
            rounds: Array

        def turn(state: State) -> State:
            at, more = minimise(state.at.x, state.multipliers, state.rho)
            c = at.aux[1]
            missed = jnp.max(jnp.abs(jnp.maximum(c, -state.multipliers / state.rho)) / scale.constraints)
            updated = jnp.maximum(state.multipliers + state.rho * c, 0)
            slow = missed > state.missed / 4
            harder = jnp.minimum(GROWTH * state.rho, LARGEST * rho)
            return State(at, jnp.where(jnp.isfinite(updated), updated, state.multipliers),
                         jnp.where(slow, harder, state.rho), missed, state.used + more, state.rounds + 1)

        start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                             jax.eval_shape(lambda: minimise(x, multipliers, rho)[0]))._replace(x=x)
        begin = State(start, multipliers, rho, jnp.full((), jnp.inf, x.dtype), used, jnp.zeros((), jnp.int32))
        end = lax.while_loop(lambda s: (s.rounds < ROUNDS) & (s.missed > allowed), turn, begin)
        at, multipliers, rho, used = end.at, end.multipliers, end.rho, end.used
    value, constraints = at.aux
    size = jnp.maximum(scale.value, jnp.abs(value))
    residual = at.residual / jnp.where(size > 0, size, 1)
    violation = violated(constraints, scale)
    good = jnp.isfinite(value) & (residual <= tolerance) & (violation <= 0)
    return Local(at.x, value, constraints, multipliers, at.gradient, at.hessian, residual, violation, good, used)


def violated(constraints: Array, scale: Scale) -> Array:
    """The largest constraint over its scale; 0 below the tolerance, so that rounding decides nothing."""
    if not constraints.shape[0]:
        return jnp.zeros((), constraints.dtype)
    worst = jnp.max(constraints / scale.constraints)
    worst = jnp.where(jnp.isnan(worst), jnp.inf, worst)
    return jnp.where(worst > tolerance_of(constraints.dtype), worst, 0)


def scale_of(values: Array, constraints: Array) -> Scale:
    """From the values (S,) and constraints (S, C) at the starts; infinite and undefined ones do not count."""
    def largest(a: Array) -> Array:
        return jnp.max(jnp.where(jnp.isfinite(a), jnp.abs(a), 0), axis=0)

    known = jnp.isfinite(values)
    some = jnp.sort(jnp.where(known, values, jnp.min(jnp.where(known, values, jnp.inf))))
    spread = jnp.where(jnp.any(known), some[some.shape[0] // 2] - some[0], 0)  # the largest may be next to a pole
    value = jnp.maximum(jnp.min(jnp.where(known, jnp.abs(values), jnp.inf)), spread)
    value = jnp.where(jnp.isfinite(value) & (value > 0), value, 1)
    sizes = largest(constraints)
    return Scale(value, jnp.where(sizes > 0, sizes, 1))


