"""The registry entry: domain, service by SCV, derivatives in both modes, the second route, sweeps of d and SCV."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax.models.supermarket import MODEL, Params, evaluate, fixed_point, response_time
from hetjax.models.supermarket.metrics import service_by_scv
from hetjax.models.supermarket.model import second_route
from hetjax.processes import PH, erlang, erlang_mixture, hyperexponential_balanced
from hetjax.result import Status


def test_golden_points_and_the_name():
    for values, known in MODEL.golden:
        found = hetjax.evaluate("supermarket", **values, metrics=list(known))
        for name, value in known.items():
            assert float(found[name]) == pytest.approx(value, rel=1e-13)


def test_against_the_fixed_point_and_the_second_route():
    rate, d, scv = np.array([0.5, 0.9, 0.95, 0.8]), np.array([2.0, 3.0, 1.5, 1e4]), np.array([1.0, 10.0, 0.6, 4.0])
    names = tuple(m.name for m in MODEL.metrics if not m.expensive)
    found = evaluate(arrival_rate=rate, d=d, scv=scv, service_rate=1.0)
    assert np.all(found.status == Status.OK)
    for i in range(4):
        law = PH(*service_by_scv(jnp.asarray(scv[i]), jnp.asarray(1.0), 2))
        value = fixed_point(Params.from_service(rate[i], d[i], law), levels=96).value
        assert float(found.mean_queue_length[i]) == pytest.approx(float(value.mean_queue_length), rel=1e-13)
        assert float(found.mean_waiting_time[i]) == pytest.approx(float(value.mean_waiting_time), rel=1e-13)
        assert float(found.tail_3[i]) == pytest.approx(float(value.tails[2]), rel=1e-12, abs=1e-300)
        if i in (0, 3):
            continue  # the second route compiles for each number of levels
        values = {"arrival_rate": rate[i], "d": d[i], "scv": scv[i], "service_rate": 1.0, "phases": 2}
        other = second_route(values, names)
        assert "mean_queue_length" in other and "tail_2" in other
        for name, number in other.items():
            assert float(found[name][i]) == pytest.approx(number, rel=1e-11, abs=1e-15)


def test_service_by_scv_is_the_library_of_processes():
    for scv in (0.21, 0.3, 0.5, 0.77):
        found = PH(*service_by_scv(jnp.asarray(scv), jnp.asarray(2.0), 8))
        known = erlang_mixture(2.0, scv)
        for order in (1, 2, 3):
            assert float(found.moment(order)) == pytest.approx(float(known.moment(order)), rel=1e-13)
    found = PH(*service_by_scv(jnp.asarray(7.0), jnp.asarray(2.0), 3))
    assert float(found.moment(3)) == pytest.approx(float(hyperexponential_balanced(2.0, 7.0).moment(3)), rel=1e-13)


def test_derivatives_in_both_modes():
    def mean(theta):
        values = dict(zip(("arrival_rate", "d", "scv", "service_rate"), theta, strict=True)) | {"phases": 2}
        return MODEL.point(values, ("mean_queue_length",), {})[0]["mean_queue_length"]

    at = jnp.array([0.9, 2.0, 10.0, 1.0])
    reverse, forward = jax.jit(jax.grad(mean))(at), jax.jit(jax.jacfwd(mean))(at)
    np.testing.assert_allclose(reverse, forward, rtol=1e-13)
    assert float(reverse[0]) == pytest.approx(37.51093962071866, rel=1e-11)
    assert float(reverse[1]) == pytest.approx(-5.1898318111229554, rel=1e-11)
    # the queue depends on the ratio of the rates only
    assert float(reverse[3]) == pytest.approx(-0.9 * float(reverse[0]), rel=1e-11)


def test_gain_at_one_choice_and_domain():
    rate, d = [0.9, 0.9, 1.0, 0.9, 0.5], [1.0, 1.005, 2.0, 2.0, 2.0]
    found = evaluate(arrival_rate=rate, d=d, scv=[4.0, 1.0, 1.0, 0.4, 0.5])
    assert found.status.tolist() == [Status.OK, Status.OUT_OF_DOMAIN, Status.UNSTABLE, Status.OUT_OF_DOMAIN, Status.OK]
    assert float(found.gain[0]) == pytest.approx(1, rel=1e-14)
    assert float(found.mean_queue_length[0]) == pytest.approx(0.9 + 0.81 * 5 / 0.2, rel=1e-13)
    assert bool(jnp.all(jnp.isnan(found.mean_queue_length[1:4]))) and not bool(jnp.isnan(found.mean_queue_length[4]))


def test_phases_as_an_array():
    found = evaluate(arrival_rate=0.8, scv=[0.25, 0.25, 0.5], phases=[4, 3, 2], metrics=["mean_queue_length"])
    assert found.status.tolist() == [Status.OK, Status.OUT_OF_DOMAIN, Status.OK]
    for i, law in ((0, erlang(4, 4.0)), (2, erlang(2, 2.0))):
        alone = fixed_point(Params.from_service(0.8, 2, law), levels=16).value
        assert float(found.mean_queue_length[i]) == pytest.approx(float(alone.mean_queue_length), rel=1e-13)


def test_percentiles():
    found = evaluate(arrival_rate=0.9, scv=10.0, metrics=["response_time_p50", "response_time_p999"])
    assert float(found.response_time_p50) == pytest.approx(2.30723459148, rel=1e-11)
    assert float(found.response_time_p999) == pytest.approx(78.82289884188, rel=1e-11)
    params = Params.from_service(0.9, 2, hyperexponential_balanced(1.0, 10.0))
    law = response_time(params, fixed_point(params).value)
    assert float(law.tail(found.response_time_p50)) == pytest.approx(0.5, rel=1e-10)


def test_float32():
    found = evaluate(arrival_rate=np.float32(0.9), scv=np.float32(10), metrics=["mean_queue_length"])
    assert found.mean_queue_length.dtype == jnp.float32
    assert float(found.mean_queue_length) == pytest.approx(6.076210347, rel=2e-5)  # eps/(1 - rho), times about 4
