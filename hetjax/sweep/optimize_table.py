"""The table [optimize] of a specification: what to minimise at every point of a sweep, over what, under what.

    [optimize]
    objective = "mean_number + price * n"                # metrics, parameters, prices
    over = { K = [0, 60], n = [1, 8], r = [1.0, 9.0] }   # two whole numbers: whole; two reals: real
    derived = { q = "arrival_rate / (m * mu1)" }         # parameters that follow from others, also from those in over
    constraints = { loss = "p_loss <= 0.01" }
    baselines = { never = { K = inf } }                  # designs to compare with; what is not named stays optimal

and how: method, starts, steps, enumerate_up_to as in :func:`hetjax.optimize.minimize`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetjax.optimize.loops import METHODS, Method
from hetjax.sweep.checks import check_choice, check_identifier, check_keys, check_number
from hetjax.sweep.errors import SpecError, nearest, show
from hetjax.sweep.expressions import Expression, parse_expression

KEYS = ("objective", "over", "derived", "constraints", "baselines", "method", "starts", "steps", "enumerate_up_to")
VERSION = 1  # changes whenever the same table gives other results
Number = int | float


@dataclass(frozen=True)
class Constraint:
    """``left`` <= ``right``."""

    name: str
    text: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class OptimizeTable:
    """A checked table; the names in it are checked when it is tied to a model."""

    objective: Expression
    over: Mapping[str, tuple[Number, Number]]
    derived: Mapping[str, Expression] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    baselines: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    method: Method = "auto"
    starts: int = 4
    steps: int = 100
    enumerate_up_to: int = 4096

    def bounds(self, name: str) -> Any:
        """The domain of a variable, as :func:`hetjax.optimize.variable` takes it."""
        low, high = self.over[name]
        if isinstance(low, int) and isinstance(high, int):
            return range(low, high + 1)
        return float(low), float(high)

    def canonical(self) -> dict[str, Any]:
        """As JSON values; floats as hexadecimal text."""
        return {"version": VERSION, "objective": self.objective.text,
                "over": {name: [_exact(v) for v in pair] for name, pair in self.over.items()},
                "derived": {name: e.text for name, e in self.derived.items()},
                "constraints": {c.name: c.text for c in self.constraints},
                "baselines": {name: {k: _exact(v) for k, v in design.items()}
                              for name, design in self.baselines.items()},
                "method": self.method, "starts": self.starts, "steps": self.steps,
                "enumerate_up_to": self.enumerate_up_to}


def read_optimize(raw: Mapping[str, Any]) -> OptimizeTable:
    """Checks the parsed table; SpecError (one line) names key, value and remedy."""
    check_keys(raw, KEYS, "key of [optimize]")
    if "objective" not in raw:
        raise SpecError("[optimize] objective is missing; name a metric, or give arithmetic like"
                        " \"mean_number + 0.2 * n\"")
    over = _mapping(raw, "over")
    if not over:
        raise SpecError("[optimize] over is missing; give what may be chosen, like over = { K = [0, 60] }")
    for name in over:
        check_identifier(name, "variable of [optimize] over")
    baselines = {}
    for name, design in _mapping(raw, "baselines").items():
        check_identifier(name, "name of a baseline")
        if not isinstance(design, Mapping) or not design:
            raise SpecError(f"[optimize] baselines {name} = {show(design)} is no design; give {{ {next(iter(over))}"
                            " = ... }")
        for variable in design:
            if variable not in over:
                raise SpecError(f"[optimize] baselines {name}: {variable!r} is not in over{nearest(variable, over)}")
        baselines[name] = {variable: check_number(value, f"[optimize] baselines {name} {variable}")
                           for variable, value in design.items()}
    counts = {key: raw.get(key, getattr(OptimizeTable, key)) for key in ("starts", "steps", "enumerate_up_to")}
    for key, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or not (key != "enumerate_up_to") <= value <= 10**6:
            raise SpecError(f"[optimize] {key} = {show(value)} must be a whole number in"
                            f" [{int(key != 'enumerate_up_to')}, 1000000]")
    return OptimizeTable(
        objective=parse_expression(raw["objective"], "[optimize] objective"),
        over={name: _pair(name, bounds) for name, bounds in over.items()},
        derived={name: parse_expression(text, f"[optimize] derived {name}")
                 for name, text in _mapping(raw, "derived").items()},
        constraints=tuple(read_constraint(name, text) for name, text in _mapping(raw, "constraints").items()),
        baselines=baselines, method=check_choice(raw.get("method", "auto"), METHODS, "[optimize] method"), **counts)


def from_canonical(stored: Mapping[str, Any]) -> OptimizeTable:
    """The table from :meth:`OptimizeTable.canonical`."""
    raw = {key: value for key, value in stored.items() if key != "version"}
    over = {name: [_number(v) for v in pair] for name, pair in stored["over"].items()}
    baselines = {name: {k: _number(v) for k, v in design.items()} for name, design in stored["baselines"].items()}
    return read_optimize(raw | {"over": over, "baselines": baselines})


def read_constraint(name: str, text: Any) -> Constraint:
    """A constraint from text like ``"p_loss <= 0.01"``."""
    check_identifier(name, "name of a constraint")
    sides = re.split(r"(<=|>=)", text) if isinstance(text, str) else []
    if len(sides) != 3:
        raise SpecError(f"constraint {name} = {show(text)} is not of the form \"p_loss <= 0.01\" (<= or >=, once)")
    left, right = (parse_expression(side, f"constraint {name}") for side in (sides[0], sides[2]))
    return Constraint(name, text, *((left, right) if sides[1] == "<=" else (right, left)))


def _mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, Mapping):
        raise SpecError(f"[optimize] {key} = {show(value)} is no table; write {key} = {{ name = ... }}")
    return value


def _pair(name: str, bounds: Any) -> tuple[Number, Number]:
    if isinstance(bounds, Mapping) and set(bounds) == {"range"}:
        bounds = bounds["range"]
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise SpecError(f"[optimize] over {name} = {show(bounds)} are no bounds; give [first, last] for whole numbers"
                        " or [low, high] with a decimal point for real ones")
    low, high = (check_number(v, f"[optimize] over {name}") for v in bounds)
    if not low < high or not np.isfinite([low, high]).all():
        raise SpecError(f"[optimize] over {name} = {show(bounds)}: give two finite bounds, low < high")
    return low, high


def _exact(value: Number) -> int | str:
    return value if isinstance(value, int) else float(value).hex()


def _number(value: int | str) -> Number:
    return value if isinstance(value, int) else float.fromhex(value)
