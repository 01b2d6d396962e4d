"""Devices and the inner batch: the same bits on any number of devices, batches chosen by their speed, no forks."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from in_blocks import bits
from toy_models import TOY

import hetjax
from hetjax import Sweep
from hetjax.sweep import plan
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.state import read_attributes


def test_the_same_bits_on_1_2_and_4_devices_and_no_use_after_a_fork():
    script = Path(__file__).parent / "devices_process.py"
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu",
                                "PYTHONPATH": str(Path(hetjax.__file__).parent.parent)}
    found = subprocess.run([sys.executable, "-W", "ignore::RuntimeWarning", str(script)], text=True, timeout=300,
                           env=environment, capture_output=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["the same bits: static shapes, float64",
                                         "the same bits: masked shapes, float32",
                                         "refused after a fork"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("more", [{"grad": ["q", "r"]}, {"n": list(range(9))}], ids=["derivatives", "masked"])
def test_the_same_bits_of_the_stalling_queue(dtype, more):
    """Blocks of one round and of many, along which some parameters are constant."""
    axes = {"q": {"linspace": [0.1, 1.5, 70]}, "r": {"geom": [1.5, 30.0, 5]}, "K": [0, 3, 20], "M": [0, 7]}
    axes |= {"n": more["n"]} if "n" in more else {}
    const = {"m": 3} | ({} if "n" in more else {"n": 2})
    sweep = Sweep("stalling", axes, metrics=["mean_number"], grad=more.get("grad"), const=const, dtype=dtype)
    reference = bits(sweep, 10**9, 128)
    for block_points in (30, 150, 1000):
        assert bits(sweep, block_points, 128) == reference, block_points


def long_sweep(**more):
    return Sweep(TOY, {"x": {"linspace": [0.5, 1.5, 300]}, "y": {"linspace": [0.0, 1.0, 100]}}, metrics=["bump"],
                 const={"m": 1, "K": 0}, block_points=10**6, run={"check": 0}, **more)


def test_the_fastest_inner_batch_is_fixed_in_the_store(tmp_path, monkeypatch):
    asked, speeds, chosen = [], {128: 1.2, 256: 1.1}, 128

    def measure(problem, batch, devices):
        asked.append(batch)
        return 100.0 * speeds.get(batch, 1.0)

    monkeypatch.setattr(plan, "measure_speed", measure)
    path = tmp_path / "s.zarr"
    run_sweep(long_sweep().problem, path)
    attributes = read_attributes(path)
    assert attributes["inner_batch"] == chosen and asked == [64, 16, 32, 128, 256]
    assert attributes["runs"][0]["calibration"] == {str(b): round(100 * speeds.get(b, 1.0)) for b in asked}
    (path / "status" / "c" / "0" / "0").unlink()
    speeds[256] = 9.0
    run_sweep(long_sweep().problem, path, RunOptions(resume="auto"))
    assert read_attributes(path)["inner_batch"] == chosen and len(asked) == 5, "the store's own is used again"


@pytest.mark.parametrize(("speeds", "chosen"), [({128: 1.04}, 64), ({32: 1.5}, 32), ({256: 1.06}, 256)])
def test_a_batch_must_be_clearly_faster(monkeypatch, speeds, chosen):
    monkeypatch.setattr(plan, "measure_speed", lambda problem, batch, devices: 100.0 * speeds.get(batch, 1.0))
    assert plan.calibrated_inner_batch(long_sweep().problem, None, hetjax.sweep.kernel.choose_devices())[0] == chosen


def test_short_sweeps_and_given_batches_are_not_calibrated(tmp_path, monkeypatch):
    def measure(problem, batch, devices):
        assert batch == 64, "only the default is timed"
        return 1e9

    monkeypatch.setattr(plan, "measure_speed", measure)
    assert plan.calibrated_inner_batch(long_sweep().problem, None, hetjax.sweep.kernel.choose_devices())[0] == 64
    monkeypatch.setattr(plan, "measure_speed", lambda *_: pytest.fail("timed"))
    for problem, asked in ((long_sweep(inner_batch=77).problem, None), (long_sweep().problem, 77)):
        assert plan.calibrated_inner_batch(problem, asked, hetjax.sweep.kernel.choose_devices()) == (77, {})


def test_nothing_forks():
    """Threads, or processes that are spawned: a fork of a process that runs JAX hangs."""
    sources = list(Path(hetjax.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            assert name not in ("fork", "forkpty", "Process", "ProcessPoolExecutor"), (source, name)
