"""What benchmarks write, and the comparison that notices a changed ratio."""

import ast
import json
import math
from pathlib import Path

import pytest
from benchmarks.compare import compare, main, read, text

FOLDER = Path(__file__).parent / "benchmarks"
HELPERS = {"timing.py", "compare.py", "c_reference.py", "stalling_numpy.py", "stalling_numpy_whole.py"}


def report(ratios, **more):
    return {"protocol": "p", "command": ["x.py"], "machine": {"cpus": 2, "load_average": [0.1]}, "ratios": ratios,
            "figures": {"seconds": 1.0}} | more


@pytest.mark.parametrize(("old", "new", "flagged"), [
    (10.0, 11.9, False), (10.0, 12.1, True), (10.0, 8.4, False), (10.0, 8.2, True), (10.0, 10.0, False),
    (1e-3, 1.3e-3, True), (10.0, math.nan, True), (10.0, math.inf, True), (10.0, 0.0, True), (0.0, 10.0, True)])
def test_ratios_beyond_a_fifth_are_flagged_in_both_directions(old, new, flagged):
    found = compare(report({"a": old, "b": 1.0}), report({"a": new, "b": 1.0}))
    assert list(found.changed) == ["a"] * flagged and found.exit_code == int(flagged) and found.compared == 2
    assert text(found).endswith(f"2 ratios compared, {int(flagged)} changed, 0 gone")


def test_absolute_times_and_load_do_not_count_but_machines_and_options_are_named():
    before = report({"a": 1.0})
    after = report({"a": 1.1, "n": 2.0}, figures={"seconds": 50.0}, command=["x.py", "--big"],
                   machine={"cpus": 64, "load_average": [9.0]})
    found = compare(before, after)
    assert found.exit_code == 0 and found.new == {"n": 2.0}
    assert found.notes == ["command differs", "machine: cpus 2 -> 64"]
    assert compare(before, after, 0.05).exit_code == 1


def test_a_ratio_that_vanished_is_flagged():
    found = compare(report({"a": 1.0, "b": 3.0}), report({"a": 1.0}))
    assert found.gone == {"b": 3.0} and found.exit_code == 1 and "GONE b: was 3" in text(found)


def test_as_a_command(tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("old.json", "new.json", "bad.json")]
    for file, content in zip(files, (report({"a": 1.0}), report({"a": 1.5}), {"ratios": {"a": "1"}}), strict=True):
        Path(file).write_text(json.dumps(content))
    assert main(files[:2]) == 1
    assert "CHANGED a: 1 -> 1.5 (+50%)" in capsys.readouterr().out
    assert main([*files[:2], "--tolerance", "0.6"]) == 0
    for second, said in ((files[2], "no table of ratios"), (str(tmp_path / "none.json"), "cannot be read")):
        assert main([files[0], second]) == 2
        message = capsys.readouterr().err
        assert said in message and message.count("\n") == 1


def test_what_is_written_can_be_compared(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from timing import over, save

    monkeypatch.setattr("sys.argv", ["/somewhere/x.py", "--points", "5", "--json", "x.json"])
    times = {"kernel": 2.0, "numpy": 6.0, "sparse": 30.0}
    save("p", {"m=1": over(times, "kernel"), "z": 4}, {"seconds": times}, str(tmp_path / "x.json"))
    found = read(str(tmp_path / "x.json"))
    assert found["ratios"] == {"m=1: numpy over kernel": 3.0, "m=1: sparse over kernel": 15.0, "z": 4.0}
    assert found["command"] == ["x.py", "--points", "5"] and found["machine"]["cpus"] >= 1
    assert len(found["machine"]["load_average_at_start"]) == 3 and compare(found, found).exit_code == 0


def test_every_benchmark_writes_its_protocol_and_ratios():
    scripts = [path for path in FOLDER.glob("*.py") if path.name not in HELPERS]
    assert len(scripts) > 10
    for path in scripts:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        saved = [call for call in calls if getattr(call.func, "id", "") == "save"]
        assert len(saved) == 1 and ast.unparse(saved[0].args[0]) == "__doc__" and len(saved[0].args) == 4, path
