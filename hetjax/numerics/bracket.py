"""Roots of one real function: the first change of sign on a grid, then fixed numbers of safe interpolation steps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array


class Bracket(NamedTuple):
    """Neighbours ``low`` < ``high`` on a grid with f(low) < 0 <= f(high), and how often f rises through 0 (int32).

    ``rises`` = 0: nowhere on the grid; the ends are then its first two points. ``first``, ``last``: f at its ends.
    """

    low: Array
    high: Array
    f_low: Array
    f_high: Array
    rises: Array
    first: Array
    last: Array


def first_rise(function: Callable[[Array], Array], grid: Array) -> Bracket:
    """The first pair of neighbours of the rising ``grid`` (points,) between which ``function`` turns from negative to
    non-negative; one evaluation a point, pure.

    >>> import jax.numpy as jnp
    >>> found = first_rise(lambda x: x * x - 2, jnp.arange(5.0))
    >>> float(found.low), float(found.high), int(found.rises)
    (1.0, 2.0, 1)
    """
    values = lax.map(function, grid)
    turns = (values[:-1] < 0) & (values[1:] >= 0)
    at = jnp.argmax(turns)
    return Bracket(grid[at], grid[at + 1], values[at], values[at + 1], jnp.sum(turns, dtype=jnp.int32), values[0],
                   values[-1])


def close_in(function: Callable[[Array], Array], low: Array, high: Array, f_low: Array, f_high: Array,
             steps: int) -> tuple[Array, Array, Array]:
    """(low, high, root) by ``steps`` steps of Chandrupatla: inverse quadratic where safe, else halving.

    ``f_low`` and ``f_high``, the values at the ends, are of different signs. Source: T. R. Chandrupatla, Advances in
    Engineering Software 28 (1997) 145-149.

    >>> import jax.numpy as jnp
    >>> low, high, root = close_in(lambda x: x * x - 2, *(jnp.asarray(x) for x in (1.0, 2.0, -1.0, 2.0)), steps=8)
    >>> round(float(root), 12)
    1.414213562373
    """
    tiny, eps = jnp.finfo(low.dtype).tiny, jnp.finfo(low.dtype).eps

    def quotient(x: Array, y: Array) -> Array:
        return x / jnp.where(y == 0, tiny, y)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        a, b, fa, fb, t = carry
        x = a + t * (b - a)
        fx = function(x)
        same = (fx < 0) == (fa < 0)
        c, fc = jnp.where(same, a, b), jnp.where(same, fa, fb)
        b, fb = jnp.where(same, b, a), jnp.where(same, fb, fa)
        a, fa = x, fx
        position, height = quotient(a - b, c - b), quotient(fa - fb, fc - fb)
        smooth = (height * height < position) & ((1 - height) * (1 - height) < 1 - position)
        t = (quotient(fa, fb - fa) * quotient(fc, fb - fc)
             + quotient(c - a, b - a) * quotient(fa, fc - fa) * quotient(fb, fc - fb))
        least = jnp.minimum(quotient(eps * jnp.abs(a), jnp.abs(b - a)), 0.5)
        return (a, b, fa, fb, jnp.where(smooth, jnp.clip(t, least, 1 - least), 0.5)), None

    first = jnp.clip(quotient(f_high, f_high - f_low), 0, 1)
    (a, b, fa, fb, _), _ = lax.scan(step, (high, low, f_high, f_low, first), None, length=steps)
    return jnp.minimum(a, b), jnp.maximum(a, b), jnp.where(jnp.abs(fa) < jnp.abs(fb), a, b)


def follow(equation: Callable[[Array], Array], root: Array) -> Array:
    """``root``, found by whatever means, with the derivatives of the implicit function ``equation(root) = 0``.

    ``equation`` may close over whatever it should be differentiated in.

    >>> import jax, jax.numpy as jnp
    >>> round(float(jax.grad(lambda c: follow(lambda x: x * x - c, jnp.sqrt(c)))(4.0)), 12)
    0.25
    """
    return lax.custom_root(equation, lax.stop_gradient(root), lambda _, guess: guess,
                           lambda linear, y: y / linear(jnp.ones_like(y)))
