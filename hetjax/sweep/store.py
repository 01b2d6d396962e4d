"""The store: one zarr v3 group, one array a metric, and the commit protocol that survives kills and power cuts.

A block is exactly one chunk of every array. It is committed by writing its metric chunks, flushing them, and only then
writing its ``status`` chunk and flushing that: a block whose status chunk exists is complete. A store is built aside
and renamed into place, so a half-initialised one never has the final name. In an object store, where nothing can be
renamed, its root ``zarr.json`` is put last and deleted first: without it there is no store.
"""

import errno
import json
import math
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from hetjax.sweep.chunk import CHECKSUM, chunk_fault
from hetjax.sweep.durable import remove_partials, sync_file, sync_folders, sync_tree, write_durably
from hetjax.sweep.errors import SpecError, SweepError, one_line
from hetjax.sweep.metadata import axis_attributes, result_attributes, root_attributes, status_attributes
from hetjax.sweep.place import is_remote, make_folder, put_tree, remove_tree, zarr_store
from hetjax.sweep.problem import Problem, differences
from hetjax.sweep.state import (
    FLAGS,
    FORMAT,
    Block,
    Marks,
    block_grid,
    block_region,
    committed,
    read_attributes,
    read_marks,
    sidecar,
)

StepHook = Callable[[str, Block], None]


def no_hook(step: str, block: Block) -> None:
    """Does nothing at each step of a commit; tests of faults pass something else."""


class SweepStore:
    """A store opened for writing; the caller holds its lock. Make one with :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path, problem: Problem, attributes: Mapping[str, Any], on_step: StepHook) -> None:
        self.path = path
        self.problem = problem
        self.attributes = dict(attributes)
        self.on_step = on_step
        self.block_shape: tuple[int, ...] = tuple(attributes["block_shape"])
        self.inner_batch: int = attributes["inner_batch"]
        self.grid = block_grid(problem.spec.shape, self.block_shape)
        with zarr.config.set({"array.write_empty_chunks": True}):  # an all-NaN chunk is a result, not an absence
            try:
                group = zarr.open_group(zarr_store(path), mode="r+", zarr_format=3)
                self._arrays: dict[str, Any] = {name: group[name] for name in (*problem.arrays, "status")}
                self._coordinates: dict[str, Any] = {axis.name: group[axis.name] for axis in problem.spec.axes}
            except (KeyError, TypeError, ValueError) as error:
                raise SweepError(f"{path}: its arrays cannot be opened ({one_line(error, 100)}); restore them, or"
                                 " compute the sweep again with --overwrite") from None
        self._aside = sidecar(path) / "aside"  # what a kill leaves there is not seen by readers of the group
        self._writers = ThreadPoolExecutor(2, "hetjax-writer")

    @staticmethod
    def create(path: Path, problem: Problem, block_shape: Sequence[int], inner_batch: int, run: Mapping[str, Any],
               on_step: StepHook = no_hook) -> "SweepStore":
        """Builds an empty store beside ``path``, flushes it and renames it into place (or puts it there)."""
        attributes = {
            **root_attributes(problem), "hetjax_format": FORMAT,
            "spec": problem.canonical(), "spec_hash": problem.spec_hash, "inner_batch": inner_batch,
            "block_shape": list(block_shape), "shapes": problem.shapes, "runs": [dict(run)],
            "created": run["started"], "complete": False, "plot": problem.spec.plot}
        if is_remote(path):
            _require_free(path, {"zarr.json", "status", *problem.arrays, *(axis.name for axis in problem.spec.axes)})
            with tempfile.TemporaryDirectory() as folder:
                _build(Path(folder), problem, block_shape, attributes)
                for _ in put_tree(Path(folder), path, last="zarr.json"):
                    on_step("init_before_rename", ())
        else:
            aside = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex}")
            _build(aside, problem, block_shape, attributes)
            sync_tree(aside)
            on_step("init_before_rename", ())
            aside.rename(path)
            sync_file(path.parent)
        on_step("init_after_rename", ())
        return SweepStore(path, problem, attributes, on_step)

    @staticmethod
    def open(path: Path, problem: Problem, on_step: StepHook = no_hook) -> "SweepStore":
        """Opens an existing store; SpecError tells field by field where its specification differs."""
        attributes = read_attributes(path)
        if attributes["spec_hash"] != problem.spec_hash:
            found = differences(attributes["spec"], problem.canonical())
            raise SpecError(f"{path} was made for another specification ({'; '.join(found)});"
                            " restore these fields, or write to a new path")
        return SweepStore(path, problem, attributes, on_step)

    def close(self) -> None:
        """Stops the writer threads."""
        self._writers.shutdown()

    def done(self) -> set[Block]:
        """The committed blocks."""
        return committed(self.path, self.grid)

    def clean(self) -> None:
        """Removes partial files and restores damaged coordinates; only for the holder of the exclusive lock."""
        remove_partials([self.path, self._aside])
        for name, array in self._coordinates.items():
            try:
                same = np.array_equal(array[:], self.problem.spec.axis(name).values)
            except (OSError, RuntimeError, ValueError):  # of the decompressor
                same = False
            if not same:
                array[:] = self.problem.spec.axis(name).values
                sync_tree(self.path / name)

    def verify(self, wanted: Callable[[Block], bool] = lambda block: True, full: bool = False,
               ) -> tuple[set[Block], list[Block]]:
        """(good blocks, damaged blocks, now uncommitted) of the committed ones that are ``wanted``.

        Fast: the size and the last four bytes (its checksum) of every chunk are those in the log; chunks that the log
        does not know, or knows otherwise, are read. ``full`` reads every chunk and computes its checksum.
        """
        good = {block for block in self.done() if wanted(block)}
        marks = {} if full else read_marks(self.path)
        bad = [block for block in sorted(good) if self.marks(block) != marks.get(block, {})
               and not all(self._intact(name, block) for name in self._arrays)]
        for block in bad:
            self.uncommit(block)
        return good - set(bad), bad

    def marks(self, block: Block) -> Marks:
        """The size and the checksum, as stored, of each chunk of a block; without those that are not there."""
        found: Marks = {}
        for name in self._arrays:
            try:
                with self.chunk(name, block).open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - CHECKSUM))
                    found[name] = [size, int.from_bytes(file.read(CHECKSUM), "little")]
            except OSError:
                continue
        return found

    def _intact(self, name: str, block: Block) -> bool:
        """True if the chunk's file is there, of the right size and with the checksum of its bytes at its end."""
        nbytes = math.prod(self.block_shape) * int(self._arrays[name].dtype.itemsize)
        return not chunk_fault(self.chunk(name, block), nbytes, full=True)

    def chunk(self, name: str, block: Block) -> Path:
        """The file of one chunk."""
        return self.path.joinpath(name, "c", *map(str, block))

    def uncommit(self, block: Block) -> None:
        """Takes the commit record of ``block`` away, durably."""
        chunk = self.chunk("status", block)
        if chunk.is_dir():
            chunk.rmdir()
        else:
            chunk.unlink()
        sync_file(chunk.parent)

    def read(self, block: Block) -> dict[str, np.ndarray]:
        """The arrays of a committed block."""
        return {name: np.asarray(array.get_block_selection(block)) for name, array in self._arrays.items()}

    def count(self, block: Block) -> dict[str, int]:
        """The points of a committed block by flag, read from its status chunk."""
        return count_flags(np.asarray(self._arrays["status"].get_block_selection(block)))

    def commit(self, block: Block, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Writes one computed block durably, its status last; returns its points by flag."""
        region = block_region(block, self.problem.spec.shape, self.block_shape)
        box = tuple(s.stop - s.start for s in region)
        for name, array in self._arrays.items():
            if arrays[name].shape != box or array.chunks != self.block_shape:
                raise SweepError(f"block {block}: {name} has shape {arrays[name].shape}, which is not one chunk {box}")
        self.on_step("before_metrics", block)
        writes = [self._writers.submit(self._write, name, block, region, arrays[name]) for name in self.problem.arrays]
        errors = [error for error in [write.exception() for write in writes] if error]
        if errors:
            raise errors[0]
        self.on_step("before_status", block)
        self._write("status", block, region, arrays["status"])
        self.on_step("after_status", block)
        return count_flags(arrays["status"])

    def _write(self, name: str, block: Block, region: tuple[slice, ...], values: np.ndarray) -> None:
        self._arrays[name][region] = values
        self.on_step(f"written:{name}", block)
        chunk = self.chunk(name, block)
        sync_file(chunk)
        sync_folders(chunk.parent, self.path / name)
        self.on_step(f"flushed:{name}", block)

    def update_attributes(self, **changes: Any) -> None:
        """Replaces root attributes in one durable step."""
        file = self.path / "zarr.json"
        metadata = json.loads(file.read_text())
        metadata["attributes"] |= changes
        self.attributes = metadata["attributes"]
        make_folder(self._aside)
        write_durably(file, json.dumps(metadata), self._aside)

    def update_run(self, run_id: str, **changes: Any) -> None:
        """Adds to the record of one run."""
        runs = read_attributes(self.path)["runs"]
        self.update_attributes(runs=[run | changes if run["run_id"] == run_id else run for run in runs])


def count_flags(status: np.ndarray) -> dict[str, int]:
    """The number of points of each flag."""
    counts = np.bincount(status.reshape(-1), minlength=len(FLAGS))
    return {flag: int(counts[code]) for code, flag in enumerate(FLAGS) if counts[code]}


def remove_leftovers(path: Path) -> None:
    """Deletes what killed initialisations of this store left beside it. Only for the holder of the lock."""
    if is_remote(path):
        return
    ours = re.compile(re.escape(path.name) + r"\.tmp-[0-9a-f]{32}")
    for aside in path.parent.iterdir():
        if ours.fullmatch(aside.name):
            shutil.rmtree(aside)


def remove_store(path: Path) -> None:
    """Deletes a sweep store (and nothing else): first renamed away, so that a kill leaves no half of it."""
    read_attributes(path)
    if is_remote(path):
        (path / "zarr.json").unlink()
        remove_tree(path)
        return
    aside = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex}")
    path.rename(aside)
    sync_file(path.parent)
    shutil.rmtree(aside)


def _require_free(path: Path, ours: set[str]) -> None:
    """Deletes what a killed initialisation or deletion left under the prefix; SweepError if anything else is there."""
    for item in path.iterdir() if path.exists() else ():
        if item.name not in ours:
            raise SweepError(f"{path} holds other objects ({item.name}); give a path of its own to the store")
    remove_tree(path)


def _build(path: Path, problem: Problem, block_shape: Sequence[int], attributes: Mapping[str, Any]) -> None:
    spec = problem.spec
    group = zarr.create_group(str(path), zarr_format=3, attributes=dict(attributes))
    dims = [dim.name for dim in spec.dims]
    for dim in spec.dims:
        for name in dim.axes:
            values = spec.axis(name).values
            array = group.create_array(name, shape=values.shape, chunks=values.shape, dtype=values.dtype,
                                       dimension_names=[dim.name], attributes=axis_attributes(problem, name),
                                       config={"write_empty_chunks": True})
            array[:] = values

    def result(name: str, dtype: Any, fill: Any, about: Mapping[str, Any]) -> None:
        size = np.dtype(dtype).itemsize
        compressors = [BloscCodec(cname="lz4", shuffle="bitshuffle", clevel=5, typesize=size), Crc32cCodec()]
        group.create_array(name, shape=spec.shape, chunks=tuple(block_shape), dtype=dtype, fill_value=fill,
                           dimension_names=dims, compressors=compressors, attributes=dict(about))

    for name in problem.arrays:
        result(name, spec.dtype, np.nan, result_attributes(problem, name))
    result("status", np.uint8, 0, status_attributes())


def disk_error(error: OSError, path: str | os.PathLike[str]) -> SweepError:
    """An error of the file system as one line that says what to do."""
    remedies = {
        errno.ENOSPC: "the disk is full; free space", errno.EDQUOT: "the quota is used up; free space",
        errno.EFBIG: "a file would exceed the size limit of this process; raise it (ulimit -f)",
        errno.EROFS: "the file system is read-only; choose another path", errno.EACCES: "no permission to write there",
        errno.EPERM: "no permission to write there", errno.EIO: "the disk failed"}
    reason = remedies.get(error.errno or 0, str(error.strerror or error))
    return SweepError(f"cannot write {path}: {reason}; what was committed is kept, continue with --resume auto")
