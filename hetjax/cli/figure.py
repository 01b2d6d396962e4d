"""The options of ``hetjax plot``: every option that a ``[plot]`` table has, as words of the command line."""

import argparse
from collections.abc import Callable
from typing import Any

from hetjax.sweep.errors import SpecError

_PLAIN = ("x", "y", "z", "hue", "style", "facets", "kind", "over", "of", "below", "title", "names", "optimum",
          "own_scale", "markers", "note")


def add_figure(plot: argparse.ArgumentParser) -> None:
    """Declares them."""
    plot.add_argument("-x", help="axis along the page")
    plot.add_argument("-y", action="append", help="metric (lines; repeat for several), or axis up the page (map)")
    plot.add_argument("-z", action="append", help="metric of a map; may be repeated")
    plot.add_argument("--hue", metavar="AXIS", help="axis told apart by colour")
    plot.add_argument("--style", metavar="AXIS", help="axis told apart by line style")
    plot.add_argument("--facets", action="append", metavar="AXIS", help="axis told apart by panel (at most two)")
    plot.add_argument("--kind", help="lines, map, optimum, least or table")
    plot.add_argument("--over", metavar="AXIS", help="axis searched by the kinds optimum and least")
    plot.add_argument("--of", metavar="METRIC", help="metric that the kinds optimum and least look at")
    plot.add_argument("--below", type=float, metavar="V", help="least: the bound that the metric keeps")
    plot.add_argument("--relative", metavar="AXIS[=TO]",
                      help="excess in percent over the min (default), max, first or last value along AXIS")
    plot.add_argument("--optimum", action="store_true", default=None,
                      help="mark the least value of each line; on a map draw the best y for each x")
    plot.add_argument("--contours", nargs="?", const="", action="append", metavar="[METRIC=]LEVELS",
                      help="contours over a map: 1,10 or loss=0.01,0.1 or loss or nothing; may be repeated")
    plot.add_argument("--reference", action="append", metavar="x=X,y=Y,label=TEXT",
                      help="a point to compare with, or with x or y alone a line across; may be repeated")
    plot.add_argument("--printed", action="append", metavar="METRIC=VALUE", help="table: a value to compare with")
    plot.add_argument("--log", action="append", choices=("x", "y", "z", "none"),
                      help="logarithmic axis (none: no axis); may be repeated")
    plot.add_argument("--limits", action="append", metavar="x=LOW:HIGH", help="ends of x, y or z; may be repeated")
    plot.add_argument("--own-scale", action="store_true", default=None, help="a y scale for each panel")
    plot.add_argument("--markers", action=argparse.BooleanOptionalAction, help="a marker at each point of a line")
    plot.add_argument("--no-note", dest="note", action="store_false", default=None,
                      help="do not state the axes held fixed")
    plot.add_argument("--title", help="above the figure")
    plot.add_argument("--label", action="append", metavar="x=TEXT", help="of x, y, z, hue or style; may be repeated")
    plot.add_argument("--names", action="append", metavar="TEXT", help="text of a hue value; repeat for each")
    plot.add_argument("--size", metavar="WxH", help="width and height in inches, like 6.8x4.2")
    plot.add_argument("--figure", type=int, metavar="N", help="only the N-th figure of the store's [plot] table")
    plot.add_argument("-o", "--out", metavar="FILE",
                      help="file (.png, .pdf, .svg), or folder, or name without ending (a PNG and a PDF)")


def figure_options(given: argparse.Namespace) -> dict[str, Any]:
    """The ``[plot]`` table that the command line describes; empty if it says nothing."""
    table = {key: value for key in _PLAIN if (value := getattr(given, key)) is not None}
    if given.relative is not None:
        axis, _, to = given.relative.partition("=")
        table["relative"] = {"over": axis} | ({"to": to} if to else {})
    if given.contours:
        table["contours"] = [_contours(text) for text in given.contours]
    if given.reference:
        table["reference"] = [_reference(text) for text in given.reference]
    if given.log:
        table["log"] = [letter for letter in given.log if letter != "none"]
    for key, option, read in (("limits", "limits", _limits), ("labels", "label", str), ("printed", "printed", _number)):
        if texts := getattr(given, option):
            table[key] = dict(_pair(f"--{option}", text, read) for text in texts)
    if given.size is not None:
        table["size"] = [_number(part) for part in given.size.lower().split("x")]
    if given.sel:
        table["sel"] = dict(selection(text) for text in given.sel)
    return table


def selection(text: str) -> tuple[str, Any]:
    """``AXIS=VALUE`` as a pair; the value a number, a list of them or a text like ``1:5``."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise SpecError(f"--sel {text!r} is not of the form AXIS=VALUE")
    if ":" in value:
        return name, value
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        raise SpecError(f"--sel {text!r} needs numbers: AXIS=2, AXIS=1,2,5 or AXIS=1:5") from None
    return name, numbers if len(numbers) > 1 else numbers[0]


def _pair(option: str, text: str, read: Callable[[str], Any]) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise SpecError(f"{option} {text!r} is not of the form NAME=VALUE")
    return name, read(value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{text!r} is no number") from None


def _limits(text: str) -> list[float]:
    low, colon, high = text.partition(":")
    if not colon:
        raise SpecError(f"--limits needs LOW:HIGH, like x=0:1, and not {text!r}")
    return [_number(low), _number(high)]


def _contours(text: str) -> dict[str, Any]:
    """``1,10``, ``METRIC=1,10``, ``METRIC`` or nothing."""
    metric, equals, levels = text.partition("=")
    if not equals:
        try:
            float(text.split(",")[0])
            metric, levels = "", text
        except ValueError:
            levels = ""
    table: dict[str, Any] = {"of": metric} if metric else {}
    return table | ({"levels": [_number(part) for part in levels.split(",")]} if levels else {})


def _reference(text: str) -> dict[str, Any]:
    """``x=1,y=2,panel=METRIC,label=TEXT``; the label comes last and may hold commas."""
    numbers, label, words = text.partition("label=")
    table: dict[str, Any] = {}
    for part in filter(None, numbers.split(",")):
        key, value = _pair("--reference", part, str)
        table[key] = _number(value) if key in ("x", "y") else int(value) if value.isdecimal() else value
    return table | ({"label": words} if label else {})
