"""What a store on disk says of itself, read with the standard library only (``hetjax status`` loads no array package).

A block is committed if and only if its chunk of the ``status`` array exists; there is no other record of progress. The
sidecar folder beside the store holds the lock, a copy of the specification and one log line for each block, which is
for information: it may lack lines, and may have lines for blocks that were computed again.
"""

import fcntl
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetjax.sweep.errors import SweepError
from hetjax.sweep.lease import is_dead, is_fresh, read_lease
from hetjax.sweep.place import is_remote, object_store, place, require_reachable

FORMAT = 1
FLAGS = ("pending", "ok", "masked", "unstable", "not_converged", "nonfinite", "grad_nonfinite", "error",
         "out_of_domain")  # by code; test_store compares them with hetjax.result.Status
CLEAN = ("ok", "masked")
ATTRIBUTES = ("spec", "spec_hash", "block_shape", "inner_batch", "runs", "created", "complete", "plot", "title",
              "Conventions")
Block = tuple[int, ...]
Marks = dict[str, list[int]]  # array -> [size of its chunk's file, checksum at the file's end]


def sidecar(path: str | os.PathLike[str]) -> Path:
    """The folder beside the store at ``path``: ``grid.zarr.run``."""
    store = place(path)
    return store.with_name(store.name + ".run")


def read_attributes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The root attributes of the store; SweepError if ``path`` holds none."""
    store = place(path)
    require_reachable(store)
    try:
        attributes = json.loads((store / "zarr.json").read_text())["attributes"]
        version = attributes["hetjax_format"]
    except FileNotFoundError:
        what = "is no sweep store" if store.exists() else "does not exist"
        raise SweepError(f"{path} {what}; make one with: hetjax run SPEC --out {path}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SweepError(f"{path} is no sweep store ({type(error).__name__} reading its zarr.json)") from None
    if version != FORMAT:
        raise SweepError(f"{path} has store format {version}, not {FORMAT}; read it with the hetjax that wrote it")
    try:
        math.prod(block_grid(grid_shape(attributes), attributes["block_shape"]))
        missing = [key for key in ATTRIBUTES if key not in attributes]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
        missing = ["spec"]
    if missing:
        raise SweepError(f"{path}: the attribute {missing[0]!r} of its zarr.json is damaged; restore that file, or"
                         " delete the store and compute it again")
    return attributes


def store_stem(path: str | os.PathLike[str]) -> Path:
    """The path without the ``.zarr`` of a store, to which the endings of its figures are added; for a store that is
    not in a file system, a name in the current folder."""
    if is_remote(place(path)):
        return Path(place(path).name.removesuffix(".zarr"))
    plain = Path(str(path).removeprefix("file://"))
    return plain.with_name(plain.name.removesuffix(".zarr"))


def grid_shape(attributes: dict[str, Any]) -> tuple[int, ...]:
    """The shape of the grid, from the root attributes."""
    spec = attributes["spec"]
    values = (spec["axes"][spec["dims"][dim][0]]["values"] for dim in spec["dims_order"])
    return tuple(v["count"] if isinstance(v, dict) else len(v) for v in values)


def result_arrays(spec: dict[str, Any]) -> tuple[str, ...]:
    """The names of the metric arrays and of the derivative arrays of a stored specification."""
    return (*spec["metrics"], *(f"d_{of}__d_{wrt}" for of in spec["grad_of"] for wrt in spec["grad_wrt"]))


def block_grid(shape: Sequence[int], block_shape: Sequence[int]) -> tuple[int, ...]:
    """The number of blocks along each dimension."""
    return tuple(-(-s // b) for s, b in zip(shape, block_shape, strict=True))


def all_blocks(shape: Sequence[int], block_shape: Sequence[int]) -> Iterator[Block]:
    """Every block, the last dimension fastest."""
    return itertools.product(*map(range, block_grid(shape, block_shape)))


def block_region(block: Block, shape: Sequence[int], block_shape: Sequence[int]) -> tuple[slice, ...]:
    """The part of the grid that ``block`` holds (blocks at the upper edges may be smaller)."""
    return tuple(slice(i * b, min((i + 1) * b, s)) for i, b, s in zip(block, block_shape, shape, strict=True))


def block_size(block: Block, shape: Sequence[int], block_shape: Sequence[int]) -> int:
    """The number of grid points in ``block``."""
    return math.prod(part.stop - part.start for part in block_region(block, shape, block_shape))


def committed(path: str | os.PathLike[str], grid: Sequence[int]) -> set[Block]:
    """The blocks whose status chunk exists."""
    return chunks(path, "status", grid)


def chunks(path: str | os.PathLike[str], array: str, grid: Sequence[int]) -> set[Block]:
    """The blocks whose chunk of ``array`` exists."""
    folder = place(path) / array / "c"
    return set(_listed(folder, grid) if is_remote(folder) else _chunks(str(folder), tuple(grid)))


def _listed(folder: Path, grid: Sequence[int]) -> Iterator[Block]:
    """The same of an object store, in one request for many objects."""
    system, key = object_store(folder)
    for name in system.find(key):
        words = name.rsplit("/", len(grid))[1:]
        if all(word.isdecimal() and int(word) < size for word, size in zip(words, grid, strict=True)):
            yield tuple(map(int, words))


def _chunks(folder: str, grid: tuple[int, ...], prefix: Block = ()) -> Iterator[Block]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if not name.isdecimal() or int(name) >= grid[len(prefix)]:
            continue  # a partial file, or nothing of ours
        block = (*prefix, int(name))
        if len(block) == len(grid):
            yield block
        else:
            yield from _chunks(os.path.join(folder, name), grid, block)


def read_log(path: str | os.PathLike[str]) -> dict[Block, dict[str, int]]:
    """The points by flag of every block that has a log line; a later line replaces an earlier one."""
    return {block: counts for block, (counts, _) in _latest(path).items()}


def read_marks(path: str | os.PathLike[str]) -> dict[Block, Marks]:
    """What the log says of the chunks of each block, as far as it does."""
    return {block: marks for block, (_, marks) in _latest(path).items() if isinstance(marks, dict)}


def _latest(path: str | os.PathLike[str]) -> dict[Block, tuple[dict[str, int], Any]]:
    found: dict[Block, tuple[float, dict[str, int], Any]] = {}
    try:
        files = sorted(log_files(path), key=lambda file: file.name)
    except OSError:
        files = []
    for file in files:
        for line in file.read_bytes().decode(errors="replace").splitlines():
            try:
                entry = json.loads(line)
                block, time = tuple(map(int, entry["block"])), float(entry["time"])
                counts = {flag: int(count) for flag, count in dict(entry["counts"]).items()}
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue  # a line that a kill cut short, or one about something else
            if block not in found or time >= found[block][0]:
                found[block] = time, counts, entry.get("chunks")
    return {block: (counts, marks) for block, (_, counts, marks) in found.items()}


def log_files(path: str | os.PathLike[str]) -> list[Path]:
    """The log of every run."""
    return list((sidecar(path) / "log").glob("*.jsonl"))


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum of several counts by flag, in the order of the codes."""
    summed: Counter[str] = Counter()
    for each in counts:
        summed.update(each)
    return {flag: summed[flag] for flag in FLAGS if summed[flag]}


def flagged(counts: dict[str, int]) -> int:
    """Points that are neither ok nor left out by a where condition."""
    return sum(count for flag, count in counts.items() if flag not in CLEAN)


def lock_files(path: str | os.PathLike[str]) -> list[Path]:
    """The lock of a run over everything, then those of runs over parts (``lock.shard-0-of-4``)."""
    folder = sidecar(path)
    return [folder / "lock", *sorted(folder.glob("lock.shard-*-of-*"))]


def lease_files(path: str | os.PathLike[str]) -> list[Path]:
    """The leases in force or left behind: of a run over everything, of runs over parts, of an initialisation."""
    return sorted(sidecar(path).glob("lease*"), key=lambda file: file.name)


def lock_holder(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Who is writing to the store now ({host, pid, run, ...}; of several parts, one), or None."""
    for file in lease_files(path):
        holder = read_lease(file)
        if holder is not None and is_fresh(holder) and not is_dead(holder):
            return holder
    return None if is_remote(sidecar(path)) else _flock_holder(path)


def _flock_holder(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    for lock in lock_files(path):
        try:
            with open(lock, encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    try:
                        return dict(json.loads(file.read()))
                    except ValueError:
                        return {}
        except OSError:
            continue
    return None


@dataclass(frozen=True)
class StoreStatus:
    """How far a store is. ``counts``: points by flag, as far as the log knows; ``running``: who writes to it now."""

    path: str
    complete: bool
    blocks: int
    blocks_done: int
    points: int
    points_done: int
    counts: dict[str, int]
    unlogged: int
    running: dict[str, Any] | None
    spec_hash: str
    model: str
    metrics: list[str]
    runs: int

    @property
    def exit_code(self) -> int:
        """0 complete and clean, 3 complete with flagged points, 75 incomplete."""
        if not self.complete:
            return 75
        return 3 if flagged(self.counts) else 0


def store_status(path: str | os.PathLike[str]) -> StoreStatus:
    """Reads the state of the store at ``path``; time grows with the number of blocks, not of points."""
    attributes = read_attributes(path)
    shape, block_shape = grid_shape(attributes), attributes["block_shape"]
    grid = block_grid(shape, block_shape)
    done = committed(path, grid)
    log = read_log(path)
    return StoreStatus(
        path=str(path), complete=bool(attributes["complete"]) and len(done) == math.prod(grid),
        blocks=math.prod(grid), blocks_done=len(done), points=math.prod(shape),
        points_done=sum(block_size(block, shape, block_shape) for block in done),
        counts=total(log[block] for block in done if block in log), unlogged=sum(block not in log for block in done),
        running=lock_holder(path), spec_hash=attributes["spec_hash"], model=attributes["spec"]["model"],
        metrics=attributes["spec"]["metrics"], runs=len(attributes["runs"]))
