"""Design tables: scattered points instead of a grid, as ``[design]`` in a specification.

::

    [design]
    kind   = "sobol"            # or "lhs" (Latin hypercube), "halton"
    n      = 1024               # points; a Sobol sequence is balanced for powers of 2 only (else unbalanced = true)
    seed   = 7                  # default 0
    bounds = { q = [0.1, 0.9], r = [1.0, 50.0], K = [0, 40] }    # two whole numbers: whole values, both ends included
    where  = "q * r < 20"       # optional, as for an axis

    [design]
    kind   = "table"
    values = { q = [0.5, 0.7], K = [3, 5] }                      # or  file = "points.csv"  (.csv or .parquet)
    columns = ["q", "K"]        # of the file; all by default

The points are one dimension, ``point``, along which the columns lie; axes of ``[axes]`` beside it are crossed with it.
The table itself is kept in the store and hashed, so that nothing depends on the file or the random generator later.
A scrambled Sobol or Halton sequence of more points with the same seed begins with the points of a shorter one, so that
``hetjax extend`` keeps those. File names are relative to the specification's folder.
"""

import csv
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hetjax.sweep.checks import check_choice, check_identifier, check_keys, check_length, check_names, check_number
from hetjax.sweep.errors import SpecError, nearest, one_line, show
from hetjax.sweep.expressions import Expression, parse_expression

POINT = "point"  # the dimension of the points
DRAWN = ("sobol", "lhs", "halton")
KINDS = (*DRAWN, "table")
MAX_COLUMNS = 100


@dataclass(frozen=True, eq=False)
class Design:
    """A table of points: ``columns`` (name -> int64 or float64 values) and ``about``, how they were made."""

    about: Mapping[str, Any]
    columns: Mapping[str, np.ndarray]
    where: Expression | None


def read_design(table: Mapping[str, Any], folder: Path) -> Design:
    """The points that the ``[design]`` table asks for; ``folder``: where its file lies."""
    kind = check_choice(table.get("kind"), KINDS, "[design] kind")
    where = parse_expression(table["where"], "[design] where", condition=True) if "where" in table else None
    if kind == "table":
        check_keys(table, ("kind", "where", "values", "file", "columns"), "key of [design] for kind = 'table'")
        columns, about = _given(table, folder), {"kind": kind}
    else:
        check_keys(table, ("kind", "where", "n", "seed", "bounds", "unbalanced"), f"key of [design], kind = {kind!r}")
        columns, about = _drawn(kind, table)
    for name, values in columns.items():
        check_identifier(name, "column of [design]")
        values.setflags(write=False)
    return Design(about, columns, where)


def duplicates(columns: Mapping[str, np.ndarray]) -> int:
    """How many points repeat an earlier one."""
    rows = np.stack([values.astype(np.float64) for values in columns.values()], axis=1)
    return len(rows) - len(np.unique(rows, axis=0))


def _whole(table: Mapping[str, Any], key: str, low: int, default: int | None = None) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
        raise SpecError(f"[design] {key} = {show(value)} must be a whole number >= {low}")
    return value


def _drawn(kind: str, table: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    count, seed = _whole(table, "n", 1), _whole(table, "seed", 0, 0)
    check_length(count, "[design] n")
    unbalanced = table.get("unbalanced", False)
    if not isinstance(unbalanced, bool):
        raise SpecError(f"[design] unbalanced = {show(unbalanced)} is neither true nor false")
    if kind == "sobol" and count & (count - 1) and not unbalanced:
        low = 1 << (count.bit_length() - 1)
        raise SpecError(f"[design] n = {count} is no power of 2, so the Sobol points would not be balanced; give"
                        f" {low} or {2 * low}, or unbalanced = true")
    bounds = table.get("bounds")
    if not isinstance(bounds, Mapping) or not 1 <= len(bounds) <= MAX_COLUMNS:
        raise SpecError(f"[design] bounds = {show(bounds)} is no table of 1 to {MAX_COLUMNS} parameters; write"
                        " bounds = { q = [0.1, 0.9] }")
    checked = {name: _bounds(name, value) for name, value in bounds.items()}
    unit = _unit_points(kind, count, len(checked), seed)
    columns = {name: _scaled(unit[:, i], *ends) for i, (name, ends) in enumerate(checked.items())}
    about = {"kind": kind, "n": count, "seed": seed,
             "bounds": {name: [v if isinstance(v, int) else v.hex() for v in ends] for name, ends in checked.items()}}
    return columns, about


def _bounds(name: str, value: Any) -> tuple[int | float, int | float]:
    key = f"[design] bounds {name}"
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise SpecError(f"{key} = {show(value)} must be [lowest, highest]")
    low, high = (check_number(v, key) for v in value)
    if not low < high or not math.isfinite(float(high) - float(low)):
        raise SpecError(f"{key} = {show(value)} must be two finite numbers, the lower one first; a single value belongs"
                        " in [const]")
    return low, high


def _unit_points(kind: str, count: int, dimensions: int, seed: int) -> np.ndarray:
    from scipy.stats import qmc

    engine = {"sobol": qmc.Sobol, "lhs": qmc.LatinHypercube, "halton": qmc.Halton}[kind](dimensions, rng=seed)
    with warnings.catch_warnings(action="ignore"):  # of a count that is no power of 2: asked for
        return np.asarray(engine.random(count))


def _scaled(unit: np.ndarray, low: int | float, high: int | float) -> np.ndarray:
    """Points of [0, 1) spread over the bounds: real, or whole if both bounds are."""
    if isinstance(low, int) and isinstance(high, int):
        return np.minimum(low + np.floor(unit * (high - low + 1)), high).astype(np.int64)
    return np.clip(low + unit * (float(high) - float(low)), float(low), float(high))


def _given(table: Mapping[str, Any], folder: Path) -> dict[str, np.ndarray]:
    if ("values" in table) == ("file" in table):
        raise SpecError("[design] kind = 'table' needs either values = { q = [...] } or file = \"points.csv\"")
    if "values" in table:
        values = table["values"]
        if not isinstance(values, Mapping) or not 1 <= len(values) <= MAX_COLUMNS:
            raise SpecError(f"[design] values = {show(values)} is no table of 1 to {MAX_COLUMNS} lists; write"
                            " values = { q = [0.5, 0.7] }")
        if "columns" in table:
            raise SpecError("[design] columns chooses from a file; leave it out beside values")
        return _equal_lengths({name: _column(f"[design] values {name}", given) for name, given in values.items()})
    name = table["file"]
    if not isinstance(name, str) or not name or "\0" in name:
        raise SpecError(f"[design] file = {show(name)} is no file name")
    file = folder / name
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if file.suffix.lower() not in readers:
        raise SpecError(f"[design] file = {show(name)} is of an unknown kind; give one that ends in .csv or .parquet")
    try:
        found = readers[file.suffix.lower()](file)
    except SpecError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(error, 100)
        raise SpecError(f"[design] file = {show(name)} cannot be read: {reason}") from None
    wanted = check_names(table["columns"], "[design] columns") if "columns" in table else tuple(found)
    for column in wanted:
        if column not in found:
            raise SpecError(f"[design] columns: {column!r} is no column of {name}{nearest(column, found)}")
    if not 1 <= len(wanted) <= MAX_COLUMNS:
        raise SpecError(f"[design] file = {show(name)} gives {len(wanted)} columns; choose 1 to {MAX_COLUMNS} with"
                        " columns = [...]")
    return _equal_lengths({c: _column(f"[design] file {name}, column {c}", found[c]) for c in wanted})


def _column(key: str, given: Any) -> np.ndarray:
    """Numbers as int64 if all are whole, else float64."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise SpecError(f"{key} = {show(given)} is no list of numbers")
    numbers = [check_number(value, key) for value in given]
    check_length(len(numbers), key)
    return np.array(numbers, np.int64 if all(isinstance(v, int) for v in numbers) else np.float64)


def _equal_lengths(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if len({values.size for values in columns.values()}) > 1:
        found = ", ".join(f"{name} has {values.size}" for name, values in columns.items())
        raise SpecError(f"[design] the columns need equal lengths ({found})")
    return columns


def _read_csv(file: Path) -> dict[str, list[int | float]]:
    with open(file, newline="", encoding="utf-8-sig") as text:
        lines = csv.reader(text)
        header = [name.strip() for name in next(lines, [])]
        if not header or len(set(header)) != len(header):
            raise SpecError(f"[design] {file.name} needs a first line of different column names, found {show(header)}")
        columns: list[list[int | float]] = [[] for _ in header]
        for row in lines:
            if not row:
                continue
            if len(row) != len(header):
                raise SpecError(f"[design] {file.name}, line {lines.line_num}: {len(row)} values for {len(header)}"
                                " columns")
            for column, name, cell in zip(columns, header, row, strict=True):
                column.append(_cell(cell.strip(), f"[design] {file.name}, line {lines.line_num}, {name}"))
    return dict(zip(header, columns, strict=True))


def _cell(text: str, key: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{key} = {show(text)} is no number") from None


def _read_parquet(file: Path) -> dict[str, list[Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise SpecError(f"[design] {file.name}: Parquet needs pyarrow; install it with: pip install 'hetjax[export]'"
                        ) from None
    table = pyarrow.parquet.read_table(file)
    return {name: table.column(name).to_pylist() for name in table.column_names}
