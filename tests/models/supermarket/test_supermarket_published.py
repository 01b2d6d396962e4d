"""The paper's system and formula: where the formula solves its equations, and by how much not elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.models.supermarket import (
    Params,
    fixed_point,
    lipschitz_constant,
    published_fixed_point,
    published_ode,
    published_roots,
)
from hetjax.processes import erlang, exponential, hyperexponential, hyperexponential_balanced, mmpp, poisson

RATE = 0.7


def published(arrivals, service, d=2.0, levels=12):
    return published_fixed_point(arrivals.D0, arrivals.D1, service.alpha, service.T, d, levels)


def test_poisson_and_exponential():
    """The one case of common interest: formula, its equations and the mean field agree."""
    for d in (1.5, 2.0, 5.0):
        found = published(poisson(RATE), exponential(1.0), d)
        assert found.residual < 1e-15
        tails = fixed_point(Params(RATE, d, [1.0], [[-1.0]]), levels=12).value.tails
        np.testing.assert_allclose(found.value.pi[:, 0, 0], tails, rtol=1e-11, atol=1e-300)


def test_families_for_which_the_formula_solves_its_equations():
    for d in (2.0, 3.0):
        p = jnp.array([0.2, 0.8])
        rates = p ** (1 - 1 / d)
        assert published(poisson(RATE), hyperexponential(p, rates / rates.sum() * 4), d).residual < 1e-15
    # gamma and gamma D uniform: a cycle of phases, each with the same arrival rate
    uniform = mmpp([[0.0, 0.3], [0.3, 0.0]], [RATE, RATE])
    found = published(uniform, exponential(1.0))
    assert found.residual < 1e-15
    # and yet pi_1 e = theta^d rho, not the load
    assert float(found.value.pi[0].sum()) == pytest.approx(float(found.value.theta) ** 2 * RATE, rel=1e-14)
    assert float(found.value.pi[0].sum()) == pytest.approx(RATE / 2, rel=1e-14)


@pytest.mark.parametrize(("name", "arrivals", "service", "least"), [
    ("M/E2", poisson(RATE), erlang(2, 2.0), 1.9),
    ("M/H2", poisson(RATE), hyperexponential_balanced(1.0, 2.0), 0.2),
    ("MMPP/M", mmpp([[0.0, 0.5], [0.5, 0.0]], [0.2, 1.2]), exponential(1.0), 0.1),
])
def test_the_formula_fails_elsewhere(name, arrivals, service, least):
    assert published(arrivals, service).residual > least


def test_decomposition():
    """The corollary: pi_k is the outer product of an arrival factor and a service factor."""
    arrivals = mmpp([[0.0, 0.5], [0.2, 0.0]], [0.2, 1.2])
    found = published(arrivals, hyperexponential_balanced(1.0, 2.0), 2.5, levels=4).value
    product = np.exp(found.log_arrival_factor)[:, :, None] * np.exp(found.log_service_factor)[:, None, :]
    np.testing.assert_allclose(found.pi, product, rtol=1e-13)
    for k in range(4):
        assert np.linalg.matrix_rank(np.asarray(found.pi[k]), tol=1e-12 * float(found.pi[k].max())) == 1


@pytest.mark.parametrize(("service", "known"), [
    (erlang(2, 2.0), (0.742875, 0.154206748041, 0.005592122017)),
    (hyperexponential_balanced(1.0, 2.0), (0.654893679132, 0.184576226818, 0.025281605756)),
], ids=["E2", "H2"])
def test_the_one_root_of_the_published_equations(service, known):
    """All starts lead to one root; it is neither the formula nor the mean field, whose u_1 is the load."""
    roots, hits = published_roots([[-RATE]], [[RATE]], service.alpha, service.T, 2.0, levels=6, starts=24)
    assert len(roots) == 1 and hits.sum() >= 20
    u = roots[0, 1:].reshape(-1, 2).sum(1)
    np.testing.assert_allclose(u[:3], known, rtol=1e-10)
    assert roots[0, 0] == pytest.approx(1, rel=1e-12)
    if service.T[0, 1] > 0:
        assert u[0] == pytest.approx(RATE + RATE**3 / 8, rel=1e-12)
    assert abs(u[0] - RATE) > 0.04
    S = jnp.asarray(roots[0, 1:]).reshape(-1, 1, 2)
    left, right, _ = published_ode([[-RATE]], [[RATE]], service.alpha, service.T, 2.0, roots[0, :1], S)
    assert float(jnp.abs(left).max()) < 1e-11 and float(jnp.abs(right).max()) < 1e-11


def test_the_published_ode_conserves_what_it_should_not():
    """d/dt sum_k S_k e = 0 for any S that ends before the last level: (6) and (7) to (9) contradict each other."""
    arrivals, service = mmpp([[0.0, 0.5], [0.2, 0.0]], [0.2, 1.2]), hyperexponential_balanced(1.0, 2.0)
    key = jax.random.key(0)
    S_0, S = jax.random.uniform(key, (2,)), jax.random.uniform(key, (6, 2, 2)) * jnp.logspace(0, -5, 6)[:, None, None]
    S = S.at[-1].set(0)
    left, right, _ = published_ode(arrivals.D0, arrivals.D1, service.alpha, service.T, 2.0, S_0, S)
    flow_out = jnp.sum((S[-2] ** 2).T @ arrivals.D1)
    total = left.sum() + right[:-1].sum() + right[-1].sum()
    assert float(total) == pytest.approx(0, abs=1e-15)
    assert float(flow_out) > 0  # what entered the last level stays in the sum


def test_lipschitz_constant():
    """Jacobians in the sum norm never exceed it, and reach it at S = 1."""
    arrivals, service = mmpp([[0.0, 0.5], [0.2, 0.0]], [0.2, 1.2]), hyperexponential_balanced(1.0, 2.0)
    bound = float(lipschitz_constant(arrivals.D0, service.T, 2.5))

    def flat(x):
        S = x[2:].reshape(5, 2, 2)
        left, right, _ = published_ode(arrivals.D0, arrivals.D1, service.alpha, service.T, 2.5, x[:2], S)
        return jnp.concatenate([left, right.reshape(-1)])

    @jax.jit
    def norm(x):
        return jnp.abs(jax.jacfwd(flat)(x)).sum(0).max()

    for seed in range(5):
        assert norm(jax.random.uniform(jax.random.key(seed), (22,))) <= bound
    assert float(norm(jnp.ones(22))) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: published(poisson(RATE), exponential(1.0), 1.0), "d = 1.0"),
    (lambda: published(poisson(1.5), exponential(1.0)), "rho"),
    (lambda: published_fixed_point([[-1.0]], [[2.0]], [1.0], [[-1.0]], 2.0), "generator"),
])
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()
