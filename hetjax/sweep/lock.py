"""One writer at a time: an exclusive flock on a file beside the store; the kernel releases it however a run ends."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hetjax.sweep.errors import LockedError, SweepError
from hetjax.sweep.state import sidecar


def boot_id() -> str:
    """Tells one boot of this machine from another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@contextmanager
def exclusive(path: str | os.PathLike[str], run_id: str) -> Iterator[None]:
    """Holds the lock of the store at ``path``; LockedError tells who has it."""
    with open(sidecar(path) / "lock", "a+", encoding="utf-8") as file:
        for attempt in range(5):  # someone may be looking who holds it, for an instant
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
                if attempt == 4:
                    raise LockedError(_refusal(path, file.name)) from None
            except OSError as error:
                raise SweepError(f"{file.name} cannot be locked ({error.strerror}); put the store on a file system"
                                 " that supports flock") from None
        file.seek(0)
        file.truncate()
        json.dump({"host": socket.gethostname(), "pid": os.getpid(), "boot_id": boot_id(), "run": run_id}, file)
        file.flush()
        yield


def _refusal(path: str | os.PathLike[str], lock_file: str) -> str:
    try:
        holder = json.loads(Path(lock_file).read_text())
        who = f"process {holder['pid']} on {holder['host']} (run {holder['run']})"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return f"{path} is being written by {who}; wait for it or stop it"
