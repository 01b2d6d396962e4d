"""The eigenvalues of the map that crossing.py applies k times, W +- D over 2, by themselves and as a ratio."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.numerics.hold import hold
from hetjax.numerics.logarithm import atanh_over, split_exponent


@jax.custom_jvp
def small_roots(B: jax.Array, ab: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(v+, v-, D) with v+- = (D -+ B)/2, D = sqrt(B^2 + 4ab), each with full relative accuracy; ab > 0.

    The derivative has no branch: kernels that round B differently must not mix the two forms.
    """
    D = jnp.sqrt(B * B + 4 * ab)
    large = (jnp.abs(B) + D) * 0.5
    small = ab / large
    return jnp.where(B < 0, large, small), jnp.where(B < 0, small, large), D


@small_roots.defjvp
def _small_roots_jvp(primals: Any, tangents: Any) -> Any:
    plus, minus, D = hold(small_roots(*primals))
    dB, dab = tangents
    per = 1 / D
    return (plus, minus, D), ((dab - plus * dB) * per, (dab + minus * dB) * per, (primals[0] * dB + 2 * dab) * per)


@jax.custom_jvp
def half_log_ratio(a: jax.Array, b: jax.Array, m: Any, B: jax.Array, D: jax.Array) -> tuple[jax.Array, jax.Array]:
    """theta = ln(w+/w-)/2 = atanh(D/W), and whether w+/w- < sqrt 2; d theta = (da + db B/(2b))/D, without
    cancellation."""
    W = a + m + b
    product = m * b
    top = (W + D) / 2
    exponent, y = split_exponent(top * top / product)
    near = exponent == 0
    z = jnp.where(near, D, y - 1) / jnp.where(near, W, y + 1)
    return exponent * np.asarray(np.log(2.0) / 2, D.dtype) + z * atanh_over(z * z), near


@half_log_ratio.defjvp
def _half_log_ratio_jvp(primals: Any, tangents: Any) -> Any:
    _, b, _, B, D = primals
    theta, near = half_log_ratio(*primals)
    return (theta, near), ((tangents[0] + tangents[1] * B / (2 * b)) / D, np.zeros(jnp.shape(near), jax.dtypes.float0))
