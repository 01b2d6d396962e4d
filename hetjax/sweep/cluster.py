"""Many machines: each block is a task of dask.distributed, whose worker computes it and commits it itself.

Workers find the sweep in the store alone, so its model must be built in or named ``module:ATTRIBUTE``, and the store
must have the same path everywhere. A task that finds its block committed does nothing, so that running one twice does
no harm; the bits do not depend on who computed what.
"""

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hetjax
from hetjax.sweep.errors import SpecError, SweepError, show
from hetjax.sweep.pipeline import Failures
from hetjax.sweep.state import Block, read_attributes

WINDOW = 2  # tasks a worker that are under way or waiting for it
POLL_SECONDS = 0.2
RETRIES = 2  # of a task whose worker died


def check_executor(executor: str) -> tuple[str | None, int]:
    """(scheduler's address, 0) of ``dask:ADDRESS``, (None, N) of ``dask:local:N``; SpecError for anything else."""
    kind, _, rest = executor.partition(":") if isinstance(executor, str) else ("", "", "")
    local, _, count = rest.partition(":")
    if kind == "dask" and local == "local" and count.isdecimal() and 0 < int(count) <= 1024:
        return None, int(count)
    if kind == "dask" and rest and local != "local":
        return rest, 0
    raise SpecError(f"executor = {show(executor)} is unknown; give dask:ADDRESS of a running scheduler, like"
                    " dask:tcp://head:8786, or dask:local:N for N processes here")


@contextmanager
def connected(executor: str) -> Iterator[Any]:
    """A client of the scheduler that ``executor`` names; local workers are spawned, one thread each."""
    address, count = check_executor(executor)
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise SpecError("--executor dask needs dask.distributed; install it with: pip install 'hetjax[cluster]'"
                        ) from None
    try:
        cluster = None if address else LocalCluster(n_workers=count, threads_per_worker=1, processes=True,
                                                    memory_limit=0, dashboard_address=None)
        client = Client(address or cluster, timeout=20)
    except (OSError, ValueError) as error:
        raise SweepError(f"no scheduler answers at {address or executor} ({' '.join(str(error).split())[:100]}); start"
                         " one with: dask scheduler") from None
    try:
        yield client
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


def run_tasks(client: Any, path: Path, run_id: str, blocks: Iterable[Block], commit: Callable[[dict[str, Any]], None],
              failures: Failures, stop: threading.Event) -> None:
    """Has ``blocks`` computed by the workers; ``commit`` is called with the report of each, in this thread."""
    from distributed import wait

    left = iter(blocks)
    waiting: dict[Any, Block] = {}

    def submit() -> bool:
        block = failures.again.pop() if failures.again else next(left, None)
        if block is None:
            return False
        key = f"hetjax-{run_id}-{'.'.join(map(str, block))}-{len(failures.given_up)}-{time.monotonic_ns()}"
        future = client.submit(compute_block, os.fspath(path), run_id, block, key=key, pure=False, retries=RETRIES)
        waiting[future] = block
        return True

    try:
        while not stop.is_set():
            room = WINDOW * max(1, len(client.nthreads()))
            while len(waiting) < room and submit():
                pass
            if not waiting:
                return
            try:
                finished = wait(list(waiting), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                continue
            for future in finished:
                block = waiting.pop(future)
                try:
                    report = future.result()
                except Exception as error:  # of the model, of the disk, of workers that die again and again
                    failures.add(block, error)
                else:
                    commit(report)
    finally:
        client.cancel(list(waiting))


def compute_block(path: str, run_id: str, block: Block) -> dict[str, Any]:
    """The task: computes and commits one block of the store at ``path``, unless that is done; returns what to log."""
    from hetjax.sweep.kernel import check_results
    from hetjax.sweep.provenance import device_kind

    store, kernel = _opened(path, run_id)
    begin = time.monotonic()
    if store.chunk("status", block).is_file():
        counts, computed = store.count(block), begin
    else:
        arrays = kernel.fetch(block, kernel.dispatch(block))
        check_results(store.problem, arrays)
        computed = time.monotonic()
        counts = store.commit(block, arrays)
    return {"block": block, "counts": counts, "chunks": store.marks(block), "compute_seconds": computed - begin,
            "commit_seconds": time.monotonic() - computed, "device_kind": device_kind(kernel.devices[0])}


@functools.lru_cache(maxsize=4)
def _opened(path: str, run_id: str) -> Any:
    """The store and its kernel, compiled once in a worker; its devices must know the golden points."""
    if read_attributes(path)["spec"]["dtype"] == "float64":
        hetjax.enable_x64()
    from hetjax.sweep.golden import check_golden
    from hetjax.sweep.kernel import Kernel, choose_devices
    from hetjax.sweep.store import SweepStore
    from hetjax.sweep.stored import stored_problem

    problem, devices = stored_problem(path), choose_devices()
    store = SweepStore.open(Path(path), problem)
    check_golden(problem, store.inner_batch, devices)
    return store, Kernel(problem, store.block_shape, store.inner_batch, devices)
