"""The mean field: what many queues do on average, as a differential equation, and its Jacobian.

s has shape (levels, phases): s[k-1] is the share of queues with at least k customers by the phase of the service in
progress; u_k = s[k-1] 1, u_0 = 1, nothing above the last level. An arrival looks at d queues and joins one with exactly
k-1 customers with probability u_{k-1}^d - u_k^d, whatever its phase; the selection knows lengths only. So

    s_1' = lambda (1 - u_1^d) alpha + s_1 T + (s_2 t0) alpha,
    s_k' = r_{k-1} (s_{k-1} - s_k) + s_k T + (s_{k+1} t0) alpha,    r_k = lambda (u_k^d - u_{k+1}^d)/(u_k - u_{k+1}).

The policy is data: a function join(params, u) -> r with u_0..u_K in, r_0..r_{K-1} out, r_k the rate at which one given
queue of k customers is joined. ``shortest_of_d`` is the one above; see :mod:`hetjax.models.supermarket.policies`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from hetjax.models.supermarket.params import Params

Array = jax.Array
Join = Callable[[Params, Array], Array]


def divided_power(a: Array, b: Array, d: Array) -> Array:
    """(a^d - b^d)/(a - b) for 0 <= b <= a <= 1, real d >= 1; no 0/0, derivatives at b = a, b = 0 and a = 0 too.

    a^(d-1) (1 - z^d)/(1 - z) with z = b/a; near z = 1 with v = -log z the series
    d (1 - (d-1) v/2 + (d-1)(2d-1) v^2/12).

    >>> import jax.numpy as jnp
    >>> float(divided_power(jnp.asarray(0.5), jnp.asarray(0.25), jnp.asarray(2.0)))
    0.75
    """
    tiny = float(jnp.finfo(a.dtype).tiny)
    some = a > tiny
    a_safe = jnp.where(some, a, 1)
    z = jnp.clip(jnp.where(some, b, 0) / a_safe, 0, None)
    positive = z > tiny
    v = -jnp.log(jnp.where(positive, z, 1))
    near = d * jnp.abs(v) < 1e-4
    v_safe = jnp.where(near | ~positive, 1, v)
    series = d * (1 - (d - 1) * v / 2 + (d - 1) * (2 * d - 1) * v**2 / 12)
    quotient = jnp.where(near, series, jnp.expm1(-d * v_safe) / jnp.expm1(-v_safe))
    quotient = jnp.where(positive, quotient, 1)
    power = jnp.exp((d - 1) * jnp.log(a_safe))
    return jnp.where(some, power * quotient, jnp.where(d == 1, 1.0, 0.0).astype(a.dtype))


def shortest_of_d(params: Params, u: Array) -> Array:
    """r_k = lambda (u_k^d - u_{k+1}^d)/(u_k - u_{k+1}): the shortest of d queues chosen at random, with replacement."""
    return params.arrival_rate * divided_power(u[:-1], u[1:], params.d)


def tails_of(s: Array) -> Array:
    """u_0 = 1, u_1, ..., u_K from s of shape (K, phases)."""
    return jnp.concatenate([jnp.ones((1,), s.dtype), jnp.sum(s, axis=1)])


def drift(params: Params, s: Array, join: Join = shortest_of_d) -> Array:
    """ds/dt at s, shape (levels, phases), per unit time; arrivals to the last level are lost, so that the truncated
    system is one of its own.

    >>> import jax.numpy as jnp
    >>> from hetjax.models.supermarket import Params
    >>> drift(Params(0.5, 2, [1.0], [[-1.0]]), jnp.array([[0.5], [0.125], [0.0078125]])).round(12).tolist()[:2]
    [[0.0], [0.0]]
    """
    u = tails_of(s)
    r = join(params, u)
    up = jnp.concatenate([(r[0] * (1 - u[1])) * params.alpha[None], r[1:, None] * (s[:-1] - s[1:])])
    done = jnp.concatenate([s[1:] @ params.exit_rates, jnp.zeros((1,), s.dtype)])
    return up + s @ params.T + done[:, None] * params.alpha[None]
