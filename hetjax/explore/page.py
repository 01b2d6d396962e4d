"""The page around the data: template, style and scripts, joined into one file that loads nothing."""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

from hetjax import __version__
from hetjax.plot.style import SEQUENTIAL

SCRIPTS = ("data.js", "text.js", "draw.js", "views.js", "save.js", "controls.js")


def page_text(data: dict[str, Any]) -> str:
    """The whole page. Texts of the sweep reach it only through JSON and ``textContent``, never as HTML.

    Its content security policy allows this very script and nothing else, and no connection at all.
    """
    folder = files("hetjax.explore")
    script = "".join(["(() => {\n\"use strict\";\n",
                      *(folder.joinpath(name).read_text("utf-8") for name in SCRIPTS), "})();\n"])
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    held = json.dumps(data | {"version": __version__, "colours": _colours()}, ensure_ascii=True, allow_nan=False)
    for character in "<>&":  # nothing in the data can end its script element
        held = held.replace(character, f"\\u{ord(character):04x}")
    parts = {"TITLE": html.escape(data["title"]), "POLICY": allowed, "SCRIPT": script, "DATA": held,
             "STYLE": folder.joinpath("page.css").read_text("utf-8")}
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], folder.joinpath("page.html").read_text("utf-8"))


def _colours() -> str:
    """The colour scale of the figures as 256 hexadecimal colours."""
    import matplotlib
    import numpy as np

    table = matplotlib.colormaps[SEQUENTIAL](np.arange(256), bytes=True)[:, :3]
    return str(table.tobytes().hex())
