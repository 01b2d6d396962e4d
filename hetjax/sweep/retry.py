"""Computing again what failed: blocks that are pending or damaged, and blocks that hold points with given flags."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hetjax.models.registry import Model
from hetjax.sweep.errors import SpecError, nearest
from hetjax.sweep.kernel import choose_devices
from hetjax.sweep.lock import exclusive
from hetjax.sweep.place import place
from hetjax.sweep.problem import Problem
from hetjax.sweep.provenance import drift, new_run_id, run_record
from hetjax.sweep.run import RunOptions, RunResult, run_sweep
from hetjax.sweep.state import FLAGS, Block, block_grid, committed, grid_shape, read_attributes, read_log
from hetjax.sweep.store import SweepStore
from hetjax.sweep.stored import open_arrays, stored_problem

RETRIED = tuple(flag for flag in FLAGS if flag not in ("pending", "masked"))


def retry_sweep(path: str | os.PathLike[str], flags: Sequence[str] = (), *, options: RunOptions | None = None,
                model: Model | None = None) -> RunResult:
    """Computes again what is pending or damaged in the store at ``path``, and every block with a point of ``flags``.

    No specification is needed: the store holds it. A block is computed whole. The same program gives the same results
    again, so ``flags`` (names like ``not_converged``) are for another hetjax, JAX or device, which
    ``RunOptions(allow_drift=True)`` must admit; without it nothing is touched. ``model`` replaces a look-up by name.
    """
    for flag in flags:
        if flag not in RETRIED:
            raise SpecError(f"status {flag!r} cannot be retried{nearest(flag, RETRIED)}")
    options = options or RunOptions()
    problem = stored_problem(path, model)
    require_same_environment(path, options)
    if flags:
        _uncommit(place(path), problem, flags)
    return run_sweep(problem, path, replace(options, resume="must", overwrite=False, verify="full"))


def require_same_environment(path: str | os.PathLike[str], options: RunOptions) -> None:
    """Raises SpecError, before anything is done, if ``path`` was computed elsewhere and that is not allowed."""
    changed = drift(read_attributes(path)["runs"][-1], run_record("", choose_devices(options.devices)))
    if changed and not options.allow_drift:
        raise SpecError(f"{path} was computed in another environment ({'; '.join(changed)}); restore it, or accept"
                        " different last bits with --allow-drift")


def blocks_with(path: str | os.PathLike[str], flags: Sequence[str]) -> list[Block]:
    """The committed blocks that hold a point with one of ``flags``, from the log where it knows."""
    attributes = read_attributes(path)
    log = read_log(path)
    status = open_arrays(path, ("status",))["status"]
    codes = [FLAGS.index(flag) for flag in flags]

    def holds(block: Block) -> bool:
        if block in log:
            return any(log[block].get(flag) for flag in flags)
        try:
            return bool(np.isin(status.get_block_selection(block), codes).any())
        except (OSError, RuntimeError, ValueError):
            return False  # damaged: the run finds it
    return sorted(filter(holds, committed(path, block_grid(grid_shape(attributes), attributes["block_shape"]))))


def _uncommit(path: Path, problem: Problem, flags: Sequence[str]) -> None:
    with exclusive(path, f"retry-{new_run_id()}"):
        store = SweepStore.open(path, problem)
        try:
            for block in blocks_with(path, flags):
                store.uncommit(block)
        finally:
            store.close()
