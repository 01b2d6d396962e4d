"""Best splits, best words, thresholds by phase and the bound by full information, each against another route."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.parallel_queues import parallel_queues_precise as precise

import hetjax
from hetjax import control, ctmc, threshold_queue
from hetjax import parallel_queues as pq
from hetjax.result import Status

TWO = (2.0, [2.0, 1.0], [0.5, 0.2])
SPLIT, BEST = pq.best_split, pq.best_word  # compiled once, as their sizes are the same everywhere in this file
UNCHECKED = jax.jit(lambda *z: pq.Params(*z))


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


def test_the_price_of_the_first_customers():
    """Almost nobody comes: d mean number / d rate is the time that one customer alone takes, 1 / mu1."""
    for rate in (1e-6, 1e-3):
        found = SPLIT(pq.Params(rate, [2.0, 1.0], [0.5, 0.2]))
        assert int(found.status) == 1 and abs(float(found.marginal_cost) - 0.5) < rate


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


def test_gradients_in_split_and_thresholds():
    """Of the registered model, against differences of chains solved with 40 digits."""
    names = ("split", "threshold_node1", "threshold_node2", "arrival_rate", "mu1_node1", "mu2_node2")
    rest = {"mu2_node1": 0.5, "mu1_node2": 1.0}
    at = [0.7, 1.4, 2.6, 0.8, 2.0, 0.2]

    def mean(x):
        values = {name: jnp.asarray(v) for name, v in rest.items()} | dict(zip(names, x, strict=True))
        return pq.MODEL.point(values, ("mean_number",), {})[0]["mean_number"]

    def chains(x):
        p, t1, t2, rate, mu11, mu22 = x
        return (precise.mean_number(rate * p, [1], mu11, rest["mu2_node1"], [t1])
                + precise.mean_number(rate * (1 - p), [1], rest["mu1_node2"], mu22, [t2]))

    value, slopes = precise.slopes(chains, at)
    found, gradient = jax.jit(jax.value_and_grad(mean))(jnp.asarray(at))
    assert float(found) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-11)


@settings(max_examples=12)
@given(load=st.floats(0.02, 0.98), mu=st.lists(st.floats(0.1, 5), min_size=2, max_size=2), unit=st.floats(0.01, 100),
       ratio=st.lists(st.floats(1, 50), min_size=2, max_size=2))
def test_best_split_of_any_two_nodes(load, mu, unit, ratio):
    """The unit of time and the order of the nodes do not matter; no split of 101 with the same thresholds wins."""
    mu1 = jnp.asarray(mu)
    mu2 = mu1 / jnp.asarray(ratio)
    rate = load * (mu1 + mu2).sum()
    found, turned = SPLIT(UNCHECKED(rate, mu1, mu2)), SPLIT(UNCHECKED(rate * unit, unit * mu1[::-1], unit * mu2[::-1]))
    assert int(found.status) == Status.OK
    assert float(turned.mean_number) == pytest.approx(float(found.mean_number), rel=1e-10)
    assert float(found.probabilities.sum()) == pytest.approx(1, rel=1e-14) and (found.probabilities >= 0).all()
    p = jnp.linspace(0, 1, 101)
    others = NUMBERS(UNCHECKED(rate, mu1, mu2), jnp.stack([p, 1 - p], axis=1), found.thresholds)
    assert float(found.mean_number) <= float(others.sum(axis=1).min()) * (1 + 1e-12)


NUMBERS = jax.jit(jax.vmap(pq.node_numbers, (None, 0, None)))


def test_registered_models(reference):
    """One point of each; :func:`test_golden_points` and the sweep's tests take the dear metrics."""
    place, known = pq.MODEL.golden[0]
    found = hetjax.evaluate(pq.MODEL, **place, metrics=list(known))
    assert float(found.mean_number) == pytest.approx(known["mean_number"], rel=1e-12)
    place = {k: v for k, v in place.items() if k[:2] in ("ar", "mu")}
    values = place | {"length": 4, "ones": np.arange(0.0, 6.0), "threshold_node1": 2.0, "threshold_node2": 3.0}
    found = hetjax.evaluate(pq.WORD_MODEL, **values)
    bad = Status.OUT_OF_DOMAIN
    assert found.status.tolist() == [bad, Status.UNSTABLE, Status.OK, Status.OK, bad, bad]  # 1.5 > 1.2
    np.testing.assert_array_equal(np.isnan(found.mean_number), found.status != Status.OK)
    word = pq.word_means(pq.Params(*TWO), [1, 1, 0, 1], [2, 3]).value
    for name, field in (("mean_number", "number"), ("mean_waiting", "waiting"), ("p_empty", "empty"),
                        ("utilization_fast", "fast"), ("utilization_slow", "slow")):
        both = [float(found[f"{name}_node{i}"][3]) for i in (1, 2)]
        np.testing.assert_allclose(both, getattr(word, field), rtol=1e-12)
    row = reference("open_loop")["full_information"][0]
    rates = {f"mu{j}_node{i}": row[f"node{i}"][j - 1] for i in (1, 2) for j in (1, 2)}
    found = hetjax.evaluate(pq.BEST_MODEL, arrival_rate=row["router_rate"], **rates,
                            metrics=["full_information_mean_number"])
    assert int(found.status) == Status.OK
    assert float(found.full_information_mean_number) == pytest.approx(row["full_information"], rel=1e-6)  # as asked


@pytest.mark.slow
def test_golden_points():
    for model in (pq.MODEL, pq.WORD_MODEL, pq.BEST_MODEL):
        assert hetjax.get_model(model.name) is model
        for values, known in model.golden:
            found = hetjax.evaluate(model, **values, metrics=list(known))
            for name, value in known.items():
                assert float(found[name]) == pytest.approx(value, rel=1e-12)
    values = dict(pq.WORD_MODEL.golden[0][0]) | {"length": 4, "ones": 3.0}
    found = hetjax.evaluate(pq.WORD_MODEL, **values)
    other = pq.WORD_MODEL.second_route(values, tuple(m.name for m in pq.WORD_MODEL.metrics))
    assert len(other) == len(pq.WORD_MODEL.metrics)
    for name, value in other.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-11)


@pytest.mark.slow
def test_float32():
    """Searches in float32: a mean number not worse than rounding, though the word may be a neighbour."""
    many = points(6, 21)
    narrow = [x.astype(jnp.float32) for x in many]
    for search, field in ((pq.best_split, "mean_number"), (pq.best_word, "mean_number")):
        wide, short = (jax.jit(jax.vmap(lambda *z, f=search: f(pq.Params(*z))))(*x) for x in (many, narrow))
        assert short.mean_number.dtype == jnp.float32
        np.testing.assert_array_equal(short.status, wide.status)
        np.testing.assert_allclose(getattr(short, field), getattr(wide, field), rtol=1e-3)


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
    full = pq.word_means(pq.Params(3.5, [2.0, 1.0], [0.5, 0.2]), [1, 1, 0, 1], [2, 3])
    assert int(full.status) == Status.UNSTABLE and np.isnan(full.value.number).all()
    with pytest.raises(ValueError, match=r"arrays of shapes \(2,\), \(1,\)"):
        pq.Params(1.0, [1.0, 1.0], [0.5])
    with pytest.raises(ValueError, match="size"):
        pq.full_information(p, 2)
    with pytest.raises(ValueError, match="max_length"):
        pq.best_general_word(p, 20)
    with pytest.raises(ValueError, match="ones, length"):
        pq.best_thresholds_of_word(p, 3, 3)
    mu1, mu2 = p.mu1, p.mu2
    for rate, code in ((4.0, Status.UNSTABLE), (-1.0, Status.OUT_OF_DOMAIN), (np.nan, Status.OUT_OF_DOMAIN)):
        bad = UNCHECKED(jnp.asarray(rate), mu1, mu2)  # as under jit, where nothing is checked
        for found in (SPLIT(bad), BEST(bad)):
            assert int(found.status) == code and bool(jnp.isnan(found.mean_number))
