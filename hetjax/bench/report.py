"""What a benchmark of models found: rows, ratios, text and JSON."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

PROTOCOL = """One process, all devices asked for, 64-bit floats on, compilation apart and without a cache; kernels of
the sweep engine in its default batches, a call of about 0.1 s (one batch a device at least), the least of 2 to 7 calls.
Models: random points within 10 % of a golden point, the same in both types, of the main metric unless all were asked
for; a gradient has the value and its derivatives in all real parameters. Specifications: up to eight blocks spread over
the grid. float32 off by: the largest relative difference from float64, where both are ok and the value above 1e-30; in
a specification the rounding of its parameters is part of it.
Of write speed: bytes of results a second over what the devices write to fresh memory; what else moves, and arithmetic
(loops run until they converge), is not counted."""


@dataclass(frozen=True)
class Row:
    """One kernel. ``what``: "value" or "gradient" (with the value). ``float32_difference``: None for float64 and where
    there is nothing to compare; ``fraction_of_write_speed``: of results alone, a lower bound of the memory traffic."""

    model: str
    shapes: str
    what: str
    dtype: str
    metrics: tuple[str, ...]
    parameters: tuple[str, ...]
    inner_batch: int
    points_per_second: float
    compile_seconds: float
    ok: float
    float32_difference: float | None
    fraction_of_write_speed: float


@dataclass
class Report:
    """``left_out``: what was not measured, and why; ``estimate``: of a specification, as lines of text and as JSON."""

    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    estimate: list[str] = field(default_factory=list)

    def ratios(self) -> dict[str, float]:
        """Times a point over times a point, for the comparison of two reports: gradient over value, float32 over
        float64, and each model over the first."""
        time = {(row.model, row.what, row.dtype): 1 / row.points_per_second for row in self.rows}
        base = next((key for key in time if key[1:] == ("value", "float64")), None)
        found = {}
        for (model, what, dtype), seconds in time.items():
            if what == "gradient" and (model, "value", dtype) in time:
                found[f"{model}: gradient over value, {dtype}"] = seconds / time[model, "value", dtype]
            if dtype == "float32" and (model, what, "float64") in time:
                found[f"{model}: float32 over float64, {what}"] = seconds / time[model, what, "float64"]
            if base is not None and model != base[0] and (what, dtype) == base[1:]:
                found[f"{model} over {base[0]}"] = seconds / time[base]
        return found

    def as_json(self) -> dict[str, Any]:
        """The form of every benchmark of this project: protocol, machine, ratios, figures."""
        rows = [{name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in asdict(row).items()}
                for row in self.rows]
        return {"protocol": PROTOCOL, "command": ["hetjax", "bench"], "machine": self.machine, "ratios": self.ratios(),
                "figures": {"rows": rows, "left_out": self.left_out, "failed": self.failed, "estimate": self.estimate}}

    def __str__(self) -> str:
        m = self.machine
        lines = [f"{m['processor']}, {m['devices']} x {m['device']}, jax {m['jax']}, load average before"
                 f" {m['load_average'][0]}"]
        if self.rows:
            lines += _table(self.rows)
        lines += [f"left out for lack of time: {text}" for text in self.left_out]
        lines += [f"failed: {text}" for text in self.failed]
        return "\n".join([*lines, *self.estimate])


def _table(rows: list[Row]) -> list[str]:
    head = ("model", "shapes", "what", "type", "points/s", "a point", "compiled in", "ok", "float32 off by",
            "of write speed")
    body, before = [], ""
    for row in rows:
        name, shapes = (row.model, row.shapes) if row.model != before else ("", "")
        before = row.model
        off = "" if row.float32_difference is None else f"{row.float32_difference:.1e}"
        body.append((name, shapes, row.what, row.dtype, f"{row.points_per_second:,.0f}",
                     _small_time(1 / row.points_per_second), f"{row.compile_seconds:.1f} s", f"{row.ok:.0%}", off,
                     f"{row.fraction_of_write_speed:.1%}"))
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    return ["  ".join(cell.ljust(w) if i < 4 else cell.rjust(w) for i, (cell, w) in
                      enumerate(zip(line, widths, strict=True))).rstrip() for line in [head, *body]]


def _small_time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
