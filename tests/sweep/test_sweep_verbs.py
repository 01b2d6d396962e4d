"""verify, retry, extend and refine: what damage is found, and that exactly what is wrong or new is computed."""

import itertools
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr
from on_disk import contents, copy_of
from toy_models import TOY

from hetjax import Sweep, open_sweep
from hetjax.cli import main
from hetjax.sweep import grow
from hetjax.sweep.errors import IncompleteSweepError, SpecError, SweepError
from hetjax.sweep.grow import extend_sweep, refined_problem
from hetjax.sweep.retry import blocks_with, retry_sweep
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.spec import GridAxis
from hetjax.sweep.state import read_attributes, store_status
from hetjax.sweep.verify import verify_store
from hetjax.sweep.zoom import between, optima

X, Y = np.linspace(0.5, 10.5, 9).tolist(), np.linspace(-5.0, 5.0, 7).tolist()
pytestmark = pytest.mark.usefixtures("steady_source")


def sweep_of(x=X, y=Y, **changes):
    return Sweep("toy_models:TOY", {"x": x, "y": {"values": y, "where": "y < x"}, "K": [0, 3]},
                 **({"metrics": ["total", "root"], "grad": {"of": ["total"], "wrt": ["x"]}, "inner_batch": 16,
                     "block_points": 14, "const": {"m": 2}} | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished store of 9 blocks; tests that change it take a copy."""
    path = tmp_path_factory.mktemp("verbs") / "s.zarr"
    run_sweep(sweep_of().problem, path)
    return path


@pytest.fixture
def store(finished, tmp_path):
    return copy_of(finished, tmp_path)


def chunk_files(path):
    return [p for name in ("total", "root", "d_total__d_x", "status") for p in (path / name / "c").rglob("*")
            if p.is_file()]


def test_an_intact_store(finished):
    for full in (False, True):
        found = verify_store(finished, full=full)
        assert found.exit_code == 0 and found.blocks_done == found.blocks == 9 and not found.damaged
    assert found.counts == store_status(finished).counts and not found.recounted


@pytest.mark.parametrize(("damage", "words"), [
    ("flip", "wrong checksum"), ("zeros", "not a chunk of this array"), ("cut", "bytes long instead of"),
    ("empty", "empty"), ("gone", "missing")])
def test_damage_is_listed_and_computed_again_alone(store, capsys, damage, words):
    before = contents(store)
    chunk = store / "root" / "c" / "5" / "0" / "0"
    data = bytearray(chunk.read_bytes())
    if damage == "gone":
        chunk.unlink()
    else:
        data[len(data) // 2] ^= 4
        chunk.write_bytes({"flip": data, "zeros": bytes(len(data)), "cut": data[:-9], "empty": b""}[damage])
    fast = verify_store(store)
    assert fast.exit_code == (0 if damage == "flip" else 4), "only reading everything finds a flipped bit"
    assert main(["verify", str(store), "--full"]) == 4
    out = capsys.readouterr().out
    assert "1 damaged" in out and f"block 5 0 0: root: {out.split('root: ')[1].splitlines()[0]}" in out
    assert words in out and f"hetjax retry {store}" in out
    found = retry_sweep(store)
    assert found.computed == 1 and found.restored == 8
    assert contents(store) == before and verify_store(store, full=True).exit_code == 0


def test_every_flipped_bit_is_found(store):
    draw = random.Random(5)
    for file in draw.choices(chunk_files(store), k=40):
        data = bytearray(file.read_bytes())
        original = bytes(data)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
        block = tuple(map(int, file.relative_to(store).parts[2:]))
        assert set(verify_store(store, full=True).damaged) == {block}
        file.write_bytes(original)
    assert verify_store(store, full=True).exit_code == 0


def test_damage_outside_the_blocks_and_an_unfinished_store(store):
    (store / "status" / "c" / "0" / "0" / "0").unlink()
    assert verify_store(store).exit_code == 75
    (store / "x" / "c" / "0").write_bytes(b"junk")
    assert verify_store(store).others == ["x: the coordinate is not that of the specification"]
    (store / "root" / "zarr.json").unlink()
    assert "root: cannot be opened" in verify_store(store).others and verify_store(store).exit_code == 4


def test_retry_computes_the_blocks_with_a_flag(store):
    before = contents(store)
    status = np.asarray(zarr.open_group(str(store), mode="r")["status"])
    expected = np.argwhere(status == 3).tolist()
    shape = read_attributes(store)["block_shape"]
    blocks = {tuple(i // b for i, b in zip(point, shape, strict=True)) for point in expected}
    assert set(blocks_with(store, ["unstable"])) == blocks and 0 < len(blocks) < 9
    shutil.rmtree(f"{store}.run")  # without the log the chunks themselves tell
    assert set(blocks_with(store, ["unstable"])) == blocks
    (store.parent / "s.zarr.run").mkdir()
    assert retry_sweep(store, ["unstable"]).computed == len(blocks)
    assert contents(store) == before
    with pytest.raises(SpecError, match="status 'unstabel' cannot be retried; did you mean 'unstable'"):
        retry_sweep(store, ["unstabel"])


def test_retry_in_another_environment_touches_nothing(store, monkeypatch):
    monkeypatch.setattr("hetjax.sweep.provenance.git_state",
                        lambda: {"git_commit": "f00d", "git_tree": "f00d", "git_dirty": False})
    with pytest.raises(SpecError, match=r"another environment \(git_tree: beef -> f00d\)"):
        retry_sweep(store, ["unstable"])
    assert store_status(store).blocks_done == 9
    assert retry_sweep(store, ["unstable"], options=RunOptions(allow_drift=True)).computed > 0


def test_a_changed_model_cannot_be_retried(store):
    with pytest.raises(SpecError, match="model_version: 3 -> 4"):
        retry_sweep(store, model=replace(TOY, version=4))


@pytest.fixture
def computed_points(monkeypatch):
    """The points that a growing sweep computes."""
    points = []

    def spy(problem, path, options):
        result = run_sweep(problem, path, options)
        points.append(problem.spec.points if result.computed else 0)
        return result

    monkeypatch.setattr(grow, "run_sweep", spy)
    return points


def test_extend_copies_old_points_and_computes_new_ones_alone(store, tmp_path, computed_points):
    """Both axes grow at the ends and in the middle; every array equals that of a run from the start, bit for bit."""
    x, y = sorted([*X, 0.25, 4.0, 4.5]), [*Y[:3], -1.0, *Y[3:], 2.5]
    larger = sweep_of(x, y)
    result = extend_sweep(store, larger.problem, tmp_path / "out.zarr")
    assert sum(computed_points) == larger.spec.points - sweep_of().spec.points
    run_sweep(larger.problem, tmp_path / "fresh.zarr")
    assert contents(tmp_path / "out.zarr") == contents(tmp_path / "fresh.zarr")
    assert result.counts == store_status(tmp_path / "fresh.zarr").counts
    assert store_status(tmp_path / "out.zarr").complete
    assert not (tmp_path / "out.zarr.run" / "parts").exists()
    runs = read_attributes(tmp_path / "out.zarr")["runs"]
    assert runs[:1] == read_attributes(store)["runs"] and runs[1]["extended"] == sweep_of().spec_hash


def full_at(step):
    """A hook: the disk is full at the commit with this number."""
    commits = itertools.count(1)

    def stop(name, block):
        if name == "before_metrics" and next(commits) == step:
            raise OSError(28, "No space left on device")

    return stop


def test_a_stopped_extension_goes_on(store, tmp_path, computed_points):
    larger = sweep_of([*X, 11.0, 11.5])
    out = tmp_path / "out.zarr"
    for step in (2, 5):  # at the second new block, in the merge
        with pytest.raises(SweepError, match="disk is full"):
            extend_sweep(store, larger.problem, out, RunOptions(on_step=full_at(step)))
    assert extend_sweep(store, larger.problem, out).computed == 0, "the new points are there already"
    run_sweep(larger.problem, tmp_path / "fresh.zarr")
    assert contents(out) == contents(tmp_path / "fresh.zarr")
    with pytest.raises(SpecError, match=r"out.zarr exists; give the path of a new store"):
        extend_sweep(store, larger.problem, out)


@pytest.mark.parametrize(("changes", "part"), [
    ({"metrics": ["total"]}, "metrics: "), ({"const": {"m": 2, "scale": 2.0}}, "const.scale: 1.0 -> 2.0"),
    ({"y": Y[:-1]}, r"its value y = 5\.0 is not in the new sweep"), ({"x": X}, "no point that"),
    ({"dtype": "float32"}, "dtype: 'float64' -> 'float32'")])
def test_what_extend_refuses(finished, tmp_path, changes, part):
    with pytest.raises(SpecError, match=part) as caught:
        extend_sweep(finished, sweep_of(**({"x": [*X, 11.0]} | changes)).problem, tmp_path / "out.zarr")
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


def test_an_unfinished_store_is_not_extended(store, tmp_path):
    (store / "status" / "c" / "0" / "0" / "0").unlink()
    with pytest.raises(SweepError, match="not complete and intact"):
        extend_sweep(store, sweep_of([*X, 11.0]).problem, tmp_path / "out.zarr")
    with pytest.raises(IncompleteSweepError):
        open_sweep(store)


def test_designs_and_traced_shapes_grow(tmp_path, computed_points):
    """A Sobol sequence goes on; a grid of traced shapes gets a larger bound (same values to a few roundings)."""
    def scattered(n):
        return Sweep(TOY, {"K": [0, 1]}, metrics=["total"], const={"m": 2}, inner_batch=16, block_points=40,
                     design={"kind": "sobol", "n": n, "bounds": {"x": [1.0, 8.0], "y": [0.0, 4.0]}})
    def traced(last):
        return Sweep(TOY, {"m": {"range": [1, last]}, "x": [0.5, 2.0]}, metrics=["total"], const={"y": 0.5, "K": 1},
                     inner_batch=16, block_points=8)
    for name, small, large, rtol in (("d", scattered(32), scattered(64), 0), ("t", traced(10), traced(14), 4e-16)):
        small.run(tmp_path / f"{name}.zarr")
        computed_points.clear()
        extend_sweep(tmp_path / f"{name}.zarr", large.problem, tmp_path / f"{name}2.zarr")
        assert sum(computed_points) == large.spec.points - small.spec.points
        found, fresh = open_sweep(tmp_path / f"{name}2.zarr"), large.run_in_memory()
        np.testing.assert_allclose(found.total, fresh.total, rtol=rtol)
        assert np.array_equal(found.x, fresh.x)


def test_refine_inserts_midpoints(store, tmp_path, computed_points):
    whole = refined_problem(store, ["x", "K"]).spec.axis("K")
    assert whole.values.tolist() == [0, 1, 3] and whole.integer
    problem = refined_problem(store, ["x"])
    assert problem.spec.axis("x").values.tolist() == np.linspace(0.5, 10.5, 17).tolist()
    extend_sweep(store, problem, tmp_path / "fine.zarr")
    assert sum(computed_points) == problem.spec.points - sweep_of().spec.points
    old, new = open_sweep(store), open_sweep(tmp_path / "fine.zarr")
    assert new.sel(x=X).total.equals(old.total) and new.title == old.title
    with pytest.raises(SpecError, match=r"axis 'z' of .* cannot be refined"):
        refined_problem(store, ["z"])
    with pytest.raises(SpecError, match="axis 'm' has nothing between its values"):
        grow._refined(GridAxis("m", np.array([3, 4, 5])), 2, None)


def test_values_between():
    assert between(np.array([3.0, 1.0, 2.0, np.inf])).tolist() == [1.5, 2.5]
    assert between(np.array([5])).size == 0 and between(np.array([0.0, 5e-324])).size == 0
    np.testing.assert_allclose(between(np.geomspace(1e-300, 1e300, 5)), [1e-225, 1e-75, 1e75, 1e225], rtol=1e-12)
    np.testing.assert_allclose(between(np.geomspace(1, 8, 4), 3, [8.0]), 4 * 2 ** np.array([1 / 3, 2 / 3]), rtol=1e-14)
    assert between(np.array([0, 10, 12]), 4).tolist() == [2, 5, 7, 11]
    for zoom in (1, 0, 2.0, True, 10**6):
        with pytest.raises(SpecError, match="zoom = "):
            between(np.array([0.0, 1.0]), zoom)


def test_refine_beside_the_optima(store):
    """Against the least values of the whole array, flagged points left out."""
    found = open_sweep(store)
    for over, others in ((["x"], ["y", "K"]), (["x", "K"], ["y"]), (["K"], ["x", "y"])):
        table = found.total.transpose(*others, *over)
        rows = table.values.reshape(-1, *(found.sizes[name] for name in over))
        rows = [row for row in rows if np.isfinite(row).any()]
        best = [np.unravel_index(np.nanargmin(row), row.shape) for row in rows]
        places = optima(store, "total", over)
        for axis, index in zip(over, zip(*best, strict=True), strict=True):
            assert places[axis].tolist() == sorted(set(index))
    refined = refined_problem(store, ["x"], minimize="total", zoom=3).spec.axis("x").values
    near = found.x.values[optima(store, "total", ["x"])["x"]]
    assert set(refined) == {*X, *between(np.array(X), 3, near)} and len(X) < refined.size < 3 * len(X) - 2
    with pytest.raises(SpecError, match=r"minimize = 'totl' is no metric .* did you mean 'total'"):
        refined_problem(store, ["x"], minimize="totl")
