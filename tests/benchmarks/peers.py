"""hetjax beside other packages, each on its own ground:

    python tests/benchmarks/peers.py [--json FILE] [--only NAME ..]

Protocol. One process, all CPU cores, float64. Each peer (``pip install -e '.[peers]'``, without the constraints: one of
them wants an older mpmath) solves one of its usual problems point by point, as it is used; hetjax the same points in a
batch, which is how it is used. The two take turns, after a call each that is not counted (compilation, numba), the
least wall time of ``--repeats`` rounds counts. ``digits``: -log10 of the largest relative difference of the results.

scipy       the stalling queue (m = 5, n = 2, K = M = 50): balance equations assembled without loops, sparse direct
            solver, the mean number;
gth         QuantEcon's gth_solve: stationary laws of dense random chains with 16 states;
mdp         QuantEcon's DiscreteDP: the optimal allocation under bursty arrivals with 4 phases, discounted, by policy
            iteration on 51 places (hetjax: the infinite buffer); its matrices are built beforehand;
line        LINE's SolverCTMC: two fast and two slow servers, the fastest free one first, 8 waiting places; building its
            model counts, as a sweep would build one for each point (its library only, without Java);
rmftool     the refined mean field of 2 choices at 12 queue lengths;
ciw         M/M/8 simulated, a customer: both are random, the digits are those of Ciw's estimate against the exact mean,
            and hetjax's estimate is printed too.
"""

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from timing import save, take_turns

from hetjax import control, ctmc, stalling

jax.config.update("jax_enable_x64", True)


class Contest(NamedTuple):
    """A problem, the two calls with the number of points of each, and what makes both answers comparable arrays."""

    problem: str
    ours: Callable[[], Any]
    points: int
    theirs: Callable[[], Any]
    sample: int
    ours_values: Callable[[Any], Any]
    theirs_values: Callable[[Any], Any]


def by_scipy() -> Contest:
    """A sparse solve a point."""
    from stalling_numpy import sparse_mean_number

    rng = np.random.default_rng(0)
    count, sample, place = 1 << 18, 100, 50.0
    q, r = rng.uniform(0.05, 0.99, count), np.exp(rng.uniform(math.log(1.2), math.log(1000), count))
    mean = jax.jit(lambda q, r: jax.lax.map(
        lambda x: stalling.mean_number(stalling.Params(*x, place, place, 5, 2)), (q, r), batch_size=1024))
    given = jnp.asarray(q), jnp.asarray(r)
    return Contest("stalling queue, mean number", lambda: mean(*given), count,
                   lambda: [sparse_mean_number(q[i], r[i], 50, 50, 5, 2) for i in range(sample)], sample,
                   lambda x: x[:sample], np.asarray)


def by_gth() -> Contest:
    """The same elimination, chain by chain."""
    from quantecon.markov.gth_solve import gth_solve

    count, sample = 4096, 500
    chains = np.random.default_rng(1).random((count, 16, 16))
    chains[:, range(16), range(16)] = 0
    chains[:, range(16), range(16)] = -chains.sum(2)
    solve, given = jax.jit(jax.vmap(lambda q: ctmc.stationary(q).value)), jnp.asarray(chains)
    return Contest("stationary law, 16 states", lambda: solve(given), count,
                   lambda: [gth_solve(q) for q in chains[:sample]], sample, lambda x: x[:sample], np.asarray)


def by_mdp() -> Contest:
    """Policy iteration on sparse state-action pairs."""
    from mdp import DISCOUNT, LEVELS, PHASES, discrete_problem, queues, structure
    from quantecon.markov import DiscreteDP

    count, sample, capacity = 256, 20, 50
    raw = queues(count, 0)
    pairs = structure(capacity)
    ready = [discrete_problem(*(x[i] for x in raw), pairs, capacity) for i in range(sample)]
    best = jax.jit(jax.vmap(partial(control.optimal_allocation, levels=LEVELS, discount_rate=DISCOUNT)))
    given = [jnp.asarray(x) for x in raw]
    return Contest("optimal allocation, discounted cost", lambda: best(*given), count,
                   lambda: [DiscreteDP(*p).solve(method="policy_iteration") for p in ready], sample,
                   lambda found: found.values[:sample, 0, 0],
                   lambda found: np.array([-result.v[:PHASES] for result in found]))


def by_line() -> Contest:
    """A network with one heterogeneous station."""
    import line_solver as line

    rng = np.random.default_rng(2)
    count, sample, waiting, m, n = 1 << 18, 12, 8, 2, 2
    q, r = rng.uniform(0.3, 1.2, count), rng.uniform(1.5, 10, count)

    def solve(q: float, r: float) -> float:
        model = line.Network("park")
        source, queue, sink = line.Source(model, "in"), line.Queue(model, "park", line.SchedStrategy.FCFS), line.Sink(
            model, "out")
        job = line.OpenClass(model, "job")
        source.set_arrival(job, line.Exp(q * m))
        queue.set_service(job, line.Exp(1.0))
        for name, servers, rate in (("fast", m, 1.0), ("slow", n, 1 / r)):
            kind = line.ServerType(name, servers)
            kind.set_compatible([job])
            queue.add_server_type(kind)
            queue.set_hetero_service(job, kind, line.Exp(rate))
        queue.set_hetero_sched_policy(line.HeteroSchedPolicy.FSF)
        queue.set_capacity(m + n + waiting)
        routes = model.init_routing_matrix()
        routes.set(job, job, source, queue, 1.0)
        routes.set(job, job, queue, sink, 1.0)
        model.link(routes)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a state space is truncated, as the capacity asks
            found = line.SolverCTMC(model, cutoff=m + n + waiting, verbose=False)
            return float(np.asarray(found.get_avg_qlen()).sum())

    mean = jax.jit(lambda q, r: jax.lax.map(
        lambda x: stalling.mean_number(stalling.Params(*x, 0.0, float(waiting), m, n)), (q, r), batch_size=1024))
    given = jnp.asarray(q), jnp.asarray(r)
    return Contest("M/M/4/12, two fast and two slow servers, mean number", lambda: mean(*given), count,
                   lambda: [solve(float(q[i]), float(r[i])) for i in range(sample)], sample,
                   lambda x: x[:sample], np.asarray)


def by_rmftool() -> Contest:
    """The expansion by its package."""
    from supermarket_finite import LOAD, by_rmftool, correction

    loads = jnp.linspace(0.5, LOAD, 256)
    batch = jax.jit(jax.vmap(correction))
    return Contest("refined mean field, 12 queue lengths", lambda: batch(loads), 256, by_rmftool, 1,
                   lambda x: x[-1], np.asarray)


def by_ciw() -> Contest:
    """Customer by customer."""
    from ctmc_simulate import LOAD, SERVERS, ciw_contender, exact_mean, jax_contender

    ours, events = jax_contender(1024, 4096, "sampled", True)
    theirs, fewer = ciw_contender(50_000)
    print(f"    ciw: exact mean {exact_mean():.5f}, hetjax {float(ours()):.5f}")
    return Contest(f"M/M/{SERVERS} at load {LOAD / SERVERS:g} simulated, a customer", ours, events // 2, theirs,
                   fewer // 2, lambda x: exact_mean(), np.asarray)


PEERS = {"scipy": ("scipy", by_scipy), "gth": ("quantecon", by_gth), "mdp": ("quantecon", by_mdp),
         "line": ("line_solver", by_line), "rmftool": ("rmftool", by_rmftool), "ciw": ("ciw", by_ciw)}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--json")
    options = parser.parse_args()
    rows, skipped = {}, {}
    for name in options.only:
        package, make = PEERS[name]
        try:
            importlib.import_module(package)
        except ImportError as error:
            skipped[name] = f"{package} cannot be imported ({error})"
            print(f"{name}: left out, {skipped[name]}", flush=True)
            continue
        contest = make()
        found = take_turns({"ours": contest.ours, "theirs": contest.theirs}, options.repeats)
        ours, theirs = found["ours"].wall / contest.points, found["theirs"].wall / contest.sample
        mine, other = (np.asarray(values(found[who].answer), float) for who, values in
                       (("ours", contest.ours_values), ("theirs", contest.theirs_values)))
        difference = float(np.max(np.abs(mine - other) / np.abs(mine)))
        rows[name] = {"package": package, "version": importlib.metadata.version(package.replace("_", "-")),
                      "problem": contest.problem, "relative_difference": difference, "ours_seconds": ours,
                      "theirs_seconds": theirs, "first_call_seconds": found["ours"].first}
        print(f"{package + ' ' + rows[name]['version']:20s} {contest.problem:55s} {_digits(difference):5.1f} digits,"
              f" {1e6 * theirs:12,.1f} us there, {1e6 * ours:10.3f} us here: {theirs / ours:10,.0f} times", flush=True)
    save(__doc__, {f"{name} over hetjax": row["theirs_seconds"] / row["ours_seconds"] for name, row in rows.items()},
         {"rows": rows, "left_out": skipped}, options.json)


def _digits(difference: float) -> float:
    return min(16.0, -math.log10(difference)) if difference > 0 else 16.0


if __name__ == "__main__":
    main()
