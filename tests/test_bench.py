"""hetjax bench: the points, what is timed and left out, float32's error, estimates, JSON and refusals."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from benchmarks.compare import compare, read

import hetjax
from hetjax.bench import Report, bench_models, bench_spec
from hetjax.bench.measure import bytes_per_point, difference, measure
from hetjax.bench.points import SPREAD, main_metric, problem_near_golden
from hetjax.cli import main
from hetjax.models.registry import get_model, model_names
from hetjax.sweep.kernel import Kernel, choose_devices

sys.path.insert(0, str(Path(__file__).parent / "sweep"))
from toy_models import TOY

GOLDEN = ({"x": 2.0, "y": -1.5, "K": 3.0, "m": 3}, {"total": 2.0 + 2.0 + 8.0 / 3 + 0.25})
TIMED = dataclasses.replace(TOY, name="timed_toy", golden=(GOLDEN, ({**GOLDEN[0], "m": 2}, {}), GOLDEN))


@pytest.mark.parametrize("name", model_names())
def test_points_are_legal_close_to_golden_ones_and_equal_in_both_types(name):
    model = get_model(name)
    problem = problem_near_golden(model, "float64", False, 300)
    assert problem.spec.points == 300 and len(problem.distinct_signatures()) == 1
    shape = dict(problem.distinct_signatures()[0])
    for axis in problem.spec.axes:
        declared = model.axis(axis.name)
        known = {values.get(axis.name, declared.default) for values, _ in model.golden
                 if all(values.get(k, model.axis(k).default) == v for k, v in shape.items())}
        assert np.all(declared.holds(axis.values)) and known
        single = axis.values.astype(np.float32).astype(float) == axis.values
        for value, exact in zip(axis.values, single, strict=True):
            assert value in known or (exact and not declared.integer and any(
                abs(value / k - 1) <= SPREAD * (1 + 1e-6) for k in known if k and math.isfinite(k)))
    assert any(len(np.unique(axis.values)) > 100 for axis in problem.spec.axes)
    derived = problem_near_golden(model, "float32", True, 5)
    assert (derived is None) == (main_metric(model, True) is None)
    if derived is not None:
        assert derived.spec.metrics == derived.spec.grad_of and derived.spec.dtype == "float32"


def test_the_most_frequent_shape_is_timed_with_the_metrics_asked_for():
    problem = problem_near_golden(TIMED, "float64", True, 7, all_metrics=True)
    assert problem.signature((0,)) == (("m", 3), ("n", 0))
    assert problem.spec.metrics == ("total", "root", "bump") and problem.spec.grad_of == ("total",)
    assert problem.spec.grad_wrt == ("x", "y", "scale") and bytes_per_point(problem) == 8 * 6 + 1


def test_models_value_and_gradient_in_both_types():
    said = []
    report = bench_models([TIMED], points=4096, say=said.append)
    assert [(row.what, row.dtype) for row in report.rows] == [
        ("value", "float64"), ("value", "float32"), ("gradient", "float64"), ("gradient", "float32")]
    assert len(said) == 4 and not report.left_out and not report.failed
    for row in report.rows:
        assert row.model == "timed_toy" and row.shapes == "m=3 n=0" and row.ok == 1 and row.metrics == ("total",)
        assert row.points_per_second > 1000 and row.compile_seconds > 0 and 0 < row.fraction_of_write_speed < 10
        if row.dtype == "float32":
            assert 0 < row.float32_difference < 1e-5
        else:
            assert row.float32_difference is None
    assert set(report.ratios()) == {
        "timed_toy: gradient over value, float64", "timed_toy: gradient over value, float32",
        "timed_toy: float32 over float64, value", "timed_toy: float32 over float64, gradient"}
    rate = {(row.what, row.dtype): row.points_per_second for row in report.rows}
    assert report.ratios()["timed_toy: gradient over value, float64"] == pytest.approx(
        rate["value", "float64"] / rate["gradient", "float64"])
    text = str(report)
    assert "points/s" in text and text.count("timed_toy") == 1 and len(text.splitlines()) == 6


def test_the_time_asked_for_is_kept_and_what_fails_is_named():
    report = bench_models([TIMED], points=64, seconds=1e-9)
    assert not report.rows and report.left_out == [
        "timed_toy (value float64; value float32; gradient float64; gradient float32)"]

    def broken(values, metrics, bounds):
        raise RuntimeError("no such function\nat all")

    report = bench_models([dataclasses.replace(TIMED, name="broken", point=broken), TIMED], dtypes=["float32"],
                          points=64, gradients=False)
    assert report.failed == ["broken, value, float32: RuntimeError: no such function"]
    assert [row.model for row in report.rows] == ["timed_toy"]
    with pytest.raises(ValueError, match="no golden points to draw points around"):
        bench_models([TOY])
    with pytest.raises(ValueError, match="points = 0 must be a whole number"):
        bench_models([TIMED], points=0)
    with pytest.raises(ValueError, match="dtype = 'float16' is unknown"):
        bench_models([TIMED], dtypes=["float16"])


def test_only_some_batches_of_a_block():
    problem = problem_near_golden(TIMED, "float64", False, 64 * len(choose_devices()) * 4)
    kernel = Kernel(problem, problem.spec.shape, 64, choose_devices())
    whole, part = kernel.fetch((0,), kernel.dispatch((0,))), kernel.fetch((0,), kernel.dispatch((0,), 2))
    done = part["status"] == 1
    assert done.sum() == done.size // 2 and np.all(part["status"][~done] == 0) and np.all(whole["status"] == 1)
    np.testing.assert_array_equal(part["total"][done], whole["total"][done])
    assert np.array_equal(kernel.fetch((0,), kernel.dispatch((0,), 99))["total"], whole["total"])
    assert measure(kernel, (0,)).ok == 1


def test_the_difference_skips_flagged_and_tiny_values():
    exact = {"a": np.array([1.0, 2.0, 1e-40, np.nan, 5.0, 4.0]), "status": np.array([1, 1, 1, 1, 3, 1], np.uint8)}
    rough = {"a": np.array([1.0, 2.002, 1e-38, np.nan, 99.0, 4.0], np.float32), "status": exact["status"]}
    assert difference(rough, exact) == pytest.approx(1e-3, rel=1e-3)  # float32 of 2.002
    assert difference(rough | {"status": np.array([1, 3, 1, 1, 3, 1], np.uint8)}, exact) == 0
    assert difference(rough | {"a": np.full(6, np.inf, np.float32)}, exact) == math.inf
    assert math.isnan(difference(rough | {"status": np.full(6, 3, np.uint8)}, exact))


def test_a_specification_is_estimated():
    sweep = hetjax.Sweep(TOY, {"m": [1, 2], "x": {"linspace": [0.5, 8.5, 40], "where": "x + y < 8"},
                               "y": {"linspace": [-4.0, 4.0, 50]}}, const={"K": 3}, metrics=["total"], grad=["x"])
    report = bench_spec(sweep.problem)
    assert [(row.what, row.dtype) for row in report.rows] == [
        ("value", "float64"), ("value", "float32"), ("gradient", "float64"), ("gradient", "float32")]
    assert all(row.ok == 1 and row.shapes == "2 shapes" for row in report.rows)
    assert all(row.float32_difference is None or row.float32_difference < 1e-4 for row in report.rows)
    assert report.estimate[0].startswith("the specification: 4,000 points, 68.0 kB; about ")
    assert "(gradient, float64)" in report.estimate[0] and ", 2 compilations " in report.estimate[0]
    assert [row.what for row in bench_spec(sweep.problem, gradients=False, dtypes=("float32",)).rows] == ["value"]


def test_as_a_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hetjax.models.registry._REGISTERED", {"timed_toy": TIMED})
    file = tmp_path / "bench.json"
    arguments = ["bench", "--model", "timed_toy", "--points", "512", "--no-gradients"]
    assert main([*arguments, "--json", str(file)]) == 0
    captured = capsys.readouterr()
    assert "timed_toy" in captured.out and captured.err.splitlines() == [
        "hetjax bench: timed_toy, value, float64", "hetjax bench: timed_toy, value, float32"]
    saved = read(str(file))
    assert list(saved["ratios"]) == ["timed_toy: float32 over float64, value"] and compare(saved, saved).exit_code == 0
    assert saved["machine"]["cpus"] >= 1 and len(saved["figures"]["rows"]) == 2
    assert main([*arguments, "--dtype", "float64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["rows"][0]["dtype"] == "float64"
    (tmp_path / "spec.toml").write_text('[sweep]\nmodel = "toy_models:TOY"\nmetrics = ["total"]\ndtype = "float32"\n'
                                        "[axes]\nx = { linspace = [0.5, 8.5, 41] }\n[const]\ny = 1.0\nK = 0\nm = 2\n")
    assert main(["bench", str(tmp_path / "spec.toml"), "--dtype", "float32"]) == 0
    assert "the specification: 41 points" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "part"), [
    (["--model", "stallin"], "model 'stallin' is unknown"),
    (["nowhere.toml"], "nowhere.toml: cannot be read"),
    (["spec.toml", "--model", "stalling"], "--model belongs to the benchmark of models"),
    (["spec.toml", "--seconds", "5"], "--seconds belongs to the benchmark of models"),
    (["--json", "spec.toml"], "must end in .json"),
    (["--model", "overflow", "--devices", "99"], "99 devices were asked for")])
def test_refusals_are_one_line(arguments, part, capsys):
    jax.devices()  # before the first use of JAX 99 devices could be had
    assert main(["bench", *arguments]) == 2
    message = capsys.readouterr().err
    assert part in message and message.count("\n") == 1


def test_a_report_without_rows_is_still_one():
    empty = Report({"processor": "p", "devices": 1, "device": "cpu", "jax": "0", "load_average": [0.0]})
    assert empty.ratios() == {} and json.loads(json.dumps(empty.as_json()))["figures"]["rows"] == []
    assert str(empty).count("\n") == 0
