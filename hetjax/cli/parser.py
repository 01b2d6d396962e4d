"""The commands and their options."""

import argparse
from typing import Any, NoReturn

import hetjax
from hetjax.cli import compute, look
from hetjax.cli.figure import add_figure
from hetjax.cli.fit import add_fit, fit
from hetjax.cli.optimize import optimize

EXIT_CODES = """exit codes:
  0   complete and clean; verify: intact; diff: equal
  1   any other error (disk full, not a store, ...)
  2   wrong usage or specification; a store made for another specification or environment
  3   complete, with flagged points (unstable, out of the domain, not finite, ...)
  4   verify found damage
  5   diff found differences
  6   another run is writing to the store
  75  incomplete and resumable: interrupted (SIGINT, SIGTERM), or the status of an unfinished store
"""


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; ``options.command(options)`` runs what was asked for."""
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

    plan = command("plan", compute.plan, "say what a sweep will cost (points, blocks, bytes, compilations, time)")
    run = command("run", compute.run, "compute a sweep to a store, then draw its figures")
    best = command("optimize", optimize, "find the optimum of a specification with a table [optimize]: one point as a"
                   " table on the screen, a grid to a store, then draw its figures")
    _add_size(plan, run, best)
    plan.add_argument("--no-calibrate", action="store_true", help="do not compile and time the kernel")
    for sub in (run, best):
        sub.add_argument("--full", action="store_true",
                         help="on resume read every committed chunk (default: compare sizes and checksums with the"
                              " log)")
        sub.add_argument("--shard", type=_shard, metavar="I/N",
                         help="compute only part I of N (0 <= I < N), beside other parts; needs --resume auto; a last"
                              " run without it completes the store")
        sub.add_argument("--resume", choices=("auto", "must"),
                         help="auto: continue the store or start it; must: only continue")
        sub.add_argument("--overwrite", action="store_true", help="delete an existing store first")
        sub.add_argument("--no-plot", action="store_true", help="do not draw the figures of [plot] at the end")
    best.add_argument("--out", metavar="STORE", help="the store to write; not needed for one point")
    best.add_argument("--json", action="store_true", help="one point as JSON")
    status = command("status", look.status, "say how far a store is")
    _add_store(status)
    status.add_argument("--watch", nargs="?", const=2.0, type=_seconds, metavar="SECONDS",
                        help="repeat until the store is complete (every 2 s by default)")
    verify = command("verify", look.verify, "check the files of a store; changes nothing")
    _add_store(verify)
    verify.add_argument("--full", action="store_true", help="read everything and compare checksums, not only lengths")
    retry = command("retry", compute.retry, "compute again what is damaged, pending, or has points of a status")
    _add_store(retry)
    retry.add_argument("--status", action="append", default=[], metavar="FLAG",
                       help="also blocks with such points, like not_converged; may be repeated, or a,b,c")
    extend = command("extend", compute.extend, "a new store with longer axes: old points are copied")
    _add_store(extend)
    extend.add_argument("spec", metavar="SPEC", help="the specification with more values on its axes")
    refine = command("refine", compute.refine, "a new store with midpoints on some axes: old points are copied")
    _add_store(refine)
    refine.add_argument("--over", action="append", required=True, metavar="AXIS",
                        help="axis to refine; may be repeated, or a,b,c")
    refine.add_argument("--zoom", type=_positive, default=2, metavar="N",
                        help="cut intervals into N parts (default: 2, midpoints)")
    refine.add_argument("--minimize", metavar="METRIC",
                        help="only beside the values at which METRIC is least over these axes, for some values of the"
                             " others; repeat the command on the new store to come closer")
    _add_executor(run, best, retry)
    _add_devices(plan, run, best, retry, extend, refine)
    _add_running(run, best, retry, extend, refine)
    for sub in (run, extend, refine):
        sub.add_argument("--out", required=True, metavar="STORE", help="the store to write, like results.zarr")
    export = command("export", look.export, "write a store, or part of it, as netCDF, Parquet or CSV")
    _add_store(export)
    export.add_argument("-o", "--out", required=True, metavar="FILE", help="the file; its ending says the format")
    export.add_argument("--to", choices=("nc", "parquet", "csv"), help="the format, whatever the ending")
    export.add_argument("--raw", action="store_true", help="keep the values of flagged points")
    export.add_argument("--force", action="store_true", help="replace the file; write CSV of any length")
    _add_selection(export)
    diff = command("diff", look.diff, "compare two stores point by point")
    diff.add_argument("first", metavar="STORE")
    diff.add_argument("second", metavar="STORE")
    diff.add_argument("--relative", type=_tolerance, default=0.0, metavar="R", help="up to R * size is equal")
    diff.add_argument("--absolute", type=_tolerance, default=0.0, metavar="A", help="up to A is equal")
    for sub in (status, verify, diff):
        sub.add_argument("--json", action="store_true", help="as JSON")
    plot = command("plot", look.plot, "draw figures of a store (those of its [plot] table, or the one described here)")
    _add_store(plot)
    _add_selection(plot)
    add_figure(plot)
    explore = command("explore", look.explore, "write a store as one interactive HTML page that needs no network")
    _add_store(explore)
    explore.add_argument("-o", "--out", metavar="FILE", help="the page (default: the store's name with .html)")
    explore.add_argument("--metric", action="append", metavar="NAME",
                         help="only this metric; may be repeated (default: all)")
    _add_selection(explore)
    explore.add_argument("--thin", action="append", default=[], metavar="AXIS=N",
                         help="only every N-th value of an axis; may be repeated")
    explore.add_argument("--precision", choices=("float32", "float64"),
                         help="of the numbers in the page (default: float64 while it is small)")
    explore.add_argument("--limit", type=_positive, default=50, metavar="MB", help="size of the page (default: 50)")
    for sub in (export, diff, plot, explore):
        sub.add_argument("--allow-incomplete", action="store_true", help="also of a store that is not finished")
    add_fit(command("fit", fit, "estimate rates, laws and the stalling buffer from a log of arrivals and services"),
            _positive)
    models = command("models", look.models, "list the models with their parameters and metrics")
    models.add_argument("name", nargs="?", metavar="MODEL", help="only this model, in full")
    return parser


def _add_store(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("store", metavar="STORE")


def _add_size(*subs: argparse.ArgumentParser) -> None:
    for sub in subs:
        sub.add_argument("spec", metavar="SPEC", help="the TOML file that describes the sweep")
        sub.add_argument("--block-points", type=_positive, metavar="N",
                         help="points of a block at most (default: a second of computing, or a 64 MB chunk)")
        sub.add_argument("--inner-batch", type=_positive, metavar="N",
                         help="points of a vectorised batch; it decides the last bits and is kept on resume")


def _add_executor(*subs: argparse.ArgumentParser) -> None:
    for sub in subs:
        sub.add_argument("--executor", metavar="dask:ADDRESS",
                         help="have the blocks computed by the workers of a dask scheduler (dask:tcp://head:8786), by N"
                              " processes here (dask:local:N), or by jobs of SLURM (slurm:PROFILE.toml)")


def _add_devices(*subs: argparse.ArgumentParser) -> None:
    for sub in subs:
        sub.add_argument("--devices", type=_positive, metavar="N",
                         help="use N devices (default: all; a CPU has one a core)")


def _add_running(*subs: argparse.ArgumentParser) -> None:
    for sub in subs:
        sub.add_argument("--allow-drift", action="store_true",
                         help="continue although versions or devices changed (recorded in the store)")
        sub.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _add_selection(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--sel", action="append", default=[], metavar="AXIS=VALUE",
                     help="hold an axis at a value, at some (1,2,5) or in a range (1:5); may be repeated")


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not slash or not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in (part, parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form I/N, like 0/16")
    return int(part), int(parts)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= float(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {2**31 - 1}")
    return int(text)


def _seconds(text: str) -> float:
    return _real(text, 0.0, 86400.0, "a number of seconds from 0 to 86400")


def _tolerance(text: str) -> float:
    return 0.0 if text in ("0", "0.0") else _real(text, 0.0, 1e300, "a tolerance >= 0")


def _real(text: str, above: float, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not above < value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value
