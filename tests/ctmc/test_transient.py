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

from hetjax.ctmc.transient import STEP, Transient, accumulated_reward, first_passage_moments, transient
from hetjax.result import Status

CHAINS = {
    "birth-death": np.diag(np.full(7, 0.9), 1) + np.diag(np.ones(7), -1),
    "nearly decomposable": np.array([[0, 1, 0, 0], [1, 0, 1e-6, 0], [0, 1e-7, 0, 2], [0, 0, 3.0, 0]]),
    "absorbing": np.array([[0, 1, 1e-6], [2, 0, 0], [0, 0, 0.0]]),
    "stiff": np.array([[0, 1e4, 1e-3], [1.0, 0, 1], [1e-4, 5.0, 0]]),
}
JUMPS = [1e-3, 1.0, STEP, 30.0, 1e3, 1e6]
solve, passage = jax.jit(transient), jax.jit(first_passage_moments, static_argnames="moments")


def start(n, dtype=np.float64):
    return jnp.zeros(n, dtype).at[0].set(1)


def padded(Q):
    """With absorbing states that cannot be reached up to eight states: one compilation serves all chains."""
    n = len(Q)
    full = np.zeros((8, 8))
    full[:n, :n] = Q
    return jnp.asarray(full)


def run(Q, times, p0=None):
    """(value, status, residual) at up to six times, on numpy arrays; the shapes compiled are always the same."""
    p0 = start(8, Q.dtype) if p0 is None else jnp.asarray(p0)
    answer = solve(Q, p0, jnp.asarray(np.resize(times, 6), Q.dtype))
    cut = [np.asarray(x)[:len(times)] for x in (*answer.value, answer.status, answer.residual)]
    return Transient(*cut[:2]), *cut[2:]


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


@pytest.mark.parametrize("name", list(CHAINS))
def test_against_forty_digits(name):
    Q = CHAINS[name]
    value, status, residual = run(padded(Q), np.array(JUMPS) / Q.sum(1).max())
    for i, jumps in enumerate(JUMPS):
        for found, exact in zip(value, exponential(name, jumps), strict=True):
            for entry, reference in zip(found[i, :len(Q)], exact, strict=True):
                if reference > 1e-25:  # smaller ones are lost to the oracle's 40 digits at q t = 1e6
                    assert abs(mp.mpf(float(entry)) / reference - 1) < 1e-14
            assert (found[i, len(Q):] == 0).all()
    assert (status == Status.OK).all() and (residual < 1e-14).all()


def test_one_jump_ahead_of_the_next_step_is_continuous():
    """t just below and just above a multiple of the step use different powers: the values must agree."""
    Q = padded(CHAINS["birth-death"])
    h = STEP / float(Q.sum(1).max())
    value, _, _ = run(Q, [np.nextafter(k * h, end) for end in (0, 1e9) for k in (1, 7, 1024)])
    np.testing.assert_allclose(value.probabilities[:3], value.probabilities[3:], rtol=2e-14)


@given(st.floats(-3, 5), st.floats(-2, 2))
@settings(max_examples=40)
def test_two_states_in_closed_form(log_t, log_ratio):
    up, down, t = 1.0, 10.0**log_ratio, 10.0**log_t
    value, _, _ = run(padded([[0, up], [down, 0]]), [t])
    total = up + down
    np.testing.assert_allclose(value.probabilities[0, 1], -up / total * np.expm1(-total * t), rtol=2e-14)


def test_chapman_kolmogorov_and_long_run():
    Q = padded(CHAINS["birth-death"])
    value, _, _ = run(Q, [3.7, 8.8, 5e5])
    half, whole, late = value.probabilities
    np.testing.assert_allclose(run(Q, [5.1], half)[0].probabilities[0], whole, rtol=1e-14)
    np.testing.assert_allclose(late, 0.9 ** np.arange(8) / np.sum(0.9 ** np.arange(8)), rtol=1e-14)


def test_vmap_over_times_and_parameters_is_the_loop():
    times = jnp.asarray([[0.0, 0.3], [2.0, 1e4]])
    rates = jnp.asarray([0.5, 1.0, 2.0])

    def chain(rate):
        return transient(jnp.array([[0.0, 1.0], [1.0, 0.0]]) * rate, start(2), times)

    batch, one = jax.jit(jax.vmap(chain))(rates), jax.jit(chain)
    assert batch.value.probabilities.shape == (3, 2, 2, 2) and batch.status.shape == (3, 2, 2)
    for i, rate in enumerate(rates):
        np.testing.assert_allclose(batch.value.probabilities[i], one(rate).value.probabilities, rtol=1e-14)
        flat, _, _ = run(padded([[0.0, float(rate)], [float(rate), 0.0]]), times.reshape(-1))
        np.testing.assert_allclose(batch.value.probabilities[i].reshape(4, 2), flat.probabilities[:, :2], rtol=1e-14)


def test_time_derivative_is_p_times_Q():
    chain = CHAINS["nearly decomposable"]
    Q, full = jnp.asarray(chain), chain - np.diag(chain.sum(1))
    times = [0.0, 0.7, 40.0, 1e4]
    law, _, _ = run(padded(chain), times)
    forward, reverse = (jax.jit(mode(lambda t: transient(Q, start(4), t).value)) for mode in (jax.jacfwd, jax.jacrev))
    for t, p in zip(times, law.probabilities[:, :4], strict=True):
        slope = forward(jnp.asarray(t))
        np.testing.assert_allclose(slope.probabilities, p @ full, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(slope.occupancy, p, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(reverse(jnp.asarray(t)).probabilities, slope.probabilities, atol=1e-15)


def test_rate_derivatives_against_forty_digits():
    """Two states, P(other at t) = up/s (1 - e^{-st}), s = up + down, in both rates and both modes."""
    def build(up, down, t):
        zero = jnp.zeros_like(up)
        Q = jnp.stack([jnp.stack([zero, up]), jnp.stack([down, zero])])
        return transient(Q, start(2), t).value.probabilities[1]

    modes = [jax.jit(mode(build, argnums=(0, 1))) for mode in (jax.jacfwd, jax.jacrev)]
    for t in (0.3, 25.0, 3e4):
        with mp.workdps(40):
            exact = [mp.diff(lambda up, down, t=t: -up / (up + down) * mp.expm1(-(up + down) * t), (1.3, 0.4), order)
                     for order in ((1, 0), (0, 1))]
        for mode in modes:
            found = mode(jnp.asarray(1.3), jnp.asarray(0.4), jnp.asarray(t))
            for value, reference in zip(found, exact, strict=True):
                np.testing.assert_allclose(float(value), float(reference), rtol=1e-12)


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
def test_second_time_derivative_is_p_times_Q_squared(outer):
    chain, t = CHAINS["birth-death"], 9.5
    Q, full = jnp.asarray(chain), chain - np.diag(chain.sum(1))
    law, _, _ = run(padded(chain), [t])
    found = jax.jit(outer(jax.jacfwd(lambda t: transient(Q, start(8), t).value.probabilities)))(jnp.asarray(t))
    # entries of p cancel: a few roundings times the square of the largest rate
    np.testing.assert_allclose(found, law.probabilities[0] @ full @ full, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", list(CHAINS))
def test_float32(name):
    Q = padded(CHAINS[name])
    times = np.float32(np.array([0.1, 3.0, 100.0, 2e5]) / CHAINS[name].sum(1).max())
    exact, _, _ = run(Q, times.astype(float))
    found, _, _ = run(Q.astype(jnp.float32), times)
    assert found.probabilities.dtype == found.occupancy.dtype == np.float32
    # q t = 2e5: the rounding of t and of the remainder t - k h count
    np.testing.assert_allclose(found.probabilities, exact.probabilities, atol=3e-6)
    np.testing.assert_allclose(found.occupancy, exact.occupancy, rtol=1e-4, atol=1e-6 * times[-1])


def test_accumulated_reward():
    Q, times = padded(CHAINS["birth-death"]), jnp.asarray([0.0, 1.0, 50.0, 1e4])
    earn = jax.jit(accumulated_reward)
    law, _, _ = run(Q, times)
    np.testing.assert_allclose(earn(Q, start(8), times, jnp.ones(8)).value, times, rtol=1e-14)
    np.testing.assert_allclose(earn(Q, start(8), times, jnp.arange(8.0)).value, law.occupancy @ np.arange(8.0),
                               rtol=1e-15)
    # jumps counted by a rate reward: after a long time up-jumps and down-jumps differ by at most the buffer
    jumps = earn(Q, start(8), times, jnp.r_[jnp.full(7, 0.9), 0.0]).value[-1]
    back = earn(Q, start(8), times, jnp.r_[0.0, jnp.ones(7)]).value[-1]
    np.testing.assert_allclose(jumps - back, law.probabilities[-1] @ np.arange(8.0), rtol=1e-9)


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
    answer = passage(jnp.diag(jnp.full(n, rate), 1), jnp.arange(n + 1) == n, moments=4)
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
    value, reverse = jax.jit(jax.value_and_grad(chain, argnums=(0, 1)))(*at)
    np.testing.assert_allclose(value, formula(*at), rtol=1e-14)
    slope = jax.jit(jax.grad(formula, argnums=(0, 1)))(*at)
    for found in (reverse, jax.jit(jax.jacfwd(chain, argnums=(0, 1)))(*at)):
        np.testing.assert_allclose(found, slope, rtol=1e-13)


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
    Q = padded([[0.0, 1.0], [1.0, 0.0]])
    value, status, _ = run(Q, [1.0, -1.0, 1e9, jnp.nan, jnp.inf])
    assert status.tolist() == [Status.OK, Status.OUT_OF_DOMAIN, Status.OUT_OF_DOMAIN, Status.NONFINITE,
                               Status.OUT_OF_DOMAIN]
    assert np.isnan(value.probabilities[1:]).all() and not np.isnan(value.probabilities[0]).any()
    assert run(-Q, [1.0])[1].tolist() == [Status.OUT_OF_DOMAIN]
    assert run(Q, [1.0], start(8) * 2)[1].tolist() == [Status.OUT_OF_DOMAIN]
    assert run(Q.at[0, 1].set(jnp.nan), [1.0])[1].tolist() == [Status.NONFINITE]
    Q, target = Q[:2, :2], jnp.array([False, True])
    assert (np.asarray(passage(-Q, target).status) == Status.OUT_OF_DOMAIN).all()
    assert int(passage(Q.at[0, 1].set(jnp.nan), target).status[0]) == Status.NONFINITE


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
    value, _, _ = run(padded([[0.0]]), [0.0, 5.0])
    np.testing.assert_allclose(value.probabilities, np.eye(8)[[0, 0]], rtol=1e-15)
    np.testing.assert_allclose(value.occupancy, np.outer([0, 5], np.eye(8)[0]), rtol=1e-15)
