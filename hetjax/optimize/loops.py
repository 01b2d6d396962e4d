"""First-order loops (optax): Adam and L-BFGS from many starts at once, each one jitted ``while_loop``."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.optimize.space import Space
from hetjax.optimize.transforms import constrained, unconstrained

Array = jax.Array
Method = Literal["auto", "newton", "lbfgs", "adam"]
METHODS: tuple[Method, ...] = ("auto", "newton", "lbfgs", "adam")
LEARNING_RATE = 0.05  # of Adam, in the unbounded variables


def descend(objective: Callable[[Array], Array], x: Array, space: Space, method: Method, steps: int,
            tolerance: Array) -> tuple[Array, Array]:
    """From ``x`` (n,) down to where the gradient in the unbounded variables is below ``tolerance``, or for
    ``steps``; the best point seen, and the number of steps. Reverse mode: one gradient a step, whatever n.
    """
    import optax

    optimizer = optax.lbfgs() if method == "lbfgs" else optax.adam(LEARNING_RATE)

    def cost(u: Array) -> Array:
        return objective(constrained(space, u))

    slope = optax.value_and_grad_from_state(cost) if method == "lbfgs" else None

    def going(state: Any) -> Array:
        *_, size, count = state
        return (count < steps) & ~((size <= tolerance) | jnp.isnan(size))

    def step(state: Any) -> Any:
        u, memory, best_u, best, _, count = state
        value, gradient = slope(u, state=memory) if slope is not None else jax.value_and_grad(cost)(u)
        better = value < best
        more = {"value": value, "grad": gradient, "value_fn": cost} if method == "lbfgs" else {}
        updates, memory = optimizer.update(gradient, memory, u, **more)
        return (optax.apply_updates(u, updates), memory, jnp.where(better, u, best_u), jnp.where(better, value, best),
                jnp.max(jnp.abs(gradient)), count + 1)

    with jax.numpy_dtype_promotion("standard"):  # optax mixes integer counters and reals
        u = unconstrained(space, x)
        infinite = jnp.full((), jnp.inf, x.dtype)
        state = (u, optimizer.init(u), u, infinite, infinite, jnp.zeros((), jnp.int32))
        *_, best_u, best, _, count = lax.while_loop(going, step, state)
    return jnp.where(jnp.isfinite(best), constrained(space, best_u), x), count
