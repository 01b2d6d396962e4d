"""Progress of a run: a bar on a terminal or in a notebook, a line every 30 s elsewhere, or the user's own function."""

import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hetjax.sweep.state import flagged, total

LINE_SECONDS = 30.0


@dataclass(frozen=True)
class Report:
    """The state of a run after a block. Speed and remaining time are of this run alone, without restored points."""

    points: int
    points_done: int
    points_restored: int
    blocks: int
    blocks_done: int
    blocks_restored: int
    counts: dict[str, int]
    seconds: float

    @property
    def points_per_second(self) -> float:
        """Computed points over time, in this run."""
        return (self.points_done - self.points_restored) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Expected time to the end; None before the first block."""
        speed = self.points_per_second
        return (self.points - self.points_done) / speed if speed > 0 else None

    def __str__(self) -> str:
        from hetjax.sweep.plan import human_seconds

        left = self.seconds_left
        text = (f"{self.blocks_done} of {self.blocks} blocks, {self.points_done:,} of {self.points:,} points,"
                f" {self.points_per_second:,.0f} points/s, {human_seconds(left) if left is not None else '?'} left")
        if self.blocks_restored:
            text += f", {self.blocks_restored} blocks restored"
        bad = flagged(self.counts)
        return text + (f", {bad:,} points flagged" if bad else "")


Callback = Callable[[Report], Any]


class Progress:
    """Collects what blocks report and shows it as ``show`` says: True (bar or lines), False, or a function."""

    def __init__(self, show: bool | Callback, points: int, blocks: int, restored: dict[str, int],
                 restored_points: int, restored_blocks: int) -> None:
        self.points, self.blocks = points, blocks
        self.restored_points, self.restored_blocks = restored_points, restored_blocks
        self.done_points, self.done_blocks = restored_points, restored_blocks
        self.counts = dict(restored)
        self.callback = show if callable(show) else None
        self.started = self.last_line = time.monotonic()
        self.bar = _bar(points, restored_points) if show is True else None
        self.lines = show is True and self.bar is None

    def report(self) -> Report:
        """The present state."""
        return Report(self.points, self.done_points, self.restored_points, self.blocks, self.done_blocks,
                      self.restored_blocks, dict(self.counts), time.monotonic() - self.started)

    def note(self, text: str) -> None:
        """A remark that should not be missed."""
        if self.bar is not None:
            self.bar.write(text, file=sys.stderr)
        elif self.lines:
            print(text, file=sys.stderr, flush=True)

    def add(self, points: int, counts: dict[str, int]) -> None:
        """One more block."""
        self.done_points += points
        self.done_blocks += 1
        self.counts = total([self.counts, counts])
        if self.bar is not None:
            bad = flagged(self.counts)
            self.bar.set_postfix_str(", ".join(
                [f"block {self.done_blocks}/{self.blocks}"]
                + ([f"{self.restored_blocks} restored"] if self.restored_blocks else [])
                + ([f"{bad:,} flagged"] if bad else [])), refresh=False)
            self.bar.update(points)
        if self.callback is not None:
            self.callback(self.report())
        if self.lines and time.monotonic() - self.last_line >= LINE_SECONDS:
            self.last_line = time.monotonic()
            print(self.report(), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the display; a run without a bar gets one closing line."""
        if self.bar is not None:
            self.bar.close()
        if self.lines:
            print(self.report(), file=sys.stderr, flush=True)


def _bar(points: int, initial: int) -> Any:
    """A tqdm bar, or None where a bar would only fill a log file."""
    terminal = sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    if "ipykernel" not in sys.modules and not terminal:
        return None
    with warnings.catch_warnings(action="ignore"):  # without ipywidgets tqdm falls back to text and says so
        from tqdm.auto import tqdm
    return tqdm(total=points, initial=initial, unit="point", unit_scale=True, mininterval=0.5, dynamic_ncols=True,
                smoothing=0.1)
