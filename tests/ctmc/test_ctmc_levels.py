import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ctmc.exact_chains import exact_stationary, precise_levels
from hypothesis import given, settings
from hypothesis import strategies as st

from hetjax import ctmc
from hetjax.result import Status

EPS = {jnp.float64: 2.0**-52, jnp.float32: 2.0**-23}
law = jax.jit(ctmc.stationary_levels, static_argnames="form")
mean = jax.jit(ctmc.expectation_levels)


@jax.jit
def all_forms(levels, rewards):
    """The law, its logarithm and the means in one compilation."""
    logs = ctmc.stationary_levels(levels, form="log").value
    return ctmc.stationary_levels(levels), logs, ctmc.expectation_levels(levels, rewards)


def random_levels(L, S, seed=0, diagonal=False):
    rng = np.random.default_rng(seed)
    shape = (L, S) if diagonal else (L, S, S)
    up, down = rng.random(shape), rng.random(shape) + 0.1
    return ctmc.Levels(jnp.asarray(up), jnp.asarray(rng.random((L, S, S))), jnp.asarray(down))


def birth_death(up, down, L, dtype=jnp.float64):
    return ctmc.Levels(jnp.full((L, 1), up, dtype), jnp.zeros((L, 1, 1), dtype), jnp.full((L, 1), down, dtype))


@pytest.mark.parametrize("L, S, diagonal", [(1, 3, False), (2, 1, True), (5, 1, False), (4, 2, True), (4, 3, False),
                                            (3, 5, True)])
def test_law_and_means_against_exact_rationals(L, S, diagonal):
    levels = random_levels(L, S, L + S, diagonal)
    exact = np.array([float(p) for p in exact_stationary(np.asarray(ctmc.levels_to_dense(levels)))]).reshape(L, S)
    rewards = np.random.default_rng(9).random((2, L, S))
    solution, logs, means = all_forms(levels, jnp.asarray(rewards))
    np.testing.assert_allclose(solution.value, exact, rtol=1e-14)
    assert solution.status == Status.OK and solution.residual < 1e-14
    np.testing.assert_allclose(logs, np.log(exact), atol=2e-14)
    np.testing.assert_allclose(means.value, np.sum(rewards * exact, axis=(1, 2)), rtol=1e-14)
    assert means.status == Status.OK
    if S < 3:  # one reward instead of two
        assert mean(levels, jnp.asarray(rewards[0])).value == pytest.approx(float(means.value[0]), rel=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_more_phases_than_are_unrolled(dtype):
    levels = jax.tree.map(lambda x: x.astype(dtype), random_levels(3, 27))
    exact = precise_levels(*levels[:3])
    np.testing.assert_allclose(law(levels, form="log").value, exact, atol=200 * EPS[dtype])
    rewards = jnp.asarray(np.random.default_rng(9).random((3, 27)), dtype)
    expected = np.sum(np.exp(exact) * np.asarray(rewards))
    np.testing.assert_allclose(mean(levels, rewards).value, expected, rtol=100 * EPS[dtype])


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("load", [2.0**-10, 2.0**10])  # exact in both precisions
def test_ten_thousand_levels_at_extreme_load(dtype, load):
    L = 10_000
    levels = birth_death(load, 1.0, L, dtype)
    solution = law(levels)
    rank = np.arange(L) if load < 1 else np.arange(L)[::-1]  # the truncated geometric law, by distance from its mode
    ratio = min(load, 1 / load)
    exact = (1 - ratio) * ratio ** rank.astype(float)
    visible = exact > (1e-30 if dtype == jnp.float32 else 1e-300)
    np.testing.assert_allclose(np.asarray(solution.value[:, 0])[visible], exact[visible],
                               rtol=1e-13 if dtype == jnp.float64 else 1e-5)
    assert solution.status == Status.OK and np.all(np.asarray(solution.value)[exact < 1e-310] == 0)
    logs = np.asarray(law(levels, form="log").value[:, 0], float)
    np.testing.assert_allclose(logs, np.log(1 - ratio) + rank * np.log(ratio), rtol=4 * EPS[dtype])
    mantissa, exponent = law(levels, form="scaled").value
    scaled = np.log2(np.asarray(mantissa[:, 0], float)) + np.asarray(exponent)
    np.testing.assert_allclose(scaled, logs / np.log(2), rtol=8 * EPS[dtype])
    found = mean(levels, jnp.arange(L, dtype=dtype)[:, None])
    expected = ratio / (1 - ratio) if load < 1 else L - 1 - ratio / (1 - ratio)
    np.testing.assert_allclose(found.value, expected, rtol=1e-13 if dtype == jnp.float64 else 1e-5)
    assert found.status == Status.OK


@pytest.mark.parametrize("dtype, L", [(jnp.float64, 501), (jnp.float32, 61)])
def test_where_elimination_without_rescaling_fails(dtype, L):
    """M/M/1/K with rho = 0.2: the unscaled measure underflows and ends in NaN."""
    levels = birth_death(0.2, 1.0, L, dtype)
    for chain in (levels, birth_death(1.0, 0.2, L, dtype)):
        rho = float(chain.up[0, 0] / chain.down[0, 0])
        found = law(chain)
        assert found.status == Status.OK and np.isfinite(np.asarray(found.value)).all()
        rank = np.arange(L) if rho < 1 else np.arange(L)[::-1]
        exact = (1 - min(rho, 1 / rho)) * min(rho, 1 / rho) ** rank.astype(float)
        seen = exact > 1e-30
        np.testing.assert_allclose(np.asarray(found.value[:, 0])[seen], exact[seen], rtol=L * EPS[dtype])


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_identical_levels_near_saturation_repeat_their_rounding(dtype):
    """lambda = 1.3 x .9999, mu = 1.3: each level repeats one rounding, the error grows like L eps (mu = 1 hides it)."""
    L = 10_000
    up, down = dtype(1.3 * 0.9999), dtype(1.3)
    levels = birth_death(up, down, L, dtype)
    rho = float(up) / float(down)
    exact = (1 - rho) / (1 - rho**L) * rho ** np.arange(L)
    tolerance = max(1e-13 if dtype == jnp.float64 else 1e-5, L * EPS[dtype])
    np.testing.assert_allclose(law(levels).value[:, 0], exact, rtol=tolerance)
    np.testing.assert_allclose(mean(levels, jnp.arange(L, dtype=dtype)[:, None]).value, np.sum(exact * np.arange(L)),
                               rtol=tolerance)


def test_many_levels_of_three_phases_in_multiprecision():
    rng = np.random.default_rng(5)
    L = 300
    up, local, down = 10.0 ** rng.uniform(-2, 2, (3, L, 3, 3))
    local *= 10.0 ** rng.choice([0, -14, -30], (L, 1, 1))  # nearly decomposable levels
    levels = ctmc.Levels(*map(jnp.asarray, (up, local, down)))
    exact = precise_levels(up, local, down)
    np.testing.assert_allclose(law(levels, form="log").value, exact, rtol=1e-15, atol=L * 2.0**-52)


@pytest.mark.parametrize("coupling", [1e-14, 1e-30])
def test_nearly_decomposable_phases(coupling):
    """Phases that hardly ever change: with equal drift every entry stays right."""
    L = 60
    up, down = np.broadcast_to([0.5, 2.0], (L, 2)), np.ones((L, 2))
    local = np.zeros((L, 2, 2))
    local[:, 0, 1], local[:, 1, 0] = coupling, coupling / 3
    levels = ctmc.Levels(*map(jnp.asarray, (up, local, down)))
    np.testing.assert_allclose(law(levels, form="log").value, precise_levels(up, local, down), rtol=4e-15)
    exact = np.exp(precise_levels(up, local, down))
    np.testing.assert_allclose(mean(levels, jnp.arange(60.0)[:, None] * jnp.ones((1, 2))).value,
                               np.sum(exact * np.arange(60)[:, None]), rtol=4e-15)


@pytest.mark.parametrize("L", [1, 4])
def test_transient_boundary_phases(L):
    """0 -> 1 -> 2, up and down only from phase 2: pivot 0 in phases 1 and 2 of level 0."""
    local = jnp.zeros((L, 3, 3)).at[:, 0, 1].set(1.0).at[:, 1, 2].set(1.0)
    levels = ctmc.Levels(jnp.zeros((L, 3, 3)).at[:, 2, 2].set(1.0), local, jnp.zeros((L, 3, 3)).at[:, 2, 2].set(2.0))
    solution = law(levels)
    geometric = 0.5 ** np.arange(L) / np.sum(0.5 ** np.arange(L))
    assert solution.status == Status.OK and np.all(solution.value[:, :2] == 0)
    np.testing.assert_allclose(solution.value[:, 2], geometric, rtol=1e-15)
    found = mean(levels, jnp.arange(1.0, L + 1)[:, None] * jnp.ones((1, 3)))
    np.testing.assert_allclose(found.value, np.sum(geometric * np.arange(1, L + 1)), rtol=1e-15)
    assert found.status == Status.OK


def test_transient_lower_levels():
    """Level 1 is never left downwards: level 0 has no mass. The functional goes through the law there."""
    levels = birth_death(1.0, 1.0, 4)
    levels = levels._replace(down=levels.down.at[1].set(0.0))
    solution = law(levels)
    assert solution.status == Status.OK and solution.value[0, 0] == 0
    np.testing.assert_allclose(solution.value[1:, 0], 1 / 3, rtol=1e-15)
    assert np.isneginf(law(levels, form="log").value[0, 0])
    found = mean(levels, jnp.arange(4.0)[:, None])
    assert found.status == Status.OK
    np.testing.assert_allclose(found.value, 2, rtol=1e-15)


def test_trapped_phases_among_many():
    """27 phases, panels: phases 5 and up of level 1 are never left for those before them."""
    rng = np.random.default_rng(7)
    up, local, down = rng.random((3, 3, 27, 27))
    local[1, 5:, :5] = down[1, 5:] = 0
    down[2, :, :5] = 0
    levels = ctmc.Levels(*map(jnp.asarray, (up, local, down)))
    solution = law(levels)
    assert solution.status == Status.OK
    Q = np.asarray(ctmc.levels_to_dense(levels))
    keep = np.r_[32:81]
    np.testing.assert_array_equal(solution.value.reshape(-1)[:32], np.zeros(32))
    exact = [float(p) for p in exact_stationary(Q[np.ix_(keep, keep)])]
    np.testing.assert_allclose(solution.value.reshape(-1)[32:], exact, rtol=1e-13)



@pytest.mark.parametrize("where", [0, 10, 200, 390, 399])
def test_phases_with_opposite_drift(where):
    """Phase ratios of 1e1200, coupled at one level by 1e-10. The law is right; a functional is right or flagged."""
    L = 400
    up = np.broadcast_to([1e3, 1e-3], (L, 2))
    local = np.zeros((L, 2, 2))
    local[where, 0, 1] = local[where, 1, 0] = 1e-10
    levels = ctmc.Levels(*map(jnp.asarray, (up, local, np.ones((L, 2)))))
    exact = np.exp(precise_levels(up, local, np.ones((L, 2))))
    solution = law(levels)
    assert solution.status == Status.OK
    seen = exact > 1e-300
    np.testing.assert_allclose(np.asarray(solution.value)[seen], exact[seen], rtol=1e-13)
    found = mean(levels, jnp.arange(400.0)[:, None] * jnp.ones((1, 2)))
    if found.status == Status.OK:
        np.testing.assert_allclose(found.value, np.sum(exact * np.arange(400)[:, None]), rtol=1e-12)
    else:
        assert where == 200 and found.status == Status.NONFINITE


def test_float32_rates_far_apart():
    """1e30 beside 1e-30 in one level, and rates below float32's normal range: right or a status, no silent NaN."""
    f = jnp.float32
    local = jnp.zeros((2, 2, 2), f).at[:, 0, 1].set(f(1e30)).at[:, 1, 0].set(f(1e-30))
    levels = ctmc.Levels(jnp.full((2, 2), 1e-30, f), local, jnp.full((2, 2), 1e30, f))
    assert law(levels).status == Status.NONFINITE or np.isfinite(np.asarray(law(levels).value)).all()
    local = jnp.zeros((2, 2, 2), f).at[:, 0, 1].set(f(1e15)).at[:, 1, 0].set(f(1e-15))
    levels = ctmc.Levels(jnp.full((2, 2), 1e-15, f), local, jnp.full((2, 2), 1e15, f))
    exact = np.exp(precise_levels(*levels[:3]))
    np.testing.assert_allclose(law(levels).value, exact, rtol=1e-5, atol=1e-37)
    tiny = birth_death(1e-42, 1e-42, 3, f)  # denormals are flushed: to the machine these are zero rates
    assert law(tiny).status != Status.OK and mean(tiny, jnp.ones((3, 1), f)).status != Status.OK


def test_float32_is_right_or_says_so():
    """Rates over sixty decades: links between phases fall out of the range, and no value is wrong silently."""
    rng = np.random.default_rng(0)
    blocks = (10.0 ** rng.uniform(-30, 30, (60, 3, 3, 2, 2)) * (rng.random((60, 3, 3, 2, 2)) < 0.8)).astype(np.float32)
    rewards = jnp.arange(3, dtype=jnp.float32)[:, None] * jnp.ones((1, 2), jnp.float32)

    def both(x):
        return ctmc.stationary_levels(ctmc.Levels(*x)), ctmc.expectation_levels(ctmc.Levels(*x), rewards)

    laws, means = jax.jit(jax.vmap(both))(jnp.asarray(blocks))
    seen = 0
    for x, status, got, mean_status, value in zip(blocks, laws.status, laws.value, means.status, means.value,
                                                  strict=True):
        Q = np.asarray(ctmc.levels_to_dense(ctmc.Levels(*x.astype(float))))
        members, *others = ctmc.classes(Q).recurrent
        if others:
            continue
        members = list(members)
        if status != Status.OK and mean_status != Status.OK:
            continue
        seen += 1
        exact = np.zeros(6)
        exact[members] = [float(p) for p in exact_stationary(Q[np.ix_(members, members)])]
        exact = exact.reshape(3, 2)
        if status == Status.OK:
            np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-37)
        if mean_status == Status.OK:
            np.testing.assert_allclose(value, np.sum(exact * np.arange(3)[:, None]), rtol=1e-5, atol=1e-37)
    assert seen > 10


def test_ragged_phase_counts():
    rng = np.random.default_rng(2)
    mask = np.array([[True, False, False], [False, True, True], [True, True, True], [True, False, True]])
    up, local, down = (rng.random((4, 3, 3)) for _ in range(3))
    levels = ctmc.Levels(*map(jnp.asarray, (up, local, down, mask)))
    real = np.flatnonzero(mask.reshape(-1))
    Q = np.asarray(ctmc.levels_to_dense(levels))[np.ix_(real, real)]
    exact = np.zeros(12)
    exact[real] = [float(p) for p in exact_stationary(Q)]
    solution = law(levels)
    assert solution.status == Status.OK
    np.testing.assert_allclose(solution.value, exact.reshape(4, 3), rtol=1e-14)
    rewards = rng.random((4, 3))
    found = mean(levels, jnp.asarray(rewards))
    assert found.status == Status.OK
    np.testing.assert_allclose(found.value, np.sum(exact.reshape(4, 3) * rewards), rtol=1e-14)
    assert law(levels._replace(up=levels.up * 0, down=levels.down * 0)).status == Status.OUT_OF_DOMAIN
    batch = jax.jit(jax.vmap(lambda x: ctmc.stationary_levels(levels._replace(up=x * levels.up)).value))(jnp.ones(2))
    np.testing.assert_allclose(batch[0], exact.reshape(4, 3), rtol=1e-14)


@pytest.mark.parametrize("name", ["up", "local", "down"])
@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_bad_rates_get_a_status(name, bad):
    levels = random_levels(4, 2)
    levels = levels._replace(**{name: getattr(levels, name).at[2, 0, 1].set(bad)})
    assert law(levels).status == Status.OUT_OF_DOMAIN
    assert mean(levels, jnp.ones((4, 2))).status == Status.OUT_OF_DOMAIN


def test_unused_entries_are_never_read():
    levels = random_levels(4, 2)
    hidden = ctmc.Levels(levels.up.at[-1].set(jnp.nan), levels.local.at[:, 0, 0].set(-9.0),
                         levels.down.at[0].set(jnp.nan))
    assert np.array_equal(law(levels).value, law(hidden).value) and law(hidden).status == Status.OK
    assert mean(hidden, jnp.ones((4, 2))).value == 1


def test_wrong_shapes_raise():
    levels = random_levels(4, 2)
    with pytest.raises(ValueError, match="rewards has shape"):
        ctmc.expectation_levels(levels, jnp.ones((4, 3)))
    with pytest.raises(ValueError, match="down has shape"):
        ctmc.stationary_levels(levels._replace(down=levels.down[1:]))
    with pytest.raises(ValueError, match="form"):
        ctmc.stationary_levels(levels, form="logs")


@pytest.mark.parametrize("S", [1, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_points_last_vmap_and_loop_agree(S):
    base = random_levels(4, S)
    loads = jnp.array([0.3, 1.0, 4.0])
    rewards = jnp.arange(4.0)[:, None] * jnp.ones((1, S))

    def both(load):
        levels = base._replace(up=base.up * load)
        return ctmc.stationary_levels(levels).value, ctmc.expectation_levels(levels, rewards).value

    loop = [jax.jit(both)(load) for load in loads]
    batch = jax.jit(jax.vmap(both))(loads)
    same = [jnp.broadcast_to(x[..., None], (4, S, S, 3)) for x in base[1:3]]
    native = ctmc.Levels(base.up[..., None] * loads.reshape(1, 1, 1, 3), *same)
    last = law(native).value, mean(native, jnp.broadcast_to(rewards[None, :, :, None], (1, 4, S, 3))).value
    for i in range(3):
        np.testing.assert_allclose(batch[0][i], loop[i][0], rtol=2e-15)
        np.testing.assert_allclose(last[0][..., i], loop[i][0], rtol=2e-15)
        np.testing.assert_allclose([batch[1][i], last[1][0, i]], loop[i][1], rtol=2e-15)


def test_derivatives_in_both_modes():
    base = random_levels(3, 2)

    def mean_level(load):
        rewards = jnp.arange(3.0)[:, None] * jnp.ones((1, 2))
        return ctmc.expectation_levels(base._replace(up=base.up * load), rewards).value

    def dense(load):
        Q = ctmc.levels_to_dense(base._replace(up=base.up * load))
        return ctmc.stationary(Q).value @ jnp.repeat(jnp.arange(3.0), 2)

    def from_law(load):
        probabilities = ctmc.stationary_levels(base._replace(up=base.up * load)).value
        return jnp.sum(probabilities * jnp.arange(3.0)[:, None])

    expected = jax.jit(jax.jacfwd(dense))(1.5)
    for f in (mean_level, from_law):
        np.testing.assert_allclose([jax.jit(jax.jacfwd(f))(1.5), jax.jit(jax.grad(f))(1.5)], expected, rtol=1e-13)
    in_batch = jax.jit(jax.vmap(jax.grad(mean_level)))(jnp.array([1.5]))
    np.testing.assert_allclose(in_batch[0], expected, rtol=1e-13)


@settings(max_examples=40)
@given(st.sampled_from([(1, 2), (3, 1), (3, 2), (2, 3)]), st.data())
def test_any_rates(shape, data):
    L, S = shape
    rate = st.one_of(st.just(0.0), st.floats(-10, 10).map(lambda e: 10.0**e))
    blocks = np.array(data.draw(st.lists(rate, min_size=3 * L * S * S, max_size=3 * L * S * S))).reshape(3, L, S, S)
    levels = ctmc.Levels(*map(jnp.asarray, blocks))
    Q = np.asarray(ctmc.levels_to_dense(levels))
    found = ctmc.classes(Q)
    solution = law(levels)
    if len(found.recurrent) > 1:
        assert solution.status == Status.OUT_OF_DOMAIN
        return
    members = list(found.recurrent[0])
    exact = np.zeros(L * S)
    exact[members] = [float(p) for p in exact_stationary(Q[np.ix_(members, members)])]
    if solution.status == Status.OUT_OF_DOMAIN:  # allowed only where a state never returns to lower ones
        assert members[0] >= S
    else:
        assert solution.status == Status.OK
        np.testing.assert_allclose(solution.value, exact.reshape(L, S), rtol=1e-13)
