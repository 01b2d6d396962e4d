"""Maps: one metric as colour over two axes, with contours of it or of another one."""

from typing import Any

import numpy as np

from hetjax.plot.options import refuse
from hetjax.plot.style import DIVERGING, FLAGGED, SEQUENTIAL
from hetjax.plot.text import long_name, symbol, value_text
from hetjax.plot.view import View, best_index, rounding_scale

DECADES = 1e-6


def cell_edges(centres: np.ndarray, logarithmic: bool) -> np.ndarray:
    """The n + 1 edges of cells around n ascending centres, half-way between them (geometrically on a log axis)."""
    c = np.log(centres) if logarithmic else centres.astype(float)
    middle = (c[1:] + c[:-1]) / 2
    edges = np.concatenate([[c[0] - (c[1] - c[0]) / 2], middle, [c[-1] + (c[-1] - c[-2]) / 2]])
    return np.exp(edges) if logarithmic else edges


def colour_scale(values: np.ndarray, logarithmic: bool, limits: tuple[float, ...]) -> tuple[Any, str]:
    """The norm and colour map for ``values``: diverging, centred at 0, where they have both signs.

    Without ``limits`` a logarithmic scale ends at ten times what 99 % of the values stay below, and covers six decades
    at most.
    """
    from matplotlib.colors import LogNorm, Normalize, SymLogNorm

    finite = values[np.isfinite(values)]
    low, high = limits or ((finite.min(), finite.max()) if finite.size else (0.0, 1.0))
    if low < 0 < high:
        far = max(-low, high)
        if not logarithmic:
            return Normalize(-far, far), DIVERGING
        near = np.quantile(np.abs(finite[finite != 0]), 0.1)
        return SymLogNorm(10.0 ** np.floor(np.log10(max(near, far * 1e-6))), vmin=-far, vmax=far, base=10), DIVERGING
    if logarithmic and low > 0:
        if not limits:
            high = min(high, 10 * np.quantile(finite, 0.99))
            low = max(low, high * DECADES)
        return LogNorm(low, high), SEQUENTIAL
    if logarithmic and high > 0:
        return SymLogNorm(np.quantile(finite[finite > 0], 0.02), vmin=0, vmax=high, base=10), SEQUENTIAL
    return Normalize(low, high), SEQUENTIAL


def draw_map(view: View, array: Any, contoured: list[tuple[Any, dict[str, Any]]], norm: Any, colours: str,
             axes: Any) -> Any:
    """One panel; ``contoured``: the arrays of ``contours`` in the same panel. Flagged points stay hatched."""
    from matplotlib.colors import LogNorm

    options = view.options
    logs = [letter in view.log for letter in "xy"]
    x, y = view.values(str(view.x)), view.values(str(view.y))
    for name, values in ((view.x, x), (view.y, y)):
        if values.size < 2 or not np.all(np.diff(values) > 0):
            raise refuse("x" if name == view.x else "y", name, "has no two or more ascending values, as a map needs")
    z = array.transpose(view.y, view.x).values
    axes.patch.set(**FLAGGED)
    # a log norm would leave values <= 0 uncoloured, like flagged ones; they belong below the scale
    shown = np.where(z <= 0, float(norm.vmin or 0) / 10, z) if isinstance(norm, LogNorm) else z
    mesh = axes.pcolormesh(cell_edges(x, logs[0]), cell_edges(y, logs[1]), np.ma.masked_invalid(shown), norm=norm,
                           cmap=colours, rasterized=True, zorder=1)
    for other, contour in contoured:
        _draw_contours(view, x, y, other.transpose(view.y, view.x), contour, axes)
    if options.optimum:
        best = [best_index(column, y, rounding_scale(array)) for column in z.T]
        steps = "steps-mid" if np.issubdtype(y.dtype, np.integer) and x.size > 40 else "default"
        axes.plot(x, [y[i] if i >= 0 else np.nan for i in best], color="white", linewidth=2.0, zorder=4,
                  drawstyle=steps, path_effects=_halo("0.1", 3.6), gid="optimum")
    return mesh


def _draw_contours(view: View, x: np.ndarray, y: np.ndarray, array: Any, contour: dict[str, Any], axes: Any) -> None:
    z = array.values
    unit = " %" if array.attrs.get("units") == "%" else ""
    finite = z[np.isfinite(z)]
    if not finite.size:
        return
    levels = contour.get("levels")
    if levels is None:
        levels = _round_levels(finite, "z" in view.log)
    inside = [v for v in levels if finite.min() < v < finite.max()]
    if not inside:
        return
    lines = axes.contour(x, y, np.ma.masked_invalid(z), levels=inside, colors="white", linewidths=1.3, zorder=3,
                         linestyles=["--" if v < 0 else "-" for v in inside])
    lines.set_path_effects(_halo("0.1", 2.4))
    texts = axes.clabel(lines, fmt=lambda v: _level_text(v) + unit, fontsize=8, colors="white", inline_spacing=6)
    for text in texts:
        text.set_path_effects(_halo("0.1", 2.4))


def _round_levels(finite: np.ndarray, logarithmic: bool) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    positive = finite[finite > 0]
    if logarithmic and positive.size == finite.size:
        low, high = np.floor(np.log10([positive.min(), positive.max()]))
        return [10.0**e for e in range(int(low), int(high) + 1)]
    return list(MaxNLocator(7).tick_values(*np.quantile(finite, (0.01, 0.99))))


def _level_text(value: float) -> str:
    exponent = np.log10(abs(value)) if value else 0.5
    if exponent == round(exponent) and not -2 <= exponent <= 3:
        return rf"$10^{{{round(exponent)}}}$"
    return value_text(float(value))


def _halo(colour: str, width: float) -> list[Any]:
    from matplotlib import patheffects

    return [patheffects.Stroke(linewidth=width, foreground=colour), patheffects.Normal()]


def map_handles(view: View, flagged: str) -> list[Any]:
    """Legend entries: contours of another metric, the optimum curve, the hatching."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    thin: dict[str, Any] = {"color": "white", "linewidth": 1.3, "path_effects": _halo("0.1", 2.4)}
    thick: dict[str, Any] = {"color": "white", "linewidth": 2.0, "path_effects": _halo("0.1", 3.6)}
    for contour in view.options.contours:
        words = contour.get("label") or (long_name(view.data[contour["of"]]) if "of" in contour else "")
        if words:
            handles.append(Line2D([], [], **thin, label=f"contours: {words}"))
    if view.options.optimum:
        sign = symbol(view.data[view.y]) or str(view.y)
        handles.append(Line2D([], [], **thick, label=f"best {sign}"))
    if flagged:
        handles.append(Patch(**FLAGGED, label=flagged))
    return handles

