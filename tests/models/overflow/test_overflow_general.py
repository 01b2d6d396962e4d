"""Several servers a side and rates by server: against the closed form, Erlang's loss, and independent limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax.ctmc import stationary
from hetjax.models import overflow
from hetjax.models.overflow import GENERAL_MODEL, GeneralParams, Params, general_metrics
from hetjax.result import Status

RATES = 10.0 ** np.random.default_rng(4).uniform(-3, 3, (4, 12))


_compiled = jax.jit(general_metrics, static_argnums=1)


def compute(p, servers=(1, 1), dtype=np.float64):
    """One point, compiled once for each number of servers."""
    return _compiled(GeneralParams(*(jnp.asarray(x, dtype) for x in p)), servers)


def erlang_loss(servers, load):
    weights = np.cumprod(np.r_[1.0, load / np.arange(1, servers + 1)])
    return weights[-1] / weights.sum()


def test_dense_elimination_is_the_second_route_of_the_closed_form():
    """All nine probabilities to 1e-13 by subtraction-free elimination over twelve decades of rates."""
    rates = 10.0 ** np.random.default_rng(2).uniform(-6, 6, (4, 100))
    p = Params(*(jnp.asarray(row) for row in rates))
    solved = jax.jit(jax.vmap(stationary))(overflow.generator(p))
    assert (np.asarray(solved.status) == Status.OK).all()
    np.testing.assert_allclose(solved.value.reshape(100, 3, 3), jax.jit(overflow.probabilities)(p), rtol=1e-13)


def test_one_server_a_side_is_the_papers_system():
    l1, l2, m1, m2 = (jnp.asarray(row) for row in RATES)
    found, status = jax.jit(jax.vmap(general_metrics))(GeneralParams(l1, l2, m1, m1, m2, m2))
    closed = jax.jit(overflow.metrics)(Params(l1, l2, m1, m2))
    assert (np.asarray(status) == Status.OK).all()
    for name in ("p_loss", "overflow_rate_1", "overflow_rate_2", "wrong_assignment_ratio_1", "throughput_2"):
        np.testing.assert_allclose(getattr(found, name), getattr(closed, name), rtol=1e-13)
    np.testing.assert_allclose(found.mean_number_12, closed.utilization_server_2_type_1, rtol=1e-13)
    np.testing.assert_allclose(found.utilization_side_1, closed.utilization_server_1, rtol=1e-13)
    # plain differences: an absolute error of 1e-14
    np.testing.assert_allclose(found.loss_reduction_1, closed.loss_reduction_1, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("servers", [(1, 2), (3, 3)])
def test_side_independent_rates_lose_like_erlang(servers):
    l1, l2, m1, m2 = 1.3, 0.9, 0.7, 2.2
    found, status = compute((l1, l2, m1, m1, m2, m2), servers)
    assert int(status) == Status.OK
    np.testing.assert_allclose(found.p_loss, erlang_loss(sum(servers), l1 / m1 + l2 / m2), rtol=1e-13)
    np.testing.assert_allclose(found.mean_number_11 + found.mean_number_12, found.throughput_1 / m1, rtol=1e-13)
    np.testing.assert_allclose(found.loss_reduction_1, erlang_loss(servers[0], l1 / m1) - found.p_loss, rtol=1e-12)


def test_flow_balance_with_rates_by_side():
    """What starts service at the other side ends there: o_1 = mu12 E[type 1 at side 2]."""
    p = GeneralParams(1.0, 2.0, 1.5, 0.4, 0.9, 3.0)
    found, _ = compute(p, (1, 2))
    np.testing.assert_allclose(found.overflow_rate_1, p.mu12 * found.mean_number_12, rtol=1e-13)
    np.testing.assert_allclose(found.overflow_rate_2, p.mu21 * found.mean_number_21, rtol=1e-13)
    np.testing.assert_allclose(found.throughput_1, p.mu11 * found.mean_number_11 + p.mu12 * found.mean_number_12,
                               rtol=1e-13)


def test_slow_service_at_the_wrong_side_can_make_overflow_harmful():
    values = [float(compute(GeneralParams(1.0, 1.0, 1.0, slow, slow, 1.0))[0].loss_reduction_1)
              for slow in (1.0, 0.05)]
    assert values[0] > 0 > values[1]


def test_gradients_against_central_differences():
    at = jnp.asarray([1.0, 2.0, 1.5, 0.4, 0.9, 3.0])

    def loss(rates):
        return general_metrics(GeneralParams(*rates), (1, 1))[0].p_loss

    slope = jax.jit(jax.grad(loss))(at)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(loss))(at), slope, rtol=1e-11)
    value = jax.jit(loss)
    for k in range(6):
        step = jnp.zeros(6).at[k].set(1e-5)
        np.testing.assert_allclose((value(at + step) - value(at - step)) / 2e-5, slope[k], rtol=1e-7, atol=1e-11)


def test_evaluate_with_fixed_and_with_varying_numbers_of_servers():
    rates = dict(lambda1=1.0, lambda2=2.0, mu11=1.5, mu12=0.4, mu21=0.9, mu22=3.0)
    varying = hetjax.evaluate(GENERAL_MODEL, **rates, servers1=1, servers2=[1, 2])
    fixed = hetjax.evaluate(GENERAL_MODEL, **rates, servers1=1, servers2=1)
    single, _ = compute(rates.values(), (1, 2))
    assert (np.asarray(varying.status) == Status.OK).all() and int(fixed.status) == Status.OK
    for metric in GENERAL_MODEL.metrics:
        for k, expected in enumerate((fixed[metric.name], getattr(single, metric.name))):
            np.testing.assert_allclose(varying[metric.name][k], expected, rtol=1e-12, atol=1e-14)


def test_registry_float32_and_bad_input():
    assert [m.name for m in GENERAL_MODEL.metrics] == list(overflow.GeneralMetrics._fields)
    out = hetjax.evaluate(GENERAL_MODEL, lambda1=[-1.0, 1.0], lambda2=1.0, mu11=1.0, mu12=1.0, mu21=1.0, mu22=1.0)
    assert np.asarray(out.status).tolist() == [Status.OUT_OF_DOMAIN, Status.OK]
    small, _ = compute((1.3, 0.9, 0.7, 0.7, 2.2, 2.2), dtype=np.float32)
    assert small.p_loss.dtype == jnp.float32
    np.testing.assert_allclose(small.p_loss, erlang_loss(2, 1.3 / 0.7 + 0.9 / 2.2), rtol=2e-6)
    with pytest.raises(ValueError, match=r"servers2 = 9 is outside its domain whole numbers in \[1, 4\]"):
        general_metrics(GeneralParams(*[1.0] * 6), (1, 9))
