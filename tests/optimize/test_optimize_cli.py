"""``hetjax optimize``: a point on the screen, a grid to a store that resumes, and what it refuses."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import zarr

import hetjax
from hetjax.cli import main

HERE = Path(__file__).parent
POINT = """
[sweep]
model = "small_models:QUEUE"
[const]
arrival_rate = 2.0
speed = 1.25
price = 0.125
M = 6
[optimize]
objective = "mean_number + price * team"
over = { team = [1, 12] }
derived = { service_rate = "speed / sqrt(team)" }
constraints = { loss = "p_loss <= 0.25" }
baselines = { alone = { team = 1 }, crowd = { team = 12 } }
"""
GRID = """
[sweep]
model = "small_models:QUEUE"
metrics = ["best_team", "objective", "gain_two", "optimum_status", "p_loss"]
grad = { of = ["objective"], wrt = ["price"] }
inner_batch = 8
block_points = 20
[axes]
arrival_rate = { linspace = [0.5, 4.0, 10] }
price = { geom = [0.1, 2.0, 6] }
[const]
M = 6
[optimize]
objective = "mean_number + price * team"
over = { team = [1, 14] }
derived = { service_rate = "1.25 / sqrt(team)" }
baselines = { two = { team = 2 } }
[plot]
x = "arrival_rate"
y = "best_team"
hue = "price"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, steady_source):
    monkeypatch.syspath_prepend(str(HERE))
    return tmp_path


def written(folder, text):
    (folder / "spec.toml").write_text(text)
    return str(folder / "spec.toml")


def cost(team, arrival=2.0, price=0.125):
    rho = arrival / (1.25 * math.sqrt(team))
    law = np.array([rho ** k for k in range(8)]) / sum(rho ** k for k in range(8))
    return law @ np.arange(8) + price * team, law[-1]


def test_one_point_as_a_table_and_as_json(folder, capsys):
    spec = written(folder, POINT)
    assert main(["optimize", spec]) == 0
    shown = capsys.readouterr().out
    best = min(range(1, 13), key=lambda team: cost(team)[0])
    lines = {line.split()[0].strip(":"): line for line in shown.splitlines()}
    assert lines["team"].split()[1] == str(best) and "one less: +" in lines["team"] and "one more: +" in lines["team"]
    assert float(lines["objective"].split()[1]) == pytest.approx(cost(best)[0], rel=1e-9)
    assert float(lines["loss"].split()[2][:-1]) == pytest.approx(0.25 - cost(best)[1], rel=1e-9)
    assert float(lines["d/dprice"].split()[1]) == best  # the envelope theorem
    assert "all whole points were compared" in lines["certificate"]
    assert "breaks loss" in lines["alone"] and "optimum saves" in lines["crowd"]
    assert "note:" not in shown  # p_loss is in a constraint
    assert main(["optimize", spec, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["design"] == {"team": best} and found["certificate"] == "enumerated" and found["status"] == "ok"
    assert found["baselines"]["crowd"] == pytest.approx(cost(12)[0], rel=1e-12)
    written(folder, POINT.replace('constraints = { loss = "p_loss <= 0.25" }\n', ""))
    assert main(["optimize", spec]) == 0
    assert "note: minimising mean_number with a finite waiting line rewards losing" in capsys.readouterr().out


def test_a_grid_to_a_store_that_resumes_bit_for_bit(folder, capsys):
    spec, whole, parts = written(folder, GRID), folder / "whole.zarr", folder / "parts.zarr"
    assert main(["optimize", spec, "--out", str(whole), "--quiet"]) == 0
    assert (folder / "whole.png").stat().st_size > 5000
    data = hetjax.open_sweep(whole)
    table = np.array([[[cost(team, rate, price) for team in range(1, 15)] for price in data.price.values]
                      for rate in data.arrival_rate.values])
    best = table[..., 0].argmin(axis=2)
    least = table[..., 0].min(axis=2)
    np.testing.assert_array_equal(data.best_team, best + 1)
    np.testing.assert_allclose(data.objective, least, rtol=1e-13)
    np.testing.assert_allclose(data.d_objective__d_price, best + 1, rtol=1e-15)  # the envelope theorem
    np.testing.assert_allclose(data.gain_two, 1 - least / table[:, :, 1, 0], atol=1e-13)
    np.testing.assert_allclose(data.p_loss, np.take_along_axis(table[..., 1], best[..., None], 2)[..., 0], rtol=1e-11)
    assert np.unique(best).size > 5 and {*data.optimum_status.values.flat} <= {1, 2, 4}
    assert data.best_team.attrs["long_name"] == "optimal team"
    # half of it, then the rest; the same specification and nothing but that one goes on
    assert main(["run", spec, "--out", str(parts), "--resume", "auto", "--shard", "0/2", "--quiet"]) in (0, 75)
    assert main(["optimize", spec, "--out", str(parts), "--resume", "must", "--quiet"]) == 0
    first, second = (zarr.open_group(str(path), mode="r") for path in (whole, parts))
    for name, array in first.arrays():
        assert np.asarray(array[...]).tobytes() == np.asarray(second[name][...]).tobytes()
    assert main(["retry", str(whole), "--quiet"]) == 0  # the store alone knows what was minimised
    capsys.readouterr()
    written(folder, GRID.replace("[1, 14]", "[1, 15]"))
    assert main(["optimize", spec, "--out", str(whole), "--resume", "must"]) == 2
    assert "optimize.over.team" in capsys.readouterr().err


def test_one_point_is_no_store(folder, capsys):
    assert main(["run", written(folder, POINT), "--out", str(folder / "point.zarr")]) == 2
    assert "there are no axes: one point needs no store; give it to hetjax optimize" in capsys.readouterr().err
    assert not (folder / "point.zarr").exists()


@pytest.mark.parametrize(("text", "arguments", "message"), [
    (GRID, (), "describes 60 points; say where to write them with --out STORE"),
    (GRID[:GRID.index("[optimize]")], (), "the table [optimize] is missing; add objective ="),
    (POINT.replace("speed = 1.25\n", ""), (), "parameter 'speed' of model 'small_models:QUEUE' is missing"),
    (POINT.replace("team = [1, 12]", "team = [1, 99]"), (), "over team: team = 99.0 is outside its domain"),
    (POINT.replace("speed = 1.25\n", "speed = 1.25\nteam = 3\n"), (),
     "[const] 'team' is chosen by [optimize] over as well"),
    (POINT.replace("[1, 12]", "[1, 8]"), (), "baselines crowd: team = 12 is above the bounds in over; raise them"),
])
def test_refusals(folder, capsys, text, arguments, message):
    assert main(["optimize", written(folder, text), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
