"""The part of a sweep that ``sel`` asks for: one value, some, or a range of an axis."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hetjax.plot.options import refuse
from hetjax.plot.text import value_text

CLOSE = 0.02  # of the axis, or of the value asked for: a value this near is taken for it, and said in the figure


def select(dataset: Any, sel: Mapping[str, Any]) -> Any:
    """The part of a sweep at the values ``sel`` (axis -> value, list or "low:high"); ValueError if there is none."""
    chosen: dict[Any, str] = {}
    for name in sel:
        along = dimension(dataset, name)
        if along in chosen:
            raise refuse("sel", [chosen[along], name], f"lie along the same dimension {along!r}; select by one of them")
        chosen[along] = name
    return dataset.isel({along: indices(name, axis_values(dataset, name), sel[name]) for along, name in chosen.items()})


def dimension(dataset: Any, name: str) -> Any:
    """The dimension along which the axis ``name`` lies."""
    return name if name in dataset.dims else dataset[name].dims[0]


def axis_values(dataset: Any, name: str) -> np.ndarray:
    """The values of an axis; a dimension without any is counted from 0."""
    return np.asarray(dataset[name].values) if name in dataset.coords else np.arange(dataset.sizes[name])


def indices(name: str, values: np.ndarray, wanted: Any) -> Any:
    """Where ``wanted`` lies on the axis ``name``: an index, or an array of them for a list or a range.

    ValueError (one line) names the nearest value there is.

    >>> indices("q", np.array([0.1, 0.5, 0.9]), 0.5)
    1
    >>> indices("q", np.array([0.1, 0.5, 0.9]), "0.4:")
    array([1, 2])
    >>> indices("q", np.array([0.1, 0.5, 0.9]), 0.7)
    Traceback (most recent call last):
    ValueError: plot: sel.q = 0.7 is no value of the axis; the nearest is 0.5
    """
    if isinstance(wanted, str) and ":" in wanted:
        ends = [_read(name, wanted, part) if part.strip() else end
                for part, end in zip(wanted.split(":", 1), (-math.inf, math.inf), strict=True)]
        found = np.flatnonzero((values >= ends[0]) & (values <= ends[1]))
        if not found.size:
            raise refuse(f"sel.{name}", wanted, f"selects nothing; the axis goes from {value_text(values.min())}"
                                                f" to {value_text(values.max())}")
        return found
    if isinstance(wanted, str):
        parts = [_read(name, wanted, part) for part in wanted.split(",")]
        wanted = parts if len(parts) > 1 else parts[0]
    if isinstance(wanted, (list, tuple)):
        if not wanted:
            raise refuse(f"sel.{name}", wanted, "is empty")
        return np.array([_index(name, values, w) for w in wanted], int)
    return _index(name, values, wanted)


def _read(name: str, whole: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise refuse(f"sel.{name}", whole, "is neither a number, nor numbers with commas, nor low:high") from None


def _index(name: str, values: np.ndarray, wanted: Any) -> int:
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)) or math.isnan(wanted):
        raise refuse(f"sel.{name}", wanted, "is no number")
    known = values.astype(float)
    if (same := np.flatnonzero(known == wanted)).size:
        return int(same[0])
    # for infinity the largest value is the nearest, for minus infinity the least
    distance = np.abs(known - float(wanted)) if np.isfinite(wanted) else -np.sign(wanted) * known
    nearest = int(np.nanargmin(distance))
    finite = known[np.isfinite(known)]
    rounding = 1e-9 * abs(float(wanted))
    close = 0.0
    if np.isfinite(wanted) and finite.size and finite.min() - rounding <= wanted <= finite.max() + rounding:
        span = float(np.ptp(finite))
        whole = np.issubdtype(values.dtype, np.integer)
        close = rounding if whole else max(rounding, CLOSE * min(span, abs(float(wanted)) or span))
    if not np.isfinite(wanted) or not distance[nearest] <= close:
        raise refuse(f"sel.{name}", wanted, f"is no value of the axis; the nearest is {value_text(values[nearest])}")
    return nearest
