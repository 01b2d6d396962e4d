"""The registered models: the optimum against exact laws of the threshold queue, the gaps against closed forms, the
studies in small."""

import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax import Sweep, control, threshold_queue
from hetjax.control import model, rules
from hetjax.plot import draw
from hetjax.result import Status

SWEEPS = Path(__file__).parents[2] / "sweeps"
BURSTS = {"burst_ratio": 5.0, "burst_share": 0.2, "burst_length": 8.0}
COMMON = ("cost", "mean_number", "utilization_fast", "utilization_slow")


def test_optimum_against_exact_laws_and_golden_points():
    points = [{"arrival_rate": 0.5, "mu2": 0.2, "usage_fast": 0.3, **BURSTS},
              {"arrival_rate": 0.9, "mu2": 0.2, "usage_slow": 0.5, **BURSTS},
              {"arrival_rate": 0.6, "mu2": 0.3, "usage_slow": 2.0, "holding_cost": 0.7, **BURSTS},
              *({k: v for k, v in values.items() if k != "levels"} for values, _ in model.MODEL.golden),
              {"arrival_rate": 0.5, "mu2": 2.0}, {"arrival_rate": 1.5, "mu2": 0.4},
              {"arrival_rate": 0.5, "mu2": 0.2, "usage_slow": -1.0}]
    columns = {axis.name: [point.get(axis.name, axis.default) for point in points] for axis in model.AXES[:-1]}
    found = hetjax.evaluate("allocation", **columns, levels=64)
    bad = Status.OUT_OF_DOMAIN
    assert found.status.tolist() == [Status.OK] * 5 + [bad, Status.UNSTABLE, bad]
    assert np.isnan(found.cost[5:]).all() and (found.threshold_type[:5] == 1).all()
    for i, point in enumerate(points[:5]):
        other = model.second_route(point, COMMON)
        assert set(other) == set(COMMON)
        for name, value in other.items():
            assert float(found[name][i]) == pytest.approx(value, rel=1e-11)
        assert 0 <= float(found.cost_gap[i]) < 1e-11
    for i, (_, known) in enumerate(model.MODEL.golden, start=3):
        assert {name: float(found[name][i]) for name in known} == pytest.approx(known, rel=1e-12)
    assert model.second_route({"arrival_rate": 0.5, "mu2": 0.01}, COMMON) == {}  # the best threshold is beyond 24


def test_explicit_thresholds_by_phase():
    """The expected rate by a plain solve; Poisson arrivals give the formula itself, phases that do not matter too."""
    D0, D1 = threshold_queue.bursty(*(jnp.asarray(x) for x in (0.55, 4.0, 0.2, 30.0)))
    rate = np.linalg.solve(np.eye(2) - 0.7 / 0.1 * np.asarray(D0 + D1), np.asarray(D1).sum(1))
    one = jnp.ones(2)
    found = threshold_queue.explicit_thresholds(D0, D1, one[0], 0.1 * one[0])
    assert found.tolist() == threshold_queue.explicit_threshold(jnp.asarray(rate), one, 0.1 * one).tolist()
    assert found[0] > found[1]
    D0, D1 = threshold_queue.bursty(*(jnp.asarray(x) for x in (0.55, 1.0, 0.2, 30.0)))
    assert threshold_queue.explicit_thresholds(D0, D1, one[0], 0.1 * one[0]).tolist() == [
        float(threshold_queue.explicit_threshold(*(jnp.asarray(x) for x in (0.55, 1.0, 0.1))))] * 2


def test_gaps_for_poisson_arrivals_are_those_of_the_closed_form():
    rng = np.random.default_rng(8)
    rho, r = rng.uniform(0.05, 0.97, 64), np.exp(rng.uniform(0, np.log(60), 64))
    at = {"arrival_rate": rho * (1 + 1 / r), "mu2": 1 / r}
    metrics = ["optimal_mean_number", "simple_gap", "explicit_gap", "constant_gap", "poisson_gap"]
    found = hetjax.evaluate("allocation_gap", **at, levels=64, metrics=metrics)
    exact = hetjax.evaluate("threshold_queue", **at, threshold=1.0, metrics=["simple_excess", "explicit_excess"])
    ok = np.asarray(found.status) == Status.OK
    assert ok.sum() >= 60 and set(np.asarray(found.status)[~ok].tolist()) <= {int(Status.NOT_CONVERGED)}
    for name in ("simple", "explicit"):
        np.testing.assert_allclose(found[f"{name}_gap"][ok], exact[f"{name}_excess"][ok], rtol=1e-8, atol=1e-11)
    assert np.abs(found.constant_gap[ok]).max() < 1e-11 and np.abs(found.poisson_gap[ok]).max() < 1e-11
    assert found.simple_gap.max() > 0.01 and found.explicit_gap[ok].max() < 0.002


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "shape"), [
    (rules.GAP_MODEL, BURSTS), (rules.RENEWAL_GAP_MODEL, {"scv": 0.4}), (rules.RENEWAL_GAP_MODEL, {"scv": 6.0})])
def test_no_rule_beats_the_optimum_and_the_search_reaches_it(entry, shape):
    rng = np.random.default_rng(9)
    rho, r = rng.uniform(0.1, 0.9, 16), rng.uniform(1, 20, 16)
    metrics = [m.name for m in entry.metrics]
    found = hetjax.evaluate(entry, arrival_rate=rho * (1 + 1 / r), mu2=1 / r, **shape, levels=48, metrics=metrics)
    assert (found.status == Status.OK).all()
    for name in metrics[1:]:
        assert (found[name] > -1e-12).all()
    assert (found.phase_gap < 1e-12).all()
    assert (found.constant_gap <= jnp.minimum(found.simple_gap, found.explicit_gap) + 1e-12).all()
    assert found.constant_gap.max() > 1e-4 and found.explicit_phase_gap.max() < 0.012


@pytest.mark.slow
@pytest.mark.parametrize("entry", [rules.GAP_LAW_MODEL, rules.RENEWAL_GAP_LAW_MODEL])
def test_quantiles_are_those_of_the_gaps(entry):
    shape = BURSTS if entry is rules.GAP_LAW_MODEL else {"scv": 4.0}
    given = {"load_low": 0.2, "load_high": 0.9, "ratio_low": 2.0, "ratio_high": 18.0}
    names = [f"{rule}_{label}" for rule in ("simple", "explicit_phase") for label in ("median", "p90", "p99", "max")]
    found = hetjax.evaluate(entry, **shape, **given, side=3, levels=48, metrics=names)
    assert found.status == Status.OK
    load, r = (x.ravel() for x in np.meshgrid([0.2, 0.55, 0.9], [2.0, 6.0, 18.0]))
    points = rules.GAP_MODEL if entry is rules.GAP_LAW_MODEL else rules.RENEWAL_GAP_MODEL
    gaps = hetjax.evaluate(points, arrival_rate=load * (1 + 1 / r), mu2=1 / r, **shape, levels=48,
                           metrics=["simple_gap", "explicit_phase_gap"])
    for rule in ("simple", "explicit_phase"):
        expected = np.quantile(gaps[f"{rule}_gap"], [0.5, 0.9, 0.99, 1.0])
        shown = [found[f"{rule}_{label}"] for label in ("median", "p90", "p99", "max")]
        np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_study_of_the_price_of_energy():
    """The slope of the cost is the slow server's busy fraction; thresholds are those of the MDP point by point."""
    raw = tomllib.loads((SWEEPS / "threshold_energy.toml").read_text())
    spec = raw["sweep"]
    prices, loads = [0.05, 2.05, 6.05], [0.3, 0.8]
    dataset = Sweep(spec["model"], {"usage_slow": prices, "load": loads}, metrics=spec["metrics"], grad=spec["grad"],
                    const=raw["const"], derived=raw["derived"], title=spec["title"],
                    plot=raw["plot"]).run_in_memory()
    np.testing.assert_allclose(dataset.d_cost__d_usage_slow, dataset.utilization_slow, rtol=1e-11)
    for price in prices:
        D0, D1 = threshold_queue.bursty(*(jnp.asarray(x) for x in (1.25 * 0.8, 4.0, 0.2, 10.0)))
        best = control.optimal_allocation(D0, D1, 1.0, 0.25, usage_costs=[0.0, price])
        here = dataset.sel(usage_slow=price, load=0.8)
        assert [float(here.threshold_quiet), float(here.threshold_burst)] == best.thresholds[0].tolist()
        assert float(here.cost) == pytest.approx(float(best.gain), rel=1e-12)
    assert draw(dataset, raw["plot"][0]).axes


@pytest.mark.slow
def test_derivatives_of_the_cost():
    """By differences, where the best policy does not change."""
    at = {axis.name: axis.default for axis in model.AXES[:-1]} | {"arrival_rate": 0.83, "mu2": 0.21, "usage_slow": 0.4}
    at |= BURSTS
    names = list(at)

    def cost(x):
        values = dict(zip(names, x, strict=True)) | {"levels": 48}
        return model.point(values, ("cost",), {})[0]["cost"]

    x, h = jnp.asarray(list(at.values())), 1e-5
    steps = h * jnp.eye(len(names))
    both = jax.jit(jax.vmap(cost))(jnp.concatenate([x[None] + steps, x[None] - steps]))
    difference = (both[:len(names)] - both[len(names):]) / (2 * h)
    inner = [i for i, name in enumerate(names) if name != "usage_fast"]  # at the end of its domain
    np.testing.assert_allclose(np.asarray(jax.jit(jax.grad(cost))(x))[inner], difference[jnp.asarray(inner)], rtol=2e-7)
