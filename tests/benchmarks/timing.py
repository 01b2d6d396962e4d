"""How every benchmark times: the contenders take turns in one process, the least time counts, the first call apart."""

import json
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


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


def save(report: Any, file: str | None) -> None:
    """The report as JSON, if a file is named."""
    if file:
        with open(file, "w") as out:
            json.dump(report, out, indent=1)
