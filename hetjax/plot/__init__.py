"""Figures of sweeps: lines, maps with contours, optimum curves and tables, from any store, by axis names.

:func:`plot_sweep` writes one figure, :func:`plot_all` those of a ``[plot]`` table, :func:`draw` gives the matplotlib
figure for a notebook. :mod:`hetjax.plot.options` lists the options. With no options at all the first metric is drawn:
over its two longest axes as a map, or as lines where there is one long axis only.

Figures are made without pyplot and leave matplotlib's settings alone.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetjax.plot.options import FigureOptions, parse_figure, refuse
from hetjax.plot.view import axis_names, metric_names

__all__ = ["FigureOptions", "check_figures", "draw", "parse_figure", "plot_all", "plot_sweep"]


def plot_sweep(path_or_dataset: Any, figure: Mapping[str, Any] | None = None,
               out: str | os.PathLike[str] | None = None, name: str | None = None) -> list[Path]:
    """Draws one figure of a sweep and writes it; returns the files.

    ``path_or_dataset``: a finished store, or an xarray Dataset like those of ``open_sweep`` and ``run_in_memory``.
    ``figure``: the options (see :mod:`hetjax.plot.options`). ``out``: a file ending in .png, .pdf or .svg; or a name
    without one of these endings, or a folder: then a PNG and a PDF are written. By default the files lie beside the
    store and are called like it, or like ``name``, or like the option ``file``. ValueError (one line: key, value,
    choices) for options that do not fit.

    >>> import numpy as np, xarray as xr
    >>> K, r = np.arange(5), np.array([2.0, 4.0])
    >>> data = xr.Dataset({"mean_number": (("r", "K"), np.add.outer(r, (K - 2.0) ** 2))}, {"K": K, "r": r})
    >>> [p.name for p in plot_sweep(data, {"x": "K", "y": "mean_number", "hue": "r"}, "families.png")]
    ['families.png']
    """
    dataset, stem = _opened(path_or_dataset, name)
    options = _parsed(dataset, figure)
    return _write(dataset, options, _paths(options, stem, out))


def plot_all(path_or_dataset: Any, plot_table: Sequence[Mapping[str, Any]] | Mapping[str, Any],
             out_dir: str | os.PathLike[str] | None = None, name: str | None = None) -> list[Path]:
    """Draws every figure of a ``[plot]`` table (or list of them) into ``out_dir``, after checking all of them.

    A figure without the option ``file`` is called like the store, or ``name``; from the second with ``-2``, ``-3``...
    """
    dataset, stem = _opened(path_or_dataset, name)
    checked = [_parsed(dataset, table) for table in _as_list(plot_table)]
    folder = Path(out_dir) if out_dir is not None else stem.parent
    names = [stem.name if i == 0 else f"{stem.name}-{i + 1}" for i in range(len(checked))]
    paths = [_paths(options, folder / name, None) for options, name in zip(checked, names, strict=True)]
    return [path for options, own in zip(checked, paths, strict=True) for path in _write(dataset, options, own)]


def check_figures(plot_table: Sequence[Mapping[str, Any]] | Mapping[str, Any],
                  axes: Sequence[str] | Mapping[str, Any], metrics: Sequence[str]) -> None:
    """Refuses, before a sweep runs, a ``[plot]`` table that does not fit its axes and metrics (one-line ValueError).

    ``axes``: their names, or a table from name to values; with values, those of ``sel`` must be among them.
    """
    from hetjax.plot.select import indices
    from hetjax.plot.style import has_format

    for table in _as_list(plot_table):
        options = parse_figure(table, list(axes), metrics)
        if options.file is not None:
            has_format("file", options.file)
        if isinstance(axes, Mapping):
            for name, wanted in options.sel.items():
                indices(name, np.asarray(axes[name]), wanted)


def draw(path_or_dataset: Any, figure: Mapping[str, Any] | None = None) -> Any:
    """The matplotlib Figure that :func:`plot_sweep` would write."""
    from hetjax.plot.figure import draw_view
    from hetjax.plot.view import make_view

    dataset, _ = _opened(path_or_dataset)
    return draw_view(make_view(dataset, _parsed(dataset, figure)))


def _parsed(dataset: Any, figure: Mapping[str, Any] | None) -> FigureOptions:
    return parse_figure(figure, axis_names(dataset), metric_names(dataset))


def _as_list(plot_table: Any) -> list[Any]:
    if isinstance(plot_table, Mapping):
        return [plot_table]
    if isinstance(plot_table, str) or not isinstance(plot_table, Sequence):
        raise refuse("plot", plot_table, "is no table or list of tables")
    return list(plot_table)


def _opened(path_or_dataset: Any, name: str | None = None) -> tuple[Any, Path]:
    if isinstance(path_or_dataset, (str, os.PathLike)):
        from hetjax.sweep import open_sweep
        from hetjax.sweep.state import store_stem

        stem = store_stem(path_or_dataset)
        return open_sweep(path_or_dataset), stem.with_name(name) if name else stem
    return path_or_dataset, Path(name or "sweep")


def _paths(options: FigureOptions, stem: Path, out: str | os.PathLike[str] | None) -> list[Path]:
    from hetjax.plot.style import has_format

    key = "file" if options.file is not None else "out"
    if options.file is not None:
        stem = stem.parent / options.file
    if out is not None:
        stem, key = (Path(out) / stem.name, key) if Path(out).is_dir() else (Path(out), "out")
    if (key == "file" or out is not None) and has_format(key, stem):
        return [stem]
    return [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "pdf")]


def _write(dataset: Any, options: FigureOptions, paths: list[Path]) -> list[Path]:
    from hetjax.plot.figure import draw_view
    from hetjax.plot.style import save
    from hetjax.plot.view import make_view

    return save(draw_view(make_view(dataset, options)), paths)
