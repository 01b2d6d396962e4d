"""Compile array shapes one by one, or trace them? ``python tests/benchmarks/sweep_shapes.py [--json FILE]``.

Protocol. One process, float64, all CPU devices. The mean number in the stalling queue over (q, r) with m = 1, ..., 8
and n = 4: eight shapes. ``static`` compiles a kernel for each, ``masked`` one for all with m traced. The first call of
each kernel is its compilation; then the two compute the same block of ``--points`` points in turn, ``--repeats`` times,
and the best time of each counts. With S shapes of P points each the two take the same time where

    S compile_static + S P time_static = compile_masked + S P time_masked,

so that compiling each pays from P = (compile_static - compile_masked / S) / (time_masked - time_static) points a shape.
``hetjax.sweep.problem.POINTS_PER_COMPILATION`` is that figure, rounded up to a power of two.
"""

import argparse
import math
import os
import time
from dataclasses import replace

import jax

jax.config.update("jax_enable_x64", True)
if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))

from timing import over, save  # noqa: E402

from hetjax import Sweep  # noqa: E402
from hetjax.sweep.kernel import Kernel, choose_devices, default_inner_batch  # noqa: E402

SHAPES = range(1, 9)


def seconds(kernel: Kernel, block: tuple[int, ...]) -> float:
    """The time of one block."""
    start = time.perf_counter()
    jax.block_until_ready(kernel.dispatch(block))
    return time.perf_counter() - start


def main() -> None:
    """Prints the times and where they cross."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=float, default=2**18)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    side = round(math.sqrt(options.points))
    sweep = Sweep("stalling", {"m": list(SHAPES), "q": {"linspace": [0.05, 0.95, side]},
                               "r": {"geom": [1.5, 300.0, side]}},
                  const={"K": 10, "M": 50, "n": 4}, metrics=["mean_number"])
    devices = choose_devices()
    batch = default_inner_batch(sweep.problem, devices[0].platform)
    kernels = {shapes: Kernel(replace(sweep.problem, shapes=shapes), (1, side, side), batch, devices)
               for shapes in ("static", "masked")}
    blocks = [(i, 0, 0) for i in range(len(SHAPES))]
    first = {"static": [seconds(kernels["static"], block) for block in blocks],
             "masked": [seconds(kernels["masked"], blocks[0])]}
    times: dict[str, list[float]] = {"static": [], "masked": []}
    for _ in range(options.repeats):
        for shapes, kernel in kernels.items():
            times[shapes].append(sum(seconds(kernel, block) for block in blocks))
    point = {shapes: min(t) / len(SHAPES) / side**2 for shapes, t in times.items()}
    compile_seconds = {shapes: sum(t) / len(t) - point[shapes] * side**2 for shapes, t in first.items()}
    for shapes in kernels:
        print(f"{shapes}: compiled in {compile_seconds[shapes]:.2f} s, {point[shapes] * 1e9:.1f} ns a point")
    gain = point["masked"] - point["static"]
    crossover = (compile_seconds["static"] - compile_seconds["masked"] / len(SHAPES)) / gain if gain > 0 else math.inf
    print(f"compiling each shape pays from {crossover:,.0f} points a shape; a masked point takes"
          f" {point['masked'] / point['static']:.2f} times as long")
    save(__doc__, {"point": over(point, "static"), "compilation": over(compile_seconds, "static")},
         {"compile": compile_seconds, "point": point, "times": times, "crossover": crossover}, options.json)


if __name__ == "__main__":
    main()
