"""Parameters from means: a loss system with known derivatives, what cannot be identified, whole numbers, bad input."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from hetjax import Axis, Metric, Model
from hetjax.fit import fit_means
from hetjax.fit.least_squares import minimize_residuals
from hetjax.result import Status

AXES = (Axis("arrival", 1e-3, 100, "1/time"), Axis("service", 1e-3, 100, "1/time"),
        Axis("K", 0, 200, "customers", integer=True), Axis("extra", -10, 10, default=0.0))


def _point(values, metrics, bounds):
    """M/M/1/K: mean number, loss and throughput; ``square`` tells extra only up to its sign."""
    k = jnp.arange(201, dtype=values["arrival"].dtype)
    rho = values["arrival"] / values["service"]
    weights = jnp.where(k <= values["K"], jnp.exp(k * jnp.log(rho)), 0)
    total = jnp.sum(weights)
    loss = jnp.exp(values["K"] * jnp.log(rho)) / total
    found = {"mean": jnp.sum(k * weights) / total, "loss": loss, "throughput": values["arrival"] * (1 - loss),
             "square": values["extra"] ** 2, "count": values["K"]}
    unstable = rho >= 5  # so that a part of the box has no values
    return ({name: jnp.where(unstable, jnp.nan, found[name]) for name in metrics},
            jnp.where(unstable, int(Status.UNSTABLE), int(Status.OK)).astype(jnp.uint8))


QUEUE = Model("fitted", 1, "M/M/1/K", AXES, (*(Metric(x) for x in ("mean", "loss", "throughput", "square")),
                                             Metric("count", differentiable=False)), _point)


def exact(arrival, service, K):
    """(mean, loss, throughput) in many digits."""
    rho = mpmath.mpf(arrival) / service
    weights = [rho**k for k in range(K + 1)]
    loss = weights[-1] / sum(weights)
    return [sum(k * w for k, w in enumerate(weights)) / sum(weights), loss, arrival * (1 - loss)]


def observed(arrival, service, K, errors=(0.02, 0.01, 0.02)):
    return {name: (float(x), e) for name, x, e in zip(("mean", "loss", "throughput"), exact(arrival, service, K),
                                                      errors, strict=True)}


def test_recovers_the_truth_with_the_covariance_of_the_exact_jacobian():
    with mpmath.workdps(40):
        J = np.array([[float(mpmath.diff(lambda a, s, i=i: exact(a, s, 4)[i], (2.0, 2.5), order)) / e
                       for order in ((1, 0), (0, 1))] for i, e in enumerate((0.02, 0.01, 0.02))])
    free = {"arrival": (0.1, 20), "service": (1, 5)}
    found = fit_means(QUEUE, observed(2.0, 2.5, 4), free, {"K": 4})
    for name, value in (("arrival", 2.0), ("service", 2.5)):
        assert math.isclose(found[name].value, value, rel_tol=1e-9)
    covariance = np.linalg.inv(J.T @ J)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8)
    np.testing.assert_allclose([found["arrival"].standard_error, found["service"].standard_error],
                               np.sqrt(np.diag(covariance)), rtol=1e-8)
    assert found["arrival"].identified and found.degrees == 1 and found.chi_square < 1e-15 and not found.remarks
    assert "service" in found.text() and "chi-square" in found.text()


def test_standard_errors_cover_the_truth():
    """200 noisy data sets at once, by the solver below the public function: its covariance is tested above."""
    t = np.linspace(0, 1, 12)
    rng = np.random.default_rng(4)
    data = jnp.asarray(3 * np.exp(-2 * t) + rng.normal(0, 0.1, (200, 12)))

    def residuals(z, y):
        return (10 * z[0] * jnp.exp(-10 * z[1] * jnp.asarray(t)) - y) / 0.1

    found = jax.jit(jax.vmap(lambda y: minimize_residuals(lambda z: residuals(z, y), jnp.asarray([0.5, 0.5]))))(data)
    assert bool(found.settled.all())
    J = jax.vmap(lambda z, y: jax.jacfwd(lambda z: residuals(z, y))(z))(found.z, data)
    covariance = np.linalg.inv(np.swapaxes(J, 1, 2) @ J)
    z = (np.asarray(found.z) - [0.3, 0.2]) / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert (abs(z.mean(axis=0)) < 4 / math.sqrt(200)).all() and (abs(z.std(axis=0) - 1) < 0.2).all()
    assert abs(np.mean(found.chi_square) - 10) < 4 * math.sqrt(20 / 200)  # 12 - 2 degrees of freedom


def test_names_what_the_data_do_not_identify():
    ratio = {name: pair for name, pair in observed(2.0, 2.5, 4).items() if name != "throughput"}  # rho alone
    found = fit_means(QUEUE, ratio, {"arrival": (0.1, 20), "service": (0.1, 20)}, {"K": 4})
    assert not found["arrival"].identified and not found["service"].identified
    assert math.isinf(found["arrival"].standard_error) or found["arrival"].standard_error > 10
    (remark,) = [remark for remark in found.remarks if "together" in remark]
    assert "arrival, service are not identified together" in remark or "service, arrival" in remark
    assert "(0.71 arrival, 0.71 service)" in remark or "(0.71 service, 0.71 arrival)" in remark
    idle = fit_means(QUEUE, observed(2.0, 2.5, 4), {"arrival": (0.1, 20), "extra": (-1, 1)}, {"service": 2.5, "K": 4})
    assert idle["arrival"].identified and not idle["extra"].identified and math.isinf(idle["extra"].standard_error)
    assert any(remark.startswith("extra is not identified") for remark in idle.remarks)


def test_other_solutions_bounds_and_misfit_are_told():
    twice = fit_means(QUEUE, {"square": (4.0, 0.1)}, {"extra": (-5, 5)}, {"arrival": 1.0, "service": 2.0, "K": 3})
    assert abs(twice["extra"].value) == pytest.approx(2) and len(twice.others) == 1
    assert twice.others[0]["extra"] == pytest.approx(-twice["extra"].value)
    assert any("another solution" in remark for remark in twice.remarks)
    assert any("no more observations" in remark for remark in twice.remarks)
    again = fit_means(QUEUE, {"square": (4.0, 0.1)}, {"extra": (-5, 5)}, {"arrival": 1.0, "service": 2.0, "K": 3})
    assert again.text() == twice.text()
    edge = fit_means(QUEUE, {"square": (np.full(3, 100.0), 0.1)}, {"extra": (0, 5)},
                     {"arrival": 1.0, "service": 2.0, "K": 3})
    assert edge["extra"].at_bound and any("extra lies on its upper bound" in r for r in edge.remarks)
    assert edge.p_value < 1e-6 and any("does not fit" in r for r in edge.remarks)


def test_whole_parameters_are_profiled_over_their_box():
    found = fit_means(QUEUE, observed(2.0, 2.5, 4), {"arrival": (0.1, 20), "K": (0, 12)}, {"service": 2.5}, starts=3)
    assert found["K"].value == 4 and found["K"].standard_error is None
    # by hand: the least chi-square over the arrival rate for each K
    grid = np.linspace(1.2, 3.2, 4001)
    truth = [float(x) for x in exact(2.0, 2.5, 4)]
    least = []
    for K in range(13):
        w = (grid / 2.5) ** np.arange(K + 1)[:, None]
        loss, mean = w[-1] / w.sum(axis=0), (np.arange(K + 1)[:, None] * w).sum(axis=0) / w.sum(axis=0)
        least.append(((mean - truth[0]) / 0.02) ** 2 + ((loss - truth[1]) / 0.01) ** 2
                     + ((grid * (1 - loss) - truth[2]) / 0.02) ** 2)
    inside = tuple((K,) for K in range(13) if least[K].min() <= 3.8415)
    assert found.confidence_set == inside
    vague = fit_means(QUEUE, {"mean": (1.5, 0.5)}, {"arrival": (0.1, 20), "K": (3, 9)}, {"service": 2.5}, starts=3)
    assert len(vague.confidence_set) == 7 and any("K is not identified" in remark for remark in vague.remarks)
    counted = fit_means(QUEUE, {"count": (np.array([5.1, 4.8]), 0.2)}, {"K": (0, 50)}, {"arrival": 1.0, "service": 2.0})
    assert counted["K"].value == 5 and counted.confidence_set == ((5,),) and counted.degrees == 1


@pytest.mark.parametrize(("change", "message"), [
    ({"observed": {}}, "must not be empty"),
    ({"observed": {"mean": 1.0}}, r"observed\['mean'\] = 1.0 is no pair"),
    ({"observed": {"mean": (1.0, 0.0)}}, "standard errors must be positive"),
    ({"observed": {"mean": (math.nan, 1.0)}}, "a value is not finite"),
    ({"observed": {"men": (1.0, 1.0)}}, "'men' is no metric"),
    ({"free": {"arival": (1, 2)}}, "'arival' is no axis"),
    ({"free": {"arrival": (2, 1)}}, "are no bounds low < high"),
    ({"free": {"arrival": (1, 1000)}}, "leaves the domain"),
    ({"free": {"arrival": 3}}, "is no pair"),
    ({"known": {"service": 2.0, "K": 3, "arrival": 1.0}}, "both free and known"),
    ({"whole": ["service"]}, "whole names 'service', which is not free"),
    ({"free": {"arrival": (50, 90)}}, "no values at any start"),
    ({"observed": {"mean": ([1, 2], 1)}, "known": {"service": [1, 2, 3], "K": 3}}, "do not broadcast"),
    ({"observed": {"count": (3, 1)}}, "has no derivatives"),
    ({"starts": 0}, "starts = 0 is no whole number"),
])
def test_bad_input_is_refused_in_one_line(change, message):
    given = {"observed": {"mean": (1.0, 0.1)}, "free": {"arrival": (0.5, 2)}, "known": {"service": 2.0, "K": 3}}
    given |= change
    with pytest.raises(ValueError, match=message) as caught:
        fit_means(QUEUE, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.slow  # compiles for itself
def test_float32():
    free = {"arrival": (0.1, 20), "service": (1, 5)}
    with jax.enable_x64(False):
        narrow = fit_means(QUEUE, observed(2.0, 2.5, 4), free, {"K": 4}, starts=2)
    wide = fit_means(QUEUE, observed(2.0, 2.5, 4), free, {"K": 4}, starts=2)
    assert math.isclose(narrow["arrival"].value, 2.0, rel_tol=1e-4)  # float32 residuals in units of .02
    assert math.isclose(narrow["arrival"].standard_error, wide["arrival"].standard_error, rel_tol=1e-3)


@pytest.mark.slow  # compiles two dozen searches of the stalling queue
def test_the_stalling_queue_from_simulated_means():
    import hetjax

    q = np.array([0.5, 0.7, 0.85, 0.95])
    known = {"q": q, "M": 30, "m": 3, "n": 2}
    truth = hetjax.evaluate("stalling", r=8.0, K=4.0, **known, metrics=["mean_number", "utilization_slow"])
    noise = np.random.default_rng(0).normal(size=(2, 4))
    data = {name: (np.asarray(truth[name]) * (1 + 0.01 * e), 0.01 * np.asarray(truth[name]))
            for name, e in zip(("mean_number", "utilization_slow"), noise, strict=True)}
    found = fit_means("stalling", data, {"r": (1, 100), "K": (0, 30)}, known)
    for name, value in (("r", 8), ("K", 4)):
        assert abs(found[name].value - value) < 4 * found[name].standard_error and found[name].identified
    whole = fit_means("stalling", data, {"r": (1, 100), "K": (0, 30)}, known, whole=["K"])
    assert whole["K"].value == 4 and whole["r"].standard_error < found["r"].standard_error
