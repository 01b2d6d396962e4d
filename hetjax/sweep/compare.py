"""Two stores compared point by point: which points differ, by how much, and where most."""

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray

from hetjax.result import Status
from hetjax.sweep.errors import SpecError
from hetjax.sweep.problem import differences
from hetjax.sweep.reader import open_sweep
from hetjax.sweep.state import FLAGS, read_attributes, result_arrays
from hetjax.sweep.stored import without_values

Where = dict[str, float]  # a point: axis -> value


@dataclass
class MetricDifference:
    """How one metric differs. ``points``: how many do; the largest absolute and relative difference, and where.

    ``max_absolute`` is infinite where one value is and the other is not, or only one is defined.
    """

    name: str
    points: int = 0
    first: Where | None = None
    max_absolute: float = 0.0
    at_absolute: Where | None = None
    max_relative: float = 0.0
    at_relative: Where | None = None


@dataclass
class Comparison:
    """What two stores have in common, and how they differ there.

    ``points``: in both; ``only``: in the first, in the second alone; ``pending``: not computed in one of them.
    ``spec``: how the specifications differ (axis values aside). ``missing``: arrays that only one has.
    """

    points: int
    only: tuple[int, int]
    pending: int
    spec: list[str]
    missing: list[str]
    flags: int
    first_flag: str
    metrics: list[MetricDifference]

    @property
    def equal(self) -> bool:
        """True if both hold the same points with the same results."""
        return not (any(self.only) or self.pending or self.missing or self.flags or any(m.points for m in self.metrics))

    @property
    def exit_code(self) -> int:
        """0 equal, 5 different."""
        return 0 if self.equal else 5


def compare_sweeps(first: str | os.PathLike[str], second: str | os.PathLike[str], *, relative: float = 0.0,
                   absolute: float = 0.0, allow_incomplete: bool = False) -> Comparison:
    """Compares the results of two stores at the points that both hold, matched by the values of their axes.

    Values differ if they are further apart than ``absolute`` + ``relative`` times the larger magnitude; NaN equals NaN.
    Flagged values are masked first, as ``open_sweep`` does, and the flags compared. Memory does not grow with the
    stores: blocks of the first are read one by one.
    """
    for name, value in (("relative", relative), ("absolute", absolute)):
        if not 0 <= value < math.inf:
            raise SpecError(f"{name} = {value!r} is no tolerance; give a number >= 0")
    stored = [read_attributes(path)["spec"] for path in (first, second)]
    a, b = (open_sweep(path, allow_incomplete=allow_incomplete) for path in (first, second))
    if stored[0]["dims"] != stored[1]["dims"]:
        raise SpecError(f"{first} and {second} have different dimensions ({', '.join(map(str, a.dims))};"
                        f" {', '.join(map(str, b.dims))}); only sweeps over the same axes can be compared")
    names = [name for name in result_arrays(stored[0]) if name in b]
    missing = sorted(set(result_arrays(stored[0])) ^ set(result_arrays(stored[1])))
    places = [_places(a, b, stored[0]["dims"][dim]) for dim in a.dims]
    common = math.prod(int((place >= 0).sum()) for place in places)
    found = Comparison(common, (a.status.size - common, b.status.size - common), 0,
                       differences(without_values(stored[0]), without_values(stored[1])), missing, 0, "",
                       [MetricDifference(name) for name in names])
    for box in boxes(a.status.shape, read_attributes(first)["block_shape"]):
        _compare_box(a, b, box, places, found, absolute, relative)
    return found


def boxes(shape: Sequence[int], block: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """The blocks of a grid as slices, the last dimension fastest."""
    return itertools.product(*([slice(i, min(i + step, size)) for i in range(0, size, step)]
                               for size, step in zip(shape, block, strict=True)))


def _places(a: xarray.Dataset, b: xarray.Dataset, axes: Sequence[str]) -> np.ndarray:
    """For each place along a dimension of ``a`` the place of the same values in ``b``, or -1."""
    known = {row: i for i, row in enumerate(zip(*(b[name].values.tolist() for name in axes), strict=True))}
    return np.array([known.get(row, -1) for row in zip(*(a[name].values.tolist() for name in axes), strict=True)])


def _compare_box(a: xarray.Dataset, b: xarray.Dataset, box: tuple[slice, ...], places: Sequence[np.ndarray],
                 found: Comparison, absolute: float, relative: float) -> None:
    here = [np.arange(part.start, part.stop)[place[part] >= 0] for part, place in zip(box, places, strict=True)]
    if not all(index.size for index in here):
        return
    there = [place[index] for index, place in zip(here, places, strict=True)]
    x, y = (data.isel({dim: _slice(index) for dim, index in zip(a.dims, at, strict=True)})
            for data, at in ((a, here), (b, there)))
    codes = np.asarray(x.status.values), np.asarray(y.status.values)
    waiting = (codes[0] == Status.PENDING) | (codes[1] == Status.PENDING)
    found.pending += int(waiting.sum())
    flagged = (codes[0] != codes[1]) & ~waiting
    if flagged.any():
        if not found.flags:
            at = tuple(np.argwhere(flagged)[0])
            found.first_flag = f"{FLAGS[codes[0][at]]} -> {FLAGS[codes[1][at]]} at {text(_point(x, at))}"
        found.flags += int(flagged.sum())
    for metric in found.metrics:
        left, right = (np.asarray(data[metric.name].values, np.float64) for data in (x, y))
        with np.errstate(invalid="ignore"):
            apart = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, np.abs(left - right))
            apart = np.where(np.isnan(apart), np.inf, apart)
            size = np.fmax(np.abs(left), np.abs(right))
            ratio = np.where(np.isinf(apart), np.inf, apart / np.where(apart > 0, size, 1.0))
            differ = (apart > absolute + relative * np.where(np.isfinite(size), size, 0.0)) & ~waiting
        if not differ.any():
            continue
        metric.points += int(differ.sum())
        if metric.first is None:
            metric.first = _point(x, tuple(np.argwhere(differ)[0]))
        for values, worst, at_worst in ((apart, "max_absolute", "at_absolute"), (ratio, "max_relative", "at_relative")):
            at = np.unravel_index(np.argmax(np.where(differ, values, -1.0)), values.shape)
            if values[at] > getattr(metric, worst):
                setattr(metric, worst, float(values[at]))
                setattr(metric, at_worst, _point(x, at))


def _slice(index: np.ndarray) -> Any:
    """A slice where that says the same: it reads faster."""
    first, last = int(index[0]), int(index[-1])
    return slice(first, last + 1) if np.array_equal(index, np.arange(first, last + 1)) else index


def _point(data: xarray.Dataset, at: Sequence[Any]) -> Where:
    place = dict(zip(data.dims, at, strict=True))
    return {str(name): c.values[place[c.dims[0]]].item() for name, c in data.coords.items()}


def text(point: Where | None) -> str:
    """A point for people: ``q = 0.5, K = 3``."""
    return ", ".join(f"{name} = {value:.12g}" for name, value in (point or {}).items())
