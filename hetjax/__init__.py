"""hetjax: queues with heterogeneous servers as pure JAX functions, swept to disk, with gradients.

Names are loaded when they are first used, so that importing hetjax costs next to nothing.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("hetjax")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_LAZY = {  # public name -> module[:attribute]
    "Axis": "hetjax.models.registry:Axis",
    "Metric": "hetjax.models.registry:Metric",
    "Model": "hetjax.models.registry:Model",
    "OptimumStatus": "hetjax.result:OptimumStatus",
    "Solution": "hetjax.result:Solution",
    "Status": "hetjax.result:Status",
    "Sweep": "hetjax.sweep:Sweep",
    "config": "hetjax.config",
    "control": "hetjax.control",
    "ctmc": "hetjax.ctmc",
    "elasticities": "hetjax.models.elasticity:elasticities",
    "enable_compilation_cache": "hetjax.config:enable_compilation_cache",
    "enable_x64": "hetjax.config:enable_x64",
    "evaluate": "hetjax.models.registry:evaluate",
    "fit": "hetjax.fit",
    "get_model": "hetjax.models.registry:get_model",
    "model_names": "hetjax.models.registry:model_names",
    "models": "hetjax.models",
    "numerics": "hetjax.numerics",
    "objective": "hetjax.sweep.objective:objective",
    "open_sweep": "hetjax.sweep:open_sweep",
    "optimize": "hetjax.optimize",
    "overflow": "hetjax.models.overflow",
    "parallel_queues": "hetjax.models.parallel_queues",
    "plot": "hetjax.plot",
    "processes": "hetjax.processes",
    "raise_if_failed": "hetjax.result:raise_if_failed",
    "register": "hetjax.models.registry:register",
    "result": "hetjax.result",
    "stalling": "hetjax.models.stalling",
    "supermarket": "hetjax.models.supermarket",
    "sweep": "hetjax.sweep",
    "threshold_queue": "hetjax.models.threshold_queue",
}
__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    target = _LAZY.get(name)
    if target is None:
        raise AttributeError(f"module 'hetjax' has no attribute {name!r}")
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
