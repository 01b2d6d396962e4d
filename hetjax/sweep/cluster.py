"""Many machines: each block is a task of dask.distributed, whose worker computes it and commits it itself.

Workers find the sweep in the store alone, so its model must be built in or named ``module:ATTRIBUTE``, and the store
must have the same path everywhere. A task that finds its block committed does nothing, so that running one twice does
no harm; the bits do not depend on who computed what.
"""

import functools
import inspect
import logging
import shutil
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hetjax
from hetjax.sweep.checks import check_keys
from hetjax.sweep.errors import SpecError, SweepError, show
from hetjax.sweep.pipeline import Failures, describe
from hetjax.sweep.state import Block, read_attributes

WINDOW = 2  # tasks a worker that are under way or waiting for it
POLL_SECONDS = 0.2
RETRIES = 2  # of a task whose worker died
TIMEOUT = 20.0  # seconds until a scheduler must have answered
MAX_JOBS = 10_000


@dataclass(frozen=True)
class Executor:
    """Who computes: the scheduler at ``address``, ``count`` processes here, or SLURM's jobs as in ``profile``."""

    address: str | None = None
    count: int = 0
    profile: str | None = None


def check_executor(executor: str) -> Executor:
    """What ``dask:ADDRESS``, ``dask:local:N`` or ``slurm:PROFILE.toml`` names; SpecError for anything else."""
    kind, _, rest = executor.partition(":") if isinstance(executor, str) else ("", "", "")
    local, _, count = rest.partition(":")
    if kind == "dask" and local == "local" and count.isdecimal() and 0 < int(count) <= 1024:
        return Executor(count=int(count))
    if kind == "dask" and rest and local != "local":
        return Executor(rest)
    if kind == "slurm" and rest:
        read_profile(rest)
        return Executor(profile=rest)
    raise SpecError(f"executor = {show(executor)} is unknown; give dask:ADDRESS of a running scheduler, like"
                    " dask:tcp://head:8786, dask:local:N for N processes here, or slurm:PROFILE.toml")


def read_profile(path: str) -> tuple[int, dict[str, Any]]:
    """The number of jobs, and the arguments of dask_jobqueue's SLURMCluster, of a profile file."""
    try:
        profile = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"executor: the profile {path} cannot be read ({error.strerror}); give slurm:PROFILE.toml"
                        ) from None
    except ValueError as error:
        raise SpecError(f"executor: the profile {path} is no TOML file ({error})") from None
    check_keys(profile, ("jobs", "slurm"), f"key of the profile {path}")
    jobs, arguments = profile.get("jobs"), profile.get("slurm")
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 1 <= jobs <= MAX_JOBS:
        raise SpecError(f"jobs = {show(jobs)} in the profile {path} is no whole number in [1, {MAX_JOBS}]; give how"
                        " many jobs to keep running")
    if not isinstance(arguments, dict) or "memory" not in arguments:
        raise SpecError(f"the profile {path} lacks memory = ... in a table [slurm]; give each job's, like \"8GB\"")
    return jobs, {"cores": 1, "processes": 1, **arguments}


def slurm_cluster(path: str) -> tuple[Any, int]:
    """A scheduler in this process for the jobs that the profile at ``path`` describes, and their number."""
    jobs, arguments = read_profile(path)
    try:
        from dask_jobqueue import SLURMCluster
        from dask_jobqueue.core import Job
    except ImportError:
        raise SpecError("--executor slurm needs dask-jobqueue; install it with: pip install 'hetjax[cluster]'"
                        ) from None
    known = {name for made in (SLURMCluster, SLURMCluster.job_cls, Job) for name in inspect.signature(made).parameters}
    check_keys(arguments, sorted(known), f"argument of dask_jobqueue.SLURMCluster, as [slurm] of the profile {path}")
    try:
        return SLURMCluster(**arguments), jobs
    except (TypeError, ValueError) as error:
        raise SpecError(f"[slurm] of the profile {path} is refused ({describe(error)}); correct it") from None


@contextmanager
def connected(executor: str) -> Iterator[Any]:
    """A client of the scheduler that ``executor`` names; local workers are spawned, one thread each."""
    chosen = check_executor(executor)
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise SpecError("--executor needs dask.distributed; install it with: pip install 'hetjax[cluster]'") from None
    if chosen.profile and shutil.which("sbatch") is None:
        raise SpecError(f"executor = {executor!r} needs the command sbatch, which is not here; run on a login node of"
                        " the cluster, or with --shard in a job array")
    with ExitStack() as stack:
        try:
            cluster = None
            if chosen.profile:
                cluster, jobs = slurm_cluster(chosen.profile)
                stack.callback(cluster.close)
                cluster.scale(jobs=jobs)
            elif chosen.count:  # logs: a worker that is computing when the run ends is killed, which is as it should be
                cluster = stack.enter_context(LocalCluster(
                    n_workers=chosen.count, threads_per_worker=1, processes=True, memory_limit=0,
                    dashboard_address=None, silence_logs=logging.ERROR))
            client = stack.enter_context(Client(chosen.address or cluster, timeout=TIMEOUT))
        except (OSError, ValueError) as error:
            raise SweepError(f"no scheduler answers at {chosen.address or executor} ({describe(error)}); start"
                             " one with: dask scheduler") from None
        yield client


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
        future = client.submit(compute_block, str(path), run_id, block, key=key, pure=False, retries=RETRIES)
        waiting[future] = block
        return True

    try:
        while not stop.is_set():
            try:
                room = WINDOW * max(1, len(client.nthreads()))
                while len(waiting) < room and submit():
                    pass
                if not waiting:
                    return
                finished = wait(list(waiting), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                continue
            except (OSError, CancelledError):  # what distributed raises without a scheduler
                finished = set()
            if client.status != "running" or not finished:
                raise SweepError("the scheduler does not answer any more; what was committed is kept: start it again"
                                 " and continue with --resume auto")
            for future in finished:
                block = waiting.pop(future)
                try:
                    report = future.result()
                except Exception as error:  # of the model, of the disk, of workers that die again and again
                    failures.add(block, error)
                else:
                    commit(report)
    finally:
        with suppress(OSError, CancelledError, TimeoutError):
            client.cancel(list(waiting))


def compute_block(path: str, run_id: str, block: Block) -> dict[str, Any]:
    """The task: computes and commits one block of the store at ``path``, unless that is done; returns what to log."""
    from hetjax.sweep.provenance import device_kind

    store, kernel = _opened(path, run_id)
    begin = time.monotonic()
    if store.chunk("status", block).is_file():
        counts, computed = store.count(block), begin
    else:
        arrays = kernel.fetch(block, kernel.dispatch(block))
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
    from hetjax.sweep.place import place
    from hetjax.sweep.store import SweepStore
    from hetjax.sweep.stored import stored_problem

    problem, devices = stored_problem(path), choose_devices()
    store = SweepStore.open(place(path), problem)
    check_golden(problem, store.inner_batch, devices)
    return store, Kernel(problem, store.block_shape, store.inner_batch, devices)
