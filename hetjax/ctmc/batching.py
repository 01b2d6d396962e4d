"""Points last under ``vmap``: the axis that ``vmap`` makes goes to the end, in blocks that fit the cache; fences."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap


def points_last(function: Callable[..., Any], block: Callable[..., int]) -> Callable[..., Any]:
    """``function(*arrays)`` whose ``vmap`` calls it on arrays with one more, trailing, axis of points.

    ``block(*arrays)`` says how many points belong together; a batch is filled up to whole blocks, so that the result
    at a point does not depend on how many others are computed with it. Arrays and results may be pytrees.
    """

    @custom_vmap
    def single(*arrays: Any) -> Any:
        return function(*arrays)

    @custom_vmap
    def many(*arrays: Any) -> Any:  # points on the first axis of every leaf
        size = jax.tree.leaves(arrays)[0].shape[0]
        width = block(*jax.tree.map(lambda x: x[0], arrays))
        count = -(-size // width)

        def split(x: jax.Array) -> jax.Array:
            fill = count * width - size
            if fill:
                x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (fill, *x.shape[1:]))])
            return x.reshape(count, width, *x.shape[1:])

        def join(x: jax.Array) -> jax.Array:
            return x.reshape(count * width, *x.shape[2:])[:size]

        def one_block(arrays: Any) -> Any:  # turned around here, inside the cache, not as a whole
            results = function(*jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), arrays))
            return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), results)

        blocks = jax.tree.map(split, arrays)
        if count == 1:
            results = jax.tree.map(lambda x: x[None], one_block(jax.tree.map(lambda x: x[0], blocks)))
        else:
            results = lax.map(one_block, blocks)
        return jax.tree.map(join, results)

    def spread(axis_size: int, batched: Any, arrays: Any) -> Any:
        return jax.tree.map(lambda x, b: x if b else jnp.broadcast_to(x, (axis_size, *x.shape)), arrays, batched)

    @single.def_vmap
    def _(axis_size: int, batched: Any, *arrays: Any) -> Any:
        results = many(*spread(axis_size, list(batched), list(arrays)))
        return results, jax.tree.map(lambda _: True, results)

    @many.def_vmap
    def _(axis_size: int, batched: Any, *arrays: Any) -> Any:
        full = spread(axis_size, list(batched), list(arrays))
        inner = jax.tree.leaves(full)[0].shape[1]
        results = many(*jax.tree.map(lambda x: x.reshape(axis_size * inner, *x.shape[2:]), full))
        return (jax.tree.map(lambda x: x.reshape(axis_size, inner, *x.shape[1:]), results),
                jax.tree.map(lambda _: True, results))

    return functools.wraps(function)(lambda *arrays: single(*arrays))


@jax.custom_jvp
def fence(arrays: Any) -> Any:
    """The same arrays, each computed once: XLA on CPU would otherwise repeat shared work in every use."""
    return lax.optimization_barrier(arrays)


@fence.defjvp
def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return fence(primals[0]), tangents[0]
