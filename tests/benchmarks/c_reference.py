"""Compiles the C contenders of reference_c with the machine's compiler, at run time, into a folder of its own."""

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SOURCES = Path(__file__).parent / "reference_c"
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fschedule-insns", "-shared", "-fPIC",
         "-pthread"]  # no -ffast-math: it would undo compensated products
ARRAY = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
_folder: list[str] = []


def compiler() -> str | None:
    """The C compiler, or None."""
    return shutil.which(os.environ.get("CC", "cc"))


def load(source: str, function: str, argument_types: list[Any], **macros: int) -> Any:
    """``function`` of ``source``, compiled with ``macros``; SystemExit where there is no compiler."""
    found = compiler()
    if found is None:
        raise SystemExit("no C compiler: nothing to compare with")
    if not _folder:
        _folder.append(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, _folder[0], True)
    name = "_".join([source, *(f"{k}{v}" for k, v in macros.items())])
    library = f"{_folder[0]}/{name}.so"
    wide = ["-mprefer-vector-width=512"] if os.uname().machine == "x86_64" else []
    subprocess.run([found, *FLAGS, *wide, *(f"-D{k}={v}" for k, v in macros.items()), str(SOURCES / source), "-o",
                    library, "-lm"], check=True)
    entry = getattr(ctypes.CDLL(library), function)
    entry.argtypes = argument_types
    return entry
