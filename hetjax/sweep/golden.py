"""Golden points: before a run computes anything, its devices must give the model's known results.

The points go through the same kernel as the sweep (type, inner batch, devices), repeated until they fill a batch on
every device, so that every lane is looked at.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from hetjax.models.registry import Model
from hetjax.result import Status
from hetjax.sweep.errors import SweepError
from hetjax.sweep.kernel import Kernel
from hetjax.sweep.problem import Problem
from hetjax.sweep.spec import Dim, GridAxis, Spec

# float32: the rounding of the inputs is part of the difference, up to |d ln value / d ln input| eps of each
TOLERANCE = {"float64": 1e-11, "float32": 2e-3}
SMALLEST = {"float64": 1e-290, "float32": 1e-30}  # results below lose digits, or are flushed to zero


def check_golden(problem: Problem, inner_batch: int, devices: Sequence[jax.Device]) -> dict[str, Any]:
    """Evaluates the golden points of the problem's model and returns what was compared, for the record of the run.

    Metrics of the sweep are compared, or if it has none that is known, all known ones. SweepError at the first
    difference: model, point, metric, expected, got.
    """
    model, dtype = problem.model, problem.spec.dtype
    known = dict.fromkeys(name for _, results in model.golden for name in results)
    metrics = tuple(name for name in known if name in problem.spec.metrics) or tuple(known)
    if not metrics:
        return {"points": 0, "note": "the model has no golden points"}
    kernel = _kernel(model, metrics, dtype, problem.shapes, inner_batch, tuple(devices))
    found = kernel.fetch((0,), kernel.dispatch((0,)))
    tolerance, smallest, worst = TOLERANCE[dtype], SMALLEST[dtype], 0.0
    for i, (values, results) in enumerate(model.golden):
        status = found["status"][i::len(model.golden)]
        for name in metrics:
            if name not in results:
                continue
            expected = results[name]
            lanes = found[name][i::len(model.golden)].astype(float)
            errors = np.abs(lanes - expected)
            errors[np.isnan(errors) | (status != Status.OK)] = math.inf
            lane = int(np.argmax(errors))
            if abs(expected) <= smallest:
                wrong = errors[lane] > smallest
            else:
                wrong = errors[lane] > tolerance * abs(expected)
                worst = max(worst, errors[lane] / abs(expected))
            if wrong:
                raise SweepError(_refusal(model, values, name, expected, lanes[lane], status[lane], devices, dtype))
    return {"points": len(model.golden), "metrics": list(metrics), "tolerance": tolerance,
            "worst_relative_error": worst}


def _refusal(model: Model, values: Mapping[str, float], metric: str, expected: float, got: float, status: int,
             devices: Sequence[jax.Device], dtype: str) -> str:
    point = ", ".join(f"{name} = {value!r}" for name, value in values.items())
    code = "" if status == Status.OK else f" (status {Status(int(status)).name.lower()})"
    return (f"golden point of model {model.name!r} is wrong on {devices[0].device_kind} in {dtype}: at {point},"
            f" {metric} should be {expected!r} but is {float(got)!r}{code}; nothing was computed: this device, driver"
            " or JAX version cannot be trusted with this model")


@functools.lru_cache(maxsize=16)
def _kernel(model: Model, metrics: tuple[str, ...], dtype: str, shapes: str, inner_batch: int,
            devices: tuple[jax.Device, ...]) -> Kernel:
    """The kernel of the golden points, compiled once in a process."""
    count = inner_batch * len(devices)
    count += -count % len(model.golden)  # every point as often as any other
    columns = {axis.name: np.resize([values.get(axis.name, axis.default) for values, _ in model.golden], count)
               for axis in model.axes}
    axes = tuple(GridAxis(a.name, columns[a.name].astype(float)) for a in model.axes if not a.shape)
    signatures = {a.name: columns[a.name].astype(np.int64) for a in model.axes if a.shape}
    spec = Spec(model=model.name, metrics=metrics, axes=axes, dims=(Dim("golden", count, tuple(a.name for a in axes)),),
                dtype=dtype)
    one = all(np.all(v == v[0]) for v in signatures.values())
    problem = Problem(spec=spec, model=model, shapes="static" if one and shapes == "static" else "masked",
                      shape_dims=(0,) if signatures else (), signatures=signatures, const={})
    return Kernel(problem, (count,), inner_batch, devices)
