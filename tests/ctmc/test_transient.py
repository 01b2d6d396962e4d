"""Transient distributions, occupancies and first passages against 40 digits, exact rationals and closed forms."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax.ctmc.transient import STEP, accumulated_reward, first_passage_moments, transient
from hetjax.result import Status

CHAINS = {
    "birth-death": np.diag(np.full(7, 0.9), 1) + np.diag(np.ones(7), -1),
    "nearly decomposable": np.array([[0, 1, 0, 0], [1, 0, 1e-6, 0], [0, 1e-7, 0, 2], [0, 0, 3.0, 0]]),
    "absorbing": np.array([[0, 1, 1e-6], [2, 0, 0], [0, 0, 0.0]]),
    "stiff": np.array([[0, 1e4, 1e-3], [1.0, 0, 1], [1e-4, 5.0, 0]]),
}
solve = jax.jit(lambda Q, p0, t: transient(Q, p0, t))


passage = jax.jit(first_passage_moments, static_argnames="moments")


def start(n, dtype=np.float64):
    return jnp.zeros(n, dtype).at[0].set(1)


@functools.cache
def exponential(name, jumps):
    """exp(Qt) and its integral at q t = jumps, 40 digits, by the block matrix [[Q, I], [0, 0]]."""
    Q = CHAINS[name]
    n, t = len(Q), mp.mpf(float(jumps / Q.sum(1).max()))
    with mp.workdps(40):
        M = mp.zeros(2 * n, 2 * n)
        for i in range(n):
            M[i, n + i] = t
            for j in range(n):
                if i != j:
                    M[i, j] += mp.mpf(float(Q[i, j])) * t
                    M[i, i] -= mp.mpf(float(Q[i, j])) * t
        E = mp.expm(M)
        return [E[0, j] for j in range(n)], [E[0, n + j] for j in range(n)]


@pytest.mark.parametrize("jumps", [1e-3, 1.0, STEP, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("name", list(CHAINS))
def test_against_forty_digits(name, jumps):
    Q = CHAINS[name]
    answer = solve(jnp.asarray(Q), start(len(Q)), jnp.asarray(jumps / Q.sum(1).max()))
    law, time = exponential(name, jumps)
    for found, exact in ((answer.value.probabilities, law), (answer.value.occupancy, time)):
        for value, reference in zip(found, exact, strict=True):
            if reference > 1e-25:  # smaller ones are lost to the oracle's 40 digits at q t = 1e6
                assert abs(mp.mpf(float(value)) / reference - 1) < 1e-14
    assert int(answer.status) == Status.OK
    assert float(answer.residual) < 1e-14


def test_one_jump_ahead_of_the_next_step_is_continuous():
    """t just below and just above a multiple of the step use different powers: the values must agree."""
    Q = jnp.asarray(CHAINS["birth-death"])
    h = STEP / float(Q.sum(1).max())
    for k in (1, 7, 1024):
        times = jnp.asarray([np.nextafter(k * h, 0), np.nextafter(k * h, 1e9)])
        low, high = solve(Q, start(8), times).value.probabilities
        np.testing.assert_allclose(low, high, rtol=2e-14)


@given(st.floats(-3, 5), st.floats(-2, 2))
@settings(max_examples=40)
def test_two_states_in_closed_form(log_t, log_ratio):
    up, down, t = 1.0, 10.0**log_ratio, 10.0**log_t
    answer = solve(jnp.array([[0, up], [down, 0]]), start(2), jnp.asarray(t))
    total = up + down
    np.testing.assert_allclose(answer.value.probabilities[1], -up / total * np.expm1(-total * t), rtol=2e-14)


def test_chapman_kolmogorov_and_long_run():
    Q = jnp.asarray(CHAINS["birth-death"])
    half = solve(Q, start(8), jnp.asarray(3.7)).value.probabilities
    np.testing.assert_allclose(solve(Q, half, jnp.asarray(5.1)).value.probabilities,
                               solve(Q, start(8), jnp.asarray(8.8)).value.probabilities, rtol=1e-14)
    law = 0.9 ** np.arange(8) / np.sum(0.9 ** np.arange(8))
    np.testing.assert_allclose(solve(Q, start(8), jnp.asarray(5e5)).value.probabilities, law, rtol=1e-14)


def test_vmap_over_times_and_parameters_is_the_loop():
    times = jnp.asarray([[0.0, 0.3], [2.0, 1e4]])
    rates = jnp.asarray([0.5, 1.0, 2.0])

    def chain(rate):
        return transient(jnp.array([[0.0, 1.0], [1.0, 0.0]]) * rate, start(2), times)

    batch = jax.jit(jax.vmap(chain))(rates)
    assert batch.value.probabilities.shape == (3, 2, 2, 2) and batch.status.shape == (3, 2, 2)
    for i, rate in enumerate(rates):
        one = chain(rate)
        np.testing.assert_allclose(batch.value.probabilities[i], one.value.probabilities, rtol=1e-14)
        for a, b in np.ndindex(2, 2):
            single = solve(jnp.array([[0.0, 1.0], [1.0, 0.0]]) * rate, start(2), times[a, b])
            np.testing.assert_allclose(one.value.probabilities[a, b], single.value.probabilities, rtol=1e-14)


@pytest.mark.parametrize("t", [0.0, 0.7, 40.0, 1e4])
def test_time_derivative_is_p_times_Q(t):
    Q = jnp.asarray(CHAINS["nearly decomposable"])
    full = Q - jnp.diag(Q.sum(1))
    law = jax.jit(lambda t: transient(Q, start(4), t).value)
    slope = jax.jit(jax.jacfwd(law))(jnp.asarray(t))
    np.testing.assert_allclose(slope.probabilities, law(t).probabilities @ full, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(slope.occupancy, law(t).probabilities, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(jax.jacrev(law)(jnp.asarray(t)).probabilities, slope.probabilities, atol=1e-15)


@pytest.mark.parametrize("t", [0.3, 25.0, 3e4])
def test_rate_derivatives_against_forty_digits(t):
    """Two states, P(other at t) = up/s (1 - e^{-st}), s = up + down, in both rates and both modes."""
    def law_oracle(up, down):
        return -up / (up + down) * mp.expm1(-(up + down) * t)

    with mp.workdps(40):
        exact = [mp.diff(law_oracle, (1.3, 0.4), order) for order in ((1, 0), (0, 1))]
    def build(up, down):
        zero = jnp.zeros_like(up)
        Q = jnp.stack([jnp.stack([zero, up]), jnp.stack([down, zero])])
        return transient(Q, start(2), t).value.probabilities[1]

    for mode in (jax.jacfwd, jax.jacrev):
        found = jax.jit(mode(build, argnums=(0, 1)))(jnp.asarray(1.3), jnp.asarray(0.4))
        for value, reference in zip(found, exact, strict=True):
            np.testing.assert_allclose(float(value), float(reference), rtol=1e-12)


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
def test_second_time_derivative_is_p_times_Q_squared(outer):
    Q = jnp.asarray(CHAINS["stiff"])
    full = Q - jnp.diag(Q.sum(1))

    def law(t):
        return transient(Q, start(3), t).value.probabilities

    t = jnp.asarray(2.3e-3)
    np.testing.assert_allclose(jax.jit(outer(jax.jacfwd(law)))(t), law(t) @ full @ full, rtol=1e-12)


@pytest.mark.parametrize("name", list(CHAINS))
def test_float32(name):
    Q = CHAINS[name]
    times = np.array([0.1, 3.0, 100.0, 2e5]) / Q.sum(1).max()
    exact = solve(jnp.asarray(Q), start(len(Q)), jnp.asarray(np.float32(times), jnp.float64)).value
    found = solve(jnp.asarray(Q, jnp.float32), start(len(Q), np.float32), jnp.asarray(times, jnp.float32)).value
    assert found.probabilities.dtype == jnp.float32
    # q t = 2e5: the rounding of t and of the remainder t - k h count
    np.testing.assert_allclose(found.probabilities, exact.probabilities, atol=3e-6)
    np.testing.assert_allclose(found.occupancy, exact.occupancy, rtol=1e-4, atol=1e-6 * times[-1])


def test_accumulated_reward():
    Q = jnp.asarray(CHAINS["birth-death"])
    times = jnp.asarray([0.0, 1.0, 50.0])
    earn = jax.jit(accumulated_reward)
    answer = earn(Q, start(8), times, jnp.arange(8.0))
    np.testing.assert_allclose(earn(Q, start(8), times, jnp.ones(8)).value, times, rtol=1e-14)
    np.testing.assert_allclose(answer.value, solve(Q, start(8), times).value.occupancy @ np.arange(8.0), rtol=1e-15)
    # jumps counted by a rate reward: after a long time up-jumps and down-jumps differ by at most the buffer
    jumps = earn(Q, start(8), jnp.asarray(1e4), jnp.r_[jnp.full(7, 0.9), 0.0])
    back = earn(Q, start(8), jnp.asarray(1e4), jnp.r_[0.0, jnp.ones(7)])
    mean = float(solve(Q, start(8), jnp.asarray(1e4)).value.probabilities @ np.arange(8.0))
    np.testing.assert_allclose(jumps.value - back.value, mean, rtol=1e-9)


def exact_first_passage(Q, target):
    """E[T] by rational elimination."""
    rest = [i for i in range(len(Q)) if not target[i]]
    rows = [[(sum(Fraction(float(x)) for k, x in enumerate(Q[i]) if k != i) if i == j else -Fraction(float(Q[i][j])))
             for j in rest] + [Fraction(1)] for i in rest]
    for k in range(len(rest)):
        pivot = next(i for i in range(k, len(rest)) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(len(rest)):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return dict(zip(rest, (row[-1] for row in rows), strict=True))


@given(st.sampled_from([2, 6]), st.integers(0, 2**31), st.floats(-30, 0))
@settings(max_examples=40)
def test_first_passage_is_right_entry_by_entry_however_rare(n, seed, log_coupling):
    rng = np.random.default_rng(seed)
    Q = 10.0 ** rng.uniform(-3, 3, (n, n)) * np.where(rng.random((n, n)) < 0.3, 10.0**log_coupling, 1)
    target = np.arange(n) == rng.integers(n)
    answer = passage(jnp.asarray(Q), jnp.asarray(target))
    for i, exact in exact_first_passage(Q, target).items():
        assert abs(Fraction(float(answer.value[0, i])) / exact - 1) < Fraction(1, 10**14)
    assert (np.asarray(answer.status) == Status.OK).all()
    assert (np.asarray(answer.value)[:, target] == 0).all()


def test_first_passage_moments_of_an_erlang_time():
    n, rate = 5, 2.0
    answer = first_passage_moments(jnp.diag(jnp.full(n, rate), 1), jnp.arange(n + 1) == n, moments=4)
    expected = [np.prod(n + np.arange(k)) / rate**k for k in range(1, 5)]
    np.testing.assert_allclose(answer.value[:, 0], expected, rtol=1e-14)


def test_first_passage_of_a_single_server_queue_and_its_derivatives():
    """From 0 to K in M/M/1: sum_{j<K} (1 - x^(j+1)) / (1 - x) / lambda with x = mu/lambda."""
    def chain(up, down, K=6):
        ups, downs = jnp.full(K, 1.0) * up, jnp.full(K, 1.0) * down
        return first_passage_moments(jnp.diag(ups, 1) + jnp.diag(downs, -1), jnp.arange(K + 1) == K).value[0, 0]

    def formula(up, down, K=6):
        return sum(sum((down / up) ** i for i in range(j + 1)) for j in range(K)) / up

    at = (jnp.asarray(0.7), jnp.asarray(1.9))
    np.testing.assert_allclose(chain(*at), formula(*at), rtol=1e-14)
    for mode in (jax.jacfwd, jax.jacrev):
        found = jax.jit(mode(chain, argnums=(0, 1)))(*at)
        np.testing.assert_allclose(found, jax.grad(formula, argnums=(0, 1))(*at), rtol=1e-13)


def test_first_passage_where_the_target_may_be_missed():
    """0 <-> 1 -> 3 (target), but 1 -> 2 (trap): only the target itself is certain; 4 -> 3 is certain too."""
    Q = jnp.zeros((5, 5)).at[0, 1].set(1.0).at[1, 0].set(1.0).at[1, 3].set(1.0).at[1, 2].set(0.1).at[4, 3].set(2.0)
    answer = passage(Q, jnp.arange(5) == 3)
    assert np.asarray(answer.status).tolist() == [Status.UNSTABLE] * 3 + [Status.OK] * 2
    assert np.isposinf(answer.value[:, :3]).all()
    np.testing.assert_allclose(answer.value[:, 4], [0.5, 0.5])
    # a way out of the target does not matter
    np.testing.assert_allclose(passage(Q.at[3, 2].set(1.0), jnp.arange(5) == 3).value[0, 4], 0.5)


def test_bad_input_gives_status_codes():
    Q = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    times = jnp.array([1.0, -1.0, 1e9, jnp.nan, jnp.inf])
    answer = transient(Q, start(2), times)
    assert np.asarray(answer.status).tolist() == [Status.OK, Status.OUT_OF_DOMAIN, Status.OUT_OF_DOMAIN,
                                                 Status.NONFINITE, Status.OUT_OF_DOMAIN]
    assert np.isnan(answer.value.probabilities[1:]).all()
    one = jnp.asarray(1.0)
    assert int(transient(-Q, start(2), one).status) == Status.OUT_OF_DOMAIN
    assert int(transient(Q, start(2) * 2, one).status) == Status.OUT_OF_DOMAIN
    assert int(transient(Q.at[0, 1].set(jnp.nan), start(2), one).status) == Status.NONFINITE
    target = jnp.array([False, True])
    assert (np.asarray(first_passage_moments(-Q, target).status) == Status.OUT_OF_DOMAIN).all()
    assert int(first_passage_moments(Q.at[0, 1].set(jnp.nan), target).status[0]) == Status.NONFINITE


def test_wrong_shapes_raise():
    with pytest.raises(ValueError, match=r"Q has shape \(2, 3\); give a square matrix"):
        transient(jnp.zeros((2, 3)), jnp.zeros(2), 1.0)
    with pytest.raises(ValueError, match=r"has shape \(3,\), but Q has 2 states"):
        transient(jnp.zeros((2, 2)), jnp.zeros(3), 1.0)
    with pytest.raises(ValueError, match="give one boolean for each state"):
        first_passage_moments(jnp.zeros((2, 2)), jnp.zeros(2))
    with pytest.raises(ValueError, match="moments = 0 must be at least 1"):
        first_passage_moments(jnp.zeros((2, 2)), jnp.zeros(2, bool), moments=0)


def test_a_chain_without_transitions_stays():
    answer = transient(jnp.zeros((2, 2)), start(2), jnp.asarray([0.0, 5.0]))
    np.testing.assert_allclose(answer.value.probabilities, [[1, 0], [1, 0]], rtol=1e-15)
    np.testing.assert_allclose(answer.value.occupancy, [[0, 0], [5, 0]])
