import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax import control
from hetjax.result import Status

STATES, ACTIONS, PROBLEMS, DISCOUNT = 5, 3, 8, 0.3


@pytest.fixture(scope="module")
def problems():
    """Rates (problem, action, s, t), costs (problem, s, action) and feasible pairs; every chain is irreducible."""
    rng = np.random.default_rng(1)
    rates = rng.exponential(size=(PROBLEMS, ACTIONS, STATES, STATES))
    rates = rates * rng.choice([0.1, 1, 10], size=(PROBLEMS, 1, 1, 1))
    costs = rng.normal(size=(PROBLEMS, STATES, ACTIONS)) * 3
    feasible = rng.random((PROBLEMS, STATES, ACTIONS)) < 0.7
    feasible[:, range(STATES), rng.integers(ACTIONS, size=STATES)] = True
    return rates, costs, feasible


def every_policy(rates, costs, feasible):
    """All feasible policies (k, n), their average costs (k,) and discounted costs (k, n), by plain linear solves."""
    policies = np.array([p for p in itertools.product(range(ACTIONS), repeat=STATES)
                         if all(feasible[s, a] for s, a in enumerate(p))])
    s = np.arange(STATES)
    Q, c = rates[policies, s], costs[s, policies]
    Q = Q * (1 - np.eye(STATES))
    Q = Q - Q.sum(-1, keepdims=True) * np.eye(STATES)
    bordered = np.concatenate([Q[:, :, 1:], np.ones((len(Q), STATES, 1))], axis=2)
    law = np.linalg.solve(bordered.transpose(0, 2, 1), np.eye(STATES)[-1][None, :, None])[..., 0]
    discounted = np.linalg.solve(DISCOUNT * np.eye(STATES) - Q, c[..., None])[..., 0]
    return policies, (law * c).sum(1), discounted


def both_routes(rates, costs, feasible, tolerance=None):
    mdp = control.from_rates(rates, costs, feasible)
    return (control.policy_iteration(mdp), control.relative_value_iteration(mdp, tolerance),
            control.discounted_policy_iteration(mdp, DISCOUNT), control.value_iteration(mdp, DISCOUNT, tolerance))


def test_both_routes_find_the_best_of_all_policies(problems):
    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(both_routes))(*map(jnp.asarray, problems)))
    pi, rvi, dpi, vi = found
    assert all((f.status == Status.OK).all() for f in found)
    for k, problem in enumerate(zip(*problems, strict=True)):
        policies, gains, discounted = every_policy(*problem)
        best, least = gains.min(), discounted.min(0)
        np.testing.assert_allclose(pi.value.gain[k], best, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(dpi.value.values[k], least, rtol=1e-12, atol=1e-12)
        assert (policies[gains.argmin()] == pi.value.policy[k]).all()
        assert (pi.value.policy[k] == rvi.value.policy[k]).all()
        assert (dpi.value.policy[k] == vi.value.policy[k]).all()
        for f in (pi, rvi):  # rounding of the advantages: some eps times the values
            assert f.value.lower[k] - 1e-12 <= best <= f.value.upper[k] + 1e-12
            assert f.residual[k] <= 2e-9 * abs(best) + 1e-11
        for f in (dpi, vi):
            assert (f.value.lower[k] - 1e-11 <= least).all() and (least <= f.value.upper[k] + 1e-11).all()
        np.testing.assert_allclose(vi.value.values[k], least, rtol=0, atol=2e-9 * np.abs(least).max())


@pytest.mark.slow
def test_float32(problems):
    rates, costs, feasible = problems
    problem = rates.astype(np.float32), costs.astype(np.float32), feasible
    found = jax.jit(jax.vmap(lambda *x: both_routes(*x)[::3]))(*map(jnp.asarray, problem))
    pi, vi = jax.tree.map(np.asarray, found)
    assert all((f.status == Status.OK).all() for f in found) and pi.value.gain.dtype == jnp.float32
    for k, exact in enumerate(zip(*problem, strict=True)):
        _, gains, discounted = every_policy(*(x.astype(float) for x in exact[:2]), exact[2])
        np.testing.assert_allclose(pi.value.gain[k], gains.min(), rtol=1e-5, atol=1e-6)
        # atol: the tolerance of value iteration is relative to the largest value
        np.testing.assert_allclose(vi.value.values[k], discounted.min(0), rtol=1e-4, atol=3e-4)


def test_gradients_are_those_at_the_best_policy(problems):
    """Complex steps through a numpy solve of the best policy's chain: exact to rounding."""
    rates, costs, feasible = (x[0] for x in problems)
    rng = np.random.default_rng(2)
    d_rates, d_costs = rng.normal(size=rates.shape), rng.normal(size=costs.shape)

    def both(rates, costs, discount):
        mdp = control.from_rates(rates, costs, feasible)
        return control.policy_iteration(mdp).value.gain, control.discounted_policy_iteration(mdp, discount).value.values

    policies, gains, discounted = every_policy(rates, costs, feasible)
    one = np.array([True])
    exact = []
    for policy in (policies[gains.argmin()], policies[discounted.sum(1).argmin()]):
        only = np.zeros_like(feasible)
        only[np.arange(STATES), policy] = one
        exact.append(every_policy(rates + 1e-30j * d_rates, costs + 1e-30j * d_costs, only))
    expected = exact[0][1][0].imag * 1e30, exact[1][2][0].imag * 1e30
    point = jnp.asarray(rates), jnp.asarray(costs), jnp.asarray(DISCOUNT)
    backward = jax.jit(jax.jacrev(both, argnums=(0, 1, 2)))(*point)
    for (g_rates, g_costs, _), want in zip(backward, expected, strict=True):
        got = np.tensordot(g_rates, d_rates, 3) + np.tensordot(g_costs, d_costs, 2)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11)
    policy = policies[discounted.sum(1).argmin()]
    chain = rates[policy, np.arange(STATES)] * (1 - np.eye(STATES))
    inverse = np.linalg.inv(np.diag(chain.sum(1) + DISCOUNT) - chain)
    np.testing.assert_allclose(backward[1][2], -inverse @ discounted.min(0), rtol=1e-10)


def test_quantecon_agrees(problems):
    markov = pytest.importorskip("quantecon.markov")
    rates, costs, feasible = (x[0] for x in problems)
    best = control.discounted_policy_iteration(control.from_rates(rates, costs, feasible), DISCOUNT).value
    found = jax.tree.map(np.asarray, best)
    off = rates * (1 - np.eye(STATES))
    fastest = off.sum(2).max() * 1.1
    P = off / fastest
    P = P + (1 - P.sum(2))[:, :, None] * np.eye(STATES)
    R = np.where(feasible, -costs, -np.inf) / (fastest + DISCOUNT)
    solved = markov.DiscreteDP(R, P.transpose(1, 0, 2), fastest / (fastest + DISCOUNT)).solve(method="policy_iteration")
    np.testing.assert_allclose(found.values, -solved.v, rtol=1e-9)
    assert (found.policy == solved.sigma).all()


@pytest.mark.slow
def test_reducible_policies():
    """State 2 is transient under the best policy; an absorbing action makes two classes of another problem."""
    rates = np.zeros((2, 3, 3))
    rates[:, 0, 1] = rates[:, 1, 0] = rates[:, 2, 0] = 1
    rates[1, 0, 2] = 1  # action 1 visits state 2
    solve = jax.jit(lambda r, c: (control.policy_iteration(control.from_rates(r, c)),
                                  control.relative_value_iteration(control.from_rates(r, c), max_iterations=2000)))
    costs = np.array([[1.0, 0.5], [3.0, 3.0], [9.0, 9.0]])
    pi, rvi = solve(rates, costs)
    assert pi.status == rvi.status == Status.OK and pi.value.policy[0] == 0
    np.testing.assert_allclose([pi.value.gain, rvi.value.gain], 2.0, rtol=1e-8)
    np.testing.assert_allclose(pi.value.values[2] - pi.value.values[0], 7.0, rtol=1e-12)  # 9 - gain for one unit
    stuck = np.zeros((2, 3, 3))
    stuck[:, 2, 0] = 1  # states 0 and 1 are absorbing, with different costs
    pi, rvi = solve(stuck, costs)
    assert pi.status == Status.OUT_OF_DOMAIN and rvi.status == Status.NOT_CONVERGED
    assert rvi.value.lower <= 0.5 <= 3.0 <= rvi.value.upper + 1e-12


@pytest.mark.slow
def test_cap_and_illegal_numbers_have_statuses(problems):
    rates, costs, feasible = (jnp.asarray(x[0]) for x in problems)

    def run(rates, costs, discount):
        mdp = control.from_rates(rates, costs, feasible)
        average = control.relative_value_iteration(mdp, max_iterations=3)
        start = jnp.zeros(STATES, jnp.int32)
        return (average, control.value_iteration(mdp, discount, 1e-9, 3),
                control.policy_iteration(mdp, start, max_iterations=1))

    good = jnp.asarray(DISCOUNT)
    points = [(rates, costs, good), (-rates, costs, good), (rates, costs * jnp.nan, good), (rates, costs, -good)]
    batch = [jnp.stack(x) for x in zip(*points, strict=True)]
    rvi, vi, pi = jax.jit(jax.vmap(run))(*batch)
    bad, capped = Status.OUT_OF_DOMAIN, Status.NOT_CONVERGED
    assert rvi.status.tolist() == [capped, bad, bad, capped]
    assert vi.status.tolist() == [capped, bad, bad, bad]
    assert pi.status.tolist() == [capped, bad, bad, capped]
    _, gains, discounted = every_policy(*(np.asarray(x) for x in (rates, costs, feasible)))
    assert rvi.value.lower[0] <= gains.min() <= rvi.value.upper[0]
    assert (vi.value.lower[0] <= discounted.min(0)).all() and (discounted.min(0) <= vi.value.upper[0]).all()
    assert pi.value.lower[0] <= gains.min() <= pi.value.upper[0]


def chain(**change):
    """Two states, two actions."""
    given = {"rates": np.ones((2, 2, 2)), "costs": np.zeros((2, 2)), "feasible": None} | change
    return control.from_rates(*given.values())


def walk(step, shape=(3,), **more):
    return control.from_events([step], shape, 2, lambda s, a: 0.0, **more)


BAD = {
    r"rates = array of shape \(2, 2\)": lambda: chain(rates=np.ones((2, 2))),
    r"costs = array of shape \(3, 2\): must be \(states, actions\) \(2, 2\)": lambda: chain(costs=np.zeros((3, 2))),
    r"feasible = array of shape": lambda: chain(feasible=[True, False]),
    r"feasible: state 1 has no action": lambda: chain(feasible=[[True, True], [False, False]]),
    r"rate = -1 of state 0, action 0, event 1": lambda: chain(rates=-np.ones((2, 2, 2))),
    r"cost = inf in state 0, action 1": lambda: chain(costs=[[0.0, np.inf], [0.0, 0.0]]),
    r"next_state of state \(2,\), action 0, event 0 leaves the grid": lambda: walk(lambda s, a: ((s[0] + 1,), 1.0)),
    r"next_state = 2 coordinates: must be 1": lambda: walk(lambda s, a: ((s[0], s[0]), 1.0)),
    r"shape = \(0,\)": lambda: walk(lambda s, a: ((s[0],), 1.0), shape=(0,)),
    r"discount_rate = 0.0: must be positive": lambda: control.value_iteration(chain(), 0.0),
    r"discount_rate = array of shape \(2,\)": lambda: control.discounted_policy_iteration(chain(), [0.1, 0.2]),
    r"tolerance = 0: must be positive": lambda: control.relative_value_iteration(chain(), 0),
    r"start = array of shape \(3,\)": lambda: control.policy_iteration(chain(), [0, 0, 0]),
    r"start\[1\] = 7": lambda: control.policy_iteration(chain(), [0, 7]),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    with pytest.raises(ValueError, match=message) as error:
        BAD[message]()
    assert "\n" not in str(error.value)
