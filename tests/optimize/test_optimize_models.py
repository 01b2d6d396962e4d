"""Objectives of registered models and maps of optima: exact optima, published ones, derivatives, warnings, refusals."""

import math
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax import OptimumStatus, Status, Sweep
from hetjax.models.threshold_queue.poisson import means
from hetjax.optimize import Certificate, minimize
from hetjax.sweep import SpecError
from hetjax.sweep.optimize_table import from_canonical, read_optimize

sys.path.insert(0, str(Path(__file__).parent))
from small_models import QUEUE

COST = {"objective": "mean_number + price * service_rate", "over": {"service_rate": [0.5, 40.0]},
        "derived": {}, "baselines": {"fast": {"service_rate": 30}, "hopeless": {"service_rate": 0.5}}}


@pytest.fixture(scope="module")
def priced():
    """M/M/1: the best rate is lambda + sqrt(lambda/c), and costs c lambda + 2 sqrt(c lambda)."""
    sweep = Sweep(QUEUE, axes={"arrival_rate": [1.0, 2.5, 7.0], "price": [0.05, 0.3, 400.0]}, optimize=COST, metrics=[
        "best_service_rate", "objective", "mean_response_time", "gain_fast", "objective_fast", "gain_hopeless",
        "gradient_norm", "optimum_status", "certificate"],
        grad={"of": ["objective", "best_service_rate", "mean_response_time"], "wrt": ["arrival_rate", "price"]})
    return sweep.run_in_memory()


def test_map_of_the_best_rate_is_exact(priced):
    rate, c = priced.arrival_rate.values[:, None], priced.price.values[None, :]
    exact = rate + np.sqrt(rate / c)
    np.testing.assert_allclose(priced.best_service_rate, exact, rtol=1e-12)
    np.testing.assert_allclose(priced.objective, c * rate + 2 * np.sqrt(c * rate), rtol=1e-14)
    np.testing.assert_allclose(priced.mean_response_time, np.sqrt(c / rate), rtol=1e-10)  # of a difference of rates
    assert (priced.status == Status.OK).all() and (priced.certificate == Certificate.LOCAL).all()
    assert (priced.optimum_status == OptimumStatus.INTERIOR).all() and (priced.gradient_norm < 1e-12).all()
    np.testing.assert_allclose(priced.objective_fast, rate / (30 - rate) + 30 * c, rtol=1e-14)
    np.testing.assert_allclose(priced.gain_fast, 1 - priced.objective / priced.objective_fast, rtol=1e-10)
    assert np.isnan(priced.gain_hopeless).all()  # no steady state there


def test_derivatives_of_optimum_and_design_are_exact(priced):
    rate, c = priced.arrival_rate.values[:, None], priced.price.values[None, :]
    for name, exact in (("d_objective__d_arrival_rate", c + np.sqrt(c / rate)),
                        ("d_objective__d_price", rate + np.sqrt(rate / c)),
                        ("d_best_service_rate__d_arrival_rate", 1 + 1 / (2 * np.sqrt(rate * c))),
                        ("d_best_service_rate__d_price", -np.sqrt(rate / c) / (2 * c)),
                        ("d_mean_response_time__d_arrival_rate", -np.sqrt(c / rate) / (2 * rate)),
                        ("d_mean_response_time__d_price", 1 / (2 * np.sqrt(rate * c)))):
        np.testing.assert_allclose(priced[name], exact, rtol=1e-9)  # second derivatives at 1e-3 from a pole


def test_one_point_with_a_constraint_prices_and_derived_parameters():
    """The least team that keeps the loss below 0.5 %: whole, exact, with the warning that losing customers pays."""
    objective = hetjax.objective(QUEUE, "mean_number + 0.1 * team", constraints={"loss": "p_loss <= 0.005"},
                                 derived={"service_rate": "speed / sqrt(team)"})
    with pytest.warns(UserWarning) as caught:
        best = minimize(hetjax.objective(QUEUE, "mean_number + 0.1 * team",
                                         derived={"service_rate": "speed / sqrt(team)"}),
                        {"arrival_rate": 2.0, "M": 6, "speed": 1.2}, over={"team": (1, 12)})
    assert "rewards losing customers; minimise mean_response_time, or charge for them" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = minimize(objective, {"arrival_rate": 2.0, "M": 6, "speed": 1.2}, over={"team": (1, 12)})

    def exact(team):
        rho = 2 / (1.2 * math.sqrt(team))
        law = np.array([rho ** k for k in range(8)]) / sum(rho ** k for k in range(8))
        return law @ np.arange(8) + 0.1 * team, law[-1]

    assert best.design["team"] == min(range(1, 13), key=lambda team: exact(team)[0])
    legal = [team for team in range(1, 13) if exact(team)[1] <= 0.005]
    assert kept.design["team"] == min(legal, key=lambda team: exact(team)[0]) != best.design["team"]
    assert kept.value == pytest.approx(exact(int(kept.design["team"]))[0], rel=1e-13)
    assert kept.slack["loss"] == pytest.approx(0.005 - exact(int(kept.design["team"]))[1], rel=1e-11)
    assert kept.certificate == Certificate.ENUMERATED and kept.params["arrival_rate"] == 2.0


def test_an_endless_line_loses_nobody_and_is_not_warned_of():
    bound = hetjax.objective(QUEUE, "mean_number").bind({"arrival_rate": 1.0}, ["service_rate"],
                                                        {"service_rate": (1.5, 3)})
    assert bound.notes == ()


@pytest.mark.slow  # 40 s of compiling for this and the next two
def test_the_buffer_beyond_rounding_and_its_derivatives():
    """Against the stalling buffer's own exact method, down to steps of 1e-92 of the value; and its envelope."""
    axes, const = {"q": [0.3, 0.7, 0.9], "r": [2.0, 50.0]}, {"M": math.inf, "m": 5, "n": 2}
    found = Sweep("stalling", axes, const=const, metrics=["best_K", "objective", "gap_above_K", "gap_below_K"],
                  grad={"of": ["objective"], "wrt": ["q"]},
                  optimize={"objective": "mean_number", "over": {"K": [0, 200]}}).run_in_memory()
    point = hetjax.stalling.Params(*np.meshgrid(*axes.values(), indexing="ij"), 0.0, math.inf, 5, 2)
    best = hetjax.stalling.optimal_buffer(point)
    K = np.asarray(best.K, float)
    np.testing.assert_array_equal(found.best_K, K)
    np.testing.assert_allclose(found.objective, best.mean_number, rtol=1e-14)
    # the gaps of the closed form are multiples of q^K; 16 steps of rounding times K
    np.testing.assert_allclose(found.gap_above_K, best.gap_above * point.q ** K, rtol=1e-9)
    np.testing.assert_allclose(found.gap_below_K, best.gap_below * point.q ** (K - 1), rtol=1e-9)
    assert found.gap_above_K.min() < 1e-90
    slope = jax.jit(jax.grad(lambda q: hetjax.stalling.optimal_buffer(
        hetjax.stalling.Params(q, point.r, 0.0, math.inf, 5, 2)).mean_number.sum()))(point.q)
    np.testing.assert_allclose(found.d_objective__d_q, slope, rtol=1e-12)


@pytest.mark.slow
def test_two_published_nodes(reference):
    """Split and both thresholds at once, against the published optimum and the exact method of the nodes."""
    published = reference("published")["two_nodes"]
    rates = {"arrival_rate": 2.0, "mu1_node1": 2.0, "mu2_node1": 0.5, "mu1_node2": 1.0, "mu2_node2": 0.2}
    best = minimize(hetjax.objective("parallel_queues", "mean_number"), rates,
                    over={"split": (0.01, 0.99), "threshold_node1": range(1, 9), "threshold_node2": range(1, 9)})
    assert best.design["split"] == pytest.approx(published["bernoulli_p"], abs=5e-8)
    assert best.value == pytest.approx(published["bernoulli_mean_number"], abs=5e-8)
    assert [best.design[f"threshold_node{i}"] for i in (1, 2)] == published["best_thresholds"]
    pq = hetjax.parallel_queues
    exact = pq.best_split(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]))
    assert best.value == pytest.approx(float(exact.mean_number), rel=1e-14)
    assert best.design["split"] == pytest.approx(float(exact.probabilities[0]), rel=1e-12)
    assert best.gradient_norm < 1e-12 and best.certificate == Certificate.ENUMERATED


@pytest.mark.slow
def test_the_published_split(reference):
    """The split for the published thresholds: a real optimum of a registered model, its slope and its sensitivities."""
    published = reference("published")["two_nodes"]
    mu1, mu2, threshold = (np.array(x, float) for x in ((2.0, 1.0), (0.5, 0.2), published["best_thresholds"]))

    def number(p):
        rates = p["rate"] * jnp.stack([p["split"], 1 - p["split"]])
        return jnp.where((rates < mu1 + mu2).all(), means(rates, mu1, mu2, threshold).number.sum(), jnp.inf)

    best = minimize(number, {"rate": 2.0, "split": 0.5}, over={"split": (0.01, 0.99)}, starts=4)
    assert best.design["split"] == pytest.approx(published["bernoulli_p"], abs=5e-8)
    assert best.value == pytest.approx(published["bernoulli_mean_number"], abs=5e-8)
    assert abs(best.gradient["split"]) < 1e-12 and best.status == Status.OK


def test_tables_survive_the_store():
    table = read_optimize({"objective": "mean_number", "over": {"M": [0, 7], "service_rate": [0.1, 0.3]},
                           "constraints": {"loss": "p_loss <= 0.01"}, "baselines": {"a": {"M": math.inf}}, "starts": 3})
    again = from_canonical(table.canonical())
    assert again.canonical() == table.canonical() and again.over == table.over
    assert isinstance(again.over["M"][0], int) and isinstance(again.over["service_rate"][0], float)


@pytest.mark.parametrize(("message", "change"), [
    ("[optimize] objective is missing", {"objective": None}),
    ("over is missing; give what may be chosen, like over = { K = [0, 60] }", {"over": {}}),
    ("over 'speed' is no parameter of model 'small_queue', or is derived",
     {"over": {"speed": [1.0, 2.0]}, "baselines": {}}),
    ("over service_rate = [1.0] are no bounds", {"over": {"service_rate": [1.0]}}),
    ("over service_rate = [2.0, 1.0]: give two finite bounds, low < high", {"over": {"service_rate": [2.0, 1.0]}}),
    ("over service_rate: service_rate = 0.0 is outside its domain [1e-06, 1e+06]",
     {"over": {"service_rate": [0.0, 1.0]}}),
    ("rough has no derivatives, which real variables need; give whole bounds like service_rate = [1, 40]",
     {"objective": "rough", "over": {"service_rate": [0.5, 40.0]}}),
    ("baselines a: 'M' is not in over", {"baselines": {"a": {"M": 3}}}),
    ("baselines a = {} is no design", {"baselines": {"a": {}}}),
    ("constraint loss = 'p_loss < 0.01' is not of the form \"p_loss <= 0.01\"",
     {"constraints": {"loss": "p_loss < 0.01"}}),
    ("derived 'team' is no real parameter of model 'small_queue'", {"derived": {"team": "2 * speed"}}),
    ("method = 'magic' is unknown; choose from auto, newton, lbfgs, adam", {"method": "magic"}),
    ("starts = 0 must be a whole number in [1, 1000000]", {"starts": 0}),
    ("'depth' is no key of [optimize]", {"depth": 2}),
    ("objective = 'import os' cannot be read as arithmetic", {"objective": "import os"}),
    ("parameter 'mean_numbr' of model 'small_queue' is missing (price in the objective)",
     {"objective": "mean_numbr"}),
])
def test_refused_tables(message, change):
    table = {key: value for key, value in (COST | change).items() if value is not None}
    with pytest.raises(SpecError) as caught:
        Sweep(QUEUE, axes={"arrival_rate": [1.0], "price": [0.1]} if "price" in table.get("objective", "price") else
              {"arrival_rate": [1.0]}, optimize=table)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("message", "params", "over"), [
    ("'speed' is no parameter of model 'small_queue' or of the objective", {"arrival_rate": 1, "speed": 3}, None),
    ("parameter 'arrival_rate' is missing", {}, None),
    ("arrival_rate = -1.0 is outside its domain", {"arrival_rate": -1}, None),
    ("over M has no bounds; give two, like M = [0, 60]; its domain is [0, 1e+06] or inf", {"arrival_rate": 1},
     {"M": None}),
    ("over M = (0, inf): give two finite bounds", {"arrival_rate": 1}, {"M": (0, math.inf)}),
    ("service_rate starts at 9, outside [1, 5]; give a start inside", {"arrival_rate": 1, "service_rate": 9}, None),
])
def test_refused_parameters(message, params, over):
    with pytest.raises(ValueError) as caught:
        minimize(hetjax.objective(QUEUE, "mean_number"), params, over=over or {"service_rate": (1, 5)})
    assert message in str(caught.value) and "\n" not in str(caught.value)
