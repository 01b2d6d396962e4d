import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax import control, threshold_queue
from hetjax.ctmc import stationary
from hetjax.result import Status

LEVELS, LARGEST = 24, 6


def random_queues(points, phases, seed, loads=(0.3, 0.9), ratios=(1.2, 8)):
    """D0, D1 (points, p, p), mu1 = 1, mu2 (points,)."""
    rng = np.random.default_rng(seed)
    quiet, D1 = rng.exponential(size=(2, points, phases, phases)) * rng.choice([0.1, 1, 5], size=(2, points, phases, 1))
    quiet = quiet * (1 - np.eye(phases))
    D0 = quiet - np.eye(phases) * (quiet.sum(2) + D1.sum(2))[:, :, None]
    law = np.asarray(jax.vmap(stationary)(jnp.asarray(D0 + D1)).value)
    mu2 = 1 / rng.uniform(*ratios, points)
    scale = rng.uniform(*loads, points) * (1 + mu2) / np.einsum("kf,kfg->k", law, D1)
    return D0 * scale[:, None, None], D1 * scale[:, None, None], np.ones(points), mu2


def allocate(D0, D1, mu1, mu2, usage=None, **more):
    return control.optimal_allocation(D0, D1, mu1, mu2, usage_costs=0.0 if usage is None else usage, levels=LEVELS,
                                      **more)


COSTLY = [0.3, 1.1]
PLAIN = 3  # queues with these usage costs, for the plain route


@pytest.fixture(scope="module")
def queues():
    """Sixteen queues with two phases at holding costs only, and three with usage costs; their optimal allocations."""
    points = [np.concatenate(x) for x in zip(random_queues(16, 2, seed=3),
                                             random_queues(PLAIN, 2, seed=5, loads=(0.3, 0.55)), strict=True)]
    usage = np.concatenate([np.zeros((16, 2)), np.tile(COSTLY, (PLAIN, 1))])
    holding = np.concatenate([np.ones(16), np.full(PLAIN, 2.0)])
    solve = jax.jit(jax.vmap(lambda *x: allocate(*x[:5], holding_cost=x[5])))
    return points, usage, holding, jax.tree.map(np.asarray, solve(*map(jnp.asarray, (*points, usage, holding))))


@pytest.fixture(scope="module")
def slopes(queues):
    """Directions of change of the queues, and the gain's derivatives along them and by each cost."""
    points, usage, holding, _ = queues
    rng = np.random.default_rng(6)
    ways = [rng.uniform(0, 1, x.shape) for x in points]
    ways[0] -= np.eye(2) * (ways[0] + ways[1]).sum(2)[:, :, None]  # rows still sum to 0

    def gain(steps, queue, ways, usage, holding):
        moved = [x + steps[0] * way for x, way in zip(queue, ways, strict=True)]
        return allocate(*moved, usage + steps[1:3], holding_cost=holding + steps[3]).gain

    every = jax.jit(jax.vmap(jax.jacfwd(gain), in_axes=(None, 0, 0, 0, 0)))
    return ways, np.asarray(every(jnp.zeros(4), *jax.tree.map(jnp.asarray, (points, ways, usage, holding))))


GRID = np.array(list(itertools.product(range(1, LARGEST + 1), repeat=2)), float)


@jax.jit
@jax.vmap
def means(D0, D1, mu1, mu2):
    """Mean number under all pairs of thresholds."""
    return jax.vmap(lambda t: threshold_queue.mean_number(
        threshold_queue.Params(D0, D1, mu1, mu2, t, max_threshold=LARGEST)))(jnp.asarray(GRID))


def test_best_of_all_thresholds_by_phase(queues):
    best = jax.tree.map(lambda x: x[:16], queues[3])
    found = np.asarray(means(*(jnp.asarray(x[:16]) for x in queues[0])))
    assert (best.status == Status.OK).all() and best.threshold_type.all()
    assert best.thresholds.max() < LARGEST and len(set(map(str, best.thresholds.tolist()))) > 6
    np.testing.assert_allclose(best.gain, found.min(1), rtol=1e-12)
    np.testing.assert_allclose(best.lower_bound, best.gain, rtol=1e-11)  # rounding of the values of full levels
    clear = np.sort(found, axis=1)[:, 1] > found.min(1) * (1 + 1e-10)
    assert (GRID[found.argmin(1)] == best.thresholds[:, 0])[clear].all() and clear.sum() > 12
    assert (best.fastest_first == (best.thresholds == 1).all((1, 2))).all() and best.fastest_first.any()


@pytest.mark.slow
def test_derivative_along_a_direction(queues, slopes):
    """By differences of the best mean number found by search."""
    points, ways, step = [x[:16] for x in queues[0]], [x[:16] for x in slopes[0]], 1e-4
    moved = [np.concatenate([x, x + step * w, x - step * w]) for x, w in zip(points, ways, strict=True)]
    found, above, below = np.split(np.asarray(means(*map(jnp.asarray, moved))), 3)
    at = found.argmin(1)[:, None]  # the optimum has a kink where the best thresholds change
    difference = np.take_along_axis(above - below, at, 1)[:, 0] / (2 * step)
    np.testing.assert_allclose(slopes[1][:16, 0], difference, rtol=1e-5)  # step^2 and 1/(1 - load)^2 at load .9


@pytest.mark.slow
def test_derivatives_by_costs(queues, slopes):
    """They are the busy fractions of the servers and the mean number: throughput = arrivals, and costs add up."""
    (D0, D1, mu1, mu2), usage, holding, best = queues
    slopes = slopes[1]
    law = np.asarray(jax.vmap(stationary)(jnp.asarray(D0 + D1)).value)
    rate = np.einsum("kf,kfg->k", law, D1)
    np.testing.assert_allclose(slopes[:, 1] * mu1 + slopes[:, 2] * mu2, rate, rtol=1e-11)
    costs = np.concatenate([usage, holding[:, None]], axis=1)
    np.testing.assert_allclose((slopes[:, 1:] * costs).sum(1), best.gain, rtol=1e-11)
    assert (slopes[:, 1:] > 0).all() and (slopes[:, 1:3] < 1).all()


@pytest.mark.slow
def test_reverse_mode(queues, slopes):
    points, (ways, slopes) = queues[0], slopes
    gain = jax.jit(jax.vmap(jax.grad(lambda *x: allocate(*x, jnp.zeros(2)).gain, argnums=range(4))))
    found = gain(*(jnp.asarray(x[:16]) for x in points))
    along = sum((np.asarray(s) * w[:16]).reshape(16, -1).sum(1) for s, w in zip(found, ways, strict=True))
    np.testing.assert_allclose(along, slopes[:16, 0], rtol=1e-10)


def test_exact_rule_for_poisson_arrivals():
    """And where the best threshold is beyond the levels: slow servers that start too early cost more; the lower bound
    holds all the same."""
    rng = np.random.default_rng(4)
    n, more = 200, 4
    r, rho = rng.uniform(1, 40, n + more), rng.uniform(0.02, 0.98, n + more)
    r[n:], rho[n:] = [150, 200, 200, 500], [0.45, 0.6, 0.65, 0.8]
    mu2 = jnp.asarray(1 / r)
    rate, mu1 = jnp.asarray(rho * (1 + 1 / r)), jnp.ones(n + more)
    solve = jax.jit(jax.vmap(lambda *queue: control.optimal_allocation(*queue, levels=64)))
    best = jax.tree.map(np.asarray, solve(-rate[:, None, None], rate[:, None, None], mu1, mu2))
    exact = np.asarray(threshold_queue.optimal_threshold(rate, mu1, mu2))
    means = np.asarray(threshold_queue.poisson_means(rate, mu1, mu2, exact).number)
    assert (exact[n:] > 64).all() and (best.status[n:] == Status.NOT_CONVERGED).all()
    assert (best.lower_bound[n:] < means[n:]).all() and (means[n:] <= best.gain[n:] * (1 + 1e-12)).all()
    exact, means, best = exact[:n], means[:n], jax.tree.map(lambda x: x[:n], best)
    assert (best.status == Status.OK).all() and best.threshold_type.all()
    assert (best.thresholds[:, 0, 0] == exact).all()  # also where the means agree in all digits
    assert (best.fastest_first == threshold_queue.fastest_first_is_best(rate, mu1, mu2)[:n]).all()
    np.testing.assert_allclose(best.gain, means, rtol=1e-11)  # 16 eps/(1 - rho) at rho = .98 and some
    assert int(best.evaluations.max()) <= 8


def plain(D0, D1, rates, holding, usage, discount, capacity):
    """Policy iteration by numpy's dense solve, capacity customers, arrivals to a full node lost at no cost. Values
    before the decision, as {(n, B, f): value}; average cost first if discount = 0."""
    p, sets = len(D0), 2 ** (len(rates) - 1)
    states = [(n, B, f) for n in range(capacity + 1) for B in range(sets) for f in range(p) if B.bit_count() <= n]
    number = {s: i for i, s in enumerate(states)}
    pairs, rows, costs = [], [], []
    for n, B, f in states:
        for C in range(sets):
            if C & B == B and (C == B or C.bit_count() < n):
                row, fast = np.zeros(len(states)), n > C.bit_count()
                moves = [(min(n + 1, capacity), C, g, D1[f][g]) for g in range(p)]
                moves += [(n, C, g, D0[f][g]) for g in range(p) if g != f] + [(n - 1, C, f, rates[0])] * fast
                cost = holding * n + usage[0] * fast
                for j, rate in enumerate(rates[1:]):
                    if C >> j & 1:
                        moves.append((n - 1, C - (1 << j), f, rate))
                        cost += usage[j + 1]
                for *to, rate in moves:
                    row[number[tuple(to)]] += rate
                row[number[n, B, f]] -= sum(m[3] for m in moves)
                pairs.append((number[n, B, f], C))
                rows.append(row)
                costs.append(cost)
    Q, c, owner = np.array(rows), np.array(costs), np.array([i for i, _ in pairs])
    first = np.searchsorted(owner, np.arange(len(states)))
    chosen = first.copy()
    while True:
        A = discount * np.eye(len(states)) - Q[chosen]
        if discount == 0:
            A[:, 0] = 1.0  # the relative value of the first state is 0, its place is the gain's
        x = np.linalg.solve(A, c[chosen])
        h = np.concatenate([[0], x[1:]]) if discount == 0 else x
        q = c + Q @ h
        least = np.minimum.reduceat(q, first)
        better = q[chosen] > least + 1e-9 * (1 + np.abs(q[chosen]))
        if not better.any():
            return (x[0] if discount == 0 else None), dict(zip(states, h, strict=True)), \
                {states[i]: pairs[k][1] for i, k in enumerate(chosen)}
        chosen = np.where(better, [first[i] + np.argmin(q[owner == i]) for i in range(len(states))], chosen)


def test_usage_costs_against_a_plain_route(queues):
    points, _, _, best = queues
    best = jax.tree.map(lambda x: x[16:], best)
    assert (best.status == Status.OK).all() and best.threshold_type.all()
    for k, (D0, D1, mu1, mu2) in enumerate(zip(*(x[16:] for x in points), strict=True)):
        gain, _, policy = plain(D0, D1, [mu1, mu2], 2.0, COSTLY, 0.0, 70)  # load .55: truncated below 1e-12
        np.testing.assert_allclose(best.gain[k], gain, rtol=1e-9)
        assert all(best.policy[k][s] == C for s, C in policy.items() if s[0] <= 20)


@pytest.mark.slow
def test_discounting_against_a_plain_route(queues):
    points = [x[16:] for x in queues[0]]
    discounts = np.array([0.05, 0.3, 2.0])
    solve = jax.jit(jax.vmap(lambda *x: allocate(*x[:4], jnp.asarray(COSTLY), holding_cost=2.0, discount_rate=x[4])))
    discounted = jax.tree.map(np.asarray, solve(*map(jnp.asarray, (*points, discounts))))
    for k, (D0, D1, mu1, mu2, b) in enumerate(zip(*points, discounts, strict=True)):
        _, values, policy = plain(D0, D1, [mu1, mu2], 2.0, COSTLY, b, 70)
        for f in range(2):
            np.testing.assert_allclose(discounted.values[k][0, 0, f], values[0, 0, f], rtol=1e-9)
        if discounted.status[k] == Status.OK:
            assert all(discounted.policy[k][s] == C for s, C in policy.items() if s[0] <= 15)
        law = np.asarray(stationary(jnp.asarray(D0 + D1)).value)
        np.testing.assert_allclose(discounted.gain[k], b * law @ discounted.values[k][0, 0], rtol=1e-12)
    assert (discounted.status[:2] == Status.OK).all()
    # a customer more costs at most w/b = 1: the slow server's 1.1 an hour is never worth it, whatever N
    assert discounted.status[2] == Status.NOT_CONVERGED and discounted.lower_bound[2] < discounted.gain[2]


@pytest.mark.slow
@pytest.mark.parametrize("phases", [1, 2])
def test_three_servers_by_three_routes(phases):
    D0, D1 = ([[-0.9]], [[0.9]]) if phases == 1 else ([[-1.5, 0.3], [0.2, -0.5]], [[1.1, 0.1], [0.0, 0.3]])
    mu2 = [0.5, 0.2]
    best = control.optimal_allocation(D0, D1, 1.0, mu2, usage_costs=[0.1, 0.2, 0.1], levels=16)
    gain, _, policy = plain(D0, D1, [1.0, *mu2], 1.0, [0.1, 0.2, 0.1], 0.0, 45)
    assert best.status == Status.OK and best.thresholds.shape == (3, phases)
    np.testing.assert_allclose(best.gain, gain, rtol=1e-9)
    assert all(best.policy[s] == C for s, C in policy.items() if s[0] <= 12)
    general = control.allocation_mdp(D0, D1, 1.0, mu2, usage_costs=[0.1, 0.2, 0.1], capacity=45)
    swept = control.relative_value_iteration(general, 1e-7)
    assert swept.status == Status.OK and swept.value.lower <= gain <= swept.value.upper
    grid = np.asarray(swept.value.policy).reshape(46, 4, phases)
    assert all(grid[s] == C for s, C in policy.items() if s[0] <= 12)


@pytest.mark.slow
def test_levels_are_doubled_until_enough():
    queue = [[-0.6]], [[0.6]], 1.0, 0.02
    exact = threshold_queue.optimal_threshold(*(jnp.asarray(x) for x in (0.6, 1.0, 0.02)))
    true = control.optimal_allocation(*queue)
    assert int(true.thresholds[0, 0]) == exact > 16 and true.policy.shape[0] == 33  # doubled once


def test_float32_and_illegal_points_in_a_batch(queues):
    points, _, _, best = queues
    D0, D1, mu1, mu2 = (x[:16].astype(np.float32) for x in points)
    mu2[0], mu1[1], mu2[2], D1[3] = -1, 0.01, 2.0, 8 * D1[3]  # illegal; mu2 > mu1; mu2 > mu1; rows do not sum to 0
    D0[4], D1[4] = 8 * D0[4], 8 * D1[4]  # unstable
    found = jax.jit(jax.vmap(allocate))(*(jnp.asarray(x) for x in (D0, D1, mu1, mu2)))
    bad = Status.OUT_OF_DOMAIN
    assert found.status.tolist() == [bad, bad, bad, bad, Status.UNSTABLE] + [Status.OK] * 11
    assert np.isnan(found.gain[:5]).all() and found.gain.dtype == jnp.float32
    assert not (found.threshold_type[:5] | found.fastest_first[:5]).any()
    np.testing.assert_allclose(found.gain[5:], best.gain[5:16], rtol=2e-4)  # eps/(1 - load), load up to .9
    np.testing.assert_allclose(found.lower_bound[5:], best.gain[5:16], rtol=1e-2)
    assert (found.thresholds[5:] == best.thresholds[5:16]).mean() > 0.9


def allocation(**change):
    return control.optimal_allocation(**{"D0": [[-1.0]], "D1": [[1.0]], "mu1": 1.0, "mu2": 0.5} | change)


BAD = {
    r"D0 = array of shape \(1,\)": dict(D0=[-1.0]),
    r"D1 = array of shape \(2, 2\): must be of the shape of D0": dict(D1=np.ones((2, 2))),
    r"mu2 = array of shape \(6,\): must be one rate, or a list of 1 to 5": dict(mu2=[0.1] * 6),
    r"mu2 = -0.5: must be positive": dict(mu2=-0.5),
    r"mu1, mu2 = \[1.0, 2.0\]: must be falling": dict(mu2=2.0),
    r"holding_cost = 0.0: must be positive": dict(holding_cost=0.0),
    r"usage_costs = \[0.0, -1.0\]": dict(usage_costs=[0.0, -1.0]),
    r"usage_costs = array of shape \(3,\)": dict(usage_costs=[0.0, 1.0, 2.0]),
    r"discount_rate = -1.0: must be positive": dict(discount_rate=-1.0),
    r"arrival rate of \(D0, D1\) = 2.0: must be below 1.5": dict(D0=[[-2.0]], D1=[[2.0]]),
    r"levels = 1: must be None or a whole number >= 2": dict(levels=1),
    r"max_iterations = 0": dict(max_iterations=0),
    r"holding_cost = array of shape \(2,\)": dict(holding_cost=[1.0, 2.0]),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    with pytest.raises(ValueError, match=message) as error:
        allocation(**BAD[message])
    assert "\n" not in str(error.value)


def test_levels_must_be_given_where_traced():
    with pytest.raises(ValueError, match="levels = None: must be a whole number where other arguments are traced"):
        jax.jit(lambda mu2: allocation(mu2=mu2).gain)(0.5)
    with pytest.raises(ValueError, match="capacity = 1: must be a whole number >= 2"):
        control.allocation_mdp([[-1.0]], [[1.0]], 1.0, 0.5, capacity=1)
