"""What a store holds, and copies of one."""

import shutil

import numpy as np
import zarr


def contents(path):
    """The bytes of every array."""
    group = zarr.open_group(str(path), mode="r")
    return {name: np.asarray(array[...]).tobytes() for name, array in group.arrays()}


def copy_of(path, folder):
    """A copy of a store and of the folder beside it, to be changed."""
    shutil.copytree(path, folder / path.name)
    shutil.copytree(f"{path}.run", folder / f"{path.name}.run")
    return folder / path.name
