"""Dask workers: the store of a serial run bit for bit, also when a worker is killed, and clear refusals."""

import os
import signal

import numpy as np
import pytest
import zarr

from hetjax import Sweep
from hetjax.sweep import SpecError, SweepError
from hetjax.sweep.cluster import check_executor, compute_block
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.state import read_attributes, store_status


def sweep_of():
    axes = {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 40]}, "y": {"linspace": [-5.0, 5.0, 11]}}
    return Sweep("toy_models:TOY", axes,
                 metrics=["total", "root"], grad=["x"], const={"K": 1}, inner_batch=8, block_points=44)


def contents(path):
    group = zarr.open_group(str(path), mode="r")
    return {name: np.asarray(array[...]).tobytes() for name, array in group.arrays()}


def test_a_task_commits_its_block_once(tmp_path):
    path = tmp_path / "s.zarr"
    run_sweep(sweep_of().problem, path)
    before, chunk = contents(path), path / "status" / "c" / "1" / "3" / "0"
    report = compute_block(str(path), "a", (1, 3, 0))
    chunk.unlink()
    again = compute_block(str(path), "a", (1, 3, 0))
    assert contents(path) == before and again["counts"] == report["counts"] and again["chunks"] == report["chunks"]


@pytest.mark.parametrize("executor", ["dask", "dask:", "dask:local:0", "dask:local:x", "ray:3", "", 3])
def test_unknown_executors_are_refused(tmp_path, executor):
    with pytest.raises(SpecError, match="executor = "):
        run_sweep(sweep_of().problem, tmp_path / "s.zarr", RunOptions(executor=executor))
    assert not list(tmp_path.iterdir())


def test_addresses():
    assert check_executor("dask:tcp://head:8786") == ("tcp://head:8786", 0)
    assert check_executor("dask:local:3") == (None, 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_killed_worker_loses_nothing(tmp_path):
    from distributed import Client, LocalCluster

    serial, path = tmp_path / "serial.zarr", tmp_path / "s.zarr"
    run_sweep(sweep_of().problem, serial)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        killed = []

        def kill(report):
            if report.blocks_done == 4 and not killed:
                killed.append(min(client.run(os.getpid).values()))
                os.kill(killed[0], signal.SIGKILL)

        result = run_sweep(sweep_of().problem, path, RunOptions(
            executor=f"dask:{cluster.scheduler_address}", progress=kill))
        assert killed and killed[0] not in client.run(os.getpid).values()
    assert result.computed == store_status(serial).blocks == 20 and store_status(path).complete
    assert contents(path) == contents(serial) and result.counts == store_status(serial).counts
    assert read_attributes(path)["runs"][0]["worker_device_kinds"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_two_local_workers_and_no_scheduler(tmp_path):
    serial, path = tmp_path / "serial.zarr", tmp_path / "s.zarr"
    run_sweep(sweep_of().problem, serial)
    assert run_sweep(sweep_of().problem, path, RunOptions(executor="dask:local:2")).computed == 20
    assert contents(path) == contents(serial)
    with pytest.raises(SweepError, match="no scheduler answers"):
        run_sweep(sweep_of().problem, tmp_path / "t.zarr", RunOptions(executor="dask:tcp://127.0.0.1:9"))
