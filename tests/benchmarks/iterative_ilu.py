"""The matrix-free multilevel solver against scipy's GMRES with an incomplete factorisation:

    python tests/benchmarks/iterative_ilu.py [--json FILE] [--side N ..] [--repeats R]

Protocol. Two queues in series, loads .6 and .9, N x N states (1000: a million). ``hetjax.ctmc.stationary_iterative``
to a residual (sum of |inflow - outflow| over the total flow) of 1e-12, compiled beforehand. The peer solves the balance
equations with the probability of state (0, 0) fixed at 1 (at these loads that state is not rare), with
``scipy.sparse.linalg.gmres`` preconditioned by ``spilu``, over several drop tolerances and fill factors; its fastest
setting that reaches a residual of 1e-9 counts, assembly left out, factorisation counted. Laws must agree to 1e-7 in
total variation. Wall and CPU seconds; one process, one try of the peer a setting.
"""

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # on a busy machine its threads wait for each other for minutes

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from scipy import sparse  # noqa: E402
from scipy.sparse.linalg import LinearOperator, gmres, spilu  # noqa: E402
from timing import save, take_turns  # noqa: E402

from hetjax.ctmc.iterative import stationary_iterative  # noqa: E402

MOVES = {(1, 0): 0.9, (-1, 1): 1.5, (0, -1): 1.0}  # arrivals, to the second queue, away
SETTINGS = ((1e-2, 5), (1e-3, 10), (1e-4, 20))  # drop tolerance, fill factor


def generator(side: int) -> Any:
    """The transposed generator as a sparse matrix."""
    state = np.arange(side * side).reshape(side, side)
    rows, columns, rates = [], [], []
    for (dx, dy), rate in MOVES.items():
        source = state[max(0, -dx):side - max(0, dx), max(0, -dy):side - max(0, dy)]
        target = state[max(0, dx):side - max(0, -dx), max(0, dy):side - max(0, -dy)]
        rows.append(target.ravel())
        columns.append(source.ravel())
        rates.append(np.full(source.size, rate))
    flows = sparse.coo_array((np.concatenate(rates), (np.concatenate(rows), np.concatenate(columns))),
                             shape=(side * side,) * 2).tocsc()
    return (flows - sparse.diags_array(np.asarray(flows.sum(axis=0)).ravel())).tocsc()


def by_gmres(balance: Any, drop: float, fill: int) -> dict[str, Any]:
    """Seconds, residual and law of one setting."""
    wall, cpu = time.perf_counter(), time.process_time()
    system, right = balance[1:, 1:].tocsc(), -balance[1:, [0]].toarray().ravel()
    factors = spilu(system, drop_tol=drop, fill_factor=fill)
    x, code = gmres(system, right, rtol=1e-12, restart=50, maxiter=20,
                    M=LinearOperator(system.shape, factors.solve))
    law = np.append(1.0, x)
    law /= law.sum()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    flow = -balance.diagonal() * law
    return {"drop": drop, "fill": fill, "wall": wall, "cpu": cpu, "code": int(code), "law": law,
            "residual": float(np.abs(balance @ law).sum() / flow.sum())}


def compare(side: int, repeats: int) -> dict[str, Any]:
    """Both at one size."""
    solve = jax.jit(lambda rates: stationary_iterative(dict(zip(MOVES, rates, strict=True)), (side, side)))
    rates = tuple(MOVES.values())  # arguments: the compiler would compute with constants, and slowly
    ours = take_turns({"hetjax": lambda: solve(rates)}, repeats)["hetjax"]
    law = np.asarray(ours.answer.value).ravel()
    balance = generator(side)
    tries = [by_gmres(balance, *setting) for setting in SETTINGS]
    for row in tries:
        row["total_variation"] = float(np.abs(row.pop("law") - law).sum() / 2)
    good = [row for row in tries if row["residual"] < 1e-9 and row["total_variation"] < 1e-7]
    found: dict[str, Any] = {"side": side, "hetjax": {
        "wall": ours.wall, "cpu": ours.cpu, "cycles": int(ours.answer.iterations),
        "residual": float(ours.answer.residual), "status": int(ours.answer.status)}, "gmres": tries}
    if good:
        best = min(good, key=lambda row: row["cpu"])
        found["over_hetjax"] = {"wall": best["wall"] / ours.wall, "cpu": best["cpu"] / ours.cpu}
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", nargs="*", type=int, default=[300, 1000])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    report: dict[str, Any] = {"load_average": os.getloadavg(), "sizes": []}
    for side in options.side:
        found = compare(side, options.repeats)
        report["sizes"].append(found)
        ours = found["hetjax"]
        print(f"{side} x {side}: hetjax {ours['wall']:.2f} s ({ours['cpu']:.2f} s CPU), {ours['cycles']} cycles,"
              f" residual {ours['residual']:.0e}", flush=True)
        for row in found["gmres"]:
            print(f"    ILU({row['drop']:g}, {row['fill']}) + GMRES {row['wall']:.2f} s ({row['cpu']:.2f} s CPU),"
                  f" residual {row['residual']:.0e}, differs by {row['total_variation']:.0e}")
        if "over_hetjax" in found:
            over = found["over_hetjax"]
            print(f"    best over hetjax: {over['wall']:.2f} ({over['cpu']:.2f} CPU)", flush=True)
        else:
            print("    no setting reached the residual", flush=True)
    ratios = {f"ILU-GMRES over multilevel, {row['side']}": row["over_hetjax"] for row in report["sizes"]
              if "over_hetjax" in row}
    save(__doc__, ratios, report, options.json)


if __name__ == "__main__":
    main()
