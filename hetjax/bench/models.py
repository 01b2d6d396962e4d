"""Every model, value and gradient, in both types, within a time."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetjax.bench.machine import machine
from hetjax.bench.measure import Measured, bytes_per_point, difference, measure, write_speed
from hetjax.bench.points import problem_near_golden, shapes_text
from hetjax.bench.report import Report, Row
from hetjax.models.registry import Model, get_model, model_names
from hetjax.sweep.errors import SpecError
from hetjax.sweep.kernel import Kernel, check_size, choose_devices, default_inner_batch
from hetjax.sweep.pipeline import describe
from hetjax.sweep.problem import Problem

POINTS = {"cpu": 1 << 17}  # at most, of a timed call
POINTS_ELSEWHERE = 1 << 20
GRADIENT_COMPILES = 2.5  # times as long as a value, about: what is expected before the first one
SEARCH_SECONDS = 15.0  # expected of a model without derivatives, which searches: its loops within loops compile long
DTYPES = ("float64", "float32")
Say = Callable[[str], None]


@dataclass(frozen=True)
class _Case:
    model: Model
    gradients: bool
    dtype: str

    @property
    def what(self) -> str:
        return "gradient" if self.gradients else "value"

    def __str__(self) -> str:
        return f"{self.model.name}, {self.what}, {self.dtype}"


def bench_models(models: Sequence[str | Model] = (), *, dtypes: Sequence[str] = DTYPES, gradients: bool = True,
                 points: int | None = None, all_metrics: bool = False, seconds: float = 120.0,
                 devices: int | None = None, say: Say = lambda text: None) -> Report:
    """Times ``models`` (all built-in ones by default) near their golden points.

    Whatever is expected to take least comes next (values before gradients, searches last), until ``seconds`` are over;
    what would not fit is named in the report. Nothing is interrupted: the last compilation may end later. ``points``:
    of a timed call at most. ``all_metrics``: all that a sweep computes by default, not the main one alone. 64-bit
    floats must be on. Raises ValueError for an unknown model and for one without golden points.
    """
    begin = time.perf_counter()
    chosen = choose_devices(devices)
    platform = chosen[0].platform
    count = POINTS.get(platform, POINTS_ELSEWHERE) if points is None else points
    check_size("points", count)
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise SpecError(f"dtype = {dtype!r} is unknown; choose from {', '.join(DTYPES)}")
    found = [get_model(name) for name in dict.fromkeys(models or model_names())]
    report = Report(machine())
    speed = write_speed(chosen)
    spent: dict[_Case, float] = {}
    measured: dict[_Case, tuple[Problem, Kernel, Measured]] = {}

    def run(case: _Case) -> None:
        say(str(case))
        start = time.perf_counter()
        try:
            problem = problem_near_golden(case.model, case.dtype, case.gradients, count, all_metrics)
            assert problem is not None  # such cases are not made
            kernel = Kernel(problem, problem.spec.shape, default_inner_batch(problem, platform), chosen)
            measured[case] = problem, kernel, measure(kernel, (0,))
        except Exception as error:  # whatever a model or a compiler may raise: the others are still of interest
            report.failed.append(f"{case}: {describe(error)}")
        spent[case] = time.perf_counter() - start

    smooth = {model.name: problem_near_golden(model, dtypes[0], True, 1) is not None for model in found}
    todo = [_Case(model, gradient, dtype) for gradient in (False, True) for dtype in dtypes for model in found
            if not gradient or (gradients and smooth[model.name])]

    def expected(case: _Case) -> float:
        like = [t for c, t in spent.items() if c.model is case.model and c.gradients == case.gradients]
        value = [t for c, t in spent.items() if c.model is case.model]
        if like or not value:
            return max(like, default=0.0 if smooth[case.model.name] else SEARCH_SECONDS)
        return GRADIENT_COMPILES * max(value)

    out: dict[str, list[str]] = {}
    while todo:
        case = min(todo, key=expected)
        todo.remove(case)
        if time.perf_counter() - begin + expected(case) <= seconds:
            run(case)
        else:
            about = f", about {expected(case):.0f} s" if expected(case) else ""
            out.setdefault(case.model.name, []).append(f"{case.what} {case.dtype}{about}")
    report.left_out = [f"{name} ({'; '.join(cases)})" for name, cases in out.items()]
    order = {name: i for i, name in enumerate(model.name for model in found)}
    for case in sorted(measured, key=lambda c: (order[c.model.name], c.gradients, DTYPES.index(c.dtype))):
        exact = measured.get(_Case(case.model, case.gradients, "float64"))
        report.rows.append(_row(case, *measured[case], exact[2].arrays if exact else None, speed))
    return report


def _row(case: _Case, problem: Problem, kernel: Kernel, result: Measured, exact: Mapping[str, np.ndarray] | None,
         speed: float) -> Row:
    compared = exact is not None and case.dtype == "float32"
    return Row(model=case.model.name, shapes=shapes_text(dict(problem.signature((0,)))),
               what=case.what, dtype=case.dtype, metrics=problem.spec.metrics,
               parameters=problem.spec.grad_wrt, inner_batch=kernel.inner_batch,
               points_per_second=result.points_per_second, compile_seconds=result.compile_seconds, ok=result.ok,
               float32_difference=difference(result.arrays, exact) if compared and exact is not None else None,
               fraction_of_write_speed=bytes_per_point(problem) * result.points_per_second / speed)
