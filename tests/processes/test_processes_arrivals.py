"""Markovian arrival processes: rates and correlations against exact rationals, superposition, thinning, samples."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.processes import (
    MAP,
    PH,
    erlang,
    erlang_arrivals,
    exponential,
    hyperexponential_balanced,
    mmpp,
    poisson,
    renewal,
    superpose,
)

BURSTY = ([[-1.5, 0.5], [0.25, -8.25]], [[0.75, 0.25], [0.0, 8.0]])
CYCLE = ([[-4.0, 1.0, 0.0], [0.0, -2.0, 0.5], [0.25, 0.0, -1.0]],
         [[2.0, 0.0, 1.0], [1.5, 0.0, 0.0], [0.0, 0.5, 0.25]])


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def inverse(matrix):
    n = len(matrix)
    rows = [list(matrix[i]) + [Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    for k in range(n):
        best = next(i for i in range(k, n) if rows[i][k] != 0)
        rows[k], rows[best] = rows[best], rows[k]
        pivot = rows[k][k]
        rows[k] = [x / pivot for x in rows[k]]
        for i in range(n):
            if i != k:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows]


class Exact:
    """Rate, SCV and lag correlations in rationals, by powers of P = (-D0)^-1 D1."""

    def __init__(self, D0, D1):
        C, D = ([[Fraction(float(x)) for x in row] for row in M] for M in (D0, D1))
        n = len(C)
        Q = [[c + d for c, d in zip(x, y, strict=True)] for x, y in zip(C, D, strict=True)]
        system = [[Q[j][i] for j in range(n)] for i in range(n - 1)] + [[Fraction(1)] * n]
        gamma = [row[n - 1] for row in inverse(system)]
        self.gamma = gamma
        flow = product([gamma], D)
        self.rate = sum(flow[0])
        self.pi = [[x / self.rate for x in flow[0]]]
        self.M = inverse([[-x for x in row] for row in C])
        self.P = product(self.M, D)
        self.one = [[Fraction(1)] for _ in range(n)]
        self.mean = 1 / self.rate
        second = product(product(product(self.pi, self.M), self.M), self.one)[0][0] * 2
        self.variance = second - self.mean**2
        self.scv = self.variance / self.mean**2

    def correlation(self, lag):
        row = product(self.pi, self.M)
        for _ in range(lag):
            row = product(row, self.P)
        return (product(product(row, self.M), self.one)[0][0] - self.mean**2) / self.variance


@pytest.mark.parametrize("blocks", [BURSTY, CYCLE], ids=["bursty", "cycle"])
def test_against_rationals(blocks):
    arrivals, exact = MAP(*blocks), Exact(*blocks)
    np.testing.assert_allclose(arrivals.phase_law(), [float(g) for g in exact.gamma], rtol=1e-14)
    np.testing.assert_allclose(arrivals.arrival_phase_law(), [float(g) for g in exact.pi[0]], rtol=1e-14)
    assert float(arrivals.rate()) == pytest.approx(float(exact.rate), rel=1e-14)
    assert float(arrivals.scv()) == pytest.approx(float(exact.scv), rel=1e-13)
    assert float(arrivals.correlation(0)) == 1
    for lag in (1, 2, 5, 20):
        assert float(arrivals.correlation(lag)) == pytest.approx(float(exact.correlation(lag)), rel=1e-11)
    assert bool(arrivals.is_valid())
    assert abs(float(exact.correlation(20))) < 1e-4  # the case is one where centring matters


def test_a_process_made_in_a_compiled_function_is_valid():
    def valid(rate):
        return renewal(hyperexponential_balanced(1 / rate, 2.0)).is_valid()

    assert jnp.all(jax.jit(jax.vmap(valid))(jnp.linspace(0.45, 0.5, 64)))  # products fused into sums round once less


def test_renewal_processes_have_no_correlation():
    law = hyperexponential_balanced(0.5, 9.0)
    arrivals = renewal(law)
    assert float(arrivals.rate()) == pytest.approx(2, rel=1e-13)
    assert float(arrivals.scv()) == pytest.approx(9, rel=1e-13)
    assert abs(float(arrivals.correlation(1))) < 1e-15
    erlangian = erlang_arrivals(4, 3.0)
    assert float(erlangian.rate()) == pytest.approx(3, rel=1e-14)
    assert float(erlangian.scv()) == pytest.approx(0.25, rel=1e-13)
    np.testing.assert_allclose(erlangian.D0, renewal(erlang(4, 12.0)).D0)
    assert float(poisson(2.5).rate()) == 2.5 and float(poisson(2.5).scv()) == pytest.approx(1, abs=1e-15)


def test_superposition():
    both = superpose(MAP(*BURSTY), MAP(*CYCLE))
    assert both.phases == 6 and bool(both.is_valid())
    assert float(both.rate()) == pytest.approx(float(MAP(*BURSTY).rate() + MAP(*CYCLE).rate()), rel=1e-14)
    gamma = np.kron(MAP(*BURSTY).phase_law(), MAP(*CYCLE).phase_law())
    np.testing.assert_allclose(both.phase_law(), gamma, rtol=1e-13)
    exact = Exact(np.asarray(both.D0), np.asarray(both.D1))
    assert float(both.correlation(2)) == pytest.approx(float(exact.correlation(2)), rel=1e-11)
    two = superpose(poisson(1.0), poisson(2.0))
    assert float(two.D1[0, 0]) == 3 and float(two.D0[0, 0]) == -3


def test_thinning():
    kept = MAP(*BURSTY).thinned(0.25)
    assert float(kept.rate()) == pytest.approx(float(MAP(*BURSTY).rate()) / 4, rel=1e-14)
    exact = Exact(np.asarray(kept.D0), np.asarray(kept.D1))
    assert float(kept.scv()) == pytest.approx(float(exact.scv), rel=1e-13)
    # geometric sums of Exp(4) are exponential
    assert float(poisson(4.0).thinned(0.5).rate()) == 2
    whole = MAP(*BURSTY).thinned(1.0)
    np.testing.assert_array_equal(whole.D0, MAP(*BURSTY).D0)


def test_gradients():
    def burstiness(fast):
        return mmpp([[0.0, 1.0], [1.0, 0.0]], jnp.stack([jnp.ones_like(fast), fast])).scv()

    step = Fraction(1, 2**20)
    ends = [Exact([[-2.0, 1.0], [1.0, float(-10 - s)]], [[1.0, 0.0], [0.0, float(9 + s)]]).scv for s in (-step, step)]
    slope = float((ends[1] - ends[0]) / (2 * step))
    assert float(jax.grad(burstiness)(9.0)) == pytest.approx(slope, rel=1e-10)  # the difference errs by step^2
    assert float(jax.jacfwd(burstiness)(9.0)) == pytest.approx(slope, rel=1e-10)
    assert float(jax.grad(lambda r: MAP(*BURSTY).rescaled(r).rate())(2.0)) == pytest.approx(1, rel=1e-13)


def test_transformations_and_float32():
    speeds = jnp.array([1.0, 3.0, 9.0])
    many = jax.vmap(lambda fast: mmpp([[0.0, 1.0], [2.0, 0.0]], jnp.stack([jnp.ones_like(fast), fast])))(speeds)
    np.testing.assert_allclose(jax.jit(jax.vmap(MAP.rate))(many), (2 * 1 + speeds) / 3, rtol=1e-14)
    narrow = MAP(*(np.asarray(block, np.float32) for block in BURSTY))
    assert narrow.scv().dtype == jnp.float32 and narrow.correlation(2).dtype == jnp.float32
    assert float(narrow.correlation(2)) == pytest.approx(float(MAP(*BURSTY).correlation(2)), rel=2e-5)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: MAP([[-1.0]], [[2.0]]), "generator"),
    (lambda: MAP([[-1.0, -0.5], [0.0, -1.0]], [[1.5, 0.0], [0.0, 1.0]]), "D0"),
    (lambda: MAP([[-1.0, 2.0], [0.0, -1.0]], [[-1.0, 0.0], [0.0, 1.0]]), "D1"),
    (lambda: MAP([[-1.0, 1.0], [1.0, -1.0]], [[0.0, 0.0], [0.0, 0.0]]), "D1"),
    (lambda: MAP([[-1.0]], [[1.0, 0.0]]), "shapes"),
    (lambda: poisson(-1.0), "rate"),
    (lambda: mmpp([[0.0]], [1.0, 2.0]), "generator, rates"),
    (lambda: poisson(1.0).thinned(0.0), "keep"),
    (lambda: poisson(1.0).correlation(-1), "lag"),
])
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_rounding_in_a_compiled_program_makes_no_process_illegal():
    """Diagonal rates computed twice in one program, with and without a fused multiply-add, differed by 1e-17."""
    def legal(rate):
        service = PH(jnp.array([0.95, 0.05]), -jnp.diag(jnp.array([1.9, 0.1]) / (1 / rate)))
        return service.is_valid() & renewal(service).is_valid()

    rates = 1.2 * jnp.linspace(0.1, 0.9, 257)
    assert jnp.all(jax.jit(jax.vmap(legal))(rates))


def test_samples():
    """Mean, variance and lag-1 correlation within four standard errors (batch means, as samples are correlated)."""
    arrivals = MAP(*BURSTY)
    times, phases = jax.jit(lambda key: arrivals.sample(key, 64_000))(jax.random.key(3))
    x = np.asarray(times).reshape(64, 1000)

    def agrees(values, exact):
        means = values.mean(axis=1)
        return abs(means.mean() - exact) < 4 * means.std(ddof=1) / math.sqrt(len(means))

    mean, variance = 1 / float(arrivals.rate()), float(arrivals.scv()) / float(arrivals.rate()) ** 2
    assert agrees(x, mean)
    assert agrees((x - mean) ** 2, variance)
    assert agrees((x[:, 1:] - mean) * (x[:, :-1] - mean), float(arrivals.correlation(1)) * variance)
    assert agrees(np.asarray(phases == 0).reshape(64, 1000), float(arrivals.arrival_phase_law()[0]))
    law = exponential(1.0)
    assert float(law.rate()) == 1
