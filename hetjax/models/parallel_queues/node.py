"""One node fed by the 1s of a periodic word applied to a Poisson stream: its exact means, by going round the word.

State (n, s): n customers in the node, s = 1 where the slow server is busy; phase i = position in the word of the next
customer of the stream (rate lambda). Instead of levels, which cost O(b^3) each for b letters, the phases are followed:
between two customers of the stream only services end, during an exponential time, so the law v_i before customer i (by
PASTA also the law in time) goes over into

    v_{i+1} = v_i S_i J_{i+1} K_{i+1},

S the arrival if the letter is 1, J the starting rule in the new phase, K the departures during Exp(lambda): n only
falls, so K is one sweep down the levels. Everything is a sum of non-negative terms.

**Above level T** = ``max_threshold`` all servers are busy (mu = mu1 + mu2), and pi_i(n) = sum_m c_m phi_{m,i}
z_m^(n-T-1), n > T, over the roots of

    z^k (1 + (mu/lambda)(1 - z))^b = 1,  |z| < 1,        k = number of 1s, b = letters:

exactly k of them where lambda k/b < mu, whatever the word's order. With y = log z they are, m = 0..k-1,

    y + (b/k) log(1 + (mu/lambda)(1 - e^y)) = 2 pi i m/k,   phi_{m,i} = exp(y (k i/b - k_i) - 2 pi i m i/b),

k_i the 1s before position i: |k i/b - k_i| < 1 for mechanical words, so that the phi_m are nearly the vectors of a
discrete Fourier transform and well conditioned. The map y -> 2 pi i m/k - (b/k) log(..) takes the left half plane into
itself, hence one root for each m; for m = 0 the root y = 0 is divided out.

The 2 (T + 1) probabilities of v_0 and the k coefficients solve one real linear system: going round leaves v_0 as it
was, and before each letter 1 the continuation of the sum to level T is v_i(T). Total mass 1 replaces one equation.
O(b (T + k) T + (T + k)^3) against O(b^3 (T + 42)) by levels; this project's own derivation. Second routes:
:func:`hetjax.threshold_queue.solve`, truncated chains.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.threshold_queue.chain import start_probability

Array = jax.Array
_PICARD, _NEWTON = 6, 9


class NodeMeans(NamedTuple):
    """Stationary means of a node: customers, of them waiting, busy fractions of both servers, P(nobody there)."""

    number: Array
    waiting: Array
    fast: Array
    slow: Array
    empty: Array


def _complex(x: Array) -> Array:
    return lax.complex(x, jnp.zeros_like(x))


@partial(jax.jit, static_argnames="size")
def roots(ones: Array, length: Array, ratio: Array, size: int) -> Array:
    """y_m = log z_m, (size,) complex, of the module's equation for m < ``ones``; ``ratio`` = mu/lambda > ones/length.

    ``ones``, ``length``: real scalars with whole values. Entries m >= ones repeat m = ones - 1. Differentiable once.

    >>> import jax.numpy as jnp
    >>> y = roots(jnp.asarray(1.0), jnp.asarray(2.0), jnp.asarray(1.0), 1)  # E2/M/1 at load 1/2
    >>> round(float(jnp.exp(y[0].real)), 6)
    0.381966
    """
    beta = length / ones
    both = _complex(beta)
    m = jnp.minimum(jnp.arange(size).astype(ratio.dtype), ones - 1)
    target = lax.complex(jnp.zeros_like(m), 2 * jnp.pi * m / ones)

    def grow(y: Array, c: Array) -> Array:
        return jnp.log1p(-c * jnp.expm1(y))

    def slope(y: Array, c: Array) -> Array:
        return -c * jnp.exp(y) / (1 - c * jnp.expm1(y))

    fixed = lax.stop_gradient(ratio)
    wide = _complex(fixed)

    def real_step(_: int, y: Array) -> Array:  # on 1 + beta F(y)/y, which falls from 1 to 1 - beta ratio < 0
        F = grow(y, fixed)
        value, rate = 1 + beta * F / y, beta * (slope(y, fixed) - F / y) / y
        step = y - value / rate
        return jnp.where((step < 0) & jnp.isfinite(step), step, y / 2)

    first = lax.fori_loop(0, 14, real_step, -beta * jnp.log1p(fixed))

    def picard(_: int, y: Array) -> Array:
        return target - both * grow(y, wide)

    def newton(y: Array, c: Array) -> Array:
        return y - (y + both * grow(y, c) - target) / (1 + both * slope(y, c))

    y = lax.fori_loop(0, _PICARD, picard, target - both * jnp.log1p(wide))
    y = lax.fori_loop(0, _NEWTON, lambda _, y: newton(y, wide), y)
    y = jnp.where(m == 0, _complex(first), y)
    return newton(lax.stop_gradient(y), _complex(ratio))  # the derivative in ratio


@partial(jax.jit, static_argnames="max_threshold")
def node_means(rate: Array, word: Array, length: Array, mu1: Array, mu2: Array, thresholds: Array,
               max_threshold: int) -> NodeMeans:
    """The :class:`NodeMeans` of one node (vmap for many); differentiable in all real arguments, in both modes.

    Args:
      rate: of the Poisson stream before the router, a scalar.
      word: (size,) 0s and 1s, 1 where the customer comes to this node; only the first ``length`` are read.
      length: letters in the period, <= size; may be traced.
      mu1, mu2: rates of the fast and the slow server; mu2 = 0 for a single server.
      thresholds: (size,) by phase = position of the next customer, or a scalar; in [1, max_threshold], real ones
        randomised as in :class:`hetjax.threshold_queue.Params`.
      max_threshold: whole bound of the thresholds; gives the size of the system.

    Needs at least one 1 and rate * ones/length < mu1 + mu2 (unchecked). Relative error about 1e-13/(1 - rho) for
    mechanical words; a word that crowds its 1s loses digits with its length (1e-9 at 12 letters, take
    ``threshold_queue`` beyond).

    >>> import jax.numpy as jnp
    >>> word, thresholds = jnp.asarray([0, 1, 1]), jnp.asarray([2.0, 5.0, 3.0])
    >>> real = [jnp.asarray(x) for x in (1.98, 2.0, 0.2)]
    >>> found = node_means(real[0], word, jnp.asarray(3), real[1], real[2], thresholds, 5)
    >>> round(float(found.number), 9)
    1.710022565
    """
    dtype, size, T = rate.dtype, word.shape[0], max_threshold
    length = length.astype(jnp.int32)
    places = jnp.arange(size, dtype=jnp.int32)
    inside = places < length
    letter = jnp.where(inside, word, jnp.zeros_like(word)).astype(dtype)
    thresholds = jnp.broadcast_to(thresholds, (size,))
    k, b = jnp.sum(letter), length.astype(dtype)
    single = mu2 <= 0
    mu = mu1 + mu2
    y = roots(k, b, mu / rate, size)
    m = jnp.minimum(jnp.arange(size).astype(dtype), k - 1)
    i = jnp.arange(size + 1).astype(dtype)
    before = jnp.concatenate([jnp.zeros((1,), dtype), jnp.cumsum(letter)])
    lag = (k * i / b - before)[None]
    size_of, angle = jnp.exp(y.real[:, None] * lag), y.imag[:, None] * lag - 2 * jnp.pi / b * m[:, None] * i[None]
    phi = lax.complex(size_of * jnp.cos(angle), size_of * jnp.sin(angle))  # (m, i)
    active = jnp.arange(size).astype(dtype) < k
    real = m <= k / 2

    def column(x: Array) -> Array:
        """A real basis of the conjugate pairs: real parts, and imaginary parts of the second of each pair; (m, ..)."""
        extra = (slice(None), *[None] * (x.ndim - 1))
        found = jnp.where(real[extra], jnp.real(x), jnp.imag(x))
        return jnp.where(active[extra], found, jnp.zeros_like(found))

    stay = -jnp.expm1(y)  # 1 - z
    gone = jnp.sum(jnp.where(inside[None], phi[:, :-1], jnp.zeros_like(phi[:, :-1])), axis=1)  # summed over phases
    mass, number = column(gone / stay), column(gone * (T + jnp.reciprocal(stay)) / stay)
    tail = column(phi)
    continued = column(phi[:, :-1] * jnp.exp(-y)[:, None])

    boundary, columns = 2 * (T + 1), 2 * (T + 1) + size
    start = jnp.eye(boundary, columns, dtype=dtype).reshape(2, T + 1, columns)
    levels = jnp.arange(T + 1).astype(dtype)
    exists = (levels >= 1).astype(dtype)  # (0, 1) does not
    leave = jnp.stack([1 / (rate + mu1 * exists), 1 / (rate + mu2 + mu1 * (levels >= 2).astype(dtype))])

    def step(v: Array, given: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        one, at, threshold, top = given
        p = start_probability(jnp.maximum(levels - 1, 0), jnp.broadcast_to(threshold, (T + 1,)))
        p = jnp.where((levels >= 2) & ~single, p, jnp.zeros_like(p))[:, None]
        up = jnp.concatenate([jnp.zeros_like(v[:, :1]), v[:, :-1]], axis=1)
        u = jnp.where(one > 0, up, v)
        u0, u1 = u[0] * (1 - p), u[1] + u[0] * p
        top = jnp.concatenate([jnp.zeros((boundary,), dtype), top])
        none = jnp.zeros_like(top)

        def down(x: tuple[Array, Array], given: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            into0, into1, begin, leave0, leave1, exists = given
            from_slow = mu2 * x[1]
            new = ((rate * into0 + mu1 * x[0] + from_slow * (1 - begin)) * leave0,
                   (rate * into1 + (mu1 * x[1] + from_slow * begin) * exists) * leave1)
            return new, new

        first = (jnp.where(single, top, none), jnp.where(single, none, top))
        _, rows = lax.scan(down, first, (u0, u1, p[:, 0], leave[0], leave[1], exists), reverse=True)
        new = jnp.stack(rows)
        return jnp.where(at, new, v), (v[0, T] + v[1, T], jnp.where(at, v, jnp.zeros_like(v)))

    nxt = jnp.where(places + 1 < length, jnp.roll(thresholds, -1), thresholds[0])

    def collect(carry: tuple[Array, Array], given: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        v, total = carry
        v, (last, here) = step(v, given)
        return (v, total + here), last

    given = (letter, inside, nxt, jnp.swapaxes(tail[:, 1:], 0, 1))
    (end, total), last = lax.scan(collect, (start, jnp.zeros_like(start)), given)
    around = end.reshape(boundary, columns) - jnp.eye(boundary, columns, dtype=dtype)
    ones_before = before[:-1]
    rows = jnp.where(letter > 0, ones_before, k + jnp.arange(size).astype(dtype) - ones_before).astype(jnp.int32)
    match = last - jnp.concatenate([jnp.zeros((size, boundary), dtype), jnp.swapaxes(continued, 0, 1)], axis=1)
    match = jnp.zeros_like(match).at[rows].set(match)  # the 1s first
    match = jnp.where(active[:, None], match, jnp.eye(size, columns, boundary, dtype=dtype))
    whole = jnp.sum(total, axis=(0, 1)) + jnp.concatenate([jnp.zeros((boundary,), dtype), mass])
    system = jnp.concatenate([(whole / b)[None], around[1:], match])
    u = jnp.linalg.solve(system, jnp.eye(1, columns, dtype=dtype)[0])
    law = (total @ u) / b  # (s, n), summed over the phases
    c = u[boundary:]
    above, moment = c @ mass / b, c @ number / b
    idle, busy = law[0], law[1]
    slow_busy = jnp.sum(busy) + jnp.where(single, jnp.zeros_like(above), above)
    ahead0, ahead1 = jnp.maximum(levels - 1, 0), jnp.maximum(levels - 2, 0)
    servers = jnp.where(single, jnp.ones_like(above), 2 * jnp.ones_like(above))
    return NodeMeans(levels @ (idle + busy) + moment,
                     ahead0 @ idle + ahead1 @ busy + moment - servers * above,
                     jnp.sum(idle[1:]) + jnp.sum(busy[2:]) + above, slow_busy, idle[0])
