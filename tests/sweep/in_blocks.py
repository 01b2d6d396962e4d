"""A sweep computed block by block, without a store."""

import numpy as np

from hetjax.sweep.kernel import Kernel, choose_devices
from hetjax.sweep.plan import block_shape_for
from hetjax.sweep.state import all_blocks


def compute(sweep, block_points, inner_batch=64, devices=None):
    """All arrays of a sweep, computed in blocks of the given size; and the kernel."""
    problem = sweep.problem
    shape = block_shape_for(problem, block_points)
    kernel = Kernel(problem, shape, inner_batch, choose_devices(devices))
    arrays = {name: np.zeros(problem.spec.shape, np.uint8 if name == "status" else problem.spec.dtype)
              for name in (*problem.arrays, "status")}
    for block in all_blocks(problem.spec.shape, shape):
        for name, values in kernel.fetch(block, kernel.dispatch(block)).items():
            arrays[name][tuple(slice(i * b, i * b + b) for i, b in zip(block, shape, strict=True))] = values
    return arrays, kernel


def bits(sweep, block_points, inner_batch=64, devices=None):
    """The bytes of each array."""
    return {name: values.tobytes() for name, values in compute(sweep, block_points, inner_batch, devices)[0].items()}
