"""Infinite chains whose levels repeat (quasi-birth-death processes), and the single-server queues that are such chains.

After any finite boundary the levels k = 1, 2, ... have the same rates U (up), A (inside), D (down). Then
pi_{k+1} = pi_k R. With G[i, j] the probability that the first passage one level down ends in phase j and
N = (diag(D 1 + W 1) - W)^-1, W = A + U G: G = N D, R = U N. G comes from logarithmic reduction (Latouche and
Ramaswami, J. Appl. Prob. 30, 1993), which doubles the number of levels that a path may climb: with H and L the
probabilities to leave a level upwards and downwards,

    (I - HL - LH) H' = H^2,  (I - HL - LH) L' = L^2,  G = L + H L' + H H' L'' + ...

solved without subtraction with off-diagonals HL + LH and exit rates (H^2 + L^2) 1.

Sums over the infinite tail do not use (I - R)^-1, which loses 1/(1 - rho). With Q = U + A + D, beta Q = 0, beta 1 = 1,
X0 = sum_{k>=1} pi_k and X1 = sum_{k>=1} k pi_k, the balance equations added up give

    X0 Q = pi_1 D - pi_0 B,              X0 (D - U) 1 = pi_1 D 1,
    X1 Q = X0 (D - U) - pi_0 B,          X1 (D - U) 1 = X0 D 1,

B the rates from the boundary to level 1. So X0 = c beta + z with any solution z of the first equation, and c =
(pi_1 D 1 - z (D - U) 1) / (beta (D - U) 1): only the drift beta (D - U) 1 is small near saturation.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc import elimination, panels
from hetjax.ctmc.blocks import LARGE, block_times
from hetjax.result import Solution, Status


class MatrixGeometric(NamedTuple):
    """A stationary law: ``boundary`` (b,), ``first`` (S,) for level k = 1, pi_k = first R^(k-1); ``mass`` (S,) is the
    phase law summed over all k >= 1, ``mean_level`` = sum k pi_k 1 (boundary counts 0), ``drift`` = beta (D - U) 1."""

    boundary: jax.Array
    first: jax.Array
    R: jax.Array
    G: jax.Array
    mass: jax.Array
    mean_level: jax.Array
    drift: jax.Array

    def level(self, k: int | jax.Array) -> jax.Array:
        """pi_k (S,) for k >= 1, by repeated squaring: any k below 2^31."""
        power = jnp.asarray(k, jnp.int32) - 1

        def step(bit: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            vector, square = carry
            odd = (power >> bit) & 1 == 1
            return jnp.where(odd, vector @ square, vector), square @ square

        return lax.fori_loop(0, 31, step, (self.first, self.R))[0]


def logarithmic_reduction(up: jax.Array, local: jax.Array, down: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(G, R) of homogeneous levels, (S, S) each, entrywise to about 1e-15; see the module's docstring.

    Shapes (S, S), rates per unit time; diagonals of ``local`` are never read. A fixed number of doublings, 42 in
    float64 and 24 in float32: enough at saturation itself (the usual 10 are not). Cost 42 times 5 S^3.
    For positive recurrent levels only: the last step takes G to be stochastic. Small matrices may have further trailing
    axes of independent problems, (S, S, ...), the same for all three.
    """
    S = local.shape[0]
    dtype = local.dtype
    solve = panels.solve if S > LARGE else elimination.solve
    times = jnp.matmul if local.ndim == 2 else block_times
    eye = jnp.broadcast_to(jnp.eye(S, dtype=dtype).reshape(S, S, *[1] * (local.ndim - 2)), local.shape)
    doublings = 42 if jnp.finfo(dtype).bits == 64 else 24

    def both(rates: jax.Array, upward: jax.Array, downward: jax.Array) -> tuple[jax.Array, jax.Array]:
        right = jnp.concatenate([upward, downward], axis=1)
        x, _ = solve(rates, jnp.sum(right, axis=1), right)
        return x[:, :S], x[:, S:]

    def double(_: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        G, climbed, H, L = carry
        H, L = both(times(H, L) + times(L, H), times(H, H), times(L, L))
        return G + times(climbed, L), times(climbed, H), H, L

    H, L = both(local, up, down)
    G, *_ = lax.fori_loop(0, doublings, double, (L, H, H, L))
    x, _ = solve(local + times(up, G), jnp.sum(down, axis=1), jnp.concatenate([down, eye], axis=1))
    return x[:, :S], times(up, x[:, S:])


def matrix_geometric(boundary: jax.Array, boundary_up: jax.Array, boundary_down: jax.Array,
                     up: jax.Array, local: jax.Array, down: jax.Array) -> Solution:
    """The stationary law of a chain with a finite boundary of b states and infinitely many equal levels of S phases.

    Args:
      boundary: (b, b) rates within the boundary (several levels of any shape are put into one block).
      boundary_up: (b, S) rates from the boundary to level 1.
      boundary_down: (S, b) rates from level 1 to the boundary; its row sums must be those of ``down``.
      up, local, down: (S, S) rates between and inside the levels k >= 1. Diagonals are never read.

    Returns:
      ``Solution`` with a :class:`MatrixGeometric`. ``status``: unstable if the drift towards the boundary is not
      positive (values are then NaN), out_of_domain for negative or NaN rates or a phase process with several recurrent
      classes. Relative errors: G, R 1e-14 entrywise, means max(1e-12, 16 eps/(1 - rho)), right at 1 - rho = 1e-8.

    Raises ValueError for shapes that do not fit, and for concrete rates whose row sums differ.

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> one = jnp.ones((1, 1))
    >>> mm1 = ctmc.matrix_geometric(0 * one, 0.5 * one, one, 0.5 * one, 0 * one, one)
    >>> round(float(mm1.value.mean_level), 6)
    1.0
    """
    dtype = jnp.result_type(boundary, boundary_up, boundary_down, up, local, down)
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
    blocks = [jnp.asarray(x, dtype) for x in (boundary, boundary_up, boundary_down, up, local, down)]
    boundary, boundary_up, boundary_down, up, local, down = blocks
    b, S = boundary.shape[0], local.shape[0]
    names = ("boundary", "boundary_up", "boundary_down", "up", "local", "down")
    for name, block, shape in zip(names, blocks, ((b, b), (b, S), (S, b), (S, S), (S, S), (S, S)), strict=True):
        if block.shape != shape:
            raise ValueError(f"{name} has shape {block.shape}; give {shape} for {b} boundary states and {S} phases")
    boundary, local = elimination.off_diagonal(boundary), elimination.off_diagonal(local)
    exits = jnp.sum(down, axis=1)
    gap = jnp.max(jnp.abs(jnp.sum(boundary_down, axis=1) - exits)) - 1e3 * jnp.finfo(dtype).eps * jnp.max(exits)
    if not isinstance(gap, jax.core.Tracer) and gap > 0:
        raise ValueError("boundary_down and down have different row sums;"
                         " level 1 must be left downwards at the same rates as the others")
    G, R = logarithmic_reduction(up, local, down)
    below = jnp.concatenate([jnp.concatenate([boundary, boundary_up], axis=1),
                             jnp.concatenate([boundary_down, local + up @ G], axis=1)])
    form = panels.stationary_measure if b + S > LARGE else elimination.stationary_measure
    ends, ends_zeros = form(below)
    ends = ends / jnp.sum(ends)
    origin, first = ends[:b], ends[b:]
    arrivals = origin @ boundary_up
    mass, moment, drift, zeros = tail_sums(arrivals, first, up, local, down)
    norm = jnp.sum(origin) + jnp.sum(mass)
    legal = (gap <= 0) & _one_class(up + local + down, zeros) & _one_class(below, ends_zeros)
    for block in (boundary, boundary_up, boundary_down, up, local, down):
        legal = legal & jnp.all(block >= 0)
    value = MatrixGeometric(origin / norm, first / norm, R, G, mass / norm, jnp.sum(moment) / norm, drift)
    stable = drift > 0
    finite = jnp.isfinite(value.mean_level) & jnp.all(jnp.isfinite(value.mass)) & jnp.all(jnp.isfinite(R))
    status = jnp.where(legal, jnp.where(stable, jnp.where(finite, Status.OK, Status.NONFINITE), Status.UNSTABLE),
                       Status.OUT_OF_DOMAIN).astype(jnp.uint8)
    hide = jnp.where(stable, jnp.ones_like(drift), jnp.full_like(drift, jnp.nan))
    value = value._replace(boundary=value.boundary * hide, first=value.first * hide, mass=value.mass * hide,
                           mean_level=value.mean_level * hide)
    residual = jnp.max(jnp.abs(jnp.sum(G, axis=1) - 1))
    return Solution(value, status, lax.stop_gradient(residual), jnp.zeros((), jnp.int32))


def tail_sums(inflow: jax.Array, first: jax.Array, up: jax.Array, local: jax.Array,
              down: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Sums over equal levels k = 1, 2, ...: sum_k pi_k (S,), sum_k k pi_k (S,), the drift beta (D - U) 1 and the number
    of phases that Q = U + A + D never leads back from (int32).

    ``inflow`` (S,) is the rate into level 1 by phase, ``first`` (S,) its law pi_1; see the module's docstring. The
    diagonal of ``local`` is never read.

    >>> import jax.numpy as jnp
    >>> from hetjax.ctmc.matrix_geometric import tail_sums
    >>> one = jnp.ones((1, 1))  # M/M/1 at load 1/2
    >>> [float(x.sum()) for x in tail_sums(0.25 * one[0], 0.25 * one[0], 0.5 * one, 0 * one, one)[:3]]
    [0.5, 1.0, 0.5]
    """
    phases = up + local + down
    exits = jnp.sum(down, axis=1)
    beta, zeros = (panels.stationary_measure if local.shape[0] > LARGE else elimination.stationary_measure)(phases)
    beta = beta / jnp.sum(beta)
    pull = exits - jnp.sum(up, axis=1)
    drift = beta @ pull
    reference = jnp.argmax(lax.stop_gradient(beta))  # a recurrent phase, to which all others lead
    mass = _along(phases, reference, beta, first @ down - inflow, pull, first @ exits, drift)
    moment = _along(phases, reference, beta, mass @ (down - up) - inflow, pull, mass @ exits, drift)
    return mass, moment, drift, zeros


def _one_class(rates: jax.Array, zeros: jax.Array) -> jax.Array:
    return lax.cond(zeros > 0, elimination.has_one_class, lambda r: jnp.ones((), bool), elimination.steps(rates))


def _along(phases: jax.Array, reference: jax.Array, beta: jax.Array, source: jax.Array, pull: jax.Array,
           flow: jax.Array, drift: jax.Array) -> jax.Array:
    """The X with X Q = source (which sums to 0) and X pull = flow: c beta + z, z being 0 in the reference phase."""
    S = phases.shape[0]
    if S == 1:
        return flow[None] / drift
    turned = jnp.roll(phases, -reference, (0, 1))
    inner, exits = turned[1:, 1:], turned[1:, 0]
    identity = jnp.eye(S - 1, dtype=phases.dtype)
    times, _ = (panels.solve if S - 1 > LARGE else elimination.solve)(inner, exits, identity)
    rest = -jnp.roll(source, -reference)[1:] @ times
    z = jnp.roll(jnp.concatenate([jnp.zeros(1, rest.dtype), rest]), reference)
    return (flow - z @ pull) / drift * beta + z
