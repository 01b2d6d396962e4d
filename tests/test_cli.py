"""The command line: exit codes, one-line errors, what each command prints, and what it does not import."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

import hetjax
from hetjax.cli import main

TOYS = Path(__file__).parent / "sweep"
SPEC = """
[sweep]
model = "toy_models:TOY"
metrics = ["total", "root"]
grad = { of = ["total"], wrt = ["x"] }
inner_batch = 64
block_points = 400
[axes]
m = { values = [1, 3] }
x = { linspace = [0.5, 8.5, 41] }
y = { linspace = [-5.0, 2.0, 30] }
K = { values = [0, 1, 2] }
"""


@pytest.fixture
def spec(tmp_path, monkeypatch, steady_source):
    monkeypatch.syspath_prepend(str(TOYS))
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def process(*arguments, code=None, **environment):
    """hetjax as a process of its own."""
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "hetjax.cli"]
    return subprocess.run([*start, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": str(TOYS), "JAX_PLATFORMS": "cpu"} | environment)


def arrays(path):
    return {name: np.asarray(a[...]).tobytes() for name, a in zarr.open_group(str(path), mode="r").arrays()}


def test_help_lists_the_exit_codes_and_loads_no_array_package():
    code = ("import sys\nfrom hetjax.cli import main\n"
            "try: main(['--help'])\nexcept SystemExit as e: print('exit', e.code)\n"
            "print([m for m in ('jax', 'numpy', 'zarr', 'xarray', 'matplotlib') if m in sys.modules])")
    found = process(code=code)
    assert found.stdout.splitlines()[-2:] == ["exit 0", "[]"]
    for line in ("  0   complete and clean", "  75  incomplete", "  6   another run"):
        assert line in found.stdout
    assert process("run", "--help").returncode == 0


def test_run_status_resume_overwrite(spec, tmp_path, capsys):
    store = tmp_path / "grid.zarr"
    assert main(["run", str(spec), "--out", str(store), "--quiet"]) == 0
    assert (tmp_path / "grid.zarr.run" / "spec.toml").read_text() == SPEC
    assert main(["status", str(store)]) == 0
    assert "complete, " in capsys.readouterr().out
    assert main(["status", str(store), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["complete"] and status["counts"] == {"ok": 2 * 41 * 30 * 3}
    assert status["points_done"] == status["points"]
    assert main(["run", str(spec), "--out", str(store)]) == 2
    assert "exists; continue it with --resume auto" in capsys.readouterr().err
    assert main(["run", str(spec), "--out", str(store), "--resume", "must"]) == 0
    assert "0 blocks computed" in capsys.readouterr().out
    before = arrays(store)
    assert main(["run", str(spec), "--out", str(store), "--overwrite", "--block-points", "3000"]) == 0
    assert arrays(store) == before
    spec.write_text(SPEC.replace("8.5", "8.75"))
    assert main(["run", str(spec), "--out", str(store), "--resume", "auto"]) == 2
    assert "axes.x.values: [0.5, 0.7, " in capsys.readouterr().err
    chunk = store / "status" / "c" / "0" / "0" / "0" / "0"
    chunk.unlink()
    assert main(["status", str(store)]) == 75
    assert "incomplete" in capsys.readouterr().out


def test_flagged_points_give_3(spec, tmp_path, capsys):
    spec.write_text(SPEC.replace("8.5", "12.0"))
    assert main(["run", str(spec), "--out", str(tmp_path / "grid.zarr")]) == 3
    assert main(["status", str(tmp_path / "grid.zarr")]) == 3
    assert "out_of_domain" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "code", "part"), [
    (["run", "nowhere.toml", "--out", "x.zarr"], 2, "nowhere.toml: cannot be read: No such file"),
    (["status", "nowhere.zarr"], 1, "nowhere.zarr does not exist"),
    (["plot", "nowhere.zarr"], 1, "nowhere.zarr does not exist"),
    (["status", "."], 1, ". is no sweep store"),
    (["models", "stallin"], 2, "model 'stallin' is unknown"),
    (["plan", "SPEC", "--devices", "99"], 2, "99 devices were asked for"),
    (["run", "SPEC", "--out", "x.zarr", "--overwrite", "--resume", "auto"], 2, "contradict"),
    (["run", "SPEC", "--out", "x.zarr", "--resume", "must"], 2, "nothing to resume"),
    (["run", "SPEC", "--out", "/proc/x.zarr"], 1, "cannot write /proc/x.zarr"),
])
def test_errors_are_one_line(spec, tmp_path, monkeypatch, capsys, arguments, code, part):
    monkeypatch.chdir(tmp_path)
    assert main([str(spec) if a == "SPEC" else a for a in arguments]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("hetjax: ") and captured.err.count("\n") == 1 and part in captured.err
    assert not (tmp_path / "x.zarr").exists()


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run", "x.toml"],
                                       ["run", "x.toml", "--out", "y", "--devices", "0"],
                                       ["run", "x.toml", "--out", "y", "--resume"]])
def test_wrong_usage_gives_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_a_wrong_figure_is_refused_before_anything_is_computed(spec, tmp_path, capsys):
    spec.write_text(SPEC + '[plot]\nx = "z"\n')
    assert main(["run", str(spec), "--out", str(tmp_path / "grid.zarr")]) == 2
    assert "'z'" in capsys.readouterr().err and not (tmp_path / "grid.zarr").exists()


def test_run_draws_the_figures_of_the_spec(spec, tmp_path, capsys):
    spec.write_text(SPEC + '[plot]\nx = "x"\ny = "total"\nhue = "m"\nsel = { K = 1, y = 0.0 }\n')
    assert main(["run", str(spec), "--out", str(tmp_path / "grid.zarr"), "--quiet"]) == 0
    drawn = capsys.readouterr().out.split()
    assert drawn == [str(tmp_path / "grid.png"), str(tmp_path / "grid.pdf")]
    assert all(Path(file).stat().st_size > 1000 for file in drawn)
    assert main(["plot", str(tmp_path / "grid.zarr"), "-x", "x", "-y", "root", "--sel", "K=1", "--sel", "y=2",
                 "--hue", "m", "-o", str(tmp_path / "other.svg")]) == 0
    assert (tmp_path / "other.svg").stat().st_size > 1000
    assert main(["plot", str(tmp_path / "grid.zarr"), "-x", "nope"]) == 2
    assert main(["plot", str(tmp_path / "grid.zarr"), "--sel", "K"]) == 2
    assert "AXIS=VALUE" in capsys.readouterr().err


def test_plan_prints_and_writes_nothing(spec, tmp_path, capsys):
    before = sorted(tmp_path.iterdir())
    assert main(["plan", str(spec), "--no-calibrate"]) == 0
    out = capsys.readouterr().out
    assert "points        7,380 (m 2 x x 41 x y 30 x K 3)" in out and "compilations  2 (static shapes)" in out
    assert hetjax.Sweep.from_toml(spec).spec_hash in out
    assert sorted(tmp_path.iterdir()) == before


def test_models_lists_axes_and_metrics(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(TOYS))
    assert main(["models", "toy_models:TOY"]) == 0
    out = capsys.readouterr().out
    for part in ("a toy", "whole numbers in [1, 40]", "[s] scale", "undefined where y < 0"):
        assert part in out


def test_one_and_two_cpu_devices_give_the_same_bits(spec, tmp_path):
    for devices in (1, 2):
        found = process("run", spec, "--out", tmp_path / f"{devices}.zarr", "--devices", devices, "--quiet")
        assert found.returncode == 0, found.stderr
        runs = json.loads((tmp_path / f"{devices}.zarr" / "zarr.json").read_text())["attributes"]["runs"]
        assert runs[0]["n_devices"] == devices
    assert arrays(tmp_path / "1.zarr") == arrays(tmp_path / "2.zarr")
    assert "blocks, " not in found.stderr


def test_linear_algebra_of_a_point_gets_no_threads_of_its_own():
    """The variable is read when the library is loaded: it must be set before. A user's own setting stays."""
    code = ("import os, sys; from hetjax.cli.compute import start_jax; start_jax('float64', 2);"
            " print(os.environ['OPENBLAS_NUM_THREADS'], 'scipy.linalg' in sys.modules)")
    clean = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for given, expected in (({}, "1 False"), ({"OPENBLAS_NUM_THREADS": "2"}, "2 False")):
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                               env=clean | given)
        assert found.stdout.split() == expected.split(), found.stderr


def test_float32_sweeps_leave_64_bit_off(spec, tmp_path):
    spec.write_text(SPEC.replace("[axes]", 'dtype = "float32"\n[axes]'))
    found = process("run", spec, "--out", tmp_path / "grid.zarr", JAX_ENABLE_X64="0")
    assert found.returncode == 0, found.stderr
    attributes = json.loads((tmp_path / "grid.zarr" / "zarr.json").read_text())["attributes"]
    assert attributes["runs"][0]["x64"] is False and "7,380 of 7,380 points" in found.stderr


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_stops_with_75_and_the_run_resumes(spec, tmp_path, capsys, signals):
    """One signal finishes the block being committed, a second stops at once; either way the store can be continued."""
    spec.write_text(SPEC.replace("block_points = 400", "block_points = 30"))
    store = tmp_path / "grid.zarr"
    running = subprocess.Popen([sys.executable, "-m", "hetjax.cli", "run", str(spec), "--out", str(store)],
                               env=os.environ | {"PYTHONPATH": str(TOYS), "JAX_PLATFORMS": "cpu"},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not any((store / "status").rglob("c/*/*/*/*")):
        time.sleep(0.01)
    for _ in range(signals):
        running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 75, err
    if signals == 1:
        assert "hetjax: stopped after " in err and "--resume auto" in err and "Traceback" not in err
    assert main(["status", str(store), "--json"]) == 75
    done = json.loads(capsys.readouterr().out)
    assert 0 < done["blocks_done"] < done["blocks"] == 246 and not done["complete"]
    assert main(["run", str(spec), "--out", str(store), "--resume", "must", "--allow-drift"]) == 0
    assert f"{done['blocks_done']} blocks restored" in capsys.readouterr().err


def test_compiled_kernels_are_kept_for_the_next_run(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text('[sweep]\nmodel = "overflow"\nmetrics = ["pi00"]\n[axes]\nmu1 = { linspace = [0.1, 0.9, 9] }\n'
                    "[const]\nlambda1 = 2.0\nlambda2 = 3.0\nmu2 = 5.0\n")
    cache = tmp_path / "cache"
    environment = {"JAX_ENABLE_COMPILATION_CACHE": "true", "XDG_CACHE_HOME": str(cache),
                   "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    code = ("import sys\nfrom jax import monitoring\nfrom hetjax.cli import main\nseen = []\n"
            "monitoring.register_event_listener(lambda event, **_: seen.append(event))\n"
            "assert main(sys.argv[1:]) == 0\nprint(seen.count('/jax/compilation_cache/cache_hits'))")
    run = ("run", spec, "--quiet", "--out")
    cold = process(*run, tmp_path / "cold.zarr", code=code, **environment)
    kept = [file.name for file in (cache / "hetjax" / "xla").iterdir()]
    assert any("device_part" in name for name in kept)  # what the engine calls its kernels
    warm = process(*run, tmp_path / "warm.zarr", code=code, **environment)
    assert int(warm.stdout) >= int(cold.stdout) + len(kept)
    assert arrays(tmp_path / "cold.zarr") == arrays(tmp_path / "warm.zarr")


def test_a_run_needs_no_cache_folder(spec, tmp_path):
    (tmp_path / "file").touch()
    done = process("run", spec, "--quiet", "--out", tmp_path / "grid.zarr", JAX_ENABLE_COMPILATION_CACHE="true",
                   XDG_CACHE_HOME=str(tmp_path / "file"))
    assert done.returncode == 0 and "not kept for the next run" in done.stderr and done.stderr.count("\n") == 1


def test_the_cache_forgets_what_was_not_used_for_longest(tmp_path, monkeypatch):
    monkeypatch.setattr("hetjax.config.CACHE_BYTES", 250)
    monkeypatch.setattr("jax.config.update", lambda *_: None)
    for age, name in enumerate(("a-cache", "c-cache", "b-cache", "unrelated")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    assert hetjax.enable_compilation_cache(tmp_path) == tmp_path
    assert {file.name for file in tmp_path.iterdir()} == {"a-cache", "c-cache", "unrelated"}
