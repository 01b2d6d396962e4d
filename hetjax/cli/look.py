"""The commands that look at what there is: status, verify, diff, export, plot, explore, models."""

import argparse
import json
import logging
import sys
import time
from dataclasses import asdict
from pathlib import Path

from hetjax.cli.figure import figure_options, selection
from hetjax.sweep.errors import SpecError, nearest
from hetjax.sweep.state import StoreStatus, flagged, read_attributes, store_status, store_stem

LISTED = 20  # damaged blocks that verify shows


def status(options: argparse.Namespace) -> int:
    """``hetjax status``."""
    while True:
        found = store_status(options.store)
        print(json.dumps(asdict(found)) if options.json else _status_text(found), flush=True)
        if options.watch is None or found.complete:
            return found.exit_code
        time.sleep(max(0.1, options.watch))


def _status_text(found: StoreStatus) -> str:
    share = found.points_done / found.points
    state = "complete" if found.complete else "incomplete"
    lines = [f"{found.path}: {state}, {found.blocks_done:,} of {found.blocks:,} blocks,"
             f" {found.points_done:,} of {found.points:,} points ({share:.1%})",
             f"model {found.model}, metrics {', '.join(found.metrics)}, spec {found.spec_hash[:12]},"
             f" {found.runs} runs"]
    if found.counts:
        lines.append("points by flag: " + ", ".join(f"{flag} {count:,}" for flag, count in found.counts.items())
                     + (f" ({flagged(found.counts):,} flagged)" if flagged(found.counts) else ""))
    if found.unlogged:
        lines.append(f"{found.unlogged} blocks have no log line; their flags are counted when the run is resumed")
    if found.running is not None:
        lines.append(f"being written by process {found.running.get('pid')} on {found.running.get('host')}")
    return "\n".join(lines)


def verify(options: argparse.Namespace) -> int:
    """``hetjax verify``."""
    from hetjax.sweep.verify import verify_store

    shown = time.monotonic()

    def show(done: int, blocks: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > 1 and sys.stderr.isatty():
            shown = time.monotonic()
            print(f"\rblock {done} of {blocks}", end="\r" if done == blocks else "", file=sys.stderr, flush=True)

    found = verify_store(options.store, full=options.full, progress=show)
    if options.json:
        print(json.dumps(asdict(found) | {"damaged": [{"block": list(block), "faults": faults}
                                                      for block, faults in found.damaged.items()]}))
        return found.exit_code
    how = "read, every checksum compared" if found.full else "looked at, every length compared"
    print(f"{found.path}: {found.blocks_done:,} of {found.blocks:,} blocks {how}; {len(found.damaged):,} damaged")
    for block, faults in list(found.damaged.items())[:LISTED]:
        print(f"  block {' '.join(map(str, block))}: {'; '.join(faults)}")
    if len(found.damaged) > LISTED:
        print(f"  and {len(found.damaged) - LISTED:,} more; --json lists all")
    for fault in found.others:
        print(f"  {fault}")
    if found.counts:
        print("points by flag: " + ", ".join(f"{flag} {count:,}" for flag, count in found.counts.items()))
    if found.recounted:
        print(f"{len(found.recounted):,} blocks hold other flags than their log line says")
    if found.exit_code:
        print(f"compute what is missing or damaged with: hetjax retry {found.path}")
    return found.exit_code


def diff(options: argparse.Namespace) -> int:
    """``hetjax diff``."""
    from hetjax.sweep.compare import compare_sweeps, text

    found = compare_sweeps(options.first, options.second, relative=options.relative, absolute=options.absolute,
                           allow_incomplete=options.allow_incomplete)
    if options.json:
        print(json.dumps(asdict(found) | {"equal": found.equal}))
        return found.exit_code
    only = [f"{count:,} only in {path}" for count, path in
            zip(found.only, (options.first, options.second), strict=True) if count]
    waiting = [f"{found.pending:,} not computed in one of them"] if found.pending else []
    print(", ".join([f"{found.points:,} points in both", *only, *waiting]))
    for line in found.spec:
        print(f"specification: {line}")
    if found.missing:
        print(f"only one of them has {', '.join(found.missing)}")
    if found.flags:
        print(f"status: {found.flags:,} points differ, the first {found.first_flag}")
    for metric in found.metrics:
        if metric.points:
            print(f"{metric.name}: {metric.points:,} points differ, the first at {text(metric.first)}\n"
                  f"  by at most {metric.max_absolute:.3g} at {text(metric.at_absolute)}\n"
                  f"  relatively by at most {metric.max_relative:.3g} at {text(metric.at_relative)}")
    print("equal" if found.equal else "different")
    return found.exit_code


def export(options: argparse.Namespace) -> int:
    """``hetjax export``."""
    from hetjax.plot.options import of_command
    from hetjax.plot.select import select
    from hetjax.plot.view import axis_names
    from hetjax.sweep.export import export_sweep
    from hetjax.sweep.reader import open_sweep

    data = open_sweep(options.store, mask=not options.raw, allow_incomplete=options.allow_incomplete)
    chosen = dict(selection(text) for text in options.sel)
    for name in chosen:
        if name not in axis_names(data):
            raise SpecError(f"--sel {name}: it is no axis of {options.store}{nearest(name, axis_names(data))}")
    try:
        data = select(data, chosen)
    except ValueError as error:
        raise SpecError(str(of_command("export", error))) from None
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # after a damaged chunk it talks of tasks left pending
    print(export_sweep(data, options.out, options.to, force=options.force))
    return 0


def plot(options: argparse.Namespace) -> int:
    """``hetjax plot``."""
    table = read_attributes(options.store)["plot"]
    asked = figure_options(options)
    from hetjax.plot import plot_all, plot_sweep
    from hetjax.sweep.reader import open_sweep

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    figures = [asked] if asked or not table else table if isinstance(table, list) else [table]
    if options.figure is not None:
        if asked or not 1 <= options.figure <= len(figures):
            raise SpecError(f"--figure {options.figure}: " + (
                "options of a figure were given too; give either" if asked else f"the store has {len(figures)}"))
        figures = [figures[options.figure - 1]]
    data = open_sweep(options.store, allow_incomplete=options.allow_incomplete)
    stem = store_stem(options.store)
    if options.out is None:
        files = plot_all(data, figures, stem.parent, stem.name)
    elif len(figures) == 1:
        files = plot_sweep(data, figures[0], options.out, stem.name)
    elif Path(options.out).suffix and not Path(options.out).is_dir():
        raise SpecError(f"-o {options.out} is one file, and the store has {len(figures)} figures; give a folder, or"
                        " choose one with --figure N")
    else:
        files = plot_all(data, figures, options.out, stem.name)
    for file in files:
        print(file)
    return 0


def explore(options: argparse.Namespace) -> int:
    """``hetjax explore``."""
    read_attributes(options.store)
    from hetjax.explore import explore_sweep
    from hetjax.sweep.reader import open_sweep

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    thin = {}
    for text in options.thin:
        axis, _, step = text.partition("=")
        if not axis or not step.isascii() or not step.isdecimal() or not 1 <= int(step) < 2**31:
            raise SpecError(f"--thin {text!r} is not of the form AXIS=N, N a whole number from 1 on")
        thin[axis] = int(step)
    data = open_sweep(options.store, allow_incomplete=options.allow_incomplete)
    print(explore_sweep(data, options.out or f"{store_stem(options.store)}.html", metrics=options.metric,
                        sel=dict(selection(text) for text in options.sel), thin=thin, precision=options.precision,
                        limit_mb=options.limit))
    return 0


def models(options: argparse.Namespace) -> int:
    """``hetjax models``."""
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
