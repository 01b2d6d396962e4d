"""What the page holds: axes, metrics and statuses as one JSON object whose arrays are base64 of their bytes."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetjax.plot.options import of_command, refuse
from hetjax.plot.select import dimension, select
from hetjax.plot.text import describe, symbol, unit_text
from hetjax.plot.view import axis_names, is_geometric, metric_names, spans_thousands
from hetjax.result import STATUS_MEANINGS, Status

SMALL_MB = 8.0  # up to here the page holds float64 unless told otherwise
BASE64 = 4 / 3
_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ",
          "theta": "θ", "partial": "∂"}
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def chosen_part(dataset: Any, metrics: Sequence[str] | None, sel: Mapping[str, Any], thin: Mapping[str, int]) -> Any:
    """The part of ``dataset`` that the page shows, not read yet; dimensions held fixed keep one value."""
    known = metric_names(dataset)
    for name in metrics or ():
        if name not in known:
            raise _refuse("metrics", name, "is no metric of the store", known)
    axes = axis_names(dataset)
    for option, table in (("sel", sel), ("thin", thin)):
        for name, value in table.items():
            if name not in axes:
                raise _refuse(f"{option}.{name}", value, "has an unknown name", axes)
    try:  # as a list: a single value keeps its axis, and with it its name
        dataset = select(dataset, {k: [v] if isinstance(v, (int, float)) else v for k, v in sel.items()})
    except ValueError as error:
        raise of_command("explore", error) from None
    for name, step in thin.items():
        if isinstance(step, bool) or not isinstance(step, int) or step < 1:
            raise _refuse(f"thin.{name}", step, "is no whole number from 1 on")
        dataset = dataset.isel({dimension(dataset, name): slice(None, None, step)})
    for name in [d for d in dataset.dims if d in dataset.coords]:
        dataset = dataset.isel({name: np.argsort(dataset[name].values, kind="stable")})
    names = list(dict.fromkeys(metrics or known))
    if not names:
        raise _refuse("store", sorted(map(str, dataset.data_vars)), "holds no metric over an axis")
    dims = {d for name in names for d in dataset[name].dims}
    return dataset[[*names, *(["status"] if "status" in dataset else [])]].isel(
        {d: 0 for d in dataset.dims if d not in dims})


def page_data(dataset: Any, precision: str | None = None, limit_mb: float = math.inf) -> dict[str, Any]:
    """The page's JSON object; ValueError before anything is read if the page would exceed ``limit_mb``."""
    if precision not in (None, "float32", "float64"):
        raise _refuse("precision", precision, "is not known", ("float32", "float64"))
    if precision is None:
        narrow = all(dataset[n].dtype == np.float32 for n in dataset.data_vars if n != "status")
        precision = "float32" if narrow or _megabytes(dataset, 8) > SMALL_MB else "float64"
    width = 4 if precision == "float32" else 8
    if (size := _megabytes(dataset, width)) > limit_mb:
        raise ValueError(f"explore: the page would hold {size:.0f} MB, more than {limit_mb:g} MB; "
                         f"{_remedy(dataset, width, limit_mb)}, or raise the limit (--limit {math.ceil(size) + 1})")
    status = None if "status" not in dataset else np.asarray(dataset["status"].values)
    names = [str(n) for n in dataset.data_vars if n != "status"]
    told = status is not None and bool((status != Status.OK).any())
    return {
        "title": str(dataset.attrs.get("title") or "Sweep"), "model": str(dataset.attrs.get("model", "")),
        "precision": precision,
        "dims": [_dim(dataset, d) for d in dict.fromkeys(d for name in names for d in dataset[name].dims)],
        "metrics": [_metric(dataset[name], status, precision) for name in names],
        "status": {"dims": list(map(str, dataset["status"].dims)), "data": _encoded(status)} if told else None,
        "flags": {str(int(code)): [code.name.lower().replace("_", " "), STATUS_MEANINGS[code]] for code in Status}}


def _megabytes(dataset: Any, width: int) -> float:
    names = [n for n in dataset.data_vars if n != "status"]
    points = sum(dataset[n].size * width for n in names) + (dataset["status"].size if "status" in dataset else 0)
    return points * BASE64 / 1e6


def _remedy(dataset: Any, width: int, limit_mb: float) -> str:
    """Every second value of the longest axis, again and again, until the page is small enough."""
    sizes = {str(d): int(n) for d, n in dataset.sizes.items()}
    steps: dict[str, int] = {}
    left = _megabytes(dataset, width)
    while left > limit_mb and max(sizes.values()) > 1:
        longest = max(sizes, key=lambda d: sizes[d])
        left *= -(-sizes[longest] // 2) / sizes[longest]
        sizes[longest] = -(-sizes[longest] // 2)
        steps[longest] = 2 * steps.get(longest, 1)
    words = " ".join(f"--thin {axis}={step}" for axis, step in steps.items())
    names = [str(n) for n in dataset.data_vars if n != "status"]
    fewer = f"choose metrics (--metric {names[0]}), " if len(names) > 1 else ""
    return f"{fewer}select values (--sel AXIS=LOW:HIGH), thin axes ({words})"


def _dim(dataset: Any, name: Any) -> dict[str, Any]:
    """A dimension with the coordinates along it: its own, or those of zipped axes or of a table of points."""
    own = [name] if name in dataset.coords else [c for c in dataset.coords if dataset[c].dims == (name,)]
    return {"name": str(name), "size": int(dataset.sizes[name]), "own": name in dataset.coords,
            "axes": [{**_labels(dataset[c]), "log": is_geometric(np.asarray(dataset[c].values)),
                      "whole": bool(np.issubdtype(dataset[c].dtype, np.integer)),
                      "data": _encoded(np.asarray(dataset[c].values, np.float64))} for c in own]}


def _metric(array: Any, status: np.ndarray | None, precision: str) -> dict[str, Any]:
    values = np.asarray(array.values)
    gradient = "derivative_of" in array.attrs or (str(array.name).startswith("d_") and "__d_" in str(array.name))
    if status is not None and status.shape == values.shape:  # as the readers do, whatever the Dataset was told
        good = status == Status.OK if gradient else (status == Status.OK) | (status == Status.GRAD_NONFINITE)
        values = np.where(good, values, np.nan)
    kept = np.float32 if precision == "float32" and _fits(values) else np.float64
    return {**_labels(array), "undefined": str(array.attrs.get("undefined_where", "")), "gradient": gradient,
            "log": spans_thousands(values), "dims": list(map(str, array.dims)), "type": np.dtype(kept).name,
            "data": _encoded(values.astype(kept))}


def _fits(values: np.ndarray) -> bool:
    """Whether float32 holds ``values`` to its full precision."""
    size = np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64))
    limits = np.finfo(np.float32)
    return bool(values.dtype == np.float32 or not size.size or (size.min() >= limits.tiny and size.max() <= limits.max))


def _labels(array: Any) -> dict[str, str]:
    return {"name": str(array.name), "symbol": plain(symbol(array)), "words": plain(describe(array)),
            "about": str(array.attrs.get("long_name", "")), "unit": unit_text(array)}


def plain(text: str) -> str:
    """TeX symbols as Unicode: ``$\\\\mu_{1}$`` -> ``μ₁``."""
    for word, letter in _GREEK.items():
        text = text.replace(f"\\{word}", letter)
    parts = text.replace("$", "").split("_{")
    return parts[0] + "".join(p.partition("}")[0].translate(_LOWERED) + p.partition("}")[2] for p in parts[1:])


def _encoded(values: np.ndarray | None) -> str:
    """Little-endian bytes in C order, as base64."""
    array = np.asarray(values)
    return base64.b64encode(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _refuse(key: str, value: Any, problem: str, choices: Sequence[str] = ()) -> ValueError:
    return of_command("explore", refuse(key, value, problem, choices))
