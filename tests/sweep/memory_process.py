"""Runs a sweep of COUNT points in a process of its own and prints its peak memory in bytes: COUNT STORE."""

import sys
from pathlib import Path

import hetjax
from hetjax import Axis, Metric, Model, Status, Sweep


def main(count, path):
    """Two metrics and a derivative (25 bytes a point) in blocks of 2^18 points."""
    hetjax.enable_x64()
    import jax.numpy as jnp
    model = Model("cheap", 1, "cheap", (Axis("a", 0, 1e9), Axis("b", 0, 1e9)), (Metric("f"), Metric("g")),
                  lambda v, metrics, bounds: (
                      {"f": v["a"] + v["b"] * v["b"], "g": v["a"] - v["b"]}, jnp.uint8(Status.OK)))
    rows = count // 1000
    axes = {"a": {"linspace": [0.0, 1.0, rows]}, "b": {"linspace": [0.0, 1.0, 1000]}}
    Sweep(model, axes, grad={"of": ["f"], "wrt": ["b"]}).run(path, block_points=1 << 18)
    # not ru_maxrss: a process inherits that from the one that started it
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) * 1024)


if __name__ == "__main__":
    main(int(float(sys.argv[1])), sys.argv[2])
