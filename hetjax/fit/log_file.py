"""Arrival and service logs: one customer a row of a CSV file, or arrays; checked, in the order of arrival."""

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

COLUMNS = ("arrival", "start", "departure", "service", "server")
_EVERYBODY = "all"


@dataclass(frozen=True, eq=False)
class Log:
    """Times of customers in order of arrival; arrays of one length.

    ``arrival``: instants. ``start``, ``departure``: of service, or None where not logged. ``service``: durations, or
    None. ``server``: the class of the server that served him, texts, all "all" where not logged.
    """

    arrival: np.ndarray
    start: np.ndarray | None
    departure: np.ndarray | None
    service: np.ndarray | None
    server: np.ndarray

    @classmethod
    def from_arrays(cls, arrival: Any, start: Any = None, departure: Any = None, service: Any = None,
                    server: Any = None) -> "Log":
        """From columns; ValueError names the column, the row (from 0) and the value at fault.

        >>> Log.from_arrays([0.0, 1.0, 3.0], start=[0.0, 2.0, 3.0], departure=[2.0, 3.0, 4.0]).service.tolist()
        [2.0, 1.0, 1.0]
        """
        given = {"arrival": arrival, "start": start, "departure": departure, "service": service}
        columns = {name: _numbers(name, values) for name, values in given.items() if values is not None}
        texts = None if server is None else np.asarray([str(label) for label in server])
        return _checked(columns, texts, lambda row: f"row {row}")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Log":
        """From a CSV file whose first line names its columns, out of :data:`COLUMNS`, in any order.

        ``arrival`` is needed; ``service`` may stand for ``start`` and ``departure``. ValueError in one line names the
        file, the line, the column and the value at fault; OSError where the file cannot be read.
        """
        name = os.fspath(path)
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                rows = _rows(name, csv.reader(file, strict=True))
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}: byte {error.start} is no UTF-8 text; save the log as CSV in UTF-8") from None
        lines, cells = rows
        texts = cells.pop("server", None)
        columns = {column: _parsed(name, column, lines, cells[column]) for column in cells}
        server = None if texts is None else np.asarray([text.strip() for text in texts])
        if server is not None and (empty := np.flatnonzero(server == "")).size:
            raise ValueError(f"{name}, line {lines[empty[0]]}, column server: '' names no class of servers")
        return _checked(columns, server, lambda row: f"{name}, line {lines[row]}")


def _rows(name: str, reader: Any) -> tuple[list[int], dict[str, list[str]]]:
    """Line numbers and the texts of each column."""
    header: list[str] | None = None
    lines: list[int] = []
    cells: list[list[str]] = []
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if header is None:
                header = [cell.strip().lower() for cell in row]
                _check_header(name, reader.line_num, header)
            elif len(row) != len(header):
                raise ValueError(f"{name}, line {reader.line_num}: {len(row)} cells where the header has {len(header)}"
                                 f" ({', '.join(header)})")
            else:
                lines.append(reader.line_num)
                cells.append(row)
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num}: no CSV ({error})") from None
    if header is None:
        raise ValueError(f"{name} is empty; its first line names columns out of {', '.join(COLUMNS)}")
    if len(cells) < 3:
        raise ValueError(f"{name} has {len(cells)} customers; at least 3 are needed")
    return lines, {column: [row[i] for row in cells] for i, column in enumerate(header)}


def _check_header(name: str, line: int, header: list[str]) -> None:
    for column in header:
        if column not in COLUMNS:
            raise ValueError(f"{name}, line {line}: {column[:40]!r} is no column of a log; choose from"
                             f" {', '.join(COLUMNS)}")
        if header.count(column) > 1:
            raise ValueError(f"{name}, line {line}: column {column} appears twice")
    if "arrival" not in header:
        raise ValueError(f"{name}, line {line}: there is no column arrival")
    if "service" in header and ("departure" in header or "start" in header):
        raise ValueError(f"{name}, line {line}: give either service, or start and departure")


def _parsed(name: str, column: str, lines: Sequence[int], texts: Sequence[str]) -> np.ndarray:
    numbers = np.empty(len(texts))
    for i, text in enumerate(texts):
        try:
            numbers[i] = float(text)
        except ValueError:
            numbers[i] = math.nan
        if not math.isfinite(numbers[i]):
            raise ValueError(f"{name}, line {lines[i]}, column {column}: {text.strip()[:40]!r} is no finite number")
    return numbers


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        numbers = np.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} holds something that is no number; give a column of times") from None
    if numbers.ndim != 1:
        raise ValueError(f"{name} has shape {numbers.shape}; give one time for each customer")
    if (bad := np.flatnonzero(~np.isfinite(numbers))).size:
        raise ValueError(f"row {bad[0]}, column {name}: {numbers[bad[0]]} is no finite number")
    return numbers


def _checked(columns: dict[str, np.ndarray], server: np.ndarray | None, where: Any) -> Log:
    """The log of checked numbers in the order of arrival; ``where(row)`` names a row in messages."""
    arrival = columns["arrival"]
    lengths = {name: len(values) for name, values in columns.items()} | ({} if server is None else
                                                                        {"server": len(server)})
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns differ in length: {lengths}; give one entry for each customer")
    if len(arrival) < 3:
        raise ValueError(f"the log has {len(arrival)} customers; at least 3 are needed")
    start, departure, service = (columns.get(name) for name in ("start", "departure", "service"))
    if (start is None) != (departure is None):
        raise ValueError("the log has one of start and departure; give both, or durations as service")
    if service is not None and start is not None:
        raise ValueError("the log has service beside start and departure; give either")
    pairs = ((start, arrival, "start", "arrival"), (departure, start, "departure", "start"))
    for later, earlier, name, before in pairs:
        if later is not None and earlier is not None and (bad := np.flatnonzero(later < earlier)).size:
            i = bad[0]
            raise ValueError(f"{where(i)}, column {name}: {later[i]:.12g} is before its {before}, {earlier[i]:.12g}")
    if service is not None and (bad := np.flatnonzero(service < 0)).size:
        raise ValueError(f"{where(bad[0])}, column service: {service[bad[0]]:.12g} is negative")
    if start is not None and departure is not None:
        service = departure - start
    order = np.argsort(arrival, kind="stable")
    if arrival[order[0]] == arrival[order[-1]]:
        raise ValueError(f"all customers arrive at {arrival[0]:.12g}; a log of arrivals spans some time")
    labels = np.full(len(arrival), _EVERYBODY) if server is None else server
    start, departure, service = (None if x is None else x[order] for x in (start, departure, service))
    return Log(arrival[order], start, departure, service, labels[order])
