"""The machine that figures were measured on, so that figures of different machines are not compared unawares."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import hetjax
from hetjax.config import usable_cores
from hetjax.sweep.kernel import vector_width
from hetjax.sweep.provenance import device_kind


def machine() -> dict[str, Any]:
    """Processor, devices, versions and the load average now; starts JAX.

    >>> sorted(machine())[:3]
    ['cpus', 'device', 'devices']
    """
    devices = jax.local_devices()
    return {"processor": _processor(), "cpus": usable_cores(), "platform": devices[0].platform,
            "device": device_kind(devices[0]), "devices": len(devices),
            "vector_width": vector_width(devices[0].platform), "hetjax": hetjax.__version__,
            **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
            "load_average": [round(load, 2) for load in os.getloadavg()]}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
