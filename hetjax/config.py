"""Precision, devices and the compilation cache. Nothing here runs at import."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CACHE_BYTES = 512 << 20  # of compiled kernels; one takes about 60 kB


def enable_x64(enable: bool = True) -> None:
    """Switches 64-bit floats on (or off) for this process; call it before any array is made.

    >>> import hetjax
    >>> hetjax.enable_x64()
    """
    jax.config.update("jax_enable_x64", enable)


def common_dtype(values: Iterable[Any]) -> Any:
    """float32 if every array of floats is that or narrower, else (and without any) the default real dtype."""
    given = [np.dtype(v.dtype) for v in values if hasattr(v, "dtype")]
    sizes = [dtype.itemsize for dtype in given if jnp.issubdtype(dtype, jnp.floating)]
    return np.dtype(np.float32) if sizes and max(sizes) <= 4 else jnp.result_type(float)


def usable_cores() -> int:
    """Cores that this process may use; macOS does not restrict them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def x64_enabled() -> bool:
    """True if float64 arrays can be made in this process."""
    return bool(jax.config.jax_enable_x64)


def enable_compilation_cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keeps compiled kernels between processes in ``folder`` (default: the user's cache folder); returns the folder.

    A kernel is found again by its program, the versions of JAX and XLA, their flags and the features of the device, so
    its results are the same bits. Beyond CACHE_BYTES those that were not used for longest are removed. Call it before
    anything is compiled. OSError if the folder cannot be made.
    """
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hetjax" / "xla"
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    _forget_oldest(path)
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    seconds = min(0.2, jax.config.jax_persistent_cache_min_compile_time_secs)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)
    return path


def _forget_oldest(folder: Path) -> None:
    """Removes kernels that were not read for longest until the others take at most CACHE_BYTES."""
    found = []
    for file in folder.glob("*-cache"):
        with suppress(FileNotFoundError):  # another process does the same
            found.append((file.stat(), file))
    room = CACHE_BYTES
    for stat, file in sorted(found, key=lambda entry: max(entry[0].st_atime, entry[0].st_mtime), reverse=True):
        room -= stat.st_size
        if room < 0:
            file.unlink(missing_ok=True)
