"""The public names of the stalling queue, their units, their gradients in rates, and what is undefined where."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stalling_oracle import Oracle

import hetjax
from hetjax import stalling
from hetjax.result import Status

CHARACTERISTICS = (
    "mean_number", "mean_fast", "mean_slow", "mean_stalled", "mean_waiting", "mean_stuck", "p_full", "p_empty",
    "p_slow_only", "p_stuck", "p_slow", "p_fast", "p_stalling", "p_wait", "p_loss", "throughput", "utilization_fast",
    "utilization_slow", "mean_response_time", "mean_response_time_fast", "mean_response_time_slow")
NEED_WHOLE_K = ("p_empty", "p_stuck", "p_slow")
BASE = {"q": .75, "r": 4.0, "K": 3, "M": 5, "m": 2, "n": 2}


def test_names_of_the_characteristics():
    assert stalling.Metrics._fields == CHARACTERISTICS
    registered = [metric.name for metric in stalling.MODEL.metrics]
    assert registered[:len(CHARACTERISTICS)] == list(CHARACTERISTICS)
    assert {axis.name for axis in stalling.MODEL.axes} == {"q", "r", "K", "M", "m", "n", "mu1"}


def test_units_of_the_characteristics():
    units = {metric.name: metric.unit for metric in stalling.MODEL.metrics}
    for name in CHARACTERISTICS:
        wanted = ("time" if "response" in name else "customers" if name.startswith("mean") else
                  "1/time" if name == "throughput" else "1")
        assert units[name] == wanted, name
        assert stalling.MODEL.metric(name).meaning


def test_names_of_the_functions():
    assert list(inspect.signature(stalling.Params).parameters) == ["q", "r", "K", "M", "m", "n", "mu1"]
    assert list(inspect.signature(stalling.from_rates).parameters) == ["arrival_rate", "mu1", "mu2", "K", "M", "m", "n"]
    for name in ("mean_number", "metrics", "evaluate", "state_probabilities", "status", "optimal_buffer", "generator"):
        assert callable(getattr(stalling, name)), name
    for name in ("state_probabilities", "p_empty", "p_stuck", "p_slow", "mean_number"):  # (6) P_ijk, P_000, .., N-bar
        function = getattr(stalling, f"published_{name}")
        assert inspect.signature(function).parameters["corrected"].default is False
    for name in ("level_polynomials", "moment_ratios", "binomial_moments", "p1", "p2", "C1", "S1", "S2"):
        assert callable(getattr(stalling.paper_objects, name)), name
    for name in stalling.__all__:
        assert getattr(stalling, name) is not None


def test_every_public_name_says_what_it_is():
    for name in stalling.__all__:
        assert inspect.getdoc(getattr(stalling, name)), name


@pytest.fixture(scope="module")
def metrics():
    return stalling.metrics(stalling.Params(**BASE, mu1=5.0))


def test_params_define_the_rates():
    p = stalling.Params(**BASE, mu1=5.0)
    assert float(p.arrival_rate) == .75 * 2 * 5 and float(p.mu2) == 5 / 4
    assert math.isclose(float(p.rho), 7.5 / (2 * 5 + 2 * 1.25))
    again = stalling.from_rates(p.arrival_rate, p.mu1, p.mu2, 3, 5, 2, 2)
    assert [float(x) for x in jax.tree.leaves(again)] == [.75, 4.0, 3.0, 5.0, 5.0]
    assert float(stalling.Params(**BASE).mu1) == 1


def test_relations_between_the_characteristics(metrics):
    """Little's law, rates and utilizations, in the time unit of mu1 = 5."""
    f = {name: float(metrics[name]) for name in CHARACTERISTICS}
    assert math.isclose(f["throughput"], 7.5 * (1 - f["p_loss"]), rel_tol=1e-14)
    assert math.isclose(f["mean_response_time"] * f["throughput"], f["mean_number"], rel_tol=1e-14)
    assert math.isclose(f["utilization_fast"], f["mean_fast"] / 2) and math.isclose(f["utilization_slow"],
                                                                                    f["mean_slow"] / 2)
    fast, slow = 5 * f["mean_fast"], 1.25 * f["mean_slow"]
    assert math.isclose(f["mean_response_time_fast"] * fast + f["mean_response_time_slow"] * slow, f["mean_number"],
                        rel_tol=1e-14)
    assert f["mean_response_time_fast"] > 1 / 5 and f["mean_response_time_slow"] > 1 / 1.25
    law = stalling.state_probabilities(stalling.Params(**BASE))
    assert math.isclose(f["p_empty"], float(law.levels[0, 0]), rel_tol=1e-13)


def of_rates(*rates):
    found = stalling.evaluate(q=rates[0] / (2 * rates[1]), r=rates[1] / rates[2], K=3.0, M=5.0, m=2, n=2,
                              mu1=rates[1], metrics=["mean_number", "mean_response_time", "throughput"])
    return found.mean_number, found.mean_response_time, found.throughput


def test_gradients_in_the_rates():
    """At q < 1, q = 1, rho = 1 and beyond, against many digits: q = lambda/(m mu1), r = mu1/mu2."""
    forward = jax.jit(jax.jacfwd(of_rates, (0, 1, 2)))
    reverse = jax.jit(jax.grad(lambda *x: stalling.mean_number(stalling.from_rates(*x, 3.0, 5.0, 2, 2)), (0, 1, 2)))
    power = {"mean_number": 0, "mean_response_time": -1, "throughput": 1}  # of mu1, in its time unit
    for arrival_rate in (7.5, 10.0, 12.5, 30.0):
        rates = [jnp.asarray(x) for x in (arrival_rate, 5.0, 1.25)]
        gradients, backward = forward(*rates), reverse(*rates)
        oracle = Oracle(arrival_rate / 10, 4.0, 3.0, 5.0, 2, 2)
        for k, name in enumerate(power):
            unit, value = 5.0 ** power[name], float(oracle.value(name))
            along_q, along_r = (unit * float(oracle.derivative(name, a)) for a in "qr")
            exact = (along_q / 10, -along_q * arrival_rate / 50 + along_r / 1.25 + power[name] * unit * value / 5,
                     -along_r * 4 / 1.25)
            for i in range(3):
                scale = max(abs(exact[i]), 1e-3 * unit * value / float(rates[i]))
                assert abs(float(gradients[k][i]) - exact[i]) <= 1e-11 * scale, (name, i)
                if name == "mean_number":
                    assert abs(float(backward[i]) - exact[i]) <= 1e-11 * scale, i


def test_undefined_where():
    """Undefined is NaN with status OK, named in the registry; everything else is a number."""
    said = {metric.name: metric.undefined_where for metric in stalling.MODEL.metrics}
    assert {name for name in CHARACTERISTICS if said[name]} == {*NEED_WHOLE_K, "mean_response_time_slow"}
    assert all("K" in said[name] for name in NEED_WHOLE_K) and said["mean_response_time_slow"] == "n = 0"
    out = stalling.evaluate(**BASE | {"K": [3.0, 2.5, 3.0, 2.5], "n": [2, 2, 0, 0]}, metrics=CHARACTERISTICS)
    assert set(np.asarray(out.status)) == {int(Status.OK)}
    undefined = {name: [False, True, False, True] for name in NEED_WHOLE_K}
    undefined["mean_response_time_slow"] = [False, False, True, True]
    for name in CHARACTERISTICS:
        assert np.isnan(out[name]).tolist() == undefined.get(name, [False] * 4), name
    assert out.utilization_slow[2] == 0 and out.mean_slow[2] == 0


def test_no_slow_response_time_in_the_dataclass_either():
    none = stalling.metrics(stalling.Params(**BASE | {"n": 0}))
    assert np.isnan(none.mean_response_time_slow) and not np.isnan(none.p_slow) and none.p_slow == 0


def test_status_of_unstable_and_outside_points():
    names = ["mean_number", "p_loss"]
    assert (int(Status.OK), int(Status.UNSTABLE), int(Status.OUT_OF_DOMAIN)) == (1, 3, 8)
    inf, nan = math.inf, math.nan
    cases = {  # change: code
        (): 1, ("M", inf): 1, ("K", inf): 1, ("K", -1.0): 8, ("K", 2e7): 8, ("M", 2e7): 8, ("M", nan): 8,
        ("r", 1e-4): 8, ("r", 2e9): 8, ("q", 0.0): 8, ("q", 2e4): 8, ("q", nan): 8, ("q", inf): 8, ("mu1", 0.0): 8,
        ("q", 1.0, "K", inf): 3, ("q", 1.25, "M", inf): 3, ("q", 1.2499, "M", inf): 1, ("q", 3.0, "M", inf): 3,
        ("K", inf, "M", inf): 1}
    rows = [{**BASE, "mu1": 1.0, **dict(zip(change[::2], change[1::2], strict=True))} for change in cases]
    columns = {a: np.asarray([row[a] for row in rows], float) for a in ("q", "r", "K", "M", "mu1")}
    out = hetjax.evaluate("stalling", **columns, m=2, n=2, metrics=names)
    assert out.status.tolist() == list(cases.values())
    for name in names:
        assert np.isnan(out[name]).tolist() == [code != 1 for code in cases.values()]
    for change in ({"m": 0}, {"m": 513}, {"n": -1}, {"n": 513}):
        assert int(stalling.evaluate(**BASE | change, metrics=names).status) == 8, change
        with pytest.raises(ValueError, match=f"{next(iter(change))} = "):
            stalling.Params(**BASE | change)


def test_evaluate_defaults_to_what_is_cheap():
    out = hetjax.evaluate("stalling", **BASE)
    expensive = {metric.name for metric in stalling.MODEL.metrics if metric.expensive}
    assert set(NEED_WHOLE_K) <= expensive
    assert set(out) == {metric.name for metric in stalling.MODEL.metrics} - expensive | {"status"}
