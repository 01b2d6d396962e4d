"""Locks where there is no flock (object stores, some cluster file systems): files that their holder keeps renewing.

A lease is taken by creating its file, which only one process can do, and renewed every ``BEAT`` seconds. One whose
process is known to be gone, or that nobody renewed for several beats while we watched (so that clocks need not agree),
may be taken over. A holder that was suspended so long that it lost its lease stops at its next beat. A lease is weaker
than flock: a process that hangs between two beats may still write a block when another has taken over, which does no
harm, because both write the same bits.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetjax.sweep.errors import LockedError
from hetjax.sweep.place import is_remote, object_store

BEAT = 15.0  # seconds between two renewals
FRESH = 4 * BEAT  # a lease renewed within this time is taken to be alive without watching it
WATCH = 3 * BEAT  # how long an older one is watched before it is taken over


def boot_id() -> str:
    """Tells one boot of this machine from another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def signature(run_id: str) -> dict[str, Any]:
    """Who holds a lock."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot_id": boot_id(), "run": run_id}


Refusal = Callable[[dict[str, Any]], LockedError]


class Lease:
    """The lease in ``file``. ``on_lost`` is called, from another thread, when somebody else has taken it over."""

    def __init__(self, file: Path, run_id: str, on_lost: Callable[[], Any]) -> None:
        self.file, self.on_lost, self.lost = file, on_lost, False
        self.about = {**signature(run_id), "token": uuid.uuid4().hex}
        self._end = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="hetjax-lease", daemon=True)

    def take(self, refusal: Refusal) -> None:
        """Takes the lease; raises ``refusal(holder)`` if somebody has it (see :func:`clear`)."""
        while not self._create():
            clear(self.file, refusal)
        self._renewing.start()

    def release(self) -> None:
        """Gives the lease back, unless it was lost."""
        self._end.set()
        self._renewing.join()
        if not self.lost:
            self.file.unlink(missing_ok=True)

    def _text(self) -> str:
        return json.dumps({**self.about, "time": time.time()})

    def _create(self) -> bool:
        try:
            if is_remote(self.file):
                system, key = object_store(self.file)
                system.pipe_file(key, self._text().encode(), mode="create")
            else:
                with open(self.file, "x", encoding="utf-8") as file:
                    file.write(self._text())
        except FileExistsError:
            return False
        return True

    def _renew(self) -> None:
        while not self._end.wait(BEAT):
            try:
                if (read_lease(self.file) or {}).get("token") != self.about["token"]:
                    self.lost = True
                    self.on_lost()
                    return
                self.file.write_text(self._text())
            except Exception:  # the network, whatever the protocol calls it: the next beat tries again
                continue


def clear(file: Path, refusal: Refusal) -> None:
    """Deletes a lease whose holder is gone, after watching it where that is not known; raises ``refusal(holder)`` if it
    is alive. Nothing happens if there is none."""
    holder = read_lease(file)
    if holder is None:
        return
    if not is_dead(holder):
        if is_fresh(holder):
            raise refusal(holder)
        end = time.monotonic() + WATCH
        while time.monotonic() < end:
            time.sleep(WATCH / 10)
            if read_lease(file) != holder:
                raise refusal(holder)
    file.unlink(missing_ok=True)


def read_lease(file: Path) -> dict[str, Any] | None:
    """What stands in a lease; None if there is none, an empty one if it is half-written."""
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except ValueError:
        return {"time": time.time()}


def is_fresh(holder: dict[str, Any]) -> bool:
    """Whether the lease was renewed a short time ago, by the clocks of two machines."""
    return time.time() - float(holder.get("time", 0.0)) < FRESH


def is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process that holds the lease ran on this machine and is gone."""
    if holder.get("host") != socket.gethostname() or holder.get("boot_id") != boot_id():
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
