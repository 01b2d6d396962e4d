"""Sweeps: a model over a grid of parameters, to a labelled store on disk that survives kills, and back.

Names are loaded when they are first used: reading a store's state needs no array package.
"""

import importlib
from typing import Any

_LAZY = {
    "IncompleteSweepError": "errors", "LockedError": "errors", "SpecError": "errors", "SweepError": "errors",
    "SweepInterrupted": "errors", "Plan": "plan", "Report": "progress", "RunOptions": "run", "RunResult": "run",
    "Sweep": "api", "open_sweep": "reader", "read_spec": "spec", "run_sweep": "run", "store_status": "state",
}
__all__ = [*_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'hetjax.sweep' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hetjax.sweep.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_LAZY)
