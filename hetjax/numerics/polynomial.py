"""Polynomials with known coefficients."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp


def polynomial(coefficients: Sequence[float], x: jax.Array) -> jax.Array:
    """sum_i coefficients[i] x^(k-i), highest power first, by Horner's rule; k multiplications (``jnp.polyval``: k + 1).

    >>> import jax.numpy as jnp
    >>> float(polynomial((2.0, 0.0, 1.0), jnp.asarray(3.0)))
    19.0
    """
    total = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total
