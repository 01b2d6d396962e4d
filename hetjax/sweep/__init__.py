"""Sweeps: a model over a grid of parameters, to a labelled store on disk that survives kills, and back.

Names are loaded when they are first used: reading a store's state needs no array package.
"""

import importlib
from typing import Any

_LAZY = {
    "Comparison": "compare", "IncompleteSweepError": "errors", "LockedError": "errors", "Plan": "plan",
    "Report": "progress", "RunOptions": "run", "RunResult": "run", "SpecError": "errors", "Sweep": "api",
    "SweepError": "errors", "SweepInterrupted": "errors", "Verification": "verify", "compare_sweeps": "compare",
    "export_sweep": "export", "extend_sweep": "grow", "flag_words": "reader", "open_sweep": "reader",
    "read_spec": "spec", "refined_problem": "grow", "retry_sweep": "retry", "run_sweep": "run",
    "store_status": "state", "stored_problem": "stored", "verify_store": "verify",
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
