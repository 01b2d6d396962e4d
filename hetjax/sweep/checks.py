"""Checks of single values in a specification: each refusal is a SpecError in one line with key, value and remedy."""

import keyword
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetjax.sweep.errors import SpecError, nearest, show
from hetjax.sweep.expressions import CONSTANTS, FUNCTIONS

MAX_AXIS = 10_000_000
MAX_NAME = 64  # characters: names become files and labels


def check_keys(table: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    """Refuses keys that are not ``known``."""
    for key in table:
        if key not in known:
            raise SpecError(f"{key!r} is no {what}{nearest(key, known)}")


def check_identifier(name: Any, what: str) -> str:
    """``name`` if it can name an axis, a constant or a dimension."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise SpecError(f"{show(name)} is no {what}: use letters, digits and _, beginning with a letter")
    if keyword.iskeyword(name) or unicodedata.normalize("NFKC", name) != name or len(name) > MAX_NAME:
        raise SpecError(f"{show(name)} cannot be a {what}: it is a word of Python, a letter with a double in Unicode or"
                        f" longer than {MAX_NAME}; rename it")
    if name in CONSTANTS or name in FUNCTIONS or name == "status" or name.startswith("d_"):
        raise SpecError(f"{name!r} cannot be a {what}, it has a meaning of its own; rename it")
    return name


def check_number(value: Any, key: str) -> int | float:
    """``value`` as a Python number; whole numbers stay whole."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise SpecError(f"{key} = {show(value)} is no number")
    if isinstance(value, int | np.integer):
        if abs(int(value)) > 2**53:
            raise SpecError(f"{key} = {show(value)} is beyond 2^53: whole numbers are not exact; write it as a float")
        return int(value)
    if math.isnan(value):
        raise SpecError(f"{key} = nan is no parameter value; leave the point out with where")
    return float(value)


def check_length(count: int, key: str) -> None:
    """Refuses more values than an axis may have."""
    if count > MAX_AXIS:
        raise SpecError(f"{key} has {count} values, more than {MAX_AXIS}; split the sweep")


def check_names(value: Any, key: str) -> tuple[str, ...]:
    """``value`` as a tuple of different names."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
        raise SpecError(f"{key} = {show(value)} is no list of names; write [\"name\", ...]")
    if len(set(value)) != len(value):
        raise SpecError(f"{key} = {list(value)!r} names something twice")
    return tuple(value)


def check_choice[T: str](value: Any, known: tuple[T, ...], key: str) -> T:
    """The one of ``known`` that ``value`` is."""
    if value not in known:
        raise SpecError(f"{key} = {show(value)} is unknown; choose from {', '.join(known)}")
    return known[known.index(value)]
