"""Whole and mixed optima against brute force over the whole box, for hundreds of random problems at a time."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax import OptimumStatus
from hetjax.optimize import Certificate, Options, Space, Variable, minimize, solve, variable
from hetjax.optimize.lattice import reach

RANDOM = np.random.default_rng(20240611)
BOX = Space((variable("i", range(-3, 9)), variable("j", range(15))))
POINTS = np.array(list(itertools.product(range(-3, 9), range(15))))


def solved(function, space, options, theta, dtype=jnp.float64):
    """``function(variables, theta)`` without constraints, over a batch of theta."""
    def one(theta):
        x, k = space.centre(dtype)
        return solve(lambda v: (function(v, theta), jnp.zeros(0, dtype)), space, options, x, k)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(theta))


def rugged(i, j, theta, cos):
    """A bowl, tilted and creased; with ripples for the first half of the problems, which so have several minima."""
    a, b, c, e, ripple = theta
    return a * (i - b) ** 2 + c * (j - e) ** 2 + 0.3 * (i - b) * (j - e) + ripple * cos(2.1 * i + 0.9 * j)


def coefficients(count):
    return np.stack([RANDOM.uniform(0.2, 2, count), RANDOM.uniform(-6, 11, count), RANDOM.uniform(0.2, 2, count),
                     RANDOM.uniform(-3, 17, count), np.where(np.arange(count) % 2, 0.0, RANDOM.uniform(0, 30, count))])


def test_400_random_boxes_against_brute_force():
    theta = coefficients(400)
    found = solved(lambda v, theta: rugged(v["i"], v["j"], theta, jnp.cos), BOX, Options(), tuple(theta))
    values = rugged(POINTS[:, :1], POINTS[:, 1:], theta[:, None, :], np.cos)  # (points, problems)
    order = np.sort(values, axis=0)
    assert (order[1] > order[0] * (1 + 1e-13) + 1e-13).all()  # random problems are not tied
    best = np.argmin(values, axis=0)
    np.testing.assert_array_equal(found.k, POINTS[best])
    np.testing.assert_allclose(found.value, order[0], rtol=1e-14, atol=1e-13)
    assert (found.certificate == Certificate.ENUMERATED).all() and (found.status == hetjax.Status.OK).all()
    grid = np.pad(values.reshape(12, 15, -1), ((1, 1), (1, 1), (0, 0)), constant_values=np.inf)
    around = np.stack([grid[1 + a:13 + a, 1 + b:16 + b] for a, b in itertools.product((-1, 0, 1), repeat=2)
                       if (a, b) != (0, 0)])
    minima = (grid[1:-1, 1:-1] < around.min(axis=0)).sum(axis=(0, 1))
    np.testing.assert_array_equal(found.minima, minima)
    edge = (POINTS[best] == [-3, 0]).any(axis=1) | (POINTS[best] == [8, 14]).any(axis=1)
    expected = np.where(minima > 1, OptimumStatus.MULTIMODAL, np.where(edge, OptimumStatus.EDGE,
                                                                       OptimumStatus.INTERIOR))
    np.testing.assert_array_equal(found.optimum_status, expected)
    assert {*expected} == {OptimumStatus.MULTIMODAL, OptimumStatus.EDGE, OptimumStatus.INTERIOR}
    row, column = (POINTS[best] - [-3, 0]).T
    problem = np.arange(theta.shape[1])
    for gap, a, b in ((found.gap_below[:, 0], -1, 0), (found.gap_above[:, 0], 1, 0), (found.gap_below[:, 1], 0, -1),
                      (found.gap_above[:, 1], 0, 1)):
        np.testing.assert_allclose(gap, grid[1 + row + a, 1 + column + b, problem] - order[0], rtol=1e-12, atol=1e-12)


def test_200_searches_in_boxes_too_large_to_enumerate():
    """Bowls (convex, as the certificate assumes) over 2000 x 3000 points; the best point is known from the real one."""
    space = Space((variable("i", range(-1000, 1000)), variable("j", range(3000))))
    count = 200
    theta = coefficients(count)
    theta[1], theta[3], theta[4] = RANDOM.uniform(-1100, 1100, count), RANDOM.uniform(-100, 3100, count), 0
    found = solved(lambda v, theta: rugged(v["i"], v["j"], theta, jnp.cos), space,
                   Options(enumerate_up_to=0, starts=3), tuple(theta))
    assert (found.certificate == Certificate.NEIGHBOURHOOD).all() and (found.minima == 1).all()
    for p in range(count):
        # for each i the best j is next to the vertex of a parabola: an exact route over 2000 rows
        i = np.arange(-1000, 1000)
        b, c, e = theta[1:4, p]
        vertex = np.clip(np.floor(e - 0.15 * (i - b) / c)[:, None] + [0, 1], 0, 2999)
        rows = rugged(i[:, None], vertex, theta[:, p], np.cos)
        assert found.value[p] <= rows.min() * (1 + 1e-13)
        at = np.unravel_index(rows.argmin(), rows.shape)
        assert (found.k[p] == (i[at[0]], vertex[at])).all()


def test_200_mixed_problems_against_brute_force():
    space = Space((variable("k", range(25)), variable("x", (0.0, 5.0)), Variable("n", 1, 3, "whole", relaxable=False)))

    def cost(v, theta):
        a, b, c, e = theta
        n = v["n"].astype(v["x"].dtype)
        return (v["x"] - a * v["k"] / n) ** 2 * b + c * (v["k"] - e) ** 2 + v["x"] + 0.7 * n

    theta = np.stack([RANDOM.uniform(0, 0.6, 200), RANDOM.uniform(0.3, 3, 200), RANDOM.uniform(0.01, 1, 200),
                      RANDOM.uniform(-5, 30, 200)])
    found = solved(cost, space, Options(starts=2), tuple(theta))
    k, n = (g.reshape(-1, 1) for g in np.meshgrid(np.arange(25.0), np.arange(1.0, 4), indexing="ij"))
    a, b, c, e = theta[:, None]
    x = np.clip(a * k / n - 1 / (2 * b), 0, 5)  # where the slope in x is 0
    values = (x - a * k / n) ** 2 * b + c * (k - e) ** 2 + x + 0.7 * n
    best = values.argmin(axis=0)
    np.testing.assert_allclose(found.value, values.min(axis=0), rtol=1e-13)
    np.testing.assert_array_equal(found.k, np.concatenate([k, n], axis=1)[best])
    np.testing.assert_allclose(found.x[:, 0], x[best, np.arange(200)], atol=1e-12)
    assert (found.status == hetjax.Status.OK).all() and (found.certificate == Certificate.ENUMERATED).all()
    at_end = (x[best, np.arange(200)] % 5 == 0) | (k[best, 0] % 24 == 0) | (n[best, 0] % 2 == 1)
    np.testing.assert_array_equal(found.optimum_status == OptimumStatus.EDGE, at_end)


def test_steps_keep_their_digits_where_values_are_tied():
    """1 + q^k (60.3 - k): the minimum is worth 1e-25 of the value; its place and steps still come out exactly."""
    q = 0.4
    best = minimize(lambda p: 1 + jnp.exp(p["k"] * jnp.log(q)) * (60.3 - p["k"]), {"k": 0}, bounds={"k": range(200)})
    exact = [q ** k * (60.3 - k) for k in range(200)]
    k = int(np.argmin(exact))
    assert best.design["k"] == k and best.optimum_status == OptimumStatus.FLAT and best.tied
    assert k == 61 and abs(exact[k]) < 1e-24
    # rounding of exp(62 ln q)
    np.testing.assert_allclose(best.gaps["k"], (exact[k - 1] - exact[k], exact[k + 1] - exact[k]), rtol=1e-11)


def test_ties_and_kinks_and_impossible_neighbours():
    tie = minimize(lambda p: (p["k"] - 7.5) ** 2, {"k": 3}, bounds={"k": range(30)})
    assert tie.design["k"] == 7 and tie.tied and tie.optimum_status == OptimumStatus.FLAT
    assert "as good within rounding" in str(tie)
    # the integral of a kinked function's slope is wrong: the plain difference is reported
    kink = minimize(lambda p: jnp.abs(p["k"] - 4.25) + jnp.where(p["k"] > 6, jnp.inf, 0), {"k": 1},
                    bounds={"k": range(9)})
    assert kink.design["k"] == 4 and kink.gaps["k"] == (pytest.approx(1.0), pytest.approx(0.5))
    edge = minimize(lambda p: jnp.where(p["k"] < 3, jnp.nan, p["k"]), {"k": 1}, bounds={"k": range(9)})
    assert edge.design["k"] == 3 and edge.gaps["k"][0] == np.inf and edge.status == hetjax.Status.OK


def test_whole_constraints_are_kept_exactly():
    best = minimize(lambda p: -3 * p["i"] - 2 * p["j"], {"i": 0, "j": 0}, bounds={"i": range(20), "j": range(20)},
                    constraints={"room": lambda p: 2 * p["i"] + 3 * p["j"] - 20.5, "few": lambda p: p["i"] - 6})
    box = [(3 * i + 2 * j, i, j) for i in range(7) for j in range(20) if 2 * i + 3 * j <= 20.5]
    assert (-best.value, *best.design.values()) == max(box)
    assert best.slack == {"room": pytest.approx(20.5 - 2 * best.design["i"] - 3 * best.design["j"]), "few": 0}
    none = minimize(lambda p: p["i"], {"i": 0}, bounds={"i": range(20)}, constraints={"no": lambda p: 30 - p["i"]})
    assert none.optimum_status == OptimumStatus.FAILED and none.status == hetjax.Status.NOT_CONVERGED
    assert none.certificate == Certificate.NONE and none.slack["no"] == -11  # the least violation


def test_the_cube_that_is_proved():
    assert [reach(Space(tuple(variable(f"v{i}", range(9)) for i in range(d)))) for d in (1, 2, 3, 4, 6)] == [
        16, 8, 4, 2, 1]
