"""Speed of the chain solvers as ratios to their peers, in one process.

Protocol: the contenders take turns, each repeated (``--repeats``, default 5), the smallest time counts; compile time is
printed apart. All contenders get the same chains and build them from the same parameters inside the timed call:

* levels: mean level (and the law) of L levels with S phases at random points; ``mean`` is expectation_by_level under
  plain ``vmap`` on one device, ``devices`` the same shared out to all devices (one a core, as the sweep engine does);
  ``stored`` and ``law`` have the levels in arrays, points last in blocks inside ``lax.map``, ``vmap`` is a plain
  ``vmap`` over stored levels; the peer, on one core, assembles a sparse generator from arrays prepared once (only the
  numbers change from point to point) and solves with scipy.sparse.linalg.spsolve, a loop over points; ``assembled`` is
  the same from the blocks of each point, built with the tools of scipy.sparse;
* dense: hetjax's GTH in a batch under ``vmap``; the peers are numpy's batched LU solve and, if installed,
  QuantEcon's gth_solve;
* gradients: value and four derivatives, over the value alone.

Wall time; with ``--cpu-time`` the CPU seconds of the process (but for ``devices``), which other work on the machine
disturbs less. Vectors of 512 bits where the CPU has them, as in the sweep engine.

    python tests/benchmarks/ctmc_solvers.py [--quick] [--cpu-time] [--json FILE]
"""

import argparse
import os

import jax

if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from timing import over, save, take_turns

from hetjax import ctmc
from hetjax.sweep.kernel import vector_width

jax.config.update("jax_enable_x64", True)
WIDTH = vector_width("cpu")
PARTS = ["levels", "dense", "gradients"]
CPU_TIME = False  # --cpu-time: on a machine that is busy with other work
OPTIONS = {"xla_cpu_prefer_vector_width": WIDTH} if WIDTH else None


def seconds(contenders, repeats):
    """{name: (first call, best of the others)}."""
    found = take_turns(contenders, repeats)
    best = {name: t.cpu if CPU_TIME and name != "devices" else t.wall for name, t in found.items()}
    return {name: t.first for name, t in found.items()}, best


def level_chain(L, S):
    """A family of chains in four parameters, dense blocks, trailing axes for points."""
    rng = np.random.default_rng(0)
    climb, inside, fall = (jnp.asarray(x) for x in rng.random((3, S, S)) / S)
    speed = 1 + 0.1 * jnp.arange(L, dtype=float)

    def build(p):
        points = p.shape[1:]
        ones = (1,) * len(points)

        def block(m):
            return m.reshape(1, S, S, *ones)

        levels = ctmc.Levels(
            jnp.broadcast_to(block(climb) * p[0], (L, S, S, *points)),
            jnp.broadcast_to(block(inside) * p[1] + 0.1 * p[3], (L, S, S, *points)),
            block(fall) * p[2] * speed.reshape(L, 1, 1, *ones))
        rewards = jnp.broadcast_to(jnp.arange(L, dtype=float).reshape(1, L, 1, *ones), (1, L, S, *points))
        return levels, rewards

    return build


def level_rule(S):
    """The same family, one level at a time."""
    climb, inside, fall = (jnp.asarray(x) for x in np.random.default_rng(0).random((3, S, S)) / S)

    def block(level, p):
        l = level.astype(p.dtype)
        return climb * p[0], inside * p[1] + 0.1 * p[3], fall * (p[2] * (1 + 0.1 * l)), jnp.full(S, l)

    return block


def everywhere(f):
    """f over the first axis, in equal parts on all devices."""
    mesh = Mesh(np.array(jax.devices()), ("points",))
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=PartitionSpec("points"), out_specs=PartitionSpec("points"),
                                 check_vma=False), compiler_options=OPTIONS)


def sparse_mean(L, S):
    """The same mean by spsolve at one point."""
    build = level_chain(L, S)
    parts = [np.asarray(ctmc.levels_to_dense(build(jnp.asarray(e))[0])) for e in np.eye(4)]
    i, j = np.nonzero(sum(np.abs(m) for m in parts))
    data = np.stack([m[i, j] for m in parts])
    n = L * S
    keep = j != 0  # the balance of state 0 makes room for the normalisation
    rows = np.concatenate([j[keep], np.zeros(n, int)])
    columns = np.concatenate([i[keep], np.arange(n)])
    level = np.repeat(np.arange(L), S)
    right = np.zeros(n)
    right[0] = 1

    def solve(p):
        values = np.concatenate([p @ data[:, keep], np.ones(n)])
        matrix = scipy.sparse.csc_matrix((values, (rows, columns)), shape=(n, n))
        return scipy.sparse.linalg.spsolve(matrix, right) @ level

    return solve


def assembled_mean(L, S):
    """The same from the blocks of one point with the tools of scipy.sparse, as one would write it."""
    climb, inside, fall = np.random.default_rng(0).random((3, S, S)) / S
    speed = 1 + 0.1 * np.arange(L)
    n = L * S
    state = np.arange(n).reshape(L, S)
    right = np.append(np.zeros(n - 1), 1.0)

    def solve(p):
        blocks = [(np.broadcast_to(climb * p[0], (L - 1, S, S)), state[:-1], state[1:]),
                  (np.broadcast_to((inside * p[1] + 0.1 * p[3]) * (1 - np.eye(S)), (L, S, S)), state, state),
                  (fall * p[2] * speed[1:, None, None], state[1:], state[:-1])]
        i, j, rates = (np.concatenate([np.broadcast_to(x, block.shape).ravel() for block, x in zip(
            [b[0] for b in blocks], parts, strict=True)])
            for parts in ([b[1][:, :, None] for b in blocks], [b[2][:, None] for b in blocks], [b[0] for b in blocks]))
        Q = scipy.sparse.coo_array((rates, (i, j)), shape=(n, n)).tocsr()
        Q = Q - scipy.sparse.diags_array(Q.sum(axis=1))
        system = scipy.sparse.vstack([Q.T.tocsr()[1:], np.ones((1, n))], format="csc")
        return scipy.sparse.linalg.spsolve(system, right) @ np.repeat(np.arange(L), S)

    return solve


def bench_levels(L, S, block, points, repeats):
    build = level_chain(L, S)
    rng = np.random.default_rng(1)
    count = max(points // block, 1) * block
    p = jnp.asarray(rng.uniform(0.5, 2, (4, count)))

    def in_blocks(f):
        return jax.jit(lambda p: lax.map(lambda q: f(*build(q)), p.reshape(4, -1, block).swapaxes(0, 1)),
                       compiler_options=OPTIONS)

    def one(q):
        levels, rewards = build(q)
        return ctmc.expectation_levels(levels, rewards[0]).value

    rule = level_rule(S)
    mean = jax.jit(jax.vmap(lambda q: ctmc.expectation_by_level(rule, q, L).value), compiler_options=OPTIONS)
    devices = everywhere(jax.vmap(lambda q: ctmc.expectation_by_level(rule, q, L).value))
    stored = in_blocks(lambda c, f: ctmc.expectation_levels(c, f).value)
    law = in_blocks(lambda c, f: ctmc.stationary_levels(c)[:2])
    plain = jax.jit(lambda p: lax.map(one, p.T, batch_size=1024), compiler_options=OPTIONS)
    rows = p.T.copy()
    spread = jax.device_put(rows, NamedSharding(Mesh(np.array(jax.devices()), ("points",)), PartitionSpec("points")))
    solve, assembled = sparse_mean(L, S), assembled_mean(L, S)
    few = np.asarray(p[:, :max(min(count, 8000 // (L * S)), 2)])
    first, best = seconds({"mean": lambda: mean(rows), "devices": lambda: devices(spread), "stored": lambda: stored(p),
                           "law": lambda: law(p), "vmap": lambda: plain(p),
                           "spsolve": lambda: [solve(q) for q in few.T],
                           "assembled": lambda: [assembled(q) for q in few.T]}, repeats)
    np.testing.assert_allclose([assembled(q) for q in few.T], mean(rows)[:few.shape[1]], rtol=1e-9)
    np.testing.assert_allclose([solve(q) for q in few.T], mean(rows)[:few.shape[1]], rtol=1e-9)
    np.testing.assert_allclose(np.ravel(stored(p)), mean(rows), rtol=1e-12)
    us = {k: 1e6 * t / (few.shape[1] if k in ("spsolve", "assembled") else count) for k, t in best.items()}
    return {"L": L, "S": S, "us": us, "compile_s": {k: first[k] - best[k] for k in ("mean", "stored", "law", "vmap")},
            "spsolve_over": {k: us["spsolve"] / us[k] for k in ("mean", "devices", "stored", "law", "vmap")},
            "assembled_over": {k: us["assembled"] / us[k] for k in ("mean", "devices", "law")},
            "law_over_mean": us["law"] / us["mean"]}


def bench_dense(n, points, repeats):
    rng = np.random.default_rng(2)
    Q = rng.random((points, n, n))
    system = np.swapaxes(Q, 1, 2).copy()
    diagonal = np.arange(n)
    system[:, diagonal, diagonal] = 0
    system[:, diagonal, diagonal] = -system.sum(1)
    system[:, -1] = 1
    right = np.zeros((points, n, 1))
    right[:, -1] = 1
    solve = jax.jit(jax.vmap(lambda q: ctmc.stationary(q).value), compiler_options=OPTIONS)
    on_device = jnp.asarray(Q)
    contenders = {"gth": lambda: solve(on_device), "numpy": lambda: np.linalg.solve(system, right)}
    try:
        from quantecon.markov.gth_solve import gth_solve
        contenders["quantecon"] = lambda: [gth_solve(q) for q in Q[:max(points // 50, 1)]]
    except ImportError:
        pass
    first, best = seconds(contenders, repeats)
    us = {k: 1e6 * t / (max(points // 50, 1) if k == "quantecon" else points) for k, t in best.items()}
    return {"n": n, "us": us, "compile_s": first["gth"] - best["gth"], "numpy_over_gth": us["numpy"] / us["gth"]}


def bench_gradients(L, S, points, repeats):
    build = level_chain(L, S)
    p = jnp.asarray(np.random.default_rng(3).uniform(0.5, 2, (points, 4)))

    def chain(q):
        levels, rewards = build(q)
        return levels, rewards[0]

    def batch(f):
        return jax.jit(lambda p: lax.map(f, p, batch_size=64), compiler_options=OPTIONS)

    value = batch(lambda q: ctmc.expectation_levels(*chain(q)).value)
    accurate = batch(lambda q: ctmc.sensitivity(chain, q).value.gradient)
    cheap = batch(lambda q: ctmc.sensitivity(chain, q, "adjoint").value.gradient)
    contenders = {"value": lambda: value(p), "elimination": lambda: accurate(p), "adjoint": lambda: cheap(p)}
    first, best = seconds(contenders, repeats)
    return {"L": L, "S": S, "us": {k: 1e6 * t / points for k, t in best.items()}, "compile_s": first,
            "elimination_over_value": best["elimination"] / best["value"],
            "adjoint_over_value": best["adjoint"] / best["value"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--cpu-time", action="store_true", help="CPU seconds instead of wall time, but for two devices")
    options = parser.parse_args()
    global CPU_TIME
    CPU_TIME = options.cpu_time
    report = {"load_average": os.getloadavg(), "levels": [], "dense": [], "gradients": []}
    sizes = [(56, 1, 256, 16384), (56, 2, 64, 4096), (56, 3, 64, 4096), (56, 8, 16, 256), (67, 17, 16, 64)]
    sizes = sizes[:3] if options.quick else sizes
    for L, S, block, points in sizes if "levels" in options.only else []:
        row = bench_levels(L, S, block, points, options.repeats)
        report["levels"].append(row)
        print(f"levels L={L} S={S}: " + ", ".join(f"{k} {v:.3g} us" for k, v in row["us"].items())
              + "; spsolve over " + ", ".join(f"{k} {v:.0f}" for k, v in row["spsolve_over"].items())
              + f"; law/mean {row['law_over_mean']:.2f}; compile {row['compile_s']['mean']:.1f} s", flush=True)
    orders = [(3, 65536), (8, 8192), (16, 2048), (32, 512)][:2 if options.quick else 4]
    for n, points in orders if "dense" in options.only else []:
        row = bench_dense(n, points, options.repeats)
        report["dense"].append(row)
        print(f"dense n={n}: " + ", ".join(f"{k} {v:.3g} us" for k, v in row["us"].items())
              + f"; numpy/gth {row['numpy_over_gth']:.2f}; compile {row['compile_s']:.1f} s", flush=True)
    if "gradients" in options.only:
        row = bench_gradients(56, 3, 2048, options.repeats)
        report["gradients"].append(row)
        print(f"gradients of 4 parameters, S=3: elimination {row['elimination_over_value']:.1f}, adjoint"
              f" {row['adjoint_over_value']:.1f} values", flush=True)
    ratios = {f"levels S={row['S']}": over(row["us"], "mean") | {"spsolve over devices": row["spsolve_over"]["devices"]}
              for row in report["levels"]}
    ratios |= {f"dense n={row['n']}": over(row["us"], "gth") for row in report["dense"]}
    ratios |= {f"gradients S={row['S']}": over(row["us"], "value") for row in report["gradients"]}
    save(__doc__, ratios, report, options.json)


if __name__ == "__main__":
    main()
