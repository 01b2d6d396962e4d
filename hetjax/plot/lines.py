"""Line figures and tables of numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hetjax.plot.style import DASHES, MARKERS, hue_colours
from hetjax.plot.text import capital, describe, long_name, symbol, value_text
from hetjax.plot.view import View, best_index, rounding_scale


@dataclass(frozen=True)
class Look:
    """How the lines of a view are told apart: by hue (colour, and dash where no style is) and by style (dash)."""

    hues: list[str]
    styles: list[str]
    colours: list[Any]
    marked: bool
    joined: bool

    def properties(self, hue: int, style: int) -> dict[str, Any]:
        """Line2D properties of one line."""
        dash = DASHES[(style if len(self.styles) > 1 else hue) % len(DASHES)] if self.joined else "none"
        return {"color": self.colours[hue], "linestyle": dash, "markeredgecolor": "white", "markeredgewidth": 0.5,
                "marker": MARKERS[hue % len(MARKERS)] if self.marked else None}


def look_of(view: View) -> Look:
    """The look shared by all panels of a view."""
    x = view.values(str(view.x)).astype(float)
    hues = view.texts(view.hue) if view.hue else [""]
    styles = view.texts(view.style) if view.style else [""]
    ordered = view.hue is not None and not view.data[view.hue].attrs.get("_counted")
    steps = np.diff(x)
    joined = bool(np.all(steps > 0) or np.all(steps < 0))
    few = x.size <= (31 if np.issubdtype(view.values(str(view.x)).dtype, np.integer) else 12)
    marked = few if view.options.markers is None else view.options.markers
    return Look(hues, styles, hue_colours(len(hues), ordered), marked or not joined, joined)


def draw_lines(view: View, look: Look, array: Any, axes: Any) -> None:
    """The lines of one panel: ``array`` over x and, where they have a role, hue and style; NaN are gaps."""
    x = view.values(str(view.x))
    for i in range(len(look.hues)):
        for j in range(len(look.styles)):
            where = {d: k for d, k in ((view.hue, i), (view.style, j)) if d is not None}
            y = array.isel(where).values
            every = 1 if x.size <= 31 or not look.joined else x.size // 16
            axes.plot(x, y, **look.properties(i, j), markevery=every, zorder=3 + 0.01 * i, gid=f"line {i} {j}")
            best = best_index(y, x, rounding_scale(array)) if view.options.optimum else -1
            if best >= 0:
                axes.plot(x[best], y[best], marker="o", markersize=7.5, markerfacecolor="white", linestyle="none",
                          markeredgecolor=look.colours[i], markeredgewidth=1.8, zorder=5, gid=f"optimum {i} {j}")
    axes.grid(True)


def line_handles(view: View, look: Look) -> list[Any]:
    """Legend entries of hue and of style, each under a heading."""
    from matplotlib.lines import Line2D

    handles = []
    if view.hue:
        handles.append(_heading(view, view.hue, "hue"))
        handles += [Line2D([], [], **look.properties(i, 0), label=text) for i, text in enumerate(look.hues)]
    if view.style:
        handles.append(_heading(view, view.style, "style"))
        handles += [Line2D([], [], **{**look.properties(0, j), "color": "0.3", "marker": None}, label=text)
                    for j, text in enumerate(look.styles)]
    if view.options.optimum:
        words = f"best {symbol(view.data[view.x]) or view.x}"
        handles.append(Line2D([], [], marker="o", markersize=7.5, markerfacecolor="white", linestyle="none",
                              markeredgecolor="0.3", markeredgewidth=1.8, label=words))
    return handles


def _heading(view: View, axis: str, role: str) -> Any:
    from matplotlib.lines import Line2D

    array = view.data[axis]
    unit = array.attrs.get("units", "1")
    words = symbol(array) or capital(long_name(array)) + ("" if unit in ("1", "") else f" ({unit})")
    return Line2D([], [], linestyle="none", label=view.options.labels.get(role, words))


def table_rows(view: View) -> tuple[list[str], list[list[str]]]:
    """Headings and text rows of kind table: metric, a column for each hue value, the printed values."""
    columns = view.texts(view.hue) if view.hue else ["value"]
    printed = view.options.printed
    head = ["", *columns, *(["printed"] if printed else [])]
    rows = []
    for name in view.metrics:
        values = np.atleast_1d(view.data[name].values)
        sign = symbol(view.data[name])
        words = describe(view.data[name]) + (f", {sign}" if sign else "")
        beside = [value_text(printed[name]) if name in printed else "–"] if printed else []
        rows.append([words, *map(_entry, values), *beside])
    return head, rows


def _entry(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}" if 1e-4 <= abs(value) < 1e4 else f"{value:.3g}"


def draw_table(view: View, axes: Any) -> None:
    """The numbers of :func:`table_rows` between three rules."""
    head, rows = table_rows(view)
    axes.set_axis_off()
    lines = [head, *rows]
    widths = [max(len(line[c]) for line in lines) + 3 for c in range(len(head))]
    right = np.cumsum(widths) / sum(widths)
    for i, line in enumerate(lines):
        y = 1 - (i + 0.5) / len(lines)
        for c, text in enumerate(line):
            axes.text(0.0 if c == 0 else right[c], y, text, ha="left" if c == 0 else "right", va="center",
                      fontweight="bold" if i == 0 else "normal", transform=axes.transAxes)
    for y, width in ((1.0, 1.2), (1 - 1 / len(lines), 0.7), (0.0, 1.2)):
        axes.plot([0, 1], [y, y], color="0.1", linewidth=width, transform=axes.transAxes, clip_on=False)
