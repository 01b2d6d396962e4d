"""How every benchmark times: the contenders take turns in one process, the least time counts, the first call apart.

And what every benchmark writes: its protocol, the machine, its ratios (times over times, by name, which ``compare.py``
compares between two files) and all other figures.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from hetjax.bench.machine import machine

LOAD_AT_START = os.getloadavg()


class Timing(NamedTuple):
    """Least seconds of a call by the wall and by the CPUs, the first call (which compiles), and the last answer."""

    wall: float
    cpu: float
    first: float
    answer: Any


def take_turns(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """One call of each, not counted in the least times, and then ``repeats`` rounds."""
    found: dict[str, Timing] = {}
    for _ in range(repeats + 1):
        for name, call in contenders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            answer = jax.block_until_ready(call())
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if name in found:
                before = found[name]
                found[name] = Timing(min(before.wall, wall), min(before.cpu, cpu), before.first, answer)
            else:
                found[name] = Timing(math.inf, math.inf, wall, answer)
    return found


def over(times: Mapping[str, float], unit: str) -> dict[str, float]:
    """Every other time over that of ``unit``: ``{"numpy over kernel": 4.2}``."""
    return {f"{name} over {unit}": seconds / times[unit] for name, seconds in times.items() if name != unit}


def save(protocol: str | None, ratios: Mapping[str, Any], figures: Any, file: str | None) -> None:
    """Writes the JSON, if a file is named. ``ratios`` may be nested: names are joined by colons."""
    if file is None:
        return
    report = {"protocol": protocol, "command": [Path(sys.argv[0]).name, *_without_file(sys.argv[1:])],
              "machine": machine() | {"load_average_at_start": LOAD_AT_START}, "ratios": dict(_flat(ratios)),
              "figures": figures}
    with open(file, "w") as out:
        json.dump(report, out, indent=1)


def _without_file(arguments: list[str]) -> list[str]:
    """The options, but for where the JSON goes."""
    kept = [a for a in arguments if not a.startswith("--json=")]
    if "--json" in kept:
        at = kept.index("--json")
        del kept[at:at + 2]
    return kept


def _flat(ratios: Mapping[str, Any], before: str = "") -> Any:
    for name, value in ratios.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}: ")
        else:
            yield f"{before}{name}", float(value)
