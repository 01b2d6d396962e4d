"""A larger sweep from a smaller one: old points are copied, only new ones are computed.

The new points of a grid whose dimensions grew are no box, but a few: the first holds the new values of dimension 1, the
next the old values of dimension 1 and the new ones of dimension 2, and so on. Each is a sweep of its own, run into a
store beside the new one with everything a run has (resume, signals, progress). Then old store and parts are merged
block by block, by the commit protocol, and the parts deleted. A call that was stopped is simply made again.
"""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hetjax.models.registry import Model
from hetjax.sweep.errors import SpecError, SweepError, SweepInterrupted, nearest
from hetjax.sweep.kernel import choose_devices
from hetjax.sweep.lock import exclusive
from hetjax.sweep.place import holds_store, make_folder, place, remove_tree
from hetjax.sweep.plan import block_shape_for
from hetjax.sweep.problem import Problem, bind, differences
from hetjax.sweep.provenance import new_run_id, run_record
from hetjax.sweep.retry import require_same_environment
from hetjax.sweep.run import RunOptions, RunResult, run_sweep
from hetjax.sweep.spec import Dim, GridAxis
from hetjax.sweep.state import Block, all_blocks, block_region, read_attributes, sidecar
from hetjax.sweep.store import SweepStore, disk_error
from hetjax.sweep.stored import damaged, grid_values, open_arrays, stored_problem, without_values
from hetjax.sweep.verify import verify_store
from hetjax.sweep.zoom import between, optima

Rows = list[tuple[float, ...]]


def extend_sweep(old: str | os.PathLike[str], problem: Problem, out: str | os.PathLike[str],
                 options: RunOptions | None = None) -> RunResult:
    """The sweep ``problem`` in a new store ``out``; every point of the store ``old`` must be among its points.

    Raises SpecError, field by field, if anything but the values along the dimensions differs, or if an old value is
    missing. Results are those of a run from the start to the last bits (to the bit if no array shapes are traced). The
    result's ``computed`` counts the blocks of new points.
    """
    options = options or RunOptions()
    if options.shard is not None or options.executor is not None:
        raise SpecError("a store is extended by one process; leave shard and executor out, or run the new sweep by"
                        " itself")
    attributes = read_attributes(old)
    places = matches(old, attributes["spec"], problem)
    if all(index.min() >= 0 for index in places):
        raise SpecError(f"the new sweep has no point that {old} lacks; give longer axes")
    found = verify_store(old)
    if found.exit_code:
        raise SweepError(f"{old} is not complete and intact; finish or repair it with: hetjax retry {old}")
    require_same_environment(old, options)
    target = place(out)
    if holds_store(target):
        stored = read_attributes(target)
        if stored["complete"] or stored["spec_hash"] != problem.spec_hash:
            raise SpecError(f"{out} exists; give the path of a new store")
    batch = attributes["inner_batch"]
    run = replace(options, resume="auto", overwrite=False, inner_batch=batch, spec_text=None,
                  block_points=options.block_points or math.prod(attributes["block_shape"]))
    sources = [_Source(place(old), tuple(places))]
    computed = 0
    started = time.monotonic()
    try:
        for number, (part, where) in enumerate(_parts(problem, places)):
            path = sidecar(target) / "parts" / f"{number}.zarr"
            make_folder(path.parent)
            computed += run_sweep(part, str(path), run).computed
            sources.append(_Source(path, where))
        _merge(problem, target, batch, run, sources, attributes)
        last = replace(run, resume="must", progress=False, spec_text=options.spec_text)
        result = run_sweep(problem, str(target), last)
        remove_tree(sidecar(target) / "parts")
    except SweepInterrupted:
        raise SweepInterrupted(f"stopped before {out} was complete; the same command again goes on") from None
    except OSError as error:
        raise disk_error(error, out) from error
    return replace(result, restored=result.blocks, computed=computed, seconds=time.monotonic() - started)


def matches(old: str | os.PathLike[str], stored: dict[str, Any], problem: Problem) -> list[np.ndarray]:
    """For each dimension of ``problem`` the index in the store of each of its values, -1 for new ones."""
    canonical = problem.canonical()
    if found := differences(without_values(stored), without_values(canonical)):
        raise SpecError(f"{old} cannot be extended: more than the values of axes differs ({'; '.join(found)});"
                        " restore these fields")
    values = grid_values(old, stored)
    places = []
    for dim in problem.spec.dims:
        before = _rows(values, dim.axes)
        after = _rows({name: problem.spec.axis(name).values for name in dim.axes}, dim.axes)
        if missing := set(before) - set(after):
            lost = next(row for row in before if row in missing)
            words = ", ".join(f"{name} = {value!r}" for name, value in zip(dim.axes, lost, strict=True))
            raise SpecError(f"{old} cannot be extended: its value {words} is not in the new sweep; keep all old values"
                            " to the last bit (hetjax refine inserts midpoints)")
        known = {row: i for i, row in enumerate(before)}
        places.append(np.array([known.get(row, -1) for row in after]))
    return places


def _rows(values: dict[str, np.ndarray], names: Sequence[str]) -> Rows:
    return list(zip(*(values[name].tolist() for name in names), strict=True))


@dataclass(frozen=True)
class _Source:
    """A store, and for each dimension of the new sweep the index in it of each value, or -1."""

    path: Path
    places: tuple[np.ndarray, ...]


def _parts(problem: Problem, places: Sequence[np.ndarray]) -> list[tuple[Problem, tuple[np.ndarray, ...]]]:
    """The new points as disjoint grids, each with its place in the whole."""
    parts = []
    for d in range(len(places)):
        keep = [place >= 0 if e < d else place < 0 if e == d else np.ones(place.size, bool)
                for e, place in enumerate(places)]
        if all(k.any() for k in keep):
            where = tuple(np.where(k, np.cumsum(k) - 1, -1) for k in keep)
            parts.append((_restricted(problem, keep), where))
    return parts


def _restricted(problem: Problem, keep: Sequence[np.ndarray]) -> Problem:
    """The sweep over the values that ``keep`` marks along each dimension; shapes are treated as in the whole."""
    spec = problem.spec
    chosen = {name: k for dim, k in zip(spec.dims, keep, strict=True) for name in dim.axes}
    axes = tuple(replace(axis, values=axis.values[chosen[axis.name]]) for axis in spec.axes)
    dims = tuple(Dim(dim.name, int(k.sum()), dim.axes) for dim, k in zip(spec.dims, keep, strict=True))
    return replace(bind(replace(spec, axes=axes, dims=dims), problem.model), shapes=problem.shapes)


def _merge(problem: Problem, target: Path, batch: int, options: RunOptions, sources: Sequence[_Source],
           before: dict[str, Any]) -> None:
    """Writes every block of the new store that is not there yet from the stores that hold its points."""
    run_id = new_run_id()
    with exclusive(target, run_id):
        if holds_store(target):
            store = SweepStore.open(target, problem, options.on_step)
        else:
            record = run_record(run_id, choose_devices(options.devices)) | {"extended": before["spec_hash"]}
            shape = block_shape_for(problem, options.block_points or 1)
            store = SweepStore.create(target, problem, shape, batch, record, options.on_step)
            store.update_attributes(runs=[*before["runs"], record])
        try:
            names = (*problem.arrays, "status")
            opened = [(source, open_arrays(source.path, names)) for source in sources]
            done = store.done()
            for block in all_blocks(problem.spec.shape, store.block_shape):
                if block not in done:
                    store.commit(block, _assemble(problem, store, block, opened, names))
        finally:
            store.close()


def _assemble(problem: Problem, store: SweepStore, block: Block, opened: Sequence[tuple[_Source, Any]],
              names: Sequence[str]) -> dict[str, np.ndarray]:
    region = block_region(block, problem.spec.shape, store.block_shape)
    box = [part.stop - part.start for part in region]
    found = {name: np.zeros(box, np.uint8) if name == "status" else np.full(box, np.nan, problem.spec.dtype)
             for name in names}
    for source, arrays in opened:
        local = [place[part] for place, part in zip(source.places, region, strict=True)]
        here = [np.flatnonzero(place >= 0) for place in local]
        if not all(index.size for index in here):
            continue
        there = tuple(place[index] for place, index in zip(local, here, strict=True))
        for name in names:
            try:
                found[name][np.ix_(*here)] = arrays[name].oindex[there]
            except (OSError, RuntimeError, ValueError) as error:
                raise damaged(source.path, f"a chunk of {name!r} cannot be read", error) from None
    if not found["status"].all():
        where = " or ".join(str(source.path) for source, _ in opened)
        raise SweepError(f"points are missing in {where}; find them with: hetjax verify --full")
    return found


def refined_problem(old: str | os.PathLike[str], over: Sequence[str], model: Model | None = None, *,
                    minimize: str | None = None, zoom: int = 2) -> Problem:
    """The sweep of the store ``old`` with new values along the axes ``over``, for :func:`extend_sweep`.

    Intervals between neighbours are cut into ``zoom`` parts (see :func:`hetjax.sweep.zoom.between`; 2: midpoints). With
    ``minimize`` only those beside a value at which that metric is least over the axes ``over``, for some values of the
    others. Axes of a zip group or a design have no order and are refused.
    """
    problem = stored_problem(old, model)
    spec = problem.spec
    single = [dim.name for dim in spec.dims if dim.axes == (dim.name,)]
    for name in over:
        if name not in single:
            raise SpecError(f"axis {name!r} of {old} cannot be refined{nearest(name, single)}")
    best = {name: None for name in over} if minimize is None else {
        name: spec.axis(name).values[index] for name, index in optima(old, minimize, list(dict.fromkeys(over))).items()}
    axes = tuple(_refined(axis, zoom, best[axis.name]) if axis.name in over else axis for axis in spec.axes)
    sizes = {axis.name: axis.values.size for axis in axes}
    dims = tuple(replace(dim, size=sizes[dim.axes[0]]) for dim in spec.dims)
    return bind(replace(spec, axes=axes, dims=dims), problem.model)


def _refined(axis: GridAxis, zoom: int, near: np.ndarray | None) -> GridAxis:
    values = axis.values
    new = between(values, zoom, near)
    if not new.size:
        where = "between its values" if near is None else "beside its best values"
        raise SpecError(f"axis {axis.name!r} has nothing {where}; refine another one")
    merged = np.unique(np.concatenate([values, new]))
    return replace(axis, values=merged if values.size < 2 or values[0] < values[-1] else merged[::-1].copy())
