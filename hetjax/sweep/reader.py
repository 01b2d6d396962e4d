"""Reading a store: a lazily loaded, labelled xarray.Dataset that hides flagged points unless told otherwise."""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from hetjax.sweep.errors import IncompleteSweepError
from hetjax.sweep.metadata import axis_attributes, result_attributes, root_attributes, status_attributes
from hetjax.sweep.problem import Problem
from hetjax.sweep.state import (
    FLAGS,
    block_grid,
    chunks,
    committed,
    grid_shape,
    read_attributes,
    read_log,
    result_arrays,
    total,
)
from hetjax.sweep.stored import coordinate, damaged, open_arrays

VALUE_CODES = (FLAGS.index("ok"), FLAGS.index("grad_nonfinite"))  # points whose metrics are right
SLOPE_CODES = (FLAGS.index("ok"),)  # points whose derivatives are right too


class _LazyArray(BackendArray):
    """Reads from disk what is indexed; values whose status is not in ``keep`` become NaN (``keep=None``: none)."""

    def __init__(self, path: str, array: Any, status: Any, keep: tuple[int, ...] | None) -> None:
        self.path, self.array, self.status, self.keep = path, array, status, keep
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        try:
            values = self.array.oindex[key]
            return values if self.keep is None else _masked(values, self.status.oindex[key], self.keep)
        except (OSError, RuntimeError, ValueError) as error:  # of the decompressor or the checksum
            raise damaged(self.path, f"a chunk of {self.array.name.strip('/')!r} cannot be read", error) from None


def _masked(values: np.ndarray, status: np.ndarray, keep: tuple[int, ...]) -> np.ndarray:
    return np.where(np.isin(status, np.array(keep, np.uint8)), values, np.array(np.nan, values.dtype))


def _kept(about: Mapping[str, Any]) -> tuple[int, ...]:
    return SLOPE_CODES if "derivative_of" in about else VALUE_CODES


def open_sweep(path: str | os.PathLike[str], *, mask: bool = True, allow_incomplete: bool = False) -> xarray.Dataset:
    """The sweep at ``path`` as a Dataset: parameters are coordinates, metrics and ``status`` variables.

    Nothing but the coordinates is read until it is used. With ``mask`` metrics are NaN where the point is flagged
    (kept: status ok and grad_nonfinite) and derivatives where it is not ok; without it everything is as stored. A
    metric with an attribute ``undefined_where`` is NaN at those points although their status is ok. The attributes of
    ``status`` hold ``flag_values`` and ``flag_meanings``; those of the Dataset the points by flag as far as logged.

    Raises IncompleteSweepError if blocks are missing, unless ``allow_incomplete`` (then their status is 0, pending, and
    their values NaN); SweepError if ``path`` holds no sweep.

    >>> import hetjax
    >>> hetjax.open_sweep("nowhere.zarr")
    Traceback (most recent call last):
    hetjax.sweep.errors.SweepError: nowhere.zarr does not exist; make one with: hetjax run SPEC --out nowhere.zarr
    """
    attributes = read_attributes(path)
    grid = block_grid(grid_shape(attributes), attributes["block_shape"])
    spec = attributes["spec"]
    results = result_arrays(spec)
    done = committed(path, grid)
    if len(done) < math.prod(grid) and not allow_incomplete:
        raise IncompleteSweepError(f"{path} has {len(done)} of {math.prod(grid)} blocks; finish it with --resume auto,"
                                   " or read it with allow_incomplete=True")
    for name in results:
        if lost := done - chunks(path, name, grid):  # zarr would read them as NaN
            raise damaged(path, f"block {min(lost)} of {name!r} is missing")
    arrays = open_arrays(path, (*spec["axes"], *results, "status"))
    status = arrays["status"]
    coordinates = {}
    for name, about in spec["axes"].items():
        array = arrays[name]
        values = coordinate(path, array, about["values"])
        coordinates[name] = xarray.Variable(array.metadata.dimension_names, values, dict(array.attrs))
    variables = {}
    for name in (*results, "status"):
        array = arrays[name]
        about = dict(array.attrs)
        keep = _kept(about) if mask and name != "status" else None
        lazy = indexing.LazilyIndexedArray(_LazyArray(str(path), array, status, keep))
        variables[name] = xarray.Variable(spec["dims_order"], lazy, _typed_flags(about), {"chunks": array.chunks})
    counts = total(read_log(path).values()) if len(done) == math.prod(grid) else {}
    about = {"Conventions": attributes["Conventions"], "title": attributes["title"], "model": spec["model"],
             "spec_hash": attributes["spec_hash"], "created": attributes["created"]}
    if counts:
        about["points_by_flag"] = ", ".join(f"{flag}: {count}" for flag, count in counts.items())
    return xarray.Dataset(variables, coordinates, about)


def to_dataset(problem: Problem, arrays: Mapping[str, np.ndarray], mask: bool) -> xarray.Dataset:
    """Computed arrays with the labels and the masking of :func:`open_sweep`."""
    spec = problem.spec
    dims = [dim.name for dim in spec.dims]
    coordinates = {name: xarray.Variable((dim.name,), spec.axis(name).values, axis_attributes(problem, name))
                   for dim in spec.dims for name in dim.axes}
    variables = {}
    for name in problem.arrays:
        about = result_attributes(problem, name)
        values = _masked(arrays[name], arrays["status"], _kept(about)) if mask else arrays[name]
        variables[name] = xarray.Variable(dims, values, about)
    variables["status"] = xarray.Variable(dims, arrays["status"], _typed_flags(status_attributes()))
    return xarray.Dataset(variables, coordinates, {
        **root_attributes(problem), "model": spec.model, "spec_hash": problem.spec_hash})


def _typed_flags(about: dict[str, Any]) -> dict[str, Any]:
    """CF wants flag values of the type of the array."""
    if "flag_values" in about:
        about["flag_values"] = np.array(about["flag_values"], np.uint8)
    return about


def flag_words(status: xarray.DataArray) -> xarray.DataArray:
    """The codes of a sweep's ``status`` as words: ``ok``, ``unstable``, ...

    >>> import numpy as np, xarray
    >>> flag_words(xarray.DataArray(np.array([1, 3], np.uint8), dims="q")).values.tolist()
    ['ok', 'unstable']
    """
    return status.copy(data=np.array(FLAGS)[status.values]).drop_attrs()
