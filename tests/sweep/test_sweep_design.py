"""Design tables: what is drawn, what is read from files, that they sweep, resume and are refused like grids."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy.stats import qmc
from toy_models import TOY

from hetjax import Sweep, evaluate, open_sweep
from hetjax.sweep.design import duplicates
from hetjax.sweep.errors import SpecError
from hetjax.sweep.problem import bind
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.spec import parse_spec
from hetjax.sweep.stored import stored_problem, with_stored_points

SOBOL = {"kind": "sobol", "n": 64, "seed": 3, "bounds": {"x": [0.5, 8.5], "y": [-4.0, 4.0], "m": [1, 4]},
         "where": "x > y"}


def sweep_of(design=SOBOL, **changes):
    return Sweep(TOY, design=design, **({"metrics": ["total", "root"], "grad": {"of": ["total"], "wrt": ["x", "y"]},
                                         "const": {"K": 2}, "inner_batch": 16, "block_points": 20} | changes))


def test_points_are_those_of_the_generators():
    for kind, engine in (("sobol", qmc.Sobol), ("halton", qmc.Halton), ("lhs", qmc.LatinHypercube)):
        spec = sweep_of(SOBOL | {"kind": kind}).spec
        unit = engine(3, rng=3).random(64)
        assert np.array_equal(spec.axis("x").values, 0.5 + 8 * unit[:, 0])
        assert np.array_equal(spec.axis("m").values, 1 + np.floor(4 * unit[:, 2]))
        assert spec.axis("m").values.dtype == np.int64 and spec.shape == (64,) and spec.dims[0].name == "point"
    # Latin: every sixteenth of the range is hit by exactly four of the 64 points
    assert set(np.histogram(spec.axis("y").values, 16, (-4, 4))[0]) == {4}
    assert np.bincount(sweep_of().spec.axis("m").values).tolist() == [0, 16, 16, 16, 16]
    longer = sweep_of(SOBOL | {"n": 128}).spec
    assert np.array_equal(longer.axis("y").values[:64], sweep_of().spec.axis("y").values), "a sequence goes on"


def test_a_design_sweeps_like_a_grid(tmp_path):
    """Values, derivatives, where, derived shape parameters and a crossed axis, against single evaluations."""
    bounds = {"x": [0.5, 8.5], "y": [-4.0, 4.0], "half": [1, 2]}
    sweep = sweep_of(SOBOL | {"bounds": bounds}, axes={"K": [0, 2]}, const={}, derived={"m": "2 * half"})
    found = sweep.run(tmp_path / "s.zarr")
    assert dict(found.sizes) == {"point": 64, "K": 2} and found.x.dims == ("point",)
    x, y, m = found.x.values[:, None], found.y.values[:, None], 2 * found.half.values[:, None]
    expected = evaluate(TOY, x=x, y=y, m=m, K=found.K.values[None, :])
    wanted = np.broadcast_to(x > y, (64, 2))
    assert np.array_equal(found.status.values == 2, ~wanted)
    for name in ("total", "root"):
        assert np.allclose(found[name], np.where(wanted, expected[name], np.nan), rtol=1e-14, equal_nan=True)
    slope = sum(np.where(np.arange(4) < m[:, :, None], x[:, :, None] ** np.arange(4), 0).T)  # sum x^(i-1)
    ok = found.status.values == 1
    # besides the sum there is 1e-9 / |x - 9|, whose slope is at most 4e-9
    assert np.allclose(found["d_total__d_x"].values[ok], np.broadcast_to(slope.T, (64, 2))[ok], rtol=1e-8, atol=5e-9)


def test_the_stored_table_is_used_whatever_the_generator_draws_later(tmp_path, monkeypatch):
    path = tmp_path / "s.zarr"
    first = sweep_of().run(path).load()
    (path / "status" / "c" / "1").unlink()
    monkeypatch.setattr("hetjax.sweep.design._unit_points", lambda kind, n, d, seed: np.full((n, d), 0.25))
    drifted = sweep_of()
    assert not np.array_equal(drifted.spec.axis("x").values, first.x.values)
    again = drifted.run(path, resume="must", allow_drift=True)
    assert again.load().equals(first)
    assert stored_problem(path, TOY).spec_hash == first.attrs["spec_hash"]
    other = sweep_of(SOBOL | {"seed": 4})
    assert with_stored_points(other.problem, path) is other.problem
    with pytest.raises(SpecError, match=r"design\.seed: 3 -> 4"):
        other.run(path, resume="must")


def test_large_tables_are_hashed_not_listed(tmp_path):
    sweep = sweep_of(SOBOL | {"n": 8192}, metrics=["bump"], grad=None, block_points=1 << 14)
    path = tmp_path / "s.zarr"
    run_sweep(sweep.problem, path)
    assert (path / "zarr.json").stat().st_size < 5000
    assert stored_problem(path, TOY).spec_hash == sweep.spec_hash
    assert np.array_equal(open_sweep(path).x, sweep.spec.axis("x").values)
    assert run_sweep(stored_problem(path, TOY), path, RunOptions(resume="must", allow_drift=True)).computed == 0


def test_tables_from_text_and_files(tmp_path):
    values = {"x": [0.5, 1.25, 1e-3], "K": [3, 1, 3], "y": [0, -1, 2.5]}
    (tmp_path / "p.csv").write_text("x, K,y\n0.5,3,0\n1.25,1,-1\n\n1e-3,3,2.5\n")
    pyarrow.parquet.write_table(pyarrow.table(values | {"y": [0.0, -1.0, 2.5]}), tmp_path / "p.parquet")
    head = '[sweep]\nmodel = "toy_models:TOY"\n[const]\nm = 1\n[design]\nkind = "table"\n'
    inline = parse_spec(head + "values = { x = [0.5, 1.25, 1e-3], K = [3, 1, 3], y = [0, -1, 2.5] }")
    texts = [head + 'file = "p.csv"', head + 'file = "p.parquet"\ncolumns = ["x", "K", "y"]']
    specs = [inline, *(parse_spec(text, str(tmp_path / "spec.toml")) for text in texts)]
    assert len({bind(spec).spec_hash for spec in specs}) == 1
    for name, column in values.items():
        assert specs[1].axis(name).values.tolist() == column
    assert specs[1].axis("K").values.dtype == np.int64
    assert duplicates({"x": np.array([1.0, 2.0, 1.0]), "K": np.array([1, 1, 1])}) == 1
    (tmp_path / "p.csv").write_text("x,K,y\n0.5,3,0\n1.25,1,-1\n1e-3,3,2.75\n")
    assert bind(parse_spec(texts[0], str(tmp_path / "s.toml"))).spec_hash != bind(inline).spec_hash


@pytest.mark.parametrize(("change", "part"), [
    ({"kind": "sobl"}, "kind = 'sobl' is unknown; choose from sobol, lhs"), ({"n": 60}, "no power of 2.*32 or 64"),
    ({"n": 0}, "n = 0 must be"), ({"n": 1 << 40}, "more than 10000000"), ({"seed": -1}, "seed = -1"),
    ({"bounds": {"x": [2, 1]}}, "bounds x"), ({"bounds": {"x": [0, float("inf")]}}, "finite"), ({"bounds": 3}, "= 3"),
    ({"bounds": {}}, "1 to 100"),
    ({"bounds": {"x": [1, 2]}}, r"\[design\] where = 'x > y' uses 'y'"),
    ({"file": "x"}, "'file' is no key"), ({"where": "x"}, "give a condition"),
    ({"bounds": SOBOL["bounds"] | {"z": [1, 2]}}, r"\[design\] 'z' is no parameter"),
    ({"bounds": {"point": [1, 2]}}, "'point' is given twice"), ({"bounds": {"K": [1, 2]}}, "'K' is given twice"),
    ({"bounds": {"x": [0.5, 1], "y": [0, 1], "m": [0, 3]}}, "m = 0 gives array shapes"),
    ({"kind": "table"}, "no key of"), ({"unbalanced": 1}, "neither true nor false")])
def test_refusals(change, part):
    with pytest.raises(SpecError, match=part) as caught:
        sweep_of(SOBOL | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("table", "part"), [
    ("", "needs either"), ("values = { x = [] }", "no list"), ("values = { x = [1], y = [1, 2] }", "y has 2"),
    ("values = 3", "no table"), ('file = "none.csv"', "none.csv' cannot be read"), ('file = "p.txt"', "unknown kind"),
    ('file = "bad.csv"', "line 3, x = 'a' is no number"), ('file = "short.csv"', "line 2: 1 values for 2"),
    ('file = "empty.csv"', "first line"), ('file = "bad.parquet"', "bad.parquet' cannot be read"),
    ('file = "nan.csv"', "nan is no parameter value"), ('file = "short.csv"\ncolumns = ["z"]', "'z' is no column")])
def test_refused_tables(tmp_path, table, part):
    for name, text in (("bad.csv", "x,y\n1,2\na,3\n"), ("short.csv", "x,y\n1\n"), ("empty.csv", ""),
                       ("bad.parquet", "junk"), ("nan.csv", "x,y\n1,nan\n")):
        (tmp_path / name).write_text(text)
    if "short" in table and "columns" in table:
        (tmp_path / "short.csv").write_text("x,y\n1,2\n")
    text = f'[sweep]\nmodel = "toy_models:TOY"\n[const]\nm = 1\nK = 0\n[design]\nkind = "table"\n{table}\n'
    with pytest.raises(SpecError, match=part) as caught:
        parse_spec(text, str(tmp_path / "spec.toml"))
    assert "\n" not in str(caught.value)
