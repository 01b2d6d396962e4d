"""kill -9 at random moments and at every step of the commit protocol: nothing wrong, nothing lost, nothing repeated.

After each kill, every committed block must equal the uninterrupted store in every array; the next run must not commit a
committed block again; at the end the store equals the uninterrupted one bit for bit.
"""

import multiprocessing
import random
import signal
import time

import numpy as np
import pytest
import zarr
from sweep_process import main, make_sweep

from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.state import committed, store_status

PROCESSES = multiprocessing.get_context("forkserver")  # imports once; each run is a process of its own
PROCESSES.set_forkserver_preload(["sweep_process"])
ARRAYS = make_sweep().problem.arrays
STEPS = ["init_before_rename", "init_after_rename", "before_metrics", "written:total", "flushed:d_total__d_y",
         "before_status", "written:status", "after_status", "after_log"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The arrays of an uninterrupted run, and its grid of blocks."""
    path = tmp_path_factory.mktemp("reference") / "grid.zarr"
    result = run_sweep(make_sweep().problem, path)
    assert result.blocks >= 50
    return read(path), path


def read(path):
    group = zarr.open_group(str(path), mode="r")
    return {name: np.asarray(array[...]) for name, array in group.arrays()}


class Victim:
    """A store that is written by runs that get killed; checks the invariants after each."""

    def __init__(self, folder, reference):
        self.path, self.trace = folder / "grid.zarr", folder / "trace"
        self.reference, self.cache, self.grid = reference[0], reference[1].with_name("compiled"), (2, 30, 1, 1)
        self.done, self.lines, self.kills = set(), 0, 0

    def start(self, *kill_at):
        process = PROCESSES.Process(target=main, args=(self.path, self.trace, self.cache, *kill_at))
        process.start()
        return process

    def begun(self):
        """The lines of the trace: every block whose commit began."""
        return self.trace.read_text().splitlines() if self.trace.exists() else []

    def ended(self, process):
        """Waits for the run's end, checks what it left, and returns its exit code."""
        process.join(timeout=300)
        assert process.exitcode in (0, -signal.SIGKILL)
        self.kills += process.exitcode != 0
        trace = self.begun()
        begun = [tuple(map(int, line.split())) for line in trace[self.lines:]]
        self.lines = len(trace)
        done = committed(self.path, self.grid) if self.path.exists() else set()
        assert not self.done & set(begun), "a committed block was computed again"
        assert self.done <= done, "a committed block was lost"
        assert len(set(begun) - done) <= 1, "more than the block in flight was lost"
        self.done = done
        if self.path.exists():
            self.check_committed()
        return process.exitcode

    def check_committed(self):
        found = read(self.path)
        for m, i, *_ in self.done:
            for name in (*ARRAYS, "status"):
                assert found[name][m, i].tobytes() == self.reference[name][m, i].tobytes(), (name, m, i)

    def check_finished(self):
        found = read(self.path)
        assert found.keys() == self.reference.keys()
        for name, values in self.reference.items():
            assert found[name].dtype == values.dtype and found[name].tobytes() == values.tobytes(), name
        status = store_status(self.path)
        assert status.complete and status.unlogged == 0
        assert not list(self.path.parent.glob("*.tmp-*")) and not list(self.path.rglob("*.partial"))
        assert not list((self.path.parent / "grid.zarr.run" / "aside").iterdir())


def test_killed_at_every_step_of_the_protocol(reference, tmp_path):
    """One store, killed at each step in turn (the second time it is reached), then finished."""
    victim = Victim(tmp_path, reference)
    for step in STEPS:
        assert victim.ended(victim.start(step, 1 if step.startswith("init") else 2)) == -signal.SIGKILL, step
        if step == "init_before_rename":
            assert not victim.path.exists() and len(list(tmp_path.glob("grid.zarr.tmp-*"))) == 1
    assert victim.ended(victim.start()) == 0
    victim.check_finished()


def kill_at_random(reference, folder, kills, seed):
    """Starts and kills runs until ``kills`` of them died computing; finishes each store that they work on."""
    chance = random.Random(seed)
    died, store = 0, 0
    while died < kills:
        (folder / str(store)).mkdir()
        victim = Victim(folder / str(store), reference)
        store += 1
        code = -signal.SIGKILL
        while code != 0:
            process = victim.start()
            if victim.kills + died < kills:
                while process.is_alive() and len(victim.begun()) <= victim.lines:
                    time.sleep(0.002)  # until it computes
                time.sleep(chance.uniform(0, 0.15))
                process.kill()
            code = victim.ended(process)
        died += victim.kills
        victim.check_finished()
    assert died >= kills


def test_killed_at_random_moments(reference, tmp_path):
    kill_at_random(reference, tmp_path, 5, seed=1)


@pytest.mark.slow
def test_killed_at_200_random_moments(reference, tmp_path):
    kill_at_random(reference, tmp_path, 200, seed=2)


def test_the_reference_is_the_same_with_everything_else_different(reference, tmp_path):
    """Another block shape in this process, against the store of the reference."""
    run_sweep(make_sweep().problem, tmp_path / "other.zarr", RunOptions(block_points=1000))
    for name, values in read(tmp_path / "other.zarr").items():
        assert values.tobytes() == reference[0][name].tobytes()
