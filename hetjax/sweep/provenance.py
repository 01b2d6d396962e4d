"""Where results come from: versions, devices and settings, recorded for every run and compared on resume."""

import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import hetjax
from hetjax.config import x64_enabled
from hetjax.sweep.kernel import vector_width

DRIFT_FIELDS = ("hetjax_version", "git_commit", "jax", "jaxlib", "platform", "device_kind", "x64")


def run_record(run_id: str, devices: Sequence[jax.Device]) -> dict[str, Any]:
    """The record of one run. ``device_kind`` tells CPUs with 512-bit vectors from others: their bits may differ."""
    commit, dirty = _git()
    kind = devices[0].platform
    width = vector_width(kind)
    return {
        "run_id": run_id, "hetjax_version": hetjax.__version__, "git_commit": commit, "git_dirty": dirty,
        "jax": jax.__version__, "jaxlib": version("jaxlib"), "platform": kind,
        "device_kind": devices[0].device_kind + (f" ({width}-bit vectors)" if width else ""),
        "n_devices": len(devices), "x64": x64_enabled(), "python": platform.python_version(),
        "numpy": version("numpy"), "zarr": version("zarr"), "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "host": socket.gethostname(), "started": now()}


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two runs that can change the bits of results: ``jaxlib: 0.12.0 -> 0.12.1``."""
    return [f"{field}: {old.get(field)} -> {new[field]}" for field in DRIFT_FIELDS if old.get(field) != new[field]]


def _git() -> tuple[str | None, bool | None]:
    """The commit of hetjax's source tree and whether it was modified; (None, None) for an installed package."""
    root = Path(hetjax.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None, None
    try:
        def ask(*command: str) -> str:
            return subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, check=True,
                                  timeout=10).stdout.strip()
        return ask("rev-parse", "HEAD"), bool(ask("status", "--porcelain", "--", "hetjax"))
    except (OSError, subprocess.SubprocessError):
        return None, None
