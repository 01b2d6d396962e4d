"""The paper's own objects and expressions against exact rationals: what is misprinted, and where digits are lost."""

from fractions import Fraction
from functools import partial
from math import comb

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from exact_distribution import alternating_sums, balance_solution

from hetjax.models.stalling import Params, applications, empty_stuck_slow, mean_number, paper_objects, published
from hetjax.models.stalling import metrics as eager_metrics
from hetjax.numerics.erlang import erlang_c

metrics = jax.jit(eager_metrics)
compiled = jax.jit(partial(empty_stuck_slow, max_m=3, max_n=32))

POINTS = [(0.875, 3.0, 2, 3, 2, 3), (1.0, 2.0, 3, 2, 2, 1), (1.25, 4.0, 2, 5, 3, 2), (0.5, 2.0, 1, 4, 1, 1)]


ALL = [name for name in dir(published) if name.startswith(("published_p_", "published_mean_"))]


def values(point, corrected, names=ALL):
    """The published expressions by the name of the metric, compiled together."""
    q, r, K, M, m, n = point
    found = jax.jit(lambda q, r: {name.removeprefix("published_"): getattr(published, name)(
        Params(q, r, K, M, m, n), corrected=corrected) for name in names})(float(q), float(r))
    return {name: float(value) for name, value in found.items()}


def expectations(point):
    """Every characteristic of Table 1 as a sum over the exact law."""
    _, _, K, M, m, n = point
    law = balance_solution(*point)

    def mean(f):
        return sum(p * f(*state) for state, p in law.items())

    return {
        "p_full": law[m, n, K], "p_empty": law[0, 0, 0], "p_slow_only": law[0, n, 0],
        "p_stuck": mean(lambda i, j, k: i == 0 and j > 0), "mean_stuck": mean(lambda i, j, k: j * (i == 0)),
        "p_slow": mean(lambda i, j, k: j > 0), "mean_slow": mean(lambda i, j, k: j),
        "p_fast": mean(lambda i, j, k: i > 0), "mean_fast": mean(lambda i, j, k: i),
        "p_stalling": mean(lambda i, j, k: k > 0), "mean_stalled": mean(lambda i, j, k: min(k, K)),
        "p_wait": mean(lambda i, j, k: k > K), "mean_waiting": mean(lambda i, j, k: max(k - K, 0)),
        "p_loss": law[m, n, K + M], "mean_number": mean(lambda i, j, k: i + j + k)}


@pytest.mark.parametrize("point", POINTS)
def test_corrected_expressions_are_exact(point):
    found, expected = values(point, corrected=True), expectations(point)
    assert set(found) == set(expected)
    for name, exact in expected.items():
        assert found[name] == pytest.approx(float(exact), rel=1e-12), name  # 1 / (1 - q)^2 costs digits


@pytest.mark.parametrize("point", POINTS)
def test_equation_6_is_right(point):
    _, _, K, _, _, _ = point
    found = published.published_state_probabilities(Params(*point), corrected=True)
    for (i, j, k), p in balance_solution(*point).items():
        value = found.levels[i + k, j] if k <= K else found.waiting[k - K]
        assert float(value) == pytest.approx(float(p), rel=1e-12)


def test_misprints():
    """C_1 spoils everything where q != 1 and K != M; elsewhere N_stalling and N-bar have misprints of their own."""
    def wrong(point):
        found = values(point, corrected=False)
        return {name for name, p in expectations(point).items() if abs(found[name] / float(p) - 1) > 1e-3}

    assert wrong(POINTS[0]) == {name.removeprefix("published_") for name in ALL}
    assert wrong(POINTS[1]) == {"mean_number"}  # q = 1: C_1 is printed rightly, sum s = sum (K - s)
    assert wrong((1.25, 4.0, 2, 2, 3, 2)) == {"mean_stalled", "mean_number"}  # K = M hides C_1's misprint


@pytest.mark.parametrize(("axis", "points", "worst"), [
    ("n", [(1.25, 30.0, 3, 4, 3, n) for n in (2, 8, 16, 32)], 1e-7),
    ("r", [(1.25, 10.0**e, 3, 4, 3, 6) for e in (0, 2, 4, 6)], 1e3)])
def test_where_the_alternating_sums_lose_their_digits(axis, points, worst):
    """P_{0,0,0} as the paper has it has fewer digits the larger n and r, at last none; the library keeps them all."""
    names = ("p_empty", "p_stuck", "p_slow")
    errors = []
    for point in points:
        exact = alternating_sums(*point, digits=200)
        theirs = values(point, True, [f"published_{name}" for name in names])
        ours = compiled(*(jnp.asarray(float(x)) for x in point[:4]), *point[4:])
        errors.append([abs(float(theirs[name] / exact[name] - 1)) for name in names])
        for name, value in zip(names, ours, strict=True):
            assert abs(float(value) / exact[name] - 1) < 1e-13, (name, axis)
    empty = [e[0] for e in errors]
    assert empty[0] < 1e-12 and empty == sorted(empty) and empty[-1] > worst, empty
    assert max(errors[-1][1:]) > 10 * max(errors[0][1:]), errors  # P_stuck and P_slow lose some too


def test_one_minus_loses_small_probabilities():
    point = (2.0**-12, 4.0, 3, 2, 2, 2)
    exact, found, ours = expectations(point), values(point, corrected=True), metrics(Params(*point))
    for name in ("p_slow", "p_stalling"):
        assert abs(found[name] / float(exact[name]) - 1) > 1e-9, name
        assert float(getattr(ours, name)) == pytest.approx(float(exact[name]), rel=1e-13), name


def test_mean_number_loses_digits_near_load_one_only():
    errors = []
    for q in (0.5, 1 - 2.0**-10, 1 - 2.0**-20):
        point = (q, 10.0, 5, 7, 3, 2)
        exact = sum(p * sum(state) for state, p in balance_solution(*point).items())
        errors.append(abs(values(point, True, ["published_mean_number"])["mean_number"] / float(exact) - 1))
        assert float(mean_number(Params(*point))) == pytest.approx(float(exact), rel=1e-14)
    assert errors[0] < 1e-13 and errors[2] > 1e-8 and errors[0] < errors[1] < errors[2]


# ---- the paper's objects

@pytest.mark.parametrize("point", POINTS)
def test_polynomials_and_moments_are_those_of_the_law(point):
    """A, h and R by definitions (3)-(5) from the exact law, for levels with their line left out."""
    _, _, K, _, m, n = point
    law, p = balance_solution(*point), Params(*point)
    R = [[sum(comb(s, j) * law[min(i, m), s, max(i - m, 0)] for s in range(j, n + 1)) for j in range(n + 1)]
         for i in range(m + K + 1)]
    A, h = paper_objects.level_polynomials(p), paper_objects.moment_ratios(p)
    by_definition = [[float(x / y) for x, y in zip(row, R[0], strict=True)] for row in R]
    np.testing.assert_allclose(A[:-1], by_definition, rtol=1e-13)
    np.testing.assert_allclose(h, [float(x / R[-1][n]) for x in R[-1]], rtol=1e-13)
    np.testing.assert_allclose(paper_objects.binomial_moments(p), [[float(x) for x in row] for row in R], rtol=1e-13)
    # A_{m+K+1} by Lemma A2 solved for it
    q = Fraction(point[0])
    for j in range(1, n + 1):
        ratio = (R[-1][j - 1] / R[-1][n] - comb(n, j - 1)) / (R[-1][j] / R[-1][n]) + 1
        assert float(A[-1, j] / A[-2, j]) == pytest.approx(float(q * ratio), rel=1e-13)


@pytest.mark.parametrize("point", [*POINTS, (0.75, 20.0, 12, 0, 6, 4)])
def test_chebyshev_form(point):
    p = Params(*point)
    # b alternates in sign: about m digits of bits are lost
    np.testing.assert_allclose(paper_objects.chebyshev_polynomials(p), paper_objects.level_polynomials(p), rtol=1e-11)
    b = np.asarray(paper_objects.chebyshev_coefficients(p))
    assert (np.triu(b, 1) == 0).all() and (b[:, 0] > 0).all() and b[0, 0] == 1
    q, m = Fraction(point[0]), point[4]
    exact = [[Fraction(int(i == s == 0)) for s in range(b.shape[0])] for i in range(b.shape[0])]
    for i in range(1, b.shape[0]):
        for s in range(i + 1):
            def at(i, s):
                return exact[i][s] if i >= 0 and s >= 0 else Fraction(0)
            exact[i][s] = (m * at(i - 1, s) - (m - min(i - 1, m)) * at(i - 1, s - 1)
                           + m * q * (at(i - 1, s - 2) - at(i - 2, s - 2))) / min(i, m)
    np.testing.assert_allclose(b, [[float(x) for x in row] for row in exact], rtol=1e-12, atol=1e-12 * np.abs(b).max())


def test_characteristic_roots():
    q, r, m = 0.75, 1e9, 3
    z, t = paper_objects.characteristic_roots(Params(q, r, 1, 1, m, 2))
    with mpmath.workdps(40):
        for j in range(3):
            s = mpmath.mpf(q) + 1 + mpmath.mpf(j) / (m * r)
            root = mpmath.sqrt(s**2 - 4 * mpmath.mpf(q))
            assert float(z[j]) == pytest.approx(float((s + root) / 2), rel=1e-15)
            assert float(t[j]) == pytest.approx(float((s - root) / 2), rel=1e-15)
            assert float(z[j] + t[j]) == pytest.approx(q + 1 + j / (m * r), rel=1e-15)  # not q + 1 + j / r


def test_corollary_of_lemma_a3():
    errors = []
    for K in (0, 5, 10, 20):
        p = Params(0.5, 2.0, K, 1, 2, 2)
        A = np.asarray(paper_objects.level_polynomials(p))
        errors.append((A[:-1, 1].sum() / A[-2, 1] - float(paper_objects.corollary_level_sum(p)),
                       np.abs(A[-1] / A[-2] - np.asarray(paper_objects.corollary_growth(p)))[1:].max()))
    sums, growth = np.abs(np.array(errors)).T
    assert (sums[1:] < sums[:-1]).all() and (growth[1:] < growth[:-1]).all()
    assert sums[-1] < 0.5**20 * sums[0] and growth[-1] < 0.5**20 * growth[0]
    z = paper_objects.characteristic_roots(Params(0.5, 2.0, 0, 1, 2, 2))[0][1]
    assert float(paper_objects.corollary_level_sum(p)) == pytest.approx(float(z / (z - 1)), rel=1e-14)


@pytest.mark.parametrize("point", [*POINTS, (2.0**-20, 8.0, 4, 3, 7, 1)])
def test_weights_and_sums_against_rationals(point):
    q, r, K, M, m, n = (Fraction(x) if isinstance(x, float) else x for x in point)
    p, b = Params(*point), Fraction(point[0]) * point[4]
    terms = [Fraction(1)]
    for s in range(1, m + 1):
        terms.append(terms[-1] * b / s)
    p1 = terms[m] / sum(terms[:m])
    rho = q / (1 + Fraction(n) / (m * r))
    exact = {"p1": p1, "p2": p1 / (1 - q + p1), "C1": sum(q**s for s in range(K + 1)),
             "C2": sum(s * q**s for s in range(K + 1)), "S1": sum(rho**s for s in range(1, M + 1)),
             "S2": sum(s * rho**s for s in range(1, M + 1))}
    for name, value in exact.items():
        assert float(getattr(paper_objects, name)(p)) == pytest.approx(float(value), rel=1e-12), name


def test_p2_is_erlang_c():
    p = Params(0.75124, 6.959, 4, 3, 5, 2)
    assert float(paper_objects.p2(p)) == pytest.approx(float(erlang_c(p.q * 5, 5)), rel=1e-14)
    assert float(paper_objects.p2(p)) == pytest.approx(applications.TABLE_2_MISLABELLED["P_0"][0], abs=5e-4)


def test_whole_numbers_are_asked_for():
    with pytest.raises(ValueError, match=r"K = 0\.5 gives array shapes"):
        published.published_p_stuck(Params(0.5, 2.0, 0.5, 1, 1, 1))


# ---- section 4

def test_table_2():
    inputs, printed = applications.TABLE_2_PRINTED_INPUTS, applications.TABLE_2_PRINTED_OUTPUTS
    # the printed rates give neither the printed q nor the printed r
    assert abs(inputs["arrival_rate"] / (inputs["m"] * inputs["mu1"]) - inputs["q"]) > 0.04
    assert inputs["mu1"] / inputs["mu2"] < inputs["r"] / 2
    found = metrics(Params(**applications.TABLE_2_CONSISTENT_INPUTS))
    for name, value in printed.items():
        assert float(getattr(found, name)) == pytest.approx(value, abs=3e-4), name  # q itself is known to five digits


def test_server_performance():
    slow, fast = applications.SLOW_SERVER, applications.FAST_SERVER
    ratio = applications.performance_coefficient(**fast) / applications.performance_coefficient(**slow)
    assert ratio == pytest.approx(15.68, abs=0.005)
    assert 1190 / 171 == pytest.approx(applications.TABLE_2_PRINTED_INPUTS["r"], abs=5e-4)
    assert applications.iops_raid(57, 5, **applications.RAID5) == pytest.approx(slow["iops"], abs=0.5)
    assert applications.iops_raid(133, 7, **applications.RAID5) == pytest.approx(fast["iops"], abs=0.5)
    assert applications.iops_disk_published(7200, 13.4, 4.16) == 7200 * applications.iops_disk(13.4, 4.16)
    for call in (lambda: applications.iops_disk(0, 0), lambda: applications.iops_raid(57, 0),
                 lambda: applications.performance_coefficient(**{**slow, "memory_type": 0})):
        with pytest.raises(ValueError, match="give"):
            call()


def test_forest():
    forest = applications.FOREST
    assert forest.shape == (10, len(applications.FOREST_COLUMNS)) and not forest.flags.writeable
    for time, rate in ((1, 2), (3, 4)):  # rates are 1 / times, as far as printed
        low, high = 1 / (forest[:, time] + 5e-4) - 0.06, 1 / (forest[:, time] - 5e-4) + 0.06
        assert ((low < forest[:, rate]) & (forest[:, rate] < high)).all()
    harvester, chainsaw = forest[3, [2, 4]]  # .4 m3: the least n with rho < 1
    for optimum in applications.FOREST_OPTIMA:
        m, load, n = optimum["m"], optimum["arrival_rate"], optimum["n"]
        assert load < m * harvester + n * chainsaw and load >= m * harvester + (n - 1) * chainsaw
