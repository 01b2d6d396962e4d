"""The fixed point against 50 digits, its derivatives, the domain's corners, float32, transformations."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.supermarket.supermarket_oracle import levels as oracle_levels
from models.supermarket.supermarket_oracle import mean_queue_length as oracle_mean

from hetjax.models.supermarket import Params, drift, fixed_point, level_count, status
from hetjax.processes import (
    PH,
    coxian_two_moments,
    erlang,
    exponential,
    hyperexponential_balanced,
    mmpp,
)
from hetjax.result import Status

FEW_PHASES = {"exp", "E2", "H2,2", "H2,10", "H2,100", "H2,100,f.1", "H2,100,f.9", "cox4", "ph4"}


def reference_rows(reference, few=True):
    return [row for row in reference("supermarket_mp")["rows"] if (row["service"] in FEW_PHASES) == few]


def check(row):
    params = Params(row["arrival_rate"], row["d"], row["alpha"], row["T"])
    enough = level_count(params.rho, params.d, params.service_scv())
    count = next(shape for shape in (128, 2048, 65536) if shape >= enough)  # few shapes to compile
    found = fixed_point(params, levels=count)
    assert found.status == Status.OK
    assert found.residual < 4e-16 * (25 + row["d"])  # the drift takes d-th powers of rounded u
    exact = mp.mpf(row["mean_queue_length"])
    # the float load errs by eps/(1 - rho) relative to 1 - rho: 2e-12 of it at .9999, of which the mean feels a part
    assert abs(mp.mpf(float(found.value.mean_queue_length)) / exact - 1) < 1e-12
    for k, tail in enumerate(row["tails"]):
        assert abs(mp.mpf(float(found.value.log_tails[k])) / mp.log(mp.mpf(tail)) - 1) < 3e-11
    assert found.value.neglected < 1e-15 * float(exact)
    assert float(found.value.mean_response_time) == pytest.approx(float(exact) / row["arrival_rate"], rel=1e-12)


def test_against_fifty_digits(reference):
    rows = reference_rows(reference)
    assert len(rows) > 50
    for row in rows:
        check(row)


@pytest.mark.slow
def test_against_fifty_digits_eight_phases(reference):
    rows = reference_rows(reference, few=False)
    assert len(rows) > 5
    for row in rows:
        check(row)


def test_against_the_damped_iteration(reference):
    """The other table, made by another method, good to 1e-10; holds d = 1 and d = 3 too."""
    for row in reference("supermarket")["rows"]:
        found = fixed_point(Params(row["arrival_rate"], row["d"], row["alpha"], row["T"]), levels=256)
        assert float(found.value.mean_queue_length) == pytest.approx(row["mean_queue_length"], rel=1e-10)
        tails = found.value.tails[:len(row["tails"])]
        np.testing.assert_allclose(tails, row["tails"], rtol=2e-10, atol=1e-13)  # its iteration stopped at 1e-14


@given(rate=st.floats(0.05, 0.99), d=st.floats(1.05, 8), scv=st.floats(0.5, 20))
@settings(max_examples=5)
def test_random_points_against_the_oracle(rate, d, scv):
    law = coxian_two_moments(1.0, scv)
    found = fixed_point(Params.from_service(rate, d, law), levels=1024).value
    exact = oracle_levels(rate, d, law.alpha.tolist(), law.T.tolist(), digits=30, small="1e-12", most=60)
    for k in range(0, len(exact), 7):
        s = np.array([float(x) for x in exact[k]])
        # a mean service time that rounding keeps from being 1 shifts 1 - rho by 2e-16
        np.testing.assert_allclose(found.at_least[k], s, rtol=1e-12 / (1 - rate), atol=1e-25)


def test_exponential_service_is_doubly_exponential():
    """u_k = rho^((d^k - 1)/(d - 1)) (Vvedenskaya, Dobrushin and Karpelevich), down to logarithms of -1e50."""
    for rate, d in ((0.5, 2.0), (0.99, 1.3), (0.7, 5.0)):
        found = fixed_point(Params(rate, d, [1.0], [[-1.0]]), levels=64).value
        k = np.arange(1, 65)
        np.testing.assert_allclose(found.log_tails, np.log(rate) * (d**k - 1) / (d - 1), rtol=2e-13)


@pytest.mark.parametrize("law", [exponential(1.0), erlang(3, 3.0), hyperexponential_balanced(1.0, 10.0)],
                         ids=["exp", "E3", "H2"])
def test_one_choice_is_the_single_queue(law):
    """d = 1: M/PH/1, whose mean is that of Pollaczek and Khinchine and whose s_k are geometric in R."""
    rate = 0.8
    found = fixed_point(Params.from_service(rate, 1, law), levels=64)
    assert found.status == Status.OK
    exact = rate + rate**2 * (1 + float(law.scv())) / (2 * (1 - rate))
    assert float(found.value.mean_queue_length) == pytest.approx(exact, rel=1e-13)
    alpha, T = np.asarray(law.alpha), np.asarray(law.T)
    R = rate * np.linalg.inv(rate * np.eye(len(alpha)) - rate * np.ones((len(alpha), 1)) * alpha - T)
    x = (1 - rate) * alpha @ R  # exactly one customer, by phase
    for k in range(40):
        np.testing.assert_allclose(found.value.exactly[k], x, rtol=1e-12)
        x = x @ R
    assert float(found.value.neglected) == pytest.approx(exact - float(found.value.tails.sum()), abs=1e-12)
    assert float(found.value.p_wait) == pytest.approx(rate, rel=1e-14)


def test_exact_phases_and_waiting():
    params = Params.from_service(0.9, 2.5, hyperexponential_balanced(1.0, 4.0))
    found = fixed_point(params, levels=64).value
    differences = (found.at_least[:-1] - found.at_least[1:])[:20]
    np.testing.assert_allclose(found.exactly[:20], differences, rtol=1e-9, atol=1e-18)  # the differences lose digits
    np.testing.assert_allclose(found.phase_law.sum(1), 1, rtol=1e-14)
    assert float(found.p_wait) == pytest.approx(0.9**2.5, rel=1e-14)
    assert float(found.mean_waiting_time) == pytest.approx(float(found.mean_response_time) - 1, rel=1e-13)
    # whoever joins, leaves: r_k x_k = lambda (u_k^d - u_{k+1}^d)
    u = np.asarray(found.tails)
    joined = np.asarray(found.join_rates)[:15] * np.asarray(found.exactly).sum(1)[:15]
    np.testing.assert_allclose(joined, 0.9 * (u[:15] ** 2.5 - u[1:16] ** 2.5), rtol=1e-11)


def test_derivatives_against_many_digits():
    """Central differences of the oracle in 50 digits; d/d lambda and d/dd also printed in the derivation notes."""
    law = hyperexponential_balanced(1.0, 10.0)
    alpha, T = [float(a) for a in law.alpha], [[float(x) for x in row] for row in law.T]

    def mean(rate, d, first, fast):
        service = PH(jnp.stack([first, 1 - first]), law.T.at[0, 0].set(-fast))
        return fixed_point(Params(rate, d, service.alpha, service.T), levels=64).value.mean_queue_length

    at = (0.9, 2.0, alpha[0], -T[0][0])
    reverse = jax.jit(jax.grad(mean, (0, 1, 2, 3)))(*at)
    forward = jax.jit(jax.jacfwd(mean, (0, 1, 2, 3)))(*at)
    np.testing.assert_allclose(reverse, forward, rtol=1e-12)
    step = mp.mpf("1e-12")
    with mp.workdps(40):
        def exact(rate, d, first, fast):
            return oracle_mean(rate, d, [first, 1 - first], [[-fast, 0], [0, T[1][1]]], digits=40, small="1e-26")

        for i in range(4):
            ends = [exact(*(mp.mpf(x) + sign * step * (i == j) for j, x in enumerate(at))) for sign in (1, -1)]
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(reverse[i]) == pytest.approx(float(slope), rel=2e-12)
    assert float(reverse[0]) == pytest.approx(37.51093962071866, rel=1e-11)
    assert float(reverse[1]) == pytest.approx(-5.1898318111229554, rel=1e-11)


def test_derivatives_in_closed_form():
    """Exponential service: d/d rho of sum rho^((d^k-1)/(d-1)), also in the shallow regime near rho = 1."""
    for rate, d in ((0.5, 2.0), (0.999, 1.5)):
        k = np.arange(1, 60)
        power = (d**k - 1) / (d - 1)
        exact = np.sum(power * np.exp((power - 1) * np.log(rate)))
        mean = lambda x, d=d: fixed_point(Params(x, d, [1.0], [[-1.0]]), levels=64).value.mean_queue_length  # noqa: E731
        slope = jax.jit(jax.grad(mean))(rate)
        assert float(slope) == pytest.approx(exact, rel=1e-12 / (1 - rate))


def test_batches():
    """vmap over (rho, d, SCV) equals the loop; grad of vmap equals vmap of grad."""
    rates, ds, scvs = jnp.array([0.5, 0.9, 0.99]), jnp.array([1.0, 2.0, 3.5]), jnp.array([1.5, 10.0, 4.0])

    def mean(rate, d, scv):
        params = Params.from_service(rate, d, hyperexponential_balanced(1.0, scv))
        return fixed_point(params, levels=96).value.mean_queue_length

    together = jax.jit(jax.vmap(mean))(rates, ds, scvs)
    np.testing.assert_allclose(together, [jax.jit(mean)(*x) for x in zip(rates, ds, scvs, strict=True)], rtol=1e-13)
    each = jax.jit(jax.vmap(jax.grad(mean, (0, 1, 2))))(rates, ds, scvs)
    of_sum = jax.jit(jax.grad(lambda *x: jnp.sum(jax.vmap(mean)(*x)), (0, 1, 2)))(rates, ds, scvs)
    np.testing.assert_allclose(each, of_sum, rtol=1e-12)
    assert np.all(np.isfinite(np.asarray(each)))


def test_traced_parameters_need_levels():
    with pytest.raises(ValueError, match="levels"):
        jax.jit(fixed_point)(Params(0.5, 2, [1.0], [[-1.0]]))


def test_float32():
    law = hyperexponential_balanced(np.float32(1), 10.0)
    narrow = fixed_point(Params.from_service(np.float32(0.95), np.float32(2), law))
    wide = fixed_point(Params.from_service(0.95, 2, hyperexponential_balanced(1.0, 10.0)))
    assert narrow.value.mean_queue_length.dtype == jnp.float32 and narrow.status == Status.OK
    # eps/(1 - rho) = 2.4e-6, times the condition number of the mean in 1 - rho
    assert float(narrow.value.mean_queue_length) == pytest.approx(float(wide.value.mean_queue_length), rel=1e-5)
    deep = fixed_point(Params.from_service(np.float32(0.5), np.float32(1e6), exponential(np.float32(1))))
    assert deep.status == Status.OK and not np.any(np.isnan(np.asarray(deep.value.log_tails)))


@pytest.mark.parametrize(("rate", "d", "code"), [
    (0.5, 2.0, Status.OK), (1.0, 2.0, Status.UNSTABLE), (3.0, 1.0, Status.UNSTABLE), (0.5, 1.005, Status.OUT_OF_DOMAIN),
    (0.5, 0.9, Status.OUT_OF_DOMAIN), (float("nan"), 2.0, Status.OUT_OF_DOMAIN), (0.5, 2e6, Status.OUT_OF_DOMAIN),
    (0.5, 1.01, Status.OK), (-1.0, 2.0, Status.OUT_OF_DOMAIN), (0.5, float("nan"), Status.OUT_OF_DOMAIN),
])
def test_status(rate, d, code):
    def run(rate, d):
        found = fixed_point(Params(rate, d, [1.0], [[-1.0]]), levels=2048)
        return found.status, found.value.mean_queue_length, status(Params(rate, d, [1.0], [[-1.0]]))

    found, mean, asked = jax.jit(run)(jnp.asarray(rate), jnp.asarray(d))
    assert found == asked == code
    assert bool(jnp.isfinite(mean)) == (code == Status.OK)


def test_illegal_lanes_do_not_poison_gradients():
    rates = jnp.array([0.5, 1.5, 0.9])

    def loss(rates):
        found = jax.vmap(lambda rate: fixed_point(Params(rate, 2.0, [1.0], [[-1.0]]), levels=24))(rates)
        return jnp.sum(jnp.where(found.status == int(Status.OK), found.value.mean_queue_length, 0))

    slopes = jax.jit(jax.grad(loss))(rates)
    assert bool(jnp.all(jnp.isfinite(slopes))) and slopes[1] == 0 and slopes[2] > 0


def test_too_few_levels_say_so():
    found = fixed_point(Params(0.999, 1.1, [1.0], [[-1.0]]), levels=8)
    assert found.status == Status.NOT_CONVERGED and found.value.neglected > 1


@pytest.mark.parametrize(("make", "words"), [
    (lambda: Params(1.0, 2, [1.0], [[-1.0]]), "arrival_rate = 1.0"),
    (lambda: Params(-1.0, 2, [1.0], [[-1.0]]), "arrival_rate"),
    (lambda: Params(0.5, 0.5, [1.0], [[-1.0]]), "d = 0.5"),
    (lambda: Params(0.5, 1.005, [1.0], [[-1.0]]), "d = 1.005"),
    (lambda: Params(0.5, 2, [0.9], [[-1.0]]), "alpha"),
    (lambda: Params(0.5, 2, [1.0], [[1.0]]), "T"),
    (lambda: Params([0.5], 2, [1.0], [[-1.0]]), "vmap"),
])
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_map_arrivals_average_out():
    arrivals = mmpp([[0.0, 1.0], [3.0, 0.0]], [0.4, 1.2])
    params = Params.from_map(arrivals, 2, exponential(1.0))
    assert float(params.arrival_rate) == pytest.approx(0.6, rel=1e-14)


def test_drift_derivatives_where_queues_are_level():
    """(a^d - b^d)/(a - b) has no 0/0: at b = a, at b = 0, at a = b = 0, for real d."""
    params = Params(0.5, 2.5, [1.0], [[-1.0]])
    for s in ([[0.5], [0.5], [0.5]], [[0.5], [0.0], [0.0]], [[1.0], [1.0], [0.0]]):
        J = jax.jacfwd(lambda x: drift(params, x))(jnp.array(s))
        assert bool(jnp.all(jnp.isfinite(J)))
    s = jnp.array([[0.7], [0.5], [0.1]])
    u = np.array([1.0, 0.7, 0.5, 0.1])
    expected = 0.5 * (u[:-1] ** 2.5 - u[1:] ** 2.5) - u[1:] + np.append(u[2:], 0)
    np.testing.assert_allclose(drift(params, s)[:, 0], expected, rtol=1e-14)
