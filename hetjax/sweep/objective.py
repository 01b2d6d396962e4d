"""An objective from the metrics of a registered model: arithmetic in metrics, parameters and prices.

    mean_number + 0.2 * n                                  a customer in the system costs 1, a slow server 0.2
    power * utilization_slow * n + idle * (1 - utilization_slow) * n      energy of busy and of idle servers
    lost * p_loss * q * m * mu1 + mean_response_time       a lost customer, and a unit of response time

Names that are neither metrics nor parameters of the model (``power``, ``lost``) are parameters of the objective.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.config import common_dtype
from hetjax.models.registry import Axis, Model, get_model, inside
from hetjax.optimize import Bound, Space, Variable, variable
from hetjax.optimize.minimize import check_start, chosen_names
from hetjax.result import has_value
from hetjax.sweep.errors import SpecError, nearest, show
from hetjax.sweep.expressions import Expression, parse_expression
from hetjax.sweep.optimize_table import Constraint, read_constraint
from hetjax.sweep.spec import ordered

Array = jax.Array
NUMBERS = ("mean_number", "mean_waiting", "mean_stalled", "mean_waiting_time")
PAY_FOR_LOSS = ("p_loss", "throughput", "mean_response_time")


@dataclass(frozen=True)
class Objective:
    """What to minimise of ``model``; made by :func:`objective`. For :func:`hetjax.optimize.minimize`."""

    model: Model
    value: Expression
    constraints: tuple[Constraint, ...] = ()
    derived: tuple[tuple[str, Expression], ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it uses."""
        used = self._used
        return tuple(metric.name for metric in self.model.metrics if metric.name in used)

    @property
    def _used(self) -> frozenset[str]:
        terms = [self.value, *(side for c in self.constraints for side in (c.left, c.right))]
        return frozenset().union(*(term.names for term in terms))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Everything that must be given or chosen: the model's parameters that are not derived, then the prices."""
        names = [axis.name for axis in self.model.axes if axis.name not in dict(self.derived)]
        used = self._used.union(*(e.names for _, e in self.derived))
        known = {*names, *self.metrics, *dict(self.derived)}
        return (*names, *sorted(used - known))

    def axis(self, name: str) -> Axis | None:
        """The model's axis of that name, if it is one."""
        return next((axis for axis in self.model.axes if axis.name == name), None)

    def variable(self, name: str, bounds: Any) -> Variable:
        """The variable ``name``; ValueError unless ``bounds`` are two finite numbers inside its domain."""
        axis = self.axis(name)
        if bounds is None:
            domain = f"; its domain is {axis.describe_domain()}" if axis else ""
            raise SpecError(f"over {name} has no bounds; give two, like {name} = [0, 60]{domain}")
        found = variable(name, bounds)
        if not (np.isfinite(found.low) and np.isfinite(found.high)) or found.kind == "simplex":
            raise SpecError(f"over {name} = {show(bounds)}: give two finite bounds")
        if axis is None:
            return found
        for end in (found.low, found.high):
            try:
                axis.check(end)
            except ValueError as error:
                raise SpecError(f"over {name}: {error}") from None
        rough = [m for m in self.metrics if not self.model.metric(m).differentiable]
        if rough and found.kind == "real" and not axis.integer:
            raise SpecError(f"over {name}: {rough[0]} has no derivatives, which real variables need; give whole bounds"
                            f" like {name} = [{math.ceil(found.low)}, {math.floor(found.high)}]")
        whole = axis.integer or axis.shape
        return Variable(name, found.low, found.high, "whole" if whole else found.kind,
                        relaxable=not (whole or rough))

    def check(self, given: Iterable[str], over: Iterable[str]) -> None:
        """SpecError for parameters that are missing, unknown, derived or given twice."""
        given, over = tuple(given), tuple(over)
        derived = dict(self.derived)
        for name in (*given, *over):
            if name in derived:
                raise SpecError(f"{name!r} is derived ({derived[name].text!r}) and cannot be given as well; leave it"
                                " out")
            if name not in self.parameters:
                raise SpecError(f"{name!r} is no parameter of model {self.model.name!r} or of the objective"
                                f"{nearest(name, self.parameters)}")
        for name in self.parameters:
            axis = self.axis(name)
            if name not in given and name not in over and (axis is None or axis.default is None):
                meaning = axis.meaning if axis else f"used in the objective {self.value.text!r}"
                known = [*(m.name for m in self.model.metrics), *self.parameters]
                hint = nearest(name, [n for n in known if n != name]) if axis is None else ""
                raise SpecError(f"parameter {name!r} is missing ({meaning}); give it{hint if '?' in hint else ''}")

    def evaluate(self, params: Mapping[str, Any]) -> tuple[float, tuple[str, ...]]:
        """The objective with all of ``params`` given (infinite where the model has none); constraints they break."""
        bound = self._tied(params, Space(()))
        value, constraints = jax.jit(bound.function)({}, bound.theta)
        return float(value), tuple(name for name, c in zip(bound.constraints, np.asarray(constraints), strict=True)
                                   if not c <= 0)

    def bind(self, params: Mapping[str, Any], over: Iterable[str] | None, bounds: Mapping[str, Any]) -> Bound:
        """Ties it to ``params``, name -> number; what is optimised may be left out of them, or be a start there."""
        if not isinstance(params, Mapping):
            raise SpecError(f"params = {show(params)} is no mapping; give one of names, like {{'q': 0.8, ...}}")
        if over is None:
            raise SpecError(f"over is missing; name what to choose among {', '.join(self.parameters)}")
        names = chosen_names(over, bounds, self.parameters)
        fixed = {name: value for name, value in params.items() if name not in names}
        space = Space(tuple(self.variable(name, bounds.get(name)) for name in names))
        bound = self._tied(fixed, space)
        starts = {name: np.asarray(value) for name, value in space.values(bound.x, bound.k).items()}
        for v in space.variables:
            if v.name in params:
                check_start(v.name, params[v.name], v)
                starts[v.name] = np.asarray(_number(v.name, params[v.name]))
        x, k = space.vectors(starts, bound.x.dtype)
        return bound._replace(x=x, k=k, notes=() if np.isposinf(bound.theta.get("M", 0.0)) else loss_notes(self))

    def _tied(self, fixed: Mapping[str, Any], space: Space) -> Bound:
        """All but the variables of ``space``, which start in the middle, from ``fixed``, checked."""
        names = [v.name for v in space.variables]
        self.check(fixed, names)
        fixed = {a.name: a.default for a in self.model.axes
                 if a.name not in (*fixed, *names, *dict(self.derived))} | dict(fixed)
        dtype = common_dtype(fixed.values())
        theta: dict[str, Array] = {}
        shapes: dict[str, int] = {}
        for name, value in fixed.items():
            axis = self.axis(name)
            number = _number(name, value)
            if axis is not None:
                axis.check(number)
            if axis is not None and axis.shape:
                shapes[name] = int(number)
            else:
                theta[name] = jnp.asarray(number, dtype)
        function = ModelFunction(self, tuple(sorted(shapes.items())), shape_bounds(self, space), str(dtype))
        return Bound(function, space, theta, *space.centre(dtype), tuple(c.name for c in self.constraints),
                     lambda design: {**fixed, **{name: value[()] for name, value in design.items()}})


def objective(model: str | Model, value: str, *, constraints: Mapping[str, str] | None = None,
              derived: Mapping[str, str] | None = None) -> Objective:
    """What to minimise of a registered model, for :func:`hetjax.optimize.minimize`.

    ``value``: a metric or arithmetic in metrics, parameters and prices, as in a specification. ``constraints``: name ->
    text like ``"p_loss <= 0.01"``. ``derived``: parameters of the model that follow from others, like
    ``{"q": "arrival_rate / (m * mu1)"}``, also from those that are optimised.

    >>> import hetjax
    >>> cost = hetjax.objective("threshold_queue", "mean_number + price * utilization_slow")
    >>> cost.metrics, cost.parameters
    (('mean_number', 'utilization_slow'), ('arrival_rate', 'mu2', 'mu1', 'threshold', 'price'))
    """
    found = get_model(model)
    parsed = {name: parse_expression(text, f"derived {name}") for name, text in (derived or {}).items()}
    return Objective(found, parse_expression(value, "objective"),
                     tuple(read_constraint(name, text) for name, text in (constraints or {}).items()),
                     in_order(found, parsed, "derived"))


def in_order(model: Model, derived: Mapping[str, Expression], where: str) -> tuple[tuple[str, Expression], ...]:
    """``derived`` so that each follows what it uses; SpecError, beginning with ``where``, for names that do not fit."""
    for name, expression in derived.items():
        axis = next((a for a in model.axes if a.name == name), None)
        if axis is None or axis.shape:
            raise SpecError(f"{where} {name!r} is no real parameter of model {model.name!r}"
                            f"{nearest(name, [a.name for a in model.axes if not a.shape])}")
        for used in sorted(expression.names & {m.name for m in model.metrics}):
            raise SpecError(f"{where} {name} = {expression.text!r} uses the metric {used!r}; parameters come first")
    return tuple(ordered(dict(derived)).items())


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise SpecError(f"{name} = {show(value)} is no number") from None


def shape_bounds(objective: Objective, space: Space) -> tuple[tuple[str, int], ...]:
    """The largest value of each variable that gives array shapes."""
    return tuple((v.name, int(v.high)) for v in space.wholes if (axis := objective.axis(v.name)) and axis.shape)


def loss_notes(objective: Objective) -> tuple[str, ...]:
    """The warning for objectives that are improved by losing customers, unless none is lost (an endless line M)."""
    used = objective._used
    if "p_loss" not in {m.name for m in objective.model.metrics} or used & {*PAY_FOR_LOSS}:
        return ()
    number = next((name for name in NUMBERS if name in used), None)
    if number is None:
        return ()
    return (f"minimising {number} with a finite waiting line rewards losing customers; minimise mean_response_time, or"
            f" charge for them, like \"{number} + 10 * p_loss\", or add a constraint like \"p_loss <= 0.01\"",)


@dataclass(frozen=True)
class ModelFunction:
    """An objective as a function of named variables and parameters; see :class:`hetjax.optimize.Bound`.

    ``shapes``: parameters that give array shapes, compiled in; ``bounds``: the largest values of traced ones.
    """

    objective: Objective
    shapes: tuple[tuple[str, int], ...]
    bounds: tuple[tuple[str, int], ...]
    dtype: str
    more: tuple[str, ...] = field(default=())  # metrics wanted of :meth:`evaluate` beside those used

    def __call__(self, variables: Mapping[str, Array], theta: Mapping[str, Array]) -> tuple[Array, Array]:
        """The value (infinite where the model has none) and the constraints (C,)."""
        value, constraints, _, _ = self.evaluate(variables, theta)
        return value, constraints

    def evaluate(self, variables: Mapping[str, Array], theta: Mapping[str, Array],
                 ) -> tuple[Array, Array, dict[str, Array], Array]:
        """Value, constraints, metrics and the model's status."""
        objective, dtype = self.objective, jnp.dtype(self.dtype)
        given: dict[str, Any] = {**dict(self.shapes), **theta, **variables}
        scope = {name: jnp.asarray(value, dtype) if isinstance(value, int) else value.astype(dtype)
                 for name, value in given.items()}
        for name, expression in objective.derived:
            scope[name] = jnp.asarray(expression(jnp, scope, dtype), dtype)
        point = {axis.name: given[axis.name] if axis.shape else scope[axis.name] for axis in objective.model.axes}
        metrics = tuple(dict.fromkeys((*objective.metrics, *self.more)))
        results, code = objective.model.point(point, metrics, dict(self.bounds))
        legal = has_value(code) & inside(objective.model.axes, point)
        scope |= results

        def term(expression: Expression) -> Array:
            return jnp.where(legal, jnp.asarray(expression(jnp, scope, dtype), dtype), jnp.inf)

        parts = [jnp.where(legal, term(c.left) - term(c.right), jnp.inf) for c in objective.constraints]
        return term(objective.value), jnp.stack(parts) if parts else jnp.zeros(0, dtype), results, code
