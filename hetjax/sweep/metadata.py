"""The labels of a sweep's arrays: units, long names, flags, in the CF style; the same on disk and in memory."""

from typing import Any

from hetjax.models.registry import Axis
from hetjax.result import STATUS_MEANINGS
from hetjax.sweep.problem import Problem, gradient_name
from hetjax.sweep.state import FLAGS


def root_attributes(problem: Problem) -> dict[str, Any]:
    """Of the whole sweep."""
    return {"Conventions": "CF-1.11", "title": problem.spec.title or f"{problem.model.title} ({problem.spec.model})"}


def status_attributes() -> dict[str, Any]:
    """Of the ``status`` array."""
    return {"standard_name": "status_flag", "long_name": "what happened at each point",
            "flag_values": list(range(len(FLAGS))), "flag_meanings": " ".join(FLAGS),
            "comment": "; ".join(f"{FLAGS[code]}: {text}" for code, text in STATUS_MEANINGS.items())}


def axis_attributes(problem: Problem, name: str) -> dict[str, Any]:
    """Of a coordinate."""
    axis = _parameter(problem, name)
    return {"units": axis.unit, "long_name": axis.meaning or name} if axis else {"units": "1", "long_name": name}


def result_attributes(problem: Problem, name: str) -> dict[str, Any]:
    """Of a metric, or of a derivative."""
    if name in problem.spec.metrics:
        metric = problem.model.metric(name)
        about = {"units": metric.unit, "long_name": metric.meaning or name, "ancillary_variables": "status"}
    else:
        of, wrt = next(pair for pair in problem.gradients if gradient_name(*pair) == name)
        metric, axis = problem.model.metric(of), _parameter(problem, wrt)
        unit = metric.unit if axis is None or axis.unit == "1" else f"({metric.unit}) / ({axis.unit})"
        about = {"units": unit, "long_name": f"derivative of {of} with respect to {wrt}",
                 "ancillary_variables": "status", "derivative_of": of, "with_respect_to": wrt}
    return about | ({"undefined_where": metric.undefined_where} if metric.undefined_where else {})


def _parameter(problem: Problem, name: str) -> Axis | None:
    return next((axis for axis in problem.model.axes if axis.name == name), None)
