"""The sweep of the cluster tests, and a coordinator of it, in a process of its own, that kills itself."""

import os
import signal

import hetjax
from hetjax.sweep.run import RunOptions, run_sweep


def sweep_of():
    """20 blocks of two signatures."""
    axes = {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 40]}, "y": {"linspace": [-5.0, 5.0, 11]}}
    return hetjax.Sweep("toy_models:TOY", axes, metrics=["total", "root"], grad=["x"], const={"K": 1}, inner_batch=8,
                        block_points=44)


def killed_coordinator(path, executor, blocks):
    """Runs the sweep and kills itself, as ``kill -9`` would, when so many blocks are done."""
    hetjax.enable_x64()

    def look(report):
        if report.blocks_done == blocks:
            os.kill(os.getpid(), signal.SIGKILL)

    run_sweep(sweep_of().problem, path, RunOptions(executor=executor, progress=look))
