"""Axis labels, values and symbols as text."""

import re
import textwrap
from typing import Any

import numpy as np

_GREEK = ("alpha", "beta", "gamma", "lambda", "mu", "rho", "sigma", "tau", "theta")
_OTHERS = {"lam": r"\lambda", "arrival_rate": r"\lambda"}


def value_text(value: Any) -> str:
    """A number as short text: 4 digits, integers whole, infinity as a sign."""
    if isinstance(value, (np.integer, int)):
        return str(int(value))
    if isinstance(value, (np.floating, float)):
        return "∞" if np.isposinf(value) else f"{float(value):.4g}"
    return str(value)


def capital(text: str) -> str:
    """``text`` with its first letter in upper case, unless that letter is a symbol standing alone."""
    return text if len(text) < 2 or not text[1].islower() else text[0].upper() + text[1:]


def symbol(array: Any) -> str:
    """The mathematical symbol of an axis or metric: its ``symbol`` attribute, or made from its name; empty if none."""
    if "symbol" in array.attrs:
        return f"${array.attrs['symbol']}$"
    name = str(array.name)
    gradient = re.fullmatch(r"d_(.+)__d_(.+)", name)
    if gradient:
        return rf"$\partial$({gradient[1].replace('_', ' ')}) / $\partial {_formula(gradient[2]) or gradient[2]}$"
    formula = _formula(name)
    return f"${formula}$" if formula else ""


def _formula(name: str) -> str:
    """A letter or Greek letter with its index, as TeX: ``mu1`` -> ``\\mu_{1}``; empty for other names."""
    found = re.fullmatch(rf"([A-Za-z]|{'|'.join(_GREEK)})(\d*)", name)
    if found is None:
        return _OTHERS.get(name, "")
    letter = found[1] if len(found[1]) == 1 else "\\" + found[1]
    return f"{letter}_{{{found[2]}}}" if found[2] else letter


def long_name(array: Any) -> str:
    """What an axis or metric is, in words."""
    return str(array.attrs.get("long_name") or str(array.name).replace("_", " "))


def describe(array: Any) -> str:
    """A heading: the long name up to a bracket, colon or formula; the events of ``p_...`` as probabilities."""
    words = re.split(r" \(|: |; |, [^,]*/", long_name(array))[0]
    return f"$P$({words})" if str(array.name).startswith("p_") else capital(words)


def axis_label(array: Any, given: str | None = None, inches: float = 4.0) -> str:
    """``Words, $symbol$ (unit)``, wrapped to ``inches``."""
    if given is not None:
        return given
    sign, unit = symbol(array), unit_text(array)
    words = sign if sign.startswith("$\\partial") else describe(array)
    if sign and sign != words:
        words += f", {sign}"
    if unit:
        words += f" ({unit})"
    return _wrapped(words, max(16, int(inches / 0.075)))


def unit_text(array: Any) -> str:
    """The unit of an axis, a metric or a gradient (reduced); empty if it has none."""
    unit = str(array.attrs.get("units", "1"))
    quotient = re.fullmatch(r"\((.+)\) / \((.+)\)", unit)  # of a gradient
    if quotient:
        unit = _quotient_unit(*quotient.groups())
    return "" if unit == "1" else unit


def _quotient_unit(above: str, below: str) -> str:
    if above == below:
        return "1"
    if below == "1":
        return above
    if below.startswith("1/"):
        return below[2:] if above == "1" else f"{above} · {below[2:]}"
    return f"{above} / {below}"


def _wrapped(words: str, width: int) -> str:
    """``words`` in lines of ``width`` characters; a formula is never broken and counts as long as it looks."""
    formulas = re.findall(r"\$[^$]*\$", words)
    marked = words
    for i, formula in enumerate(formulas):
        seen = len(re.sub(r"\\[a-z]+", "x", re.sub(r"[{}_^$ ]", "", formula)))
        marked = marked.replace(formula, chr(0xE000 + i) * seen, 1)
    glued = re.sub(r",? (?=[\uE000-\uF8FF])|(?<=[\uE000-\uF8FF]) / | / ", lambda m: m[0].replace(" ", "\0"), marked)
    lines = "\n".join(textwrap.wrap(glued, width, break_long_words=False)).replace("\0", " ")
    for i, formula in enumerate(formulas):
        lines = re.sub(f"{chr(0xE000 + i)}+", formula.replace("\\", r"\\"), lines)
    return lines
