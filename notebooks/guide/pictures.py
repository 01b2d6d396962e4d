"""The pictures of the systems, and the figures of the pages, drawn by matplotlib when the site is built.

``python notebooks/guide/pictures.py FOLDER`` draws them alone.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetjax.plot.style import CATEGORIES, paper, save

BLUE, ORANGE, BLACK, GREEN = CATEGORIES[:4]
FAST, SLOW, LINE, LOST = "#cfe3f2", "#fbe3b5", "0.35", "0.6"


class Sketch:
    """Queues, servers and arrows on a plain sheet; lengths are those of a server's radius."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure((0.42 * width, 0.42 * height))
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
        self.axes.set_axis_off()

    def text(self, x: float, y: float, words: str, **how: Any) -> None:
        self.axes.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": 9} | how)

    def server(self, x: float, y: float, words: str, colour: str) -> None:
        from matplotlib.patches import Circle

        self.axes.add_patch(Circle((x, y), 0.8, facecolor=colour, edgecolor=LINE, zorder=3))
        self.text(x, y, words, zorder=4)

    def queue(self, x: float, y: float, places: int, words: str = "", waiting: int = 0, endless: bool = False) -> None:
        """Places from x - places to x (the head, on the right); the first ``waiting`` of them are taken."""
        from matplotlib.patches import Rectangle

        for place in range(places):
            left, taken = x - place - 1, place < waiting
            self.axes.add_patch(Rectangle((left, y - 0.5), 1, 1, facecolor="0.75" if taken else "white",
                                          edgecolor=LINE if not endless or place < places - 1 else "none", zorder=2))
        if words:
            self.text(x - places / 2, y - 0.65, words, va="top")

    def arrow(self, *points: tuple[float, float], words: str = "", colour: str = BLACK, dashed: bool = False,
              at: tuple[float, float] = (0, 0), **how: Any) -> None:
        """A line through ``points`` that ends in a head; ``words`` beside its first piece, moved by ``at``."""
        x, y = zip(*points, strict=True)
        line = {"color": colour, "linewidth": 1.2, "linestyle": (0, (4, 2)) if dashed else "-"}
        self.axes.plot(x[:-1], y[:-1], solid_capstyle="butt", **line)
        self.axes.annotate("", points[-1], points[-2], arrowprops={
            "arrowstyle": "-|>,head_width=0.18,head_length=0.35", "shrinkA": 0, "shrinkB": 0, "color": colour,
            "linewidth": 1.2, "linestyle": line["linestyle"]})
        if words:
            self.text((x[0] + x[1]) / 2 + at[0], (y[0] + y[1]) / 2 + at[1], words, **how)


def stalling() -> Any:
    """The stalling queue."""
    s = Sketch(25, 10)
    s.arrow((0.4, 5), (3.6, 5), words="Poisson $\\lambda$", at=(-0.2, 0.6))
    s.queue(9, 5, 5, "waiting line, $M$ places\n(fed only when all are busy)", 1)
    s.arrow((9, 5), (11.3, 7.6), (12.4, 7.6))
    s.queue(16.4, 7.6, 4, "stalling buffer, $K$ places\n(for fast servers only)", 3)
    s.arrow((16.4, 7.6), (19.2, 8.6))
    s.arrow((16.4, 7.6), (19.2, 6.6))
    s.server(20.0, 8.8, r"$\mu_1$", FAST)
    s.server(20.0, 6.5, r"$\mu_1$", FAST)
    s.text(21.3, 7.65, "$m$ fast servers", ha="left")
    s.arrow((9, 5), (11.3, 2.6), (19.2, 2.6), words="only if the buffer is full", at=(4.9, -0.6))
    s.server(20.0, 2.6, r"$\mu_2$", SLOW)
    s.text(21.3, 2.6, "$n$ slow servers\n$\\mu_2 = \\mu_1/r$", ha="left")
    s.arrow((2.0, 5), (2.0, 1.6), words="lost if the\nline is full", at=(-0.2, -2.5), colour=LOST, dashed=True)
    return s.figure


def stalling_states() -> Any:
    """The chain of the stalling queue."""
    s = Sketch(25, 11.5)
    columns, rows = (3.0, 7.0, 12.6, 16.6), (2.6, 6.0, 9.4)
    names = ("0", "1", "m+K-1", "m+K")
    for j, y in enumerate(rows):
        for level, x in enumerate(columns):
            _node(s, x, y, f"${names[level]},{'012'[j]}$", "white" if level < 3 else FAST)
        for left, right in ((0, 1), (2, 3)):
            _both(s, columns[left], columns[right], y, r"$\lambda$",
                  r"$\mu_1$" if left == 0 else r"$m\mu_1$")
        s.text(9.8, y, "· · ·")
    for level, x in enumerate(columns):
        for j in (1, 2):
            s.arrow((x - 0.25, rows[j] - 0.85), (x - 0.25, rows[j - 1] + 0.85), colour=ORANGE,
                    words=rf"${'' if j == 1 else '2'}\mu_2$" if level != 3 else "", at=(-0.75, 0))
    for j in (0, 1):
        s.arrow((columns[3] + 0.3, rows[j] + 0.85), (columns[3] + 0.3, rows[j + 1] - 0.85), words=r"$\lambda$",
                at=(0.6, 0))
    for k, x in enumerate((20.4, 23.6)):
        _node(s, x, rows[2], f"$+{k + 1}$", FAST)
        _both(s, columns[3] if k == 0 else 20.4, x, rows[2], r"$\lambda$", r"$m\mu_1{+}2\mu_2$" if k == 0 else "")
    s.text(22.0, 7.9, "waiting line, up to $M$", va="top")
    s.text(10.5, 0.7, "level $i+k$: in fast servers or stalled; second number: busy slow servers ($n=2$)")
    return s.figure


def _node(s: Sketch, x: float, y: float, words: str, colour: str) -> None:
    from matplotlib.patches import Ellipse

    s.axes.add_patch(Ellipse((x, y), 2.3, 1.5, facecolor=colour, edgecolor=LINE, zorder=3))
    s.text(x, y, words, zorder=4, fontsize=8)


def _both(s: Sketch, left: float, right: float, y: float, up: str, down: str) -> None:
    s.arrow((left + 1.15, y + 0.22), (right - 1.15, y + 0.22), words=up, at=(0, 0.5))
    s.arrow((right - 1.15, y - 0.22), (left + 1.15, y - 0.22), words=down, at=(0, -0.55), colour=BLUE, fontsize=8)


def overflow() -> Any:
    """The overflow system."""
    s = Sketch(21, 9)
    for y, t, colour in ((6.8, 1, FAST), (2.2, 2, SLOW)):
        s.arrow((0.4, y), (8.2, y), words=rf"type {t}, Poisson $\lambda_{t}$", at=(-1.5, 0.55))
        s.server(9.0, y, f"{t}", colour)
        s.text(10.2, y, rf"server of type {t}; whoever is here, a customer of type $t$ is served at $\mu_t$", ha="left")
    s.arrow((5.6, 6.8), (8.3, 2.85), dashed=True)
    s.arrow((5.6, 2.2), (8.3, 6.15), dashed=True)
    s.text(10.2, 4.5, "overflow, if the own server is busy;\nlost, if both are", ha="left")
    return s.figure


def supermarket() -> Any:
    """The supermarket model."""
    s = Sketch(21, 10.5)
    s.arrow((0.4, 5.2), (5.0, 5.2), words=r"rate $N\lambda$", at=(-0.6, 0.6))
    for k, (y, waiting) in enumerate(((9.2, 3), (7.2, 1), (5.2, 2), (3.2, 4), (1.2, 0))):
        s.queue(13.5, y, 5, "", waiting)
        s.arrow((13.5, y), (14.6, y))
        s.server(15.4, y, "PH", FAST if waiting or k != 4 else "white")
        if k in (1, 3):
            s.arrow((5.0, 5.2), (8.3, y), dashed=k == 3, colour=BLUE if k == 1 else LOST)
    s.text(4.6, 7.4, "looks at $d$ queues,\njoins the shortest", color=BLUE)
    s.text(16.8, 5.2, "$N$ queues, service of\nphase type $(\\alpha, T)$", ha="left")
    return s.figure


def threshold_queue() -> Any:
    """The threshold queue."""
    s = Sketch(22, 7)
    s.arrow((0.4, 3.5), (4.6, 3.5), words="MAP $(D_0, D_1)$", at=(0, 0.6))
    s.queue(10.8, 3.5, 6, "one queue", 4)
    s.arrow((10.8, 3.5), (15.3, 5.4), words="always", at=(-0.6, 0.45))
    s.arrow((10.8, 3.5), (15.3, 1.6), words="when $T$ customers wait", at=(-2.2, -0.75), dashed=True)
    s.server(16.1, 5.5, r"$\mu_1$", FAST)
    s.server(16.1, 1.5, r"$\mu_2$", SLOW)
    s.text(17.3, 5.5, "fast server", ha="left")
    s.text(17.3, 1.5, "slow server(s), a\nthreshold each, or\none by phase", ha="left")
    return s.figure


def parallel_queues() -> Any:
    """Two parallel nodes."""
    s = Sketch(23, 9)
    s.arrow((0.4, 4.5), (4.0, 4.5), words=r"Poisson $\lambda$", at=(-0.1, 0.6))
    s.text(6.1, 4.5, "coin: $p, 1-p$\nor word: 1 1 0 1 ...", bbox={"facecolor": "white", "edgecolor": LINE, "pad": 5})
    for y, node in ((6.9, 1), (2.1, 2)):
        s.arrow((8.4, 4.5 + (0.3 if node == 1 else -0.3)), (11.0, y))
        s.queue(15.0, y, 4, f"node {node}", 2)
        s.arrow((15.0, y), (17.3, y + 0.95))
        s.arrow((15.0, y), (17.3, y - 0.95), dashed=True)
        s.server(18.1, y + 1.05, rf"$\mu_{{{node}1}}$", FAST)
        s.server(18.1, y - 1.05, rf"$\mu_{{{node}2}}$", SLOW)
        s.text(19.3, y - 1.05, f"from $T_{node}$ waiting", ha="left")
    return s.figure


def lost_digits() -> Any:
    """Digits of P(0, 0, 0) by the paper's alternating sum and by the library, over the number of slow servers."""
    import numpy as np
    from matplotlib.figure import Figure

    import hetjax
    from hetjax import stalling

    hetjax.enable_x64()
    names, counts, theirs = ("p_empty", "p_stuck", "p_slow"), (2, 8, 16, 24, 32), []
    exact = hetjax.evaluate("stalling", q=1.25, r=30.0, K=3, M=4, m=3, n=counts, metrics=names)
    for i, n in enumerate(counts):
        p = stalling.Params(1.25, 30.0, 3, 4, 3, n)
        theirs.append([abs(float(getattr(stalling, f"published_{name}")(p, corrected=True) / exact[name][i]) - 1)
                       for name in names])
    figure = Figure((6.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for column, label, mark, colour in zip(np.maximum(theirs, 1e-17).T, (
            "$P_{000}$: nobody in the system", "$P_{stuck}$", "$P_{slow}$"), "os^", (BLUE, ORANGE, BLACK), strict=True):
        axes.plot(counts, column, marker=mark, color=colour, label=label)
    axes.set(yscale="log", xlabel="Slow servers, $n$", ylabel="Relative error of the\nalternating sum")
    axes.axhline(2.2e-16, color="0.5", linewidth=0.9, linestyle=":")
    axes.text(counts[-1], 3e-16, "rounding of float64", ha="right", va="bottom", fontsize=8, color="0.35")
    figure.legend(loc="outside right upper")
    return figure


PICTURES = (stalling, stalling_states, overflow, supermarket, threshold_queue, parallel_queues, lost_digits)


def draw_all(folder: Path, pictures: Sequence[Any] = PICTURES, ending: str = "svg") -> list[Path]:
    """Writes each picture to ``folder`` by its name."""
    files = []
    for picture in pictures:
        with paper():
            figure = picture()
        files += save(figure, [folder / f"{picture.__name__}.{ending}"])
    return files


if __name__ == "__main__":
    for file in draw_all(Path(sys.argv[1]), ending=sys.argv[2] if len(sys.argv) > 2 else "svg"):
        print(file)
