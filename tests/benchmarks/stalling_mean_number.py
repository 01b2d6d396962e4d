"""Speed of the stalling queue's mean number and its gradients:

    python tests/benchmarks/stalling_mean_number.py [--json FILE] [--points N] [--repeats R] [--only PART ..]

Protocol. One process, float64, two CPU devices (or as many as there are cores, if fewer). ``--points`` random points
with m, n fixed: q uniform on [.05, .99], r log-uniform on [1.2, 1000], K and M whole numbers up to 100. The contenders
of a size alternate, ``--repeats`` rounds; the best time of each counts, in wall seconds and in CPU seconds of the whole
process (which disturb less where other work shares the machine). Inputs lie on their devices beforehand; results stay
there.

kernel     hetjax the way of the sweep kernel: points in batches of the sweep's size (``lax.map`` over ``vmap``), two
           devices (``shard_map``), 512-bit vectors where the CPU has AVX-512;
vmap       plain ``jit(vmap(mean_number))``, one device;
numpy_1, numpy_2   the same algorithm over the same domain in numpy, with one thread and with two: blocks that fit the
           cache, in place, the best of several block sizes, found beforehand (stalling_numpy_whole.py); checked
           against the kernel to 1e-12 at points all over the domain first;
special_1, special_2   a simpler algorithm that only these points allow (q < 1, sums that cancel near 1, no
           rescaling), in the same way (stalling_numpy.py);
gradients  the kernel's value with the derivatives in q, r, K and M, as a sweep with ``grad`` computes them;
metrics    the kernel with all closed-form metrics.

Devices and threads are those of one process; numpy_1 is best compared with a run under JAX_NUM_CPU_DEVICES=1.
Then ``--sparse`` single points at m = 5, n = 2, K = M = 50: assembly of the sparse generator, scipy's direct solve,
mean number; and the time to trace and to compile value with gradients. Figures: kernel's points per second, the ratios,
and the largest relative difference between contenders (all must compute the same).
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)
if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", min(2, len(os.sched_getaffinity(0))))

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from stalling_numpy import NumpyMeanNumber, sparse_mean_number  # noqa: E402
from stalling_numpy_whole import NumpyWholeDomain  # noqa: E402
from timing import save, take_turns  # noqa: E402

from hetjax.models.stalling import Metrics, Params, mean_number  # noqa: E402
from hetjax.models.stalling.metrics import FROM_STATE_LAW, point_metrics  # noqa: E402
from hetjax.numerics.counting import Count  # noqa: E402
from hetjax.sweep.kernel import vector_width  # noqa: E402

SIZES = ((5, 2), (16, 16), (64, 64))
CLOSED = tuple(name for name in Metrics._fields if name not in FROM_STATE_LAW)
BATCH = 64  # hetjax.sweep.kernel.default_inner_batch
MESH = Mesh(np.array(jax.devices()), ("points",))


def random_points(count: int, seed: int = 1) -> list[np.ndarray]:
    """q, r, K, M."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(.05, .99, count), np.exp(rng.uniform(np.log(1.2), np.log(1000), count)),
            rng.integers(0, 101, count).astype(float), rng.integers(0, 101, count).astype(float)]


def value(m: int, n: int) -> Callable[..., jax.Array]:
    """The mean number of a scalar point."""
    return lambda q, r, K, M: mean_number(Params(q, r, K, M, m, n))


def value_and_gradients(m: int, n: int) -> Callable[..., Any]:
    """With its derivatives in q, r, K, M."""
    return jax.value_and_grad(value(m, n), (0, 1, 2, 3))


def closed_metrics(m: int, n: int) -> Callable[..., Any]:
    """All metrics without p_empty, p_stuck and p_slow."""
    return lambda q, r, K, M: point_metrics(q, r, K, M, jnp.ones_like(q), Count(m), Count(n), CLOSED)


def like_the_sweep(point: Callable[..., Any], batch: int, mesh: Mesh = MESH) -> Callable[..., Any]:
    """``point`` over arrays on all devices of ``mesh``, ``batch`` points at a time."""
    def part(*arrays: jax.Array) -> Any:
        rows = tuple(a.reshape(-1, batch) for a in arrays)
        return jax.tree.map(lambda a: a.reshape(-1), jax.lax.map(lambda row: jax.vmap(point)(*row), rows))

    everywhere = PartitionSpec("points")
    whole = jax.shard_map(part, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    width = vector_width("cpu")
    return jax.jit(whole, compiler_options={"xla_cpu_prefer_vector_width": width} if width else None)


def anywhere(count: int, seed: int = 3) -> list[np.ndarray]:
    """q, r, K, M all over the domain, with q = 1 and rho = 1 among them."""
    rng = np.random.default_rng(seed)
    q, r = (np.exp(rng.uniform(np.log(low), np.log(high), count)) for low, high in ((1e-8, 1e4), (1e-3, 1e9)))
    q[::2] = rng.uniform(.05, 2, q[::2].size)
    q[::64], q[1::64], q[2::64], r[2::64] = 1, 1 - 2.0**-30, 1.5, 1
    K, M = np.exp(rng.uniform(0, np.log(1e7), (2, count)))
    K[::2], M[::3] = rng.integers(0, 101, K[::2].size), rng.integers(0, 101, M[::3].size)
    return [q, r, K, M]


def best_block(kind: type[NumpyMeanNumber], m: int, n: int, threads: int, points: list[np.ndarray]) -> NumpyMeanNumber:
    """The numpy contender with the fastest block size on a part of the points."""
    part = [a[:1 << 17] for a in points]
    candidates = {size: kind(m, n, size, threads) for size in (2048, 4096, 8192, 16384, 32768)}
    times = take_turns({str(size): partial(f, *part) for size, f in candidates.items()}, 3)
    return candidates[min(candidates, key=lambda size: times[str(size)].wall)]


def check_whole_domain(m: int, n: int) -> float:
    """The largest relative difference of the whole-domain contender from hetjax; raises where it is not the same."""
    points = anywhere(1 << 14)
    with np.errstate(over="ignore", under="ignore"):
        found = NumpyWholeDomain(m, n, 4096, 1)(*points)
    difference = float(np.max(np.abs(found / np.asarray(like_the_sweep(value(m, n), BATCH)(*points)) - 1)))
    if not difference < 1e-12:
        raise SystemExit(f"m={m} n={n}: the numpy contender differs by {difference}")
    return difference


def compare(m: int, n: int, count: int, repeats: int, only: list[str]) -> dict[str, Any]:
    """All contenders at one size."""
    points = random_points(count)
    spread = [jax.device_put(a, NamedSharding(MESH, PartitionSpec("points"))) for a in points]
    single = [jax.device_put(a, jax.devices()[0]) for a in points]
    kernel = like_the_sweep(value(m, n), BATCH)
    contenders: dict[str, Callable[[], Any]] = {"kernel": partial(kernel, *spread)}
    if "vmap" in only:
        contenders["vmap"] = partial(jax.jit(jax.vmap(value(m, n))), *single)
    if "numpy" in only:
        for name, kind in (("numpy", NumpyWholeDomain), ("special", NumpyMeanNumber)):
            for threads in (1, 2):
                contenders[f"{name}_{threads}"] = partial(best_block(kind, m, n, threads, points), *points)
    if "gradients" in only:
        contenders["gradients"] = partial(like_the_sweep(value_and_gradients(m, n), BATCH), *spread)
    if "metrics" in only:
        contenders["metrics"] = partial(like_the_sweep(closed_metrics(m, n), BATCH), *spread)
    reference = np.asarray(contenders["kernel"]())
    results = {"gradients": lambda x: x[0], "metrics": lambda x: x["mean_number"]}
    differences = {name: float(np.max(np.abs(np.asarray(results.get(name, np.asarray)(run())) / reference - 1)))
                   for name, run in contenders.items() if name != "kernel"}
    if "numpy" in only:
        differences["numpy_whole_domain"] = check_whole_domain(m, n)
    times = {name: (t.wall, t.cpu) for name, t in take_turns(contenders, repeats).items()}
    wall, cpu = times["kernel"]
    return {"m": m, "n": n, "points": count, "kernel_points_per_second": count / wall,
            "over_kernel_wall": {name: t[0] / wall for name, t in times.items() if name != "kernel"},
            "over_kernel_cpu": {name: t[1] / cpu for name, t in times.items() if name != "kernel"},
            "relative_difference": differences, "seconds": times}


def sparse(count: int, per_point: float) -> dict[str, float]:
    """Seconds a point of scipy's solve, and how much longer than ``per_point`` that is."""
    q, r, _, _ = random_points(count, seed=2)
    K = np.full(count, 50.0)
    exact = np.asarray(jax.jit(jax.vmap(value(5, 2)))(q, r, K, K))
    spent, error = [], 0.0
    for i in range(count):
        start = time.perf_counter()
        got = sparse_mean_number(q[i], r[i], 50, 50, 5, 2)
        spent.append(time.perf_counter() - start)
        error = max(error, abs(got / exact[i] - 1))
    each = float(np.median(spent))
    return {"points": count, "median_seconds": each, "over_kernel_wall": each / per_point,
            "relative_difference": float(error)}


def compile_times(sizes: tuple[tuple[int, int], ...]) -> dict[str, dict[str, float]]:
    """Seconds to trace and to compile value with gradients, vectorised (the better of two: wall, CPU)."""
    shapes = [jax.ShapeDtypeStruct((128,), jnp.float64)] * 4
    found = {}
    for m, n in sizes:
        runs = []
        for _ in range(2):
            jax.clear_caches()
            start, cpu = time.perf_counter(), time.process_time()
            lowered = jax.jit(jax.vmap(value_and_gradients(m, n))).lower(*shapes)
            traced = time.perf_counter() - start
            lowered.compile()
            runs.append((time.perf_counter() - start, time.process_time() - cpu, traced))
        found[f"{m},{n}"] = {"total": min(r[0] for r in runs), "cpu": min(r[1] for r in runs),
                             "tracing": min(r[2] for r in runs)}
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1 << 20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sparse", type=int, default=300)
    parser.add_argument("--sizes", nargs="*", default=[f"{m},{n}" for m, n in SIZES])
    parts = ["vmap", "numpy", "gradients", "metrics", "sparse", "compile"]
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--json")
    options = parser.parse_args()
    unit = BATCH * len(jax.devices())
    count = max(unit, options.points // unit * unit)
    report: dict[str, Any] = {"jax": jax.__version__, "devices": len(jax.devices()),
                              "vector_width": vector_width("cpu"), "load_average": os.getloadavg(), "sizes": []}
    for size in options.sizes:
        m, n = (int(x) for x in size.split(","))
        found = compare(m, n, count, options.repeats, options.only)
        report["sizes"].append(found)
        print(f"m={m} n={n}: kernel {found['kernel_points_per_second'] / 1e6:.1f} M points/s")
        for name, ratio in found["over_kernel_wall"].items():
            print(f"    {name:10s} {ratio:8.2f} x the kernel's time ({found['over_kernel_cpu'][name]:.2f} x CPU),"
                  f" difference {found['relative_difference'][name]:.1e}")
    if "sparse" in options.only and report["sizes"]:
        first = report["sizes"][0]
        report["sparse"] = sparse(options.sparse, 1 / first["kernel_points_per_second"])
        print(f"scipy.sparse {report['sparse']['median_seconds'] * 1e3:.2f} ms a point,"
              f" {report['sparse']['over_kernel_wall']:.0f} x the kernel's time at m={first['m']} n={first['n']}")
    if "compile" in options.only:
        report["compile_seconds"] = compile_times(((5, 2), (16, 16), (64, 64), (512, 512)))
        for name, spent in report["compile_seconds"].items():
            print(f"compile value + gradients at {name}: {spent['total']:.2f} s ({spent['cpu']:.2f} s CPU,"
                  f" tracing {spent['tracing']:.2f} s)")
    print("load average", *os.getloadavg())
    ratios = {f"m={row['m']} n={row['n']}": {f"{name} over kernel": v for name, v in row["over_kernel_wall"].items()}
              for row in report["sizes"]}
    if "sparse" in report:
        ratios["sparse over kernel"] = report["sparse"]["over_kernel_wall"]
    save(__doc__, ratios, report, options.json)


if __name__ == "__main__":
    main()
