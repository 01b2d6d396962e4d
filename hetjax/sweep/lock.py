"""Who may write to a store: one run over everything, or several over parts of it (shards), each part once.

Locks are flocks on files beside the store; the kernel releases them however a run ends, so none is ever stale. A run
over everything holds ``lock`` alone; shards share it, and each holds a lock of its own.
"""

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from hetjax.sweep.errors import LockedError, SweepError
from hetjax.sweep.state import lock_files, lock_holder, sidecar

INIT_SECONDS = 300.0  # another shard verifies its part of the store meanwhile at most


def boot_id() -> str:
    """Tells one boot of this machine from another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@contextmanager
def exclusive(path: str | os.PathLike[str], run_id: str) -> Iterator[None]:
    """Holds the store at ``path`` alone; LockedError tells who has it."""
    with _open(sidecar(path) / "lock") as file:
        if not _lock(file, fcntl.LOCK_EX):
            raise LockedError(_refusal(path))
        _sign(file, run_id)
        yield


@contextmanager
def shared(path: str | os.PathLike[str], run_id: str, shard: int, shards: int) -> Iterator[None]:
    """Holds part ``shard`` of ``shards``; LockedError if that part, another partition or everything is held."""
    with ExitStack() as stack:
        whole = stack.enter_context(_open(sidecar(path) / "lock"))
        mine = stack.enter_context(_open(sidecar(path) / f"lock.shard-{shard}-of-{shards}"))
        if not (_lock(whole, fcntl.LOCK_SH) and _lock(mine, fcntl.LOCK_EX)):
            raise LockedError(_refusal(path))
        _sign(mine, run_id)
        for other in lock_files(path)[1:]:
            count = re.search(r"-of-(\d+)$", other.name)
            if count and int(count[1]) != shards:
                with _open(other) as file:
                    if not _lock(file, fcntl.LOCK_SH):
                        raise LockedError(f"{path} is being written in {count[1]} parts, not {shards}; wait for them or"
                                          " stop them")
        yield


@contextmanager
def initialising(path: str | os.PathLike[str]) -> Iterator[None]:
    """Held by one shard at a time while it creates the store or changes its attributes; waits for the others."""
    with _open(sidecar(path) / "lock.init") as file:
        if not _lock(file, fcntl.LOCK_EX, INIT_SECONDS):
            raise LockedError(f"{path} is being initialised by another part for more than {INIT_SECONDS:.0f} s;"
                              " look for a run that hangs")
        yield


def _open(path: Path) -> IO[str]:
    return open(path, "a+", encoding="utf-8")


def _lock(file: IO[str], kind: int, seconds: float = 0.2) -> bool:
    """Tries for a while: whoever looks who holds a lock holds it for an instant himself."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
        except OSError as error:
            raise SweepError(f"{file.name} cannot be locked ({error.strerror}); put the store on a file system"
                             " that supports flock") from None


def _sign(file: IO[str], run_id: str) -> None:
    file.seek(0)
    file.truncate()
    json.dump({"host": socket.gethostname(), "pid": os.getpid(), "boot_id": boot_id(), "run": run_id}, file)
    file.flush()


def _refusal(path: str | os.PathLike[str]) -> str:
    holder = lock_holder(path) or {}
    try:
        who = f"process {holder['pid']} on {holder['host']} (run {holder['run']})"
    except KeyError:
        who = "another process"
    return f"{path} is being written by {who}; wait for it or stop it"
