"""Single-server queues with Markovian arrivals and phase-type or Markovian service, solved as infinite chains."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hetjax.ctmc.matrix_geometric import MatrixGeometric, matrix_geometric
from hetjax.result import Solution


class Queue(NamedTuple):
    """Stationary characteristics: mean number in the system, mean response time (Little's law), the arrival rate,
    the probability of an empty system and the whole law (level k >= 1 of it is k customers in the system)."""

    mean_number: jax.Array
    mean_response_time: jax.Array
    arrival_rate: jax.Array
    p_empty: jax.Array
    law: MatrixGeometric

    def probability(self, k: int) -> jax.Array:
        """The probability of k customers in the system."""
        return self.p_empty if k == 0 else jnp.sum(self.law.level(k))


def map_map_1(D0: jax.Array, D1: jax.Array, S0: jax.Array, S1: jax.Array) -> Solution:
    """MAP/MAP/1: arrivals with (D0, D1), services with (S0, S1) whose phase stands still while the system is empty.

    Args:
      D0, D1: (a, a) rates of phase changes without and with an arrival; diagonals of D0 are never read.
      S0, S1: (s, s) the same for service completions.

    Returns:
      ``Solution`` with a :class:`Queue`; ``status`` unstable if work arrives as fast as it is done. Cost O((a s)^3).

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> one = jnp.ones((1, 1))
    >>> round(float(ctmc.map_map_1(-0.5 * one, 0.5 * one, -one, one).value.mean_number), 6)
    1.0
    """
    D0, D1, S0, S1 = _floats(D0=D0, D1=D1, S0=S0, S1=S1)
    arrival, service = (jnp.eye(x.shape[0], dtype=x.dtype) for x in (D0, S0))
    return _queue(matrix_geometric(
        jnp.kron(D0, service), jnp.kron(D1, service), jnp.kron(arrival, S1),
        jnp.kron(D1, service), jnp.kron(D0, service) + jnp.kron(arrival, S0), jnp.kron(arrival, S1)), D1.shape[0], D1)


def map_ph_1(D0: jax.Array, D1: jax.Array, alpha: jax.Array, T: jax.Array) -> Solution:
    """MAP/PH/1: arrivals with (D0, D1), service times PH(alpha, T) with alpha (s,) and T (s, s), T 1 <= 0.

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> one = jnp.ones((1, 1))
    >>> erlang = jnp.array([1.0, 0.0]), jnp.array([[-2.0, 2.0], [0.0, -2.0]])
    >>> round(float(ctmc.map_ph_1(-0.5 * one, 0.5 * one, *erlang).value.mean_number), 6)
    0.875
    """
    D0, D1, alpha, T = _floats(D0=D0, D1=D1, alpha=alpha, T=T)
    arrival, service = (jnp.eye(x.shape[0], dtype=x.dtype) for x in (D0, T))
    finish = -jnp.sum(T, axis=1)
    return _queue(matrix_geometric(
        D0, jnp.kron(D1, alpha[None]), jnp.kron(arrival, finish[:, None]),
        jnp.kron(D1, service), jnp.kron(D0, service) + jnp.kron(arrival, T),
        jnp.kron(arrival, finish[:, None] * alpha[None])), D1.shape[0], D1)


def ph_ph_1(beta: jax.Array, B: jax.Array, alpha: jax.Array, T: jax.Array) -> Solution:
    """PH/PH/1: renewal arrivals with interarrival times PH(beta, B), service times PH(alpha, T).

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> one = jnp.ones((1, 1))
    >>> round(float(ctmc.ph_ph_1(one[0], -0.5 * one, one[0], -one).value.mean_number), 6)
    1.0
    """
    beta, B = _floats(beta=beta, B=B)
    return map_ph_1(B, -jnp.sum(B, axis=1)[:, None] * beta[None], alpha, T)


def _floats(**arrays: jax.Array) -> list[jax.Array]:
    dtype = jnp.result_type(*arrays.values())
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        shape = jnp.shape(array)
        vector = name in ("alpha", "beta")
        if len(shape) != (1 if vector else 2) or len(set(shape)) != 1:
            raise ValueError(f"{name} has shape {shape}; give {'(phases,)' if vector else '(phases, phases)'}")
        sizes[name] = shape[0]
    for one, two in (("D0", "D1"), ("S0", "S1"), ("alpha", "T"), ("beta", "B")):
        if one in sizes and sizes[one] != sizes[two]:
            raise ValueError(f"{one} has {sizes[one]} phases, {two} has {sizes[two]}; they must agree")
    return [jnp.asarray(array, dtype) for array in arrays.values()]


def _queue(solution: Solution, phases: int, D1: jax.Array) -> Solution:
    law: MatrixGeometric = solution.value
    arrival_phase = jnp.sum(law.boundary.reshape(phases, -1), axis=1) + jnp.sum(law.mass.reshape(phases, -1), axis=1)
    rate = arrival_phase @ jnp.sum(D1, axis=1)
    value = Queue(law.mean_level, law.mean_level / rate, rate, jnp.sum(law.boundary), law)
    return solution._replace(value=value)
