"""End-to-end speed of a sweep against its two halves: ``python tests/benchmarks/sweep_end_to_end.py [--json FILE]``.

Protocol. One process, float64, all CPU devices. ``--points`` points of the stalling queue (with ``--model trivial``: of
two divisions) in blocks of ``--block-points``. Three contenders alternate, ``--repeats`` times each, and the best time
of each counts:

kernel   every block computed and discarded;
writing  the same blocks, computed beforehand (up to eight, reused in turn), committed to a store: compressed, written,
         flushed (fsync of every file and folder, status last) as in a run;
sweep    the real run: both, overlapped, with lock, log, verification and provenance, compiled kernels included, golden
         points too (compiled in the first repeat only); without points of the second route, whose chains compile in a
         second or two each, unless ``--check`` asks for them.

The sweep compiles again; "steady" is its time from the end of the first block to the end of the last, scaled to all.
Ratios: the time of the slower half over the sweep's. The halves share the cores, so the sum of the halves over the
steady time tells how much of them overlaps.

With ``--workers N`` a fourth contender alternates with them: the same run by N processes of a dask cluster on this
host (``dask:local:N``), timed from the end of its N-th block to that of its last, so that the start of the
processes and their compilations do not count. ``dask`` is the steady time of the sweep in this process over that one.
Blocks must take a second or more of computing: ``--workers 2 --points 3e8 --block-points 16777216 --m 10 --n 10`` on
two cores, with nothing else running.
"""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)
if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))

from timing import save  # noqa: E402

import hetjax  # noqa: E402
from hetjax import Axis, Metric, Model, Status, Sweep  # noqa: E402
from hetjax.sweep.kernel import Kernel, choose_devices, default_inner_batch  # noqa: E402
from hetjax.sweep.plan import lay_out  # noqa: E402
from hetjax.sweep.provenance import run_record  # noqa: E402
from hetjax.sweep.run import RunOptions, run_sweep  # noqa: E402
from hetjax.sweep.state import all_blocks  # noqa: E402
from hetjax.sweep.store import SweepStore  # noqa: E402

AXES = tuple(Axis(name, 0, 1e9) for name in ("q", "r", "K", "M"))
TRIVIAL = Model(
    "trivial", 1, "next to no work: shows what the engine itself costs",
    (*AXES, Axis("m", 1, 512, shape=True), Axis("n", 0, 512, shape=True)), (Metric("mean_number"),),
    lambda v, metrics, bounds: (
        {"mean_number": v["q"] / (1 - v["q"]) + v["K"] / (v["r"] + v["M"])}, jax.numpy.uint8(Status.OK)))


def main() -> None:
    """Prints a table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=float, default=2e7)
    parser.add_argument("--block-points", type=int, default=1 << 20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", choices=("stalling", "trivial"), default="stalling")
    parser.add_argument("--m", type=int, default=5)
    parser.add_argument("--n", type=int, default=2)
    parser.add_argument("--check", type=int, default=0, help="points compared with the second route in each run")
    parser.add_argument("--workers", type=int, default=0, help="processes of a dask cluster (default: none)")
    parser.add_argument("--folder", default=None, help="where stores are written (default: the temporary folder)")
    parser.add_argument("--json")
    options = parser.parse_args()
    K, r = 101, 100
    model = hetjax.get_model("stalling") if options.model == "stalling" else TRIVIAL
    sweep = Sweep(model, {"q": {"linspace": [0.05, 0.95, round(options.points / K / r)]},
                               "r": {"geom": [1.5, 300.0, r]}, "K": {"range": [0, K - 1]}},
                  const={"M": 50, "m": options.m, "n": options.n}, metrics=["mean_number"],
                  run={"check": options.check})
    problem, devices = sweep.problem, choose_devices()
    batch = default_inner_batch(problem, devices[0].platform)
    shape = lay_out(problem, batch, devices, options.block_points).block_shape
    blocks = list(all_blocks(problem.spec.shape, shape))
    kernel = Kernel(problem, shape, batch, devices)
    jax.block_until_ready(kernel.dispatch(blocks[0]))
    samples = {block: kernel.fetch(block, kernel.dispatch(block)) for block in blocks[:8]}
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    times: dict[str, list[float]] = {"kernel": [], "writing": []}
    try:
        for repeat in range(options.repeats):
            start = time.perf_counter()
            for block in blocks:
                jax.block_until_ready(kernel.dispatch(block))
            times["kernel"].append(time.perf_counter() - start)

            record = run_record("benchmark", devices)
            store = SweepStore.create(folder / f"w{repeat}.zarr", problem, shape, batch, record)
            start = time.perf_counter()
            for i, block in enumerate(blocks[:-1]):  # the last one may be cut to the grid
                store.commit(block, samples[blocks[i % min(8, len(blocks) - 1)]])
            times["writing"].append((time.perf_counter() - start) * len(blocks) / (len(blocks) - 1))
            store.close()
            shutil.rmtree(store.path)

            runs = [("sweep", "steady", None)] + [("dask_sweep", "dask", f"dask:local:{options.workers}")
                                                  ] * bool(options.workers)
            for whole, steady, executor in runs:
                marks: list[float] = []
                start = time.perf_counter()
                run_sweep(problem, folder / "s.zarr", RunOptions(
                    block_points=options.block_points, executor=executor, overwrite=True,
                    progress=lambda _, marks=marks: marks.append(time.perf_counter())))
                times.setdefault(whole, []).append(time.perf_counter() - start)
                begun = options.workers if executor else 1  # so many blocks end when computing has only begun
                scale = len(blocks) / (len(blocks) - begun)
                times.setdefault(steady, []).append((marks[-1] - marks[begun - 1]) * scale)
                shutil.rmtree(folder / "s.zarr")
    finally:
        shutil.rmtree(folder)
    best = {name: min(t) for name, t in times.items()}
    points = problem.spec.points
    for name, seconds in best.items():
        print(f"{name:<8} {seconds:8.3f} s  {points / seconds / 1e6:8.2f} M points/s")
    slower = max(best["kernel"], best["writing"])
    ratios = {"sweep": slower / best["sweep"], "steady": slower / best["steady"],
              "sum_of_halves": (best["kernel"] + best["writing"]) / best["steady"]}
    if options.workers:
        ratios["dask"] = best["steady"] / best["dask"]
        print(f"{options.workers} dask workers: {ratios['dask']:.2f} of the speed in one process"
              f" ({best['kernel'] / len(blocks):.2f} s of computing a block)")
    print(f"points {points:,} in {len(blocks)} blocks on {len(devices)} devices; slower half / sweep"
          f" {ratios['sweep']:.2f}, steady {ratios['steady']:.2f}; both halves / steady {ratios['sum_of_halves']:.2f}")
    save(__doc__, ratios, {"points": points, "blocks": len(blocks), "block_shape": shape, "times": times}, options.json)


if __name__ == "__main__":
    main()
