"""What a figure can be asked for, and the one-line refusals of what it cannot.

A figure is a plain table of options, as in a sweep file::

    [[plot]]
    file = "families"              # default: the store's name
    x    = "K"                     # an axis
    y    = "mean_number"           # metrics: lines;  an axis: a map, coloured by z
    hue  = "r"
    sel  = { q = 0.7, n = [1, 2] }

Options, all of them optional:

========== =========================================================================================================
kind       lines, map, optimum, least or table; by default what x, y and z say
x          axis along the page
y          lines, table: one or several metrics (a panel, a row each).  map: axis up the page
z          map: one or several metrics (a panel each)
hue, style axes told apart by colour, by line style (table: hue gives the columns)
facets     one or two axes told apart by panel: columns, or [rows, columns]
over       optimum, least: the axis that is searched
of         optimum, least: the metric looked at.  optimum plots the value of ``over`` at its minimum; least plots the
           least value of ``over`` whose point has status ok and, with ``below``, ``of`` < ``below``
below      see ``of``
relative   { over = AXIS, to = "first" | "last" | "min" | "max" }: excess in percent over that value along AXIS
sel        { AXIS = value | [values] | "low:high" }: nearest values of the axis
optimum    true: the minimum over x is marked on each line; on a map the y of the minimum for each x is drawn
contours   one table or several { of = METRIC, levels = [...], label = "..." } over a map, of = z by default
markers    true, false: a marker at each point of a line
reference  tables { x, y, label, panel }: a point; with x or y alone a line across.  panel: the metric it belongs to
printed    table: { METRIC = value }, a column of values to compare with
log        which of "x", "y", "z" are logarithmic; by default metrics that are positive and span thousands
limits     { x | y | z = [low, high] }
own_scale  true: lines of one metric in several panels have a y scale each
title, labels = { x | y | z | hue | style = "..." }, names = [text of each hue value], size = [width, height] in inches
note       false leaves out the line that states the axes held fixed and what is hatched
========== =========================================================================================================
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from pathlib import PurePath
from typing import Any

KINDS = ("lines", "map", "optimum", "least", "table")
_ENDS = ("first", "last", "min", "max")


@dataclass(frozen=True)
class FigureOptions:
    """The options of one figure, checked; the module says what each means."""

    kind: str | None = None
    x: str | None = None
    y: tuple[str, ...] = ()
    z: tuple[str, ...] = ()
    hue: str | None = None
    style: str | None = None
    facets: tuple[str, ...] = ()
    over: str | None = None
    of: str | None = None
    below: float | None = None
    relative: dict[str, str] | None = None
    sel: dict[str, Any] = field(default_factory=dict)
    optimum: bool = False
    contours: tuple[dict[str, Any], ...] = ()
    markers: bool | None = None
    reference: tuple[dict[str, Any], ...] = ()
    printed: dict[str, Any] = field(default_factory=dict)
    log: tuple[str, ...] | None = None
    own_scale: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    title: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    size: tuple[float, float] | None = None
    file: str | None = None
    note: bool = True


def refuse(key: str, value: Any, problem: str, choices: Collection[str] = ()) -> ValueError:
    """The error for a bad option: one line with the key, the value and the choices."""
    words = f"plot: {key} = {value!r} {problem}"
    return ValueError(words + (f"; choose from {', '.join(choices)}" if choices else ""))


def of_command(command: str, error: ValueError) -> ValueError:
    """The refusal ``error`` as of another command that takes the same options."""
    return ValueError(str(error).replace("plot:", f"{command}:", 1))


def parse_figure(table: Mapping[str, Any] | None, axes: Collection[str], metrics: Collection[str]) -> FigureOptions:
    """Checks the options ``table`` of one figure of a store with these axis and metric names.

    ValueError in one line names the key, the value and the choices.

    >>> parse_figure({"x": "q", "y": "mean_number", "sel": {"n": 2}}, ["q", "n"], ["mean_number"]).y
    ('mean_number',)
    >>> parse_figure({"x": "p"}, ["q", "n"], ["mean_number"])
    Traceback (most recent call last):
    ValueError: plot: x = 'p' is no axis of the store; choose from q, n
    """
    if table is None:
        return FigureOptions()
    if not isinstance(table, Mapping):
        raise refuse("figure", table, "is no table of options")
    known = [f.name for f in fields(FigureOptions)]
    for key in table:
        if key not in known:
            raise refuse(str(key), table[key], "is no option of a figure", known)
    given = dict(table)
    for key in ("y", "z", "facets", "log", "names"):
        if key in given:
            given[key] = _texts(key, given[key])
    for key in ("x", "hue", "style", "over"):
        if key in given:
            _member(key, given[key], axes, "axis")
    for name in given.get("facets", ()):
        _member("facets", name, axes, "axis")
    if len(given.get("facets", ())) > 2:
        raise refuse("facets", table["facets"], "names more than two axes")
    for key in ("kind", "title", "file"):
        if key in given and not isinstance(given[key], str):
            raise refuse(key, given[key], "is no text")
    if "file" in given and not PurePath(given["file"]).name:
        raise refuse("file", given["file"], "is no file name")
    if "kind" in given and given["kind"] not in KINDS:
        raise refuse("kind", given["kind"], "is not known", KINDS)
    for name in given.get("y", ()):
        if name not in metrics and name not in axes:
            raise refuse("y", name, "is neither metric nor axis of the store", [*metrics, *axes])
    if any(name in axes for name in given.get("y", ())) and len(given["y"]) > 1:
        raise refuse("y", table["y"], "names an axis and something beside it; a map has one axis y and several z")
    for name in given.get("z", ()):
        _member("z", name, metrics, "metric")
    if "of" in given:
        _member("of", given["of"], metrics, "metric")
    for key in ("optimum", "markers", "note", "own_scale"):
        if key in given and not isinstance(given[key], bool):
            raise refuse(key, given[key], "is neither true nor false")
    if "below" in given:
        given["below"] = _number("below", given["below"])
    for name in given.get("log", ()):
        if name not in ("x", "y", "z"):
            raise refuse("log", name, "is no direction", ("x", "y", "z"))
    limits = _table("limits", given, ("x", "y", "z"))
    given["limits"] = {key: tuple(_numbers(f"limits.{key}", value, 2)) for key, value in limits.items()}
    if "size" in given:
        width, height = _numbers("size", given["size"], 2)
        given["size"] = (width, height)
    given["labels"] = _table("labels", given, ("x", "y", "z", "hue", "style"))
    given["printed"] = _table("printed", given, metrics)
    given["sel"] = _table("sel", given, axes)
    if "relative" in given:
        given["relative"] = _relative(given, axes)
    given["contours"] = tuple(_contour(c, metrics) for c in _tables("contours", given))
    given["reference"] = tuple(_reference(r, metrics) for r in _tables("reference", given))
    options = FigureOptions(**given)
    _roles_differ(options)
    _searches_complete(options, metrics)
    return options


def _roles_differ(options: FigureOptions) -> None:
    taken: dict[str, str] = {}
    roles = [("x", options.x), ("y", options.y[0] if options.y else None), ("hue", options.hue),
             ("style", options.style), *(("facets", name) for name in options.facets), ("over", options.over)]
    for role, name in roles:
        if name is not None and name in taken:
            raise refuse(role, name, f"is already taken by {taken[name]}; name another one")
        if name is not None:
            taken[name] = role
    for key in options.sel:
        if key in taken and not isinstance(options.sel[key], (list, tuple, str)):
            raise refuse(f"sel.{key}", options.sel[key], f"holds fixed what {taken[key]} needs; give several or none")


def _searches_complete(options: FigureOptions, metrics: Collection[str]) -> None:
    if options.kind in ("optimum", "least") and options.over is None:
        raise refuse("over", None, f"is needed by kind = {options.kind!r}: the axis that is searched")
    if options.kind == "optimum" and options.of is None:
        raise refuse("of", None, "is needed by kind = 'optimum': the metric that is minimised", metrics)
    if options.below is not None and options.of is None:
        raise refuse("below", options.below, "needs of, the metric that it bounds", metrics)


def _member(key: str, name: Any, choices: Collection[str], what: str) -> None:
    if name not in choices:
        raise refuse(key, name, f"is no {what} of the store", choices)


def _texts(key: str, value: Any) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise refuse(key, value, "is no text or list of texts")
    return tuple(items)


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refuse(key, value, "is no number")
    return float(value)


def _numbers(key: str, value: Any, count: int | None = None) -> list[float]:
    if isinstance(value, str) or not isinstance(value, Sequence) or (count is not None and len(value) != count):
        raise refuse(key, value, "is no list of numbers" if count is None else f"is no list of {count} numbers")
    return [_number(key, item) for item in value]


def _table(key: str, given: Mapping[str, Any], choices: Collection[str]) -> dict[str, Any]:
    value = given.get(key, {})
    if not isinstance(value, Mapping):
        raise refuse(key, value, "is no table", choices)
    for name in value:
        if name not in choices:
            raise refuse(f"{key}.{name}", value[name], "has an unknown name", choices)
    return dict(value)


def _tables(key: str, given: Mapping[str, Any]) -> list[Any]:
    value = given.get(key, ())
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise refuse(key, value, "is no table or list of tables")
    return list(value)


def _relative(given: Mapping[str, Any], axes: Collection[str]) -> dict[str, str]:
    table = _table("relative", given, ("over", "to"))
    _member("relative.over", table.get("over"), axes, "axis")
    if table.setdefault("to", "min") not in _ENDS:
        raise refuse("relative.to", table["to"], "is not known", _ENDS)
    return table


def _contour(table: Any, metrics: Collection[str]) -> dict[str, Any]:
    checked = _table("contours", {"contours": table}, ("of", "levels", "label"))
    if "of" in checked:
        _member("contours.of", checked["of"], metrics, "metric")
    if "levels" in checked:
        checked["levels"] = sorted(_numbers("contours.levels", checked["levels"]))
    return checked


def _reference(table: Any, metrics: Collection[str]) -> dict[str, Any]:
    checked = _table("reference", {"reference": table}, ("x", "y", "label", "panel"))
    if "x" not in checked and "y" not in checked:
        raise refuse("reference", table, "has neither x nor y")
    for key in ("x", "y"):
        if key in checked:
            checked[key] = _number(f"reference.{key}", checked[key])
    return checked
