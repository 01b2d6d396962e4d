"""Misuse that once ended in a traceback, in several lines of text, or in silently wrong numbers."""

import re
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax.cli import main
from hetjax.models.registry import get_model
from hetjax.sweep.errors import SpecError, SweepError
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.spec import parse_spec
from hetjax.sweep.state import read_log, store_status

POINT = {"q": 0.5, "r": 10.0, "K": 3, "M": 5, "m": 2, "n": 1}
SPEC = """
[sweep]
model = "stalling"
metrics = ["mean_number"]
[axes]
q = { linspace = [0.1, 0.9, 6] }
K = { values = [0, 3] }
[const]
r = 10.0
M = 20
m = 2
n = 1
"""


def evaluate(**changes):
    return hetjax.evaluate("stalling", **{"metrics": ["mean_number"], **POINT, **changes})


def sweep(**changes):
    axes = changes.pop("axes", {"q": [0.2, 0.3, 0.4, 0.5]})
    const = changes.pop("const", {k: v for k, v in POINT.items() if k not in axes})
    return hetjax.Sweep("stalling", axes, **{"metrics": ["mean_number"], "const": const, **changes})


def one_line(error):
    return bool(str(error)) and "\n" not in str(error)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished store of four blocks; do not change it."""
    path = tmp_path_factory.mktemp("finished") / "s.zarr"
    run_sweep(sweep().problem, path, RunOptions(block_points=1))
    return path


@pytest.fixture
def store(finished, tmp_path):
    """A copy of it to damage."""
    for name in ("s.zarr", "s.zarr.run"):
        shutil.copytree(finished.parent / name, tmp_path / name)
    return tmp_path / "s.zarr"


def resume(path):
    return run_sweep(sweep().problem, path, RunOptions(resume="auto"))


@pytest.mark.parametrize("damage", ["cut", "zeros", "empty", "gone"])
@pytest.mark.parametrize("array", ["mean_number", "status"])
def test_a_damaged_chunk_is_found_and_computed_again(store, finished, array, damage):
    chunk = store / array / "c" / "2"
    data = chunk.read_bytes()
    if damage == "gone":
        chunk.unlink()
    else:
        chunk.write_bytes({"cut": data[:-7], "zeros": bytes(len(data)), "empty": b""}[damage])
    with pytest.raises(SweepError) as error:
        hetjax.open_sweep(store).mean_number.load()
    assert one_line(error.value) and "--resume auto" in str(error.value)
    resume(store)
    assert chunk.read_bytes() == data
    assert (chunk.parent / "1").read_bytes() == (finished / array / "c" / "1").read_bytes()


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_a_damaged_coordinate_is_not_read_as_zeros(store, damage):
    chunk = store / "q" / "c" / "0"
    chunk.unlink() if damage == "gone" else chunk.write_bytes(b"xx")
    with pytest.raises(SweepError, match=r"coordinate 'q'.*--resume auto"):
        hetjax.open_sweep(store)
    resume(store)
    assert hetjax.open_sweep(store).q.values.tolist() == [0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize("text", ['{"attributes": {"hetjax_format": 1}}', "[]", "\0", "",
                                  '{"attributes": {"hetjax_format": 1, "spec": 3, "block_shape": "x"}}'])
@pytest.mark.parametrize("command", [["status"], ["plot"]])
def test_a_damaged_root_is_one_line(store, capsys, text, command):
    (store / "zarr.json").write_text(text)
    assert main([*command, str(store)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SweepError):
        resume(store)


def test_lost_or_damaged_arrays_are_one_line(store):
    (store / "mean_number" / "zarr.json").write_text("{")
    for use in (lambda: hetjax.open_sweep(store), lambda: resume(store)):
        with pytest.raises(SweepError) as error:
            use()
        assert one_line(error.value)
    (store / "mean_number" / "zarr.json").unlink()
    for use in (lambda: hetjax.open_sweep(store), lambda: resume(store)):
        with pytest.raises(SweepError, match="mean_number"):
            use()


def test_nonsense_in_the_log_is_skipped(store):
    (store.parent / "s.zarr.run" / "log" / "zz.jsonl").write_text(
        '{"block": [[1]], "counts": {}, "time": 1}\n{"block": [0], "counts": {"ok": "x"}, "time": 9e99}\n'
        '{"block": [0], "counts": {"ok": {}}, "time": 9e99}\n[]\n\0\n')
    assert store_status(store).counts == {"ok": 4} and set(read_log(store)) == {(0,), (1,), (2,), (3,)}


def test_a_refused_path_leaves_nothing_beside_it(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    for name in ("folder", "file"):
        for options in (RunOptions(overwrite=True), RunOptions(resume="auto")):
            with pytest.raises(SweepError, match="no sweep store"):
                run_sweep(sweep().problem, tmp_path / name, options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    for path in ("", None, 3, "a\0b"):
        with pytest.raises(SpecError, match="no file name"):
            run_sweep(sweep().problem, path)


@pytest.mark.parametrize("options", [
    {"resume": "yes"}, {"resume": True}, {"inner_batch": 0}, {"inner_batch": 1.5}, {"inner_batch": "a"},
    {"inner_batch": 10**12}, {"block_points": 0}, {"block_points": -1}, {"block_points": 1.5}, {"block_points": 10**12},
    {"devices": "2"}, {"devices": 0}], ids=str)
def test_bad_run_options_write_no_store(tmp_path, options):
    with pytest.raises(SpecError) as error:
        sweep().run(tmp_path / "s.zarr", **options)
    assert one_line(error.value) and not (tmp_path / "s.zarr").exists()


def test_values_beyond_float32_are_refused_before_the_store_exists(tmp_path):
    with pytest.raises(SpecError, match=r"q .*float32"):
        sweep(axes={"q": [0.5, 1e300]}, dtype="float32").run(tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize("old, new", [
    ("linspace = [0.1, 0.9, 6]", "linspace = [-1.7e308, 1.7e308, 3]"),
    ("linspace = [0.1, 0.9, 6]", f"values = [{'1' * 5000}]"),
    ("m = 2", "m = -inf"), ('"stalling"', '"..x:y"'), ('"stalling"', '":X"'), ('"stalling"', '"json:"'),
    ("r = 10.0", "lambda = 10.0"), ("r = 10.0", '"\u00b5" = 10.0'), ("r = 10.0", f"{'x' * 300} = 1")])
def test_bad_specifications_are_one_line(tmp_path, capsys, old, new):
    file = tmp_path / "spec.toml"
    file.write_text(SPEC.replace(old, new), encoding="utf-8")
    assert SPEC.count(old) and main(["plan", str(file), "--no-calibrate"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and message.startswith(f"hetjax: {file}: ")


@pytest.mark.parametrize("body", ["1 / 0", "def (", "import sys; sys.exit(7)", "raise KeyError('a')"])
def test_a_model_file_that_fails_is_one_line(tmp_path, monkeypatch, body):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing_model.py").write_text(body)
    with pytest.raises(ValueError, match=r"failing_model:X.*cannot be loaded"):
        get_model("failing_model:X")


@pytest.mark.parametrize("arguments", [
    [], ["frob"], ["plan"], ["plan", "x", "--devices", "abc"], ["plan", "x", "--devices", "0"],
    ["run", "x", "--out", "y", "--inner-batch", "1.5"], ["run", "x", "--out", "y", "--block-points", "9" * 5000],
    ["status", "x", "--watch", "inf"], ["status", "x", "--watch", "-1"]], ids=lambda a: " ".join(a)[:40])
def test_wrong_usage_is_one_line(capsys, arguments):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    message = capsys.readouterr().err
    assert error.value.code == 2 and message.count("\n") == 1 and "--help" in message and "_" not in message


def test_absurdly_many_devices_are_refused(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    assert main(["plan", str(tmp_path / "spec.toml"), "--devices", "99999"]) == 2
    assert "--devices 99999" in capsys.readouterr().err


def test_plot_selects_no_nan(finished, capsys, tmp_path):
    assert main(["plot", str(finished), "--sel", "q=nan", "-o", str(tmp_path / "x.png")]) == 2
    assert re.fullmatch(r"hetjax: plot: sel\.q = nan .*\n", capsys.readouterr().err)


@pytest.mark.parametrize("arguments", [
    {"q": "a"}, {"q": None}, {"q": 1 + 2j}, {"q": np.array([1j])}, {"q": [[0.5], [0.5, 0.6]]}, {"q": {1: 2}},
    {"q": np.ma.array([0.5, 0.6], mask=[0, 1])}, {"K": 2**70}, {"m": "2"}, {"m": 2.5}, {"m": np.nan}, {"m": None},
    {"m": 10**30}, {"m": -np.inf}, {"max_m": "x"}, {"max_m": 2.5}, {"metrics": "mean_number"}, {"metrics": 3},
    {"q": [0.5, 0.6], "K": [1, 2, 3]}], ids=lambda a: " ".join(f"{a}".split())[:40])
def test_unusable_arguments_of_evaluate(arguments):
    with pytest.raises(ValueError) as error:
        evaluate(**arguments)
    assert one_line(error.value) and next(iter(arguments)) in str(error.value)


@pytest.mark.slow
def test_large_whole_numbers_do_not_wrap():
    """2^32 + 3 is not 3 in 32 bits."""
    out = evaluate(q=np.float32(0.5), K=np.array(2**32 + 3), metrics=["mean_number"])
    assert out.status == hetjax.Status.OUT_OF_DOMAIN and np.isnan(out.mean_number)
    out = evaluate(m=[2, 2**32 + 2], metrics=["mean_number"])
    assert out.status.tolist() == [hetjax.Status.OK, hetjax.Status.OUT_OF_DOMAIN]


def test_narrow_and_wide_floats_work():
    exact = evaluate().mean_number
    assert abs(float(evaluate(q=np.float16(0.5)).mean_number) - float(exact)) < 1e-6
    assert evaluate(q=jnp.bfloat16(0.5)).mean_number.dtype == np.float32
    assert evaluate(q=np.longdouble(0.5)).mean_number == exact


@pytest.mark.parametrize("arguments", [
    {"axes": None}, {"axes": [1]}, {"const": [1]}, {"zip": ["q"]}, {"derived": ["a"]}, {"metrics": "mean_number"},
    {"metrics": 3}, {"metrics": None}, {"grad": "q"}, {"grad": 3}, {"grad": {"wrt": "q"}}, {"grad": {"wrt": 3}},
    {"zip": {"g": "qK"}}], ids=str)
def test_unusable_arguments_of_sweep(arguments):
    rest = {name: value for name, value in POINT.items() if name != "q"}
    with pytest.raises(SpecError) as error:
        hetjax.Sweep("stalling", **{"axes": {"q": [0.5]}, "const": rest, "metrics": ["mean_number"], **arguments})
    assert one_line(error.value) and next(iter(arguments)) in str(error.value)


def test_a_sweep_takes_jax_arrays():
    spec = sweep(axes={"q": jnp.array([0.25, 0.5])}).spec
    assert spec.axis("q").values.tolist() == [0.25, 0.5]


def test_digits_of_a_large_number_are_not_python_advice():
    with pytest.raises(SpecError) as error:
        parse_spec(SPEC.replace("M = 20", f"M = {'1' * 5000}"), "x.toml")
    assert "sys." not in str(error.value) and one_line(error.value)
