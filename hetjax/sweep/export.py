"""Sweeps as netCDF, Parquet and CSV files, written box by box: memory does not grow with the sweep.

A file is written aside, flushed and renamed, so that no half of one ever has the final name. netCDF keeps the grid with
all labels. Parquet and CSV are long tables, a row for each point: the axes, the metrics, the derivatives, the status
(in Parquet its code, in CSV its word); points that a where condition left out have no row.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from hetjax.result import Status
from hetjax.sweep.compare import boxes
from hetjax.sweep.durable import replaced
from hetjax.sweep.errors import SpecError
from hetjax.sweep.state import FLAGS
from hetjax.sweep.store import disk_error

BOX = 1 << 18  # points written at a time
CSV_ROWS = 10_000_000
FORMATS = {"nc": "netCDF", "parquet": "Parquet", "csv": "CSV"}


def export_sweep(data: xarray.Dataset, out: str | os.PathLike[str], to: str | None = None, *,
                 force: bool = False) -> Path:
    """Writes the Dataset ``data`` (of ``open_sweep``, or a selection of it) to the file ``out``; returns its path.

    ``to``: "nc", "parquet" or "csv"; by default the ending of ``out`` says. ``force``: also a CSV file of more than
    CSV_ROWS rows, and over an existing file. netCDF needs h5netcdf and h5py, Parquet pyarrow: the extra ``export``.

    >>> import hetjax
    >>> from hetjax.sweep.export import export_sweep
    >>> sweep = hetjax.Sweep("stalling", {"q": [0.5, 0.7]}, metrics=["p_empty"], dtype="float32",
    ...                      const={"r": 10.0, "K": 3, "M": 5, "m": 2, "n": 1})
    >>> print(export_sweep(sweep.run_in_memory(), "points.csv").read_text().splitlines()[0])
    q,p_empty,status
    """
    path = Path(out)
    kind = to or path.suffix[1:].lower()
    if kind not in FORMATS:
        raise SpecError(f"{str(out)!r}: the format {kind!r} is unknown; choose from {', '.join(FORMATS)}")
    if "status" not in data:
        raise SpecError("the data has no status; give a Dataset of open_sweep")
    if path.exists() and not force:
        raise SpecError(f"{out} exists; choose another name, or replace it with --force")
    rows = data.status.size
    if kind == "csv" and rows > CSV_ROWS and not force:
        raise SpecError(f"{rows} rows are many for a CSV file (more than {CSV_ROWS}); select some, write Parquet, or"
                        " insist with --force")
    write: Callable[[xarray.Dataset, Path], None] = {
        "nc": _write_netcdf, "parquet": _write_parquet, "csv": _write_csv}[kind]
    try:
        with replaced(path) as file:
            write(data, file)
    except OSError as error:
        raise disk_error(error, out) from error
    return path


def box_shape(data: xarray.Dataset) -> tuple[int, ...]:
    """At most BOX points, and at most a chunk of the store: whole trailing dimensions, then a part of one."""
    chunks = data.status.encoding.get("chunks", data.status.shape)
    chunks = chunks if len(chunks) == data.status.ndim else data.status.shape
    shape, room = [], BOX
    for size, chunk in zip(reversed(data.status.shape), reversed(chunks), strict=True):
        step = max(1, min(size, chunk, room))
        room = room // step
        shape.append(step)
    return tuple(reversed(shape))


def _write_netcdf(data: xarray.Dataset, file: Path) -> None:
    h5netcdf = _needed("h5netcdf", "netCDF")
    with h5netcdf.File(file, "w") as target:
        target.dimensions = {str(dim): size for dim, size in data.sizes.items()}
        _attributes(target, data.attrs)
        for name, coordinate in data.coords.items():
            variable = target.create_variable(str(name), coordinate.dims, coordinate.dtype, data=coordinate.values)
            _attributes(variable, coordinate.attrs)
        step = box_shape(data)
        for name, array in data.data_vars.items():
            fill = {"fillvalue": np.nan} if array.dtype.kind == "f" else {}
            storage = {"chunks": step, "compression": "gzip", "compression_opts": 1, "shuffle": True} if step else {}
            variable = target.create_variable(str(name), array.dims, array.dtype, **fill, **storage)
            beside = [str(c) for c, v in data.coords.items() if c not in data.dims and set(v.dims) <= set(array.dims)]
            _attributes(variable, array.attrs | ({"coordinates": " ".join(beside)} if beside else {}))
            for box in boxes(array.shape, step):
                variable[box] = array.isel(dict(zip(array.dims, box, strict=True))).values


def _attributes(target: Any, about: dict[Any, Any]) -> None:
    for key, value in about.items():
        target.attrs[str(key)] = value


def _columns(data: xarray.Dataset) -> Iterator[dict[str, np.ndarray]]:
    """The rows of the long table box by box; names are axes, metrics, derivatives, status."""
    dims = list(data.status.dims)
    for box in boxes(data.status.shape, box_shape(data)):
        part = data.isel(dict(zip(dims, box, strict=True)))
        status = np.asarray(part.status.values).reshape(-1)
        kept = status != Status.MASKED
        flat: dict[str, np.ndarray] = {}
        for name, coordinate in part.coords.items():
            shape = [part.sizes[d] if d in coordinate.dims else 1 for d in dims]
            flat[str(name)] = np.broadcast_to(coordinate.values.reshape(shape), part.status.shape).reshape(-1)[kept]
        flat |= {str(name): np.asarray(array.values).reshape(-1)[kept]
                 for name, array in part.data_vars.items() if name != "status"}
        yield flat | {"status": status[kept]}


def _write_parquet(data: xarray.Dataset, file: Path) -> None:
    pyarrow = _needed("pyarrow", "Parquet")
    parquet = _needed("pyarrow.parquet", "Parquet")
    about = {str(name): {str(k): v for k, v in data[name].attrs.items() if isinstance(v, str)}
             for name in (*data.coords, *data.data_vars)}
    fields = [pyarrow.field(str(name), pyarrow.from_numpy_dtype(data[name].dtype), metadata=about[str(name)])
              for name in (*data.coords, *(n for n in data.data_vars if n != "status"), "status")]
    schema = pyarrow.schema(fields, metadata={"hetjax": json.dumps(data.attrs, default=str)})
    with parquet.ParquetWriter(file, schema) as writer:
        for columns in _columns(data):
            writer.write_table(pyarrow.table(columns, schema=schema))


def _write_csv(data: xarray.Dataset, file: Path) -> None:
    with open(file, "w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        head = [str(name) for name in (*data.coords, *(n for n in data.data_vars if n != "status"), "status")]
        writer.writerow(head)
        for columns in _columns(data):
            words = [FLAGS[code] for code in columns["status"].tolist()]
            writer.writerows(zip(*(_exact(columns[name]) for name in head[:-1]), words, strict=True))


def _exact(column: np.ndarray) -> list[Any]:
    """Numbers as the shortest text that gives the same bits back in the column's own type."""
    if column.dtype == np.float32:
        return [str(value) for value in column]
    return [repr(value) for value in column.tolist()]


def _needed(module: str, what: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise SpecError(f"{what} needs {module.partition('.')[0]}; install it with: pip install 'hetjax[export]'"
                        ) from None
