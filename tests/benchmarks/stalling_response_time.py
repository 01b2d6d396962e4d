"""Time a point of the stalling queue's response-time law, in microseconds and against the mean number's.

Protocol: 2048 random points (q .3-3, r .1-1000, K and M 1-1e4, m = 5, n = 2), float64, in blocks of 256; each contender
is compiled first, then all are run in turn, seven rounds, and the least time of each is kept (other work on the machine
only adds). Ratios are those of one process. ``--json FILE`` writes the numbers.

    python tests/benchmarks/stalling_response_time.py --json out.json
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from timing import over, save

from hetjax.models.stalling.closed_form import point_mean_number
from hetjax.models.stalling.response_law import make_law, tail_and_density
from hetjax.models.stalling.response_percentile import solve_percentile
from hetjax.numerics.counting import Count

POINTS, BLOCK, ROUNDS = 2048, 256, 7
FAST, SLOW = Count(5), Count(2)


def mean_number(q, r, K, M, t):
    """The closed form beside which the others are measured."""
    return point_mean_number(q, r, K, M, FAST, SLOW) + 0 * t


def survival(q, r, K, M, t):
    """P(response time > t)."""
    return tail_and_density(make_law(q, r, K, M, FAST, SLOW, "any"), t, "response", "any", SLOW)[0]


def percentile(q, r, K, M, t):
    """The 95th percentile."""
    return solve_percentile(make_law(q, r, K, M, FAST, SLOW, "any"), 0.95 + 0 * t, "response", "any", SLOW).value


def gradient(function):
    """Value and partial derivatives in q, r, K, M, t by reverse mode."""
    return lambda *point: jax.value_and_grad(lambda x: function(*x))(point)


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    chosen = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    spans = ((-0.5, 0.5), (-1, 3), (0, 4), (0, 4), (-1, 1))
    points = tuple(jnp.asarray(10 ** rng.uniform(*span, POINTS)) for span in spans)
    contenders = {"mean_number": mean_number, "survival": survival, "survival with gradient": gradient(survival),
                  "percentile": percentile, "percentile with gradient": gradient(percentile)}
    compiled, compile_time = {}, {}
    for name, function in contenders.items():
        start = time.perf_counter()
        run = jax.jit(lambda points, f=function: jax.lax.map(lambda x: f(*x), points, batch_size=BLOCK))
        compiled[name] = run.lower(points).compile()
        compile_time[name] = time.perf_counter() - start
        jax.block_until_ready(compiled[name](points))
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, run in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(run(points))
            best[name] = min(best[name], time.perf_counter() - start)
    report = {name: {"us_per_point": best[name] / POINTS * 1e6, "over_mean_number": best[name] / best["mean_number"],
                     "compile_s": compile_time[name]} for name in contenders}
    for name, row in report.items():
        print(f"{name:26s} {row['us_per_point']:8.2f} us/point {row['over_mean_number']:8.1f} x mean_number"
              f"   compile {row['compile_s']:.1f} s")
    save(__doc__, over(best, "mean_number"), report, chosen.json)


if __name__ == "__main__":
    main()
