"""What a specification would take on this machine: its own kernels at blocks spread over its grid."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hetjax.bench.machine import machine
from hetjax.bench.measure import Measured, bytes_per_point, difference, measure, write_speed
from hetjax.bench.models import DTYPES
from hetjax.bench.points import shapes_text
from hetjax.bench.report import Report, Row
from hetjax.result import Status
from hetjax.sweep.kernel import Kernel, choose_devices, choose_inner_batch
from hetjax.sweep.plan import ASSUMED_WRITE, block_shape_for, human_bytes, human_seconds
from hetjax.sweep.problem import Problem, bind
from hetjax.sweep.state import block_grid

BLOCKS = 8  # looked at, of all
SIGNATURES = 3  # compiled for, of all array shapes
ROUNDS = 64  # batches of a block on each device, about


def bench_spec(problem: Problem, *, gradients: bool = True, dtypes: tuple[str, ...] = (), devices: int | None = None,
               say: Callable[[str], None] = lambda text: None) -> Report:
    """Times ``problem`` in its own type and the other one, with and without its gradients.

    The report's estimate is of the sweep as specified: computing, compiling each shape, writing. 64-bit floats must be
    on.
    """
    chosen = choose_devices(devices)
    report, speed = Report(machine()), write_speed(chosen)
    own = problem.spec.dtype
    types = dtypes or (own, *(d for d in DTYPES if d != own))
    values: dict[tuple[str, str], list[Measured]] = {}
    for what in ("value", "gradient") if gradients and problem.gradients else ("value",):
        wanted = problem.spec if what == "gradient" else replace(problem.spec, grad_of=(), grad_wrt=())
        cases = {dtype: bind(replace(wanted, dtype=dtype), problem.model) for dtype in types}
        batches = {dtype: choose_inner_batch(case, None, chosen[0].platform) for dtype, case in cases.items()}
        shape = block_shape_for(problem, ROUNDS * min(batches.values()) * len(chosen))  # the same points in all types
        for dtype, case in cases.items():
            say(f"{problem.spec.model}, {what}, {dtype}")
            spec, batch = case.spec, batches[dtype]
            kernel = Kernel(case, shape, batch, chosen)
            found = [measure(kernel, block) for block in _spread(case, shape)]
            values[what, dtype] = found
            exact = values.get((what, "float64"))
            pairs = zip(found, exact, strict=True) if exact and dtype == "float32" else ()
            off = [difference(single.arrays, double.arrays) for single, double in pairs]
            rate = len(found) / sum(1 / m.points_per_second for m in found)
            report.rows.append(Row(
                model=spec.model, shapes=shapes_text(case.bounds) or _signatures(case), what=what, dtype=dtype,
                metrics=spec.metrics, parameters=spec.grad_wrt, inner_batch=batch, points_per_second=rate,
                compile_seconds=max(m.compile_seconds for m in found), ok=_ok(found),
                float32_difference=float(np.fmax.reduce(off)) if off else None,
                fraction_of_write_speed=bytes_per_point(case) * rate / speed))
    what = "gradient" if problem.gradients and gradients else "value"
    own_row = next((row for row in report.rows if row.dtype == own and row.what == what), report.rows[-1])
    report.estimate = _estimate(problem, own_row)
    return report


def _spread(problem: Problem, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Blocks spread evenly over the grid, of the first few signatures that they meet."""
    grid = block_grid(problem.spec.shape, shape)
    total = int(np.prod(grid))
    numbers = np.unique(np.linspace(0, total - 1, min(BLOCKS, total)).round().astype(int))
    blocks = [tuple(int(i) for i in np.unravel_index(n, grid)) for n in numbers]
    met: dict[object, None] = {}
    kept = []
    for block in blocks:
        signature = problem.signature(tuple(i * b for i, b in zip(block, shape, strict=True)))
        if signature in met or len(met) < SIGNATURES:
            met[signature] = None
            kept.append(block)
    return kept


def _ok(found: list[Measured]) -> float:
    """The share of ok points among those that a where condition does not leave out."""
    codes = np.concatenate([m.arrays["status"].ravel() for m in found])
    codes = codes[(codes != Status.PENDING) & (codes != Status.MASKED)]
    return float(np.mean(codes == Status.OK)) if codes.size else 0.0


def _signatures(problem: Problem) -> str:
    every = problem.distinct_signatures()
    return shapes_text(dict(every[0])) if len(every) == 1 else f"{len(every)} shapes"


def _estimate(problem: Problem, row: Row) -> list[str]:
    points, compilations = problem.spec.points, len(problem.distinct_signatures())
    computing = points / row.points_per_second
    size = points * bytes_per_point(problem)
    writing = size / ASSUMED_WRITE
    compiling = compilations * row.compile_seconds
    kernels = f"{compilations} compilation{'s' if compilations > 1 else ''}"
    return [f"the specification: {points:,} points, {human_bytes(size)}; about"
            f" {human_seconds(max(computing, writing) + compiling)} ({row.what}, {row.dtype}): computing"
            f" {human_seconds(computing)}, {kernels} {human_seconds(compiling)}, writing meanwhile"
            f" {human_seconds(writing)} (at {ASSUMED_WRITE / 1e6:.0f} MB/s)"]
