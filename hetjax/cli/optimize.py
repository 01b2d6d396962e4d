"""``hetjax optimize``: the optimum at one point as a table on the screen, or over a grid as a store with its figure."""

import argparse
import json
import math
import warnings
from typing import Any

from hetjax.cli.compute import load_sweep, run
from hetjax.sweep.errors import SpecError


def optimize(options: argparse.Namespace) -> int:
    """``hetjax optimize``: exit code 0, or 3 for an optimum that was not found."""
    from hetjax.sweep.spec import parse_spec, read_text

    if parse_spec(read_text(options.spec), options.spec).optimize is None:
        raise SpecError(f"{options.spec}: the table [optimize] is missing; add objective = \"mean_number\" and over ="
                        " { K = [0, 60] } below it")
    sweep = load_sweep(options)
    if options.out is None:
        if sweep.spec.points > 1:
            raise SpecError(f"{options.spec} describes {sweep.spec.points:,} points; say where to write them with --out"
                            " STORE")
        return _one_point(sweep, options)
    return run(options)


def _one_point(sweep: Any, options: argparse.Namespace) -> int:
    import numpy as np

    from hetjax.optimize import minimize
    from hetjax.result import Status
    from hetjax.sweep.optimum import table_objective

    problem, table = sweep.problem, sweep.spec.optimize
    objective = table_objective(problem.model.base, table)
    values = dict(problem.const) | {axis.name: axis.values[0].item() for axis in sweep.spec.axes}
    for name, expression in sweep.spec.derived.items():
        values[name] = float(expression(np, {k: np.float64(v) for k, v in values.items()}))
    values = {name: np.dtype(sweep.spec.dtype).type(value) if isinstance(value, float) else value
              for name, value in values.items() if name in objective.parameters}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        best = minimize(objective, values, over={name: table.bounds(name) for name in table.over},
                        method=table.method, starts=table.starts, steps=table.steps,
                        enumerate_up_to=table.enumerate_up_to)
    others = {name: objective.evaluate(values | best.design | design) for name, design in table.baselines.items()}
    notes = [str(warning.message) for warning in caught]
    if options.json:
        print(json.dumps(_as_json(best, others, notes), indent=2))
    else:
        print(best)
        for name, (value, broken) in others.items():
            remark = f"breaks {', '.join(broken)}" if broken else f"optimum saves {1 - best.value / value:.3%}"
            print(f"{name}: {value:.10g} ({remark if math.isfinite(value) else 'impossible'})")
        for note in notes:
            print(f"note: {note}")
    return 0 if best.status == Status.OK else 3


def _as_json(best: Any, others: dict[str, tuple[float, tuple[str, ...]]], notes: list[str]) -> dict[str, Any]:
    import numpy as np

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(v) for name, v in value.items()}
        if isinstance(value, tuple):
            return [plain(v) for v in value]
        number = np.asarray(value).tolist()
        return number if not isinstance(number, float) or math.isfinite(number) else None

    return {"design": plain(best.design), "objective": plain(best.value), "gradient": plain(best.gradient),
            "gradient_norm": plain(best.gradient_norm), "optimum_status": best.optimum_status.name.lower(),
            "status": best.status.name.lower(), "certificate": best.certificate.name.lower(), "steps": best.steps,
            "local_minima": best.minima, "tied": best.tied, "gaps": plain(best.gaps), "slack": plain(best.slack),
            "multipliers": plain(best.multipliers), "sensitivities": plain(best.sensitivities),
            "baselines": {name: plain(value) for name, (value, _) in others.items()}, "notes": notes}
