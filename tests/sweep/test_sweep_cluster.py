"""Dask workers: the store of a serial run bit for bit, whoever is killed, jobs of SLURM, and clear refusals."""

import multiprocessing
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_process import killed_coordinator, sweep_of
from on_disk import contents

from hetjax import cli
from hetjax.sweep import SpecError, SweepError
from hetjax.sweep.cluster import Executor, check_executor, compute_block, slurm_cluster
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.state import read_attributes, store_status

# sockets and processes of distributed that its own finalizers close
QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    path = tmp_path_factory.mktemp("serial") / "s.zarr"
    run_sweep(sweep_of().problem, path)
    return path


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
    assert check_executor("dask:tcp://head:8786") == Executor("tcp://head:8786")
    assert check_executor("dask:local:3") == Executor(count=3)


PROFILE = """
jobs = 2
[slurm]
memory = "2GB"
walltime = "01:00:00"
account = "queues"
job_cpu = 4
job_extra_directives = ["--gres=gpu:1"]
worker_extra_args = ["--lifetime", "55m"]
"""


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "profile.toml"
    path.write_text(PROFILE)
    return path


def test_the_job_script_of_a_slurm_profile(profile):
    pytest.importorskip("dask_jobqueue", reason="the extra 'cluster' is not installed")
    cluster, jobs = slurm_cluster(str(profile))
    with cluster:
        script = cluster.job_script()
    assert jobs == 2
    for line in ("#SBATCH -A queues", "#SBATCH --cpus-per-task=4", "#SBATCH --gres=gpu:1", "#SBATCH -t 01:00:00",
                 "--nthreads 1", "--lifetime 55m"):
        assert line in script, script


@pytest.mark.parametrize(("text", "part"), [
    (None, r"profile .*/profile.toml cannot be read \(No such file"), ("jobs =", "is no TOML file"),
    ("job = 3", "'job' is no key of the profile .* did you mean 'jobs'"), ("jobs = 0", "jobs = 0 in the profile"),
    ("jobs = true", "jobs = True"), ("jobs = 1", r"lacks memory = ... in a table \[slurm\]"),
    ("jobs = 1\nslurm = 3", "lacks memory")])
def test_wrong_profiles_are_refused(tmp_path, text, part):
    path = tmp_path / "profile.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match=part) as error:
        run_sweep(sweep_of().problem, tmp_path / "s.zarr", RunOptions(executor=f"slurm:{path}"))
    assert "\n" not in str(error.value) and not (tmp_path / "s.zarr.run").exists()


def test_a_profile_with_unknown_arguments_is_refused(tmp_path):
    pytest.importorskip("dask_jobqueue", reason="the extra 'cluster' is not installed")
    path = tmp_path / "profile.toml"
    path.write_text('jobs = 1\n[slurm]\nmemory = "1GB"\nwalltim = "1"')
    with pytest.raises(SpecError, match=r"'walltim' is no argument of .* did you mean 'walltime'"):
        slurm_cluster(str(path))


def test_slurm_without_its_commands(tmp_path, profile, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match=r"needs the command sbatch, which is not here; run on a login node"):
        run_sweep(sweep_of().problem, tmp_path / "s.zarr", RunOptions(executor=f"slurm:{profile}"))


@pytest.mark.slow
@QUIET
def test_jobs_of_slurm(tmp_path, profile, monkeypatch, serial):
    """With an sbatch that starts the job's script at once."""
    pytest.importorskip("dask_jobqueue", reason="the extra 'cluster' is not installed")
    for name, text in (("sbatch", 'setsid bash "$1" >/dev/null 2>&1 & echo "Submitted batch job $!"'),
                       ("scancel", 'for job; do kill -- -$job; done; true')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    path = tmp_path / "s.zarr"
    result = run_sweep(sweep_of().problem, path, RunOptions(executor=f"slurm:{profile}"))
    assert result.computed == 20 and contents(path) == contents(serial)


@pytest.mark.slow
@QUIET
def test_a_killed_worker_loses_nothing(tmp_path, serial):
    from distributed import Client, LocalCluster

    path = tmp_path / "s.zarr"
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
@QUIET
def test_two_local_workers_and_no_scheduler(tmp_path, serial, capfd):
    path = tmp_path / "s.zarr"
    found = sweep_of().run(path, executor="dask:local:2")
    assert found.sizes == {"m": 2, "x": 40, "y": 11} and "WARNING" not in capfd.readouterr().err
    assert contents(path) == contents(serial)
    with pytest.raises(SweepError, match="no scheduler answers"):
        run_sweep(sweep_of().problem, tmp_path / "t.zarr", RunOptions(executor="dask:tcp://127.0.0.1:9"))


@pytest.fixture
def scheduler(monkeypatch):
    """A scheduler and two workers, each a process of its own: (process of the scheduler, executor)."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    started = [subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0",
                                 "--no-dashboard", "--host", "127.0.0.1"], stderr=subprocess.PIPE, text=True)]
    address = next(found[0] for line in started[0].stderr if (found := re.search(r"tcp://127\.0\.0\.1:\d+", line)))
    started += [subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1",
                                  "--no-dashboard", "--memory-limit", "0"], stderr=subprocess.DEVNULL)
                for _ in range(2)]
    yield started[0], f"dask:{address}"
    for process in started:
        process.terminate()
    for process in started:
        process.wait(timeout=60)
    started[0].stderr.close()


@pytest.mark.slow
@QUIET
def test_a_killed_coordinator_and_a_killed_scheduler_lose_nothing(tmp_path, serial, scheduler, capsys):
    process, executor = scheduler
    path = tmp_path / "s.zarr"
    victim = multiprocessing.get_context("spawn").Process(target=killed_coordinator, args=(path, executor, 4))
    victim.start()
    victim.join(timeout=300)
    assert victim.exitcode == -signal.SIGKILL and 4 <= store_status(path).blocks_done < 20

    def kill(report):
        if report.blocks_done - report.blocks_restored == 2:
            process.kill()

    with pytest.raises(SweepError, match=r"scheduler does not answer any more.*--resume auto") as error:
        run_sweep(sweep_of().problem, path, RunOptions(resume="must", executor=executor, progress=kill))
    assert error.value.exit_code == 1 and "\n" not in str(error.value)
    done = store_status(path).blocks_done
    assert 6 <= done < 20
    last = run_sweep(sweep_of().problem, path, RunOptions(resume="must"))
    assert last.restored >= done and last.restored + last.computed == 20
    assert contents(path) == contents(serial) and cli.main(["verify", str(path), "--full"]) == 0
