"""A sweep from its store alone: the specification and the points that it was made of, without the file or script.

The attributes of a store hold everything that decides its results; axes longer than LISTED values, and large design
tables, are hashed there and read from their coordinate arrays.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr

from hetjax.models.registry import Model
from hetjax.sweep.design import DRAWN
from hetjax.sweep.errors import SpecError, SweepError, one_line
from hetjax.sweep.expressions import parse_expression
from hetjax.sweep.optimize_table import from_canonical
from hetjax.sweep.place import holds_store, place, zarr_store
from hetjax.sweep.problem import Problem, bind, differences, exact_values
from hetjax.sweep.spec import Dim, GridAxis, Spec, ordered
from hetjax.sweep.state import read_attributes


def damaged(path: str | os.PathLike[str], what: str, error: Exception | None = None) -> SweepError:
    """The error for a store whose files were cut, emptied or lost."""
    reason = f" ({one_line(error, 100)})" if error else ""
    return SweepError(f"{path} is damaged: {what}{reason}; repair it with: hetjax run SPEC --out {path} --resume auto")


def open_arrays(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, Any]:
    """The zarr arrays called ``names``."""
    try:
        group = zarr.open_group(zarr_store(place(path)), mode="r", zarr_format=3)
        return {name: group[name] for name in names}
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise damaged(path, "its arrays cannot be opened", error) from None


def listed_values(exact: Sequence[int | str]) -> np.ndarray:
    """The values of an axis from the list in the attributes."""
    return np.array([v if isinstance(v, int) else float.fromhex(v) for v in exact])


def coordinate(path: str | os.PathLike[str], array: Any, about: Sequence[int | str] | Mapping[str, Any]) -> np.ndarray:
    """The values of the coordinate ``array``, compared with those, or the hash, that the attributes hold."""
    try:
        found = np.asarray(array[:])
    except (OSError, RuntimeError, ValueError):
        found = np.empty(0)
    same = exact_values(found) == about if isinstance(about, Mapping) else np.array_equal(listed_values(about), found)
    if not same:
        raise damaged(path, f"the coordinate {array.name.strip('/')!r} is not that of its specification")
    return found


def grid_values(path: str | os.PathLike[str], spec: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The values of every axis of the stored specification ``spec``: listed ones from it, others from their arrays."""
    hashed = [name for name, about in spec["axes"].items() if isinstance(about["values"], Mapping)]
    arrays = open_arrays(path, hashed) if hashed else {}
    return {name: coordinate(path, arrays[name], about["values"]) if name in arrays else listed_values(about["values"])
            for name, about in spec["axes"].items()}


def without_values(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A stored specification without the values of its axes and how they were drawn: what larger sweeps share."""
    axes = {name: {key: value for key, value in about.items() if key != "values"}
            for name, about in spec["axes"].items()}
    return {key: value for key, value in spec.items() if key != "design"} | {"axes": axes}


def stored_problem(path: str | os.PathLike[str], model: Model | None = None) -> Problem:
    """The sweep that made the store at ``path``, ready to run again; ``model`` replaces a look-up of its name.

    Raises SpecError with a field-by-field difference if the model has changed since.
    """
    attributes = read_attributes(path)
    stored = attributes["spec"]
    try:
        values = grid_values(path, stored)
        for array in values.values():
            array.setflags(write=False)
        axes = tuple(GridAxis(name, values[name], about["static"], _condition(about["where"], name))
                     for name, about in stored["axes"].items())
        dims = tuple(Dim(name, values[stored["dims"][name][0]].size, tuple(stored["dims"][name]))
                     for name in stored["dims_order"])
        derived = {name: parse_expression(text, f"[derived] {name}") for name, text in stored["derived"].items()}
        spec = Spec(
            model=stored["model"], metrics=tuple(stored["metrics"]), axes=axes, dims=dims,
            grad_of=tuple(stored["grad_of"]), grad_wrt=tuple(stored["grad_wrt"]), derived=ordered(derived),
            const={k: v if isinstance(v, int) else float.fromhex(v) for k, v in stored["const"].items()},
            dtype=stored["dtype"], title=attributes["title"], inner_batch=attributes["inner_batch"],
            plot=attributes["plot"], design=stored.get("design"),
            optimize=from_canonical(stored["optimize"]) if "optimize" in stored else None)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SweepError):
            raise
        raise SweepError(f"{path}: the attribute 'spec' of its zarr.json is damaged; restore that file, or delete the"
                         " store and compute it again") from None
    try:
        problem = bind(spec, model)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    if problem.spec_hash != attributes["spec_hash"]:
        changed = "; ".join(differences(stored, problem.canonical())) or "spec_hash"
        raise SpecError(f"{path} cannot be continued: its model has changed ({changed}); restore it")
    return problem


def _condition(text: str | None, name: str) -> Any:
    return parse_expression(text, f"[axes] {name} where", condition=True) if text is not None else None


def with_stored_points(problem: Problem, path: str | os.PathLike[str]) -> Problem:
    """``problem`` with the random points that the store at ``path`` drew for the same ``[design]``.

    Another version of the generator may draw others; a store that is continued keeps its own. Anything else (no store,
    another design) leaves ``problem`` as it is.
    """
    design = problem.spec.design
    if design is None or design["kind"] not in DRAWN or not holds_store(place(path)):
        return problem
    stored = read_attributes(path)["spec"]
    if stored.get("design") != dict(design) or stored["axes"].keys() != {a.name for a in problem.spec.axes}:
        return problem
    values = grid_values(path, stored)
    axes = tuple(replace(a, values=values[a.name]) if a.name in problem.spec.design_columns else a
                 for a in problem.spec.axes)
    return bind(replace(problem.spec, axes=axes), problem.model)
