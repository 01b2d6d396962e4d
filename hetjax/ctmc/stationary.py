"""Stationary distributions of finite chains given as a dense generator, to full relative accuracy entry by entry."""

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.ctmc import elimination, panels
from hetjax.ctmc.batching import points_last
from hetjax.ctmc.elimination import UNROLLED, reduce
from hetjax.numerics.hold import hold
from hetjax.result import Solution, Status


def stationary(Q: jax.Array) -> Solution:
    """The stationary distribution of a continuous-time Markov chain: ``pi Q = 0``, ``pi 1 = 1``.

    Args:
      Q: (n, n) rates per unit time, ``Q[i, j] >= 0`` from state i to state j. The diagonal is never read.

    Returns:
      ``Solution``: ``value`` (n,) sums to 1; ``residual``, the largest difference of inflow and outflow of a state over
      the largest outflow. Transient states get exact zeros. ``status`` is out_of_domain for negative or NaN rates and
      for chains with several recurrent classes (:func:`hetjax.ctmc.check_generator` says which), nonfinite if numbers
      leave the range. ValueError if Q is not square.

    Grassmann-Taksar-Heyman elimination (see :mod:`hetjax.ctmc.elimination`): no subtraction, relative error of
    about n eps in every entry, also for couplings of 1e-30. Cost n^3/3 multiplications. The form depends on the size
    (tests/benchmarks/ctmc_solvers.py, us a point in a batch beside numpy's batched LU solve, two idle cores):

    =======  ============================================  =======  =====
    n        form                                           GTH      LU
    =======  ============================================  =======  =====
    1..4     unrolled, points last (n = 3)                  0.016    0.15
    5..32    blocks of 4 pivots, points last (n = 8)        0.11     0.46
    ..       (n = 16)                                       0.66     1.5
    ..       (n = 32; compiles in 4 s)                      2.9      5.2
    33..     panels of 32 states, matrix products
    =======  ============================================  =======  =====

    Under ``vmap`` the points go to the last axis, in blocks. Both modes of differentiation go through the elimination
    and keep its accuracy; :mod:`hetjax.ctmc.sensitivity` is the faster way to gradients of rewards.

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> pi = ctmc.stationary(jnp.array([[-2.0, 2.0], [1.0, -1.0]])).value
    >>> [round(float(p), 6) for p in pi]
    [0.333333, 0.666667]
    """
    Q = jnp.asarray(Q)
    if Q.ndim != 2 or Q.shape[0] != Q.shape[1] or Q.shape[0] == 0:
        raise ValueError(f"Q has shape {Q.shape}; give a square matrix (n, n) of rates, with vmap for many")
    if not jnp.issubdtype(Q.dtype, jnp.floating):
        Q = Q.astype(jnp.result_type(float))
    return _stationary(Q)


def _points(Q: jax.Array) -> int:
    return 256 if Q.shape[0] <= 4 else 64 if Q.shape[0] <= 8 else 16 if Q.shape[0] <= 16 else 8


def _unrolled(Q: jax.Array) -> Solution:
    """Shapes (n, n, ...): points last."""
    return _finish(Q, *elimination.stationary_measure(Q))


def _finish(Q: jax.Array, measure: jax.Array, zeros: jax.Array) -> Solution:
    """Normalises the measure and judges it; the classes are looked at only where a pivot was 0."""
    n = Q.shape[0]
    diagonal = jnp.eye(n, dtype=bool).reshape(n, n, *[1] * (Q.ndim - 2))
    measure = hold(measure)
    law = hold(measure / reduce(jnp.add, measure)[None])
    rates = jnp.where(diagonal, jnp.zeros_like(Q), Q)
    inflow, outflow = hold((reduce(jnp.add, law[:, None] * rates), law * reduce(jnp.add, rates, 1)))
    largest = reduce(jnp.maximum, outflow)
    difference = reduce(jnp.maximum, jnp.abs(inflow - outflow))
    residual = difference / jnp.where(largest == 0, jnp.ones_like(largest), largest)
    unique = lax.cond(jnp.any(zeros > 0), elimination.has_one_class, lambda q: jnp.ones(q.shape[2:], bool),
                      elimination.steps(Q))
    legal = reduce(jnp.logical_and, reduce(jnp.logical_and, (Q >= 0) | diagonal)) & unique
    status = jnp.where(legal, jnp.where(jnp.all(jnp.isfinite(law), axis=0), Status.OK, Status.NONFINITE),
                       Status.OUT_OF_DOMAIN).astype(jnp.uint8)
    return Solution(law, status, lax.stop_gradient(residual), jnp.zeros(status.shape, jnp.int32))


_unrolled_batched = points_last(_unrolled, _points)


@jax.custom_jvp
def _stationary(Q: jax.Array) -> Solution:
    return _unrolled_batched(Q) if Q.shape[0] <= UNROLLED else _finish(Q, *panels.stationary_measure(Q))


@_stationary.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[Solution, Solution]:
    (Q,) = primals
    form = _unrolled if Q.shape[0] <= UNROLLED else lambda q: _finish(q, *panels.stationary_measure(q))
    return jax.jvp(form, primals, tangents)
