"""From a store and the options of a figure to the arrays that are drawn.

Only what the figure shows is read: the selection is made on the lazily opened arrays first. Values whose status is
not ok are NaN here, by the rule of the store's readers (6, a gradient that is not finite, spoils gradients only).
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetjax.plot.options import FigureOptions, refuse
from hetjax.plot.select import dimension, select
from hetjax.plot.text import long_name, value_text

HUES, STYLES, PANELS, CELLS = 10, 4, 12, 1024  # most that one figure can tell apart
_DIAGNOSTICS = ("status", "block_run", "n_iter", "residual", "opt_status")


@dataclass(frozen=True)
class View:
    """What one figure shows: ``data`` holds ``metrics`` (and what contours need) over the axes that have a role."""

    options: FigureOptions
    kind: str
    x: str | None
    y: str | None
    metrics: tuple[str, ...]
    hue: str | None
    style: str | None
    facets: tuple[str, ...]
    data: Any
    notes: tuple[str, ...]

    @property
    def log(self) -> tuple[str, ...]:
        """The logarithmic directions."""
        return self.options.log or ()

    def values(self, axis: str) -> np.ndarray:
        """The coordinate values of an axis of the view."""
        return np.asarray(self.data[axis].values)

    def texts(self, axis: str) -> list[str]:
        """One text for each value of ``axis``; a zipped axis is told by the coordinates along it."""
        if axis == self.hue and self.options.names:
            return list(self.options.names)
        coordinate = self.data[axis]
        if not coordinate.attrs.get("_counted"):
            return [value_text(v) for v in coordinate.values]
        beside = [c for c in self.data.coords if c != axis and self.data[c].dims == (axis,)]
        return [", ".join(f"{c} = {value_text(self.data[c].values[i])}" for c in beside) or str(i + 1)
                for i in range(coordinate.size)]


def axis_names(dataset: Any) -> list[str]:
    """Everything that can be an axis of a figure: dimensions, and coordinates along one of them."""
    beside = [str(c) for c in dataset.coords if c not in dataset.dims and len(dataset[c].dims) == 1]
    return [str(d) for d in dataset.dims] + beside


def metric_names(dataset: Any) -> list[str]:
    """Everything that can be drawn over axes."""
    return [str(name) for name in dataset.data_vars if name not in _DIAGNOSTICS[:2] and dataset[name].dims]


def make_view(dataset: Any, options: FigureOptions) -> View:
    """Selects, searches, fills in the roles that were left open, and reads the data."""
    grid = [d for d in dataset.dims if d in dataset.coords]
    dataset = _make_dimensions(dataset, options)
    along = options.relative["over"] if options.relative else None
    late = {name: wanted for name, wanted in options.sel.items() if dimension(dataset, name) == along}
    dataset = select(dataset, {name: wanted for name, wanted in options.sel.items() if name not in late})
    wanted = options.y if options.y and options.y[0] not in dataset.dims else options.z
    metrics = wanted or _default_metrics(dataset, options)
    needed = {*metrics, *(c["of"] for c in options.contours if "of" in c), *({options.of} - {None})}
    status = dataset["status"] if "status" in dataset else None
    for name in needed:
        dataset[name] = _masked(dataset[name], status)
        if along is not None and along in dataset[name].dims and name in metrics:
            dataset[name] = _relative(dataset[name], along, options.relative["to"] if options.relative else "min")
    dataset = select(dataset, late)
    for role in ("x", "hue", "style", "over"):
        name = getattr(options, role)
        if name is not None and name not in dataset.dims:
            raise refuse(role, name, "is held fixed by sel; select several values or none")
    notes: list[str] = []
    if options.kind in ("optimum", "least"):
        dataset, metrics = _searched(dataset, options)
    kind, roles, fixed = _assign_roles(dataset, options)
    dataset = _told_by_values(dataset, roles, kind)
    shown = {str(d) for d in dataset.dims if dataset.sizes[d] == 1} | set(fixed)
    dataset = dataset.isel({d: fixed.get(d, 0) for d in shown if d not in roles.values() and d not in roles["facets"]})
    dataset = _drawable(dataset, {"x": roles["x"], "y": roles["y"]}, options.log or (), notes)
    dataset = dataset.sortby([d for d in (roles["x"], roles["y"]) if d in grid])  # scattered points keep their order
    view = View(options, kind, roles["x"], roles["y"], tuple(metrics), roles["hue"], roles["style"],
                tuple(roles["facets"]), dataset, tuple(notes))
    view = _thinned(view)
    _check_names(view)
    names = [*view.metrics, *(n for n in needed if n in view.data), *(["status"] if "status" in view.data else [])]
    data = view.data[list(dict.fromkeys(names))].load()
    if options.log is None:
        options = replace(options, log=(*_geometric_axes(data, view), *_spanning(data, view)))
    held = [f"${c}$ = {value_text(v)}" if len(str(c)) == 1 else f"{c} = {value_text(v)}"
            for c, v in ((c, data[c].values[()]) for c in data.coords if data[c].ndim == 0)
            if not data[c].attrs.get("_counted")]
    return replace(view, data=data, options=options, notes=(*([", ".join(held)] if held else []), *view.notes))


def _make_dimensions(dataset: Any, options: FigureOptions) -> Any:
    """Coordinates that were given a role become dimensions; dimensions without coordinates are counted."""
    dataset = dataset.copy()
    axes = axis_names(dataset)
    roles = [options.x, *options.y, options.hue, options.style, *options.facets, options.over]
    seen: dict[Hashable, str] = {}
    for name in (n for n in roles if n in axes):
        along = dimension(dataset, name)
        if along in seen:
            raise refuse("axes", [seen[along], name], f"lie along the same dimension {along!r}; use one")
        seen[along] = name
    swap = {d: n for d, n in seen.items() if d != n}
    dataset = dataset.swap_dims(swap) if swap else dataset
    for d in dataset.dims:
        if d not in dataset.coords:
            dataset = dataset.assign_coords({d: (d, np.arange(dataset.sizes[d]), {"_counted": True})})
    return dataset


def _default_metrics(dataset: Any, options: FigureOptions) -> tuple[str, ...]:
    names = [n for n in metric_names(dataset) if n not in _DIAGNOSTICS]
    plain = [n for n in names if not n.startswith("d_")] or names
    if not plain:
        raise refuse("store", sorted(map(str, dataset.data_vars)), "holds no metric over an axis")
    return tuple(plain) if options.kind == "table" else (plain[0],)


def _masked(array: Any, status: Any) -> Any:
    array = array.astype(float) if not np.issubdtype(array.dtype, np.floating) else array
    if status is None or not set(status.dims) <= set(array.dims):
        return array
    gradient = str(array.name).startswith("d_") and "__d_" in str(array.name)
    return array.where(status == 1) if gradient else array.where((status == 1) | (status == 6))


def rounding_scale(array: Any) -> float:
    """How large the numbers were whose difference ``array`` is: 100 for an excess in percent, else 0."""
    return 100.0 if array.attrs.get("_relative") else 0.0


def _relative(array: Any, along: str, to: str) -> Any:
    if to in ("first", "last"):
        base = array.isel({along: 0 if to == "first" else -1}, drop=True)
    else:
        base = array.min(along) if to == "min" else array.max(along)
    first, last = (value_text(array[along].values[i]) for i in (0, -1))
    words = {"first": f"{along} = {first}", "last": f"{along} = {last}", "min": f"the least over {along}",
             "max": f"the largest over {along}"}
    out = 100.0 * (array / base - 1.0)
    out.attrs = {"units": "%", "_relative": True, "long_name": f"excess of {long_name(array)} over {words[to]}"}
    return out


def _searched(dataset: Any, options: FigureOptions) -> tuple[Any, tuple[str, ...]]:
    """Adds the variable that kinds optimum and least draw, and drops the axis that they search."""
    over = str(options.over)
    dataset = dataset.sortby(over)
    values = dataset[over].values
    if options.kind == "optimum":
        array = dataset[options.of]
        axis = array.get_axis_num(over)
        index = array.isel({over: 0}, drop=True).copy(data=np.apply_along_axis(best_index, axis, array.values, values))
        any_good = index >= 0
        name, words = f"best_{over}", f"{over} of the least {long_name(array)}"
    else:
        if options.of is None and "status" not in dataset:
            raise refuse("kind", "least", "needs the store's status, or of and below")
        good = dataset["status"] == 1 if "status" in dataset else dataset[options.of].notnull()
        words = f"least {over} with a steady state"
        if options.below is not None:
            good = good & (dataset[options.of] < options.below)
            words = f"least {over} with {long_name(dataset[options.of])} below {value_text(options.below)}"
        any_good, index = good.any(over), good.argmax(over)
        name = f"least_{over}"
    found = any_good.copy(data=np.where(any_good, values.astype(float)[index.astype(int)], np.nan))
    found.attrs = {"units": dataset[over].attrs.get("units", "1"), "long_name": words, "_last": value_text(values[-1])}
    kept = [n for n in dataset.data_vars if over not in dataset[n].dims]
    return dataset[kept].drop_vars(over, errors="ignore").assign({name: found}), (name,)


def best_index(values: np.ndarray, axis: np.ndarray, scale: float = 0.0) -> int:
    """The index of the least of ``values`` along ``axis``; -1 where the sweep cannot tell it.

    That is: where nothing is finite, where more than its neighbours tie with it in rounding (of values as large as
    ``scale`` at least), and at an end of the axis, unless that end is 0 of an integer axis, below which nothing lies.
    """
    if not np.isfinite(values).any():
        return -1
    best = int(np.nanargmin(values))
    least = values[best]
    ties = np.flatnonzero(np.abs(values - least) <= 64 * np.finfo(values.dtype).eps * max(abs(least), scale))
    if ties[-1] - ties[0] > 2:
        return -1
    first_is_zero = np.issubdtype(axis.dtype, np.integer) and axis[0] == 0
    return best if 0 < best < values.size - 1 or (best == 0 and first_is_zero) else -1


def _told_by_values(dataset: Any, roles: dict[str, Any], kind: str) -> Any:
    """Lines over a counted dimension (points of a design, zipped axes) run over the first axis that varies along it."""
    x = roles["x"]
    if kind != "lines" or x not in dataset.coords or not dataset[x].attrs.get("_counted"):
        return dataset
    along = [c for c in dataset.coords if c != x and dataset[c].dims == (x,)]
    varying = next((c for c in along if np.unique(dataset[c].values).size > 1), None)
    if varying is None:
        return dataset
    roles["x"] = str(varying)
    return dataset.swap_dims({x: varying})


def _drawable(dataset: Any, directions: dict[str, str | None], log: tuple[str, ...], notes: list[str]) -> Any:
    """Axes without what has no place on them: infinity, and on a logarithmic axis what is not positive."""
    for letter, name in directions.items():
        if name is None:
            continue
        values = dataset[name].values.astype(float)
        shown = np.isfinite(values)
        if not shown.all():
            notes.append(f"{name} = inf left out")
        if letter in log and (values[shown] <= 0).any():
            notes.append(f"{name} ≤ 0 left out")
            shown &= values > 0
        if not shown.all():
            dataset = dataset.isel({name: np.flatnonzero(shown)})
    return dataset


def _assign_roles(dataset: Any, options: FigureOptions) -> tuple[str, dict[str, Any], dict[str, int]]:
    y = options.y[0] if options.y and options.y[0] in dataset.dims else None
    roles: dict[str, Any] = {"x": options.x, "y": y, "hue": options.hue, "style": options.style,
                             "facets": list(options.facets)}

    def free() -> list[str]:  # longest first
        taken = {roles["x"], roles["y"], roles["hue"], roles["style"], *roles["facets"]}
        found = [str(d) for d in dataset.dims if dataset.sizes[d] > 1 and d not in taken]
        return sorted(found, key=lambda d: -dataset.sizes[d])

    kind = options.kind if options.kind in ("lines", "map", "table") else None
    if kind is None:
        nothing_said = not (options.y or options.hue or options.style or options.kind)
        large = sum(dataset.sizes[d] > 12 for d in dataset.dims) >= 2
        is_map = y is not None or options.z or (nothing_said and large)
        kind = "map" if is_map else "lines"
    if kind == "lines" and roles["x"] is None and options == FigureOptions() and not free():
        kind = "table"  # a single point
    for role in {"map": ("x", "y"), "lines": ("x",), "table": ()}[kind]:
        if roles[role] is None:
            if not free():
                raise refuse(role, None, "finds no axis with two or more values left", [str(d) for d in dataset.dims])
            roles[role] = free()[0]
    if kind == "table" and roles["hue"] is None and free():
        roles["hue"] = free()[0]
    if kind == "lines" and not (roles["hue"] or roles["style"] or roles["facets"]):
        for role, most in (("hue", math.inf), ("style", STYLES), ("facets", 6)):
            if free() and dataset.sizes[free()[-1]] <= most:
                roles[role] = [free()[-1]] if role == "facets" else free()[-1]
    elif kind == "map" and not roles["facets"] and not len(options.z) > 1 and free() and dataset.sizes[free()[-1]] <= 6:
        roles["facets"] = [free()[-1]]
    if kind == "map" and (roles["hue"] or roles["style"]):
        role = "hue" if roles["hue"] else "style"
        raise refuse(role, roles[role], "has no place in a map; use facets")
    limited = [("style", roles["style"], STYLES)] if roles["style"] else []
    for role, name, most in [*limited, *(("facets", f, PANELS) for f in roles["facets"])]:
        if dataset.sizes[name] > most:
            raise refuse(role, name, f"has {dataset.sizes[name]} values, more than the {most} that can be told apart;"
                                     f" choose some with sel = {{ {name} = [...] }}")
    return kind, roles, {d: dataset.sizes[d] // 2 for d in free()}


def _thinned(view: View) -> View:
    data, notes = view.data, list(view.notes)
    if view.hue is not None and data.sizes[view.hue] > HUES:
        count = data.sizes[view.hue]
        data = data.isel({view.hue: np.unique(np.linspace(0, count - 1, HUES).round().astype(int))})
        notes.append(f"{HUES} of {count} values of {view.hue} drawn")
    if view.kind == "map":
        for name in (view.x, view.y):
            data = data.isel({name: slice(None, None, math.ceil(data.sizes[name] / CELLS))})
    return replace(view, data=data, notes=tuple(notes))


def spans_thousands(values: np.ndarray) -> bool:
    """Whether all finite values are positive, and the largest is 1000 times the middle one."""
    finite = values[np.isfinite(values)]
    return bool(finite.size and finite.min() > 0 and finite.max() >= 1e3 * np.median(finite))


def is_geometric(values: np.ndarray) -> bool:
    """Whether the finite values are five or more, positive, span a factor of 20, and are evenly spaced in logarithm."""
    finite = np.sort(values[np.isfinite(values)].astype(float))
    if finite.size < 5 or finite[0] <= 0 or finite[-1] < 20 * finite[0]:
        return False
    steps = np.diff(np.log(finite))
    return bool(np.ptp(steps) <= 0.01 * steps.mean())


def _spanning(data: Any, view: View) -> tuple[str, ...]:
    if not view.metrics or not all(spans_thousands(data[name].values) for name in view.metrics):
        return ()
    return {"map": ("z",), "lines": ("y",)}.get(view.kind, ())


def _geometric_axes(data: Any, view: View) -> tuple[str, ...]:
    return tuple(letter for letter, name in (("x", view.x), ("y", view.y)) if name and is_geometric(data[name].values))


def _check_names(view: View) -> None:
    names = view.options.names
    if names and (view.hue is None or len(names) != view.data.sizes[view.hue]):
        count = 0 if view.hue is None else view.data.sizes[view.hue]
        raise refuse("names", list(names), f"must hold one text for each of the {count} hue values")


def flag_words(view: View, metric: str) -> str:
    """What the NaN values of ``metric`` in the view are: ``"unstable"``, ``"unstable, undefined"``; else empty."""
    from hetjax.result import Status

    array = view.data[metric]
    missing = array.isnull()
    if not bool(missing.any()):
        return ""
    if view.options.kind == "optimum":
        return "flat, or beyond the sweep"
    if view.options.kind == "least":
        return f"none up to {array.attrs['_last']}"
    if "status" not in view.data:
        return "undefined"
    codes = np.unique(view.data["status"].where(missing, 0).values.astype(int))
    words = [Status(c).name.lower().replace("_", " ") for c in codes if c not in (0, 1)]
    undefined = bool((missing & (view.data["status"] == 1)).any())
    return ", ".join(words + (["undefined"] if undefined else []))

