"""Long batches in blocks that stay in a CPU's cache, whoever maps the function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


def in_blocks(function: Callable[..., Any], block: int) -> Callable[..., Any]:
    """``function(*scalars)``, a scalar or a pytree of them, elementwise on arrays too; its ``vmap`` computes ``block``
    points at a time.

    Under plain ``vmap`` XLA on CPU takes every step of the function over the whole batch, through memory; here all
    steps are taken for one block and then for the next. A batch up to ``block`` points is computed as it is; a longer
    one is filled up to whole blocks with its last point, in O(block) extra work. On anything but a CPU a batch stays
    whole. Arguments without array leaves are static. Not differentiable in reverse mode: give it a derivative with
    ``jax.custom_jvp`` around it.

    >>> square = in_blocks(lambda x: x * x, 2)
    >>> [float(y) for y in jax.vmap(square)(jnp.asarray([1.0, 2.0, 3.0]))]
    [1.0, 4.0, 9.0]
    """

    def blockwise(arguments: Any) -> Any:
        size = jax.tree.leaves(arguments)[0].size
        if size <= block or jax.default_backend() != "cpu":
            return function(*arguments)
        count = -(-size // block)

        def split(x: jax.Array) -> jax.Array:
            return jnp.concatenate([x, jnp.broadcast_to(x[-1:], count * block - size)]).reshape(count, block)

        rows = jax.tree.map(split, arguments)
        return jax.tree.map(lambda y: y.reshape(-1)[:size], jax.lax.map(lambda row: function(*row), rows))

    @custom_vmap
    def single(*arguments: Any) -> Any:
        return function(*arguments)

    @custom_vmap
    def many(*arguments: Any) -> Any:  # points on the one axis of every leaf
        return blockwise(arguments)

    def spread(size: int, batched: Any, arguments: Any) -> Any:
        return jax.tree.map(lambda x, b: x if b else jnp.broadcast_to(x, (size, *x.shape)), arguments, batched)

    @single.def_vmap
    def _(size: int, batched: Any, *arguments: Any) -> Any:
        found = many(*spread(size, tuple(batched), arguments))
        return found, jax.tree.map(lambda _: True, found)

    @many.def_vmap
    def _(size: int, batched: Any, *arguments: Any) -> Any:
        full = spread(size, tuple(batched), arguments)
        found = jax.tree.map(lambda y: y.reshape(size, -1), many(*jax.tree.map(lambda x: x.reshape(-1), full)))
        return found, jax.tree.map(lambda _: True, found)

    return lambda *arguments: single(*arguments)
