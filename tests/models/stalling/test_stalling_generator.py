"""The chain with levels as the second route of every metric, and of the gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_distribution import transitions
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax import ctmc, stalling
from hetjax.models.stalling import Metrics, Params, from_rates
from hetjax.result import Status

SHAPES = [(1, 1, 0, 0), (3, 2, 5, 12), (2, 4, 20, 0), (2, 0, 3, 3)]  # m, n, K, M
load = st.floats(-8, 4).map(lambda x: float(np.clip(10.0**x, 1e-8, 1e4)))
ratio = st.floats(-3, 9).map(lambda x: float(np.clip(10.0**x, 1e-3, 1e9)))
near_one = st.tuples(st.integers(1, 50), st.sampled_from([-1, 1])).map(lambda x: 1 + x[1] * 2.0 ** -x[0])


@functools.partial(jax.jit, static_argnums=2)
def both(q, r, shape):
    m, n, K, M = shape
    params = Params(q, r, K, M, m, n, jnp.asarray(2.0, q.dtype))
    solved = ctmc.stationary_levels(stalling.generator(params))
    return stalling.metrics(params), stalling.metrics_of_law(params, solved.value), solved.status


def agree(q, r, shape, dtype, tolerance, smallest):
    closed, summed, status = both(jnp.asarray(q, dtype), jnp.asarray(r, dtype), shape)
    assert status == Status.OK
    for name in Metrics._fields:
        one, other = float(closed[name]), float(summed[name])
        if name == "mean_response_time_slow" and shape[1] == 0:
            assert np.isnan(one) and np.isnan(other)
        elif one > smallest or other > smallest:
            assert abs(one - other) <= tolerance * one, (name, one, other)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=25)
@given(q=load | near_one, r=ratio | st.just(1.0))
def test_every_metric_agrees_with_the_closed_form(shape, q, r):
    agree(q, r, shape, np.float64, 2e-13, 1e-280)


@settings(max_examples=15)
@given(q=st.floats(.1, 10), r=st.floats(1, 1e3))
def test_in_float32(q, r):
    """Not over the whole domain: the chain holds every state, and many of them leave the range of float32 there."""
    agree(q, r, SHAPES[1], np.float32, 1e-5, 1e-30)


@functools.partial(jax.jit, static_argnums=2)
def slopes(q, r, shape):
    m, n, K, M = shape

    def closed(q, r):
        return stalling.mean_number(Params(q, r, K, M, m, n))

    def summed(q, r):
        params = Params(q, r, K, M, m, n)
        return stalling.metrics_of_law(params, ctmc.stationary_levels(stalling.generator(params)).value).mean_number

    return jax.value_and_grad(closed, (0, 1))(q, r), jax.grad(summed, (0, 1))(q, r)


@pytest.mark.parametrize("q,r", [(.3, 4.0), (.95, 12.0), (1.0, 1.0), (3.0, .5)])
def test_gradients_agree_with_those_through_the_elimination(q, r):
    (number, closed), summed = slopes(jnp.asarray(q), jnp.asarray(r), SHAPES[1])
    for x, one, other in zip((q, r), closed, summed, strict=True):
        assert abs(float(one) - float(other)) <= 1e-11 * max(abs(float(other)), 1e-3 * float(number) / x)


def test_it_is_the_system_in_words():
    """The same transitions as the oracle's, state by state."""
    q, r, K, M, m, n = 0.75, 4.0, 2, 3, 2, 2
    dense = np.asarray(ctmc.levels_to_dense(stalling.generator(Params(q, r, K, M, m, n))))
    expected = np.zeros_like(dense)

    def place(i, j, k):
        return (i + k) * (n + 1) + j

    for (source, target), rate in transitions(q, r, m, n, K, M).items():
        expected[place(*source), place(*target)] += rate
    np.testing.assert_array_equal(dense - np.diag(np.diag(dense)), expected)
    ctmc.check_levels(stalling.generator(Params(q, r, K, M, m, n)), irreducible=True)


def test_rates_are_per_unit_time():
    slow, fast = (stalling.generator(from_rates(3 * s, 2 * s, .5 * s, 1, 2, 2, 1)) for s in (1.0, 4.0))
    for a, b in zip(slow[:3], fast[:3], strict=True):
        np.testing.assert_allclose(4 * np.asarray(a), b, rtol=1e-15)


def test_bad_input_is_refused():
    for change, word in (({"K": 1.5}, "K = 1.5"), ({"M": np.inf}, "M = inf"), ({"K": 1e7}, "closed form"),
                         ({"q": jnp.asarray([.5, .6])}, "one point")):
        with pytest.raises(ValueError, match=word) as error:
            stalling.generator(Params(**{"q": .5, "r": 2.0, "K": 1, "M": 1, "m": 2, "n": 3} | change))
        assert "\n" not in str(error.value)
