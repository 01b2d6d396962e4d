"""Threshold queue: ``python tests/benchmarks/threshold_queue.py [--json FILE] [--points N]``.

Protocol. One process, all CPU cores, float64, compilation excluded, contenders alternating, best of ``--repeats``:

closed     the mean number for Poisson arrivals in closed form, real thresholds, N points;
rule       the exact best threshold, the same points;
sparse     the chain truncated where rho^n < 1e-12, built with numpy and solved by scipy.sparse, point by point, on a
           sample of the points (rho from .3 to .9);
map        16 constant thresholds at once for random MAPs of 1, 4 and 16 phases.

Printed: sparse over closed, rule over closed, milliseconds a MAP point, and the largest difference of the means.
"""

import argparse
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve
from timing import over, save, take_turns

from hetjax import threshold_queue


def sparse_mean(rate, mu1, mu2, T):
    """State (x, s) is number 2 x + s; idle states above T have no inflow and are left out of the balance."""
    last = T + math.ceil(-28 / math.log(rate / (mu1 + mu2)))
    x = np.arange(last + 1)
    idle, busy = 2 * x[:T + 1], 2 * x + 1
    rows = [idle[:-1], idle[-1:], busy[:-1], idle[1:], busy[1:], busy[:T + 1], busy[T + 1:]]
    columns = [idle[1:], busy[T:T + 1], busy[1:], idle[:-1], busy[:-1], idle, busy[T:-1]]
    rates = [rate, rate, rate, mu1, mu1, mu2, mu2]
    i, j = np.concatenate(rows), np.concatenate(columns)
    v = np.concatenate([np.full(r.size, float(w)) for r, w in zip(rows, rates, strict=True)])
    states = np.concatenate([idle, busy])
    number = np.zeros(2 * last + 2, int)
    number[states] = np.arange(states.size)
    i, j, n = number[i], number[j], states.size
    leave = np.bincount(i, v, n)
    keep = j != 0
    A = coo_matrix((np.concatenate([v[keep], -leave[1:], np.ones(n)]),
                    (np.concatenate([j[keep], np.arange(1, n), np.zeros(n, int)]),
                     np.concatenate([i[keep], np.arange(1, n), np.arange(n)]))), shape=(n, n)).tocsc()
    right = np.zeros(n)
    right[0] = 1
    return spsolve(A, right) @ (states // 2 + states % 2)


def random_maps(rng, n, p):
    quiet, D1 = rng.exponential(size=(n, p, p)), rng.exponential(size=(n, p, p))
    quiet[:, range(p), range(p)] = 0
    D0 = quiet.copy()
    D0[:, range(p), range(p)] = -(quiet.sum(2) + D1.sum(2))
    rate = np.array([threshold_queue.Params(a, b, 1e3, 1.0, 1).arrival_rate for a, b in zip(D0[:1], D1[:1],
                                                                                           strict=True)])
    return D0 / rate[0], D1 / rate[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1 << 18)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    n = options.points
    rho, r, T = rng.uniform(0.3, 0.9, n), rng.uniform(1, 50, n), np.floor(rng.uniform(1, 30, n))
    rates = [jnp.asarray(x) for x in (rho * (1 + 1 / r), np.ones(n), 1 / r)]

    def batched(function):
        compiled = jax.jit(lambda *z: jax.lax.map(lambda x: function(*x), z, batch_size=1024))
        return lambda *z: jax.block_until_ready(compiled(*z))

    contenders = {"closed": (batched(lambda *z: threshold_queue.poisson_means(*z).number), (*rates, jnp.asarray(T)), n),
                  "rule": (batched(threshold_queue.optimal_threshold), tuple(rates), n)}
    sample = list(zip(*(np.asarray(x)[:options.sample] for x in rates), T[:options.sample].astype(int), strict=True))
    contenders["sparse"] = (lambda *points: np.array([sparse_mean(*p) for p in points]), tuple(sample), options.sample)
    for p, count in ((1, 8192), (4, 8192), (16, 512)):
        D0, D1 = random_maps(rng, count, p)
        mu1 = jnp.full(count, 1.6)
        one_pass = jax.jit(jax.vmap(lambda a, b, c, d: threshold_queue.mean_numbers(
            threshold_queue.Params(a, b, c, d, 1, max_threshold=1), 16)))
        contenders[f"map {p}"] = (lambda *z, f=one_pass: jax.block_until_ready(f(*z)),
                                  (jnp.asarray(D0), jnp.asarray(D1), mu1, mu1 / 5), count)
    found = take_turns({name: partial(call, *arguments) for name, (call, arguments, _) in contenders.items()},
                       options.repeats)
    best = {name: found[name].wall / count for name, (_, _, count) in contenders.items()}
    value = {name: t.answer for name, t in found.items()}
    difference = float(np.max(np.abs(np.asarray(value["closed"])[:options.sample] / value["sparse"] - 1)))
    print(f"closed form {1e9 * best['closed']:.1f} ns a point, sparse solve {1e3 * best['sparse']:.3f} ms:"
          f" {best['sparse'] / best['closed']:,.0f} times; largest difference {difference:.1e}")
    print(f"exact rule over one evaluation: {best['rule'] / best['closed']:.2f}")
    for p in (1, 4, 16):
        print(f"16 constant thresholds, {p} phases: {1e3 * best[f'map {p}']:.4f} ms a point")
    save(__doc__, over(best, "closed"), {"seconds_per_point": best, "largest_difference": difference}, options.json)


if __name__ == "__main__":
    main()
