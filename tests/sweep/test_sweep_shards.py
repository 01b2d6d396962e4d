"""Shards: parts of a sweep computed side by side give the store of one run, bit for bit."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from on_disk import contents
from toy_models import TOY

from hetjax import Sweep
from hetjax.cli import main
from hetjax.sweep import LockedError, SpecError, SweepError
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.state import committed, read_attributes, store_status


def sweep_of():
    return Sweep(TOY, {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 9]}, "y": {"linspace": [-5.0, 5.0, 11]}},
                 metrics=["total", "root"], const={"K": 1}, inner_batch=8, block_points=22)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    path = tmp_path_factory.mktemp("serial") / "s.zarr"
    run_sweep(sweep_of().problem, path)
    return path


def shard(path, part, parts, **options):
    return run_sweep(sweep_of().problem, path, RunOptions(resume="auto", shard=(part, parts), **options))


def test_three_shards_at_once_are_the_serial_run(serial, tmp_path):
    path = tmp_path / "s.zarr"
    begun = []

    def note(step, block):
        if step == "before_metrics":
            begun.append(block)

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda part: shard(path, part, 3, on_step=note), range(3)))
    blocks = store_status(serial).blocks
    assert blocks == 10 and [r.blocks for r in results] == [r.computed for r in results] == [4, 3, 3]
    assert len(begun) == len(set(begun)) == blocks, "no block was computed twice"
    assert {r["shard"][0] for r in read_attributes(path)["runs"]} == {0, 1, 2}
    assert all("golden" in r and "check" in r for r in read_attributes(path)["runs"]), "no record was lost"
    assert store_status(path).exit_code == 75 and store_status(path).blocks_done == blocks, "not sealed yet"
    last = run_sweep(sweep_of().problem, path, RunOptions(resume="must"))
    assert last.computed == 0 and last.restored == blocks and last.counts == store_status(serial).counts
    assert store_status(path).complete and contents(path) == contents(serial)


def test_a_lost_shard_is_computed_by_the_last_run(serial, tmp_path):
    path = tmp_path / "s.zarr"
    shard(path, 1, 4)
    assert {int(np.ravel_multi_index(b, (2, 5, 1))) for b in committed(path, (2, 5, 1))} == {1, 5, 9}
    (path / "total" / "c" / "0" / "1" / "0").unlink()
    assert shard(path, 0, 4).restored == 0, "another shard's damage is not its business"
    assert shard(path, 1, 4).computed == 1
    assert run_sweep(sweep_of().problem, path, RunOptions(resume="auto")).computed == 4
    assert contents(path) == contents(serial)


def test_locks_of_shards(tmp_path):
    path, refused = tmp_path / "s.zarr", []

    def others(step, block):
        if step == "before_status" and not refused:
            assert "shard" not in str(store_status(path).running) and store_status(path).running["pid"]
            for options, text in ((RunOptions(resume="auto"), "being written by process"),
                                  (RunOptions(resume="auto", shard=(0, 2)), "being written by process"),
                                  (RunOptions(resume="auto", shard=(0, 3)), "in 2 parts, not 3")):
                with pytest.raises(LockedError, match=text) as error:
                    run_sweep(sweep_of().problem, path, options)
                refused.append(error.value.exit_code)

    shard(path, 0, 2, on_step=others)
    assert refused == [6, 6, 6] and store_status(path).running is None

    def part(step, block):
        if step == "before_status" and len(refused) == 3:
            with pytest.raises(LockedError):
                shard(path, 0, 2)
            refused.append(6)

    run_sweep(sweep_of().problem, path, RunOptions(resume="auto", on_step=part))
    assert len(refused) == 4 and store_status(path).complete


def test_a_stale_lock_does_not_stop_a_run(serial, tmp_path):
    path = tmp_path / "s.zarr"
    (tmp_path / "s.zarr.run").mkdir()
    for name in ("lock", "lock.init", "lock.shard-0-of-7"):  # of a machine that lost power
        (tmp_path / "s.zarr.run" / name).write_text(json.dumps({"host": "gone", "pid": 1, "run": "old"}))
    assert shard(path, 0, 1).computed == 10
    assert run_sweep(sweep_of().problem, path, RunOptions(resume="auto")).computed == 0


@pytest.mark.parametrize("bad", [(2, 2), (-1, 2), (0, 0), (0.0, 2), (0, 10**6), 3, (1, 2, 3), "0/2"])
def test_no_part_of_a_whole(tmp_path, bad):
    with pytest.raises(SpecError, match="shard = "):
        run_sweep(sweep_of().problem, tmp_path / "s.zarr", RunOptions(resume="auto", shard=bad))
    with pytest.raises(SweepError, match="--resume auto"):
        run_sweep(sweep_of().problem, tmp_path / "s.zarr", RunOptions(shard=(0, 2)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["3", "1/", "/2", "a/b", "1/2/3", "-1/2", "1.0/2"])
def test_shards_on_the_command_line(capsys, text):
    with pytest.raises(SystemExit) as error:
        main(["run", "x.toml", "--out", "s.zarr", f"--shard={text}"])
    message = capsys.readouterr().err
    assert error.value.code == 2 and message.count("\n") == 1 and "I/N, like 0/16" in message
