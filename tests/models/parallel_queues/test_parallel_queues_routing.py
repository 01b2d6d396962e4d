"""Best splits, best words, thresholds by phase and the bound by full information, each against another route."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetjax
from hetjax import control, ctmc, threshold_queue
from hetjax import parallel_queues as pq
from hetjax.result import Status

TWO = (2.0, [2.0, 1.0], [0.5, 0.2])
SPLIT_OF = jax.jit(lambda *z: pq.best_split(pq.Params(*z)))
BEST_OF = jax.jit(lambda *z: pq.best_word(pq.Params(*z)))


def BEST(p):
    return BEST_OF(p.arrival_rate, p.mu1, p.mu2)


def SPLIT(p):
    return SPLIT_OF(p.arrival_rate, p.mu1, p.mu2)


def points(n, seed):
    """(rate, mu1, mu2) of two nodes, loads .1 to .95."""
    rng = np.random.default_rng(seed)
    mu1 = rng.uniform(0.5, 3, (n, 2))
    mu2 = mu1 / rng.uniform(1, 6, (n, 2))
    return [jnp.asarray(x) for x in (rng.uniform(0.1, 0.95, n) * (mu1 + mu2).sum(1), mu1, mu2)]


def test_open_loop_table(reference):
    rows = reference("open_loop")["rows"]
    for row in rows[:3]:
        nodes = np.array([row["node1"], row["node2"]])
        found = BEST(pq.Params(row["router_rate"], nodes[:, 0], nodes[:, 1]))
        assert int(found.status) == Status.OK
        assert f"{int(found.ones)}/{int(found.length)}" == row["density_to_node_1"]
        assert found.thresholds.tolist() == row["thresholds"]
        assert float(found.mean_number) == pytest.approx(row["mean_number"], rel=1e-10)  # the table's digits
    two = reference("published")["two_nodes"]
    found = BEST(pq.Params(*TWO))
    longest = two["best_to_length_40"]
    assert f"{int(found.ones)}/{int(found.length)}" == longest["density"]
    assert found.thresholds.tolist() == longest["thresholds"] == two["best_thresholds"]
    assert float(found.mean_number) == pytest.approx(longest["mean_number"], rel=1e-10)


@pytest.mark.slow
def test_rest_of_the_open_loop_table(reference):
    for row in reference("open_loop")["rows"][3:]:
        nodes = np.array([row["node1"], row["node2"]])
        found = BEST(pq.Params(row["router_rate"], nodes[:, 0], nodes[:, 1]))
        assert f"{int(found.ones)}/{int(found.length)}" == row["density_to_node_1"]
        assert found.thresholds.tolist() == row["thresholds"]
        assert float(found.mean_number) == pytest.approx(row["mean_number"], rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "count"), [(12, 60), (40, 8)])
def test_descent_finds_what_the_full_search_finds(length, count):
    many = points(count, length)

    def both(rate, mu1, mu2):
        p = pq.Params(rate, mu1, mu2)
        return pq.best_word(p, length, 6), pq.full_search(p, length, 6)

    quick, full = jax.jit(jax.vmap(both))(*many)
    np.testing.assert_array_equal(quick.status, full.status)
    np.testing.assert_allclose(quick.mean_number, full.mean_number, rtol=1e-12)
    np.testing.assert_array_equal(quick.ones * full.length, full.ones * quick.length)


@pytest.mark.slow
def test_even_words_are_best():
    found = jax.jit(jax.vmap(lambda *z: pq.best_general_word(pq.Params(*z), 8, 6)))(*points(12, 5))
    assert np.isin(found.status, [Status.OK, Status.NOT_CONVERGED, Status.UNSTABLE]).all()
    stable = found.status != Status.UNSTABLE
    assert stable.sum() > 8
    np.testing.assert_allclose(found.mean_number[stable], found.mechanical_mean_number[stable], rtol=1e-12)


@pytest.mark.slow
def test_thresholds_by_phase():
    """Against the search of the threshold queue on the same MAP; and the joint search is not worse than parts of it."""
    p = pq.Params(1.3592957767505314, [1.0, 1.0], [0.3592957767505315, 0.3592957767505315])
    found = pq.best_thresholds_of_word(p, 1, 2, max_threshold=4)
    node = threshold_queue.Params.from_word(p.arrival_rate, [0, 1], 1.0, p.mu2[0], 1)
    other = threshold_queue.best_thresholds(node, max_threshold=4)
    assert found.thresholds[0].tolist() == other.thresholds.tolist()
    assert float(found.mean_number) == pytest.approx(2 * float(other.mean_number), rel=1e-12)
    assert float(found.constant_mean_number) == pytest.approx(2 * float(other.constant_mean_number), rel=1e-12)
    best = pq.best_word_by_phase(pq.Params(*TWO), 8, 4)
    assert int(best.status) == Status.OK and (int(best.ones), int(best.length)) == (3, 4)
    assert float(best.mean_number) <= float(best.constant_mean_number) < 2.441162
    assert float(best.mean_number) == pytest.approx(2.44069579, rel=1e-8)
    simple = pq.full_search(pq.Params(*TWO), 8, rule=threshold_queue.simple_threshold)
    assert float(simple.mean_number) >= float(best.constant_mean_number) * (1 - 1e-13)



def test_best_split(reference):
    two = reference("published")["two_nodes"]
    found = SPLIT(pq.Params(*TWO))
    assert float(found.probabilities[0]) == pytest.approx(two["bernoulli_p"], abs=6e-8)  # seven printed digits
    assert float(found.mean_number) == pytest.approx(two["bernoulli_mean_number"], abs=6e-8)
    assert found.thresholds.tolist() == [2, 3]


@pytest.mark.slow
def test_best_split_is_not_beaten_on_a_grid():
    many = points(12, 8)
    best = jax.jit(jax.vmap(lambda *z: pq.best_split(pq.Params(*z))))(*many)
    assert (best.status == Status.OK).all()
    grid = jnp.linspace(0, 1, 201)

    def on_grid(rate, mu1, mu2, thresholds):
        p = pq.Params(rate, mu1, mu2)
        change = jnp.asarray([[a, b] for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0)])
        near = jnp.maximum(thresholds[None] + change, 1)
        return jnp.min(jax.vmap(lambda q: jax.vmap(lambda t: pq.node_numbers(p, jnp.stack([q, 1 - q]), t).sum())(
            near))(grid))

    least = jax.jit(jax.vmap(on_grid))(*many, best.thresholds)
    assert (best.mean_number <= least * (1 + 1e-12)).all()
    assert (best.mean_number > least * 0.99).all()


@pytest.mark.slow
def test_exact_split_and_gradient_agree():
    p = pq.Params(2.5, [2.0, 1.0, 0.5], [1.0, 0.2, 0.1])
    given = jnp.asarray([1.0, 3.0, 4.0])
    exact = jax.jit(pq.best_split)(p, given)
    found = jax.jit(pq.best_split_by_gradient)(p, given)
    assert int(exact.status) == int(found.status) == Status.OK
    np.testing.assert_allclose(found.value, exact.probabilities, atol=2e-7)  # half the digits: the mean is flat there
    assert float(pq.node_numbers(p, found.value, given).sum()) == pytest.approx(float(exact.mean_number), rel=1e-12)
    # margins, by fourth-order differences of the closed form
    h, rates = 1e-3, exact.probabilities
    n = [pq.node_numbers(p, rates + s * h / p.arrival_rate, given) for s in (-2, -1, 1, 2)]
    np.testing.assert_allclose((8 * (n[2] - n[1]) - n[3] + n[0]) / (12 * h), exact.marginal_cost, rtol=1e-7)


def test_square_root_rule():
    """Closed form against equal margins mu/(mu - x)^2, and against the general solver."""
    rng = np.random.default_rng(2)
    mu = rng.uniform(0.05, 3, (30, 3))
    rate = rng.uniform(0.02, 0.98, 30) * mu.sum(1)
    split = np.asarray(jax.jit(jax.vmap(pq.square_root_rule))(jnp.asarray(rate), jnp.asarray(mu)))
    x = split * rate[:, None]
    margins = mu / (mu - x) ** 2
    nu = np.where(x > 0, margins, 0).max(1, keepdims=True)
    np.testing.assert_allclose(np.where(x > 0, margins, nu), nu + 0 * mu, rtol=1e-8)
    assert (1 / mu >= nu * (1 - 1e-12))[x == 0].all() and (x == 0).any() and (x >= 0).all()
    np.testing.assert_allclose(split.sum(1), 1, rtol=1e-13)


@pytest.mark.slow
def test_best_split_of_single_servers_is_the_square_root_rule():
    rng = np.random.default_rng(4)
    mu = rng.uniform(0.05, 3, (30, 3))
    rate = rng.uniform(0.02, 0.98, 30) * mu.sum(1)
    split = jax.jit(jax.vmap(pq.square_root_rule))(jnp.asarray(rate), jnp.asarray(mu))
    zero = jnp.zeros((30, 3))
    found = jax.jit(jax.vmap(lambda a, b, c: pq.best_split(pq.Params(a, b, c), jnp.ones(3))))(
        jnp.asarray(rate), jnp.asarray(mu), zero)
    np.testing.assert_allclose(found.probabilities, split, atol=1e-9)


def test_full_information(reference):
    rows = reference("open_loop")["full_information"]
    data = np.array([[row["router_rate"], *row["node1"], *row["node2"]] for row in rows])
    params = [jnp.asarray(x) for x in (data[:, 0], data[:, [1, 3]], data[:, [2, 4]])]
    found = jax.jit(jax.vmap(lambda *z: pq.full_information(pq.Params(*z), 40, 1e-8)))(*params)
    assert (found.status == Status.OK).all()
    np.testing.assert_allclose(found.mean_number, [row["full_information"] for row in rows], rtol=2e-8)
    assert (found.lower <= found.upper).all()
    for i, row in enumerate(rows):
        p = pq.Params(*(x[i] for x in params))
        excess = float(SPLIT(p).mean_number / found.mean_number[i]) - 1
        assert excess == pytest.approx(row["bernoulli_excess"], abs=6e-4)


@pytest.mark.slow
def test_full_information_as_a_general_process():
    """A small grid: the same lower bound by the general solver, and the truncation noticed."""
    p = pq.Params(0.9, [1.0, 0.8], [0.5, 0.1])
    found = jax.jit(pq.full_information, static_argnums=(1, 2))(p, 6, 1e-8)
    other = jax.jit(lambda p: control.relative_value_iteration(pq.joint_process(p, 6), 1e-8))(p)
    assert float(found.lower) == pytest.approx(float(other.value.gain), rel=2e-8)
    assert int(found.status) == Status.NOT_CONVERGED and float(found.upper) > float(found.lower) * (1 + 1e-5)
    wide = jax.jit(pq.full_information, static_argnums=(1, 2))(p, 30, 1e-8)
    assert float(found.lower) < float(wide.mean_number) < float(found.upper)


def simulated(p, route, start, key):
    """95 % interval of the mean number; ``route(state, u)`` who goes to node 1, ``start(state, i)`` bool."""
    def rates(state):
        x1, s1, x2, s2 = state
        return (p.arrival_rate * route(state), p.arrival_rate * (1 - route(state)), jnp.where(x1 > 0, p.mu1[0], 0),
                p.mu2[0] * s1.astype(float), jnp.where(x2 > 0, p.mu1[1], 0), p.mu2[1] * s2.astype(float))

    def move(state, event):
        x1, s1, x2, s2 = state
        left = [(event == e).astype(jnp.int32) for e in range(6)]
        after = (x1 + left[0] - left[2], s1 - left[3], x2 + left[1] - left[4], s2 - left[5])
        begin = [start(after, i).astype(jnp.int32) for i in (0, 1)]
        return after[0] - begin[0], after[1] + begin[0], after[2] - begin[1], after[3] + begin[1]

    chain = ctmc.transition_chain(rates, move)
    return jax.jit(lambda key: ctmc.simulate(chain, (0, 0, 0, 0), key, events=3000, warmup=1000, replications=1024,
                                             rewards=lambda s: {"number": sum(s)}))(jax.random.key(key))


def test_simulation_of_the_bernoulli_split():
    p = pq.Params(*TWO)
    best = SPLIT(p)
    found = simulated(p, lambda s: best.probabilities[0],
                      lambda s, i: (s[2 * i + 1] == 0) & (s[2 * i] - 1 >= (2, 3)[i]), 1)
    assert abs(float(found.mean["number"] - best.mean_number)) < 3 * float(found.half_width["number"]) < 0.1


@pytest.mark.slow
def test_simulation_of_the_joint_policy():
    """The routes of the optimum; slow servers by constant thresholds nearest to it cost at most 1 % more."""
    p = pq.Params(*TWO)
    best = jax.jit(pq.full_information, static_argnums=(1, 2))(p, 30, 1e-7)
    found = simulated(p, lambda s: jnp.where(best.route[tuple(jnp.minimum(x, 29 if i % 2 == 0 else 1)
                                                              for i, x in enumerate(s))], 1.0, 0.0),
                      lambda s, i: (s[2 * i + 1] == 0) & (s[2 * i] - 1 >= (2, 3)[i]), 2)
    number, width = float(found.mean["number"]), float(found.half_width["number"])
    assert float(best.lower) - 3 * width < number < 1.01 * float(best.upper) + 3 * width


@pytest.mark.slow
def test_gradients_in_split_and_thresholds():
    names = ("split", "threshold_node1", "threshold_node2")
    rest = {"arrival_rate": 2.0, "mu1_node1": 2.0, "mu2_node1": 0.5, "mu1_node2": 1.0, "mu2_node2": 0.2}

    def mean(x):
        values = {name: jnp.asarray(v) for name, v in rest.items()} | dict(zip(names, x, strict=True))
        return pq.MODEL.point(values, ("mean_number",), {})[0]["mean_number"]

    at = jnp.asarray([0.7, 1.4, 2.6])
    found = jax.jit(jax.grad(mean))(at)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(mean))(at), found, rtol=1e-12)
    h = 1e-3
    m2, m1, p1, p2 = jax.jit(jax.vmap(mean))(
        jnp.concatenate([at[None] + s * h * jnp.eye(3) for s in (-2, -1, 1, 2)])).reshape(4, 3)
    np.testing.assert_allclose((8 * (p1 - m1) - (p2 - m2)) / (12 * h), found, rtol=1e-8)


@pytest.mark.slow
def test_models():
    for model in (pq.MODEL, pq.WORD_MODEL, pq.BEST_MODEL):
        assert hetjax.get_model(model.name) is model
        for values, known in model.golden:
            found = hetjax.evaluate(model, **values, metrics=list(known))
            for name, value in known.items():
                assert float(found[name]) == pytest.approx(value, rel=1e-12)
    values = dict(pq.WORD_MODEL.golden[0][0]) | {"length": 4, "ones": np.arange(0.0, 6.0)}
    found = hetjax.evaluate(pq.WORD_MODEL, **values)
    bad = int(Status.OUT_OF_DOMAIN)
    assert found.status.tolist() == [bad, Status.OK, Status.OK, Status.OK, bad, bad]
    assert np.isfinite(found.mean_number[1:4]).all() and np.isnan(found.mean_number[[0, 4, 5]]).all()
    other = pq.WORD_MODEL.second_route({**values, "ones": 3.0}, tuple(m.name for m in pq.WORD_MODEL.metrics))
    assert len(other) == len(pq.WORD_MODEL.metrics)
    for name, value in other.items():
        assert float(found[name][3]) == pytest.approx(value, rel=1e-11)


def test_bad_input():
    with pytest.raises(ValueError, match=r"mu2\[1\] = 2.0: must be at most mu1\[1\] = 1: .* swap the two"):
        pq.Params(1.0, [2.0, 1.0], [0.5, 2.0])
    with pytest.raises(ValueError, match=r"arrival_rate = 4.0: must be below 3.7.* no split is stable.*2.5, 1.2"):
        pq.Params(4.0, [2.0, 1.0], [0.5, 0.2])
    p = pq.Params(*TWO)
    for word in ([0, 0], [1, 1, 1], [], [0, 2]):
        with pytest.raises(ValueError, match="word"):
            pq.word_means(p, word, [1, 1])
    with pytest.raises(ValueError, match="thresholds"):
        pq.word_means(p, [0, 1], [0.5, 1])
    with pytest.raises(ValueError, match="thresholds"):
        pq.best_split(p, [0.0, 1.0])
    with pytest.raises(ValueError, match="two nodes"):
        pq.best_word(pq.Params(1.0, [1.0] * 3, [1.0] * 3))
    assert int(jax.jit(pq.status)(pq.Params(*(jnp.asarray(x) for x in TWO)))) == Status.OK
    full = jax.jit(lambda p: pq.word_means(p, [0, 1], [2, 3]))(pq.Params(3.5, [2.0, 1.0], [0.5, 0.2]))
    assert int(full.status) == Status.UNSTABLE and np.isnan(full.value.number).all()
    rates = jnp.asarray([4.0, -1.0, jnp.nan, 2.0])
    mu1, mu2 = jnp.asarray(TWO[1]), jnp.asarray(TWO[2])
    codes = [Status.UNSTABLE, Status.OUT_OF_DOMAIN, Status.OUT_OF_DOMAIN, Status.OK]
    for rate, code in zip(rates, codes, strict=True):
        found = (SPLIT_OF(rate, mu1, mu2), BEST_OF(rate, mu1, mu2))
        assert [int(x.status) for x in found] == [code, code]
        assert [bool(jnp.isfinite(x.mean_number)) for x in found] == [code == Status.OK] * 2
