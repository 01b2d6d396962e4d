"""Spot checks: random points of finished blocks, computed again by the model's second route while the sweep goes on.

The second route runs on the host's CPU in a thread of its own. Rounding is no mismatch: where two values differ, the
second route is asked at slightly moved parameters too, and what they change is allowed.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from hetjax.result import Status
from hetjax.sweep.golden import SMALLEST
from hetjax.sweep.pipeline import describe
from hetjax.sweep.problem import Problem
from hetjax.sweep.state import Block, block_region

POINTS = 64  # of a run, unless the specification says
FREE_SECONDS, SHARE = 2.0, 0.05  # without a number in the specification: this long, and this part of the run's time
TOLERANCE = {"float64": 1e-8, "float32": 1e-3}  # relative; the routes agree to 1e-11 and 1e-4 where nothing cancels
MOVE, AMPLIFICATION = 1e3, 10.0  # parameters moved by so many eps; rounding errors below so many times the effect
KEPT = 20  # mismatches recorded in full

Point = dict[str, float]


@dataclass
class Mismatch:
    """A value that the second route contradicts."""

    block: Block
    index: tuple[int, ...]
    values: Point
    metric: str
    got: float
    expected: float

    def __str__(self) -> str:
        point = ", ".join(f"{name} = {value!r}" for name, value in self.values.items())
        return f"at {point}, {self.metric} = {self.got!r} but the second route gives {self.expected!r}"


@dataclass
class Findings:
    """What was compared. ``unreachable``: points that the second route cannot compute; ``errors``: where it raised."""

    planned: int
    seed: int
    points: int = 0
    values: int = 0
    unreachable: int = 0
    flagged: int = 0
    errors: list[str] = field(default_factory=list)
    worst: float = 0.0
    seconds: float = 0.0
    mismatches: list[Mismatch] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """As JSON values."""
        return {"planned": self.planned, "seed": self.seed, "points": self.points, "values": self.values,
                "flagged": self.flagged, "unreachable": self.unreachable, "errors": self.errors[:KEPT],
                "worst_relative_difference": self.worst, "seconds": round(self.seconds, 3),
                "mismatches": [vars(m) | {"block": list(m.block), "index": list(m.index)}
                               for m in self.mismatches[:KEPT]], "mismatch_count": len(self.mismatches)}


class SpotCheck:
    """Draws points of ``blocks`` (always those in ``suspects``: grid indices) and compares them as blocks finish."""

    def __init__(self, problem: Problem, block_shape: Sequence[int], blocks: Sequence[Block], seed: int,
                 suspects: Sequence[tuple[int, ...]] = ()) -> None:
        self.problem, self.block_shape = problem, tuple(block_shape)
        asked = problem.spec.policy.check
        self.limited = asked is None
        count = POINTS if asked is None else asked
        self._wanted: dict[Block, list[tuple[int, ...]]] = {}
        if problem.model.second_route is not None and count and blocks:
            random = np.random.default_rng(seed)
            todo = set(blocks)
            drawn = [self._draw(random, blocks[int(random.integers(len(blocks)))]) for _ in range(count)]
            for index in dict.fromkeys([*suspects, *drawn]):
                block = tuple(i // b for i, b in zip(index, self.block_shape, strict=True))
                if block in todo:
                    self._wanted.setdefault(block, []).append(index)
        self.findings = Findings(sum(map(len, self._wanted.values())), seed)
        self.mismatch = threading.Event()
        self._started = time.monotonic()
        self._thread = ThreadPoolExecutor(1, "hetjax-check")
        self._futures: list[Future[None]] = []

    def _draw(self, random: np.random.Generator, block: Block) -> tuple[int, ...]:
        region = block_region(block, self.problem.spec.shape, self.block_shape)
        return tuple(int(random.integers(part.start, part.stop)) for part in region)

    def wants(self, block: Block) -> bool:
        """Whether a block has points to look at."""
        return block in self._wanted

    def look(self, block: Block, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes the sampled points out of a finished block and leaves the rest to the thread."""
        for index in self._wanted.pop(block, []):
            place = tuple(i - c * b for i, c, b in zip(index, block, self.block_shape, strict=True))
            if arrays["status"][place] not in (Status.OK, Status.GRAD_NONFINITE):
                self.findings.flagged += 1
                continue
            got = {name: float(arrays[name][place]) for name in self.problem.spec.metrics}
            self._futures.append(self._thread.submit(self._compare, block, index, got))

    def finish(self, wait: bool = True) -> dict[str, Any]:
        """Ends the thread (without ``wait``: what has not begun is left) and returns the record of the run."""
        if self.problem.model.second_route is None:
            return {"planned": 0, "points": 0, "note": "the model has no second route"}
        self._thread.shutdown(wait=True, cancel_futures=not wait)
        for future in self._futures:
            if not future.cancelled():
                future.result()
        return self.findings.record()

    def _compare(self, block: Block, index: tuple[int, ...], got: Mapping[str, float]) -> None:
        begin, found = time.monotonic(), self.findings
        if self.limited and found.seconds > FREE_SECONDS + SHARE * (begin - self._started):
            return
        values = point_values(self.problem, index)
        try:
            expected = self._second_route(values)
            compared = [name for name in expected if math.isfinite(expected[name]) and math.isfinite(got[name])]
            found.points += bool(compared)
            found.unreachable += not compared
            for name in compared:
                found.values += 1
                if self._differ(values, name, got[name], expected[name]):
                    found.mismatches.append(Mismatch(block, index, values, name, got[name], expected[name]))
                    self.mismatch.set()
        except Exception as error:  # whatever a model's second route may raise: recorded, and no reason to stop
            found.errors.append(describe(error))
        finally:
            found.seconds += time.monotonic() - begin

    def _second_route(self, values: Point) -> dict[str, float]:
        route = self.problem.model.second_route
        assert route is not None  # nothing is sampled without one
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return route(values, self.problem.spec.metrics)

    def _differ(self, values: Point, metric: str, got: float, expected: float) -> bool:
        dtype = self.problem.spec.dtype
        size, error = max(abs(got), abs(expected)), abs(got - expected)
        if size <= SMALLEST[dtype]:
            return False
        if error <= TOLERANCE[dtype] * size:
            self.findings.worst = max(self.findings.worst, error / size)
            return False
        return error > AMPLIFICATION * self._effect_of_rounding(values, metric, expected)

    def _effect_of_rounding(self, values: Point, metric: str, expected: float) -> float:
        """How much the second route's result changes when each real parameter is moved a little."""
        move = MOVE * float(np.finfo(self.problem.spec.dtype).eps)
        effect = 0.0
        for axis in self.problem.model.axes:
            moved = values | {axis.name: values[axis.name] * (1 - move)}
            if axis.shape or axis.integer or not axis.contains(moved[axis.name]):
                continue
            changed = self._second_route(moved).get(metric, math.nan)
            if math.isfinite(changed):
                effect += abs(changed - expected)
        return effect


def point_values(problem: Problem, index: Sequence[int]) -> Point:
    """The parameters of the model at grid ``index``, rounded as the kernel rounds them; shape parameters are ints."""
    spec = problem.spec
    real = np.dtype(spec.dtype).type
    values: dict[str, Any] = {name: real(value) for name, value in problem.const.items()}
    for d, dim in enumerate(spec.dims):
        values |= {name: real(spec.axis(name).values[index[d]]) for name in dim.axes}
    for name, expression in spec.derived.items():
        values[name] = real(expression(np, values, real))
    at = tuple(index[d] for d in problem.shape_dims)
    shapes = {name: int(v[at]) for name, v in problem.signatures.items()}
    return {axis.name: shapes[axis.name] if axis.shape else float(values[axis.name]) for axis in problem.model.axes}
