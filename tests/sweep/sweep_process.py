"""One run of the kill tests' sweep in a process of its own: ``main(STORE, TRACE, CACHE[, STEP, COUNT])``.

Appends each block whose commit begins to the file TRACE. With STEP it kills itself, as ``kill -9`` would, the COUNT-th
time that step of the protocol is reached. Compiled kernels are kept in the folder CACHE.
"""

import os
import signal

from toy_models import TOY

import hetjax
from hetjax.sweep.run import RunOptions, run_sweep


def make_sweep():
    """60 blocks of two signatures with a metric, a derivative and every flag."""
    return hetjax.Sweep(TOY, {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 30]}, "y": {"linspace": [-5.0, 5.0, 21]},
                              "K": [0, 1, 2, 50]}, metrics=["total", "root"], grad={"of": ["total"], "wrt": ["y"]},
                        inner_batch=32, block_points=84)


def main(path, trace, cache, step=None, count=1):
    """Runs or resumes the sweep."""
    hetjax.enable_x64()
    hetjax.enable_compilation_cache(cache)
    left = count

    def on_step(reached, block):
        nonlocal left
        if reached == "before_metrics":
            with open(trace, "a") as file:
                file.write(" ".join(map(str, block)) + "\n")
        if reached == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    run_sweep(make_sweep().problem, path, RunOptions(resume="auto", allow_drift=True, on_step=on_step))
