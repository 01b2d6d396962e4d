"""How a sweep will be cut into blocks, and what it will cost; nothing is written."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hetjax.sweep.errors import SpecError
from hetjax.sweep.kernel import Kernel, check_size, choose_devices, choose_inner_batch, require_grid, require_precision
from hetjax.sweep.problem import Problem
from hetjax.sweep.state import block_grid

CHUNK_BYTES = 64 << 20  # of one array: larger chunks write no faster
BLOCK_BYTES = 192 << 20  # of all arrays of a block: about four blocks are in memory at a time
BLOCK_SECONDS = 1.0  # of computing: a commit's fixed cost is a few per cent of it
MAX_BLOCKS = 1_000_000
NO_CALIBRATION = 1 << 14  # points: a smaller sweep is one block for each signature
CALIBRATION_SECONDS = 120.0  # of computing: in shorter sweeps the default inner batch is good enough
CALIBRATION_FACTORS = (0.25, 0.5, 2.0, 4.0)
CLEARLY = 1.05
SAMPLE_POINTS = 1 << 15  # of a timed call, for models that do not ask for small batches: starting it takes 0.1 ms
ASSUMED_WRITE = 500e6  # bytes/s, compressed and flushed
INNER_BATCHES = (64, 128, 256, 1024, 16384, 131072)


def block_shape_for(problem: Problem, target: int) -> tuple[int, ...]:
    """The shape of blocks of at most ``target`` points: whole trailing dimensions, then equal parts of the next one.

    Dimensions with a compilation for each value are one point wide.
    """
    shape = problem.spec.shape
    block = [1] * len(shape)
    room = max(1, target)
    for d in reversed(range(len(shape))):
        if d in problem.static_dims:
            continue
        if shape[d] <= room:
            block[d] = shape[d]
            room //= shape[d]
            continue
        parts = -(-shape[d] // room)
        block[d] = -(-shape[d] // parts)
        break
    return tuple(block)


def target_points(problem: Problem, points_per_second: float | None) -> int:
    """Block size: a second of computing, but no chunk above CHUNK_BYTES and no block above BLOCK_BYTES."""
    each = problem.itemsize * len(problem.arrays) + 1
    target = min(CHUNK_BYTES // problem.itemsize, BLOCK_BYTES // each)
    if points_per_second is not None:
        fast = 2 ** math.ceil(math.log2(max(1.0, points_per_second * BLOCK_SECONDS)))  # noise should not change it
        target = min(target, fast)
    return target


@dataclass(frozen=True)
class Layout:
    """The block shape, and the speed that it was chosen for (None if given or not needed)."""

    block_shape: tuple[int, ...]
    points_per_second: float | None = None


def lay_out(problem: Problem, inner_batch: int, devices: Sequence[jax.Device],
            block_points: int | None = None) -> Layout:
    """Chooses the block shape: as ``block_points`` says, else from the measured speed of the kernel."""
    wanted = block_points if block_points is not None else problem.spec.block_points
    if wanted is not None:
        check_size("block_points", wanted)
    if wanted is None and problem.spec.points > NO_CALIBRATION:
        speed = measure_speed(problem, inner_batch, devices)
        layout = Layout(block_shape_for(problem, target_points(problem, speed)), speed)
    else:
        layout = Layout(block_shape_for(problem, wanted or target_points(problem, None)))
    count = math.prod(block_grid(problem.spec.shape, layout.block_shape))
    if count > MAX_BLOCKS:
        raise SpecError(f"the sweep would have {count} blocks, more than {MAX_BLOCKS}; give a larger block_points,"
                        " fewer static values, or split the sweep")
    return layout


def measure_speed(problem: Problem, inner_batch: int, devices: Sequence[jax.Device]) -> float:
    """Points per second of the kernel in the middle of the grid (best of three)."""
    least = SAMPLE_POINTS if problem.model.inner_batch is None else 1
    sample = block_shape_for(problem, max(least, 16 * inner_batch * len(devices)))
    kernel = Kernel(problem, sample, inner_batch, devices)
    block = tuple(n // 2 for n in block_grid(problem.spec.shape, sample))
    jax.block_until_ready(kernel.dispatch(block))
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(kernel.dispatch(block))
        best = min(best, time.perf_counter() - start)
    return kernel.rounds * inner_batch * len(devices) / best


def calibrated_inner_batch(problem: Problem, asked: int | None, devices: Sequence[jax.Device],
                           ) -> tuple[int, dict[int, float]]:
    """The inner batch of a new store, and the speeds (points/s) that it was chosen from.

    As asked for or specified, else the default; in a sweep so long that compiling a few more kernels does not matter,
    the fastest of some around the default. A larger or smaller one must be clearly faster: noise should not decide.
    """
    batch = choose_inner_batch(problem, asked, devices[0].platform)
    if asked is not None or problem.spec.inner_batch is not None or problem.spec.points <= NO_CALIBRATION:
        return batch, {}
    speeds = {batch: measure_speed(problem, batch, devices)}
    if problem.spec.points / speeds[batch] < CALIBRATION_SECONDS:
        return batch, speeds
    for factor in CALIBRATION_FACTORS:
        other = round(batch * factor)
        if other * len(devices) <= problem.spec.points:
            speeds[other] = measure_speed(problem, other, devices)
    best = max(speeds, key=lambda b: speeds[b])
    return best if speeds[best] > CLEARLY * speeds[batch] else batch, speeds


@dataclass(frozen=True)
class Plan:
    """What a run would do. ``seconds`` is of computing, measured; ``write_seconds`` assumes ASSUMED_WRITE."""

    points: int
    dims: dict[str, int]
    block_shape: tuple[int, ...]
    blocks: int
    arrays: tuple[str, ...]
    bytes: int
    compilations: int
    shapes: str
    inner_batch: int
    n_devices: int
    platform: str
    points_per_second: float | None
    seconds: float | None
    write_seconds: float
    wanted_fraction: float
    spec_hash: str
    speeds: dict[int, float]

    def __str__(self) -> str:
        size = " x ".join(f"{name} {n}" for name, n in self.dims.items())
        lines = [
            f"points        {self.points:,} ({size})",
            f"blocks        {self.blocks:,} of {' x '.join(map(str, self.block_shape))}"
            f" = {math.prod(self.block_shape):,} points",
            f"arrays        {', '.join((*self.arrays, 'status'))}",
            f"size          {human_bytes(self.bytes)} before compression",
            f"compilations  {self.compilations} ({self.shapes} shapes)",
            f"devices       {self.n_devices} ({self.platform}), inner batch {self.inner_batch}"]
        if self.seconds is not None:
            lines.append(f"time          about {human_seconds(max(self.seconds, self.write_seconds))}: computing"
                         f" {human_seconds(self.seconds)} (measured: {self.points_per_second:,.0f} points/s), writing"
                         f" {human_seconds(self.write_seconds)} (at {ASSUMED_WRITE / 1e6:.0f} MB/s)")
        if self.wanted_fraction < 1:
            lines.append(f"where         keeps about {self.wanted_fraction:.0%} of the points")
        if self.wanted_fraction < 0.25:
            lines.append("advice        most of the box is left out: a [design] table, smaller axes, or several sweeps"
                         " waste less")
        if self.speeds:
            best = max(self.speeds, key=lambda b: self.speeds[b])
            lines.append("inner batch   " + ", ".join(f"{b}: {v:,.0f}/s" for b, v in self.speeds.items()))
            if best != self.inner_batch:
                lines.append(f"to paste      inner_batch = {best}    # under [sweep]; other last bits of the results")
        lines.append(f"spec hash     {self.spec_hash}")
        return "\n".join(lines)


def make_plan(problem: Problem, devices: int | None = None, block_points: int | None = None,
              inner_batch: int | None = None, calibrate: bool = True) -> Plan:
    """Plans a run of ``problem``; ``calibrate`` compiles and times its kernel at several inner batches."""
    require_grid(problem)
    require_precision(problem.spec.dtype)
    chosen = choose_devices(devices)
    platform = chosen[0].platform
    batch = choose_inner_batch(problem, inner_batch, platform)
    layout = lay_out(problem, batch, chosen, block_points)
    speed, speeds = layout.points_per_second, {}
    if calibrate:
        speeds = {b: measure_speed(problem, b, chosen) for b in sorted({*INNER_BATCHES, batch})
                  if b == batch or b * len(chosen) <= problem.spec.points}
        speed = speeds[batch]
    points = problem.spec.points
    size = points * (problem.itemsize * len(problem.arrays) + 1)
    return Plan(
        points=points, dims={dim.name: dim.size for dim in problem.spec.dims}, block_shape=layout.block_shape,
        blocks=math.prod(block_grid(problem.spec.shape, layout.block_shape)), arrays=problem.arrays, bytes=size,
        compilations=len(problem.distinct_signatures()), shapes=problem.shapes, inner_batch=batch,
        n_devices=len(chosen), platform=platform, points_per_second=speed,
        seconds=points / speed if speed else None, write_seconds=size / ASSUMED_WRITE,
        wanted_fraction=wanted_fraction(problem), spec_hash=problem.spec_hash, speeds=speeds)


def wanted_fraction(problem: Problem, sample: int = 100_000) -> float:
    """The share of grid points that every where condition keeps, from a fixed random sample (all of a small grid)."""
    spec = problem.spec
    conditions = [axis.where for axis in spec.axes if axis.where]
    if not conditions:
        return 1.0
    if spec.points <= sample:
        index = np.unravel_index(np.arange(spec.points), spec.shape)
    else:
        random = np.random.default_rng(0)
        index = tuple(random.integers(0, size, sample) for size in spec.shape)
    values: dict[str, Any] = {name: np.float64(value) for name, value in problem.const.items()}
    values |= {name: spec.axis(name).values[i].astype(np.float64)
               for dim, i in zip(spec.dims, index, strict=True) for name in dim.axes}
    for name, expression in spec.derived.items():
        values[name] = expression(np, values)
    kept = np.ones(len(index[0]), bool)
    for condition in conditions:
        kept &= condition(np, values)
    return float(kept.mean())


def human_bytes(count: float) -> str:
    """1.5 GB and the like."""
    power = max(0, min(4, int(math.log10(max(count, 1))) // 3))
    return f"{count / 1000**power:.{1 if power else 0}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def human_seconds(seconds: float) -> str:
    """3.2 s, 5 min 10 s, 2 h 3 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
