"""The full buffer: what the rest of the queue needs of the recursion over phases, with first and second derivatives.

In the names of recursion.py and crossing.py: a = j/r, b = q m, x = X_{m-1}, X = X_L, a prime for one level up. All
derivatives come from recursions of positive terms.

Levels 1..m-1. With x = Y/w, Gamma = Y w_a - Y_a w >= 0 (a subscript for a derivative) obeys Gamma' =
l (b Gamma + Y^2), and dx/da = -Gamma/w^2. Two more sequences give the second derivative:

    Theta' = l (b^2 Theta + a b Psi + 2 b Gamma Y + Y^3),   Psi' = Theta' + l^2 b Psi,      d^2x/da^2 = 2 Theta/w^3,

from Theta = Gamma w_a - Gamma_a w/2, Psi = Gamma Y_a - Gamma_a Y/2. As Y, w are Charlier polynomials (an Appell
sequence in b: dY_l/db = l Y_{l-1}), P = b dx/db obeys the Riccati equation P = b (x-1) - (m-1) x + a x (x-1); and
-P w^2 = Lambda, Lambda' = l b (Lambda + w Y), where that must not cancel. The derivatives of the former are, with
c = (P+b)/x + a x,

    b d^2x/da db = x (x-1) - c Gamma/w^2,       (b d/db)^2 x = b (x-1) + c P.

Phases. With t_{j-1} = 1 + c_j t_j, weight w = c_j t_j/t_{j-1} and v = d ln(c_j t_j): d ln t_{j-1} = w v, and the second
derivatives are w (d^2 ln(c_j t_j) + (1 - w) v v).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.models.stalling.crossing_slopes import Level, cross_slopes
from hetjax.models.stalling.recursion import advance, log_of, phases, start, unit
from hetjax.numerics.counting import Count
from hetjax.numerics.geometric import finite_terms
from hetjax.numerics.hold import hold

PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))  # of the coordinates ln q, ln r, K


class FullBuffer(NamedTuple):
    """What the recursion tells of the full buffer: ``log_h0`` = ln h_0 and ``slow`` = n X_1 t_1/t_0.

    h_0 itself reaches 1e4238. ``slow`` = r b (h_0 - 1)/h_0 is the mean number of busy slow servers, the waiting line
    left out, over the probability of level L: what starts there at rate b is served at rate 1/r.
    """

    log_h0: jax.Array
    slow: jax.Array


class Slopes(NamedTuple):
    """Derivatives in ln q, ln r, K, and second ones by :data:`PAIRS`, or ()."""

    first: tuple[jax.Array, ...]
    second: tuple[jax.Array, ...]


@jax.custom_jvp
def full_buffer(q: jax.Array, r: jax.Array, K: jax.Array, m: Count, n: Count) -> FullBuffer:
    """ln h_0 and the mean number of busy slow servers over the probability of level L, as :class:`FullBuffer`; O(m n).

    Value and derivatives to about 1e-14 absolute in ln h_0 over the whole domain, K infinite included.

    >>> import jax.numpy as jnp
    >>> found = full_buffer(jnp.asarray(0.5), jnp.asarray(2.0), jnp.asarray(0.0), Count(1), Count(1))
    >>> [round(float(v), 4) for v in found]
    [1.0986, 0.6667]
    """
    found = phases(q, r, K, m, n)
    return FullBuffer(log_of(found.mantissa, found.exponent), n.real(q) * found.x1 * found.t1_over_t0)


@full_buffer.defjvp
def _full_buffer_jvp(point: Any, tangents: Any) -> Any:
    out, slopes = _once(*point)
    return out, FullBuffer(*(_along(first, point, tangents) for first, _ in slopes))


@jax.custom_jvp
def _once(q: jax.Array, r: jax.Array, K: jax.Array, m: Count, n: Count) -> tuple[FullBuffer, tuple[Slopes, Slopes]]:
    return full_buffer_slopes(q, r, K, m, n, 1)


@_once.defjvp
def _once_jvp(point: Any, tangents: Any) -> Any:
    q, r, K, m, n = point
    out, slopes = full_buffer_slopes(q, r, K, m, n, 2)
    number = {pair: i for i, pair in enumerate(PAIRS)}
    moved = (Slopes(tuple(_along([second[number[min(i, k), max(i, k)]] for k in range(3)], point, tangents)
                          for i in range(3)), ()) for _, second in slopes)
    return ((out, tuple(Slopes(first, ()) for first, _ in slopes)),
            (FullBuffer(*(_along(first, point, tangents) for first, _ in slopes)), tuple(moved)))


def _along(first: Any, point: Any, tangents: Any) -> jax.Array:
    d = (tangents[0] / point[0], tangents[1] / point[1], tangents[2])
    return first[0] * d[0] + first[1] * d[1] + first[2] * d[2]


def full_buffer_slopes(q: jax.Array, r: jax.Array, K: jax.Array, m: Count, n: Count,
                       order: int) -> tuple[FullBuffer, tuple[Slopes, Slopes]]:
    """:func:`full_buffer`, and the derivatives of both of its numbers up to ``order`` 1 or 2; O(m n)."""
    mreal, nreal = m.real(q), n.real(q)
    k = finite_terms(K) + 1
    b = q * mreal
    per_r = 1 / r
    per = per_r * (1 / b)

    def step(j: Any, state: Any) -> Any:
        t, one, exponent, _, _, u, _ = state
        a = j * per_r + 0 * b
        X, first, second, _ = hold(cross_slopes(hold(ascend_slopes(a, b, m, order)), a, q, k, mreal))
        before = t
        term = hold((nreal + 1 - j) * per * X * t)
        weight = hold(term / (one + term))
        rest = hold(one / (one + term)) if order == 2 else None
        t, one, exponent, shrink = advance(t, one, exponent, term, n)
        v = hold(_added(_log_slopes(X, first, second, a), u))
        u = Slopes(tuple(weight * y for y in v.first),
                   tuple(weight * (y + rest * v.first[i] * v.first[l])
                         for y, (i, l) in zip(v.second, PAIRS[:len(v.second)], strict=True)))
        return t, one, exponent, X, before * shrink, u, v

    zero = jnp.zeros_like(q * r * k)
    nothing = Slopes((zero,) * 3, (zero,) * 6 if order == 2 else ())
    # a loop even for few phases: written out, they take longer to compile and are no faster
    begin: Any = (*start(q * r * k), nothing, nothing)
    t, _, exponent, x1, t1, u, v = n.descend(step, begin, q, unrolled=1)
    out, u, v = hold((FullBuffer(log_of(t, exponent), nreal * x1 * (t1 / t)), u, v))
    # slow = r b (1 - 1/h_0) = n X_1 t_1/t_0, and v = d ln(c_1 t_1) = d ln(X_1 t_1) - d ln(r b)
    along = tuple(x - y + own for x, y, own in zip(v.first, u.first, (1, 1, 0), strict=True))
    bent = tuple(out.slow * (x - y + along[i] * along[l])
                 for x, y, (i, l) in zip(v.second, u.second, PAIRS[:len(v.second)], strict=True))
    return out, (u, Slopes(tuple(out.slow * x for x in along), bent))


def _log_slopes(X: jax.Array, first: tuple[jax.Array, ...], second: tuple[jax.Array, ...], a: jax.Array) -> Slopes:
    """Of ln c, c = X/(r b) times a number, from the derivatives of X in (a, ln q, k)."""
    per_X = 1 / X
    along_q, along_r, along_k = hold((first[1] * per_X, -a * first[0] * per_X, first[2] * per_X))
    slopes = (along_q - 1, along_r - 1, along_k)
    if not second:
        return Slopes(slopes, ())
    log = (along_q, along_r, along_k)
    aa, aq, ak, qq, qk, kk = (y * per_X for y in second)
    own = (qq, -a * aq, qk, a * (a * aa) - along_r, -a * ak, kk)
    return Slopes(slopes, tuple(y - log[i] * log[l] for y, (i, l) in zip(own, PAIRS, strict=True)))


def _added(x: Slopes, y: Slopes) -> Slopes:
    return jax.tree.map(jnp.add, x, y)


def ascend_slopes(a: jax.Array, b: jax.Array, m: Count, order: int) -> Level:
    """X_{m-1} with its derivatives up to ``order``; O(m). A power ``order`` + 1 of Y must stay in range: Y grows by
    1e14 a level at the domain's end."""
    return _ascend_twice(a, b, m) if order == 2 else _ascend_once(a, b, m)


def _ascend_once(a: jax.Array, b: jax.Array, m: Count) -> Level:
    per, up, single = unit(b)
    over = a * per

    def step(l: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        Y, w, fall = state  # fall = Gamma b, over a unit squared a level
        l, w = l * per, up * w
        return (l + over) * Y + w, over * Y + w, l * up * (fall + Y * Y)

    def rescale(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        inverse = 1 / state[1]
        return state[0] * inverse, jnp.ones_like(b), state[2] * inverse * inverse

    one = jnp.ones_like(a * b)
    state = m.climb(step, (one, one, 0 * one), b, rescale, chunk=2 if single else 8)
    X, _, fall = rescale(state)
    return Level(X, fall * (1 / b), b * (X - 1) + X * (a * (X - 1) - (m.real(b) - 1)))


def _ascend_twice(a: jax.Array, b: jax.Array, m: Count) -> Level:
    per = 1 / b
    over = a * per

    def step(l: Any, state: Any) -> Any:
        Y, w, fall, drop, theta, psi = state  # b Gamma, Lambda, b^2 Theta, b^2 Psi
        l = l * per
        square = Y * Y
        theta = l * (theta + over * psi + (2 * fall + square) * Y)
        return (l + over) * Y + w, over * Y + w, l * (fall + square), l * (drop + w * Y), theta, theta + l * l * psi

    def rescale(state: Any) -> Any:
        Y, w, fall, drop, theta, psi = state
        inverse = 1 / w
        return (Y * inverse, jnp.ones_like(w), fall * inverse * inverse, drop * inverse * inverse,
                theta * inverse * inverse * inverse, psi * inverse * inverse * inverse)

    one = jnp.ones_like(a * b)
    zero = 0 * one
    chunk = 1 if np.dtype(b.dtype) == np.float32 else 4
    state = m.climb(step, (one, one, zero, zero, zero, zero), b, rescale, chunk=chunk)
    x, _, fall, drop, theta, _ = rescale(state)
    fall = fall * per
    c = (b - drop) / x + a * x
    over_one = x - 1
    return Level(x, fall, -drop, (2 * theta * per * per, x * over_one - c * fall, b * over_one - c * drop))
