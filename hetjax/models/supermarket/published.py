"""The system and the closed form of the paper, as printed, each with its residual in the paper's own equations.

Not an answer about queues: see ``fixed_point`` for that. Powers S^d here are elementwise, by phase, as in the paper's
(6) to (9), with (C, D) = (D0, D1), t0 = -T e and S_k of shape (phases of the arrivals, phases of the service):

    S_0 e = 1,  S_0' = S_0^d C + S_1 (I x t0),
    S_1' = S_0^d (D x alpha) + S_1^d (C x I) + S_1 (I x T) + S_2 (I x t0 alpha),
    S_k' = S_{k-1}^d (D x I) + S_k^d (C x I) + S_k (I x T) + S_{k+1} (I x t0 alpha),  k >= 2.

A join happens by queue length; the phase is a mark. An elementwise power mixes the two up, so that the system is the
mean field only with one phase. Three facts found while checking it:

* Adding up (7) to (9) shows that sum_{k>=0} S_k e never changes, against (6): fixed points of (7) to (9) form a
  continuum, and from the empty system M/M drifts to S_0 < 1. With (10) imposed one root remains in all cases tried.
* The closed form (41) drops two sums that vanish only if gamma D is proportional to gamma^(1/d) and alpha (-T)^-1 to
  alpha^(1/d). That holds for Poisson arrivals with exponential service, for MAPs whose gamma and gamma D are uniform,
  and for hyperexponential services with mu_i proportional to p_i^(1-1/d). Elsewhere its residual is of the order of 1.
* With more than one phase of the arrivals pi_1 e = theta^d rho, not the load rho that any such system has.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.processes import MAP, PH
from hetjax.processes.checks import as_reals, concrete, require
from hetjax.result import Solution, Status

Array = jax.Array


class PublishedFixedPoint(NamedTuple):
    """(40) and (41): ``pi_0`` (arrival phases,), ``pi`` (levels, arrival phases, service phases); the two factors of
    the corollary, ``log_arrival_factor`` (levels, arrival phases) and ``log_service_factor`` (levels, service phases),
    by their
    logarithms, whose outer product is pi; ``theta`` and ``omega``."""

    pi_0: Array
    pi: Array
    log_arrival_factor: Array
    log_service_factor: Array
    theta: Array
    omega: Array


def _power(x: Array, exponent: Array) -> Array:
    """x^exponent elementwise for x >= 0, with derivative 0 at x = 0 (right for exponents > 1)."""
    some = x > 0
    return jnp.where(some, jnp.exp(exponent * jnp.log(jnp.where(some, x, 1))), 0)


def published_ode(D0: Any, D1: Any, alpha: Any, T: Any, d: Any, S_0: Any, S: Any) -> tuple[Array, Array, Array]:
    """The right-hand sides of (7), and of (8) and (9), at S_0 (a,) and S (levels, a, b), and the error S_0 e - 1 of
    (6).

    Levels above the last are taken as 0. For d >= 1 and entries >= 0. O(levels a b (a + b)).

    >>> import jax.numpy as jnp
    >>> u = jnp.array([0.5, 0.125, 0.0078125])[:, None, None]
    >>> left, right, mass = published_ode([[-0.5]], [[0.5]], [1.0], [[-1.0]], 2.0, [1.0], u)
    >>> float(abs(left).max()), float(abs(right[:2]).max()), float(mass)
    (0.0, 0.0, 0.0)
    """
    D0, D1, alpha, T, d, S_0, S = as_reals(D0, D1, alpha, T, d, S_0, S)
    exits = -jnp.sum(T, axis=1)
    above = jnp.concatenate([S[1:], jnp.zeros_like(S[:1])])
    power_0, power = _power(S_0, d), _power(S, d)
    entering = jnp.concatenate([(power_0 @ D1)[None, :, None] * alpha[None, None],
                                jnp.einsum("kib,ij->kjb", power[:-1], D1)])
    rest = jnp.einsum("kib,ij->kjb", power, D0) + S @ T + (above @ exits)[..., None] * alpha[None, None]
    return power_0 @ D0 + S[0] @ exits, entering + rest, jnp.sum(S_0) - 1


def published_fixed_point(D0: Any, D1: Any, alpha: Any, T: Any, d: Any, levels: int = 12) -> Solution:
    """The closed form (40), (41) of the paper with its residual in (10) to (13).

    pi_0 = theta gamma^(1/d), pi_k = theta^(d^k) (theta omega rho)^((d^k-1)/(d-1)) gamma^(1/d) x alpha^(1/d), with
    theta = 1/(gamma^(1/d) e), omega = 1/(alpha^(1/d) e), gamma (D0 + D1) = 0, rho = gamma D1 e alpha (-T)^-1 e.

    Args:
      D0, D1: (a, a), the arrival process per server. alpha, T: (b,), (b, b), the service. d > 1, rho < 1. levels:
      static.

    Returns:
      Solution with a :class:`PublishedFixedPoint`. ``residual`` is the largest entry of the left-hand sides of (10) to
      (13), over the arrival rate: 1e-16 where the formula solves its equations, of the order of 1 elsewhere. ValueError
      for d <= 1, rho >= 1 and illegal processes; status out_of_domain or unstable for traced values.

    >>> good = published_fixed_point([[-0.7]], [[0.7]], [1.0], [[-1.0]], 2.0)
    >>> bad = published_fixed_point([[-0.7]], [[0.7]], [1.0, 0.0], [[-2.0, 2.0], [0.0, -2.0]], 2.0)
    >>> float(good.residual) < 1e-15, float(bad.residual) > 1
    (True, True)
    """
    arrivals = MAP(D0, D1)
    D0, D1, alpha, T, d = as_reals(arrivals.D0, arrivals.D1, alpha, T, d)
    service = PH(alpha, T)
    gamma = arrivals.phase_law()
    rate = jnp.sum(gamma @ D1)
    rho = rate * service.mean()
    if concrete(d, rho):
        require(float(d) > 1, "d", float(d), "> 1: the formula divides by d - 1")
        require(float(rho) < 1, "rho", float(rho), "< 1: below the service rate")
    roots = _power(gamma, 1 / d), _power(alpha, 1 / d)
    theta, omega = (1 / jnp.sum(root) for root in roots)
    k = jnp.arange(1, levels + 1).astype(d.dtype)
    grown = jnp.exp(k * jnp.log(d))
    exponent = (grown - 1) / (d - 1)
    tiny = float(jnp.finfo(d.dtype).tiny)
    scale_a = grown * jnp.log(theta) + exponent * jnp.log(theta * rate)
    scale_s = exponent * jnp.log(omega * service.mean())
    log_a = scale_a[:, None] + jnp.where(roots[0] > 0, jnp.log(jnp.maximum(roots[0], tiny)), -jnp.inf)[None]
    log_s = scale_s[:, None] + jnp.where(roots[1] > 0, jnp.log(jnp.maximum(roots[1], tiny)), -jnp.inf)[None]
    pi = jnp.exp(log_a[:, :, None] + log_s[:, None, :])
    value = PublishedFixedPoint(theta * roots[0], pi, log_a, log_s, theta, omega)
    left, right, mass = published_ode(D0, D1, alpha, T, d, value.pi_0, value.pi)
    residual = jnp.maximum(jnp.maximum(jnp.max(jnp.abs(left)), jnp.max(jnp.abs(right))) / rate, jnp.abs(mass))
    code = jnp.where(rho < 1, int(Status.OK), int(Status.UNSTABLE))
    code = jnp.where((d > 1) & arrivals.is_valid() & service.is_valid(), code, int(Status.OUT_OF_DOMAIN))
    return Solution(value, code.astype(jnp.uint8), residual, 0)


def lipschitz_constant(D0: Any, T: Any, d: Any) -> Array:
    """The best Lipschitz constant, in the sum norm, of the right-hand sides of (7) to (9) for entries in [0, 1].

    2 d max_i |D0_ii| + 2 max_j |T_jj|. Entry (i, j) of a level acts through its d-th power, of slope at most d, on
    rates whose absolute values add up to sum |D0_i.| + sum D1_i. = 2 |D0_ii|, and on T and t0 alpha, sum |T_j.| + t0_j
    = 2 |T_jj|. It is reached at S = 1. This is the constant that Kurtz's theorem asks for.

    >>> float(lipschitz_constant([[-0.7]], [[-1.0]], 2.0))
    4.8
    """
    D0, T, d = as_reals(D0, T, d)
    return 2 * d * jnp.max(jnp.abs(jnp.diag(D0))) + 2 * jnp.max(jnp.abs(jnp.diag(T)))


def published_roots(D0: Any, D1: Any, alpha: Any, T: Any, d: Any, levels: int = 8, starts: int = 64,
                    key: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """All solutions of (10) to (13) with entries in [0, 2] that Levenberg-Marquardt steps from random starts find.

    Returns:
      ``roots`` (found, a (1 + levels b)): pi_0, then pi_1, pi_2, ... row by row, different roots only; ``hits``
      (found,), how many starts led to each. Give so many ``levels`` that S_K^d < 1e-11, or none is found. Runs on the
      host. Whether the list is complete no method of this kind can prove.

    >>> roots, hits = published_roots([[-0.7]], [[0.7]], [1.0], [[-1.0]], 2.0, levels=7, starts=8)
    >>> roots.shape[0], [round(float(u), 6) for u in roots[0, 1:4]]
    (1, [0.7, 0.343, 0.082354])
    """
    arrivals = MAP(D0, D1)
    D0, D1, alpha, T, d = as_reals(arrivals.D0, arrivals.D1, alpha, T, d)
    PH(alpha, T)
    a, b = D0.shape[0], T.shape[0]
    key = jax.random.key(0) if key is None else key
    heads, steps = jax.random.split(key)
    first = jax.random.dirichlet(heads, jnp.ones(a, d.dtype), (starts,))
    factors = jax.random.uniform(steps, (starts, levels, a, b), d.dtype)
    start = jnp.concatenate([first, jnp.cumprod(factors, axis=1).reshape(starts, -1)], axis=1)
    found, residual = _search(start, (D0, D1, alpha, T, d), (a, b))
    kept = np.asarray(found)[np.asarray(residual) < 1e-11]
    roots: list[np.ndarray] = []
    hits: list[int] = []
    for x in kept:
        same = [i for i, root in enumerate(roots) if np.abs(root - x).max() < 1e-6]
        if same:
            hits[same[0]] += 1
        else:
            roots.append(x)
            hits.append(1)
    return np.array(roots).reshape(len(roots), start.shape[1]), np.array(hits, int)


@functools.partial(jax.jit, static_argnums=2)
def _search(start: Array, model: tuple[Array, Array, Array, Array, Array],
            shape: tuple[int, int]) -> tuple[Array, Array]:
    a, b = shape

    def equations(x: Array) -> Array:
        left, right, mass = published_ode(*model, x[:a], x[a:].reshape(-1, a, b))
        return jnp.concatenate([left, right.reshape(-1), mass[None]])

    def one(x: Array) -> tuple[Array, Array]:
        identity = jnp.eye(x.size, dtype=x.dtype)

        def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x, damping = carry
            F, J = equations(x), jax.jacfwd(equations)(x)
            change = jnp.linalg.solve(J.T @ J + damping * identity, -(J.T @ F))
            new = jnp.clip(x + change, 0, 2)
            better = jnp.sum(equations(new) ** 2) < jnp.sum(F**2)
            return jnp.where(better, new, x), jnp.where(better, damping / 4, damping * 3)

        x, _ = jax.lax.fori_loop(0, 120, step, (x, jnp.ones((), x.dtype)))

        def polish(_: int, x: Array) -> Array:
            change = jnp.linalg.lstsq(jax.jacfwd(equations)(x), -equations(x))[0]
            new = jnp.clip(x + change, 0, 2)
            return jnp.where(jnp.sum(equations(new) ** 2) < jnp.sum(equations(x) ** 2), new, x)

        x = jax.lax.fori_loop(0, 4, polish, x)
        return x, jnp.max(jnp.abs(equations(x)))

    return jax.vmap(one)(start)
