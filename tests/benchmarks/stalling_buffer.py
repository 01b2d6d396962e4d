"""Time of the optimal stalling buffer over that of one mean number:

    python tests/benchmarks/stalling_buffer.py [--json FILE] [--points N] [--repeats R] [--sizes m,n ..]

Protocol. One process, float64, one CPU device. ``--points`` random points (q uniform on [.05, .99], r log-uniform on
[1.2, 1000], M whole up to 100; K, which the optimum does not have, whole up to 100) with m, n fixed. The contenders
alternate, ``--repeats`` rounds; the best time of each counts. Each problem runs as its sweep would: points in batches
(``lax.map`` over ``vmap``), 512-bit vectors where the CPU has AVX-512; only the results named are kept, so that the
compiler drops what the others need.

mean_number   the mean number, 1024 points a batch, of sixteen times as many points: the unit;
real          ``K_real`` of ``optimal_buffer``, not enumerated: a doubling scan and ten interpolation steps;
bracketed     K, its real counterpart, N, gaps, gains and statuses without enumeration (``enumerate_up_to=0``);
enumerated    the same with the certificate by enumeration wherever a bound of at most 1024 closes it. Its loops run
              to the slowest lane of a batch, so the cost depends on the points around. A quarter of the points.

Figures: nanoseconds a problem, ratios to the mean number, and the share of points with an enumerated certificate.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from stalling_mean_number import random_points, value
from timing import over, save, take_turns

from hetjax.models.stalling import Params
from hetjax.models.stalling.buffer import Certificate, optimal_buffer
from hetjax.sweep.kernel import vector_width

BATCHES = {"mean_number": 64, "real": 256, "bracketed": 256, "enumerated": 64}
SHARES = {"mean_number": 16.0, "real": 1.0, "bracketed": 1.0, "enumerated": .25}  # of --points


def problem(name: str, m: int, n: int) -> Callable[..., Any]:
    """The scalar function of q, r, K, M that is timed."""
    if name == "mean_number":
        return value(m, n)
    limit = {"enumerate_up_to": 0} if name != "enumerated" else {}

    def best(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array) -> Any:
        found = optimal_buffer(Params(q, r, 0 * K, M, m, n), **limit)
        return found.K_real if name == "real" else found

    return best


def in_batches(point: Callable[..., Any], batch: int) -> Callable[..., Any]:
    """``point`` over flat arrays, ``batch`` points at a time."""
    def whole(*arrays: jax.Array) -> Any:
        return jax.lax.map(lambda row: jax.vmap(point)(*row), tuple(a.reshape(-1, batch) for a in arrays))

    width = vector_width("cpu")
    return jax.jit(whole, compiler_options={"xla_cpu_prefer_vector_width": width} if width else None)


def measure(m: int, n: int, count: int, repeats: int) -> dict[str, Any]:
    """All problems at one size."""
    counts = {name: int(share * count) for name, share in SHARES.items()}
    points = [jax.device_put(a, jax.devices()[0]) for a in random_points(max(counts.values()))]
    runs = {name: partial(in_batches(problem(name, m, n), batch), *(a[:counts[name]] for a in points))
            for name, batch in BATCHES.items()}
    certified = float(np.mean(np.asarray(runs["enumerated"]().certificate) == int(Certificate.ENUMERATED)))
    each = {name: (t.wall / counts[name], t.cpu / counts[name]) for name, t in take_turns(runs, repeats).items()}
    unit = each["mean_number"]
    return {"m": m, "n": n, "points": count, "enumerated_share": certified,
            "nanoseconds": {name: t[0] * 1e9 for name, t in each.items()},
            "over_mean_number_wall": {name: t[0] / unit[0] for name, t in each.items()},
            "over_mean_number_cpu": {name: t[1] / unit[1] for name, t in each.items()}}


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1 << 14)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="*", default=["5,2", "16,16"])
    parser.add_argument("--json")
    options = parser.parse_args()
    count = max(1, options.points // 1024) * 1024  # whole batches of each
    report: dict[str, Any] = {"jax": jax.__version__, "vector_width": vector_width("cpu"),
                              "load_average": os.getloadavg(), "sizes": []}
    for size in options.sizes:
        m, n = (int(x) for x in size.split(","))
        found = measure(m, n, count, options.repeats)
        report["sizes"].append(found)
        print(f"m={m} n={n}: {found['enumerated_share']:.0%} of the points with an enumerated certificate")
        for name, each in found["nanoseconds"].items():
            print(f"    {name:12s} {each:10.1f} ns, {found['over_mean_number_wall'][name]:8.1f} x the mean number's"
                  f" time ({found['over_mean_number_cpu'][name]:.1f} x CPU)")
    print("load average", *os.getloadavg())
    save(__doc__, {f"m={row['m']} n={row['n']}": over(row["nanoseconds"], "mean_number") for row in report["sizes"]},
         report, options.json)


if __name__ == "__main__":
    main()
