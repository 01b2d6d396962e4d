"""One run into ``bucket://`` in a process of its own, which kills itself the second time that it reaches a step."""

import os
import signal

import bucket  # noqa: F401  (registers the protocol)
from toy_models import TOY

import hetjax
from hetjax.sweep.run import RunOptions, run_sweep


def make_sweep():
    """20 blocks of two signatures."""
    return hetjax.Sweep(TOY, {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 10]}, "y": {"linspace": [-5.0, 5.0, 21]},
                              "K": [0, 1, 2, 50]}, metrics=["total", "root"], grad={"of": ["total"], "wrt": ["y"]},
                        inner_batch=32, block_points=84)


def main(url, cache, step):
    """Runs or resumes the sweep."""
    hetjax.enable_x64()
    hetjax.enable_compilation_cache(cache)
    reached = 0

    def on_step(now, block):
        nonlocal reached
        reached += now == step
        if reached == (1 if str(step).startswith("init") else 2):
            os.kill(os.getpid(), signal.SIGKILL)

    run_sweep(make_sweep().problem, url, RunOptions(resume="auto", allow_drift=True, on_step=on_step))
