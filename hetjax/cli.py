"""The command line: ``hetjax plan | run | status | plot | models``.

Errors are one line on stderr and an exit code. Only the commands that compute load jax.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import hetjax
from hetjax.sweep.errors import SpecError, SweepError
from hetjax.sweep.state import StoreStatus, flagged, read_attributes, store_status

EXIT_CODES = """exit codes:
  0   complete and clean
  1   any other error (disk full, not a store, ...)
  2   wrong usage or specification; a store made for another specification or environment
  3   complete, with flagged points (unstable, out of the domain, not finite, ...)
  6   another run is writing to the store
  75  incomplete and resumable: interrupted (SIGINT, SIGTERM), or the status of an unfinished store
"""


MAX_DEVICES = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except SweepError as error:
        print(f"hetjax: {_one_line(error)}", file=sys.stderr)
        return error.exit_code
    except ValueError as error:  # refused options of figures and models
        print(f"hetjax: {_one_line(error)}", file=sys.stderr)
        return SpecError.exit_code
    except KeyboardInterrupt:
        print("hetjax: stopped", file=sys.stderr)
        return 75
    except BrokenPipeError:  # the reader of our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"hetjax: {_one_line(error)}", file=sys.stderr)
        return 1


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="hetjax", description="Queues with heterogeneous servers, swept over their parameters to disk.",
        epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"hetjax {hetjax.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(command=function)
        return sub

    plan = command("plan", _plan, "say what a sweep will cost (points, blocks, bytes, compilations, time)")
    run = command("run", _run, "compute a sweep to a store, then draw its figures")
    for sub in (plan, run):
        sub.add_argument("spec", metavar="SPEC", help="the TOML file that describes the sweep")
        sub.add_argument("--devices", type=_positive, metavar="N",
                         help="use N devices (default: all; a CPU has one a core)")
        sub.add_argument("--block-points", type=_positive, metavar="N",
                         help="points of a block at most (default: a second of computing, or a 64 MB chunk)")
        sub.add_argument("--inner-batch", type=_positive, metavar="N",
                         help="points of a vectorised batch; it decides the last bits and is kept on resume")
    plan.add_argument("--no-calibrate", action="store_true", help="do not compile and time the kernel")
    run.add_argument("--out", required=True, metavar="STORE", help="the store to write, like results.zarr")
    run.add_argument("--resume", choices=("auto", "must"),
                     help="auto: continue the store or start it; must: only continue")
    run.add_argument("--overwrite", action="store_true", help="delete an existing store first")
    run.add_argument("--allow-drift", action="store_true",
                     help="continue although versions or devices changed (recorded in the store)")
    run.add_argument("--no-plot", action="store_true", help="do not draw the figures of [plot] at the end")
    run.add_argument("--quiet", action="store_true", help="no progress on stderr")

    status = command("status", _status, "say how far a store is")
    status.add_argument("store", metavar="STORE")
    status.add_argument("--json", action="store_true", help="as JSON")
    status.add_argument("--watch", nargs="?", const=2.0, type=_seconds, metavar="SECONDS",
                        help="repeat until the store is complete (every 2 s by default)")

    plot = command("plot", _plot, "draw figures of a store (those of its [plot] table, or the one described here)")
    plot.add_argument("store", metavar="STORE")
    plot.add_argument("-x", help="axis along the page")
    plot.add_argument("-y", action="append", help="metric (lines; repeat for several), or axis up the page (map)")
    plot.add_argument("-z", action="append", help="metric of a map")
    plot.add_argument("--hue", help="axis told apart by colour")
    plot.add_argument("--style", help="axis told apart by line style")
    plot.add_argument("--facets", action="append", help="axis told apart by panel (at most two)")
    plot.add_argument("--kind", help="lines, map, optimum, least or table")
    plot.add_argument("--over", help="axis searched by the kinds optimum and least")
    plot.add_argument("--of", help="metric that the kinds optimum and least look at")
    plot.add_argument("--sel", action="append", default=[], metavar="AXIS=VALUE",
                      help="hold an axis at a value, at some (1,2,5) or in a range (1:5); may be repeated")
    plot.add_argument("--log", action="append", choices=("x", "y", "z"), help="logarithmic axis; may be repeated")
    plot.add_argument("--title")
    plot.add_argument("-o", "--out", metavar="FILE", help="file (.png, .pdf, .svg) or folder")

    models = command("models", _models, "list the models with their parameters and metrics")
    models.add_argument("name", nargs="?", metavar="MODEL", help="only this model, in full")
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= float(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {2**31 - 1}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return value


def _start_jax(dtype: str, devices: int | None) -> None:
    """64-bit floats and the number of CPU devices must be set before JAX makes its first array."""
    import jax

    if dtype == "float64":
        hetjax.enable_x64()
    if devices is not None and devices > MAX_DEVICES:
        raise SpecError(f"--devices {devices} is more than {MAX_DEVICES}; a CPU gains nothing beyond one a core")
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        try:
            jax.config.update("jax_num_cpu_devices", devices or len(os.sched_getaffinity(0)))
        except RuntimeError:  # a program that calls main() has started JAX; its devices are what there is
            pass


def _load(options: argparse.Namespace) -> Any:
    """The bound sweep of the SPEC argument, with JAX set up for it."""
    from hetjax.sweep.spec import parse_spec, read_text

    text = read_text(options.spec)
    _start_jax(parse_spec(text, options.spec).dtype, options.devices)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # for models named module:ATTRIBUTE beside the specification
    from hetjax.sweep.api import Sweep

    return Sweep.from_text(text, options.spec)


def _plan(options: argparse.Namespace) -> int:
    sweep = _load(options)
    _check_figures(sweep)
    print(sweep.plan(devices=options.devices, block_points=options.block_points, inner_batch=options.inner_batch,
                     calibrate=not options.no_calibrate))
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.overwrite and options.resume:
        raise SpecError("--overwrite and --resume contradict each other; give one of them")
    sweep = _load(options)
    if not options.no_plot:
        _check_figures(sweep)
    from hetjax.sweep.plan import human_seconds
    from hetjax.sweep.run import RunOptions, run_sweep

    try:
        result = run_sweep(sweep.problem, options.out, RunOptions(
            resume=options.resume, overwrite=options.overwrite, devices=options.devices,
            inner_batch=options.inner_batch, block_points=options.block_points, allow_drift=options.allow_drift,
            progress=not options.quiet, spec_text=sweep.text, hard_stop=lambda: os._exit(75)))
    except SweepError as error:
        if error.exit_code != 75:
            raise
        print(f"hetjax: {_one_line(error)}", file=sys.stderr, flush=True)
        os._exit(75)  # the block that was computing is of no use: do not wait for it
    if not options.quiet:
        words = ", ".join(f"{count:,} {flag}" for flag, count in result.counts.items())
        print(f"{options.out}: {sweep.spec.points:,} points in {result.blocks} blocks ({words});"
              f" {result.computed} blocks computed in {human_seconds(result.seconds)}")
    if sweep.spec.plot and not options.no_plot:
        from hetjax.plot import plot_all

        for file in plot_all(options.out, sweep.spec.plot):
            print(file)
    return result.exit_code


def _check_figures(sweep: Any) -> None:
    """Refuses figures that the sweep cannot give before anything is computed."""
    if sweep.spec.plot:
        from hetjax.plot import check_figures

        axes = dict.fromkeys([dim.name for dim in sweep.spec.dims] + [axis.name for axis in sweep.spec.axes])
        check_figures(sweep.spec.plot, list(axes), sweep.problem.arrays)


def _status(options: argparse.Namespace) -> int:
    while True:
        status = store_status(options.store)
        print(json.dumps(asdict(status)) if options.json else _status_text(status), flush=True)
        if options.watch is None or status.complete:
            return status.exit_code
        time.sleep(max(0.1, options.watch))


def _status_text(status: StoreStatus) -> str:
    share = status.points_done / status.points
    state = "complete" if status.complete else "incomplete"
    lines = [f"{status.path}: {state}, {status.blocks_done:,} of {status.blocks:,} blocks,"
             f" {status.points_done:,} of {status.points:,} points ({share:.1%})",
             f"model {status.model}, metrics {', '.join(status.metrics)}, spec {status.spec_hash[:12]},"
             f" {status.runs} runs"]
    if status.counts:
        lines.append("points by flag: " + ", ".join(f"{flag} {count:,}" for flag, count in status.counts.items())
                     + (f" ({flagged(status.counts):,} flagged)" if flagged(status.counts) else ""))
    if status.unlogged:
        lines.append(f"{status.unlogged} blocks have no log line; their flags are counted when the run is resumed")
    if status.running is not None:
        lines.append(f"being written by process {status.running.get('pid')} on {status.running.get('host')}")
    return "\n".join(lines)


def _plot(options: argparse.Namespace) -> int:
    table = read_attributes(options.store)["plot"]
    asked = {key: value for key in ("x", "y", "z", "hue", "style", "facets", "kind", "over", "of", "log", "title")
             if (value := getattr(options, key))}
    if options.sel:
        asked["sel"] = dict(_selection(text) for text in options.sel)
    from hetjax.plot import plot_all, plot_sweep

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # after a damaged chunk it talks of tasks left pending
    if asked or not table:
        files = plot_sweep(options.store, asked, options.out)
    else:
        files = plot_all(options.store, table, options.out)
    for file in files:
        print(file)
    return 0


def _selection(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise SpecError(f"--sel {text!r} is not of the form AXIS=VALUE")
    if ":" in value:
        return name, value
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        raise SpecError(f"--sel {text!r} needs numbers: AXIS=2, AXIS=1,2,5 or AXIS=1:5") from None
    return name, numbers if len(numbers) > 1 else numbers[0]


def _models(options: argparse.Namespace) -> int:
    from hetjax.models.registry import get_model, model_names

    for name in [options.name] if options.name else model_names():
        model = get_model(name)
        width = max(len(name) for name in [a.name for a in model.axes] + [m.name for m in model.metrics]) + 1
        print(f"{model.name} (version {model.version}): {model.title}")
        print("  parameters")
        for axis in model.axes:
            default = "" if axis.default is None else f", default {axis.default:g}"
            shape = ", gives array shapes" if axis.shape else ""
            print(f"    {axis.name:<{width}} {axis.describe_domain()} {_unit(axis.unit)}{axis.meaning}{default}{shape}")
        print("  metrics")
        for metric in model.metrics:
            extra = f"; undefined where {metric.undefined_where}" if metric.undefined_where else ""
            extra += "; expensive" if metric.expensive else ""
            print(f"    {metric.name:<{width}} {_unit(metric.unit)}{metric.meaning}{extra}")
    return 0


def _unit(unit: str) -> str:
    return "" if unit == "1" else f"[{unit}] "


if __name__ == "__main__":
    sys.exit(main())
