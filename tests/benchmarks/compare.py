"""Did a ratio change? ``python tests/benchmarks/compare.py BEFORE.json AFTER.json [--tolerance 0.2]``.

Both files are of the same benchmark (or of ``hetjax bench --json``). Only their ``ratios`` are compared, each of two
times of one run: absolute times depend on what else the machine does. A ratio that changed by more than the tolerance,
upwards or downwards, is flagged, and so is one that the second file lacks; then the exit code is 1. One that only the
second file has is named. Other options, another protocol or another machine are named as well: their ratios may differ
for that reason. Exit code 2: no such file, or not of this form.
"""

import argparse
import json
import math
import sys
from typing import Any, NamedTuple

TOLERANCE = 0.2
MACHINE = ("processor", "cpus", "device", "devices", "jax", "jaxlib")  # what ratios depend on


class Findings(NamedTuple):
    """The ratios of each kind by name: (before, after), before, after; and what else differs, a line each."""

    changed: dict[str, tuple[float, float]]
    gone: dict[str, float]
    new: dict[str, float]
    notes: list[str]
    compared: int

    @property
    def exit_code(self) -> int:
        """1 if anything is flagged."""
        return int(bool(self.changed or self.gone))


def compare(before: dict[str, Any], after: dict[str, Any], tolerance: float = TOLERANCE) -> Findings:
    """What differs between two reports."""
    old, new = before["ratios"], after["ratios"]
    both = [name for name in old if name in new]
    changed = {name: (old[name], new[name]) for name in both if not _near(old[name], new[name], tolerance)}
    notes = [f"{key} differs" for key in ("protocol", "command") if before.get(key) != after.get(key)]
    machines = before.get("machine", {}), after.get("machine", {})
    notes += [f"machine: {key} {machines[0].get(key)} -> {machines[1].get(key)}" for key in MACHINE
              if machines[0].get(key) != machines[1].get(key)]
    return Findings(changed, {name: old[name] for name in old if name not in new},
                    {name: new[name] for name in new if name not in old}, notes, len(both))


def _near(old: float, new: float, tolerance: float) -> bool:
    """Whether two ratios differ by at most a factor of 1 + tolerance; what is no positive number is near nothing."""
    return 0 < old < math.inf and 0 < new < math.inf and max(old / new, new / old) <= 1 + tolerance


def text(found: Findings) -> str:
    """The findings for people."""
    lines = [f"note: {note}" for note in found.notes]
    lines += [f"CHANGED {name}: {old:.4g} -> {new:.4g} ({new / old - 1:+.0%})" if old else
              f"CHANGED {name}: {old} -> {new}" for name, (old, new) in found.changed.items()]
    lines += [f"GONE {name}: was {old:.4g}" for name, old in found.gone.items()]
    lines += [f"new {name}: {value:.4g}" for name, value in found.new.items()]
    lines.append(f"{found.compared} ratios compared, {len(found.changed)} changed, {len(found.gone)} gone")
    return "\n".join(lines)


def read(file: str) -> dict[str, Any]:
    """A report; ValueError in one line if the file is none."""
    try:
        with open(file) as lines:
            report = json.load(lines)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} cannot be read as JSON: {error}") from None
    ratios = report.get("ratios") if isinstance(report, dict) else None
    if not isinstance(ratios, dict) or not all(isinstance(v, int | float) for v in ratios.values()):
        raise ValueError(f"{file} has no table of ratios; give what a benchmark's --json wrote")
    return report


def main(arguments: list[str] | None = None) -> int:
    """Compares, prints, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="largest relative change (default: 0.2)")
    options = parser.parse_args(arguments)
    try:
        found = compare(read(options.before), read(options.after), options.tolerance)
    except ValueError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    print(text(found))
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
