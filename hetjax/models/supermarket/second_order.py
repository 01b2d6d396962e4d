"""The next term of the refinement, of order 1/N^2, from the third moments of the fluctuations.

Let Z = X - x be the deviation from the fixed point x of a chain with jumps l/N at rates N b_l(X), and F = sum b_l l,
Q = sum b_l l l^T, R = sum b_l l (x) l (x) l its moments of jumps. In equilibrium the generator applied to Z_i, Z_i Z_j
and Z_i Z_j Z_k has mean 0. Expanding the means of products of Z in powers of 1/N,

    E Z = V/N + V2/N^2,   cov Z = W/N + W2/N^2,   third cumulant of Z = K/N^2,   fourth moment = 3 sym(W W)/N^2,

and collecting equal powers, with A = DF(x), F2 = D^2 F, F3 = D^3 F, F4 = D^4 F, everything at x:

    [A]_3 K + sym_3( F2(W, W) + DQ W ) + R = 0,                                     [A]_3: A along each of three indices
    A M + M A^T + S + S^T + DQ V + D^2Q : W / 2 = 0,          M = W2 + V V^T,
    S_ij = F2_j : C_i / 2 + F3_j : W W_i / 2,                                        C = K + sym_3(V W), third moments
    A V2 + F2 : M / 2 + F3 : C / 6 + F4 : W W / 8 = 0.

Derived in the way of Gast, Bortolussi and Tribastone (Size expansions of mean field approximation, 2018). A power
d < 2 of a small u_k has no finite fourth derivative to expand in: d >= 2 is asked for.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array
DOUBLINGS = 40


def second_order_shift(F: Callable[[Array], Array], Q: Callable[[Array], Array], R: Array, x: Array, V: Array,
                       W: Array, solve_lyapunov: Callable[[Array], Array]) -> Array:
    """V2 (n,), see above. ``F``: the drift and ``Q`` (n, n) the second jump moments as functions of x; ``R`` (n, n, n);
    ``solve_lyapunov``: right-hand side G -> M with A M + M A^T + G = 0. O(n^4 DOUBLINGS) and n^2 fourth derivatives.

    >>> import jax.numpy as jnp
    >>> from hetjax.models.supermarket.refined import lyapunov
    >>> one = jnp.ones((1,))  # births N, deaths N x^2 in jumps 1/N: W = 1/2, V = -1/4
    >>> A, halves = jnp.array([[-2.0]]), (jnp.array([-0.25]), jnp.array([[0.5]]))
    >>> V2 = second_order_shift(lambda x: 1 - x**2, lambda x: (1 + x**2)[None], jnp.zeros((1, 1, 1)), one, *halves,
    ...                         lambda G: lyapunov(A, G, jnp.asarray(1.0)))
    >>> float(V2[0])  # E X^2 = 1 exactly: 2 V2 + M = 0
    -0.03125
    """
    n = x.size
    identity = jnp.eye(n, dtype=x.dtype)

    def along(f: Callable[[Array], Array], direction: Array) -> Callable[[Array], Array]:
        return lambda y: jax.jvp(f, (y,), (direction,))[1]

    def contract(f: Callable[[Array], Array], matrix: Array) -> Callable[[Array], Array]:
        """y -> D^2 f(y) : matrix."""
        return lambda y: jnp.sum(jax.vmap(lambda e, m: along(along(f, e), m)(y))(identity, matrix), axis=0)

    A = jax.jacfwd(F)(x)
    F2 = jax.jacfwd(jax.jacfwd(F))(x)  # (k, l, m)
    DQ = jax.vmap(lambda w: along(Q, w)(x))(W)  # (i, j, k): D Q_jk W_i
    K = _three_way(A, _sym3(jnp.einsum("klm,il,jm->ijk", F2, W, W) + jnp.moveaxis(DQ, 0, 2)) + R)
    C = K + _sym3(W[:, :, None] * V[None, None])
    bend = contract(F, W)  # F2 : W
    S = jnp.einsum("jkl,ikl->ij", F2, C) / 2 + jax.vmap(lambda w: along(bend, w)(x))(W) / 2
    M = solve_lyapunov(S + S.T + along(Q, V)(x) + contract(Q, W)(x) / 2)

    def third(pair: tuple[Array, Array]) -> Array:
        e, c = pair
        return contract(along(F, e), c)(x)

    skew = jnp.sum(lax.map(third, (identity, C)), axis=0)  # F3 : C
    steep = jnp.sum(lax.map(lambda p: along(along(bend, p[0]), p[1])(x), (identity, W)), axis=0)  # F4 : W W
    return jnp.linalg.solve(A, -(jnp.einsum("jkl,kl->j", F2, M) / 2 + skew / 6 + steep / 8))


def third_jump_moments(flow: Array, born: Array, gone: Array) -> Array:
    """R (n, n, n) of flows between cells (n, n; zero diagonal) and from and to outside, (n,).

    >>> import jax.numpy as jnp
    >>> third_jump_moments(jnp.zeros((1, 1)), jnp.array([3.0]), jnp.array([1.0])).tolist()
    [[[2.0]]]
    """
    n = born.size
    net = flow - flow.T
    i = np.arange(n)
    R = jnp.zeros((n, n, n), flow.dtype).at[i, i, :].add(net).at[i, :, i].add(net).at[:, i, i].add(net.T)
    return R.at[i, i, i].add(born - gone - jnp.sum(net, axis=1))


def _sym3(X: Array) -> Array:
    """The sum over which of the three indices is the last, X being symmetric in the first two."""
    return X + jnp.moveaxis(X, 2, 0) + jnp.moveaxis(X, 2, 1)


def _all_modes(B: Array, X: Array) -> Array:
    for _ in range(3):
        X = jnp.tensordot(X, B, axes=([0], [1]))
    return X


def _three_way(A: Array, G: Array) -> Array:
    """K with A along each index of K, summed, + G = 0: the integral of (e^At)^(x)3 G, by Gauss-Legendre quadrature over
    a short interval and then by doubling it."""
    nodes, weights = np.polynomial.legendre.leggauss(10)
    h = 0.5 / jnp.max(jnp.sum(jnp.abs(A), axis=0))
    times = jnp.asarray((nodes + 1) / 2, A.dtype) * h

    def node(carry: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
        time, weight = at
        return carry + weight * _all_modes(jax.scipy.linalg.expm(A * time), G), None

    first, _ = lax.scan(node, jnp.zeros_like(G), (times, jnp.asarray(weights / 2, A.dtype) * h))

    def double(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        B, X = carry
        return (B @ B, X + _all_modes(B, X)), None

    return lax.scan(double, (jax.scipy.linalg.expm(A * h), first), None, length=DOUBLINGS)[0][1]
