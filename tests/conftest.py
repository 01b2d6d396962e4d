import json
import os
from pathlib import Path

os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # tests compile what they run and leave the user's cache alone

import jax
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("hetjax", deadline=None, derandomize=True, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.load_profile("hetjax")

REFERENCE = Path(__file__).parent / "reference"


@pytest.fixture(autouse=True, scope="module")
def few_memory_maps():
    """Forgets compiled programs in time: each maps memory, and a Linux process may hold 65,530 maps."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()


@pytest.fixture(scope="session")
def reference():
    """reference("stalling") -> the parsed table tests/reference/stalling.json; a missing table fails the test."""
    return lambda name: json.loads((REFERENCE / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def steady_source():
    """Going on with a store is refused when the source was committed meanwhile; someone may do that during a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetjax.sweep.provenance.git_state",
                      lambda: {"git_commit": "c0ffee", "git_tree": "beef", "git_dirty": False})
        yield
