"""Is a store what its records say? Files only: nothing is computed, nothing is changed.

A committed block must have one file of every array. ``fast`` compares the length of each with the one its compressor
wrote into its header, which finds files that are missing, cut or emptied. ``full`` reads all of it and compares the
checksum at its end, which finds every flipped bit, and counts the flags again.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetjax.sweep.chunk import chunk_fault
from hetjax.sweep.errors import SweepError
from hetjax.sweep.place import place
from hetjax.sweep.state import Block, block_grid, committed, grid_shape, read_attributes, read_log, result_arrays, total
from hetjax.sweep.store import count_flags
from hetjax.sweep.stored import coordinate, open_arrays


@dataclass(frozen=True)
class Verification:
    """What was found. ``damaged``: block -> what is wrong; ``others``: what is wrong outside the blocks.

    ``counts``: points by flag, counted again (``full`` only); ``recounted``: blocks whose log line tells otherwise.
    """

    path: str
    full: bool
    blocks: int
    blocks_done: int
    damaged: dict[Block, list[str]]
    others: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    recounted: list[Block] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 intact and complete, 4 damaged, 75 intact as far as it goes."""
        if self.damaged or self.others:
            return 4
        return 0 if self.blocks_done == self.blocks else 75


def verify_store(path: str | os.PathLike[str], *, full: bool = False,
                 progress: Callable[[int, int], Any] | None = None) -> Verification:
    """Checks the store at ``path``; ``progress(blocks checked, blocks)`` is called after each block.

    Time grows with the number of blocks (fast) or with the bytes of the store (full); memory with neither. A store that
    is being written may be checked: its committed blocks do not change.

    >>> from hetjax.sweep.verify import verify_store
    >>> verify_store("nowhere.zarr")
    Traceback (most recent call last):
    hetjax.sweep.errors.SweepError: nowhere.zarr does not exist; make one with: hetjax run SPEC --out nowhere.zarr
    """
    attributes = read_attributes(path)
    spec, shape, block_shape = attributes["spec"], grid_shape(attributes), tuple(attributes["block_shape"])
    grid = block_grid(shape, block_shape)
    results = result_arrays(spec)
    store = place(path)
    sizes = {name: np.dtype(spec["dtype"]).itemsize for name in results} | {"status": 1}
    others, arrays = _others(path, attributes, tuple(sizes))
    done = sorted(committed(path, grid))
    log = read_log(path) if full else {}
    damaged: dict[Block, list[str]] = {}
    counts: list[dict[str, int]] = []
    recounted: list[Block] = []
    points = math.prod(block_shape)
    for number, block in enumerate(done):
        found = [f"{name}: {wrong}" for name, size in sizes.items()
                 if (wrong := chunk_fault(store.joinpath(name, "c", *map(str, block)), points * size, full))]
        if full and not found and "status" in arrays:
            counted = count_flags(np.asarray(arrays["status"].get_block_selection(block)))
            if counted.get("pending"):
                found.append("status: points are marked as not computed")
            counts.append(counted)
            if block in log and log[block] != counted:
                recounted.append(block)
        if found:
            damaged[block] = found
        if progress is not None:
            progress(number + 1, len(done))
    return Verification(str(path), full, math.prod(grid), len(done), damaged, others, total(counts), recounted)


def _others(path: str | os.PathLike[str], attributes: dict[str, Any], results: tuple[str, ...],
            ) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with the descriptions of arrays and with coordinates, and the arrays that can be opened."""
    spec, found, arrays = attributes["spec"], [], {}
    shape, chunk = grid_shape(attributes), tuple(attributes["block_shape"])
    for name in (*results, *spec["axes"]):
        try:
            array = open_arrays(path, (name,))[name]
            if name in results and (array.shape, array.chunks) != (shape, chunk):
                found.append(f"{name}: its zarr.json is not that of this sweep")
                continue
            if name in spec["axes"]:
                coordinate(path, array, spec["axes"][name]["values"])
            arrays[name] = array
        except SweepError:
            what = "the coordinate is not that of the specification" if name in spec["axes"] else "cannot be opened"
            found.append(f"{name}: {what}")
    return found, arrays
