"""The load above which slow servers pay, what they are worth and the cheapest park, by many digits and brute force."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from models.stalling.buffer_oracle import Oracle
from mpmath import mpf

import hetjax
from hetjax.models.stalling import least_servers, load_where_slow_servers_pay
from hetjax.result import Status

PAYS = ["pays_load", "best_load", "pays_load_i", "pays_load_ii_corrected", "error_pays_i", "error_best_i",
        "error_best_ii_printed", "error_best_ii_corrected"]
POINTS = 40


@pytest.fixture(autouse=True)
def many_digits():
    """Differences of the oracle's values are formed here."""
    with mpmath.workdps(120):
        yield


def sweep(model, metrics, dtype=np.float64, **axes):
    """A model on up to 40 points, m and n masked below common bounds: one compilation for all tests of a dtype."""
    count = max(np.size(v) for v in axes.values())
    full = {name: np.resize(np.asarray(v, dtype if name not in ("m", "n") else int), POINTS)
            for name, v in axes.items()}
    found = hetjax.evaluate(model, metrics=metrics, max_m=6, max_n=5, **full)
    return {name: np.asarray(found[name])[:count] for name in (*metrics, "status")}


def parks(seed, count):
    rng = np.random.default_rng(seed)
    return {"m": rng.integers(1, 7, count), "n": rng.integers(1, 6, count), "r": 10 ** rng.uniform(0.1, 3, count),
            "K": rng.choice([0.0, 1.0, 4.0, 20.0, 2.5], count)}


def saves(q, r, K, m, n):
    """N(never) - N(K) in 120 digits."""
    park = Oracle(q, r, math.inf, m, n, 120)
    return park.never() - park.number(K)


def test_load_that_pays_is_where_the_mean_numbers_cross():
    given = parks(1, 24)
    found = sweep("stalling_pays", PAYS, **given)
    inside = 0
    for q, r, K, m, n in zip(found["pays_load"], *(given[x].tolist() for x in ("r", "K", "m", "n")), strict=True):
        if m * r <= m + K + 1:
            assert q == 0
            continue
        inside += 1
        # condition of the root: N is known to eps, and its two values cross at an angle
        assert saves(mpf(q) * (1 - mpf("1e-12")), r, K, m, n) < 0 < saves(mpf(q) * (1 + mpf("1e-12")), r, K, m, n)
    assert inside > 12


def test_slow_servers_pay_on_one_side_of_the_load_only():
    given = parks(2, 12)
    found = sweep("stalling_pays", PAYS, **given)
    for q0, r, K, m, n in zip(found["pays_load"], *(given[x].tolist() for x in ("r", "K", "m", "n")), strict=True):
        for q in np.concatenate([np.geomspace(1e-4, 0.1, 4), np.linspace(0.15, 0.999, 14)]):
            assert (saves(q, r, K, m, n) > 0) == (q > q0)


def test_light_traffic_rule_at_its_border():
    r, m, K = 2.0, 4, 3.0  # m r = m + K + 1: a customer at the full buffer has nothing to choose
    eps = 1e-6
    found = sweep("stalling_pays", PAYS, r=[r * (1 - eps), r, r * (1 + eps)], K=K, m=m, n=2)["pays_load"]
    assert found[0] == 0 and found[1] < 1e-6 and 0 < found[2] < 1e-4


def test_best_load_is_where_the_slope_of_the_mean_number_vanishes():
    given = {"r": [20.0, 5.0, 100.0, 2.0, 400.0], "K": [10.0, 3.0, 50.0, 2.0, 200.0],
             "m": [5, 2, 5, 6, 1], "n": [2, 5, 1, 3, 4]}
    found = sweep("stalling_pays", PAYS, **given)["best_load"]
    assert np.isfinite(found).all()
    for q, r, K, m, n in zip(found, *given.values(), strict=True):
        slopes = [Oracle(mpf(q) * (1 + s * mpf("1e-11")), r, math.inf, m, n, 120).slope(K) for s in (-1, 1)]
        assert slopes[0] < 0 < slopes[1]


def test_loads_by_theorem_a2_converge_as_its_buffers_do():
    """At fixed load K0 is off by O(q^K) (i), by a constant (ii as printed), by O(1/r) (ii corrected); its slope in the
    load grows like r, so that the loads are off by 1/r times that."""
    r = np.array([50.0, 100.0, 200.0, 400.0])
    K = np.round(5 * 0.4 * (r - 1))
    found = sweep("stalling_pays", PAYS, r=r, K=K, m=5, n=2)
    np.testing.assert_allclose(found["best_load"], 0.6, atol=0.03)
    assert (found["error_best_i"] < 1e-12).all() and (found["error_pays_i"] < 1e-12).all()
    np.testing.assert_allclose(found["error_best_ii_printed"][:-1] / found["error_best_ii_printed"][1:], 2, atol=0.1)
    np.testing.assert_allclose(found["error_best_ii_corrected"][:-1] / found["error_best_ii_corrected"][1:], 4,
                               atol=0.2)
    # short buffers: (i) drops q^K, which is not small there
    short = sweep("stalling_pays", PAYS, r=[20.0, 20.0, 20.0], K=[0.0, 5.0, 30.0], m=5, n=2)["error_pays_i"]
    assert short[0] > 1e-2 > short[1] > 1e-3 > short[2]


@pytest.mark.slow  # compiles for itself
def test_derivative_of_the_load_that_pays_in_both_modes():
    r, K = 20.0, 3.0

    def load(x):
        return load_where_slow_servers_pay(x[0], 5, 2, K=x[1])

    forward, backward = jax.jacfwd(load)(jnp.array([r, K])), jax.jacrev(load)(jnp.array([r, K]))
    q = float(load(jnp.array([r, K])))
    h = mpf("1e-30")
    by_q = (saves(q + h, r, K, 5, 2) - saves(q - h, r, K, 5, 2)) / (2 * h)
    by_r = (saves(q, r + h, K, 5, 2) - saves(q, r - h, K, 5, 2)) / (2 * h)
    by_K = (saves(q, r, K + h, 5, 2) - saves(q, r, K - h, 5, 2)) / (2 * h)
    np.testing.assert_allclose(forward, [float(-by_r / by_q), float(-by_K / by_q)], rtol=1e-10)
    np.testing.assert_allclose(backward, forward, rtol=1e-12)


@pytest.mark.slow  # compiles for itself
def test_pays_in_float32_and_outside_the_domain():
    given = parks(3, 12)
    wide, narrow = (sweep("stalling_pays", PAYS[:2], dtype, **given)["pays_load"] for dtype in (np.float64, np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, atol=2e-6)
    bad = sweep("stalling_pays", PAYS, r=[1e-4, 2.0, 2.0, 2.0], K=[0.0, -1.0, 0.0, 0.0], m=[2, 2, 0, 2], n=[1, 1, 1, 0])
    assert (bad["status"] == Status.OUT_OF_DOMAIN).all() and np.isnan(bad["pays_load"]).all()


@pytest.mark.slow  # compiles for itself
def test_load_at_which_a_share_is_saved():
    r, m, n, gain = 4.0, 3, 2, 0.02
    q = float(load_where_slow_servers_pay(r, m, n, gain=gain))

    def saved(q):
        park = Oracle(q, r, math.inf, m, n, 60)
        return 1 - min(park.number(K) for K in range(40)) / park.never()

    assert saved(mpf(q) * (1 - mpf("1e-11"))) < gain < saved(mpf(q) * (1 + mpf("1e-11")))


WORTH = ["optimal_buffer", "mean_number", "worth", "worth_relative", "worth_all", "best_servers", "best_buffer",
         "best_cost", "tied"]


def by_servers(q, r, m, n):
    """N_k for k = 0..n with the best of the buffers 0..60, in many digits; infinite without steady state."""
    numbers = []
    for k in range(n + 1):
        if k == 0 or q >= 1 + k / (m * r):
            numbers.append(Oracle(q, r, math.inf, m, 1, 120).never() if k == 0 and q < 1 else mpmath.inf)
        else:
            park = Oracle(q, r, math.inf, m, k, 120)
            numbers.append(min(park.number(K) for K in range(61)))
    return numbers


def test_worth_and_best_number_of_slow_servers_by_brute_force():
    rng = np.random.default_rng(5)
    rows = []
    while len(rows) < 14:
        m, n, r = int(rng.integers(1, 7)), int(rng.integers(1, 6)), 10 ** rng.uniform(-0.5, 1.5)
        q = rng.choice([rng.uniform(0.1, 0.99), 1 + rng.uniform(0, 0.8) * n / (m * r)])
        if m * abs(1 - q) * r < 40:
            rows.append((q, r, m, n, 10 ** rng.uniform(-5, 0)))
    rows.append((1 - 1e-13, 10.0, 5, 4, 0.01))  # N_0 = 1e13: its difference with N_4 would lose all digits
    q, r, m, n, price = map(np.array, zip(*rows, strict=True))
    found = sweep("stalling_worth", WORTH, q=q, r=r, m=m, n=n, price=price)
    assert (found["status"] == Status.OK).all()
    for i, row in enumerate(rows):
        numbers = by_servers(*row[:4])
        k, last = range(row[3] + 1), row[3]
        assert math.isclose(found["mean_number"][i], numbers[last], rel_tol=1e-12)
        if numbers[last - 1] < mpmath.inf:
            # what the gains keep, over their difference
            assert math.isclose(found["worth"][i], numbers[last - 1] - numbers[last], rel_tol=2e-9)
        else:
            assert np.isnan(found["worth"][i])
        costs = [numbers[j] + mpf(row[4]) * j for j in k]
        assert found["best_servers"][i] == min(k, key=costs.__getitem__) and found["tied"][i] == 1
        assert math.isclose(found["best_cost"][i], min(costs), rel_tol=1e-12)


@pytest.mark.slow  # compiles for itself
def test_worth_ties_derivatives_and_statuses():
    at = {"q": 0.9, "r": 20.0, "m": 5, "n": 2}
    worth = float(sweep("stalling_worth", WORTH, price=0.0, **at)["worth"][0])
    tied = sweep("stalling_worth", WORTH, price=worth, **at)  # the second server costs what it is worth
    assert tied["tied"][0] == 2
    bad = sweep("stalling_worth", WORTH, q=[1.5, 0.5, 0.5, 0.5], r=[20.0, 1e-9, 20.0, 20.0], m=[5, 5, 0, 5],
                n=[2, 2, 2, 0], price=0.1)
    assert bad["status"].tolist() == [Status.UNSTABLE] + 3 * [Status.OUT_OF_DOMAIN]
    assert np.isnan(bad["mean_number"]).all()
    narrow = sweep("stalling_worth", WORTH, np.float32, price=0.0, **at)["worth"]
    assert math.isclose(narrow[0], worth, rel_tol=1e-4)  # float32 gains keep 5 digits of their difference

    def value(x):
        return hetjax.stalling.worth_of_slow_servers(x[0], x[1], 5, 2)

    h = mpf("1e-25")
    x = (0.9, 20.0)

    def precise(q, r):
        K = (13, 13)  # the best buffers for one and two: held fixed (envelope theorem)
        return Oracle(q, r, math.inf, 5, 1, 120).number(K[0]) - Oracle(q, r, math.inf, 5, 2, 120).number(K[1])

    numbers = by_servers(0.9, 20.0, 5, 2)
    assert abs(numbers[1] - numbers[2] - precise(*x)) < mpf("1e-100")
    exact = [float((precise(x[0] + a * h, x[1] + b * h) - precise(x[0] - a * h, x[1] - b * h)) / (2 * h))
             for a, b in ((1, 0), (0, 1))]
    np.testing.assert_allclose(jax.jacfwd(value)(jnp.array(x)), exact, rtol=1e-9)


def law_means(q, r, K, M, m, n):
    """(mean number over accepted flow, loss) per unit of mu1 from the balance equations, solved densely."""
    top = m + K
    states = [(l, j, 0) for l in range(top + 1) for j in range(n + 1)] + [(top, n, w) for w in range(1, M + 1)]
    index = {s: i for i, s in enumerate(states)}
    Q = np.zeros((len(states), len(states)))
    for (l, j, w), i in index.items():
        up = (top, n, w + 1) if w or (l == top and j == n) else (l, j + 1, 0) if l == top else (l + 1, j, 0)
        fast, slow = ((top, n, w - 1), (top, n, w - 1)) if w else ((l - 1, j, 0), (l, j - 1, 0))
        for rate, to in ((q * m, up), (min(l, m), fast), (j / r, slow)):
            if to in index and rate:
                Q[i, index[to]] += rate
    A = (Q - np.diag(Q.sum(axis=1))).T
    A[0] = 1
    p = np.linalg.solve(A, np.eye(len(states))[0])
    loss = p[index[(top, n, M) if M else (top, n, 0)]]
    number = sum(p[i] * sum(s) for s, i in index.items())
    return number / (q * m * (1 - loss)), loss


def test_cheapest_park_by_brute_force_on_random_problems():
    rng = np.random.default_rng(7)
    box = {"max_fast": 2, "max_slow": 2, "max_buffer": 3}
    every = [(m, n, K) for m in (1, 2) for n in (0, 1, 2) for K in range(4)]
    solved = nothing = tied = 0
    for _ in range(15):
        rate, r, M = rng.uniform(0.3, 2.5), rng.uniform(1.2, 6), int(rng.integers(0, 4))
        table = {park: law_means(rate / park[0], r, park[2], M, park[0], park[1]) for park in every}
        for _ in range(14):
            at = table[every[rng.integers(len(every))]]
            bounds = {"mean_response_time": at[0] * rng.uniform(0.97, 1.2), "p_loss": at[1] * rng.uniform(0.9, 2)}
            slow, place = float(rng.choice([0.1, 0.25, 0.5])), float(rng.choice([0, 0.05, 0.125]))
            good = [park for park in every
                    if table[park][0] <= bounds["mean_response_time"] and table[park][1] <= bounds["p_loss"]]

            def cost(park, slow=slow, place=place):
                return round(1000 * (park[0] + slow * park[1] + place * park[2]))

            def search(rate=rate, r=r, bounds=bounds, slow=slow, place=place, M=M):
                return least_servers(rate, 1.0, 1 / r, bounds, cost_slow=slow, cost_place=place, M=M, **box)

            if not good:
                nothing += 1
                with pytest.raises(ValueError, match=r"kept by no park .* raise max_fast"):
                    search()
                continue
            least = min(map(cost, good))
            found = search()
            assert round(1000 * found.cost) == least
            assert list(found.ties) == sorted(park for park in good if cost(park) == least)
            assert (found.m, found.n, found.K) in found.ties
            solved, tied = solved + 1, tied + (len(found.ties) > 1)
    assert solved > 120 and nothing > 5 and tied > 20


@pytest.mark.slow  # compiles for itself
def test_cheapest_park_says_whether_it_is_certified():
    def search(cost_slow):
        return least_servers(4.0, 1.0, 0.25, {"mean_response_time": 1.5}, cost_slow=cost_slow, max_fast=8, max_slow=12)

    sure = search(0.5)
    assert sure.certified and (sure.m, sure.n, sure.cost) == (5, 1, 5.5)
    assert sure.ties == tuple((5, 1, K) for K in range(11))
    assert sure.values["mean_response_time"] <= 1.5
    few = search(0.1)
    assert not few.certified and "more than max_slow = 12" in few.certificate
    lossy = least_servers(1.0, 1.0, 0.5, {"p_loss": 0.2}, M=1, max_fast=2, max_slow=2, max_buffer=3)
    assert lossy.certified == ("may" not in lossy.certificate)


@pytest.mark.parametrize(("change", "message"), [
    ({"targets": {}}, "targets = {} asks for nothing"),
    ({"targets": {"p_lost": 0.1}}, "'p_lost' is no metric"),
    ({"targets": {"p_loss": math.nan}}, r"targets\['p_loss'\] = nan"),
    ({"arrival_rate": -1.0}, "arrival_rate = -1.0 is outside"),
    ({"cost_slow": 0}, "cost_slow = 0 is outside"),
    ({"max_slow": 2.5}, "max_slow = 2.5 is no whole number"),
])
def test_cheapest_park_refuses_in_one_line(change, message):
    given = {"arrival_rate": 1.0, "mu1": 1.0, "mu2": 0.5, "targets": {"p_loss": 0.1}} | change
    with pytest.raises(ValueError, match=message) as caught:
        least_servers(**given)
    assert "\n" not in str(caught.value)
