"""What a run writes down for information: one JSON line a block, and whatever else happened."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from hetjax.sweep.place import is_remote

PUT_SECONDS = 5.0  # an object cannot be appended to; a run that is killed loses this much of its log at most
PUT_LINES = 2000  # then a new object is begun


class RunLog:
    """The log of one run in ``file``, for one or several threads. :meth:`close` writes what is left."""

    def __init__(self, file: Path, run_id: str) -> None:
        self.file, self.run_id = file, run_id
        self._lines: list[str] = []
        self._parts = 0
        self._put = time.monotonic()
        self._lock = threading.Lock()

    def add(self, **line: Any) -> None:
        """Adds one line."""
        text = json.dumps({**line, "run": self.run_id, "time": time.time()}) + "\n"
        if not is_remote(self.file):
            with open(self.file, "a", encoding="utf-8") as file:
                file.write(text)
            return
        with self._lock:
            self._lines.append(text)
            if time.monotonic() - self._put >= PUT_SECONDS:
                self._flush()

    def close(self) -> None:
        """Writes what is left."""
        with self._lock:
            if self._lines:
                self._flush()

    def _flush(self) -> None:
        self.file.write_text("".join(self._lines))
        self._put = time.monotonic()
        if len(self._lines) >= PUT_LINES:
            self._parts += 1
            self.file, self._lines = self.file.with_name(f"{self.run_id}-{self._parts}.jsonl"), []
