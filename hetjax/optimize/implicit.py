"""Derivatives of an optimum in its parameters, by the implicit function theorem.

At the optimum P g(x, theta) = 0 and c_A(x, theta) = 0 (g: gradient of the Lagrangian, P: projector onto what no bound
holds, A: the constraints with a multiplier). Differentiating both,

    [P H P + (1 - P)   P C'] [dx]     [P dg/dtheta]
    [C P               0   ] [dmu] = -[dc/dtheta  ] dtheta,   C the slopes of the constraints in A.

Whole variables and what a bound holds stay where they are, which is right as long as they do.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.optimize.newton import held, projection
from hetjax.optimize.solve import Found
from hetjax.optimize.space import Space

Array = jax.Array


def differentiable(function: Callable[[dict[str, Array], Any], tuple[Array, Array]], space: Space, found: Found,
                   theta: Any) -> Array:
    """``found.x`` (n,) with its derivatives in ``theta`` (a pytree of real arrays), forwards and backwards.

    ``function(variables by name, theta) -> (value, constraints)`` is what was minimised. The cost falls on derivatives
    alone. Where the free part of the Hessian is singular the derivative is infinite or NaN.
    """
    if not found.x.shape[0]:
        return jax.lax.stop_gradient(found.x)

    def conditions(x: Array, theta: Any, found: Found) -> tuple[Array, Array]:
        """The gradient of the Lagrangian, and the constraints."""
        def lagrangian(x: Array) -> tuple[Array, Array]:
            value, constraints = function(space.values(x, found.k), theta)
            return value + jnp.sum(constraints * found.multipliers), constraints

        return jax.jacfwd(lagrangian, has_aux=True)(x)

    @jax.custom_jvp
    def design(theta: Any, found: Found) -> Array:
        return found.x

    @design.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (theta, found), (change, _) = primals, tangents
        x = found.x
        projector = projection(held(x, found.gradient, space), space, x.dtype)
        H, C = jax.jacfwd(conditions)(x, theta, found)
        pressed = found.multipliers > 0
        C = jnp.where(pressed[:, None], C, 0) @ projector
        system = jnp.block([[projector @ H @ projector + jnp.eye(len(x), dtype=x.dtype) - projector, C.T],
                            [C, jnp.diag((~pressed).astype(x.dtype))]])
        _, (slopes, moved) = jax.jvp(lambda theta: conditions(x, theta, found), (theta,), (change,))
        right = jnp.concatenate([projector @ slopes, jnp.where(pressed, moved, 0)])
        return x, -jnp.linalg.solve(system, right)[:len(x)]

    return design(theta, jax.lax.stop_gradient(found))
