"""Elasticities: by how many percent each metric of a model changes when a parameter grows by one percent.

    e = (x / y) dy/dx = d ln y / d ln x,

exact, from the model's own derivatives. It has no unit, so that parameters and metrics can be compared in one table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.config import common_dtype
from hetjax.models.registry import Axis, Metric, Model, evaluate, get_model, real_array
from hetjax.result import STATUS_MEANINGS, Status


@dataclass(frozen=True, eq=False)
class Elasticities:
    """A table of elasticities at one point, or at many.

    Attributes:
      model: its name.
      metrics, axes: names, in the order of the table.
      values: (..., metrics, axes). NaN where it is undefined: the metric is 0 or undefined itself, the parameter 0 or
        infinite, or the point has a status other than OK (or a gradient that is not finite).
      at: (..., metrics) the metrics themselves.
      status: (...) codes of :class:`hetjax.result.Status`.
    """

    model: str
    metrics: tuple[str, ...]
    axes: tuple[str, ...]
    values: np.ndarray
    at: np.ndarray
    status: np.ndarray

    def text(self) -> str:
        """The table of one point as text; a dot where the elasticity is undefined. ValueError for many points."""
        if self.values.ndim != 2:
            raise ValueError(f"values has shape {self.values.shape}; a table in text is of one point, give scalars")
        if (code := int(self.status)) != Status.OK:
            return f"{self.model}: {STATUS_MEANINGS[code]}"
        width = max(map(len, self.metrics))
        columns = [max(len(axis), 8) for axis in self.axes]
        lines = [" ".join(["metric".ljust(width), "value".rjust(12),
                           *(axis.rjust(c) for axis, c in zip(self.axes, columns, strict=True))])]
        for name, value, row in zip(self.metrics, self.at, self.values, strict=True):
            cells = ["·" if math.isnan(e) else f"{e:+.3g}" for e in row.tolist()]
            lines.append(" ".join([name.ljust(width), f"{value:12.6g}",
                                   *(cell.rjust(c) for cell, c in zip(cells, columns, strict=True))]))
        return "\n".join(lines)


def elasticities(model: str | Model, metrics: Sequence[str] | None = None, axes: Sequence[str] | None = None,
                 **arrays: Any) -> Elasticities:
    """d ln metric / d ln parameter of any registered model, at numpy-like arrays of points that broadcast.

    ``metrics``: differentiable ones of the model, by default all of them that are not expensive. ``axes``: parameters
    that are real numbers, by default all. ``arrays``: the point, as for :func:`hetjax.evaluate`; float32 arrays stay
    float32. ValueError for a metric without derivatives and for a parameter that is a whole number by its nature.
    Forward mode; costs one evaluation with as many tangents as axes. A kink, like that of a mean over whole numbers of
    places, gives one of its sides.

    >>> import hetjax
    >>> table = hetjax.elasticities("overflow", ["p_loss"], ["lambda1", "mu2"], lambda1=1.0, lambda2=0.5, mu1=1, mu2=1)
    >>> print(table.text())
    metric        value  lambda1      mu2
    p_loss     0.310345   +0.644   -0.322
    """
    found = get_model(model)
    chosen_metrics = _chosen_metrics(found, metrics)
    chosen_axes = _chosen_axes(found, axes)
    point = {axis.name: axis.default for axis in found.axes if axis.default is not None} | arrays
    given = {name: real_array(name, point.pop(name)) for name in chosen_axes if name in point}
    dtype = common_dtype(arrays.values())
    if len(given) < len(chosen_axes):  # the same words as an evaluation without it has
        evaluate(found, metrics=chosen_metrics, **point, **given)
    real = {name: jnp.asarray(value).astype(dtype) for name, value in given.items()}

    def values(real: dict[str, jax.Array]) -> Any:
        out = evaluate(found, metrics=chosen_metrics, **point, **real)
        return jnp.stack([out[name] for name in chosen_metrics], axis=-1), out["status"]

    def along(direction: jax.Array) -> jax.Array:
        step = {name: jnp.full_like(x, direction[i]) for i, (name, x) in enumerate(real.items())}
        return jax.jvp(lambda x: values(x)[0], (real,), (step,))[1]

    at, status = values(real)
    slopes = np.asarray(jax.vmap(along, out_axes=-1)(jnp.eye(len(real), dtype=dtype)))
    at, status = np.asarray(at), np.asarray(status)
    x = np.stack([np.broadcast_to(np.asarray(value), status.shape) for value in real.values()], axis=-1)
    with np.errstate(all="ignore"):
        table = slopes * x[..., None, :] / at[..., :, None]
    defined = np.isfinite(table) & (x != 0)[..., None, :] & np.isfinite(x)[..., None, :]
    return Elasticities(found.name, chosen_metrics, tuple(real), np.where(defined, table, np.nan), at, status)


def _chosen_metrics(model: Model, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return tuple(metric.name for metric in model.metrics if metric.differentiable and not metric.expensive)
    if isinstance(names, str) or not names:
        raise ValueError(f"metrics = {names!r} is no list of names; write metrics=[{model.metrics[0].name!r}]")
    for metric in map(model.metric, names):
        _refuse_steps(metric)
    return tuple(names)


def _refuse_steps(metric: Metric) -> None:
    if not metric.differentiable:
        raise ValueError(f"metric {metric.name!r} has no derivatives ({metric.meaning}); leave it out")


def _chosen_axes(model: Model, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return tuple(axis.name for axis in model.axes if _real(axis))
    if isinstance(names, str) or not names:
        raise ValueError(f"axes = {names!r} is no list of names; write axes=[{model.axes[0].name!r}]")
    for axis in map(model.axis, names):
        if not _real(axis):
            raise ValueError(f"axis {axis.name!r} holds whole numbers only ({axis.meaning}): it has no elasticity;"
                             " leave it out and compare points")
    return tuple(names)


def _real(axis: Axis) -> bool:
    return not (axis.integer or axis.shape)
