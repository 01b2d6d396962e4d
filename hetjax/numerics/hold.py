"""Work that several results share, computed once."""

from typing import Any

import jax


@jax.custom_jvp
def hold(arrays: Any) -> Any:
    """The same pytree, each array computed once: XLA on CPU would otherwise repeat shared work in every use.

    Tangents pass as they are, without a barrier of their own: one over tangents of which some are known zeros cannot
    be transposed (JAX 0.12).

    >>> import jax.numpy as jnp
    >>> [float(x) for x in hold((jnp.ones(()), jnp.zeros(())))]
    [1.0, 0.0]
    """
    return jax.lax.optimization_barrier(arrays)


@hold.defjvp
def _hold_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return hold(primals[0]), tangents[0]
