"""What to compute: the specification of a sweep, as frozen dataclasses and as a TOML file.

A specification is independent of how it is run (block shape, devices, paths). Its grid is the outer product of its
dimensions: one for each axis, but one for all members of a ``[zip]`` group and one, ``point``, for all columns of a
``[design]`` table (:mod:`hetjax.sweep.design`). Integers stay integers.
"""

import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from hetjax.sweep.checks import check_choice, check_identifier, check_keys, check_length, check_names, check_number
from hetjax.sweep.design import POINT, Design, read_design
from hetjax.sweep.errors import SpecError, nearest, show
from hetjax.sweep.expressions import Expression, parse_expression
from hetjax.sweep.optimize_table import OptimizeTable, read_optimize

TABLES = ("sweep", "axes", "zip", "design", "derived", "const", "optimize", "plot", "run")
SWEEP_KEYS = ("model", "version", "title", "metrics", "grad", "dtype", "inner_batch", "block_points")
RUN_KEYS = ("check", "on_mismatch", "max_failures")
AXIS_FORMS = ("linspace", "geom", "values", "range")


@dataclass(frozen=True, eq=False)
class GridAxis:
    """One axis: its 1-D ``values`` (int64 or float64, read-only), and how the grid uses it.

    ``static``: a compile for each value rather than a masked bound. ``where``: a condition that leaves points out.
    """

    name: str
    values: np.ndarray
    static: bool = False
    where: Expression | None = None

    @property
    def integer(self) -> bool:
        """True if the values are whole numbers kept as int64."""
        return self.values.dtype.kind == "i"


@dataclass(frozen=True, eq=False)
class Dim:
    """One dimension of the grid: its name, length and the axes that run along it."""

    name: str
    size: int
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Policy:
    """The table [run]: how carefully to run; nothing here changes a result.

    ``check``: how many random points to compute again by the model's second route (None: up to 64, while that takes
    little time beside the sweep; 0: none). ``on_mismatch``: "stop" the run where a point differs, or "record" it and go
    on. ``max_failures``: blocks that may fail, each tried twice, before the run stops.
    """

    check: int | None = None
    on_mismatch: str = "stop"
    max_failures: int = 10


@dataclass(frozen=True, eq=False)
class Spec:
    """A checked specification; make it with :meth:`from_dict` or :func:`read_spec`."""

    model: str
    metrics: tuple[str, ...]
    axes: tuple[GridAxis, ...]
    dims: tuple[Dim, ...]
    grad_of: tuple[str, ...] = ()
    grad_wrt: tuple[str, ...] = ()
    derived: Mapping[str, Expression] = field(default_factory=dict)  # in the order of evaluation
    const: Mapping[str, int | float] = field(default_factory=dict)
    dtype: str = "float64"
    title: str = ""
    version: int | None = None
    inner_batch: int | None = None
    block_points: int | None = None
    plot: Any = field(default_factory=dict)
    policy: Policy = Policy()
    design: Mapping[str, Any] | None = None  # how the table of points was made, if there is one
    optimize: OptimizeTable | None = None  # what to minimise at every point, if anything

    @property
    def design_columns(self) -> tuple[str, ...]:
        """The axes that are columns of the design table."""
        return next((dim.axes for dim in self.dims if dim.name == POINT), ()) if self.design is not None else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The grid's shape."""
        return tuple(dim.size for dim in self.dims)

    @property
    def points(self) -> int:
        """The number of grid points."""
        return math.prod(self.shape)

    def axis(self, name: str) -> GridAxis:
        """The grid axis ``name`` (KeyError if it is none)."""
        return {axis.name: axis for axis in self.axes}[name]

    @property
    def names(self) -> frozenset[str]:
        """Every name that an expression may use."""
        return frozenset([axis.name for axis in self.axes]) | self.const.keys() | self.derived.keys()

    @staticmethod
    def from_dict(raw: Mapping[str, Any], folder: str | os.PathLike[str] = ".") -> "Spec":
        """Checks the parsed TOML tables ``raw``; SpecError (one line) names key, value, domain and remedy.

        ``folder``: where the files that it names lie.
        """
        check_keys(raw, TABLES, "table")
        for table in TABLES:
            if not isinstance(raw.get(table, {}), Mapping) and table != "plot":
                raise SpecError(f"[{table}] = {show(raw[table])} is no table; write [{table}] and its keys below it")
        if "sweep" not in raw:
            raise SpecError("the table [sweep] is missing; it names the model and its metrics")
        sweep = raw["sweep"]
        check_keys(sweep, SWEEP_KEYS, "key of [sweep]")
        if not raw.get("axes") and "design" not in raw and "optimize" not in raw:
            raise SpecError("the table [axes] is missing or empty; give an axis like q = { linspace = [0.1, 0.9, 9] }")
        axes = tuple(_axis(name, value) for name, value in raw.get("axes", {}).items())
        dims = _dims(axes, raw.get("zip", {}))
        design = read_design(raw["design"], Path(folder)) if "design" in raw else None
        if design is not None:
            columns = _columns(design)
            dims = (Dim(POINT, columns[0].values.size, tuple(design.columns)), *dims)
            axes = (*columns, *axes)
        const = {name: check_number(value, f"[const] {name}") for name, value in raw.get("const", {}).items()}
        derived = {name: parse_expression(text, f"[derived] {name}") for name, text in raw.get("derived", {}).items()}
        for name in [*const, *derived]:
            check_identifier(name, "name")
        _distinct([POINT] if design else [], [dim.name for dim in dims if dim.name != POINT and len(dim.axes) > 1],
                  [a.name for a in axes], list(const), list(derived))
        metrics = check_names(sweep.get("metrics", []), "[sweep] metrics")
        grad_of, grad_wrt = _grad(sweep.get("grad"), metrics)
        spec = Spec(
            model=_text(sweep, "model", required=True), metrics=metrics, axes=axes, dims=dims,
            grad_of=grad_of, grad_wrt=grad_wrt, derived=ordered(derived), const=const,
            dtype=check_choice(sweep.get("dtype", "float64"), ("float64", "float32"), "[sweep] dtype"),
            title=_text(sweep, "title"), version=_whole(sweep, "version", 0),
            inner_batch=_whole(sweep, "inner_batch", 1), block_points=_whole(sweep, "block_points", 1),
            plot=_json(raw.get("plot", {})), policy=_policy(raw.get("run", {})),
            design=design.about if design else None,
            optimize=read_optimize(raw["optimize"]) if "optimize" in raw else None)
        conditions = ((f"{'[design]' if a.name in spec.design_columns else f'[axes] {a.name}'} where", a.where)
                      for a in axes if a.where)
        for what, expression in [*((f"[derived] {n}", e) for n, e in derived.items()), *conditions]:
            for name in sorted(expression.names - spec.names):
                raise SpecError(f"{what} = {expression.text!r} uses {name!r}, no axis, constant or derived name"
                                f"{nearest(name, sorted(spec.names))}")
        return spec


def read_spec(path: str | os.PathLike[str]) -> Spec:
    """Reads and checks a TOML file; SpecError begins with the file's name."""
    return parse_spec(read_text(path), str(path))


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a specification file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SpecError(f"{path}: cannot be read: {reason}") from None


def parse_spec(text: str, source: str = "spec") -> Spec:
    """Checks the text of a TOML specification; ``source`` begins every message."""
    try:
        return Spec.from_dict(tomllib.loads(text), Path(source).parent)
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also a whole number of thousands of digits
        reason = " ".join(str(error).split(";")[0].split()) if isinstance(error, ValueError) else "too deeply nested"
        raise SpecError(f"{source}: not valid TOML: {reason}") from None


def _axis(name: str, value: Any) -> GridAxis:
    check_identifier(name, "axis name")
    key = f"[axes] {name}"
    if not isinstance(value, Mapping):
        raise SpecError(f"{key} = {show(value)} is no axis; write {name} = {{ values = [...] }}; a single value"
                        " belongs in [const]")
    check_keys(value, (*AXIS_FORMS, "static", "where"), f"key of {key}")
    forms = [form for form in AXIS_FORMS if form in value]
    if len(forms) != 1:
        raise SpecError(f"{key} has {len(forms)} of {', '.join(AXIS_FORMS)}; give exactly one")
    static = value.get("static", False)
    if not isinstance(static, bool):
        raise SpecError(f"{key} static = {static!r} is neither true nor false")
    where = parse_expression(value["where"], f"{key} where", condition=True) if "where" in value else None
    values = _axis_values(forms[0], value[forms[0]], f"{key} {forms[0]}")
    values.setflags(write=False)
    return GridAxis(name, values, static, where)


def _columns(design: Design) -> tuple[GridAxis, ...]:
    """The columns of a design table as axes; its condition goes with the first one."""
    return tuple(GridAxis(name, values, where=None if i else design.where)
                 for i, (name, values) in enumerate(design.columns.items()))


def _axis_values(form: str, given: Any, key: str) -> np.ndarray:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        example = "[value, ...]" if form == "values" else "[first, last, ...]"
        raise SpecError(f"{key} = {show(given)} is no list; give {example}")
    numbers = [check_number(v, key) for v in given]
    if form == "values":
        check_length(len(numbers), key)
        whole = all(isinstance(v, int) for v in numbers)
        return np.array(numbers, np.int64 if whole else np.float64)
    if form == "range":
        if len(numbers) != 2 or not all(isinstance(v, int) for v in numbers) or numbers[0] > numbers[1]:
            raise SpecError(f"{key} = {show(given)} must be whole numbers [first, last], first <= last, both included")
        check_length(int(numbers[1] - numbers[0] + 1), key)
        return np.arange(numbers[0], numbers[1] + 1, dtype=np.int64)
    if len(numbers) != 3 or not isinstance(numbers[2], int) or numbers[2] < 2:
        raise SpecError(f"{key} = {show(given)} must be [first, last, number of points], at least 2 points")
    first, last, count = float(numbers[0]), float(numbers[1]), numbers[2]
    check_length(count, key)
    if not (math.isfinite(first) and math.isfinite(last)) or first == last:
        raise SpecError(f"{key} = {show(given)} needs two different finite ends; use values = [...] for infinity")
    if not math.isfinite(last - first):
        raise SpecError(f"{key} = {show(given)} spans more than float64 can hold; give nearer ends")
    if form == "linspace":
        return np.linspace(first, last, count)
    if first <= 0 or last <= 0:
        raise SpecError(f"{key} = {show(given)} needs positive ends; use linspace for other ranges")
    return _geometric(first, last, count)


def _geometric(first: float, last: float, count: int) -> np.ndarray:
    """first (last/first)^(i/(count-1)), correctly rounded: the same bits, and so the same hash, on every machine."""
    context = Context(prec=34)
    step = context.divide(context.ln(context.divide(Decimal(last), Decimal(first))), Decimal(count - 1))
    inner = [float(context.multiply(Decimal(first), context.exp(context.multiply(step, Decimal(i)))))
             for i in range(1, count - 1)]
    return np.array([first, *inner, last])


def _dims(axes: tuple[GridAxis, ...], groups: Mapping[str, Any]) -> tuple[Dim, ...]:
    by_name = {axis.name: axis for axis in axes}
    group_of: dict[str, str] = {}
    for group, members in groups.items():
        check_identifier(group, "name of a zip dimension")
        if group in by_name:
            raise SpecError(f"[zip] {group} has the name of an axis; choose another name for the dimension")
        for member in check_names(members, f"[zip] {group}"):
            if member not in by_name:
                raise SpecError(f"[zip] {group}: {member!r} is no axis of [axes]{nearest(member, by_name)}")
            if member in group_of:
                raise SpecError(f"[zip] {group}: {member!r} is in {group_of[member]!r} already; leave it in one group")
            group_of[member] = group
        lengths = {member: by_name[member].values.size for member in members}
        if len(members) < 2 or len(set(lengths.values())) > 1:
            found = ", ".join(f"{m} has {k}" for m, k in lengths.items())
            raise SpecError(f"[zip] {group} needs at least two axes of equal length ({found or 'none given'})")
    dims: dict[str, Dim] = {}
    for axis in axes:
        group = group_of.get(axis.name, axis.name)
        if group == axis.name and np.unique(axis.values).size != axis.values.size:
            raise SpecError(f"[axes] {axis.name} repeats a value; give each value once")
        members = tuple(a.name for a in axes if group_of.get(a.name, a.name) == group)
        dims.setdefault(group, Dim(group, axis.values.size, members))
    return tuple(dims.values())


def _distinct(*kinds: list[str]) -> None:
    seen: set[str] = set()
    for name in [name for kind in kinds for name in kind]:
        if name in seen:
            raise SpecError(f"{name!r} is given twice (in [axes], [zip], [design], [derived] or [const]); keep one")
        seen.add(name)


def _grad(value: Any, metrics: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if value is None:
        return (), ()
    if not isinstance(value, Mapping):
        raise SpecError(f"[sweep] grad = {show(value)} is no table; write grad = {{ of = [...], wrt = [...] }}")
    check_keys(value, ("of", "wrt"), "key of [sweep] grad")
    of = check_names(value.get("of", metrics), "[sweep] grad of")
    wrt = check_names(value.get("wrt", []), "[sweep] grad wrt")
    for name in of:
        if metrics and name not in metrics:
            raise SpecError(f"[sweep] grad of = {name!r} is not among the metrics{nearest(name, metrics)}")
    if not wrt:
        raise SpecError("[sweep] grad wrt is missing; name the axes to differentiate along")
    return of, wrt


def ordered(derived: dict[str, Expression]) -> dict[str, Expression]:
    """The derived names in an order in which each uses only earlier ones."""
    ordered: dict[str, Expression] = {}
    waiting = dict(derived)
    while waiting:
        ready = [name for name, e in waiting.items() if not e.names & waiting.keys()]
        if not ready:
            raise SpecError(f"[derived] {', '.join(waiting)} depend on each other in a circle; break it")
        ordered |= {name: waiting.pop(name) for name in ready}
    return ordered


def _json(plot: Any) -> Any:
    """The [plot] table as the store can keep it: infinities and dates become text."""
    return json.loads(json.dumps(plot, default=str), parse_constant=str)


def _text(table: Mapping[str, Any], key: str, required: bool = False) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or (required and not value):
        raise SpecError(f"[sweep] {key} = {show(value)} is no text" if key in table else f"[sweep] {key} is missing")
    return value


def _policy(table: Mapping[str, Any]) -> Policy:
    check_keys(table, RUN_KEYS, "key of [run]")
    failures = _whole(table, "max_failures", 0, "[run]")
    return Policy(check=_whole(table, "check", 0, "[run]"),
                  on_mismatch=check_choice(table.get("on_mismatch", "stop"), ("stop", "record"), "[run] on_mismatch"),
                  max_failures=Policy.max_failures if failures is None else failures)


def _whole(table: Mapping[str, Any], key: str, low: int, where: str = "[sweep]") -> int | None:
    value = table.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
        raise SpecError(f"{where} {key} = {show(value)} must be a whole number >= {low}")
    return value
