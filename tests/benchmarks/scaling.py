"""How the cost of the stalling queue's mean number grows with its parameters, the number of points and the sizes:

    python tests/benchmarks/scaling.py [--json FILE] [--repeats R] [--largest N] [--only PART ..]

Protocol. One process, float64, the points and the kernel of stalling_mean_number.py on all devices; contenders take
turns, the least CPU seconds of the process count (and the wall seconds beside them).

parameters   K and M both at 1, 1e2, 1e4, 1e6, 2^18 points, at (5, 2) and (16, 16): largest time over smallest
             (asked: at most 1.1);
points       1e5, 1e6, .. up to ``--largest`` points (1e8 by default, where the memory allows: 40 bytes a point and the
             result) at (5, 2): time a point over that of the fewest;
sizes        m = n = 8, 16, .., 128: time a point over m n; O(m n) if it does not grow (small sizes pay for what does
             not depend on them).
"""

import argparse
import os
from functools import partial
from typing import Any

import jax
import numpy as np
import stalling_mean_number as base  # sets the precision and the number of devices
from jax.sharding import NamedSharding, PartitionSpec
from timing import save, take_turns

PARTS = ["parameters", "points", "sizes"]
UNIT = base.BATCH * len(jax.devices())


def spread(points: list[np.ndarray]) -> list[jax.Array]:
    """The arrays on their devices."""
    return [jax.device_put(a, NamedSharding(base.MESH, PartitionSpec("points"))) for a in points]


def over_parameters(m: int, n: int, repeats: int) -> dict[str, Any]:
    """Nanoseconds a point for every K = M."""
    count = (1 << 18) // UNIT * UNIT
    q, r, _, _ = base.random_points(count)
    kernel = base.like_the_sweep(base.value(m, n), base.BATCH)
    places = (1.0, 1e2, 1e4, 1e6)
    times = take_turns({f"{k:g}": partial(kernel, *spread([q, r, np.full(count, k), np.full(count, k)]))
                        for k in places}, repeats)
    cpu, wall = ([1e9 * x / count for x in part] for part in
                 ([t.cpu for t in times.values()], [t.wall for t in times.values()]))
    return {"m": m, "n": n, "places": places, "ns_cpu": cpu, "ns_wall": wall, "ratio": max(cpu) / min(cpu)}


def over_points(largest: int, repeats: int) -> list[dict[str, float]]:
    """Nanoseconds a point for growing numbers of points."""
    kernel, found, wanted = base.like_the_sweep(base.value(5, 2), base.BATCH), [], 100_000
    while wanted <= largest:
        count = -(-wanted // UNIT) * UNIT
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        if 100 * count > memory:
            print(f"{count} points: left out, {memory / 1e9:.0f} GB of memory are free")
            break
        arrays = spread(base.random_points(count))
        time = take_turns({"kernel": partial(kernel, *arrays)}, max(repeats if count < 10**7 else 2, 1))["kernel"]
        found.append({"points": count, "ns_cpu": 1e9 * time.cpu / count, "ns_wall": 1e9 * time.wall / count})
        wanted *= 10
    return found


def over_sizes(repeats: int) -> list[dict[str, float]]:
    """Nanoseconds a point, and over m n, for m = n = 8 to 128."""
    count = (1 << 15) // UNIT * UNIT
    arrays = spread(base.random_points(count))
    sizes = (8, 16, 32, 64, 128)
    times = take_turns({str(s): partial(base.like_the_sweep(base.value(s, s), base.BATCH), *arrays) for s in sizes},
                       repeats)
    each = {s: 1e9 * times[str(s)].cpu / count for s in sizes}
    return [{"size": s, "ns_cpu": each[s], "ns_cpu_over_mn": each[s] / s**2} for s in sizes]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--largest", type=float, default=1e8)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--json")
    options = parser.parse_args()
    report: dict[str, Any] = {"devices": len(jax.devices()), "load_average": os.getloadavg()}
    if "parameters" in options.only:
        report["parameters"] = [over_parameters(m, n, options.repeats) for m, n in ((5, 2), (16, 16))]
        for row in report["parameters"]:
            print(f"m={row['m']} n={row['n']}: K = M = " + ", ".join(
                f"{k:g}: {ns:.1f} ns" for k, ns in zip(row["places"], row["ns_cpu"], strict=True))
                + f"; largest over smallest {row['ratio']:.2f}", flush=True)
    if "points" in options.only:
        report["points"] = over_points(int(options.largest), options.repeats)
        for row in report["points"]:
            print(f"{row['points']} points: {row['ns_cpu']:.1f} ns CPU a point, {row['ns_wall']:.1f} wall;"
                  f" {row['ns_cpu'] / report['points'][0]['ns_cpu']:.2f} x that of the fewest")
    if "sizes" in options.only:
        report["sizes"] = over_sizes(options.repeats)
        for row in report["sizes"]:
            print(f"m = n = {row['size']}: {row['ns_cpu']:.0f} ns a point, {row['ns_cpu_over_mn']:.3f} ns over m n;"
                  f" {row['ns_cpu_over_mn'] / report['sizes'][-1]['ns_cpu_over_mn']:.2f} x that of the largest")
    print("load average", *os.getloadavg())
    ratios = {f"places, m={row['m']} n={row['n']}, largest over smallest": row["ratio"]
              for row in report.get("parameters", [])}
    ratios |= {f"{row['points']} points over the fewest": row["ns_cpu"] / report["points"][0]["ns_cpu"]
               for row in report.get("points", [])}
    ratios |= {f"m = n = {row['size']} over the largest, by m n": row["ns_cpu_over_mn"]
               / report["sizes"][-1]["ns_cpu_over_mn"] for row in report.get("sizes", [])}
    save(__doc__, ratios, report, options.json)


if __name__ == "__main__":
    main()
