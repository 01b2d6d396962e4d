"""The points at which a model is timed: scattered around its golden points, so that most of them are legal.

Points drawn from a whole domain, which may span ten decades, would time overflows and refusals.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hetjax.models.registry import Axis, Model
from hetjax.sweep.problem import Problem, bind
from hetjax.sweep.spec import Dim, GridAxis, Spec

SPREAD = 0.1  # real parameters lie within a factor of 1 +- this of a golden point's


def main_metric(model: Model, gradients: bool) -> str | None:
    """The first metric that a sweep computes by default, of those with derivatives if there are any; None where
    derivatives are asked for and there are none."""
    usual = [m for m in model.metrics if not m.expensive]
    smooth = [m for m in usual if m.differentiable]
    return smooth[0].name if smooth else None if gradients else usual[0].name


def problem_near_golden(model: Model, dtype: str, gradients: bool, count: int, all_metrics: bool = False,
                        seed: int = 0) -> Problem | None:
    """``count`` points around the model's golden points, with one compilation; None if there is nothing to derive.

    Of several array shapes among the golden points the most frequent one is taken. Real parameters are multiplied by
    random factors in 1 +- SPREAD and rounded to float32, so that both types get the same points; 0, infinity, whole
    numbers, and what would leave its domain, are kept. ``gradients``: those of the main metric in all real parameters.

    >>> from hetjax.models.registry import get_model
    >>> problem = problem_near_golden(get_model("threshold_queue"), "float64", True, 100)
    >>> problem.spec.shape, problem.spec.metrics, problem.gradients[0]
    ((100,), ('mean_number',), ('mean_number', 'arrival_rate'))
    """
    metric = main_metric(model, gradients)
    if metric is None:
        return None
    if not model.golden:
        raise ValueError(f"model {model.name!r} has no golden points to draw points around; time a specification that"
                         " uses it: hetjax bench SPEC")
    defaults = {axis.name: axis.default for axis in model.axes if axis.default is not None}
    every = [defaults | values for values, _ in model.golden]
    shapes = [tuple((axis.name, int(point[axis.name])) for axis in model.axes if axis.shape) for point in every]
    shape = Counter(shapes).most_common(1)[0][0]
    chosen = [point for point, found in zip(every, shapes, strict=True) if found == shape]
    random = np.random.default_rng(seed)
    axes = [axis for axis in model.axes if not axis.shape]
    columns = {axis.name: _scattered(axis, [point[axis.name] for point in chosen], count, random) for axis in axes}
    wrt = tuple(axis.name for axis in axes if not axis.integer and np.all(np.isfinite(columns[axis.name])))
    usual = tuple(m.name for m in model.metrics if not m.expensive)
    spec = Spec(model=model.name, metrics=usual if all_metrics else (metric,), const=dict(shape), dtype=dtype,
                axes=tuple(GridAxis(name, values) for name, values in columns.items()),
                dims=(Dim("near_golden", count, tuple(columns)),),
                grad_of=(metric,) if gradients else (), grad_wrt=wrt if gradients else ())
    return bind(spec, model)


def _scattered(axis: Axis, golden: list[float], count: int, random: np.random.Generator) -> np.ndarray:
    values = np.resize(np.asarray(golden, float), count)
    if axis.integer:
        return values
    moved = (values * random.uniform(1 - SPREAD, 1 + SPREAD, values.size)).astype(np.float32).astype(float)
    return np.where(axis.holds(moved), moved, values)


def shapes_text(static: Mapping[str, int]) -> str:
    """Array shapes for people: ``m=5 n=2``."""
    return " ".join(f"{name}={value}" for name, value in static.items())
