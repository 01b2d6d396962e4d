"""One figure: panels in a grid, shared scales, colour bars, one legend outside the data."""

import math
from typing import Any

import numpy as np

from hetjax.plot.lines import draw_lines, draw_table, line_handles, look_of, table_rows
from hetjax.plot.maps import colour_scale, draw_map, map_handles
from hetjax.plot.options import refuse
from hetjax.plot.style import paper
from hetjax.plot.text import axis_label, symbol
from hetjax.plot.view import View, flag_words


def draw_view(view: View) -> Any:
    """A matplotlib Figure of ``view``. Panels are filled in reading order: by metric, then by facet."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with paper():
        panels = _panels(view)
        rows, columns = _grid(view, len(panels))
        size = view.options.size or _size(view, rows, columns)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        alike = view.kind == "map" or (len(view.metrics) == 1 and not view.options.own_scale)
        axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=alike).flat)
        for empty in axes[len(panels):]:
            empty.remove()
        axes = axes[:len(panels)]
        inches = (size[0] / columns * 0.8, size[1] / rows * 0.75)
        if view.kind == "table":
            draw_table(view, axes[0])
        else:
            for ax in axes:  # before anything is drawn: contour labels are placed on the scale they find
                for letter in "xy":
                    if letter in view.log:
                        getattr(ax, f"set_{letter}scale")("log")
            (_lines if view.kind == "lines" else _maps)(view, figure, axes, panels, inches)
            _finish(view, axes, columns, inches)
        title = view.options.title if view.options.title is not None else view.data.attrs.get("title")
        if title:
            figure.suptitle(title, x=0.012, ha="left")
        notes = [n for n in (view.notes if view.options.note else ()) if n]
        if notes:
            figure.supxlabel("; ".join(notes), x=0.99, ha="right", color="0.4")
    return figure


Panel = tuple[str, dict[str, int], str]  # metric, indices of the facets, heading


def _panels(view: View) -> list[Panel]:
    if view.kind == "table":
        return [("", {}, "")]
    counts = [view.data.sizes[f] for f in view.facets]
    panels: list[Panel] = []
    for metric in view.metrics:
        for index in np.ndindex(*counts):
            where = dict(zip(view.facets, map(int, index), strict=True))
            words = [view.texts(f)[i] if view.data[f].attrs.get("_counted") else
                     f"{symbol(view.data[f]) or f} = {view.texts(f)[i]}" for f, i in where.items()]
            panels.append((metric, where, ", ".join(words)))
    return panels


def _grid(view: View, count: int) -> tuple[int, int]:
    if len(view.facets) == 2:
        return count // view.data.sizes[view.facets[1]], view.data.sizes[view.facets[1]]
    if view.facets and len(view.metrics) > 1:
        return len(view.metrics), view.data.sizes[view.facets[0]]
    columns = count if count <= 3 else 2 if count == 4 else 3 if count <= 9 else 4
    return math.ceil(count / columns), columns


def _size(view: View, rows: int, columns: int) -> tuple[float, float]:
    if view.kind == "table":
        head, lines = table_rows(view)
        width = sum(max(map(len, column)) + 3 for column in zip(head, *lines, strict=True))
        title = view.options.title if view.options.title is not None else str(view.data.attrs.get("title", ""))
        return max(5.0, 0.078 * width, 0.105 * len(title)), 0.26 * (len(lines) + 3)
    if rows == columns == 1:
        return 6.8, 4.2
    return min(2.9 * columns + 1.2, 13.0), 2.6 * rows + 0.9


def _lines(view: View, figure: Any, axes: list[Any], panels: list[Panel], inches: tuple[float, float]) -> None:
    look = look_of(view)
    for ax, (metric, where, heading) in zip(axes, panels, strict=True):
        draw_lines(view, look, view.data[metric].isel(where), ax)
        ax.set_title(heading)
        ax.set_ylabel(axis_label(view.data[metric], view.options.labels.get("y"), inches[1]))
    handles = line_handles(view, look) + _references(view, axes, panels)
    gaps = sorted({w for m in view.metrics if (w := flag_words(view, m))})
    if gaps:
        from matplotlib.lines import Line2D

        handles.append(Line2D([], [], linestyle="none", label=f"gaps: {'; '.join(gaps)}"))
    first = handles.pop(0).get_label() if view.hue or view.style else None
    if handles:
        legend = figure.legend(handles=handles, loc="outside right upper", alignment="left")
        legend.set_title(first)


def _maps(view: View, figure: Any, axes: list[Any], panels: list[Panel], inches: tuple[float, float]) -> None:
    options = view.options
    for metric in view.metrics:
        own = [(ax, p) for ax, p in zip(axes, panels, strict=True) if p[0] == metric]
        norm, colours = colour_scale(view.data[metric].values, "z" in view.log, options.limits.get("z", ()))
        for ax, (_, where, heading) in own:
            contoured = [(view.data[c.get("of", metric)].isel(where), c) for c in options.contours]
            mesh = draw_map(view, view.data[metric].isel(where), contoured, norm, colours, ax)
            ax.set_title(heading)
        label = axis_label(view.data[metric], options.labels.get("z"), inches[1])
        if len(view.metrics) > 1 and not view.facets:  # beside the bar it could be taken for the next panel's
            own[0][0].set_title(axis_label(view.data[metric], None, inches[0]))
            label = ""
        bar = figure.colorbar(mesh, ax=[ax for ax, _ in own], pad=0.02, aspect=28,
                              extend=_beyond(view.data[metric].values, norm))
        bar.outline.set_visible(False)
        bar.set_label(label)
    words = ", ".join(dict.fromkeys(w for m in view.metrics if (w := flag_words(view, m))))
    handles = map_handles(view, words) + _references(view, axes, panels)
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))


def _references(view: View, axes: list[Any], panels: list[Panel]) -> list[Any]:
    from matplotlib.lines import Line2D

    handles: dict[str, Any] = {}
    look: dict[str, Any]
    for item in view.options.reference:
        panel = item.get("panel")
        chosen = [ax for i, (ax, p) in enumerate(zip(axes, panels, strict=True)) if panel in (None, i + 1, p[0])]
        if not chosen:
            known = [*dict.fromkeys(p[0] for p in panels), f"1 to {len(panels)}"]
            raise refuse("reference.panel", panel, "is no panel", known)
        for ax in chosen:
            if "x" in item and "y" in item:
                look = {"marker": "o", "markersize": 8, "markerfacecolor": "#F0E442", "markeredgecolor": "black",
                        "markeredgewidth": 1.2, "linestyle": "none"}
                ax.plot(item["x"], item["y"], **look, zorder=6, gid="reference")
            else:
                look = {"color": "#D55E00" if "y" in item else "0.35", "linestyle": (0, (2, 2)), "linewidth": 1.2}
                across = ax.axhline if "y" in item else ax.axvline
                across(item.get("y", item.get("x")), **look, zorder=2.5, gid="reference")
            if item.get("label"):
                handles.setdefault(item["label"], Line2D([], [], **look, label=item["label"]))
    return list(handles.values())


def _beyond(values: np.ndarray, norm: Any) -> str:
    finite = values[np.isfinite(values)]
    below, above = bool((finite < norm.vmin).any()), bool((finite > norm.vmax).any())
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[below, above]


def _finish(view: View, axes: list[Any], columns: int, inches: tuple[float, float]) -> None:
    from matplotlib.ticker import MaxNLocator

    options = view.options
    for i, ax in enumerate(axes):
        for letter, name in (("x", view.x), ("y", view.y)):
            axis = getattr(ax, f"{letter}axis")
            if letter not in view.log and name is not None and np.issubdtype(view.values(name).dtype, np.integer):
                axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True))
            if letter in options.limits:
                getattr(ax, f"set_{letter}lim")(*options.limits[letter])
        if i + columns >= len(axes):
            ax.set_xlabel(axis_label(view.data[view.x], options.labels.get("x"), inches[0]))
            ax.tick_params(labelbottom=True)
        if view.kind == "map" and i % columns == 0:
            ax.set_ylabel(axis_label(view.data[view.y], options.labels.get("y"), inches[1]))
        if view.kind == "lines":
            if len(view.metrics) == 1 and i % columns:  # the label stands beside the first panel of the row
                ax.set_ylabel("")
            ax.set_xmargin(0.02)

