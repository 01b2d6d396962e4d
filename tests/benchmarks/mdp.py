"""Optimal allocation as a decision process: ``python tests/benchmarks/mdp.py [--json FILE] [--points N]``.

Protocol. One process, all CPU cores, float64, compilation excluded, contenders alternating, best of ``--repeats``. N
random queues: MAPs of 4 phases with loads .3 to .9, two servers, mu1/mu2 from 1 to 20, holding costs only.

average      the optimal allocation on the infinite buffer, all points in a batch, 24 levels of free decisions;
discounted   the same at discount rate .1;
quantecon    QuantEcon's DiscreteDP by policy iteration at the same discount rate, point by point on a sample: the
             uniformised chain truncated at --capacity customers, sparse state-action pairs (its fast form), starting
             from the same thresholds as ours. Two figures: with its matrices at hand, and with building them (numpy).
             The buffer is long enough for the costs from an empty node to agree to 1e-6.

Printed: milliseconds a point, QuantEcon's over ours, the largest relative difference of the costs from an empty node,
policy evaluations, and how many points are optimal for the infinite buffer by the certificate (status ok).
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_matrix
from threshold_queue import random_maps
from timing import over, save, take_turns

from hetjax import control

PHASES, DISCOUNT, LEVELS = 4, 0.1, 24


def queues(n, seed):
    rng = np.random.default_rng(seed)
    D0, D1 = random_maps(rng, n, PHASES)
    Q = D0 + D1
    law = np.linalg.solve(np.concatenate([Q[:, :, 1:], np.ones((n, PHASES, 1))], 2).transpose(0, 2, 1),
                          np.eye(PHASES)[-1][None, :, None])[..., 0]
    mu2 = 1 / rng.uniform(1, 20, n)
    scale = rng.uniform(0.3, 0.9, n) * (1 + mu2) / np.einsum("kf,kfg->k", law, D1)
    return D0 * scale[:, None, None], D1 * scale[:, None, None], np.ones(n), mu2


def structure(capacity):
    """State-action pairs (state, action) and, for each kind of transition, pairs and states moved to: once for all."""
    p, n = PHASES, capacity + 1
    state = np.arange(2 * p * n)
    x, s, f = state // (2 * p), state // p % 2, state % p
    waits, starts = state, state[(s == 0) & (x >= 2)]
    pair_state, pair_action = np.concatenate([waits, starts]), np.repeat([0, 1], [waits.size, starts.size])
    order = np.lexsort((pair_action, pair_state))
    pair_state, pair_action = pair_state[order], pair_action[order]
    x, f = x[pair_state], f[pair_state]
    s = s[pair_state] | pair_action
    return pair_state, pair_action, x, s, f


def discrete_problem(D0, D1, mu1, mu2, pairs, capacity):
    """(R, Q, beta, s, a) of DiscreteDP."""
    p = PHASES
    pair_state, pair_action, x, s, f = pairs
    k = np.arange(x.size)
    to, rate, row = [], [], []
    for g in range(p):
        to += [(np.minimum(x + 1, capacity) * 2 + s) * p + g, (x * 2 + s) * p + g]
        rate += [D1[f, g], np.where(f == g, 0.0, D0[f, g])]
        row += [k, k]
    fast, slow = x > s, (s == 1) & (x > 0)
    to += [((x - 1) * 2 + s)[fast] * p + f[fast], ((x - 1) * 2)[slow] * p + f[slow]]
    rate += [np.full(fast.sum(), mu1), np.full(slow.sum(), mu2)]
    row += [k[fast], k[slow]]
    row, to, rate = (np.concatenate(v) for v in (row, to, rate))
    fastest = 1.001 * (mu1 + mu2 - D0.diagonal().min())  # no probability below 0 by rounding
    stay = fastest - np.bincount(row, rate, x.size)
    places = np.concatenate([row, k]), np.concatenate([to, pair_state])
    P = coo_matrix((np.concatenate([rate, stay]) / fastest, places), shape=(x.size, 2 * p * (capacity + 1))).tocsr()
    return -x / (fastest + DISCOUNT), P, fastest / (fastest + DISCOUNT), pair_state, pair_action


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=50)
    parser.add_argument("--capacity", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    from quantecon.markov import DiscreteDP

    jax.config.update("jax_enable_x64", True)
    raw = queues(options.points, 0)
    points = [jnp.asarray(x) for x in raw]
    pairs = structure(options.capacity)
    sample = list(zip(*(x[:options.sample] for x in raw), strict=True))
    ready = [discrete_problem(*q, pairs, options.capacity) for q in sample]

    def batched(**more):
        return partial(jax.jit(jax.vmap(partial(control.optimal_allocation, levels=LEVELS, **more))), *points)

    average, discounted = batched(), batched(discount_rate=DISCOUNT)
    started = np.asarray(jax.vmap(lambda *q: control.optimal_allocation(*q, levels=LEVELS, max_iterations=1).policy)(
        *(x[:options.sample] for x in points)))[:, :, 0]
    first = []
    for policy in started:  # actions of DiscreteDP by state: 1 starts the slow server
        grid = np.ones((options.capacity + 1, 2, PHASES), int)
        grid[:LEVELS + 1, 0] = policy
        grid[:2], grid[:, 1] = 0, 0
        first.append(grid.reshape(-1))

    def solve(problem, start):
        process = DiscreteDP(*problem)
        return process.solve(method="policy_iteration", v_init=process.evaluate_policy(start))

    def peer(build):
        return [solve(discrete_problem(*q, pairs, options.capacity) if build else r, f)
                for q, r, f in zip(sample, ready, first, strict=True)]

    found = take_turns({"average": average, "discounted": discounted, "quantecon": partial(peer, False),
                        "quantecon, building": partial(peer, True)}, options.repeats)
    sizes = {"average": options.points, "discounted": options.points}
    ms = {name: 1e3 * t.wall / sizes.get(name, options.sample) for name, t in found.items()}
    ours = np.asarray(found["discounted"].answer.values)[:options.sample, 0, 0]
    theirs = np.array([-r.v[:PHASES] for r in found["quantecon"].answer])
    report = {"milliseconds_a_point": ms, "largest_difference": float(np.max(np.abs(ours / theirs - 1))),
              "first_call_seconds": {name: found[name].first for name in sizes}}
    for name in sizes:
        best = found[name].answer
        report[name] = {"evaluations": float(np.mean(best.evaluations)), "most": int(np.max(best.evaluations)),
                        "certified": float(np.mean(np.asarray(best.status) == 1)),
                        "threshold_type": float(np.mean(best.threshold_type))}
        print(f"{name}: {ms[name]:.4f} ms a point, first call {found[name].first:.1f} s, {report[name]}")
    for name in ("quantecon", "quantecon, building"):
        print(f"{name}: {ms[name]:.2f} ms a point, {ms[name] / ms['discounted']:,.0f} times ours")
    steps = np.mean([r.num_iter for r in found["quantecon"].answer])
    print(f"largest difference {report['largest_difference']:.1e}, QuantEcon's iterations {steps:.1f}")
    save(__doc__, over(ms, "discounted"), report, options.json)


if __name__ == "__main__":
    main()
