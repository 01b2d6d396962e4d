"""The best Bernoulli split of two nodes, many at once, against scipy.optimize point by point:

    python tests/benchmarks/optimal_split.py [--json FILE] [--points N] [--sample S] [--repeats R]

Protocol. One process, float64. Random nodes: mu1 uniform on [.3, 3], mu2/mu1 on [.01, 1], load on [.02, .98]. hetjax
computes ``--points`` of them in batches of 250 on one device, and shared by all devices; the contenders alternate,
``--repeats`` rounds, the best time of each counts. scipy takes ``--sample`` of them one by one with
``minimize_scalar(method="bounded", xatol=1e-9)``, on an objective in plain Python floats (the closed form with its
recursion, no arrays): with the thresholds that are best for the found split (``given``), and with the best threshold of
each node at every split it looks at (``joint``); ``given`` is repeated with hetjax's own compiled ``node_numbers`` as
the objective (``compiled``), as one would couple the two. It starts once, so where the joint cost has several minima it
may miss the best; how often is printed, with the largest relative difference of the others.
"""

import argparse
import os
import time

import jax

jax.config.update("jax_enable_x64", True)
if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))

import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from scipy.optimize import minimize_scalar  # noqa: E402
from timing import save, take_turns  # noqa: E402

from hetjax import parallel_queues as pq  # noqa: E402

BATCH = 250


def node_number(rate: float, mu1: float, mu2: float, threshold: int) -> float:
    """Mean number of one node with Poisson arrivals (docstring of hetjax.models.threshold_queue.poisson)."""
    q, a, rho = rate / mu1, mu2 / mu1, rate / (mu1 + mu2)
    v, power, total, first = a, 1.0, 1.0, 0.0
    for level in range(1, threshold + 1):
        v = a + v / (v + q)
        power *= q
        total += power
        first += level * power
    top = power / (1 + v / q)
    tail = rho / (1 - rho)
    slow = top * (v / a + tail)
    return (first + top * (threshold * tail + tail / (1 - rho)) + slow) / (total + top * tail)


def best_node_number(rate: float, mu1: float, mu2: float) -> float:
    """The same with the best threshold: costs fall and then rise in it."""
    best = node_number(rate, mu1, mu2, 1)
    for threshold in range(2, 10_000):
        new = node_number(rate, mu1, mu2, threshold)
        if new >= best:
            break
        best = new
    return best


@jax.jit
def compiled_number(p: jax.Array, params: pq.Params, thresholds: jax.Array) -> jax.Array:
    """The same of both nodes by hetjax."""
    return pq.node_numbers(params, jax.numpy.stack([p, 1 - p]), thresholds).sum()


def scipy_split(rate: float, mu1: np.ndarray, mu2: np.ndarray, thresholds: np.ndarray | None, compiled: bool) -> float:
    """The least mean number that scipy finds."""
    params = pq.Params(rate, mu1, mu2)
    capacity = mu1 + mu2
    low, high = max(1e-9, 1 - capacity[1] / rate + 1e-9), min(1 - 1e-9, capacity[0] / rate - 1e-9)

    def cost(p: float) -> float:
        if compiled:
            return float(compiled_number(p, params, thresholds))
        total = 0.0
        for node, share in enumerate((p, 1 - p)):
            flow = (rate * share, mu1[node], mu2[node])
            total += best_node_number(*flow) if thresholds is None else node_number(*flow, int(thresholds[node]))
        return total

    return float(minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-9}).fun)


def main() -> None:
    """Prints a table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    count = options.points // (BATCH * len(jax.devices())) * BATCH * len(jax.devices())
    rng = np.random.default_rng(1)
    mu1 = rng.uniform(0.3, 3, (count, 2))
    mu2 = mu1 * rng.uniform(0.01, 1, (count, 2))
    rate = rng.uniform(0.02, 0.98, count) * (mu1 + mu2).sum(axis=1)

    def batches(*arrays):
        return jax.lax.map(lambda row: jax.vmap(lambda a, b, c, *t: pq.best_split(pq.Params(a, b, c), *t))(*row),
                           tuple(x.reshape(-1, BATCH, *x.shape[1:]) for x in arrays))

    one = jax.jit(batches)
    mesh = Mesh(np.array(jax.devices()), ("points",))
    shared = jax.jit(jax.shard_map(batches, mesh=mesh, in_specs=PartitionSpec("points"),
                                   out_specs=PartitionSpec("points"), check_vma=False))
    spread = NamedSharding(mesh, PartitionSpec("points"))
    thresholds = np.asarray(one(rate, mu1, mu2).thresholds).reshape(count, 2)
    everywhere = [jax.device_put(x, spread) for x in (rate, mu1, mu2, thresholds)]
    times = take_turns({"joint": lambda: one(rate, mu1, mu2), "given": lambda: one(rate, mu1, mu2, thresholds),
                        "joint, all devices": lambda: shared(*everywhere[:3]),
                        "given, all devices": lambda: shared(*everywhere)}, options.repeats)
    found = np.asarray(times["joint"].answer.mean_number).reshape(-1)
    sample = range(min(options.sample, count))
    peers = {}
    for name, pair in (("joint", None), ("given", thresholds), ("compiled", thresholds)):
        scipy_split(rate[0], mu1[0], mu2[0], None if pair is None else pair[0], name == "compiled")
        begin = time.perf_counter()
        values = np.array([scipy_split(rate[i], mu1[i], mu2[i], None if pair is None else pair[i], name == "compiled")
                           for i in sample])
        peers[name] = (time.perf_counter() - begin) / len(sample)
        excess = values / found[:len(sample)] - 1
        missed = excess > 1e-9
        print(f"scipy, {name}: {1e3 * peers[name]:.2f} ms a point; misses the optimum at {missed.sum()} of"
              f" {len(sample)} points (by {excess.max():.1e} at most); elsewhere within"
              f" {np.abs(excess[~missed]).max():.0e}")
    ratios = {}
    for name, timing in times.items():
        ratios[f"scipy over hetjax, {name}"] = peers[name.split(",")[0]] / (timing.wall / count)
        print(f"hetjax, {name}: {1e6 * timing.wall / count:.2f} us a point, first call {timing.first:.1f} s;"
              f" scipy takes {ratios[f'scipy over hetjax, {name}']:.0f} times as long")
    for name in ("given", "given, all devices"):
        ratio = peers["compiled"] / (times[name].wall / count)
        ratios[f"scipy with compiled costs over hetjax, {name}"] = ratio
        print(f"hetjax, {name}: scipy with compiled costs takes {ratio:.0f} times as long")
    save(__doc__, ratios, {"points": count, "scipy_seconds": peers,
                           "seconds": {name: t.wall for name, t in times.items()}}, options.json)


if __name__ == "__main__":
    main()
