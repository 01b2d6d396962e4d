"""Fixed points per second: ``python tests/benchmarks/supermarket.py [--json FILE] [--points N]``.

Protocol. One process, all CPU cores, float64. Points: rho from 0.5 to 0.9999 (equidistant in log(1 - rho)), d = 2,
three services. Contenders, alternating, ``--repeats`` times each, best time counts, compilation excluded:

point      the metrics of the registry's model: the level recursion until the queue is exhausted, 1024 points a batch;
levels     fixed_point with all levels kept, vmap in batches of 256;
gradient   value and reverse gradient (arrival rate, d) of ``levels``;
brentq     the same recursion with numpy and scipy.optimize.brentq, one point at a time, on a sample of the points;
root       scipy.optimize.root on the drift of the differential equation, cut where level_count cuts it, in numpy,
           started at one choice (rho^k by phase), on those points of a small sample that have rho <= 0.99; it does
           not always arrive, and says so;
ode        scipy.integrate.solve_ivp (LSODA, to 1e-10) from empty to 40 relaxation times of one queue, same points.

The largest relative difference of the means from brentq's is printed as a check that the same thing was computed.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, root
from timing import over, save, take_turns

from hetjax.models.supermarket import Params, fixed_point, level_count
from hetjax.models.supermarket.metrics import point_metrics
from hetjax.processes import PH, coxian, exponential, hyperexponential_balanced


def services():
    return {
        "exponential": exponential(1.0),
        "H2, SCV 10": hyperexponential_balanced(1.0, 10.0),
        "Coxian, 4 phases": coxian([4.0, 3.0, 2.0, 1.0], [0.9, 0.8, 0.5]).rescaled(1.0),
    }


def by_brentq(rate, d, alpha, T):
    n = len(alpha)
    one, identity = np.ones(n), np.eye(n)
    s = rate * np.linalg.solve(-T.T, alpha)
    u, mean, before = s.sum(), 0.0, 1.0
    while u > 1e-17 * mean:
        mean += u

        def above(v, s=s, u=u):
            r = rate * (u**d - v**d) / (u - v)
            return np.linalg.solve((r * identity - T).T, r * s + rate * v**d * alpha), r

        low, high = u * (u / before) ** (2 * d), u * (1 - 1e-12)
        v = brentq(lambda v: above(v)[0] @ one - v, low, high, xtol=1e-300, rtol=1e-14)
        before, u, s = u, v, above(v)[0]
    return mean


def numpy_drift(rate, d, alpha, T):
    out = -T.sum(axis=1)

    def drift(s):
        s = s.reshape(-1, len(alpha))
        u = np.maximum(np.concatenate([[1.0], s.sum(axis=1)]), 0)
        gap = u[:-1] - u[1:]
        power = u**d
        r = rate * np.where(np.abs(gap) > 1e-14, (power[:-1] - power[1:]) / np.where(gap == 0, 1, gap),
                            d * u[:-1] ** (d - 1))
        up = np.concatenate([(r[0] * gap[0] * alpha)[None], r[1:, None] * (s[:-1] - s[1:])])
        done = np.append(s[1:] @ out, 0)
        return (up + s @ T + done[:, None] * alpha).reshape(-1)

    return drift


def by_root(rate, d, alpha, T, levels):
    busy = rate * np.linalg.solve(-T.T, alpha)
    start = busy.sum() ** np.arange(levels)[:, None] * busy
    found = root(numpy_drift(rate, d, alpha, T), start.reshape(-1), tol=1e-10)
    return found.x.sum() if found.success else np.nan


def by_ode(rate, d, alpha, T, levels):
    drift = numpy_drift(rate, d, alpha, T)
    scv = 2 * alpha @ np.linalg.solve(T, np.linalg.solve(T, np.ones(len(alpha)))) - 1
    time = 40 * (1 + scv) / 2 / (1 - np.sqrt(rate)) ** 2  # far beyond what two choices need
    found = solve_ivp(lambda t, s: drift(s), (0, time), np.zeros(levels * len(alpha)), "LSODA", [time], rtol=1e-10,
                      atol=1e-12)
    return found.y[:, -1].sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_240)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rates = 1 - np.exp(np.linspace(np.log(0.5), np.log(1e-4), options.points))
    sample = np.linspace(0, options.points - 1, options.sample).astype(int)
    easy = [i for i in sample[::4] if rates[i] <= 0.99]
    results = {}
    for name, law in services().items():
        alpha, T = np.asarray(law.alpha), np.asarray(law.T)
        levels = level_count(0.9999, 2.0, float(PH.scv(law)))

        def params(rate, d, law=law):
            return Params(rate, d, law.alpha, law.T)

        def kept(rate, d, params=params, levels=levels):
            return fixed_point(params(rate, d), levels=levels).value.mean_queue_length

        def batched(function, size):
            run = jax.jit(lambda r: jax.lax.map(lambda x: function(x, jnp.asarray(2.0)), r, batch_size=size))
            run = run.lower(jnp.asarray(rates)).compile()
            return lambda: jax.block_until_ready(run(jnp.asarray(rates)))

        contenders = {
            "point": (batched(lambda r, d, p=params: point_metrics(p(r, d)).mean_queue_length, 1024), options.points),
            "levels": (batched(kept, 256), options.points),
            "gradient": (batched(jax.value_and_grad(kept, (0, 1)), 256), options.points),
            "brentq": (lambda a=alpha, T=T: np.array([by_brentq(rates[i], 2.0, a, T) for i in sample]), options.sample),
        }
        for contender, solve in (("root", by_root), ("ode", by_ode)):
            def by_equation(alpha=alpha, T=T, solve=solve, law=law):
                return np.array([solve(rates[i], 2.0, alpha, T, level_count(rates[i], 2.0, law.scv())) for i in easy])

            contenders[contender] = (by_equation, len(easy))
        found = take_turns({contender: call for contender, (call, _) in contenders.items()}, options.repeats)
        best = {contender: found[contender].wall / count for contender, (_, count) in contenders.items()}
        value = {contender: t.answer for contender, t in found.items()}
        means = np.stack([np.asarray(value[c])[sample] for c in ("point", "levels")])
        error = np.max(np.abs(means / value["brentq"] - 1))  # NaN if any mean is
        print(f"{name} ({levels} levels kept); largest relative difference of the means from brentq's: {error:.1e}")
        for contender in ("root", "ode"):
            off = np.abs(value[contender] / np.asarray(value["point"])[easy] - 1)
            print(f"    {contender}: {np.sum(off < 1e-6)} of {len(easy)} points found, to {np.nanmax(off):.1e};"
                  f" {best[contender] / best['point']:.0f} x point, {best[contender] / best['levels']:.0f} x levels")
        for contender, seconds in best.items():
            print(f"    {contender:10s} {1e6 * seconds:10.2f} us a point   {best['brentq'] / seconds:8.1f} x brentq")
        print(f"    value and gradient over value: {best['gradient'] / best['levels']:.2f}")
        results[name] = {"seconds_per_point": best, "largest_difference": float(error)}
    save(__doc__, {name: over(found["seconds_per_point"], "point") for name, found in results.items()}, results,
         options.json)


if __name__ == "__main__":
    main()
