"""In a process with four CPU devices: the same bits on 1, 2 and 4 of them in blocks of any size; no use after a fork.

Started by test_sweep_devices.py, which sets XLA_FLAGS; prints a line for each thing that held.
"""

import itertools
import os

import jax
from in_blocks import bits
from toy_models import TOY

import hetjax
from hetjax.sweep.errors import SweepError
from hetjax.sweep.kernel import choose_devices

AXES = {"x": {"linspace": [0.5, 10.5, 21]}, "y": {"linspace": [-5.0, 5.0, 23]}, "K": [0, 3, 50]}


def main():
    """Checks everything; an AssertionError ends the process with a code."""
    hetjax.enable_x64()
    assert jax.local_device_count() == 4
    for m, dtype in (([3], "float64"), (list(range(1, 12)), "float32")):
        sweep = hetjax.Sweep(TOY, AXES | {"m": m}, metrics=["total", "root"], grad=["x"], dtype=dtype)
        reference = bits(sweep, 10**9, 16, 1)
        for devices, block_points in itertools.product((1, 2, 4), (70, 10**9)):
            assert bits(sweep, block_points, 16, devices) == reference, (devices, block_points, dtype)
        print(f"the same bits: {sweep.problem.shapes} shapes, {dtype}")
    child = os.fork()
    if child == 0:
        try:
            choose_devices()
        except SweepError as error:
            os._exit(7 if "spawn" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print("refused after a fork")


if __name__ == "__main__":
    main()
