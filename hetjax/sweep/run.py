"""Running a sweep: block k+1 is computed while block k is written; it stops cleanly and resumes what is missing."""

import json
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import jax

from hetjax.sweep.durable import probe_writable
from hetjax.sweep.errors import SpecError, SweepInterrupted
from hetjax.sweep.kernel import Kernel, Results, check_results, choose_devices, choose_inner_batch, require_precision
from hetjax.sweep.lock import exclusive
from hetjax.sweep.plan import all_blocks, lay_out
from hetjax.sweep.problem import Problem
from hetjax.sweep.progress import Callback, Progress
from hetjax.sweep.provenance import drift, run_record
from hetjax.sweep.state import Block, block_size, flagged, read_attributes, read_log, sidecar, total
from hetjax.sweep.store import StepHook, SweepStore, disk_error, no_hook, remove_leftovers, remove_store

POLL_SECONDS = 0.0005  # how often a waiting run looks for a finished block or a signal


@dataclass(frozen=True)
class RunOptions:
    """How to run a sweep. None of this changes a result beyond its last bits (``inner_batch``).

    ``resume``: "auto" continues or starts, "must" only continues, None only starts. ``overwrite`` deletes an existing
    store first. ``hard_stop`` is called at the second signal (default: KeyboardInterrupt). ``on_step(step, block)`` is
    called at each step of a commit, from the thread that does it. On resume the store's own block shape and inner
    batch are kept, whatever is asked for here.
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


@dataclass(frozen=True)
class RunResult:
    """What a run did. ``counts``: points of the whole store by flag."""

    path: Path
    run_id: str
    blocks: int
    restored: int
    computed: int
    compilations: int
    counts: dict[str, int]
    seconds: float

    @property
    def exit_code(self) -> int:
        """0 complete and clean, 3 complete with flagged points."""
        return 3 if flagged(self.counts) else 0


def run_sweep(problem: Problem, path: str | os.PathLike[str], options: RunOptions | None = None) -> RunResult:
    """Computes what is missing of the store at ``path`` and marks it complete.

    Raises SpecError (wrong or changed specification, drift), LockedError, SweepInterrupted (stopped by a signal,
    resumable), SweepError (disk full and the like); every one leaves a store that can be resumed.
    """
    options = options or RunOptions()
    _check_options(path, options)
    require_precision(problem.spec.dtype)
    devices = choose_devices(options.devices)
    target = Path(os.path.abspath(path))
    run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    if target.exists() and not options.overwrite and options.resume is None:
        raise SpecError(f"{path} exists; continue it with --resume auto, or replace it with --overwrite")
    if target.exists():
        read_attributes(path)  # refuses what is no store before anything is written beside it
    if not target.exists() and options.resume == "must":
        raise SpecError(f"{path} does not exist, so there is nothing to resume; start with --resume auto")
    try:
        (sidecar(target) / "log").mkdir(parents=True, exist_ok=True)
        probe_writable(sidecar(target))
        probe_writable(target.parent)
        with _stop_on_signals(options.hard_stop) as stop, exclusive(target, run_id):
            return _Run(problem, target, options, devices, run_id, stop).run()
    except OSError as error:
        raise disk_error(error, path) from error


def _check_options(path: str | os.PathLike[str], options: RunOptions) -> None:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise SpecError(f"the store's path = {path!r} is no file name; give one like 'results.zarr'")
    if options.resume not in (None, "auto", "must"):
        raise SpecError(f"resume = {options.resume!r} is unknown; choose from None, 'auto', 'must'")


class _Run:
    def __init__(self, problem: Problem, path: Path, options: RunOptions, devices: list[jax.Device],
                 run_id: str, stop: threading.Event) -> None:
        self.problem, self.path, self.options, self.devices = problem, path, options, devices
        self.run_id, self.stop = run_id, stop

    def run(self) -> RunResult:
        started = time.monotonic()
        store = self._prepare()
        try:
            good, damaged = store.clean_and_verify()
            counts = self._restored_counts(store, good)
            spec = self.problem.spec
            total_blocks = math.prod(store.grid)
            restored_points = sum(block_size(b, spec.shape, store.block_shape) for b in good)
            progress = Progress(self.options.progress, spec.points, total_blocks, total(counts.values()),
                                restored_points, len(good))
            for block in damaged:
                progress.note(f"block {block} has a missing or damaged chunk and is computed again")
            kernel = Kernel(self.problem, store.block_shape, store.inner_batch, self.devices)
            try:
                self._compute(store, kernel, progress, good)
            finally:
                progress.close()
            if not store.attributes["complete"]:
                store.update_attributes(complete=True)
            return RunResult(self.path, self.run_id, total_blocks, len(good), progress.done_blocks - len(good),
                             kernel.compilations, progress.counts, time.monotonic() - started)
        finally:
            store.close()

    def _prepare(self) -> SweepStore:
        """Creates the store, or opens it and records this run in it."""
        options, problem = self.options, self.problem
        remove_leftovers(self.path)
        record = run_record(self.run_id, self.devices)
        if self.path.exists() and options.overwrite:
            remove_store(self.path)
            for log in (sidecar(self.path) / "log").glob("*.jsonl"):
                log.unlink()
        if self.path.exists():
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
            batch = choose_inner_batch(problem, options.inner_batch, record["platform"])
            layout = lay_out(problem, batch, self.devices, options.block_points)
            store = SweepStore.create(self.path, problem, layout.block_shape, batch, record, options.on_step)
        if options.spec_text is not None:
            (sidecar(self.path) / "spec.toml").write_text(options.spec_text, encoding="utf-8")
        return store

    def _restored_counts(self, store: SweepStore, good: set[Block]) -> dict[Block, dict[str, int]]:
        """Points by flag of restored blocks; those that a kill kept out of the log are counted and logged now."""
        log = read_log(self.path)
        counts = {block: log[block] for block in good if block in log}
        for block in sorted(good - counts.keys()):
            counts[block] = store.count(block)
            self._log(block, counts[block], recounted=True)
        return counts

    def _log(self, block: Block, counts: dict[str, int], **more: Any) -> None:
        line = json.dumps({"block": list(block), "counts": counts, "run": self.run_id, "time": time.time(), **more})
        with open(sidecar(self.path) / "log" / f"{self.run_id}.jsonl", "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _compute(self, store: SweepStore, kernel: Kernel, progress: Progress, good: set[Block]) -> None:
        """The pipeline: one block computing, one fetched, one being committed."""
        shape = self.problem.spec.shape
        waiting: tuple[Block, Results] | None = None
        committing: Future[tuple[Block, dict[str, int]]] | None = None

        def commit(block: Block, results: Results, computed: float) -> tuple[Block, dict[str, int]]:
            arrays = kernel.fetch(block, results)
            check_results(self.problem, arrays)
            begin = time.monotonic()
            counts = store.commit(block, arrays)
            self._log(block, counts, compute_seconds=computed, commit_seconds=time.monotonic() - begin)
            self.options.on_step("after_log", block)
            return block, counts

        def finish(future: Future[tuple[Block, dict[str, int]]] | None) -> None:
            if future is not None:
                block, counts = future.result()
                progress.add(block_size(block, shape, store.block_shape), counts)

        todo = (block for block in all_blocks(self.problem, store.block_shape) if block not in good)
        with ThreadPoolExecutor(1, "hetjax-commit") as committer:
            while not self.stop.is_set():
                begin = time.monotonic()
                block = next(todo, None)
                following = (block, kernel.dispatch(block)) if block is not None else None
                if waiting is not None:
                    if not _wait(waiting[1], self.stop):
                        break
                    finish(committing)
                    committing = None
                    if self.stop.is_set():
                        break
                    committing = committer.submit(commit, *waiting, time.monotonic() - begin)
                waiting = following
                if waiting is None:
                    break
            finish(committing)
            if self.stop.is_set() and progress.done_blocks < progress.blocks:
                raise SweepInterrupted(f"stopped after {progress.done_blocks} of {progress.blocks} blocks;"
                                       f" continue {self.path} with --resume auto")


def _wait(results: Results, stop: threading.Event) -> bool:
    """Waits until the arrays are computed; False if the run was asked to stop first."""
    while not all(array.is_ready() for array in results.values()):  # type: ignore[attr-defined]
        if stop.wait(POLL_SECONDS):
            return False
    return not stop.is_set()


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
