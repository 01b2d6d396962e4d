"""A sweep as one interactive HTML page: sliders over its axes, a line view and a map view that follow them.

:func:`explore_sweep` writes the page. It holds all numbers and needs no network; a browser is all that is needed to
read it. The part after ``#`` in its address is the state of the view (``#metric=mean_number&over=K&at.q=0.5``), so that
a link keeps it. The scripts beside this file are put into the page as they are.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetjax.explore.data import chosen_part, page_data
from hetjax.explore.page import page_text
from hetjax.sweep.durable import write_durably
from hetjax.sweep.state import store_stem

__all__ = ["explore_sweep"]


def explore_sweep(path_or_dataset: Any, out: str | os.PathLike[str] | None = None, *,
                  metrics: Sequence[str] | None = None, sel: Mapping[str, Any] | None = None,
                  thin: Mapping[str, int] | None = None, precision: str | None = None, limit_mb: float = 50.0) -> Path:
    """Writes the interactive page of a sweep to ``out`` and returns its path.

    ``path_or_dataset``: a finished store, or a Dataset of ``open_sweep`` or ``run_in_memory``. ``out``: by default the
    store's name with .html. ``metrics``: only these metrics and derivatives. ``sel``: only these values of axes, as in
    figures. ``thin``: axis -> N, only every N-th of its values. ``precision``: "float64" holds every number exactly,
    "float32" to a relative 6e-8 (metrics with values outside its range stay float64); by default float64 while the page
    is small. ``limit_mb``: the page is refused above this size in MB, before anything is read, with what to leave out.

    ValueError (one line) for anything that does not fit. Memory and time grow with the number of points in the page.

    >>> import numpy as np, xarray as xr
    >>> data = xr.Dataset({"mean_number": (("q", "K"), np.ones((3, 4)))}, {"q": [0.1, 0.5, 0.9], "K": range(4)})
    >>> page = explore_sweep(data, "sweep.html")
    >>> "<script" in page.read_text(), "https:" in page.read_text()
    (True, False)
    """
    if isinstance(path_or_dataset, (str, os.PathLike)):
        from hetjax.sweep import open_sweep

        dataset, stem = open_sweep(path_or_dataset), store_stem(path_or_dataset)
    else:
        dataset, stem = path_or_dataset, Path("sweep")
    target = Path(out) if out is not None else stem.with_name(f"{stem.name}.html")
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"explore: out = {str(target)!r} does not end in .html; the page is an HTML file")
    part = chosen_part(dataset, metrics, sel or {}, thin or {})
    text = page_text(page_data(part, precision, limit_mb))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_durably(target, text)
    return target
