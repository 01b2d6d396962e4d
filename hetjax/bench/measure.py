"""One kernel of the sweep engine, compiled and timed."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hetjax.result import Status
from hetjax.sweep.golden import SMALLEST
from hetjax.sweep.kernel import Kernel
from hetjax.sweep.problem import Problem

CALL_SECONDS = 0.1  # of a timed call: the cost of starting it is nothing beside that
REPEATS = (2, 7)  # calls at least, at most, while TIMED_SECONDS last
TIMED_SECONDS = 0.6
STREAM_BYTES = 1 << 26


@dataclass(frozen=True)
class Measured:
    """``points_per_second`` of the fastest call (on all devices), seconds to compile (and trace), the share of points
    with status ok, and the arrays of the points that the calls computed."""

    points_per_second: float
    compile_seconds: float
    ok: float
    arrays: Mapping[str, np.ndarray]


def measure(kernel: Kernel, block: Sequence[int]) -> Measured:
    """Compiles ``kernel`` and times it on ``block``: as many of its batches as take about CALL_SECONDS."""
    first, _ = _timed(partial(kernel.dispatch, block, 1))
    once, results = _timed(partial(kernel.dispatch, block, 1))
    rounds, spent, calls, rate = 1, once, 1, 1 / once
    while calls < REPEATS[0] or (calls < REPEATS[1] and spent < TIMED_SECONDS):
        if CALL_SECONDS * rate > 2 * rounds and rounds < kernel.rounds:  # too short a call to tell
            rounds, calls = min(kernel.rounds, round(CALL_SECONDS * rate)), 0
        elapsed, results = _timed(partial(kernel.dispatch, block, rounds))
        rate = max(rate, rounds / elapsed)
        spent, calls = spent + elapsed, calls + 1
    arrays = kernel.fetch(block, results)
    status = arrays["status"][arrays["status"] != Status.PENDING]
    return Measured(rate * kernel.inner_batch * len(kernel.devices), max(0.0, first - once),
                    float(np.mean(status == Status.OK)), arrays)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = jax.block_until_ready(call())
    return time.perf_counter() - start, answer


def difference(single: Mapping[str, np.ndarray], double: Mapping[str, np.ndarray]) -> float:
    """The largest relative difference between two evaluations of the same points, float32 and float64, where both are
    ok and the value is above what float32 keeps all digits of; NaN where there is no such value."""
    both = (single["status"] == Status.OK) & (double["status"] == Status.OK)
    worst = math.nan
    for name in double:
        if name == "status":
            continue
        exact, rough = double[name][both].astype(float), single[name][both].astype(float)
        kept = np.isfinite(exact) & (np.abs(exact) > SMALLEST["float32"])
        if kept.any():
            worst = float(np.fmax(worst, np.max(np.abs(rough[kept] - exact[kept]) / np.abs(exact[kept]))))
    return worst


def bytes_per_point(problem: Problem) -> int:
    """What must at least go through memory: every result and the status written (parameters may stay in a cache)."""
    return problem.itemsize * len(problem.arrays) + 1


def write_speed(devices: Sequence[jax.Device]) -> float:
    """Bytes a second that all devices together write to fresh arrays: what results cannot exceed."""
    spread = NamedSharding(Mesh(np.array(devices), ("points",)), PartitionSpec("points"))
    count = STREAM_BYTES // 4 * len(devices)
    fill = jax.jit(lambda value: jax.numpy.full(count, value, np.float32), out_shardings=spread)
    _timed(lambda: fill(np.float32(0)))
    return 4 * count / min(_timed(partial(fill, np.float32(i)))[0] for i in range(1, 6))


