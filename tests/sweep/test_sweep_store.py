"""The store: layout, types, resume, refusals, damage, locks, disks that fail."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr
from on_disk import contents, copy_of
from toy_models import TOY

from hetjax import Status, Sweep
from hetjax.result import STATUS_MEANINGS
from hetjax.sweep import IncompleteSweepError, LockedError, SpecError, SweepError, SweepInterrupted, open_sweep
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.state import FLAGS, store_status

AXES = {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 12]}, "y": {"linspace": [-5.0, 5.0, 11], "where": "y < x"},
        "K": {"range": [0, 4]}}
pytestmark = pytest.mark.usefixtures("steady_source")


def sweep_of(axes=AXES, **changes):
    return Sweep(TOY, axes, **({"metrics": ["total", "root"], "grad": {"of": ["total"], "wrt": ["x"]},
                                "inner_batch": 32, "block_points": 100} | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished store; tests that change it take a copy."""
    path = tmp_path_factory.mktemp("store") / "grid.zarr"
    run_sweep(sweep_of().problem, path)
    return path


@pytest.fixture
def copy(finished, tmp_path):
    return copy_of(finished, tmp_path)


def chunks(path, name):
    return sorted(p for p in (Path(path) / name / "c").rglob("*") if p.is_file())


def test_the_flags_are_the_status_codes():
    assert FLAGS == tuple(status.name.lower() for status in Status)
    assert list(STATUS_MEANINGS) == list(range(len(FLAGS)))


def test_layout_types_and_labels(finished):
    group = zarr.open_group(str(finished), mode="r")
    assert group.metadata.zarr_format == 3 and group.metadata.consolidated_metadata is None
    attributes = dict(group.attrs)
    assert attributes["hetjax_format"] == 1 and attributes["complete"] is True
    assert attributes["inner_batch"] == 32
    assert attributes["block_shape"] == [1, 1, 11, 5] == list(group["total"].chunks)
    assert attributes["spec_hash"] == sweep_of().spec_hash and attributes["spec"]["model"] == "toy"
    for field in ("run_id", "hetjax_version", "git_commit", "git_tree", "git_dirty", "jax", "jaxlib", "platform",
                  "device_kind", "n_devices", "x64", "python", "numpy", "zarr", "xla_flags", "host", "started"):
        assert field in attributes["runs"][0]
    assert {name: str(array.dtype) for name, array in group.arrays()} == {
        "m": "int64", "K": "int64", "x": "float64", "y": "float64", "total": "float64", "root": "float64",
        "d_total__d_x": "float64", "status": "uint8"}
    total, status = group["total"], group["status"]
    assert total.metadata.dimension_names == ("m", "x", "y", "K") and np.isnan(total.fill_value)
    assert [type(codec).__name__ for codec in total.compressors] == ["BloscCodec", "Crc32cCodec"]
    assert total.attrs["units"] == "s" and total.attrs["ancillary_variables"] == "status"
    assert group["root"].attrs["undefined_where"] == "y < 0"
    assert status.fill_value == 0 and "_FillValue" not in status.attrs
    assert status.attrs["standard_name"] == "status_flag" and status.attrs["flag_meanings"].split() == list(FLAGS)
    assert len(chunks(finished, "status")) == len(chunks(finished, "total")) == store_status(finished).blocks
    plain = xarray.open_zarr(finished, consolidated=False, chunks=None)
    assert plain.K.dtype == np.int64 and plain.status.dtype == np.uint8


def test_all_nan_blocks_are_committed_and_nan_is_not_pending(tmp_path):
    sweep = Sweep(TOY, {"y": {"linspace": [-5.0, -1.0, 20]}, "x": {"linspace": [1.0, 2.0, 10]}}, metrics=["root"],
                  const={"m": 1, "K": 0}, block_points=50, inner_batch=16)
    path = tmp_path / "nan.zarr"
    result = run_sweep(sweep.problem, path)
    assert result.exit_code == 0 and result.counts == {"ok": 200}
    assert len(chunks(path, "root")) == result.blocks == 4
    assert run_sweep(sweep.problem, path, RunOptions(resume="auto")).computed == 0
    found = open_sweep(path)
    assert np.all(np.isnan(found.root)) and np.all(found.status == Status.OK)


def test_a_second_run_needs_a_word(copy):
    before = contents(copy)
    with pytest.raises(SpecError, match="exists; continue it with --resume auto"):
        run_sweep(sweep_of().problem, copy)
    with pytest.raises(SpecError, match="nothing to resume"):
        run_sweep(sweep_of().problem, copy.with_name("none.zarr"), RunOptions(resume="must"))
    assert not copy.with_name("none.zarr.run").exists()
    again = run_sweep(sweep_of().problem, copy, RunOptions(resume="must"))
    assert again.computed == 0 and again.counts == store_status(copy).counts and again.exit_code == 3
    fresh = run_sweep(sweep_of(block_points=1000).problem, copy, RunOptions(overwrite=True))
    assert fresh.restored == 0 and fresh.blocks < again.blocks
    assert contents(copy) == before, "another block shape, the same bits"
    assert store_status(copy).counts == again.counts


def test_overwrite_deletes_nothing_but_a_sweep(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("text")
    with pytest.raises(SweepError, match="is no sweep store"):
        run_sweep(sweep_of().problem, tmp_path / "precious", RunOptions(overwrite=True))
    assert (tmp_path / "precious" / "file").read_text() == "text"


def test_missing_and_empty_chunks_are_found_and_computed_again_alone(copy):
    before = contents(copy)
    chunks(copy, "root")[1].unlink()
    chunks(copy, "total")[2].write_bytes(b"")
    chunks(copy, "status")[3].write_bytes(b"")
    chunks(copy, "status")[4].unlink()
    (copy / "total" / "c" / "0" / "0.5b3d.partial").write_bytes(b"half")
    reports = []
    result = run_sweep(sweep_of().problem, copy, RunOptions(resume="auto", progress=reports.append))
    assert result.computed == 4 and result.restored == result.blocks - 4
    assert contents(copy) == before
    assert [r.blocks_done for r in reports] == list(range(result.blocks - 3, result.blocks + 1))
    assert all(r.blocks_restored == result.restored for r in reports)
    assert reports[-1].counts == result.counts == store_status(copy).counts
    assert not list(copy.rglob("*.partial"))


def test_flags_are_recounted_where_the_log_is_lost(copy):
    expected = store_status(copy).counts
    shutil.rmtree(f"{copy}.run")
    assert store_status(copy).unlogged == store_status(copy).blocks
    assert run_sweep(sweep_of().problem, copy, RunOptions(resume="auto")).counts == expected
    assert store_status(copy).unlogged == 0 and store_status(copy).counts == expected


@pytest.mark.parametrize(("changes", "field"), [
    ({"axes": AXES | {"x": {"linspace": [0.5, 10.6, 12]}}}, "axes.x.values"),
    ({"axes": AXES | {"y": {"linspace": [-5.0, 5.0, 11]}}}, "axes.y.where"),
    ({"axes": AXES | {"scale": [1.0, 2.0]}}, "dims.scale: added"),
    ({"const": {"scale": 3.0}}, "const.scale: 1.0 -> 3.0"), ({"dtype": "float32"}, "dtype: 'float64' -> 'float32'"),
    ({"metrics": ["total"]}, "metrics"), ({"grad": ["y"]}, "grad_wrt")])
def test_a_changed_spec_is_refused_field_by_field(copy, changes, field):
    before = contents(copy)
    with pytest.raises(SpecError, match="another specification") as caught:
        run_sweep(sweep_of(**changes).problem, copy, RunOptions(resume="auto"))
    assert field in str(caught.value) and "\n" not in str(caught.value)
    assert contents(copy) == before


def test_a_changed_model_version_is_refused(copy):
    newer = Sweep(replace(TOY, version=4), AXES, metrics=["total", "root"], grad={"of": ["total"], "wrt": ["x"]})
    with pytest.raises(SpecError, match=r"model_version: 3 -> 4"):
        run_sweep(newer.problem, copy, RunOptions(resume="auto"))


@pytest.mark.parametrize("field", ["hetjax_version", "git_tree", "jax", "jaxlib", "platform", "device_kind", "x64"])
def test_drift_is_refused_unless_allowed_and_then_recorded(copy, field):
    chunks(copy, "status")[0].unlink()
    file = copy / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["attributes"]["runs"][0][field] = "another"
    file.write_text(json.dumps(metadata))
    with pytest.raises(SpecError, match=f"another environment .*{field}: another -> "):
        run_sweep(sweep_of().problem, copy, RunOptions(resume="auto"))
    assert run_sweep(sweep_of().problem, copy, RunOptions(resume="auto", allow_drift=True)).computed == 1
    runs = json.loads(file.read_text())["attributes"]["runs"]
    assert len(runs) == 2 and runs[1]["allowed_drift"][0].startswith(field)


def test_resume_keeps_the_block_shape_and_inner_batch_of_the_store(copy):
    before = contents(copy)
    chunks(copy, "status")[0].unlink()
    result = run_sweep(sweep_of().problem, copy, RunOptions(resume="auto", inner_batch=7, block_points=13))
    assert result.computed == 1 and contents(copy) == before


def test_one_writer_at_a_time(tmp_path):
    path = tmp_path / "grid.zarr"
    refusals = []

    def second_run(step, block):
        if step == "before_status" and not refusals:
            assert store_status(path).running["pid"] == os.getpid()
            with pytest.raises(LockedError, match=f"being written by process {os.getpid()} on ") as caught:
                run_sweep(sweep_of().problem, path, RunOptions(resume="auto"))
            refusals.append(caught.value.exit_code)

    run_sweep(sweep_of().problem, path, RunOptions(on_step=second_run))
    assert refusals == [6]
    assert store_status(path).running is None


def test_the_commit_order(tmp_path):
    """Every metric chunk is flushed before the status chunk appears; its log line comes last."""
    path = tmp_path / "grid.zarr"
    steps, lock = {}, threading.Lock()

    def record(step, block):
        if block:
            with lock:
                steps.setdefault(block, []).append(step)
            if step == "before_status":
                assert not (path / "status" / "c").joinpath(*map(str, block)).exists()
                assert all((path / name / "c").joinpath(*map(str, block)).stat().st_size for name in names)

    sweep = sweep_of()
    names = sweep.problem.arrays
    run_sweep(sweep.problem, path, RunOptions(on_step=record))
    assert len(steps) == store_status(path).blocks
    for order in steps.values():
        assert order[0] == "before_metrics" and order.index("before_status") == 1 + 2 * len(names)
        assert order[-5:] == ["before_status", "written:status", "flushed:status", "after_status", "after_log"]
        for name in names:
            assert 0 < order.index(f"written:{name}") < order.index(f"flushed:{name}") < order.index("before_status")


def test_files_and_folders_are_flushed_in_order(tmp_path, monkeypatch):
    """The system calls themselves: fsync of each metric chunk and its folders precedes the status chunk's rename."""
    path = tmp_path / "grid.zarr"
    calls = []
    fsync, rename = os.fsync, Path.replace

    def spy_fsync(descriptor):
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def spy_replace(self, target):
        calls.append(("replace", str(target)))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(Path, "replace", spy_replace)
    sweep = sweep_of(block_points=10**6)
    run_sweep(sweep.problem, path)
    for block in ("0/0/0/0", "1/0/0/0"):
        status = calls.index(("replace", str(path / "status" / "c" / block)))
        for name in sweep.problem.arrays:
            written = calls.index(("replace", str(path / name / "c" / block)))
            flushed = calls.index(("fsync", str(path / name / "c" / block)))
            folder = flushed + calls[flushed:].index(("fsync", str((path / name / "c" / block).parent)))
            assert written < flushed < folder < status
        assert ("fsync", str(path / "status" / "c" / block)) in calls[status:]


def test_an_interrupted_run_stops_after_the_commit_and_resumes(finished, tmp_path):
    path = tmp_path / "grid.zarr"

    def interrupt(step, block):
        if step == "before_metrics" and store_status(path).blocks_done == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SweepInterrupted, match=r"stopped after 4 of \d+ blocks") as caught:
        run_sweep(sweep_of().problem, path, RunOptions(on_step=interrupt))
    assert caught.value.exit_code == 75 and signal.getsignal(signal.SIGTERM) is before
    assert store_status(path).exit_code == 75 and store_status(path).blocks_done == 4
    with pytest.raises(IncompleteSweepError, match=r"4 of \d+ blocks"):
        open_sweep(path)
    partial = open_sweep(path, allow_incomplete=True)
    pending = partial.status == Status.PENDING
    assert bool(np.any(pending)) and np.all(np.isnan(partial.total.where(pending)))
    assert run_sweep(sweep_of().problem, path, RunOptions(resume="must")).restored == 4
    assert contents(path) == contents(finished)


def test_a_read_only_folder_is_refused_before_computing(tmp_path):
    if os.geteuid() == 0:
        target = Path("/proc/nowhere.zarr")  # nobody may write there
    else:
        tmp_path.chmod(0o500)
        target = tmp_path / "grid.zarr"
    with pytest.raises(SweepError, match=f"cannot write {target}: "):
        run_sweep(sweep_of().problem, target)


def test_a_full_disk_is_one_clear_line_and_resumable(finished, tmp_path):
    """RLIMIT_FSIZE stands in for a full disk: a chunk that grows beyond it cannot be written."""
    path = tmp_path / "grid.zarr"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def shrink(step, block):
        if step == "before_metrics" and store_status(path).blocks_done == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))

    try:
        with pytest.raises(SweepError, match=r"cannot write .*grid.zarr: .*continue with --resume auto"):
            run_sweep(sweep_of().problem, path, RunOptions(on_step=shrink))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store_status(path).blocks_done == 2
    run_sweep(sweep_of().problem, path, RunOptions(resume="auto"))
    assert contents(path) == contents(finished)


def test_status_needs_no_array_package(finished):
    code = ("import sys; from hetjax.cli import main; code = main(['status', sys.argv[1]]);"
            "print(code, [m for m in ('jax', 'numpy', 'zarr', 'xarray') if m in sys.modules])")
    found = subprocess.run([sys.executable, "-c", code, str(finished)], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "3 []"
