"""Figures made with pyplot in notebooks and scripts: one look, shown by the notebook or saved by the script."""

import os
from pathlib import Path
from typing import Any


def set_up() -> None:
    """Sets pyplot's defaults for this process; colours and dashes are in :mod:`hetjax.plot.style`."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"figure.constrained_layout.use": True, "font.size": 9, "savefig.dpi": 150,
                         "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False})


def show(figure: Any, name: str) -> Any:
    """Closes ``figure`` and returns it, so that as the last line of a cell a notebook shows it once.

    If the environment variable HETJAX_FIGURES names a folder, it is saved there as well, as ``name.png``.

    >>> import os, matplotlib.pyplot as plt
    >>> os.environ["HETJAX_FIGURES"] = "."
    >>> shown = show(plt.figure(), "empty")
    >>> os.path.exists("empty.png"), plt.get_fignums()
    (True, [])
    >>> del os.environ["HETJAX_FIGURES"]
    """
    import matplotlib.pyplot as plt

    if folder := os.environ.get("HETJAX_FIGURES"):
        figure.savefig(Path(folder) / f"{name}.png")
    plt.close(figure)
    return figure
