"""Rewards of chains whose levels are computed where they are used, instead of being stored."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.ctmc import cofactors
from hetjax.ctmc.batching import points_last
from hetjax.ctmc.blocks import LARGE, points_together, prepare
from hetjax.ctmc.generator import Levels
from hetjax.ctmc.levels import expectation_levels, expectation_points, expectation_steps, from_law
from hetjax.result import Solution, Status

Block = Callable[[jax.Array, Any], tuple[jax.Array, jax.Array, jax.Array, jax.Array]]


def expectation_by_level(block: Block, parameters: Any, count: int) -> Solution:
    """Stationary means of a chain with levels: :func:`hetjax.ctmc.expectation_levels` for levels given by a function.

    Args:
      block: ``block(level, parameters) -> (up, local, down, rewards)``, the rates of one level, (S, S) each or (S,) for
        a diagonal ``up`` or ``down`` (see :class:`hetjax.ctmc.Levels`), and its rewards, (S,) or (k, S). ``level`` is a
        traced int32, 0 to count - 1.
      parameters: a pytree of arrays or numbers. Whatever ``vmap`` or a derivative acts on must come through it.
      count: the number of levels, at least 1.

    Returns:
      ``Solution`` as :func:`hetjax.ctmc.expectation_levels`: ``value`` a scalar, or (k,).

    In batches (``vmap``) 2.3 to 3.1 times as fast as ``vmap`` of stored levels for up to three phases, whose traffic
    through memory dominates there, and 2.6 and 2.4 times for 8 and 17 (tests/benchmarks/ctmc_solvers.py).
    Derivatives go through stored levels.

    >>> import jax, jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> def mm1k(level, load):
    ...     one = jnp.ones(1)
    ...     return load * one, jnp.zeros((1, 1)), one, level.astype(float) * one
    >>> means = jax.vmap(lambda load: ctmc.expectation_by_level(mm1k, load, 3).value)(jnp.array([0.5, 1.0]))
    >>> [round(float(mean), 6) for mean in means]
    [0.571429, 1.0]
    """
    if count < 1:
        raise ValueError(f"count = {count!r}; give the number of levels, at least 1")
    parameters = jax.tree.map(jnp.asarray, parameters)
    leaves, tree = jax.tree.flatten(parameters)
    if not leaves:
        raise ValueError("parameters is empty; give at least one number that the chain depends on")
    outline = jax.eval_shape(block, jnp.int32(0), parameters)
    if len(outline) != 4 or outline[3].shape[-1:] != outline[1].shape[:1]:
        raise ValueError(f"block gives shapes {[x.shape for x in outline]}; give up, local, down, rewards of one level")
    single = outline[3].ndim == 1
    dtype = jnp.result_type(*outline[:3])
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)

    def read(level: jax.Array, arrays: Any) -> tuple[jax.Array, ...]:
        up, local, down, rewards = block(level, jax.tree.unflatten(tree, arrays))
        rates = (jnp.asarray(x, dtype) for x in (up, local, down))
        return *rates, jnp.asarray(rewards[None] if single else rewards, dtype)

    def stored(arrays: Any) -> tuple[Levels, jax.Array]:
        up, local, down, rewards = jax.vmap(read, in_axes=(0, None))(jnp.arange(count, dtype=jnp.int32), arrays)
        return prepare(Levels(up, local, down)), jnp.moveaxis(rewards, 1, 0)

    def all_levels(*arrays: Any) -> tuple[Levels, jax.Array]:
        """Arrays may have a last axis of points."""
        form = stored if arrays[0].ndim == leaves[0].ndim else jax.vmap(stored, in_axes=-1, out_axes=-1)
        return form(arrays)

    phases = outline[1].shape[0]
    closed = phases <= cofactors.PHASES

    def columns(rewards: jax.Array) -> jax.Array:
        return jnp.moveaxis(jnp.concatenate([jnp.ones_like(rewards[:1]), rewards]), 0, 1)

    def points(*arrays: Any) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        form = read if arrays[0].ndim == leaves[0].ndim else jax.vmap(read, in_axes=(None, -1), out_axes=-1)

        def step(level: jax.Array) -> tuple[jax.Array, ...]:
            up, local, _, rewards = form(level - 1, arrays)
            return form(level, arrays)[2], local, up, rewards if closed else columns(rewards)

        _, local, _, rewards = form(jnp.int32(count - 1), arrays)
        steps = jnp.arange(1, count, dtype=jnp.int32)
        if closed:
            values, good = cofactors.expectation((local, rewards), steps, step)
            return (values, jnp.full(good.shape, Status.OK, jnp.uint8)), good
        values, status = expectation_steps((local, columns(rewards)), steps, step)
        return (values, status), status == Status.OK

    batched = points_last(points, lambda *_: points_together(phases), lambda *arrays: from_law(*all_levels(*arrays)))

    @jax.custom_jvp
    def solve(*arrays: Any) -> Any:
        if phases <= LARGE:
            return batched(*arrays)
        found = expectation_levels(*all_levels(*arrays))
        return found.value, found.status

    @solve.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return jax.jvp(lambda *arrays: expectation_points(*all_levels(*arrays)), primals, tangents)

    values, status = solve(*leaves)
    none = jnp.zeros(status.shape, jnp.int32)
    return Solution(values[0] if single else values, status, none.astype(values.dtype), none)
