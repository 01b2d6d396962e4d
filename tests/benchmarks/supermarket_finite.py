"""Finitely many queues: ``python tests/benchmarks/supermarket_finite.py [--json FILE]``.

Protocol. One process, all CPU cores, d = 2, load 0.9. Contenders of one task, alternating, ``--repeats`` times each,
best time counts, compilation excluded. Figures are seconds a system, and millions of events a second.

Refined mean field, exponential service, 12 queue lengths:

one        hetjax.supermarket.refined, one call compiled for one system;
batch      the same for 256 loads at once, seconds a load;
rmftool    the package rmftool (extra ``peers``; left out where it is not installed): the same transitions,
           meanFieldExpansionSteadyState(order=1), with the fixed point by integration as it does.

Simulation of 1000 queues, exponential service and H2 of SCV 10:

simulate   hetjax.supermarket.simulate, ``--lanes`` paths side by side, 32 and 64 bit, without and with control variate;
loop       a plain event loop in Python over lists of queues, one path.

V and the mean queue lengths of all contenders are printed beside each other, as a check that the same was computed (the
loop's are noisy: with H2 its one path covers two relaxation times).
"""

import argparse
import importlib.util
import random

import jax
import jax.numpy as jnp
import numpy as np
from timing import over, save, take_turns

from hetjax.models.supermarket import Params, fixed_point, refined, simulate
from hetjax.models.supermarket.simulate import _levels
from hetjax.processes import exponential, hyperexponential_balanced

LOAD, CHOICES, QUEUES, DEPTH = 0.9, 2, 1000, 12


def correction(load):
    return refined(Params(load, CHOICES, jnp.ones((1,)), -jnp.ones((1, 1))), 10, levels=DEPTH).value.correction


def refined_contenders():
    loads = np.linspace(0.5, LOAD, 256)
    one = jax.jit(correction).lower(jnp.asarray(LOAD)).compile()
    batch = jax.jit(jax.vmap(correction)).lower(jnp.asarray(loads)).compile()
    contenders = {"one": (lambda: float(one(jnp.asarray(LOAD))), 1),
                  "batch": (lambda: float(np.asarray(batch(jnp.asarray(loads)))[-1]), len(loads))}
    if importlib.util.find_spec("rmftool"):
        contenders["rmftool"] = (by_rmftool, 1)
    return contenders


def by_rmftool():
    import rmftool

    model = rmftool.DDPP()
    unit = np.eye(DEPTH)
    for k in range(DEPTH):
        def arrival(x, k=k):
            return LOAD * ((x[k - 1] ** CHOICES if k else 1) - x[k] ** CHOICES)

        def departure(x, k=k):
            return x[k] - (x[k + 1] if k + 1 < DEPTH else 0)

        model.add_transition(unit[k], arrival)
        model.add_transition(-unit[k], departure)
    model.set_initial_state(np.zeros(DEPTH))
    return float(np.sum(model.meanFieldExpansionSteadyState(order=1)[1]))


def simulate_contender(law, wide, control, lanes, events):
    dtype = jnp.float64 if wide else jnp.float32
    params = jax.tree.map(lambda x: x.astype(dtype), Params.from_service(LOAD, CHOICES, law))
    levels = _levels(params, QUEUES)

    def call():
        found = simulate(params, QUEUES, jax.random.key(0), events=events, warmup=0, lanes=lanes, levels=levels,
                         control=control)
        return float(found.mean_queue_length[0])

    call()  # compiles
    return call, events * lanes


def loop_contender(law, events):
    """Service laws whose phases do not change during a service (diagonal T)."""
    alpha, speeds = np.asarray(law.alpha).tolist(), (-np.diag(np.asarray(law.T))).tolist()
    limit = fixed_point(Params.from_service(LOAD, CHOICES, law)).value
    first = np.sum(np.asarray(limit.tails)[:, None] > (np.arange(QUEUES) + 0.5) / QUEUES, axis=0).tolist()
    early = np.asarray(limit.phase_law)[:, 0].tolist()

    def call():
        source = random.Random(0)
        lengths, place = list(first), [0] * QUEUES
        busy = [[] for _ in alpha]
        total, number, clock = 0.0, sum(first), 0.0

        def start(j, chance=alpha[0]):
            i = 0 if source.random() < chance else 1
            place[j] = len(busy[i])
            busy[i].append(j)

        for j, length in enumerate(lengths):
            if length:
                start(j, early[length - 1])

        for _ in range(events):
            rates = [speed * len(members) for speed, members in zip(speeds, busy, strict=True)]
            rate = QUEUES * LOAD + sum(rates)
            total += number / rate
            clock += 1 / rate
            level = source.random() * rate - QUEUES * LOAD
            if level < 0:
                j = min((int(source.random() * QUEUES) for _ in range(CHOICES)), key=lengths.__getitem__)
                lengths[j] += 1
                number += 1
                if lengths[j] == 1:
                    start(j)
                continue
            i = 0 if level < rates[0] or len(rates) == 1 else 1
            j = busy[i][int(source.random() * len(busy[i]))]
            last = busy[i].pop()
            if last != j:
                busy[i][place[j]], place[last] = last, place[j]
            lengths[j] -= 1
            number -= 1
            if lengths[j]:
                start(j)
        return total / clock / QUEUES

    return call, events


def compare(contenders, repeats, unit):
    """Prints and returns each contender's best seconds a unit and its answer."""
    found = take_turns({name: call for name, (call, _) in contenders.items()}, repeats)
    best = {name: found[name].wall / count for name, (_, count) in contenders.items()}
    answer = {name: float(t.answer) for name, t in found.items()}
    slowest = max(best.values())
    for name, seconds in best.items():
        print(f"    {name:28s} {1e6 * seconds:12.3f} us a {unit}   {slowest / seconds:10.1f} x the slowest"
              f"   answer {answer[name]:.6f}")
    return {"seconds": best, "answers": answer}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=128)
    parser.add_argument("--events", type=int, default=16_384)
    parser.add_argument("--loop", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("refined mean field (answers: V)")
    results = {"refined": compare(refined_contenders(), options.repeats, "system")}
    for name, law in (("exponential", exponential(1.0)), ("H2, SCV 10", hyperexponential_balanced(1.0, 10.0))):
        print(f"simulation, {name}, from near the limit")
        contenders = {f"{'float64' if wide else 'float32'}{', control' if control else ''}":
                      simulate_contender(law, wide, control, options.lanes, options.events)
                      for wide, control in ((False, False), (True, False), (True, True))}
        contenders["loop"] = loop_contender(law, options.loop)
        results[name] = compare(contenders, options.repeats, "event")
    ratios = {name: over(found["seconds"], next(iter(found["seconds"]))) for name, found in results.items()}
    save(__doc__, ratios, results, options.json)


if __name__ == "__main__":
    main()
