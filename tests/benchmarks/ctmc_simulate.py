"""Events per second of the simulator: ``python tests/benchmarks/ctmc_simulate.py [--json FILE]``.

Protocol. One process, all CPU cores. M/M/8 with load 6, mean number in the system estimated. Contenders, alternating,
``--repeats`` times each, best time counts, compilation excluded:

simulate   hetjax.ctmc.simulate, ``--lanes`` paths of ``--events`` events, mean or sampled holding times, 32 and 64 bit;
numpy      the same algorithm, one vectorised step at a time over the same number of lanes;
loop       a plain event loop in Python, one path, as object-oriented simulators work;
ciw        the package Ciw on the same queue (extra ``peers``; left out where it is not installed).

Every contender's estimate is printed beside the exact mean, as a check that the same thing was computed.
"""

import argparse
import importlib.util
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
from timing import over, save, take_turns

from hetjax.ctmc.simulate import simulate, transition_chain

SERVERS, LOAD = 8, 6.0


def exact_mean():
    top = LOAD**SERVERS / math.factorial(SERVERS) * SERVERS / (SERVERS - LOAD)
    waits = top / (sum(LOAD**k / math.factorial(k) for k in range(SERVERS)) + top)
    return LOAD + waits * LOAD / (SERVERS - LOAD)


def jax_contender(lanes, events, times, wide):
    def study(key):
        queue = transition_chain(lambda n: (LOAD, jnp.minimum(n, SERVERS)), lambda n, event: n + 1 - 2 * event)
        return simulate(queue, 6, key, rewards=lambda n: {"number": n}, events=events, replications=lanes, times=times)

    with jax.enable_x64(wide):
        run = jax.jit(study).lower(jax.random.key(0)).compile()

    def call():
        with jax.enable_x64(wide):
            return float(run(jax.random.key(0)).mean["number"])

    return call, lanes * events


def numpy_contender(lanes, events):
    def call():
        random_numbers = np.random.default_rng(0)
        n, total, clock = np.full(lanes, 6), np.zeros(lanes), np.zeros(lanes)
        for _ in range(events):
            rate = LOAD + np.minimum(n, SERVERS)
            total += n / rate
            clock += 1 / rate
            n += np.where(random_numbers.random(lanes) * rate < LOAD, 1, -1)
        return total.sum() / clock.sum()

    return call, lanes * events


def loop_contender(events):
    def call():
        source = random.Random(0)
        n, total, clock = 6, 0.0, 0.0
        for _ in range(events):
            rate = LOAD + min(n, SERVERS)
            held = source.expovariate(rate)
            total += n * held
            clock += held
            n += 1 if source.random() * rate < LOAD else -1
        return total / clock

    return call, events


def ciw_contender(events):
    import ciw

    until = events / (2 * LOAD)
    network = ciw.create_network(arrival_distributions=[ciw.dists.Exponential(rate=LOAD)],
                                 service_distributions=[ciw.dists.Exponential(rate=1.0)], number_of_servers=[SERVERS])

    def call():
        ciw.seed(0)
        run = ciw.Simulation(network)
        run.simulate_until_max_time(until)
        return sum(record.exit_date - record.arrival_date for record in run.get_all_records()) / until

    return call, events


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=4096)
    parser.add_argument("--events", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    contenders = {
        f"simulate, {times} times, {'float64' if wide else 'float32'}":
            jax_contender(options.lanes, options.events, times, wide)
        for times in ("mean", "sampled") for wide in (False, True)
    }
    contenders["numpy"] = numpy_contender(options.lanes, max(1, options.events // 16))
    contenders["loop"] = loop_contender(200_000)
    if importlib.util.find_spec("ciw"):
        contenders["ciw"] = ciw_contender(20_000)
    found = take_turns({name: call for name, (call, _) in contenders.items()}, options.repeats)
    best = {name: found[name].wall / events for name, (_, events) in contenders.items()}
    value = {name: t.answer for name, t in found.items()}
    print(f"M/M/{SERVERS}, load {LOAD}: exact mean number {exact_mean():.4f} (start: 6 customers, no warm-up)")
    for name, seconds in best.items():
        print(f"{name:32s} {1e-6 / seconds:9.2f} million events/s   {best['loop'] / seconds:8.1f} x loop"
              f"   {best['numpy'] / seconds:6.1f} x numpy   mean {value[name]:.4f}")
    figures = {name: {"events_per_second": 1 / seconds, "mean": value[name]} for name, seconds in best.items()}
    save(__doc__, over(best, "simulate, mean times, float64"), figures, options.json)


if __name__ == "__main__":
    main()
