"""ln rho, the one number of the stalling queue that needs more digits than its own precision."""

from typing import Any

import jax
import numpy as np

from hetjax.numerics.logarithm import log_near_one

# leading significant bits of the pieces of r and of q - 1, such that m (10 bits) times two pieces is exact
_PIECES = {np.dtype(np.float64): ((17,), (26,)), np.dtype(np.float32): ((7, 7), (7, 7))}
_MASKS: dict[Any, tuple[Any, int]] = {np.dtype(np.float64): (np.int64, 52), np.dtype(np.float32): (np.int32, 23)}


@jax.custom_jvp
def log_rho(q: jax.Array, r: jax.Array, m: Any, n: Any) -> jax.Array:
    """ln rho, rho = q/(1 + n/(m r)), to a few units in the last place even where rho is 1 but for its last digits.

    rho - 1 = (m r (q-1) - n)/(m r + n), the numerator from exact products of shortened factors (so that it does not
    matter whether a compiler fuses a product with the sum after it). ``m`` and ``n`` are numbers of q's dtype.
    Derivative: dq/q + n dr/(r (m r + n)).

    >>> import jax.numpy as jnp
    >>> float(log_rho(jnp.asarray(1.5), jnp.asarray(1.0), 2.0, 1.0))
    0.0
    """
    per = 1 / (m * r + n)
    return log_near_one(q * (m * r * per), product_excess(m, r, q - 1, n) * per)


@log_rho.defjvp
def _log_rho_jvp(primals: Any, tangents: Any) -> Any:
    q, r, m, n = primals
    return jax.lax.optimization_barrier(log_rho(q, r, m, n)), tangents[0] / q + tangents[1] * (n / (r * (m * r + n)))


def product_excess(m: Any, r: jax.Array, d: jax.Array, n: Any) -> jax.Array:
    """m r d - n for whole numbers m, n <= 512, accurate where it nearly vanishes; no derivative.

    Products of the leading pieces are exact and added with what their sum loses; the others are so small that they
    lose 2^-68 n at most (2^-36 n in float32).
    """
    r_bits, d_bits = _PIECES[np.dtype(r.dtype)]
    r_pieces, d_pieces = _cut(r, r_bits), _cut(d, d_bits)
    scaled = [m * piece for piece in r_pieces]
    total, lost = _two_sum(-n, scaled[0] * d_pieces[0])
    for i, j in sorted(((i, j) for i in range(len(r_pieces)) for j in range(len(d_pieces))), key=sum)[1:]:
        product = scaled[i] * d_pieces[j]
        if i + j < len(r_bits):
            total, product = _two_sum(total, product)
        lost = lost + product
    return total + lost


def _cut(x: jax.Array, bits: tuple[int, ...]) -> list[jax.Array]:
    """Pieces of the given numbers of leading significant bits, and the rest."""
    kind, width = _MASKS[np.dtype(x.dtype)]
    pieces = []
    for count in bits:
        mask = kind(-(1 << (width + 1 - count)))
        pieces.append(jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, kind) & mask, x.dtype))
        x = x - pieces[-1]
    return [*pieces, x]


def _two_sum(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The rounded sum and its error (Knuth)."""
    s = x + y
    z = s - x
    return s, (x - (s - z)) + (y - z)
