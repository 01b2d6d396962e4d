"""The stalling queue's mean number against a C kernel tuned by hand, and what else is bought with one mean number:

    python tests/benchmarks/stalling_c.py [--json FILE] [--points N] [--repeats R] [--sizes 5,2 ..] [--only PART ..]

Protocol. One process, float64, the points of stalling_mean_number.py on their devices beforehand, contenders in turns,
the least time of each; wall seconds, and CPU seconds of the process, which other work on the machine disturbs less.

c_1, c_2   the same algorithm over the same domain in C (reference_c/stalling.c), 8 points a vector with AVX-512, on one
           thread and on two; how many vectors go side by side is chosen before. It writes into one array that is there
           already, hetjax into a new one a call. Its results must be hetjax's to 1e-13, here and all over the domain;
kernel_1, kernel_2   the way of the sweep kernel on one device and on two;
vmap, vmap_wide   plain jit(vmap(mean_number)), as a user writes it, and with 512-bit vectors asked for;
gradients, hessian   value with all derivatives in q, r, K, M; all second derivatives (reverse over forward mode, what
           jax.hessian gives); metrics: all closed-form metrics. All on as many devices as kernel_2.

Figures: time over the C kernel's with as many threads; time over kernel_1 for vmap, over kernel_2 for the rest.
"""

import argparse
import ctypes
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import stalling_mean_number as base  # sets the precision and the number of devices
from c_reference import ARRAY, load
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from timing import save, take_turns

from hetjax.sweep.kernel import vector_width

SIDE_BY_SIDE = (1, 2, 4)
UNIT = 2 * 8 * max(SIDE_BY_SIDE)
PARTS = ["vmap", "gradients", "hessian", "metrics"]


def c_kernel(m: int, n: int, points: list[np.ndarray]) -> tuple[Callable[[int], Any], np.ndarray, int]:
    """(call with the number of threads, where the results lie, vectors side by side) of the fastest form."""
    out = np.empty_like(points[0])
    types = [ARRAY] * 5 + [ctypes.c_size_t, ctypes.c_int]
    forms = {u: load("stalling.c", "mean_numbers", types, MM=m, NN=n, UU=u) for u in SIDE_BY_SIDE}
    part = out.size // 8 // UNIT * UNIT or out.size
    times = take_turns({str(u): partial(f, *points, out, part, 1) for u, f in forms.items()}, 5)
    best = min(forms, key=lambda u: times[str(u)].cpu)

    def call(threads: int) -> None:
        if forms[best](*points, out, out.size, threads):
            raise SystemExit("a thread could not be started")

    return call, out, best


def check_whole_domain(m: int, n: int) -> float:
    """The largest relative difference of the C kernel from hetjax all over the domain; ends where it is not small."""
    points = base.anywhere(1 << 14)
    call, out, _ = c_kernel(m, n, points)
    call(1)
    difference = float(np.max(np.abs(out / np.asarray(base.like_the_sweep(base.value(m, n), base.BATCH)(*points)) - 1)))
    if not difference < 1e-12:
        raise SystemExit(f"m={m} n={n}: the C kernel differs by {difference}")
    return difference


def hessian(m: int, n: int) -> Callable[..., Any]:
    """All second derivatives in q, r, K, M."""
    return jax.hessian(base.value(m, n), (0, 1, 2, 3))


def compare(m: int, n: int, count: int, repeats: int, only: list[str]) -> dict[str, Any]:
    """All contenders at one size."""
    points = base.random_points(count)
    one = Mesh(np.array(jax.devices()[:1]), ("points",))
    spread = [jax.device_put(a, NamedSharding(base.MESH, PartitionSpec("points"))) for a in points]
    single = [jax.device_put(a, NamedSharding(one, PartitionSpec("points"))) for a in points]
    call, out, side_by_side = c_kernel(m, n, points)
    value = base.value(m, n)
    contenders: dict[str, Callable[[], Any]] = {
        "c_1": partial(call, 1), "kernel_1": partial(base.like_the_sweep(value, base.BATCH, one), *single),
        "c_2": partial(call, 2), "kernel_2": partial(base.like_the_sweep(value, base.BATCH), *spread)}
    if "vmap" in only:
        width = vector_width("cpu")
        wide = {"xla_cpu_prefer_vector_width": width} if width else None
        contenders["vmap"] = partial(jax.jit(jax.vmap(value)), *single)
        contenders["vmap_wide"] = partial(jax.jit(jax.vmap(value), compiler_options=wide), *single)
    for name, batch, point in (("gradients", base.BATCH, base.value_and_gradients(m, n)),
                               ("hessian", base.BATCH, hessian(m, n)),
                               ("metrics", base.BATCH, base.closed_metrics(m, n))):
        if name in only:
            contenders[name] = partial(base.like_the_sweep(point, batch), *spread)
    times = {name: (t.wall, t.cpu) for name, t in take_turns(contenders, repeats).items()}
    difference = float(np.max(np.abs(out / np.asarray(contenders["kernel_1"]()) - 1)))
    if not difference < 1e-13:
        raise SystemExit(f"m={m} n={n}: the C kernel differs by {difference}")
    over = {name: "c_1" if name == "kernel_1" else "c_2" if name == "kernel_2" else
            "kernel_1" if name.startswith("vmap") else "kernel_2" for name in times if not name.startswith("c_")}
    return {"m": m, "n": n, "points": count, "vectors_side_by_side": side_by_side, "seconds": times,
            "relative_difference": difference, "whole_domain_difference": check_whole_domain(m, n),
            "million_points_per_second": {name: count / t[0] / 1e6 for name, t in times.items()},
            "over": {name: {"of": of, "wall": times[name][0] / times[of][0], "cpu": times[name][1] / times[of][1]}
                     for name, of in over.items()}}


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1 << 20)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--sizes", nargs="*", default=[f"{m},{n}" for m, n in base.SIZES])
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--json")
    options = parser.parse_args()
    unit = base.BATCH * len(jax.devices())
    count = max(unit, options.points // unit * unit)
    report: dict[str, Any] = {"jax": jax.__version__, "devices": len(jax.devices()), "load_average": os.getloadavg(),
                              "sizes": []}
    for size in options.sizes:
        m, n = (int(x) for x in size.split(","))
        found = compare(m, n, count, options.repeats, options.only)
        report["sizes"].append(found)
        speed = found["million_points_per_second"]
        print(f"m={m} n={n}: C {speed['c_1']:.1f} / {speed['c_2']:.1f} M points/s with one / two threads, differs by"
              f" {found['relative_difference']:.0e}, over the whole domain {found['whole_domain_difference']:.0e}")
        for name, ratio in found["over"].items():
            print(f"    {name:10s} {ratio['wall']:6.2f} x the time of {ratio['of']} ({ratio['cpu']:.2f} x CPU)",
                  flush=True)
    print("load average", *os.getloadavg())
    ratios = {f"m={row['m']} n={row['n']}: {name} over {found['of']}": {kind: found[kind] for kind in ("wall", "cpu")}
              for row in report["sizes"] for name, found in row["over"].items()}
    save(__doc__, ratios, report, options.json)


if __name__ == "__main__":
    main()
