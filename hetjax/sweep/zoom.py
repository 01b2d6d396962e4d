"""Where a metric of a store is least, and new values of an axis around there."""

import os
from collections.abc import Sequence

import numpy as np

from hetjax.sweep.errors import SpecError, nearest
from hetjax.sweep.reader import VALUE_CODES
from hetjax.sweep.state import all_blocks, read_attributes
from hetjax.sweep.stored import damaged, open_arrays

LARGEST_ZOOM = 1000


def optima(path: str | os.PathLike[str], metric: str, over: Sequence[str]) -> dict[str, np.ndarray]:
    """For each dimension of ``over`` the indices at which ``metric`` is least over all of them, in some slice.

    One optimum for each point of the other dimensions (of equal ones the first); flagged and undefined points are left
    out. Reads the store once, a block at a time; memory grows with the number of slices.
    """
    attributes = read_attributes(path)
    spec = attributes["spec"]
    if metric not in spec["metrics"]:
        raise SpecError(f"minimize = {metric!r} is no metric of {path}{nearest(metric, spec['metrics'])}")
    arrays = open_arrays(path, (metric, "status"))
    shape, names = arrays[metric].shape, spec["dims_order"]
    inner = [names.index(name) for name in over]
    outer = [d for d in range(len(names)) if d not in inner]
    sizes = tuple(shape[d] for d in inner)
    least = np.full([shape[d] for d in outer], np.inf)
    place = np.full(least.shape, -1, np.int64)
    for block in all_blocks(shape, attributes["block_shape"]):
        try:
            found = np.asarray(arrays[metric].get_block_selection(block), np.float64)
            status = np.asarray(arrays["status"].get_block_selection(block))
        except (OSError, RuntimeError, ValueError) as error:
            raise damaged(path, f"a chunk of {metric!r} cannot be read", error) from None
        found = np.where(np.isin(status, VALUE_CODES) & ~np.isnan(found), found, np.inf)
        corner = [i * b for i, b in zip(block, attributes["block_shape"], strict=True)]
        rows = found.transpose(*outer, *inner).reshape(*(found.shape[d] for d in outer), -1)
        best = rows.argmin(axis=-1)
        value = rows.min(axis=-1)
        local = np.unravel_index(best, [found.shape[d] for d in inner])
        where = np.ravel_multi_index(tuple(i + corner[d] for i, d in zip(local, inner, strict=True)), sizes)
        region = tuple(slice(corner[d], corner[d] + found.shape[d]) for d in outer)
        better = (value < least[region]) | ((value == least[region]) & np.isfinite(value) & (where < place[region]))
        least[region] = np.where(better, value, least[region])
        place[region] = np.where(better, where, place[region])
    if (place < 0).all():
        raise SpecError(f"minimize = {metric!r}: {path} has no point at which it is known; choose another metric")
    indices = np.unravel_index(np.unique(place[place >= 0]), sizes)
    return {name: np.unique(index) for name, index in zip(over, indices, strict=True)}


def between(values: np.ndarray, zoom: int = 2, near: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
    """New values that cut the intervals between the neighbours of ``values`` into ``zoom`` parts (2: midpoints).

    With ``near`` only intervals that end at one of these values. Parts are of equal ratio if neighbours grow by a
    constant factor, else of equal length; whole numbers stay whole, as many as there are.

    >>> import numpy as np
    >>> between(np.array([1.0, 10.0, 100.0])).round(3).tolist(), between(np.array([0, 1, 4])).tolist()
    ([3.162, 31.623], [2])
    >>> between(np.array([0.0, 1.0, 2.0, 3.0]), 4, near=[0.0]).tolist()
    [0.25, 0.5, 0.75]
    """
    if isinstance(zoom, bool) or not isinstance(zoom, int) or not 2 <= zoom <= LARGEST_ZOOM:
        raise SpecError(f"zoom = {zoom!r} is no whole number in [2, {LARGEST_ZOOM}]; 2 inserts midpoints")
    ordered = np.unique(values[np.isfinite(values)])
    low, high = ordered[:-1, None], ordered[1:, None]
    whole = ordered.dtype.kind == "i"
    if whole:
        new = low + (high - low) * np.arange(1, zoom) // zoom
    elif ordered.size > 2 and ordered[0] > 0 and np.allclose(high / low, high[0] / low[0], rtol=1e-9):
        part = np.arange(1, zoom) / zoom
        new = low ** (1 - part) * high**part
    else:
        new = low + (high - low) * (np.arange(1, zoom) / zoom)
    inside = (new > low) & (new < high)
    if near is not None:
        inside &= np.isin(low, near) | np.isin(high, near)
    return np.unique(new[inside])
