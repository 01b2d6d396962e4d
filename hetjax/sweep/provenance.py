"""Where results come from: versions, devices and settings, recorded for every run and compared on resume."""

import os
import platform
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import hetjax
from hetjax.config import x64_enabled
from hetjax.sweep.kernel import vector_width

DRIFT_FIELDS = ("hetjax_version", "git_tree", "jax", "jaxlib", "platform", "device_kind", "x64")


def run_record(run_id: str, devices: Sequence[jax.Device]) -> dict[str, Any]:
    """The record of one run."""
    return {
        "run_id": run_id, "hetjax_version": hetjax.__version__, **git_state(),
        "jax": jax.__version__, "jaxlib": version("jaxlib"), "platform": devices[0].platform,
        "device_kind": device_kind(devices[0]),
        "n_devices": len(devices), "x64": x64_enabled(), "python": platform.python_version(),
        "numpy": version("numpy"), "zarr": version("zarr"), "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "host": socket.gethostname(), "started": now()}


def new_run_id() -> str:
    """The time in UTC and 8 random hexadecimal digits, unique also among runs that start in the same second."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def device_kind(device: jax.Device) -> str:
    """The kind of a device; tells CPUs with 512-bit vectors from others, because their last bits may differ."""
    width = vector_width(device.platform)
    return str(device.device_kind) + (f" ({width}-bit vectors)" if width else "")


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two runs that can change the bits of results: ``jaxlib: 0.12.0 -> 0.12.1``."""
    return [f"{field}: {old.get(field)} -> {new[field]}" for field in DRIFT_FIELDS if old.get(field) != new[field]]


def git_state() -> dict[str, Any]:
    """The commit of hetjax's source, the hash of its package folder in that commit (other files are no drift), and
    whether the folder was modified since; None for each in an installed package."""
    root = Path(hetjax.__file__).resolve().parent.parent
    nothing = {"git_commit": None, "git_tree": None, "git_dirty": None}
    if not (root / ".git").exists():
        return nothing

    def ask(*command: str) -> str:
        return subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, check=True,
                              timeout=10).stdout.strip()

    try:
        return {"git_commit": ask("rev-parse", "HEAD"), "git_tree": ask("rev-parse", "HEAD:hetjax"),
                "git_dirty": bool(ask("status", "--porcelain", "--", "hetjax"))}
    except (OSError, subprocess.SubprocessError):
        return nothing
