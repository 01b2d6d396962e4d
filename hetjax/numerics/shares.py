"""Parts of a whole."""

from typing import Any

import jax


@jax.custom_jvp
def share(part: jax.Array, rest: jax.Array) -> jax.Array:
    """part/(part + rest) for non-negative numbers, not both 0.

    The derivative (part'/whole)(rest/whole) - (rest'/whole)(part/whole) keeps its digits where ``part`` and ``rest``
    grow together much faster than their quotient changes.

    >>> import jax.numpy as jnp
    >>> float(share(jnp.asarray(1.0), jnp.asarray(3.0)))
    0.25
    """
    return part / (part + rest)


@share.defjvp
def _share_jvp(primals: Any, tangents: Any) -> Any:
    part, rest = primals
    whole = part + rest
    return share(part, rest), (tangents[0] / whole) * (rest / whole) - (tangents[1] / whole) * (part / whole)
