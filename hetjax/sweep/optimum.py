"""The optimum of a model as a model: what a sweep with a table [optimize] evaluates at every point.

Its parameters are those of the model that are not optimised, and the prices of the objective; its metrics the optimal
design, the objective, gains over other designs, certificates, and every metric of the model at the optimum. The sweep
engine differentiates them like any others: the objective by the envelope theorem, real variables (and with them the
other metrics) by the implicit function theorem, at whole variables held.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.models.registry import Axis, Metric, Model
from hetjax.optimize import Options, Space, differentiable, solve
from hetjax.result import OptimumStatus, Status, has_value
from hetjax.sweep.errors import SpecError, nearest, show
from hetjax.sweep.objective import ModelFunction, Objective, in_order, shape_bounds
from hetjax.sweep.optimize_table import OptimizeTable

Array = jax.Array
_AT_BOUND = "the optimum lies on that bound"
_CODES = ", ".join(f"{code.value} {code.name.lower()}" for code in OptimumStatus)


@dataclass(frozen=True, eq=False)
class OptimumModel(Model):
    """A model of optima; ``base`` is the one that is optimised."""

    base: Model | None = None


def table_objective(model: Model, table: OptimizeTable) -> Objective:
    """The objective that ``table`` describes of ``model``; SpecError for names that do not fit."""
    made = Objective(model, table.objective, table.constraints, in_order(model, table.derived, "[optimize] derived"))
    for name in table.over:
        if name not in made.parameters:
            raise SpecError(f"[optimize] over {name!r} is no parameter of model {model.name!r}, or is derived"
                            f"{nearest(name, made.parameters)}")
    return made


def optimum_model(model: Model, table: OptimizeTable) -> OptimumModel:
    """The model whose metrics describe the optimum of ``table`` for ``model`` (of a model of optima: its base)."""
    if isinstance(model, OptimumModel) and model.base is not None:
        model = model.base
    objective = table_objective(model, table)
    space = Space(tuple(objective.variable(name, table.bounds(name)) for name in table.over))
    designs = {name: _baseline(objective, table, name) for name in table.baselines}
    chosen = ", ".join(table.over)
    return OptimumModel(
        name=model.name, version=model.version, title=f"Optimal {chosen}: {model.title}",
        axes=tuple(_parameter(objective, name) for name in objective.parameters if name not in table.over),
        metrics=_metrics(objective, space, tuple(designs)), base=model,
        point=_Point(objective, space, Options(table.method, table.starts, table.steps,
                                               table.enumerate_up_to, batch=1), designs))


def _parameter(objective: Objective, name: str) -> Axis:
    found = objective.axis(name)
    if found is None:
        return Axis(name, -math.inf, math.inf, meaning="price in the objective")
    return found


def _baseline(objective: Objective, table: OptimizeTable, name: str) -> dict[str, float]:
    design = table.baselines[name]
    for variable, value in design.items():
        axis = objective.axis(variable)
        try:
            if axis is not None:
                axis.check(value)
        except ValueError as error:
            raise SpecError(f"[optimize] baselines {name}: {error}") from None
        if axis is not None and axis.shape and value > table.over[variable][1]:
            raise SpecError(f"[optimize] baselines {name}: {variable} = {show(value)} is above the bounds in over;"
                            " raise them")
    return dict(design)


def _metrics(objective: Objective, space: Space, baselines: tuple[str, ...]) -> tuple[Metric, ...]:
    model, text = objective.model, objective.value.text
    unit = model.metric(text).unit if text in objective.metrics else "1"

    def of_variable(name: str) -> str:
        axis = objective.axis(name)
        return axis.unit if axis else "1"

    found = [Metric(f"best_{v.name}", of_variable(v.name), f"optimal {v.name}",
                    differentiable=v.kind == "real") for v in space.variables]
    found.append(Metric("objective", unit, f"least objective: {text}"))
    for name in baselines:
        none = f"the design {name} is impossible"
        found += [Metric(f"objective_{name}", unit, f"objective of the design {name}", none),
                  Metric(f"gain_{name}", "1", f"saving over the design {name}, relative", none)]
    for c in objective.constraints:
        found += [Metric(f"slack_{c.name}", "1", f"what is left of {c.text}"),
                  Metric(f"multiplier_{c.name}", unit, f"what one unit more of {c.text} would save", expensive=True,
                         differentiable=False)]
    for v in space.wholes:
        found += [Metric(f"gap_{side}_{v.name}", unit, f"how much worse one {word} {v.name} is", _AT_BOUND,
                         expensive=True, differentiable=False) for side, word in (("below", "less"), ("above", "more"))]
    about = [("optimum_status", "code", f"OptimumStatus: {_CODES}"),
             ("certificate", "code", "Certificate: 0 none, 1 local, 2 neighbourhood, 3 enumerated"),
             ("local_minima", "1", "local minima seen"),
             ("tied", "1", "1 if another design is as good within rounding"),
             ("search_steps", "1", "evaluations of the search")]
    if space.reals:
        about.append(("gradient_norm", "1", "largest free slope over a variable's interval, relative to the objective"))
    found += [Metric(name, unit, meaning, expensive=name not in ("optimum_status", "certificate"), differentiable=False)
              for name, unit, meaning in about]
    taken = {metric.name for metric in found} | {v.name for v in space.variables}
    found += [Metric(m.name, m.unit, f"{m.meaning}, at the optimum", m.undefined_where, True, m.differentiable)
              for m in model.metrics if m.name not in taken]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Point:
    """The point function of a model of optima."""

    objective: Objective
    space: Space
    options: Options
    baselines: Mapping[str, Mapping[str, float]]

    def __call__(self, values: Mapping[str, Any], metrics: tuple[str, ...],
                 bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
        theta = {name: value for name, value in values.items() if not isinstance(value, int)}
        shapes = tuple(sorted((name, value) for name, value in values.items() if isinstance(value, int)))
        real = [value.dtype for value in theta.values() if jnp.issubdtype(value.dtype, jnp.floating)]
        dtype = real[0] if real else jnp.result_type(float)
        own = {m.name for m in self.objective.model.metrics}
        more = tuple(name for name in metrics if name in own)
        reach = (*shape_bounds(self.objective, self.space), *bounds.items())
        function = ModelFunction(self.objective, shapes, reach, str(dtype), more)
        searched = ModelFunction(self.objective, shapes, reach, str(dtype))
        still = jax.lax.stop_gradient(theta)
        found = solve(lambda variables: searched(variables, still), self.space, self.options, *self.space.centre(dtype))
        design = self.space.values(differentiable(searched, self.space, found, theta), found.k)
        # the optimum and the designs to compare with, side by side
        designs = {name: jnp.stack([value, *(jnp.asarray(b[name], value.dtype) if name in b else value
                                             for b in self.baselines.values())]) for name, value in design.items()}
        each, constraints, results, codes = jax.vmap(lambda one: function.evaluate(one, theta))(designs)
        value, code = each[0], codes[0]
        known: dict[str, Array] = {name: result[0] for name, result in results.items()}
        known |= {f"best_{name}": best.astype(dtype) for name, best in design.items()} | {"objective": value}
        for i, name in enumerate(self.baselines, start=1):
            other = jnp.where(has_value(codes[i]) & jnp.isfinite(each[i]), each[i], jnp.nan)
            known |= {f"objective_{name}": other, f"gain_{name}": (other - value) / jnp.abs(other)}
        for i, c in enumerate(self.objective.constraints):
            known |= {f"slack_{c.name}": -constraints[0, i], f"multiplier_{c.name}": found.multipliers[i]}
        for i, v in enumerate(self.space.wholes):
            known |= {f"gap_{side}_{v.name}": jnp.where(jnp.isinf(gap[i]), jnp.nan, gap[i])
                      for side, gap in (("below", found.gap_below), ("above", found.gap_above))}
        known |= {"optimum_status": found.optimum_status, "certificate": found.certificate,
                  "local_minima": found.minima, "tied": found.tied, "search_steps": found.steps,
                  "gradient_norm": found.gradient_norm}
        code = jnp.where(code == int(Status.OK), found.status, code)
        kept = has_value(code)
        return {name: jnp.where(kept, known[name].astype(dtype), jnp.nan) for name in metrics}, code
