"""The pipeline of a run: one block computing, one being committed. A block that fails is tried once more, then left."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from hetjax.sweep.errors import SweepError
from hetjax.sweep.kernel import Kernel, Results
from hetjax.sweep.state import Block

POLL_SECONDS = 0.0005  # how often a waiting run looks for a finished block or a signal
Commit = Callable[[Block, Results, float], dict[str, int]]


class Failures:
    """The blocks that failed, and what to do about the next one."""

    def __init__(self, limit: int, on_failure: Callable[[Block, str], None]) -> None:
        self.limit, self.on_failure = limit, on_failure
        self.again: list[Block] = []
        self.given_up: dict[Block, str] = {}
        self._tried: set[Block] = set()

    def add(self, block: Block, error: BaseException) -> None:
        """Keeps ``block`` for a second attempt, or gives it up; raises what concerns the whole run."""
        if isinstance(error, SweepError | OSError):  # the disk, or the model's contract: other blocks fail as well
            raise error
        text = describe(error)
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
            raise SweepError(f"block {block} does not fit into memory ({text}); give a smaller block_points, or a new"
                             " store with a smaller inner_batch") from error
        if block not in self._tried:
            self._tried.add(block)
            self.again.append(block)
            return
        self.given_up[block] = text
        self.on_failure(block, text)
        if len(self.given_up) > self.limit:
            raise SweepError(f"{self.summary()}; more than max_failures = {self.limit}")

    def summary(self) -> str:
        """How many were given up, and why the first."""
        block, text = next(iter(self.given_up.items()))
        count = f"{len(self.given_up)} blocks" if len(self.given_up) > 1 else "1 block"
        return f"{count} failed twice and stay pending (first {block}: {text})"


def describe(error: BaseException) -> str:
    """An exception in one short line."""
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {' '.join(text.split())[:200]}"


def run_blocks(kernel: Kernel, blocks: Iterable[Block], commit: Commit, done: Callable[[Block, dict[str, int]], None],
               failures: Failures, stop: threading.Event) -> None:
    """Computes ``blocks``, commits them in a thread of its own, and calls ``done`` for each in this thread.

    Ends after the last block, or after the commit under way once ``stop`` is set.
    """
    left = iter(blocks)
    waiting: tuple[Block, Results] | None = None
    committing: tuple[Block, Future[dict[str, int]]] | None = None
    with ThreadPoolExecutor(1, "hetjax-commit") as committer:
        while not stop.is_set():
            begin = time.monotonic()
            following = _start(kernel, left, failures)
            if waiting is not None:
                if not _wait(waiting[1], stop):
                    break
                _finish(committing, done, failures)
                committing = None
                if stop.is_set():
                    break
                committing = waiting[0], committer.submit(commit, *waiting, time.monotonic() - begin)
            waiting = following
            if waiting is None:
                _finish(committing, done, failures)
                committing = None
                if not failures.again:
                    break
        _finish(committing, done, failures)


def _start(kernel: Kernel, left: Iterator[Block], failures: Failures) -> tuple[Block, Results] | None:
    """The next block, computing; None when there is none."""
    while True:
        block = failures.again.pop() if failures.again else next(left, None)
        if block is None:
            return None
        try:
            return block, kernel.dispatch(block)
        except Exception as error:  # whatever a model may raise
            failures.add(block, error)


def _finish(committing: tuple[Block, Future[dict[str, int]]] | None, done: Callable[[Block, dict[str, int]], None],
            failures: Failures) -> None:
    if committing is None:
        return
    block, future = committing
    try:
        counts = future.result()
    except Exception as error:  # of the device, of the model, of the disk
        failures.add(block, error)
    else:
        done(block, counts)


def _wait(results: Results, stop: threading.Event) -> bool:
    """Waits until the arrays are computed; False if the run was asked to stop first."""
    while not all(array.is_ready() for array in results.values()):  # type: ignore[attr-defined]
        if stop.wait(POLL_SECONDS):
            return False
    return not stop.is_set()
