"""Status codes and the Solution pytree: what every solver, model and store says of a point.

The codes are integers so that they survive ``jit`` and ``vmap``; nothing is raised inside a
traced function. On the host :func:`raise_if_failed` turns a failure into a clear error.
One table serves solvers, models, stores and documentation.
"""

import enum
from typing import Any, NamedTuple

import jax
import numpy as np


class Status(enum.IntEnum):
    """What happened at one point (stored as uint8; 0 never leaves the store)."""

    PENDING = 0
    OK = 1
    MASKED = 2
    UNSTABLE = 3
    NOT_CONVERGED = 4
    NONFINITE = 5
    GRAD_NONFINITE = 6
    ERROR = 7
    OUT_OF_DOMAIN = 8


STATUS_MEANINGS: dict[int, str] = {
    Status.PENDING: "not computed yet",
    Status.OK: "computed",
    Status.MASKED: "left out by a where condition of the sweep",
    Status.UNSTABLE: "infeasible: the system has no steady state here",
    Status.NOT_CONVERGED: "the iteration stopped before its tolerance; the value is kept",
    Status.NONFINITE: "an unexpected NaN or infinity",
    Status.GRAD_NONFINITE: "the values are good, a gradient is not finite",
    Status.ERROR: "the evaluation raised an error",
    Status.OUT_OF_DOMAIN: "a parameter lies outside the model's domain",
}


class OptimumStatus(enum.IntEnum):
    """What kind of optimum was found."""

    FAILED = 0
    INTERIOR = 1
    EDGE = 2
    FLAT = 3
    MULTIMODAL = 4


OPTIMUM_STATUS_MEANINGS: dict[int, str] = {
    OptimumStatus.FAILED: "no optimum was found",
    OptimumStatus.INTERIOR: "a local minimum inside the bounds",
    OptimumStatus.EDGE: "the best point lies on a bound",
    OptimumStatus.FLAT: "neighbouring values cannot be told apart",
    OptimumStatus.MULTIMODAL: "several local minima; the best one is given",
}


class Solution(NamedTuple):
    """A solver's answer: ``value`` (any pytree), ``status`` (uint8, :class:`Status`), ``residual``, ``iterations``."""

    value: Any
    status: jax.Array
    residual: jax.Array | float = 0.0
    iterations: jax.Array | int = 0


def has_value(status: jax.Array) -> jax.Array:
    """Whether points of these codes have values: OK, or kept though the iteration stopped early."""
    return (status == int(Status.OK)) | (status == int(Status.NOT_CONVERGED))


class SolverError(RuntimeError):
    """A solution whose status is not OK was asked for on the host."""


def raise_if_failed(solution: Solution) -> Solution:
    """Returns ``solution`` if every status is OK, else raises :class:`SolverError` that counts the failures by kind.

    Works on the host only (concrete values); inside ``jit`` look at ``solution.status``.
    """
    codes, counts = np.unique(np.asarray(solution.status), return_counts=True)
    failed = {int(c): int(k) for c, k in zip(codes, counts, strict=True) if c != Status.OK}
    if failed:
        total = counts.sum()
        words = "; ".join(f"{count} of {total} points: {STATUS_MEANINGS[code]}" for code, count in failed.items())
        raise SolverError(f"{words} (look at solution.status for where)")
    return solution
