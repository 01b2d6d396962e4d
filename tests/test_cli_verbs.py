"""The commands on finished stores, in one life of a sweep: run, verify, retry, extend, refine, diff, export, watch."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pandas
import pytest

from hetjax import open_sweep
from hetjax.cli import main

SPEC = """
[sweep]
model = "toy_models:TOY"
metrics = ["total", "root"]
inner_batch = 16
block_points = 12
[axes]
x = { linspace = [0.5, 8.5, 9] }
K = { values = [0, 3] }
[const]
m = 2
y = -1.0
"""
DESIGN = """
[sweep]
model = "toy_models:TOY"
metrics = ["bump"]
[design]
kind = "table"
file = "points.csv"
[const]
m = 1
K = 0
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, steady_source):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "sweep"))
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    return tmp_path


def test_a_sweep_and_what_can_be_done_with_it(folder, capsys):
    def call(*arguments, code=0):
        assert main(list(arguments)) == code
        return capsys.readouterr().out

    call("run", "spec.toml", "--out", "a.zarr", "--quiet")
    assert "2 of 2 blocks looked at" in call("verify", "a.zarr") and "0 damaged" in call("verify", "a.zarr", "--full")
    chunk = folder / "a.zarr" / "root" / "c" / "1" / "0"
    data = bytearray(chunk.read_bytes())
    data[20] ^= 1
    chunk.write_bytes(data)
    report = json.loads(call("verify", "a.zarr", "--full", "--json", code=4))
    assert report["damaged"] == [{"block": [1, 0], "faults": ["root: wrong checksum"]}]
    assert "1 blocks computed" in call("retry", "a.zarr")
    call("verify", "a.zarr", "--full")
    Path("more.toml").write_text(SPEC.replace("8.5, 9", "9.5, 10"))
    assert "20 points" in call("extend", "a.zarr", "more.toml", "--out", "b.zarr")
    assert (folder / "b.zarr.run" / "spec.toml").read_text() == Path("more.toml").read_text()
    assert "27 points" in call("refine", "a.zarr", "--over", "K", "--out", "c.zarr")
    assert "18 points in both, 2 only in b.zarr\ndifferent" in call("diff", "a.zarr", "b.zarr", code=5)
    assert call("diff", "a.zarr", "a.zarr") == "18 points in both\nequal\n"
    Path("other.toml").write_text(SPEC.replace("m = 2", "m = 2\nscale = 1.5"))
    call("run", "other.toml", "--out", "d.zarr", "--quiet")
    out = call("diff", "a.zarr", "d.zarr", code=5)
    assert "specification: const.scale: 1.0 -> 1.5" in out and "total: 18 points differ, the first at x = 0.5" in out
    assert "at x = 8.5, K = 0" in out.split("by at most")[1], "half of x + x^2 / 2 is largest at the end"
    assert json.loads(call("diff", "a.zarr", "d.zarr", "--json", code=5))["metrics"][0]["points"] == 18
    assert call("diff", "a.zarr", "d.zarr", "--relative", "0.5").endswith("equal\n")
    assert call("export", "a.zarr", "-o", "a.parquet", "--sel", "K=3", "--sel", "x=2:4") == "a.parquet\n"
    found = pandas.read_parquet("a.parquet")
    kept = open_sweep("a.zarr").sel(K=3, x=slice(2, 4))
    assert np.array_equal(found.total, kept.total) and set(found.K) == {3} and len(found) == 2


def test_refusals_are_one_line(folder, capsys):
    assert main(["run", "spec.toml", "--out", "a.zarr", "--quiet"]) == 0
    Path("worse.toml").write_text(SPEC.replace("m = 2", "m = 3"))
    capsys.readouterr()
    for arguments, code, part in (
            (["extend", "a.zarr", "worse.toml", "--out", "b.zarr"], 2, "const.m: 2 -> 3"),
            (["extend", "a.zarr", "spec.toml", "--out", "b.zarr"], 2, "no point that a.zarr lacks"),
            (["refine", "a.zarr", "--over", "z", "--out", "b.zarr"], 2, "axis 'z' of a.zarr cannot be refined"),
            (["refine", "a.zarr", "--over", "K", "--minimize", "z", "--out", "b.zarr"], 2, "is no metric of a"),
            (["refine", "a.zarr", "--over", "K", "--zoom", "1", "--out", "b.zarr"], 2, "zoom = 1 is no"),
            (["retry", "a.zarr", "--status", "unstabel"], 2, "did you mean 'unstable'"),
            (["retry", "none.zarr"], 1, "none.zarr does not exist"), (["verify", "none.zarr"], 1, "does not exist"),
            (["export", "a.zarr", "-o", "a.xls"], 2, "choose from nc, parquet, csv"),
            (["export", "a.zarr", "-o", "a.csv", "--sel", "z=3"], 2, "--sel z: it is no axis of a.zarr"),
            (["export", "a.zarr", "-o", "a.csv", "--sel", "K=9"], 2, "export: sel.K = 9"),
            (["export", "a.zarr", "-o", "nowhere/a.csv"], 1, "cannot write nowhere/a.csv"),
            (["diff", "a.zarr", "none.zarr"], 1, "none.zarr does not exist")):
        assert main(arguments) == code, arguments
        error = capsys.readouterr().err
        assert error.startswith("hetjax: ") and error.count("\n") == 1 and part in error, error
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith(("a.", "b."))) == ["a.zarr", "a.zarr.run"]
    with pytest.raises(SystemExit):
        main(["diff", "a.zarr", "a.zarr", "--relative", "-1"])


def test_a_design_file_lies_beside_its_specification(folder, capsys, monkeypatch):
    (folder / "sub").mkdir()
    (folder / "sub" / "spec.toml").write_text(DESIGN)
    (folder / "sub" / "points.csv").write_text("x,y\n1,0\n2,0.5\n1,0\n")
    assert main(["plan", "sub/spec.toml", "--no-calibrate"]) == 0
    out = capsys.readouterr().out
    assert "points        3 (point 3)" in out and "1 points of the design repeat others" in out
    assert main(["run", "sub/spec.toml", "--out", "s.zarr", "--quiet"]) == 0
    np.testing.assert_allclose(open_sweep("s.zarr").bump, [1.0, 2 * np.exp(-0.25), 1.0], rtol=1e-15)
    (folder / "sub" / "points.csv").write_text("x,y\n1,0\n2,0.5\n1,0.25\n")
    assert main(["run", "sub/spec.toml", "--out", "s.zarr", "--resume", "auto"]) == 2
    assert "axes.y.values: [0.0, 0.5, 0.0] -> [0.0, 0.5, 0.25]" in capsys.readouterr().err
    shutil.rmtree(folder / "sub")
    chunk = folder / "s.zarr" / "status" / "c" / "0"
    chunk.unlink()
    slept = []
    monkeypatch.setattr(time, "sleep", lambda seconds: slept.append(seconds) or main(["retry", "s.zarr", "--quiet"]))
    assert main(["status", "s.zarr", "--watch", "0.5", "--json"]) == 0, "the store alone is enough to go on"
    states = [json.loads(line)["complete"] for line in capsys.readouterr().out.splitlines()]
    assert states == [False, True] and slept[0] == 0.5
