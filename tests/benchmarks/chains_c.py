"""Chains with levels and dense chains against C that computes 8 points a vector:

    python tests/benchmarks/chains_c.py [--json FILE] [--repeats R] [--only levels dense]

Protocol. One process, float64; hetjax on one device and the C code (reference_c/chains.c, the same elimination without
subtractions) on one thread; the contenders take turns, the least time of each counts, in wall seconds and in CPU
seconds of the process, which other work on the machine disturbs less. The family of chains is that of ctmc_solvers.py,
and its rates are made inside the timed call from the same four parameters a point.

levels   the mean level of L levels with S phases by ``ctmc.expectation_by_level`` under plain vmap;
dense    ``ctmc.stationary`` (with its residual and status) under plain vmap, and ``law`` alone without looking at
         residual and status, which the C code does not compute either. Matrices lie in memory a point after the other.

Results must agree to 1e-11 (means) and 1e-13 (laws). Figures: us a point, time over C's, seconds to compile.
"""

import argparse
import ctypes
import os
from functools import partial

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from c_reference import ARRAY, load  # noqa: E402
from timing import save, take_turns  # noqa: E402

from hetjax import ctmc  # noqa: E402
from hetjax.sweep.kernel import vector_width  # noqa: E402

WIDTH = vector_width("cpu")
OPTIONS = {"xla_cpu_prefer_vector_width": WIDTH} if WIDTH else None
LEVELS = ((56, 1, 32768), (56, 2, 16384), (56, 3, 8192), (1000, 3, 512), (56, 8, 512), (67, 17, 128), (67, 32, 32))
DENSE = ((3, 65536), (8, 16384), (16, 2048), (32, 512))


def level_rule(S):
    """One level of the family of ctmc_solvers.py, and its three matrices."""
    matrices = np.random.default_rng(0).random((3, S, S)) / S
    climb, inside, fall = (jnp.asarray(x) for x in matrices)

    def block(level, p):
        l = level.astype(p.dtype)
        return climb * p[0], inside * p[1] + 0.1 * p[3], fall * (p[2] * (1 + 0.1 * l)), jnp.full(S, l)

    return block, [np.ascontiguousarray(x) for x in matrices]


def report(times, count):
    """Microseconds, ratios and compilation from the timings of ``c`` and the others."""
    return {"us": {k: 1e6 * t.wall / count for k, t in times.items()},
            "us_cpu": {k: 1e6 * t.cpu / count for k, t in times.items()},
            "over_c": {k: t.wall / times["c"].wall for k, t in times.items() if k != "c"},
            "over_c_cpu": {k: t.cpu / times["c"].cpu for k, t in times.items() if k != "c"},
            "compile_s": {k: t.first - t.wall for k, t in times.items() if k != "c"}}


def bench_levels(L, S, count, repeats):
    rule, matrices = level_rule(S)
    points = np.random.default_rng(1).uniform(0.5, 2, (4, count))
    rows, out = jnp.asarray(points.T), np.empty(count)
    mean = jax.jit(jax.vmap(lambda q: ctmc.expectation_by_level(rule, q, L).value), compiler_options=OPTIONS)
    types = [ARRAY] * 5 + [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
    in_c = partial(load("chains.c", "level_means", types, SS=S), *matrices, points, out, L, count, 1)
    times = take_turns({"c": in_c, "hetjax": partial(mean, rows)}, repeats)
    np.testing.assert_allclose(out, mean(rows), rtol=1e-11)
    return {"L": L, "S": S, **report(times, count)}


def bench_dense(n, count, repeats):
    Q = np.random.default_rng(2).random((count, n, n))
    out, on_device = np.empty((count, n)), jnp.asarray(Q)
    whole = jax.jit(jax.vmap(ctmc.stationary), compiler_options=OPTIONS)
    law = jax.jit(jax.vmap(lambda q: ctmc.stationary(q).value), compiler_options=OPTIONS)
    in_c = partial(load("chains.c", "laws", [ARRAY, ARRAY, ctypes.c_size_t, ctypes.c_int], SS=n), Q, out, count, 1)
    times = take_turns({"c": in_c, "law": partial(law, on_device), "hetjax": partial(whole, on_device)}, repeats)
    np.testing.assert_allclose(out, law(on_device), rtol=1e-13)
    return {"n": n, **report(times, count)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=["levels", "dense"], default=["levels", "dense"])
    parser.add_argument("--quick", action="store_true", help="the smaller sizes only")
    parser.add_argument("--json")
    options = parser.parse_args()
    found = {"load_average": os.getloadavg(), "levels": [], "dense": []}
    for part, sizes, bench in (("levels", LEVELS, bench_levels), ("dense", DENSE, bench_dense)):
        for size in sizes[:3] if options.quick else sizes:
            if part in options.only:
                row = bench(*size, options.repeats)
                found[part].append(row)
                label = f"L={row['L']} S={row['S']}" if part == "levels" else f"n={row['n']}"
                print(f"{part} {label}: C {row['us']['c']:.3g} us; " + "; ".join(
                    f"{k} {row['us'][k]:.3g} us, {ratio:.2f} x C's time ({row['over_c_cpu'][k]:.2f} x CPU), compiled in"
                    f" {row['compile_s'][k]:.1f} s" for k, ratio in row["over_c"].items()), flush=True)
    print("load average", *os.getloadavg())
    ratios = {f"{part}, {', '.join(f'{k}={row[k]}' for k in ('L', 'S', 'n') if k in row)}: {name} over C": {
        "wall": row["over_c"][name], "cpu": row["over_c_cpu"][name]}
        for part in ("levels", "dense") for row in found[part] for name in row["over_c"]}
    save(__doc__, ratios, found, options.json)


if __name__ == "__main__":
    main()
