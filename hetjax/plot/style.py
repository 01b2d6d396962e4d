"""Colours, lines and paper: one look for all figures, readable by the colour-blind and in grey.

Nothing here touches matplotlib's global state: figures are made without pyplot, inside ``rc_context``.
"""

from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from hetjax.plot.options import refuse

# Okabe and Ito's palette without its yellow, in an order whose greys differ from one entry to the next.
CATEGORIES = ("#0072B2", "#E69F00", "#000000", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"
FLAGGED: dict[str, Any] = {"facecolor": "0.93", "edgecolor": "0.62", "hatch": "////"}
FORMATS = ("png", "pdf", "svg")

_PAPER = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "mathtext.fontset": "dejavusans",
    "font.size": 9.0, "axes.titlesize": 9.5, "axes.labelsize": 9.0, "figure.titlesize": 11.0,
    "figure.titleweight": "bold", "figure.labelsize": 8.0, "legend.fontsize": 8.5, "legend.title_fontsize": 8.5,
    "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.8, "axes.axisbelow": True, "axes.edgecolor": "0.25", "xtick.color": "0.25",
    "ytick.color": "0.25", "text.color": "0.1", "axes.labelcolor": "0.1", "grid.color": "0.9", "grid.linewidth": 0.7,
    "lines.linewidth": 1.7, "lines.markersize": 4.5, "legend.frameon": False, "legend.handlelength": 2.6,
    "hatch.linewidth": 0.5, "savefig.dpi": 150, "figure.dpi": 100, "pdf.fonttype": 42, "svg.fonttype": "none",
    "svg.hashsalt": "hetjax", "figure.facecolor": "white", "axes.facecolor": "white",
    "figure.constrained_layout.h_pad": 0.06, "figure.constrained_layout.w_pad": 0.06,
}


def paper() -> AbstractContextManager[None]:
    """The settings in which figures are drawn and saved, whatever the user's own are; they are restored at the end."""
    from matplotlib import style

    return style.context(_PAPER, after_reset=True)


def hue_colours(count: int, ordered: bool) -> list[Any]:
    """One colour a line: a scale of falling lightness for numbers, distinct colours for categories."""
    import matplotlib

    if count == 1:
        return [CATEGORIES[0]]
    if ordered:
        return list(matplotlib.colormaps[SEQUENTIAL](np.linspace(0.0, 0.87, count)))
    return [CATEGORIES[i % len(CATEGORIES)] for i in range(count)]


def has_format(key: str, name: str | PurePath) -> bool:
    """Whether the file name ``name`` ends in a format; ValueError if it ends in one that no figure is written in."""
    ending = PurePath(name).suffix[1:]
    if ending.lower() in FORMATS:
        return True
    if any(letter.isalpha() for letter in ending):  # a name like load=0.5 has no ending
        raise refuse(key, str(name), f"ends in .{ending}", [f".{known}" for known in FORMATS])
    return False


def save(figure: Any, paths: list[Path]) -> list[Path]:
    """Writes ``figure`` to each path, in the format of its ending; the files hold no date."""
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with paper():
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, metadata=metadata[path.suffix[1:].lower()])
    return paths
