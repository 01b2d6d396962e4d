"""Importing hetjax stays light, and every public name resolves."""

import subprocess
import sys

import hetjax

HEAVY = ("zarr", "xarray", "dask", "distributed", "matplotlib", "tqdm", "optax", "diffrax", "scipy", "pandas")


def loaded_after(code):
    script = f"import sys\n{code}\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_not_even_jax():
    assert not loaded_after("import hetjax") & {*HEAVY, "jax", "numpy"}


def test_models_need_only_jax_and_numpy():
    # jax itself may use scipy where it is installed; nothing else of the heavy list belongs to a model.
    assert not loaded_after("import hetjax; hetjax.stalling; hetjax.overflow; hetjax.ctmc") & (set(HEAVY) - {"scipy"})


def test_every_public_name_resolves():
    for name in hetjax.__all__:
        assert getattr(hetjax, name) is not None
    assert set(hetjax.__all__) <= set(dir(hetjax))
