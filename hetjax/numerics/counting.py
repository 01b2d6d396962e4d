"""Loops over whole numbers of servers that are static (Python ints) or traced below a static bound."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

State = TypeVar("State")

UNROLLED = 16  # loops up to this many steps are written out


@jax.tree_util.register_pytree_node_class
class Count:
    """A number of servers: ``Count(5)`` gives shapes, ``Count(traced, bound=8)`` masks loops of 8 steps.

    A pytree: a static count is structure, a traced one a leaf.

    >>> Count(3).climb(lambda l, total: total + l, 0.0, jnp.zeros(()))
    3.0
    """

    def __init__(self, value: Any, bound: int | None = None) -> None:
        self.static = bound is None
        self.value = int(value) if bound is None else value
        self.bound = self.value if bound is None else bound

    @classmethod
    def of(cls, value: Any, bound: int | None) -> "Count":
        """``value`` itself where it is a Python int (the bound is not needed then), else masked below ``bound``."""
        if isinstance(value, Count):
            return value
        return cls(value) if isinstance(value, int | np.integer) else cls(value, bound)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, int]]:
        """No leaf where static."""
        return ((), (self.value, self.bound)) if self.static else ((self.value,), (None, self.bound))

    @classmethod
    def tree_unflatten(cls, aux: tuple[Any, int], leaves: tuple[Any, ...]) -> "Count":
        """Inverse of :meth:`tree_flatten`."""
        return cls(leaves[0], aux[1]) if leaves else cls(aux[0])

    def real(self, like: jax.Array) -> Any:
        """The count as a number that multiplies ``like``."""
        return float(self.value) if self.static else jnp.asarray(self.value).astype(like.dtype)

    def select(self, number: int, equal: Callable[[], jax.Array], other: Callable[[], jax.Array]) -> jax.Array:
        """``equal()`` where the count is ``number``, else ``other()``; a static count evaluates one of them."""
        if self.static:
            return equal() if self.value == number else other()
        return jnp.where(self.value == number, equal(), other())

    def climb(self, step: Callable[[Any, State], State], state: State, like: jax.Array,
              rescale: Callable[[State], State] | None = None, chunk: int = 8) -> State:
        """Applies ``step(l, state)`` for l = 1 .. count - 1 (l is a float), ``rescale(state)`` at least every
        ``chunk`` steps."""
        settle = rescale if rescale is not None else lambda state: state
        total = self.bound - 1
        if self.static:
            head = total if total <= UNROLLED else total % chunk
            for l in range(1, head + 1):
                state = step(float(l), state)
                if l % chunk == 0 or l == head < total:
                    state = settle(state)
        else:
            head = 0

        def masked(l: Any, state: State) -> State:
            if self.static:
                return step(l.astype(like.dtype), state)
            return _where(l < self.value, step(l.astype(like.dtype), state), state)

        def body(i: Any, state: State) -> State:
            for k in range(chunk):
                state = masked(head + 1 + i * chunk + k, state)
            return settle(state)

        rounds = -(-(total - head) // chunk)
        return jax.lax.fori_loop(0, rounds, body, state) if rounds > 0 else state

    def descend(self, step: Callable[[Any, State], State], state: State, like: jax.Array, unrolled: int = 4) -> State:
        """Applies ``step(j, state)`` for j = count, .., 1 (j is a float)."""
        if self.static and self.value <= unrolled:
            for j in range(self.value, 0, -1):
                state = step(float(j), state)
            return state

        def body(i: Any, state: State) -> State:
            j = self.bound - i
            new = step(j.astype(like.dtype), state)
            return new if self.static else _where(j <= self.value, new, state)

        return jax.lax.fori_loop(0, self.bound, body, state)


def _where[State](condition: Any, yes: State, no: State) -> State:
    return jax.tree.map(lambda y, n: jnp.where(condition, y, n), yes, no)
