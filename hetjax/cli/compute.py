"""The commands that compute: plan, run, retry, extend, refine, demo."""

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hetjax
from hetjax.sweep.errors import SpecError, SweepError, one_line
from hetjax.sweep.state import read_attributes

MAX_DEVICES = 1024


def plan(options: argparse.Namespace) -> int:
    """``hetjax plan``."""
    sweep = load_sweep(options)
    _check_figures(sweep)
    print(sweep.plan(devices=options.devices, block_points=options.block_points, inner_batch=options.inner_batch,
                     calibrate=not options.no_calibrate))
    if columns := sweep.spec.design_columns:
        from hetjax.sweep.design import duplicates

        if count := duplicates({name: sweep.spec.axis(name).values for name in columns}):
            print(f"advice        {count:,} points of the design repeat others")
    return 0


def run(options: argparse.Namespace) -> int:
    """``hetjax run``."""
    if options.overwrite and options.resume:
        raise SpecError("--overwrite and --resume contradict each other; give one of them")
    sweep = load_sweep(options)
    if not options.no_plot:
        _check_figures(sweep)
    from hetjax.sweep.run import run_sweep
    from hetjax.sweep.stored import with_stored_points

    problem = with_stored_points(sweep.problem, options.out) if options.resume else sweep.problem
    code = _computed(options, options.out, lambda: run_sweep(problem, options.out, _run_options(
        options, resume=options.resume, overwrite=options.overwrite, inner_batch=options.inner_batch,
        verify="full" if options.full else "fast", shard=options.shard, executor=options.executor,
        block_points=options.block_points, spec_text=sweep.text)))
    if sweep.spec.plot and not options.no_plot and options.shard is None:
        from hetjax.plot import plot_all

        for file in plot_all(options.out, sweep.spec.plot):
            print(file)
    return code


def retry(options: argparse.Namespace) -> int:
    """``hetjax retry``."""
    _start_for_store(options)
    from hetjax.sweep.retry import retry_sweep

    return _computed(options, options.store,
                     lambda: retry_sweep(options.store, _words(options.status),
                                         options=_run_options(options, executor=options.executor)))


def extend(options: argparse.Namespace) -> int:
    """``hetjax extend``."""
    sweep = load_sweep(options)
    from hetjax.sweep.grow import extend_sweep

    return _computed(options, options.out, lambda: extend_sweep(
        options.store, sweep.problem, options.out,
        _run_options(options, spec_text=sweep.text, block_points=sweep.spec.block_points)))


def refine(options: argparse.Namespace) -> int:
    """``hetjax refine``."""
    _start_for_store(options)
    from hetjax.sweep.grow import extend_sweep, refined_problem

    problem = refined_problem(options.store, _words(options.over), minimize=options.minimize, zoom=options.zoom)
    return _computed(options, options.out,
                     lambda: extend_sweep(options.store, problem, options.out, _run_options(options)))


def demo(options: argparse.Namespace) -> int:
    """``hetjax demo``."""
    from hetjax.demo import STUDIES, show
    from hetjax.sweep.errors import nearest
    from hetjax.sweep.plan import human_seconds

    known = [study.model for study in STUDIES]
    for name in options.model or []:
        if name not in known:
            raise SpecError(f"--model {name}: the demo has no such model{nearest(name, known)}")
    start_jax("float64", None)
    folder, started, points = Path(options.out), time.monotonic(), 0
    count = len(set(options.model or known))
    print(f"{count} of {len(known)} models; compiling all takes a minute or two. Pictures go to {folder}/\n",
          flush=True)
    for number, shown in enumerate(show(folder, options.model), 1):
        points += shown.points
        text = textwrap.fill(shown.line, 96, initial_indent="      ", subsequent_indent="      ")
        print(f"{number:>2}/{count} {shown.model}, {shown.points:,} points: {shown.picture.name}\n{text}", flush=True)
    print(f"\n{points:,} points in {human_seconds(time.monotonic() - started)}")
    return 0


def _words(given: list[str]) -> list[str]:
    return [word.strip() for text in given for word in text.split(",")]


def _run_options(options: argparse.Namespace, **more: Any) -> Any:
    from hetjax.sweep.run import RunOptions

    return RunOptions(devices=options.devices, allow_drift=options.allow_drift, progress=not options.quiet,
                      hard_stop=lambda: os._exit(75), **more)


def _computed(options: argparse.Namespace, store: str, compute: Callable[[], Any]) -> int:
    """Runs ``compute``, says what it did, and returns its exit code."""
    from hetjax.sweep.plan import human_seconds
    from hetjax.sweep.state import store_status

    try:
        result = compute()
    except SweepError as error:
        if error.exit_code != 75:
            raise
        print(f"hetjax: {one_line(error)}", file=sys.stderr, flush=True)
        os._exit(75)  # the block that was computing is of no use: do not wait for it
    if not options.quiet:
        words = ", ".join(f"{count:,} {flag}" for flag, count in result.counts.items())
        print(f"{store}: {store_status(store).points:,} points in {result.blocks} blocks ({words});"
              f" {result.computed} blocks computed in {human_seconds(result.seconds)}")
    if result.mismatches:
        print(f"hetjax: {result.mismatches} values of {store} differ from the second route (see its log)",
              file=sys.stderr)
    return int(result.exit_code)


def load_sweep(options: argparse.Namespace) -> Any:
    """The bound sweep of the SPEC argument, with JAX set up for it."""
    from hetjax.sweep.spec import parse_spec, read_text

    text = read_text(options.spec)
    start_jax(parse_spec(text, options.spec).dtype, options.devices)
    from hetjax.sweep.api import Sweep

    return Sweep.from_text(text, options.spec)


def _start_for_store(options: argparse.Namespace) -> None:
    start_jax(str(read_attributes(options.store)["spec"].get("dtype")), options.devices)


def start_jax(dtype: str, devices: int | None, keep_kernels: bool = True) -> None:
    """64-bit floats and the number of CPU devices must be set before JAX makes its first array.

    Linear algebra of single points gets no threads of its own: the devices have the cores, and threads that wait for
    each other over small matrices cost three times what they compute. ``keep_kernels``: compiled ones are kept for the
    next run, unless JAX was told where to keep them, or not to.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when the library is loaded
    import jax

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # for models named module:ATTRIBUTE that lie here
    if dtype == "float64":
        hetjax.enable_x64()
    if devices is not None and devices > MAX_DEVICES:
        raise SpecError(f"--devices {devices} is more than {MAX_DEVICES}; a CPU gains nothing beyond one a core")
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        try:
            jax.config.update("jax_num_cpu_devices", devices or hetjax.config.usable_cores())
        except RuntimeError:  # a program that calls main() has started JAX; its devices are what there is
            pass
    if keep_kernels and jax.config.jax_enable_compilation_cache and jax.config.jax_compilation_cache_dir is None:
        try:
            hetjax.enable_compilation_cache()
        except OSError as error:
            print(f"hetjax: compiled kernels are not kept for the next run: {one_line(error)}", file=sys.stderr)


def _check_figures(sweep: Any) -> None:
    """Refuses figures that the sweep cannot give before anything is computed."""
    if sweep.spec.plot:
        from hetjax.plot import check_figures

        axes = {dim.name: range(dim.size) for dim in sweep.spec.dims} | {a.name: a.values for a in sweep.spec.axes}
        check_figures(sweep.spec.plot, axes, sweep.problem.arrays)
