"""Precision, devices and the compilation cache. Nothing here runs at import."""

import os
from pathlib import Path

import jax


def enable_x64(enable: bool = True) -> None:
    """Switches 64-bit floats on (or off) for this process; call it before any array is made.

    >>> import hetjax
    >>> hetjax.enable_x64()
    """
    jax.config.update("jax_enable_x64", enable)


def x64_enabled() -> bool:
    """True if float64 arrays can be made in this process."""
    return bool(jax.config.jax_enable_x64)


def enable_compilation_cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keeps compiled kernels between processes in ``folder`` (default: the user's cache folder); returns the folder."""
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hetjax" / "xla"
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    return path
