"""The command that measures: bench."""

import argparse
import json
import sys
from pathlib import Path

from hetjax.cli.compute import start_jax
from hetjax.sweep.errors import SpecError


def bench(options: argparse.Namespace) -> int:
    """``hetjax bench``."""
    dtypes = (options.dtype,) if options.dtype else ()
    of_models = {"--model": options.model, "--points": options.points, "--seconds": options.seconds,
                 "--all-metrics": options.all_metrics}
    for name, given in of_models.items():
        if options.spec is not None and given:
            raise SpecError(f"{name} belongs to the benchmark of models; leave it out or leave {options.spec} out")
    if options.json not in (None, "-") and Path(options.json).suffix != ".json":
        raise SpecError(f"--json {options.json}: the file's name must end in .json, so that nothing else is replaced;"
                        " --json alone writes to standard output")
    start_jax("float64", options.devices, keep_kernels=False)

    def say(text: str) -> None:
        print(f"hetjax bench: {text}", file=sys.stderr, flush=True)

    if options.spec is not None:
        from hetjax.bench import bench_spec
        from hetjax.sweep.api import Sweep

        problem = Sweep.from_toml(options.spec).problem
        report = bench_spec(problem, gradients=options.gradients, dtypes=dtypes, devices=options.devices, say=say)
    else:
        from hetjax.bench import bench_models

        more = {"dtypes": dtypes} if dtypes else {}
        report = bench_models(options.model, gradients=options.gradients, points=options.points,
                              all_metrics=options.all_metrics, seconds=options.seconds or 120.0,
                              devices=options.devices, say=say, **more)
    text = json.dumps(report.as_json(), indent=1, allow_nan=False)
    if options.json == "-":
        print(text)
    else:
        print(report)
        if options.json is not None:
            Path(options.json).write_text(text + "\n")
    return 1 if report.failed else 0
