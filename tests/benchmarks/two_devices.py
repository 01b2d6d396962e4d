"""Two CPU devices against one, for every registered model:

    python tests/benchmarks/two_devices.py [--json FILE] [--models NAME ..] [--points N] [--repeats R]

Protocol. Each measurement is a process of its own, started with one device confined to one core, with one device, or
with two: XLA lets one device work on several cores where its operations are large, which leaves less to a second
device. It computes all metrics that are not expensive, float64, at ``--points`` points: the model's first golden
point with its first real axis spread by 2 % in a random order (work may depend on it), batches of the sweep engine's
size, shared out to the devices as the sweep engine does (``shard_map`` over ``lax.map`` over ``vmap``, inputs on
their devices beforehand). The least wall time of ``--repeats`` calls counts. As under the command line, linear
algebra has no threads of its own (OPENBLAS_NUM_THREADS=1). Models of which so many points take longer than
``--seconds`` get fewer, those which take less than 0.1 s more; the figure says how many. ``cores``: CPU seconds over
wall seconds. The ratios mean something on an idle machine with two free cores only: the load average before each
process is printed beside them.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

from timing import save


def measure(name: str, devices: int, points: int, repeats: int, budget: float) -> dict[str, Any]:
    """In this process: seconds a call, its points, and the cores it used; ``devices`` = 0: one, on one core."""
    alone = devices == 0
    if alone:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        devices = 1

    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", devices)

    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from hetjax.models.registry import get_model
    from hetjax.sweep.kernel import vector_width

    model = get_model(name)
    golden = model.golden[0][0]
    static = {axis.name: int(golden.get(axis.name, axis.default)) for axis in model.axes if axis.shape}
    real = {axis.name: float(golden.get(axis.name, axis.default)) for axis in model.axes if not axis.shape}
    spread = next(axis for axis in model.axes if not axis.shape and not axis.integer and real[axis.name] > 0)
    metrics = tuple(metric.name for metric in model.metrics if not metric.expensive)
    mesh = Mesh(np.array(jax.devices()), ("points",))
    assert mesh.size == devices

    def run(count: int, batch: int) -> tuple[float, float]:
        factors = np.random.default_rng(0).permutation(np.linspace(0.98, 1.0, count))  # loads must stay below 1
        arrays = {k: np.full(count, v) for k, v in real.items()}
        arrays[spread.name] = arrays[spread.name] * factors
        inside = jax.device_put(arrays, NamedSharding(mesh, PartitionSpec("points")))

        def part(arrays: dict[str, jax.Array]) -> Any:
            rows = jax.tree.map(lambda a: a.reshape(-1, batch), arrays)
            one = jax.vmap(lambda point: model.point({**point, **static}, metrics, {}))
            return jax.tree.map(lambda a: a.reshape(-1), jax.lax.map(one, rows))

        width = vector_width("cpu")
        call = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=PartitionSpec("points"),
                                     out_specs=PartitionSpec("points"), check_vma=False),
                       compiler_options={"xla_cpu_prefer_vector_width": width} if width else None)
        spent = []
        for _ in range(repeats + 1):
            start, processor = time.perf_counter(), time.process_time()
            jax.block_until_ready(call(inside))
            spent.append((time.perf_counter() - start, time.process_time() - processor))
            if sum(wall for wall, _ in spent) > 4 * budget and len(spent) > 1:
                break
        wall, used = min(spent[1:])
        return wall, used / wall

    count, batch = 2 * 8, 8
    each = run(count, batch)[0] / count
    if each * points > budget and each < budget / 1024:  # so few points mostly measure the call itself
        count, batch = 2 * 256, 256
        each = run(count, batch)[0] / count
    batch = model.inner_batch or 64
    while batch > 8 and each * 2 * batch > budget:
        batch //= 2
    count = int(min(points, max(2 * batch, budget / each))) // (2 * batch) * 2 * batch
    found, cores = run(count, batch)
    while alone and found < 0.1:
        count *= 4
        found, cores = run(count, batch)
    return {"points": count, "batch": batch, "seconds": found, "cores": cores}


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--points", type=int, default=1 << 17)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="at most so long a call on one device, roughly")
    parser.add_argument("--json")
    parser.add_argument("--measure", nargs=2, metavar=("MODEL", "DEVICES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, devices = options.measure
        print(json.dumps(measure(name, int(devices), options.points, options.repeats, options.seconds)))
        return
    from hetjax.models.registry import model_names
    report = []
    for name in options.models or model_names():
        found, points, loads = {}, options.points, []
        for devices in (0, 1, 2):
            loads.append(os.getloadavg()[0])
            command = [sys.executable, __file__, "--measure", name, str(devices), "--points", str(points), "--repeats",
                       str(options.repeats), "--seconds", str(options.seconds * (1 if devices == 0 else 100))]
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  env={"OPENBLAS_NUM_THREADS": "1", **os.environ})
            if done.returncode:
                raise SystemExit(f"{name} with {devices} devices: {done.stderr.strip().splitlines()[-1]}")
            found[devices] = json.loads(done.stdout.splitlines()[-1])
            points = found[devices]["points"]
        core, one, two = found.values()
        over_core, over_one = core["seconds"] / two["seconds"], one["seconds"] / two["seconds"]
        report.append({"model": name, "over_core": over_core, "over_one": over_one, "core": core, "one": one,
                       "two": two, "load_average": loads})
        print(f"{name:26s} two devices {over_core:5.2f} times as fast as one core, {over_one:5.2f} as one device, which"
              f" used {one['cores']:.2f} cores ({points} points, {1e6 * core['seconds'] / points:.3g} us a point on one"
              f" core; load average {max(loads):.1f})", flush=True)
    ratios = {f"{row['model']}: {kind} over two devices": row[key] for row in report
              for kind, key in (("one core", "over_core"), ("one device", "over_one"))}
    save(__doc__, ratios, report, options.json)


if __name__ == "__main__":
    main()
