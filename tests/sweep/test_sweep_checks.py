"""What a run checks of its own results: golden points before, a second route meanwhile; and blocks that fail."""

import itertools
import json
import math
import os
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax import Axis, Metric, Model, Status, Sweep
from hetjax.models.registry import get_model, model_names
from hetjax.sweep import SpecError, SweepError, open_sweep
from hetjax.sweep.golden import check_golden
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.spot_check import SpotCheck, point_values
from hetjax.sweep.state import read_attributes, store_status

AXES = (Axis("a", 0, 1e9), Axis("b", -1e9, 1e9), Axis("m", 1, 9, shape=True, integer=True, default=2))


def point(values, metrics, bounds):
    found = {"f": values["a"] + values["b"] * values["b"], "gap": values["a"] - values["b"]}
    status = jnp.where(values["b"] < -2, jnp.uint8(Status.UNSTABLE), jnp.uint8(Status.OK))
    return {name: found[name] for name in metrics}, status


def second_route(values, metrics):
    assert values["m"] == 2 and isinstance(values["m"], int)
    return {"f": math.fsum([values["a"], values["b"] ** 2]), "gap": values["a"] - values["b"]}


MODEL = Model("checked", 1, "a sum", AXES, (Metric("f"), Metric("gap")), point, second_route,
              golden=(({"a": 1.0, "b": 2.0}, {"f": 5.0}), ({"a": 3.0, "b": 0.5, "m": 3}, {"f": 3.25, "gap": 2.5})))


def sweep_of(model=MODEL, **run):
    return Sweep(model, {"a": {"linspace": [0.0, 1.0, 12]}, "b": {"linspace": [-1.0, 1.0, 5]}}, metrics=["f", "gap"],
                 block_points=5, inner_batch=4, run=run)


def last_run(path):
    return read_attributes(path)["runs"][-1]


def test_both_checks_are_recorded(tmp_path):
    result = run_sweep(sweep_of(check=30).problem, tmp_path / "s.zarr")
    record = last_run(tmp_path / "s.zarr")
    assert record["golden"]["points"] == 2 and record["golden"]["metrics"] == ["f", "gap"]
    assert record["golden"]["worst_relative_error"] == 0.0
    check = record["check"]
    assert 10 <= check["planned"] == check["points"] <= 30 and check["values"] == 2 * check["points"]
    assert check["mismatches"] == [] and check["errors"] == [] and check["worst_relative_difference"] < 1e-14
    assert result.exit_code == 0 and result.mismatches == 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_golden_points_of_a_model_on_this_device(dtype):
    name = "overflow"
    model = get_model(name)
    values = model.golden[0][0]
    sweep = Sweep(name, {model.axes[0].name: [values[model.axes[0].name]]}, dtype=dtype,
                  const={k: v for k, v in values.items() if k != model.axes[0].name})
    record = check_golden(sweep.problem, 8, jax.local_devices())
    assert record["points"] == len(model.golden) and 0 < record["worst_relative_error"] < record["tolerance"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", model_names())
def test_golden_points_of_all_models_on_this_device(name, dtype):
    model = get_model(name)
    values, first = model.golden[0][0], model.axes[0].name
    sweep = Sweep(name, {first: [values[first]]}, dtype=dtype, const={k: v for k, v in values.items() if k != first})
    assert check_golden(sweep.problem, 2, jax.local_devices())["points"] == len(model.golden)


def test_a_wrong_golden_point_is_refused_before_anything_is_computed(tmp_path):
    broken = replace(MODEL, golden=(MODEL.golden[0], ({"a": 3.0, "b": 0.5, "m": 3}, {"gap": 2.5000001})))
    with pytest.raises(SweepError) as error:
        run_sweep(sweep_of(broken).problem, tmp_path / "s.zarr")
    for part in ("'checked'", "a = 3.0, b = 0.5, m = 3", "gap", "2.5000001", "is 2.5;"):
        assert part in str(error.value)
    assert "\n" not in str(error.value) and error.value.exit_code == 1
    assert store_status(tmp_path / "s.zarr").blocks_done == 0


def test_a_golden_point_that_is_flagged_is_refused():
    flagged = replace(MODEL, golden=(({"a": 1.0, "b": -3.0}, {"f": 10.0}),))
    with pytest.raises(SweepError, match=r"status unstable"):
        check_golden(sweep_of(flagged).problem, 4, jax.local_devices())


def wrong_at(threshold):
    """A model whose kernel is wrong for a above ``threshold``."""
    def bad(values, metrics, bounds):
        found, status = point(values, metrics, bounds)
        return found | {"f": found["f"] * jnp.where(values["a"] > threshold, 1.0 + 1e-6, 1.0)}, status
    return replace(MODEL, point=bad, golden=())


def test_a_mismatch_stops_the_run_and_takes_its_block_back(tmp_path):
    path = tmp_path / "s.zarr"
    with pytest.raises(SweepError, match=r"wrong: at a = .*, f = .* but the second route gives") as error:
        run_sweep(sweep_of(wrong_at(0.5), check=60).problem, path)
    assert error.value.exit_code == 1 and "\n" not in str(error.value)
    record = last_run(path)
    assert record["golden"]["points"] == 0 and "no golden points" in record["golden"]["note"]
    bad = record["check"]["mismatches"][0]
    assert bad["metric"] == "f" and bad["got"] != bad["expected"] and bad["values"]["a"] > 0.5
    done = store_status(path).blocks_done
    assert done < 12 and not (path / "status" / "c").joinpath(*map(str, bad["block"])).exists()
    with pytest.raises(SweepError, match="second route"):  # one random point only, but the suspects too
        run_sweep(sweep_of(wrong_at(0.5), check=1).problem, path, RunOptions(resume="auto"))
    healed = run_sweep(sweep_of(check=1).problem, path, RunOptions(resume="auto"))
    assert healed.exit_code == 0 and last_run(path)["check"]["points"] >= 2
    found = open_sweep(path)
    assert np.array_equal(found.f, found.a + found.b**2)


def test_a_mismatch_is_only_recorded_on_request(tmp_path):
    reports = []
    result = run_sweep(sweep_of(wrong_at(0.5), check=60, on_mismatch="record").problem, tmp_path / "s.zarr",
                       RunOptions(progress=reports.append))
    assert result.mismatches >= 10 and result.exit_code == 3 and result.computed == 12
    assert store_status(tmp_path / "s.zarr").complete
    assert last_run(tmp_path / "s.zarr")["check"]["mismatch_count"] == result.mismatches
    log = next((tmp_path / "s.zarr.run" / "log").glob("*.jsonl")).read_text()
    assert log.count('"mismatch"') == result.mismatches


def test_rounding_that_cancellation_magnifies_is_no_mismatch():
    """a - b with a and b alike is right to eps a, not to eps (a - b); a wrong value is far beyond that."""
    sweep = sweep_of(check=4)
    check = SpotCheck(sweep.problem, (1, 5), [(0, 0)], 1)
    values = {"a": 1.0, "b": 1.0 - 1e-13, "m": 2}
    assert not check._differ(values, "gap", 1.01e-13, 0.99e-13)
    assert check._differ(values, "gap", 1e-11, 0.99e-13)


@pytest.mark.parametrize(("model", "run", "expected"), [
    (MODEL, {"check": 0}, {"planned": 0}),
    (replace(MODEL, second_route=None), {}, {"note": "the model has no second route"}),
    (replace(MODEL, second_route=lambda values, metrics: {}), {"check": 9}, {"points": 0, "unreachable": 9}),
    (replace(MODEL, second_route=lambda values, metrics: 1 / 0), {"check": 9},
     {"points": 0, "errors": 9 * ["ZeroDivisionError: division by zero"]})], ids=["off", "none", "empty", "raises"])
def test_checks_that_cannot_be_made_are_recorded(tmp_path, monkeypatch, model, run, expected):
    rows = itertools.cycle(range(12))
    monkeypatch.setattr(SpotCheck, "_draw", lambda self, random, block: (next(rows), 0))
    assert run_sweep(sweep_of(model, **run).problem, tmp_path / "s.zarr").exit_code == 0
    found = last_run(tmp_path / "s.zarr")["check"]
    assert {key: found[key] for key in expected} == expected


def test_checking_takes_a_bounded_share_of_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr("hetjax.sweep.spot_check.FREE_SECONDS", -1.0)
    run_sweep(sweep_of().problem, tmp_path / "s.zarr")
    assert last_run(tmp_path / "s.zarr")["check"]["points"] == 0 < last_run(tmp_path / "s.zarr")["check"]["planned"]


def test_the_sampled_parameters_are_those_of_the_kernel():
    sweep = Sweep(MODEL, {"m": [2, 3], "x": [0.1, 0.2]}, derived={"a": "x * 3", "b": "a - 1"}, metrics=["f"],
                  dtype="float32")
    found = point_values(sweep.problem, (1, 0))
    a = np.float32(0.1) * np.float32(3)
    assert found == {"a": float(a), "b": float(a - np.float32(1)), "m": 3}


class Failing:
    """A step hook that raises in chosen commits: {block: how often}."""

    def __init__(self, times):
        self.times, self.tries = dict(times), []

    def __call__(self, step, block):
        if step == "before_metrics":
            self.tries.append(block)
            if self.times.get(block, 0) > 0:
                self.times[block] -= 1
                raise RuntimeError("the device was lost\nand more")


def test_a_block_that_fails_once_is_tried_again(tmp_path):
    hook = Failing({(0, 0): 1, (7, 0): 1})
    result = run_sweep(sweep_of(check=0).problem, tmp_path / "s.zarr", RunOptions(on_step=hook))
    assert result.exit_code == 0 and result.computed == 12
    assert hook.tries.count((0, 0)) == hook.tries.count((7, 0)) == 2 and len(hook.tries) == 14


def test_blocks_that_fail_twice_are_left_and_the_others_computed(tmp_path):
    path, hook = tmp_path / "s.zarr", Failing({(3, 0): 9, (11, 0): 9})
    with pytest.raises(SweepError) as error:
        run_sweep(sweep_of(check=0).problem, path, RunOptions(on_step=hook))
    assert error.value.exit_code == 1 and "\n" not in str(error.value)
    assert "2 blocks failed twice" in str(error.value) and "(first (3, 0): RuntimeError: the device was lost)" in str(
        error.value)
    assert store_status(path).blocks_done == 10 and store_status(path).exit_code == 75
    log = next((tmp_path / "s.zarr.run" / "log").glob("*.jsonl")).read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["failed"] for line in lines if "failed" in line] == [[3, 0], [11, 0]]
    assert run_sweep(sweep_of(check=0).problem, path, RunOptions(resume="auto")).computed == 2


def test_too_many_failures_stop_the_run(tmp_path):
    path, hook = tmp_path / "s.zarr", Failing({(i, 0): 9 for i in range(2, 12)})
    with pytest.raises(SweepError, match=r"3 blocks failed twice .* more than max_failures = 2"):
        run_sweep(sweep_of(check=0, max_failures=2).problem, path, RunOptions(on_step=hook))
    assert store_status(path).blocks_done == 2


def test_a_model_that_raises_is_one_line(tmp_path):
    def bad(values, metrics, bounds):
        raise KeyError("lambda")

    with pytest.raises(SweepError, match=r"1 block failed twice .* KeyError: 'lambda'"):
        run_sweep(Sweep(replace(MODEL, point=bad, golden=()), {"a": [1.0]}, const={"b": 1.0}).problem,
                  tmp_path / "s.zarr")


def test_lack_of_memory_is_not_retried_and_says_what_to_do(tmp_path):
    def lack(step, block):
        if step == "before_metrics":
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")

    with pytest.raises(SweepError, match=r"does not fit into memory .*smaller block_points"):
        run_sweep(sweep_of().problem, tmp_path / "s.zarr", RunOptions(on_step=lack))


@pytest.mark.parametrize(("code", "text"), [("ENOSPC", "disk is full"), ("EDQUOT", "quota"), ("EROFS", "read-only")])
def test_disks_that_refuse(tmp_path, code, text):
    import errno

    def refuse(step, block):
        if step == "before_status" and block == (2, 0):
            raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    with pytest.raises(SweepError, match=f"cannot write .*{text}.*--resume auto"):
        run_sweep(sweep_of(check=0).problem, tmp_path / "s.zarr", RunOptions(on_step=refuse))
    assert store_status(tmp_path / "s.zarr").blocks_done == 2


def test_fast_verification_reads_no_chunk_and_full_finds_a_flipped_bit(tmp_path, monkeypatch):
    path = tmp_path / "s.zarr"
    run_sweep(sweep_of(check=0).problem, path)
    chunk = path / "f" / "c" / "4" / "0"
    before = chunk.read_bytes()
    flipped = bytearray(before)
    flipped[len(before) // 2] ^= 1
    chunk.write_bytes(flipped)
    with monkeypatch.context() as patch:
        patch.setattr("hetjax.sweep.store.SweepStore._intact", lambda *_: pytest.fail("a chunk was read"))
        assert run_sweep(sweep_of(check=0).problem, path, RunOptions(resume="auto")).computed == 0
    assert run_sweep(sweep_of(check=0).problem, path, RunOptions(resume="auto", verify="full")).computed == 1
    assert chunk.read_bytes() == before


def test_fast_verification_finds_lost_and_cut_chunks(tmp_path):
    path = tmp_path / "s.zarr"
    run_sweep(sweep_of(check=0).problem, path)
    chunks = [path / name / "c" / str(i) / "0" for i, name in enumerate(["gap", "f", "gap", "status", "status"])]
    data = [chunk.read_bytes() for chunk in chunks]
    chunks[0].unlink()
    for chunk, damaged in zip(chunks[1:], (data[1][:-1], data[2] + b"x", bytes(len(data[3])), b""), strict=True):
        chunk.write_bytes(damaged)
    assert run_sweep(sweep_of(check=0).problem, path, RunOptions(resume="auto")).computed == 5
    assert [chunk.read_bytes() for chunk in chunks] == data


@pytest.mark.parametrize(("run", "text"), [
    ({"check": -1}, r"\[run\] check = -1"), ({"check": True}, "check = True"), ({"on_mismatch": "go"}, "'go'"),
    ({"max_failures": "x"}, "max_failures = 'x'"), ({"chek": 3}, "'chek'.*did you mean 'check'")])
def test_a_wrong_run_table_is_refused(run, text):
    with pytest.raises(SpecError, match=text):
        sweep_of(**run)
