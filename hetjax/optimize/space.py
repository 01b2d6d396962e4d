"""What may be chosen: named variables, real between bounds, whole numbers, or shares that sum to one.

The real variables of a problem form one vector x, the whole ones one vector k; everything about their bounds is static,
so that one compilation serves every point of a sweep.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Kind = Literal["real", "whole", "simplex"]
LOGARITHMIC = 1e3  # a positive interval that spans more than this is searched on a logarithmic scale
LARGEST_WHOLE = 2**31 - 2  # int32


@dataclass(frozen=True)
class Variable:
    """One variable: a scalar or an array of ``shape`` with bounds [low, high] that hold for every entry.

    ``kind``: "real"; "whole" (int32); "simplex" (entries >= 0 that sum to one). ``relaxable``: a whole variable that
    the objective takes as a real number too, and is differentiable in; it is then given as one.
    """

    name: str
    low: float = -math.inf
    high: float = math.inf
    kind: Kind = "real"
    shape: tuple[int, ...] = ()
    relaxable: bool = True

    def __post_init__(self) -> None:
        if self.kind == "simplex" and math.prod(self.shape) < 2:
            raise ValueError(f"{self.name} has {self.size} entries; shares that sum to one are at least two")
        if not self.low <= self.high:
            raise ValueError(f"the bounds of {self.name} are [{self.low!r}, {self.high!r}]; give low <= high")
        if self.kind == "whole" and not (abs(self.low) <= LARGEST_WHOLE and abs(self.high) <= LARGEST_WHOLE
                                         and float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"the bounds of {self.name} are [{self.low!r}, {self.high!r}]; give whole numbers within"
                             f" +-{LARGEST_WHOLE}")

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    def describe(self) -> str:
        """The domain as text."""
        if self.kind == "simplex":
            return f"{self.size} shares that sum to one"
        return f"{'whole numbers in ' if self.kind == 'whole' else ''}[{self.low:g}, {self.high:g}]"


def variable(name: str, bounds: Any, shape: tuple[int, ...] = ()) -> Variable:
    """The variable that ``bounds`` describe: None (any real number), (low, high), range(..) or "simplex".

    >>> variable("K", range(0, 61)).describe(), variable("p", (0, 1)).describe()
    ('whole numbers in [0, 60]', '[0, 1]')
    """
    if bounds is None:
        return Variable(name, shape=shape)
    if isinstance(bounds, str) and bounds == "simplex":
        return Variable(name, 0.0, 1.0, "simplex", shape)
    if isinstance(bounds, range):
        if abs(bounds.step) != 1 or not bounds:
            raise ValueError(f"the bounds of {name} are {bounds!r}; give range(first, last + 1) without steps")
        return Variable(name, float(min(bounds)), float(max(bounds)), "whole", shape)
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise ValueError(f"the bounds of {name} are {bounds!r}; give (low, high), range(first, last + 1) for whole"
                         " numbers, or 'simplex'") from None
    return Variable(name, low, high, "real", shape)


@dataclass(frozen=True)
class Space:
    """The variables of a problem, in order."""

    variables: tuple[Variable, ...]

    @functools.cached_property
    def reals(self) -> tuple[Variable, ...]:
        """Those in x."""
        return tuple(v for v in self.variables if v.kind != "whole")

    @functools.cached_property
    def wholes(self) -> tuple[Variable, ...]:
        """Those in k."""
        return tuple(v for v in self.variables if v.kind == "whole")

    @functools.cached_property
    def low(self) -> np.ndarray:
        """(n,) of x."""
        return _spread(self.reals, "low")

    @functools.cached_property
    def high(self) -> np.ndarray:
        """(n,) of x."""
        return _spread(self.reals, "high")

    @functools.cached_property
    def first(self) -> np.ndarray:
        """(d,) least value of k."""
        return _spread(self.wholes, "low").astype(np.int64)

    @functools.cached_property
    def last(self) -> np.ndarray:
        """(d,) largest value of k."""
        return _spread(self.wholes, "high").astype(np.int64)

    @functools.cached_property
    def groups(self) -> np.ndarray:
        """(G, n) of 0 and 1: which entries of x sum to one."""
        owner = np.repeat(np.arange(len(self.reals)), [v.size for v in self.reals])
        rows = [owner == i for i, v in enumerate(self.reals) if v.kind == "simplex"]
        return np.array(rows, float).reshape(len(rows), owner.size)

    @functools.cached_property
    def box(self) -> int:
        """The number of whole points."""
        return math.prod(int(b - a + 1) for a, b in zip(self.first, self.last, strict=True))

    @functools.cached_property
    def relaxable(self) -> bool:
        """Whether every whole variable may be taken as real."""
        return all(v.relaxable for v in self.wholes)

    def widths(self, x: Array) -> Array:
        """(n,) what a large change of each real variable is: its interval, or its size."""
        span = np.where(np.isfinite(self.high - self.low), self.high - self.low, -1)
        known = jnp.asarray(span, x.dtype)
        return jnp.where(known > 0, known, jnp.where(known == 0, 1, jnp.maximum(jnp.abs(x), 1)))

    def values(self, x: Array, k: Array) -> dict[str, Array]:
        """The variables by name: x of its dtype; k (int32, or real for a relaxation) as each variable wants it."""
        found: dict[str, Array] = {}
        start = {"whole": 0, "x": 0}
        for v in self.variables:
            source, where = (k, "whole") if v.kind == "whole" else (x, "x")
            part = source[start[where]:start[where] + v.size].reshape(v.shape)
            found[v.name] = part.astype(x.dtype) if v.relaxable else part
            start[where] += v.size
        return found

    def vectors(self, values: Mapping[str, Any], dtype: Any) -> tuple[Array, Array]:
        """(x, k) of variables by name."""
        def joined(chosen: tuple[Variable, ...], kind: Any) -> Array:
            parts = [jnp.asarray(values[v.name]).reshape(-1).astype(kind) for v in chosen]
            return jnp.concatenate(parts) if parts else jnp.zeros(0, kind)

        return joined(self.reals, dtype), joined(self.wholes, jnp.int32)

    def centre(self, dtype: Any) -> tuple[Array, Array]:
        """(x, k) in the middle: where a search begins that is told nothing."""
        x = _from_unit(self, np.full((1, self.low.size), 0.5))[0]
        k = np.array([_middle(a, b) for a, b in zip(self.first, self.last, strict=True)])
        return jnp.asarray(x, dtype), jnp.asarray(k.reshape(-1), jnp.int32)

    def starts(self, x: Array, count: int) -> Array:
        """(count, n): ``x``, then evenly spread points; always the same."""
        if count == 1 or not x.shape[0]:
            return x[None]
        others = _from_unit(self, _kronecker(count - 1, self.low.size))
        open_ends = jnp.asarray(~np.isfinite(self.low) & ~np.isfinite(self.high))
        shift = jnp.where(open_ends, x, 0)[None]  # an unbounded variable is searched around its first value
        grown = jnp.where(open_ends, jnp.maximum(jnp.abs(x), 1), 1)[None]
        return jnp.concatenate([x[None], shift + jnp.broadcast_to(grown, others.shape) * jnp.asarray(others, x.dtype)])

    def whole_starts(self, k: Array, count: int) -> Array:
        """(count, d): ``k``, then evenly spread whole points."""
        if count == 1:
            return k[None]
        unit = _kronecker(count - 1, self.first.size)
        spread = np.floor(self.first[None] + unit * (self.last - self.first + 1)[None])
        return jnp.concatenate([k[None], jnp.asarray(np.minimum(spread, self.last[None]), jnp.int32)])


def _spread(variables: tuple[Variable, ...], field: str) -> np.ndarray:
    parts = [np.full(v.size, getattr(v, field)) for v in variables]
    return np.concatenate(parts) if parts else np.zeros(0)


def _middle(first: int, last: int) -> int:
    return int(first + last) // 2 if first <= 0 or last < LOGARITHMIC * first else round(math.sqrt(first * last))


def _kronecker(count: int, size: int) -> np.ndarray:
    """(count, size) points of the unit cube: an additive recurrence with the generalised golden ratio."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (size + 1))
    return (0.5 + np.arange(1, count + 1)[:, None] * ratio ** -np.arange(1.0, size + 1)[None]) % 1


def _from_unit(space: Space, unit: np.ndarray) -> np.ndarray:
    """Points of the unit cube as points of ``space``."""
    low, high = (np.broadcast_to(b, unit.shape) for b in (space.low, space.high))
    unit = np.clip(unit, 1e-3, 1 - 1e-3)
    both, left, right = np.isfinite(low) & np.isfinite(high), np.isfinite(low), np.isfinite(high)
    with np.errstate(all="ignore"):
        wide = both & (low > 0) & (high > LOGARITHMIC * low)
        odds = unit / (1 - unit)
        x = np.select([wide, both, left, right],
                      [low * (high / low) ** unit, low + (high - low) * unit, low + odds, high - odds], np.log(odds))
    for group in space.groups.astype(bool):
        share = -np.log(unit[:, group])
        x[:, group] = share / share.sum(axis=1, keepdims=True)
    return x
