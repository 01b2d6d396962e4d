"""The registry entries: golden points, second route, domain, derivatives, a small sweep of each study."""

import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax import Sweep, threshold_queue
from hetjax.plot import draw
from hetjax.result import Status

SWEEPS = Path(__file__).parents[3] / "sweeps"


@pytest.mark.parametrize("model", [threshold_queue.MODEL, threshold_queue.MAP_MODEL])
def test_golden_points(model):
    assert hetjax.get_model(model.name) is model
    names = sorted({name for _, known in model.golden for name in known})
    for values, known in model.golden:
        found = hetjax.evaluate(model, **values, metrics=names)
        for name, value in known.items():
            assert float(found[name]) == pytest.approx(value, rel=1e-13)


def test_second_route():
    names = ("mean_number", "mean_waiting", "mean_response_time", "mean_waiting_time", "utilization_fast",
             "utilization_slow", "p_slow_used", "p_empty")
    rate, mu2, t = [0.9, 1.3, 0.2], [0.3, 0.5, 0.02], [2.0, 3.0, 2.5]
    found = hetjax.evaluate("threshold_queue", arrival_rate=rate, mu2=mu2, threshold=t)
    for i in range(3):
        values = {"arrival_rate": rate[i], "mu1": 1.0, "mu2": mu2[i], "threshold": t[i]}
        other = threshold_queue.MODEL.second_route(values, names)
        assert set(other) == set(names)
        for name, value in other.items():
            assert float(found[name][i]) == pytest.approx(value, rel=1e-11)


def test_domain():
    rate, mu2, t = [0.5, 1.5, 0.5, 0.5, -1.0, np.nan], [0.5, 0.5, 2.0, 0.5, 0.5, 0.5], [2, 2, 2, 0.5, 2, 2]
    found = hetjax.evaluate("threshold_queue", arrival_rate=rate, mu2=mu2, threshold=t)
    bad = int(Status.OUT_OF_DOMAIN)
    assert found.status.tolist() == [Status.OK, Status.UNSTABLE, bad, bad, bad, bad]
    for metric in threshold_queue.MODEL.metrics:
        assert np.isfinite(found[metric.name][0]) and np.isnan(found[metric.name][1:]).all()


def test_derivatives_in_both_modes():
    axes = ("arrival_rate", "mu1", "mu2", "threshold")

    def mean(x):
        values = dict(zip(axes, x, strict=True))
        return threshold_queue.MODEL.point(values, ("mean_number",), {})[0]["mean_number"]

    at = jnp.asarray([1.1, 1.0, 0.3, 2.4])
    reverse, forward = jax.jit(jax.grad(mean))(at), jax.jit(jax.jacfwd(mean))(at)
    np.testing.assert_allclose(reverse, forward, rtol=1e-12)
    assert float(at[:3] @ reverse[:3]) == pytest.approx(0, abs=1e-11)  # the time unit does not matter


def small(name, **axes):
    raw = tomllib.loads((SWEEPS / f"{name}.toml").read_text())
    spec = raw["sweep"]
    sweep = Sweep(spec["model"], {k: list(axes[k]) if k in axes else v for k, v in raw["axes"].items()},
                  metrics=spec["metrics"], const=raw.get("const"), derived=raw.get("derived"), title=spec["title"],
                  plot=raw["plot"])
    return sweep.run_in_memory(), raw["plot"]


def test_study_of_the_best_threshold(reference):
    rows = reference("threshold_queue")["rows"]
    load = sorted({round(row["arrival_rate"] / (row["mu1"] + row["mu2"]), 12) for row in rows})
    ratio = sorted({round(row["mu1"] / row["mu2"], 12) for row in rows})
    dataset, figures = small("threshold_optimal", load=load, ratio=ratio)
    for row in rows:
        here = dataset.sel(load=row["arrival_rate"] / (row["mu1"] + row["mu2"]), ratio=row["mu1"] / row["mu2"],
                           method="nearest")
        assert float(here.optimal_threshold) == row["best_threshold"]
    for figure in figures:
        assert draw(dataset, figure).axes


@pytest.mark.slow
def test_study_of_thresholds_by_phase():
    dataset, figures = small("threshold_by_phase", load=[0.3, 0.8], burst_length=[0.3, 30.0])
    for i, load in enumerate((0.3, 0.8)):
        for j, length in enumerate((0.3, 30.0)):
            point = dataset.isel(load=i, burst_length=j)
            D0, D1 = threshold_queue.bursty(*(jnp.asarray(x) for x in (1.1 * load, 4.0, 0.2, length)))
            best = threshold_queue.Params(D0, D1, 1.0, 0.1, [float(point.best_threshold_quiet),
                                                             float(point.best_threshold_burst)], max_threshold=16)
            constant = threshold_queue.mean_numbers(best, 16)
            assert int(point.best_threshold) == int(jnp.argmin(constant)) + 1
            gain = float(jnp.min(constant) / jax.jit(threshold_queue.mean_number)(best)) - 1
            assert float(point.by_phase_gain) == pytest.approx(gain, abs=1e-12)
    for figure in figures:
        assert draw(dataset, figure).axes


@pytest.mark.parametrize("name", ["threshold_optimal", "threshold_by_phase"])
def test_every_study_is_listed_with_its_figures(name):
    raw = tomllib.loads((SWEEPS / f"{name}.toml").read_text())
    index = (SWEEPS / "README.md").read_text()
    assert f"`{name}.toml`" in index
    for figure in raw["plot"]:
        image = SWEEPS / "images" / f"{figure['file']}.png"
        assert f"images/{image.name}" in index and 5_000 < image.stat().st_size < 400_000
