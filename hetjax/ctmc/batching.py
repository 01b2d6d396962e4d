"""Points last under ``vmap``: the axis that ``vmap`` makes goes to the end, in blocks that fit the cache."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap


def mended(function: Callable[..., Any], mend: Callable[..., Any]) -> Callable[..., Any]:
    """The results of ``function(*arrays) -> (results, good)``, and those of ``mend(*arrays)`` where they are not good.

    ``good`` has the shape of the points, which are the last axes of all results. If all are good, nothing is mended.
    """
    def whole(*arrays: Any) -> Any:
        results, good = function(*arrays)
        return _mend(mend, results, good, *arrays)

    return whole


def _mend(mend: Callable[..., Any], results: Any, good: jax.Array, *arrays: Any) -> Any:
    return lax.cond(jnp.all(good), lambda: results, lambda: jax.tree.map(
        lambda x, y: jnp.where(good, x, y), results, mend(*arrays)))


def points_last(function: Callable[..., Any], block: Callable[..., int],
                mend: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """``function(*arrays)`` whose ``vmap`` calls it on arrays with one more, trailing, axis of points.

    ``block(*arrays)`` says how many points belong together; a batch is filled up to whole blocks, so that the result
    at a point does not depend on how many others are computed with it. Arrays and results may be pytrees.

    With ``mend``, the functions are as those of :func:`mended`. A batch then is mended after all of it was computed
    (block by block, where a block needs it), so that the loop over the blocks holds nothing but ``function``.
    """

    @custom_vmap
    def single(*arrays: Any) -> Any:
        return function(*arrays) if mend is None else mended(function, mend)(*arrays)

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

        def each_block(function: Callable[..., Any], *blocks: Any) -> Any:
            def one(arrays: Any) -> Any:  # turned around here, inside the cache, not as a whole
                results = function(*jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), arrays))
                return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), results)

            if count == 1:
                return jax.tree.map(lambda x: x[None], one(jax.tree.map(lambda x: x[0], blocks)))
            return lax.map(one, blocks)

        blocks = jax.tree.map(split, arrays)
        results = each_block(function, *blocks)
        if mend is not None:
            results, good = results
            again = functools.partial(each_block, functools.partial(_mend, mend), results, good, *blocks)
            results = lax.cond(jnp.all(good), lambda: results, again)
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
