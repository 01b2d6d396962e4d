"""Stores in object stores: the same arrays, the same commit order, kills, leases instead of locks, every command.

``memory://`` serves where one process is enough, ``bucket://`` (files, see bucket.py) where several write.
"""

import errno
import fcntl
import json
import multiprocessing
import signal
import threading
import time

import fsspec
import numpy as np
import pytest
import zarr
from bucket import bucket
from objects_process import main as write_in_process
from objects_process import make_sweep

from hetjax.cli import main
from hetjax.sweep import LockedError, SweepError, lease, log, open_sweep
from hetjax.sweep.place import place, require_reachable, zarr_store
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.state import committed, read_log, store_status
from hetjax.sweep.verify import verify_store

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["sweep_process", "objects_process"])
STEPS = ["init_before_rename", "init_after_rename", "before_metrics", "written:total", "flushed:d_total__d_y",
         "before_status", "written:status", "after_status", "after_log"]


def read(path):
    group = zarr.open_group(zarr_store(place(path)), mode="r")
    return {name: np.asarray(array[...]).tobytes() for name, array in group.arrays()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "grid.zarr"
    run_sweep(make_sweep().problem, path)
    return path


@pytest.fixture
def url(tmp_path):
    return bucket(tmp_path / "objects")


@pytest.fixture
def quick(monkeypatch):
    """Leases that go stale in tenths of a second."""
    monkeypatch.setattr(lease, "BEAT", 0.05)
    monkeypatch.setattr(lease, "FRESH", 0.3)
    monkeypatch.setattr(lease, "WATCH", 0.3)


def resume(url, **options):
    return run_sweep(make_sweep().problem, url, RunOptions(resume="auto", **options))


def test_the_arrays_are_those_of_a_folder(reference, url):
    seen = []

    def look(step, block):
        if step == "before_status":
            seen.append(block in committed(url, (2, 10, 1, 1)))

    result = run_sweep(make_sweep().problem, url, RunOptions(on_step=look))
    assert seen == [False] * 20, "the status chunk comes last"
    assert result.computed == 20 and read(url) == read(reference)
    status = store_status(url)
    assert status.complete and status.unlogged == 0 and status.running is None
    assert status.counts == store_status(reference).counts
    assert verify_store(url, full=True).exit_code == 0 and resume(url).computed == 0
    assert open_sweep(url).total.equals(open_sweep(reference).total)


def test_killed_at_every_step_and_resumed(reference, url, tmp_path):
    done = set()
    for step in [*STEPS, None]:
        process = PROCESSES.Process(target=write_in_process, args=(url, reference.with_name("compiled"), step))
        process.start()
        process.join(timeout=300)
        assert process.exitcode == (0 if step is None else -signal.SIGKILL), step
        now = committed(url, (2, 10, 1, 1))
        assert done <= now
        done = now
    assert read(url) == read(reference) and store_status(url).unlogged == 0
    assert not [name for name in fsspec.filesystem("bucket").find(place(url).path) if "partial" in name]


def test_damage_is_found_and_computed_alone(reference, url):
    resume(url)
    chunk = place(url).joinpath("total", "c", "1", "2", "0", "0")
    good = chunk.read_bytes()
    for bad in (good[:-9], bytes(len(good)), good[:40] + bytes([good[40] ^ 1]) + good[41:], None):
        chunk.write_bytes(bad) if bad else chunk.unlink()
        assert list(verify_store(url, full=True).damaged) == [(1, 2, 0, 0)]
        assert resume(url, verify="full").computed == 1
    assert read(url) == read(reference)


def test_overwriting_and_what_was_there_before(reference, url):
    resume(url)
    run_sweep(make_sweep().problem, url, RunOptions(overwrite=True))
    assert read(url) == read(reference)
    (place(url) / "zarr.json").unlink()  # a deletion was killed here
    assert resume(url).computed == 20
    other = bucket(place(url).parent.path, "other.zarr")
    (place(other) / "notes.txt").write_text("mine")
    with pytest.raises(SweepError, match=r"holds other objects \(notes.txt\)"):
        resume(other)
    assert (place(other) / "notes.txt").read_text() == "mine"


def test_a_second_run_is_refused_and_shards_are_not(reference, url):
    refused = []

    def others(step, block):
        if step == "before_status" and not refused:
            assert store_status(url).running["pid"]
            for options in (RunOptions(resume="auto"), RunOptions(resume="auto", shard=(0, 2)),
                            RunOptions(resume="auto", shard=(0, 3))):
                with pytest.raises(LockedError, match="being written by process"):
                    run_sweep(make_sweep().problem, url, options)
                refused.append(options)
            resume(url, shard=(1, 2))

    assert resume(url, shard=(0, 2), on_step=others).computed == 10 and len(refused) == 3
    assert store_status(url).running is None and resume(url).computed == 0
    assert read(url) == read(reference)


def holder(**about):
    return json.dumps({**lease.signature("old"), "token": "other", "time": time.time(), **about})


def test_leases_of_the_dead_and_of_the_silent(url, quick):
    folder = place(url + ".run")
    (folder / "lease").write_text(holder())
    with pytest.raises(LockedError, match="run old"):
        resume(url)
    (folder / "lease").write_text(holder(pid=2**22 + 1))  # no process here has this number
    assert resume(url, shard=(0, 2)).computed == 10, "a dead process holds nothing"
    (folder / "lease").write_text(holder(host="elsewhere", time=0.0))
    begin = time.monotonic()
    assert resume(url).computed == 10
    assert time.monotonic() - begin > 0.3, "watched before it was taken over"
    beating = threading.Event()

    def beat():
        count = 0.0
        while not beating.wait(0.05):
            (folder / "lease").write_text(holder(host="elsewhere", time=(count := count + 1)))

    other = threading.Thread(target=beat)
    other.start()
    time.sleep(0.1)
    try:
        with pytest.raises(LockedError, match="elsewhere"):  # its clock is far behind ours, but it goes on
            resume(url)
    finally:
        beating.set()
        other.join()


def test_a_run_that_lost_its_lease_stops(url, quick):
    def suspended(step, block):
        if step == "after_log":
            (place(url + ".run") / "lease").write_text(holder(host="elsewhere"))
            time.sleep(0.2)

    with pytest.raises(LockedError, match="taken over by another run"):
        resume(url, on_step=suspended)
    assert 0 < len(committed(url, (2, 10, 1, 1))) < 20
    assert json.loads((place(url + ".run") / "lease").read_text())["token"] == "other", "it is not ours to give back"


def test_a_folder_without_flock_is_locked_by_a_lease(reference, tmp_path, monkeypatch):
    def flock(file, kind):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    path = tmp_path / "grid.zarr"

    def others(step, block):
        if step == "before_status" and block == (0, 0, 0, 0):
            assert store_status(path).running["run"]
            with pytest.warns(UserWarning, match="no flock"), pytest.raises(LockedError, match="being written"):
                resume(path)

    with pytest.warns(UserWarning, match="no flock"):
        resume(path, on_step=others)
    assert read(path) == read(reference) and store_status(path).running is None


def test_the_log_is_put_in_parts(url, monkeypatch):
    monkeypatch.setattr(log, "PUT_LINES", 7)
    monkeypatch.setattr(log, "PUT_SECONDS", 0.0)
    resume(url)
    assert len(list((place(url + ".run") / "log").glob("*.jsonl"))) == 3 and len(read_log(url)) == 20


def test_every_command_takes_a_url(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec = ("[sweep]\nmodel = 'overflow'\nmetrics = ['cost_rate']\n[axes]\nmu1 = {values = [1.0, 2.0, 3.0]}\n[const]\n"
            "mu2 = 1.0\nlambda1 = 1.0\nlambda2 = 1.0\n")
    (tmp_path / "spec.toml").write_text(spec)
    (tmp_path / "more.toml").write_text(spec.replace("3.0]", "3.0, 4.0]"))
    one, two = (f"memory://b/{tmp_path.name}/{name}.zarr" for name in ("one", "two"))
    for words, code in ((f"run spec.toml --out {one} --quiet", 0), (f"run spec.toml --out {one} --quiet", 2),
                        (f"status {one}", 0), (f"verify {one} --full", 0), (f"retry {one} --quiet", 0),
                        (f"extend {one} more.toml --out {two} --quiet", 0), (f"diff {two} {two}", 0),
                        (f"refine {two} --over mu1 --out {two}.new --quiet", 0), (f"export {one} -o one.nc", 0),
                        (f"plot {one}", 0), (f"explore {one}", 0)):
        assert main(words.split()) == code, (words, capsys.readouterr().err)
    assert capsys.readouterr().err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} >= {"one.nc", "one.png", "one.html"}


@pytest.mark.parametrize("bad, text", [
    ("memory://bucket", "no place of its own"), ("simplecache::s3://b/s.zarr", "no place of its own"),
    ("nonsense://b/s.zarr", "cannot be used"), ("memory://b/missing.zarr", "does not exist")])
def test_addresses_that_name_no_store(bad, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["status", bad]) in (1, 2)
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and text in message
    assert not list(tmp_path.iterdir())


def test_an_object_store_that_does_not_answer(monkeypatch):
    class Broken:
        def __truediv__(self, name):
            return self

        def exists(self):
            raise RuntimeError("no\ncredentials")

        def __str__(self):
            return "s3://b/s.zarr"

    with pytest.raises(SweepError, match=r"s3://b/s.zarr cannot be reached \(RuntimeError: no credentials\)"):
        require_reachable(Broken())


def test_a_file_url_is_a_folder(tmp_path):
    assert place(f"file://{tmp_path}/s.zarr") == tmp_path / "s.zarr"
