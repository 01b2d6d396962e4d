"""The shortest of d random queues and of one that is remembered.

An arrival looks at d queues chosen at random, d a whole number, and at the remembered one, joins the shortest of the
d + 1, and the one that is then the shortest is remembered. Among many queues the memory changes infinitely fast, so
that it is in equilibrium given u: it holds k or more afterwards if all d + 1 had k or more, or all but one of k - 1,
which was joined. With m_k = P(the remembered queue has at least k)

    m_k = m_{k-1} u_k^d + m_k d (u_{k-1} - u_k) u_k^{d-1},          m_0 = 1,

and the queue joined has at least k with probability J_k = m_k u_k^d. (Scheme: Mitzenmacher, Prabhakar and Shah, Load
balancing with memory, 2002.) The memory is no function of the lengths of N queues, and so the refinement and the
simulation of :class:`hetjax.models.supermarket.Policy`, which need one, do not reach it; the mean field does.

At d = 1 the tails fall faster in the end than with two choices and no memory (-log u_k grows by (3 + sqrt 5)/2 a level
instead of 2), but the mean queue is longer.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.supermarket.params import Params

Array = jax.Array


def _power(u: Array, d: Array) -> Array:
    some = u > 0
    return jnp.where(some, jnp.exp(d * jnp.log(jnp.where(some, u, 1))), jnp.where(d == 0, 1, 0).astype(u.dtype))


def remembered(u: Array, d: Array) -> Array:
    """m_1..m_K from u_0..u_K: how long the remembered queue is; O(K).

    >>> import jax.numpy as jnp
    >>> remembered(jnp.array([1.0, 0.5]), jnp.asarray(1.0)).tolist()  # .5 / (1 - .5)
    [1.0]
    """
    below, above = u[:-1], u[1:]
    lower = _power(above, d - 1)
    held = 1 - d * (below - above) * lower
    # held = 0: u_{k-1} = 1 and d = 1 with u_k = 0, where the numerator vanishes as well
    return jnp.cumprod(jnp.where(held > 0, lower * above / jnp.where(held > 0, held, 1), 0))


def shortest_with_memory(params: Params, u: Array) -> Array:
    """r_0..r_{K-1} of this rule, a ``join`` for :func:`hetjax.models.supermarket.drift`, ``transient`` and
    ``spectral_gap``; ``params.d`` must be a whole number.

    >>> import jax.numpy as jnp
    >>> from hetjax.models.supermarket import Params
    >>> shortest_with_memory(Params(0.5, 1, [1.0], [[-1.0]]), jnp.array([1.0, 0.0])).tolist()
    [0.5]
    """
    joined = jnp.concatenate([jnp.ones_like(u[:1]), remembered(u, params.d) * _power(u[1:], params.d)])
    gaps = u[:-1] - u[1:]
    return params.arrival_rate * jnp.where(gaps > 0, -jnp.diff(joined) / jnp.where(gaps > 0, gaps, 1), 0)


def memory_tails(load: Any, d: Any, levels: int = 64) -> Array:
    """u_0..u_levels in equilibrium with exponential services, u_{k+1} = load J_k: no equation to solve; O(levels).

    ``load`` in (0, 1), ``d`` a whole number >= 1 (not checked). Pure and differentiable in ``load``.

    >>> from hetjax.models.supermarket.memory import memory_tails
    >>> [round(float(u), 6) for u in memory_tails(0.9, 1, levels=3)]  # doubly exponential although d = 1
    [1.0, 0.9, 0.81, 0.64889]
    """
    load = jnp.asarray(load, jnp.result_type(float, load))
    d = jnp.asarray(d).astype(load.dtype)

    def step(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], Array]:
        below, u, m = state  # u_{k-1}, u_k, m_{k-1}
        lower = _power(u, d - 1)
        m = m * lower * u / (1 - d * (below - u) * lower)
        return (u, load * m * lower * u, m), u

    one = jnp.ones_like(load)
    _, tails = lax.scan(step, (one, load, one), None, length=levels)
    return jnp.concatenate([one[None], tails])
