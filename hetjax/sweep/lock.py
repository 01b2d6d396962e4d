"""Who may write to a store: one run over everything, or several over parts of it (shards), each part once.

Locks are flocks on files beside the store; the kernel releases them however a run ends, so none is ever stale. A run
over everything holds ``lock`` alone; shards share it, and each holds a lock of its own. Where there is no flock (in an
object store, on some file systems) leases of the same meaning take their place (:mod:`hetjax.sweep.lease`).
"""

import fcntl
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from hetjax.sweep.errors import LockedError
from hetjax.sweep.lease import Lease, clear, signature
from hetjax.sweep.place import is_remote
from hetjax.sweep.state import lease_files, lock_files, lock_holder, sidecar

INIT_SECONDS = 300.0  # another shard verifies its part of the store meanwhile at most


class _NoFlock(OSError):
    """The file system does not know flock."""


@contextmanager
def exclusive(path: str | os.PathLike[str], run_id: str, on_lost: Callable[[], Any] = int) -> Iterator[None]:
    """Holds the store at ``path`` alone; LockedError tells who has it. ``on_lost`` is called, from another thread, if
    somebody takes it over, which can happen to leases only."""
    with ExitStack() as stack:
        if not _by_flock(path, lambda: _take_whole(stack, path, run_id)):
            stack.enter_context(_leased(path, run_id, "lease", lambda name: True, on_lost))
        yield


@contextmanager
def shared(path: str | os.PathLike[str], run_id: str, shard: int, shards: int,
           on_lost: Callable[[], Any] = int) -> Iterator[None]:
    """Holds part ``shard`` of ``shards``; LockedError if that part, another partition or everything is held."""
    with ExitStack() as stack:
        if not _by_flock(path, lambda: _take_shard(stack, path, run_id, shard, shards)):
            stack.enter_context(_leased(path, run_id, f"lease.shard-{shard}-of-{shards}",
                                        lambda name: not name.endswith((f"-of-{shards}", ".init")), on_lost))
        yield


@contextmanager
def initialising(path: str | os.PathLike[str]) -> Iterator[None]:
    """Held by one shard at a time while it creates the store or changes its attributes; waits for the others."""
    with ExitStack() as stack:
        if not _by_flock(path, lambda: _take_turn(stack, path)):
            end = time.monotonic() + INIT_SECONDS
            while True:
                try:
                    stack.enter_context(_leased(path, "", "lease.init", lambda name: False, int))
                    break
                except LockedError:
                    if time.monotonic() >= end:
                        raise LockedError(_hangs(path)) from None
                    time.sleep(0.1)
        yield


def _by_flock(path: str | os.PathLike[str], take: Callable[[], None]) -> bool:
    """Takes a lock by flock; False where that does not exist."""
    if is_remote(sidecar(path)):
        return False
    try:
        take()
    except _NoFlock as error:
        warnings.warn(f"{path}: its file system has no flock ({error}); locked by a lease that is renewed, which a hung"
                      " process can lose", stacklevel=4)
        return False
    return True


def _take_whole(stack: ExitStack, path: str | os.PathLike[str], run_id: str) -> None:
    file = stack.enter_context(_open(sidecar(path) / "lock"))
    if not _lock(file, fcntl.LOCK_EX):
        raise LockedError(_refusal(path, lock_holder(path)))
    _sign(file, run_id)


def _take_shard(stack: ExitStack, path: str | os.PathLike[str], run_id: str, shard: int, shards: int) -> None:
    whole = stack.enter_context(_open(sidecar(path) / "lock"))
    mine = stack.enter_context(_open(sidecar(path) / f"lock.shard-{shard}-of-{shards}"))
    if not (_lock(whole, fcntl.LOCK_SH) and _lock(mine, fcntl.LOCK_EX)):
        raise LockedError(_refusal(path, lock_holder(path)))
    _sign(mine, run_id)
    for other in lock_files(path)[1:]:
        if _parts(other.name) != shards:
            with _open(other) as file:
                if not _lock(file, fcntl.LOCK_SH):
                    raise LockedError(f"{path} is being written in {_parts(other.name)} parts, not {shards}; wait for"
                                      " them or stop them")


def _take_turn(stack: ExitStack, path: str | os.PathLike[str]) -> None:
    if not _lock(stack.enter_context(_open(sidecar(path) / "lock.init")), fcntl.LOCK_EX, INIT_SECONDS):
        raise LockedError(_hangs(path))


@contextmanager
def _leased(path: str | os.PathLike[str], run_id: str, name: str, excludes: Callable[[str], bool],
            on_lost: Callable[[], Any]) -> Iterator[None]:
    """Holds the lease ``name`` while nobody holds one that it ``excludes``: first it is taken, then others are looked
    for, so that of two that start together one at most goes on."""
    lease = Lease(sidecar(path) / name, run_id, on_lost)
    lease.take(lambda holder: LockedError(_refusal(path, holder)))
    try:
        for other in lease_files(path):
            if other.name != name and excludes(other.name):
                clear(other, lambda holder: LockedError(_refusal(path, holder)))
        yield
    finally:
        lease.release()
        if lease.lost:
            raise LockedError(f"{path} was taken over by another run while this one did not answer; what was committed"
                              " is kept")


def _parts(name: str) -> int | None:
    count = re.search(r"-of-(\d+)$", name)
    return int(count[1]) if count else None


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
            raise _NoFlock(error.strerror) from None


def _sign(file: IO[str], run_id: str) -> None:
    file.seek(0)
    file.truncate()
    json.dump(signature(run_id), file)
    file.flush()


def _refusal(path: str | os.PathLike[str], holder: dict[str, Any] | None) -> str:
    try:
        who = f"process {(holder or {})['pid']} on {(holder or {})['host']} (run {(holder or {})['run']})"
    except KeyError:
        who = "another process"
    return f"{path} is being written by {who}; wait for it or stop it"


def _hangs(path: str | os.PathLike[str]) -> str:
    return (f"{path} is being initialised by another part for more than {INIT_SECONDS:.0f} s; look for a run"
            " that hangs")
