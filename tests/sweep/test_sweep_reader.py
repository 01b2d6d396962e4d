"""Reading back: labels, laziness, masking, every way of indexing, the same in memory."""

import numpy as np
import pytest
import xarray
from toy_models import TOY

from hetjax import Status, Sweep, open_sweep
from hetjax.sweep.reader import _LazyArray


@pytest.fixture(scope="module")
def sweep():
    return Sweep(TOY, {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 21]}, "y": {"linspace": [-4.5, 4.5, 19]},
                       "K": [0, 3], "scale": [1.0, 2.0]}, zip={"case": ["K", "scale"]}, metrics=["total", "root"],
                 grad={"of": ["total"], "wrt": ["y"]}, title="a test", block_points=150, inner_batch=32)


@pytest.fixture(scope="module")
def path(sweep, tmp_path_factory):
    path = tmp_path_factory.mktemp("reader") / "grid.zarr"
    sweep.run(path)
    return path


def test_labels(path):
    found = open_sweep(path)
    assert dict(found.sizes) == {"m": 2, "x": 21, "y": 19, "case": 2}
    assert found.K.dims == found.scale.dims == ("case",) and found.K.dtype == np.int64
    assert "case" not in found.coords
    assert found.total.attrs["units"] == "s" and found["d_total__d_y"].attrs["units"] == "s"
    assert found.x.attrs["long_name"] == "a positive number"
    assert found.status.attrs["flag_values"].dtype == np.uint8
    assert found.attrs["title"] == "a test" and "ok: " in found.attrs["points_by_flag"]


def test_masking(path):
    raw, masked = open_sweep(path, mask=False), open_sweep(path)
    status = raw.status.values
    assert {1, 3, 5, 6, 8} <= set(np.unique(status))
    ok, slope = status == Status.OK, status == Status.GRAD_NONFINITE
    for name, keep in (("total", ok | slope), ("root", ok | slope), ("d_total__d_y", ok)):
        assert np.array_equal(masked[name], np.where(keep, raw[name], np.nan), equal_nan=True)
    assert np.all(np.isfinite(masked.total.values[slope])) and np.any(np.isfinite(raw.total.values[~(ok | slope)]))
    assert np.array_equal(masked.status, status)


@pytest.mark.parametrize("index", [
    {"x": 3}, {"x": slice(None, None, -1)}, {"x": slice(10, 2, -3), "m": 1}, {"x": [4, 1, 1]},
    {"y": slice(3, 9), "case": [1]},
    {"x": xarray.DataArray([1, 2, 5], dims="p"), "y": xarray.DataArray([0, 3, 8], dims="p")},
    {"m": 0, "x": 0, "y": 0, "case": 0}, {"x": []}])
def test_lazy_indexing_equals_eager_indexing(path, index):
    eager = open_sweep(path).load()
    assert xarray.testing.assert_identical(open_sweep(path).isel(index).load(), eager.isel(index)) is None


def test_selection_by_value_reads_only_what_it_needs(path, monkeypatch):
    read = []
    original = _LazyArray._read
    monkeypatch.setattr(_LazyArray, "_read", lambda self, key: read.append(key) or original(self, key))
    found = open_sweep(path)
    assert repr(found) and not read, "looking at a Dataset reads nothing"
    value = found.total.sel(m=2, x=1.5, y=0.5).values
    assert value.shape == (2,) and len(read) == 1


def test_in_memory_is_the_same_dataset(sweep, path):
    disk = open_sweep(path).load()
    memory = sweep.run_in_memory()
    for attribute in ("created", "points_by_flag"):
        del disk.attrs[attribute]
    xarray.testing.assert_identical(memory, disk)
    raw = open_sweep(path, mask=False).load()
    xarray.testing.assert_identical(sweep.run_in_memory(mask=False).drop_attrs(), raw.drop_attrs())


def test_memory_is_limited(sweep):
    huge = Sweep(TOY, {"x": {"linspace": [1, 2, 100_000]}, "y": {"linspace": [0, 1, 100_000]}}, metrics=["bump"],
                 const={"m": 1, "K": 0})
    with pytest.raises(ValueError, match=r"10000000000 points need 90.0 GB; write them to disk"):
        huge.run_in_memory()


def test_python_axes_keep_their_types():
    sweep = Sweep(TOY, {"x": np.array([1.0, 2.0], np.float32), "K": np.arange(3), "y": (1, 2), "m": range(1, 3)})
    assert [str(sweep.spec.axis(n).values.dtype) for n in "xKym"] == ["float64", "int64", "int64", "int64"]
    assert sweep.spec.metrics == ("total", "root", "bump")
    with pytest.raises(ValueError, match=r"axis 'x' = 3.0 is no list"):
        Sweep(TOY, {"x": 3.0})
    with pytest.raises(ValueError, match=r"'z' is no parameter of model 'toy'"):
        Sweep(TOY, {"x": [1.0], "y": [1.0], "K": [1], "m": [1], "z": [1]})
