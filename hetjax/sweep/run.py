"""Running a sweep: what is missing of a store is computed; a run stops cleanly and the next one resumes."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import jax
import numpy as np

from hetjax.sweep.cluster import check_executor, connected, run_tasks
from hetjax.sweep.durable import probe_writable, write_durably
from hetjax.sweep.errors import SpecError, SweepError, SweepInterrupted, show
from hetjax.sweep.golden import check_golden
from hetjax.sweep.kernel import Kernel, Results, choose_devices, require_grid, require_precision
from hetjax.sweep.lock import exclusive, initialising, shared
from hetjax.sweep.log import RunLog
from hetjax.sweep.pipeline import Failures, run_blocks
from hetjax.sweep.place import holds_store, is_remote, make_folder, place, require_reachable
from hetjax.sweep.plan import calibrated_inner_batch, lay_out
from hetjax.sweep.problem import Problem
from hetjax.sweep.progress import Callback, Progress
from hetjax.sweep.provenance import drift, new_run_id, run_record
from hetjax.sweep.spot_check import SpotCheck
from hetjax.sweep.state import (
    Block,
    all_blocks,
    block_size,
    flagged,
    log_files,
    read_attributes,
    read_log,
    sidecar,
    total,
)
from hetjax.sweep.store import StepHook, SweepStore, disk_error, no_hook, remove_leftovers, remove_store

MAX_SHARDS = 100_000


@dataclass(frozen=True)
class RunOptions:
    """How to run a sweep. None of this changes a result beyond its last bits (``inner_batch``).

    ``resume``: "auto" continues or starts, "must" only continues, None only starts. ``overwrite`` deletes an existing
    store first. ``hard_stop`` is called at the second signal (default: KeyboardInterrupt). ``on_step(step, block)`` is
    called at each step of a commit, from the thread that does it. On resume the store's own block shape and inner
    batch are kept, whatever is asked for here, and committed blocks are verified: ``verify`` "fast" compares the sizes
    and stored checksums of their chunks with the log, "full" reads them all. ``shard = (i, N)``: only the blocks i,
    i + N, i + 2 N, ...; other shards may run at the same time, and a run without ``shard`` completes the store.
    ``executor``: "dask:ADDRESS", "dask:local:N" or "slurm:PROFILE.toml" has the blocks computed by dask workers.
    """

    resume: Literal["auto", "must"] | None = None
    overwrite: bool = False
    devices: int | None = None
    inner_batch: int | None = None
    block_points: int | None = None
    allow_drift: bool = False
    progress: bool | Callback = False
    spec_text: str | None = None
    hard_stop: Callable[[], Any] | None = None
    on_step: StepHook = no_hook
    verify: Literal["fast", "full"] = "fast"
    shard: tuple[int, int] | None = None
    executor: str | None = None


@dataclass(frozen=True)
class RunResult:
    """What a run did. ``counts``: points by flag, of restored blocks too; ``mismatches``: values that the second route
    contradicts. In a shard all of it is about the shard's own blocks."""

    path: Path
    run_id: str
    blocks: int
    restored: int
    computed: int
    compilations: int
    counts: dict[str, int]
    seconds: float
    mismatches: int = 0

    @property
    def exit_code(self) -> int:
        """0 complete and clean, 3 complete with flagged or contradicted points."""
        return 3 if flagged(self.counts) or self.mismatches else 0


def run_sweep(problem: Problem, path: str | os.PathLike[str], options: RunOptions | None = None) -> RunResult:
    """Computes what is missing of the store at ``path`` and marks it complete.

    Raises SpecError (wrong or changed specification, drift), LockedError, SweepInterrupted (stopped by a signal,
    resumable), SweepError (disk full and the like); every one leaves a store that can be resumed.
    """
    options = options or RunOptions()
    _check_options(path, options)
    require_grid(problem)
    require_precision(problem.spec.dtype)
    devices = choose_devices(options.devices)
    target = place(path)
    require_reachable(target)
    there = holds_store(target)
    run_id = new_run_id()
    if there and not options.overwrite and options.resume is None:
        raise SpecError(f"{path} exists; continue it with --resume auto, or replace it with --overwrite")
    if there:
        read_attributes(path)  # refuses what is no store before anything is written beside it
    if not there and options.resume == "must":
        raise SpecError(f"{path} does not exist, so there is nothing to resume; start with --resume auto")
    try:
        make_folder(sidecar(target) / "log")
        probe_writable(sidecar(target))
        if not is_remote(target):
            probe_writable(target.parent)
        with _stop_on_signals(options.hard_stop) as stop, (
                exclusive(target, run_id, stop.set) if options.shard is None
                else shared(target, run_id, *options.shard, stop.set)):
            return _Run(problem, target, options, devices, run_id, stop).run()
    except OSError as error:
        raise disk_error(error, path) from error


def _check_options(path: str | os.PathLike[str], options: RunOptions) -> None:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise SpecError(f"the store's path = {path!r} is no file name; give one like 'results.zarr'")
    if options.resume not in (None, "auto", "must"):
        raise SpecError(f"resume = {options.resume!r} is unknown; choose from None, 'auto', 'must'")
    if options.verify not in ("fast", "full"):
        raise SpecError(f"verify = {show(options.verify)} is unknown; choose from 'fast', 'full'")
    if options.executor is not None:
        check_executor(options.executor)
    if options.shard is not None:
        try:
            part, parts = options.shard
            good = isinstance(part, int) and isinstance(parts, int) and 0 <= part < parts <= MAX_SHARDS
        except (TypeError, ValueError):
            good = False
        if not good:
            raise SpecError(f"shard = {show(options.shard)} is no part (i, N) with 0 <= i < N <= {MAX_SHARDS}")
        if options.overwrite or options.resume != "auto":
            raise SpecError("a shard shares its store with the others: it needs --resume auto and cannot --overwrite;"
                            " delete an old store before the first shard")


class _Run:
    def __init__(self, problem: Problem, path: Path, options: RunOptions, devices: list[jax.Device],
                 run_id: str, stop: threading.Event) -> None:
        self.problem, self.path, self.options, self.devices = problem, path, options, devices
        self.run_id, self.stop, self.mismatches = run_id, stop, 0
        self.log = RunLog(sidecar(path) / "log" / f"{run_id}.jsonl", run_id)

    def run(self) -> RunResult:
        started = time.monotonic()
        with self._alone():
            store = self._prepare()
        try:
            if self.options.shard is None:
                store.clean()
            mine = self._mine(store.grid)
            good, damaged = store.verify(mine, self.options.verify == "full")
            counts = self._restored_counts(store, good)
            blocks = [block for block in all_blocks(self.problem.spec.shape, store.block_shape) if mine(block)]
            progress = Progress(self.options.progress, self._points(store, blocks), len(blocks), total(counts.values()),
                                self._points(store, good), len(good))
            for block in damaged:
                progress.note(f"block {block} has a missing or damaged chunk and is computed again")
            kernel = Kernel(self.problem, store.block_shape, store.inner_batch, self.devices)
            try:
                todo = [block for block in blocks if block not in good]
                if todo:
                    self._record(store, golden=check_golden(self.problem, store.inner_batch, self.devices))
                    self._compute(store, kernel, progress, todo)
            finally:
                progress.close()
            if self.options.shard is None and not store.attributes["complete"]:
                store.update_attributes(complete=True)
            return RunResult(self.path, self.run_id, len(blocks), len(good), progress.done_blocks - len(good),
                             kernel.compilations, progress.counts, time.monotonic() - started, self.mismatches)
        finally:
            store.close()
            self.log.close()

    def _alone(self) -> AbstractContextManager[None]:
        """Shards take turns in changing what they share."""
        return nullcontext() if self.options.shard is None else initialising(self.path)

    def _mine(self, grid: Sequence[int]) -> Callable[[Block], bool]:
        """Whether this run is to compute a block: in a shard, every N-th one."""
        if self.options.shard is None:
            return lambda block: True
        part, parts = self.options.shard
        return lambda block: int(np.ravel_multi_index(block, grid)) % parts == part

    def _prepare(self) -> SweepStore:
        """Creates the store, or opens it and records this run in it."""
        options, problem = self.options, self.problem
        remove_leftovers(self.path)
        record = run_record(self.run_id, self.devices)
        if options.shard is not None:
            record["shard"] = list(options.shard)
        if holds_store(self.path) and options.overwrite:
            remove_store(self.path)
            for log in log_files(self.path):
                log.unlink()
        if holds_store(self.path):
            if options.resume is None:  # it appeared since the first look
                raise SpecError(f"{self.path} exists; continue it with --resume auto, or replace it with --overwrite")
            probe_writable(self.path)
            store = SweepStore.open(self.path, problem, options.on_step)
            changed = drift(store.attributes["runs"][-1], record)
            if changed and not options.allow_drift:
                store.close()
                raise SpecError(f"{self.path} was computed in another environment ({'; '.join(changed)}); restore it,"
                                " or accept different last bits with --allow-drift")
            if changed:
                record["allowed_drift"] = changed
            if not store.attributes["complete"] or len(store.done()) < math.prod(store.grid):
                store.update_attributes(runs=[*store.attributes["runs"], record], complete=False)
        else:
            batch, speeds = calibrated_inner_batch(problem, options.inner_batch, self.devices)
            if speeds:
                record["calibration"] = {str(b): round(v) for b, v in speeds.items()}  # points per second
            layout = lay_out(problem, batch, self.devices, options.block_points)
            store = SweepStore.create(self.path, problem, layout.block_shape, batch, record, options.on_step)
        if options.spec_text is not None:
            write_durably(sidecar(self.path) / "spec.toml", options.spec_text)
        return store

    def _restored_counts(self, store: SweepStore, good: set[Block]) -> dict[Block, dict[str, int]]:
        """Points by flag of restored blocks; those that a kill kept out of the log are counted and logged now."""
        log = read_log(self.path)
        counts = {block: log[block] for block in good if block in log}
        for block in sorted(good - counts.keys()):
            counts[block] = store.count(block)
            self.log.add(block=block, counts=counts[block], chunks=store.marks(block), recounted=True)
        return counts

    def _record(self, store: SweepStore, **found: Any) -> None:
        """Adds to the record of this run in the store."""
        with self._alone():
            store.update_run(self.run_id, **found)

    def _points(self, store: SweepStore, blocks: Iterable[Block]) -> int:
        return sum(block_size(block, self.problem.spec.shape, store.block_shape) for block in blocks)

    def _compute(self, store: SweepStore, kernel: Kernel, progress: Progress, todo: list[Block]) -> None:
        policy = self.problem.spec.policy
        spot = SpotCheck(self.problem, store.block_shape, todo, int(self.run_id[-8:], 16), _suspects(store))
        failures = Failures(policy.max_failures, lambda block, text: self.log.add(failed=block, error=text))
        stopping = policy.on_mismatch == "stop"

        def commit(block: Block, results: Results, computed: float) -> dict[str, int]:
            arrays = kernel.fetch(block, results)
            begin = time.monotonic()
            counts = store.commit(block, arrays)
            self.log.add(block=block, counts=counts, chunks=store.marks(block), compute_seconds=computed,
                      commit_seconds=time.monotonic() - begin)
            self.options.on_step("after_log", block)
            spot.look(block, arrays)
            return counts

        def done(block: Block, counts: dict[str, int]) -> None:
            progress.add(self._points(store, [block]), counts)
            if stopping and spot.mismatch.is_set():
                self.stop.set()

        def committed(report: dict[str, Any]) -> None:
            block = tuple(report["block"])
            self.log.add(**report)
            if spot.wants(block):
                spot.look(block, store.read(block))
            done(block, report["counts"])
            kinds.add(report["device_kind"])
            if len(kinds) > 1 and not self.options.allow_drift:
                raise SweepError(f"the workers have different devices ({', '.join(sorted(kinds))}), whose last bits may"
                                 " differ; use one kind, or accept it with --allow-drift")

        finished, kinds = False, set[str]()
        try:
            if self.options.executor is None:
                run_blocks(kernel, todo, commit, done, failures, self.stop)
            else:
                with connected(self.options.executor) as client:
                    run_tasks(client, self.path, self.run_id, todo, committed, failures, self.stop)
                self._record(store, executor=self.options.executor, worker_device_kinds=sorted(kinds))
            finished = True
        finally:
            findings = spot.finish(wait=finished and not self.stop.is_set())
            self._record(store, check=findings)
        self.mismatches = len(spot.findings.mismatches)
        for mismatch in spot.findings.mismatches:
            self.log.add(mismatch=str(mismatch))
            progress.note(f"block {mismatch.block}: {mismatch}")
        if self.mismatches and stopping:
            for block in {mismatch.block for mismatch in spot.findings.mismatches}:
                store.uncommit(block)
            raise SweepError(f"{self.mismatches} values of {self.path} are wrong: {spot.findings.mismatches[0]}; their"
                             " blocks are taken back and the same points are looked at again on --resume auto")
        if failures.given_up:
            raise SweepError(f"{failures.summary()}; correct the cause and continue {self.path} with --resume auto")
        if self.stop.is_set() and progress.done_blocks < progress.blocks:
            raise SweepInterrupted(f"stopped after {progress.done_blocks} of {progress.blocks} blocks;"
                                   f" continue {self.path} with --resume auto")


def _suspects(store: SweepStore) -> list[tuple[int, ...]]:
    """The points at which an earlier run found a mismatch."""
    runs = store.attributes["runs"]
    return [tuple(m["index"]) for run in runs for m in run.get("check", {}).get("mismatches", [])]


@contextmanager
def _stop_on_signals(hard_stop: Callable[[], Any] | None) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second signal ends the process, or raises KeyboardInterrupt."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            if hard_stop is not None:
                hard_stop()
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
