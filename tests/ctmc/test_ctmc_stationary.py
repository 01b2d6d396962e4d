import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ctmc.exact_chains import exact_derivative, exact_stationary, precise_levels
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax import ctmc
from hetjax.result import Status

EPS = 2.0**-52
solve = jax.jit(ctmc.stationary)


def nearly_decomposable(n, coupling, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    Q = rng.random((n, n)) * (rng.random((n, n)) < 0.7)
    Q[np.arange(n), (np.arange(n) + 1) % n] += 0.1
    half = n // 2
    Q[:half, half:] *= coupling
    Q[half:, :half] *= coupling / 3
    return Q.astype(dtype)


@pytest.mark.parametrize("coupling", [1.0, 1e-14, 1e-30])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13, 21])
def test_every_entry_against_exact_rationals(n, coupling):
    Q = nearly_decomposable(n, coupling, n)
    solution = solve(jnp.asarray(Q))
    np.testing.assert_allclose(solution.value, np.array([float(p) for p in exact_stationary(Q)]), rtol=4 * n * EPS)
    assert solution.status == Status.OK and solution.residual < 4 * n * EPS


@pytest.mark.parametrize("coupling", [1.0, 1e-30])
def test_panels_of_a_large_chain(coupling):
    Q = nearly_decomposable(70, coupling, 70)  # above 32 states another form of the elimination is used
    solution = solve(jnp.asarray(Q))
    precise = precise_levels(np.zeros((1, 70)), Q[None], np.zeros((1, 70)))[0]
    np.testing.assert_allclose(np.log(solution.value), precise, atol=2e-14)


def test_float32_is_entrywise_accurate_too():
    Q = nearly_decomposable(8, 1e-14, 3, np.float32)
    law = solve(jnp.asarray(Q)).value
    assert law.dtype == jnp.float32
    np.testing.assert_allclose(law, np.array([float(p) for p in exact_stationary(Q)]), rtol=32 * 2.0**-23)


def test_diagonal_is_never_read_and_one_state():
    Q = jnp.asarray(nearly_decomposable(5, 1.0, 0))
    hidden = Q.at[jnp.arange(5), jnp.arange(5)].set(jnp.nan)
    assert np.array_equal(solve(Q).value, solve(hidden).value)
    assert ctmc.stationary(jnp.zeros((1, 1))).value[0] == 1


@pytest.mark.parametrize("n", [5, 70])
@pytest.mark.parametrize("start", [0, 1])
def test_transient_states_get_exact_zeros(n, start):
    """Chains that run into their last states: every state before them has pivot 0."""
    Q = np.zeros((n, n))
    Q[np.arange(n - 1), np.arange(1, n)] = 1.0
    Q[n - 1, n - 3] = 2.0
    if start:  # states 0 and 1 both go straight to the recurrent class and do not meet before
        Q[0] = Q[1] = 0
        Q[0, n - 1] = Q[1, n - 1] = 1
    solution = solve(jnp.asarray(Q))
    assert solution.status == Status.OK
    assert np.array_equal(solution.value[:n - 3], np.zeros(n - 3))
    np.testing.assert_allclose(solution.value[n - 3:], [0.4, 0.4, 0.2], rtol=1e-14)


@pytest.mark.parametrize("n", [3, 70])
def test_several_classes_and_bad_rates_get_a_status(n):
    Q = np.zeros((n, n))
    Q[0, 2] = 1.0
    Q[3:, 2] = 1.0  # states 1 and 2 absorb
    assert solve(jnp.asarray(Q)).status == Status.OUT_OF_DOMAIN
    assert solve(jnp.zeros((n, n))).status == Status.OUT_OF_DOMAIN
    good = nearly_decomposable(n, 1.0, 0)
    for bad in (-1.0, np.nan):
        Q = good.copy()
        Q[0, 1] = bad
        assert solve(jnp.asarray(Q)).status == Status.OUT_OF_DOMAIN


def test_a_law_that_leaves_the_range_is_flagged():
    """pi = (1, 1e400, 1e200): no float64 holds the measure."""
    Q = jnp.array([[0.0, 1e200, 0.0], [1e-200, 0.0, 1e-200], [0.0, 1.0, 0.0]])
    assert ctmc.stationary(Q).status == Status.NONFINITE


def test_wrong_shapes_raise():
    for Q in (jnp.ones((2, 3)), jnp.ones(3), jnp.ones((0, 0))):
        with pytest.raises(ValueError, match="square"):
            ctmc.stationary(Q)


@pytest.mark.parametrize("n", [3, 6])
def test_vmap_is_a_loop(n):
    batch = jnp.stack([jnp.asarray(nearly_decomposable(n, 1e-3, s)) for s in range(6)])
    together = jax.jit(jax.vmap(ctmc.stationary))(batch)
    alone = jnp.stack([solve(q).value for q in batch])
    np.testing.assert_allclose(together.value, alone, rtol=8 * EPS)
    nested = jax.jit(jax.vmap(jax.vmap(ctmc.stationary)))(batch.reshape(2, 3, n, n)).value
    assert np.array_equal(nested.reshape(6, n), together.value)
    fewer = jax.jit(jax.vmap(ctmc.stationary))(batch[:2]).value
    assert np.array_equal(fewer, together.value[:2])  # does not depend on the batch


@jax.jit
def derivatives(Q, dQ):
    """Along dQ, in all entries, and those of one probability in a batch."""
    def law(q):
        return ctmc.stationary(q).value

    one = jax.vmap(jax.grad(lambda q: law(q)[2]))(Q[None])
    return jax.jvp(law, (Q,), (dQ,))[1], jax.jacrev(law)(Q), one[0]


@pytest.mark.parametrize("coupling", [1.0, 1e-14])
def test_derivatives_go_through_the_elimination(coupling):
    Q = nearly_decomposable(5, coupling, 4)
    dQ = np.zeros((5, 5))
    dQ[0, 1], dQ[1, 4], dQ[3, 2] = 0.5, coupling, 0.25
    exact = exact_derivative(Q, dQ)
    forward, jacobian, one = derivatives(jnp.asarray(Q), jnp.asarray(dQ))
    np.testing.assert_allclose(forward, exact, rtol=1e-12)  # dpi = pi dlog pi, a difference that loses a few digits
    np.testing.assert_allclose(jnp.einsum("kij,ij->k", jacobian, jnp.asarray(dQ)), exact, rtol=1e-11)
    np.testing.assert_allclose(one, jacobian[2], rtol=1e-12, atol=1e-13 * float(jnp.max(jnp.abs(jacobian[2]))))


def test_published_sensitivity(reference):
    table = reference("published")["ctmc_sensitivity"]
    Q, dQ = (jnp.asarray(table[k], float) for k in ("Q", "dQ"))
    pi, dpi = solve(Q).value, derivatives(Q, dQ)[0]
    np.testing.assert_allclose(pi, table["pi"], atol=6e-9)  # printed to 8 digits
    np.testing.assert_allclose(dpi, table["dpi"], atol=6e-9)


@settings(max_examples=40)
@given(st.sampled_from([2, 3, 5]), st.data())
def test_any_rates(n, data):
    rate = st.one_of(st.just(0.0), st.floats(-12, 12).map(lambda e: 10.0**e))
    Q = np.array(data.draw(st.lists(st.lists(rate, min_size=n, max_size=n), min_size=n, max_size=n)))
    np.fill_diagonal(Q, 0)
    solution = solve(jnp.asarray(Q))
    found = ctmc.classes(Q)
    if len(found.recurrent) > 1:
        assert solution.status == Status.OUT_OF_DOMAIN
        return
    assert solution.status == Status.OK
    members = list(found.recurrent[0])
    exact = np.zeros(n)
    exact[members] = [float(p) for p in exact_stationary(Q[np.ix_(members, members)])]
    np.testing.assert_allclose(solution.value, exact, rtol=1e-14)
