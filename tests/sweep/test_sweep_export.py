"""Exported files read back by other programs, types and bits kept; stores compared against numpy on whole arrays."""

import csv

import numpy as np
import pandas
import pytest
import xarray
from toy_models import TOY

from hetjax import Sweep, open_sweep
from hetjax.sweep import export
from hetjax.sweep.compare import compare_sweeps, text
from hetjax.sweep.errors import IncompleteSweepError, SpecError, SweepError
from hetjax.sweep.export import export_sweep
from hetjax.sweep.reader import _LazyArray, flag_words
from hetjax.sweep.state import FLAGS

AXES = {"m": [1, 2], "x": {"linspace": [0.5, 10.5, 9]}, "y": {"linspace": [-5.0, 5.0, 9], "where": "y < x"},
        "K": [0, 3], "scale": [1.0, 2.0]}


def sweep_of(axes=AXES, **changes):
    return Sweep(TOY, axes, **({"metrics": ["total", "root"], "grad": {"of": ["total"], "wrt": ["y"]},
                                "zip": {"case": ["K", "scale"]}, "inner_batch": 16, "block_points": 40} | changes))


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same sweep in float64 and in float32."""
    folder = tmp_path_factory.mktemp("export")
    for dtype in ("float64", "float32"):
        sweep_of(dtype=dtype).run(folder / f"{dtype}.zarr")
    return folder


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_type_survives_netcdf(stores, tmp_path, dtype):
    data = open_sweep(stores / f"{dtype}.zarr")
    export_sweep(data, tmp_path / "s.nc")
    with xarray.open_dataset(tmp_path / "s.nc", engine="h5netcdf") as found:
        assert {n: v.dtype for n, v in found.variables.items()} == {n: v.dtype for n, v in data.variables.items()}
        xarray.testing.assert_equal(found.load(), data.load())
        assert found.total.attrs["units"] == "s" and found.attrs["spec_hash"] == data.attrs["spec_hash"]
        assert found.status.attrs["flag_meanings"].split() == list(FLAGS)
        assert found.status.attrs["flag_values"].dtype == np.uint8
    assert data.total.dtype == dtype and data.K.dtype == np.int64 and data.status.dtype == np.uint8


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_type_survives_parquet_and_csv(stores, tmp_path, dtype):
    data = open_sweep(stores / f"{dtype}.zarr").load()
    export_sweep(data, tmp_path / "s.parquet")
    export_sweep(data, tmp_path / "s.csv")
    expected = data.to_dataframe().reset_index()
    expected = expected[expected.status != FLAGS.index("masked")]
    found = pandas.read_parquet(tmp_path / "s.parquet")
    assert list(found) == ["m", "x", "y", "K", "scale", "total", "root", "d_total__d_y", "status"]
    for name in found:
        assert found[name].dtype == data[name].dtype
        assert found[name].to_numpy().tobytes() == expected[name].to_numpy().tobytes(), name
    with open(tmp_path / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(expected) < data.status.size
    for name in ("K", "x", "total", "d_total__d_y"):
        back = np.array([row[name] for row in rows]).astype(data[name].dtype)
        assert back.tobytes() == expected[name].to_numpy().tobytes()
    assert [row["status"] for row in rows] == [FLAGS[code] for code in expected.status]


def test_a_selection_and_a_design(stores, tmp_path):
    data = open_sweep(stores / "float64.zarr").isel(m=1, x=slice(2, 8, 3), y=[8, 0])
    export_sweep(data, tmp_path / "part.parquet")
    found = pandas.read_parquet(tmp_path / "part.parquet")
    kept = data.status.values != FLAGS.index("masked")
    assert np.array_equal(found.total, data.total.values[kept], equal_nan=True) and set(found.m) == {2}
    export_sweep(data, tmp_path / "part.nc")
    with xarray.open_dataset(tmp_path / "part.nc") as found:
        xarray.testing.assert_equal(found.load(), data.load())
    one = open_sweep(stores / "float64.zarr").isel(m=0, x=3, y=4, case=1)
    export_sweep(one, tmp_path / "one.csv")
    assert len((tmp_path / "one.csv").read_text().splitlines()) == 2
    design = Sweep(TOY, design={"kind": "halton", "n": 30, "bounds": {"x": [1.0, 8.0], "m": [1, 3]}}, metrics=["bump"],
                   const={"y": 1.0, "K": 0}, inner_batch=16).run_in_memory()
    found = pandas.read_parquet(export_sweep(design, tmp_path / "d.parquet"))
    assert list(found) == ["x", "m", "bump", "status"] and np.array_equal(found.bump, design.bump)


@pytest.mark.parametrize("kind", ["nc", "parquet", "csv"])
def test_memory_is_flat_and_no_half_file_is_left(stores, tmp_path, monkeypatch, kind):
    data = open_sweep(stores / "float64.zarr")
    monkeypatch.setattr(export, "BOX", 64)
    sizes, original = [], _LazyArray._read

    def read(self, key):
        if failing and len(sizes) > 20:
            raise SweepError("a chunk is damaged")
        sizes.append(original(self, key).size)
        return original(self, key)

    monkeypatch.setattr(_LazyArray, "_read", read)
    failing = True
    with pytest.raises(SweepError, match="damaged"):
        export_sweep(data, tmp_path / f"s.{kind}")
    assert not list(tmp_path.iterdir())
    failing = False
    export_sweep(data, tmp_path / f"s.{kind}")
    assert max(sizes) <= 64 and [p.name for p in tmp_path.iterdir()] == [f"s.{kind}"]
    with pytest.raises(SpecError, match="exists; choose another name"):
        export_sweep(data, tmp_path / f"s.{kind}")


def test_what_export_refuses(stores, tmp_path, monkeypatch):
    data = open_sweep(stores / "float64.zarr")
    with pytest.raises(SpecError, match="format 'xls' is unknown; choose from nc, parquet, csv"):
        export_sweep(data, tmp_path / "s.xls")
    monkeypatch.setattr(export, "CSV_ROWS", 100)
    with pytest.raises(SpecError, match="many for a CSV file"):
        export_sweep(data, tmp_path / "s.csv")
    with pytest.raises(SweepError, match="cannot write"):
        export_sweep(data, "/proc/nowhere/s.csv", force=True)


def test_flags_as_words(stores):
    status = open_sweep(stores / "float64.zarr").status
    words = flag_words(status)
    assert words.dims == status.dims and words.shape == status.shape
    assert set(np.unique(words)) == {FLAGS[code] for code in np.unique(status)}
    assert (words.values == "masked").sum() == int((status == 2).sum())


def test_equal_stores(stores, tmp_path):
    sweep_of(block_points=1000).run(tmp_path / "s.zarr")
    found = compare_sweeps(tmp_path / "s.zarr", stores / "float64.zarr")
    assert found.equal and found.exit_code == 0 and found.points == 2 * 9 * 9 * 2 and not found.spec


def test_differences_are_those_of_the_arrays(stores):
    """float32 against float64, in small blocks, against numpy on the whole arrays."""
    a, b = (open_sweep(stores / f"{dtype}.zarr").load() for dtype in ("float64", "float32"))
    found = compare_sweeps(stores / "float64.zarr", stores / "float32.zarr")
    assert found.spec == ["dtype: 'float64' -> 'float32'"] and found.exit_code == 5
    assert found.flags == int((a.status != b.status).sum())
    for metric in found.metrics:
        x, y = a[metric.name].values, b[metric.name].values.astype(np.float64)
        with np.errstate(invalid="ignore"):
            gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, np.abs(x - y))
        gap[np.isnan(gap)] = np.inf
        assert metric.points == int((gap > 0).sum()) > 0 and metric.max_absolute == gap.max()
        size = np.fmax(np.abs(x), np.abs(y))
        assert metric.max_relative == (gap[gap > 0] / size[gap > 0]).max()
        worst = np.unravel_index(gap.argmax(), gap.shape)
        assert metric.at_absolute["x"] == a.x.values[worst[1]] and metric.at_absolute["K"] == a.K.values[worst[3]]
    loose = compare_sweeps(stores / "float64.zarr", stores / "float32.zarr", relative=1e-2, absolute=1e-2)
    assert sum(m.points for m in loose.metrics) < sum(m.points for m in found.metrics)


def test_other_points_arrays_and_unfinished_stores(stores, tmp_path):
    axes = AXES | {"x": {"linspace": [0.5, 5.5, 5]}, "m": [2, 3]}
    sweep_of(axes, metrics=["total"], grad=None).run(tmp_path / "s.zarr")
    found = compare_sweeps(stores / "float64.zarr", tmp_path / "s.zarr")
    assert found.points == 5 * 9 * 2 and found.only == (324 - 90, 180 - 90)
    assert found.missing == ["d_total__d_y", "root"] and not found.metrics[0].points
    assert found.flags == 6 and found.first_flag.startswith("grad_nonfinite -> ok at m = 2, x = ")
    next(p for p in (tmp_path / "s.zarr" / "status" / "c").rglob("*") if p.is_file()).unlink()
    with pytest.raises(IncompleteSweepError):
        compare_sweeps(tmp_path / "s.zarr", tmp_path / "s.zarr")
    assert compare_sweeps(tmp_path / "s.zarr", tmp_path / "s.zarr", allow_incomplete=True).pending > 0
    with pytest.raises(SpecError, match="different dimensions"):
        sweep_of({k: v for k, v in axes.items() if k != "scale"}, zip=None, metrics=["total"], grad=None).run(
            tmp_path / "t.zarr")
        compare_sweeps(tmp_path / "t.zarr", stores / "float64.zarr")
    with pytest.raises(SpecError, match="relative = -1 is no tolerance"):
        compare_sweeps(tmp_path / "t.zarr", stores / "float64.zarr", relative=-1)
    assert text({"q": 0.5, "K": 3}) == "q = 0.5, K = 3" and text(None) == ""
