"""Simulation against closed forms, with confidence intervals that must cover; reproducibility; the random words."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from hetjax.ctmc.simulate import (
    generator_chain,
    random_words,
    sample_paths,
    simulate,
    student_quantile,
    transition_chain,
)
from hetjax.ctmc.transient import transient
from hetjax.result import Status

SERVERS = 3
Q = jnp.asarray([[0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 2.0, 0.3], [0.0, 1.0, 0.0, 0.1], [4.0, 0.0, 0.0, 0.0]])


def queue(arrival_rate, capacity=None):
    """M/M/c, or M/M/c/capacity if a capacity is given."""
    def rates(n):
        open_door = True if capacity is None else n < capacity
        return jnp.where(open_door, arrival_rate, 0.0), jnp.minimum(n, SERVERS)

    return transition_chain(rates, lambda n, event: n + 1 - 2 * event)


DEFAULTS = dict(rewards=lambda n: {"number": n, "empty": n == 0}, events=400, warmup=400, replications=1024)


def run(chain, **options):
    return jax.jit(lambda key: simulate(chain, 0, key, **{**DEFAULTS, **options}))(jax.random.key(0))


@functools.cache
def compiled_queue(**options):
    return jax.jit(lambda load, key: simulate(queue(load), 0, key, **DEFAULTS, **options))


def run_queue(load, seed=0, **options):
    """M/M/c; one compilation for all loads and seeds."""
    return compiled_queue(**options)(jnp.asarray(load), jax.random.key(seed))


def mean_number_mmc(load):
    """M/M/c with service rate 1: load + Erlang C load/(c - load)."""
    top = load**SERVERS / math.factorial(SERVERS) * SERVERS / (SERVERS - load)
    waits = top / (sum(load**k / math.factorial(k) for k in range(SERVERS)) + top)
    return load + waits * load / (SERVERS - load)


def test_random_words_known_answers():
    """The published test vectors of Threefry-2x32 with 13 and 20 rounds."""
    pi = (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344)
    ones = (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF)
    expected = {(13, pi): (0xBA3E4725, 0xF27D669E), (13, ones): (0xFD36D048, 0x2D17272C),
                (20, pi): (0xC4923A9C, 0x483DF7A0), (20, ones): (0x1CB996FC, 0xBB002BE7)}
    for (rounds, (counter, key)), words in expected.items():
        as_words = [tuple(jnp.uint32(x) for x in pair) for pair in (key, counter)]
        assert tuple(int(w) for w in random_words(*as_words, rounds=rounds)) == words


def test_random_words_look_uniform_and_independent():
    lanes, steps = np.meshgrid(np.arange(256, dtype=np.uint32), np.arange(256, dtype=np.uint32))
    first, second = random_words((jnp.uint32(1), jnp.uint32(2)), (jnp.asarray(lanes), jnp.asarray(steps)))
    for words in (first, second):
        counts = np.bincount(np.asarray(words).reshape(-1) >> 24, minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > 1e-3
    u, v = (np.asarray(w, np.float64) / 2**32 - 0.5 for w in (first, second))
    for other in (np.roll(u, 1, 0), np.roll(u, 1, 1), v):
        assert abs((u * other).mean()) * 12 * 256 < 4.5  # correlation in standard deviations


@pytest.mark.parametrize("times", ["mean", "sampled"])
@pytest.mark.parametrize("load", [0.6, 2.1])
def test_queue_against_erlang(load, times):
    found = run_queue(load, times=times)
    assert int(found.status) == Status.OK and found.samples == 1024
    error = abs(float(found.mean["number"]) - mean_number_mmc(load))
    assert error < 2 * float(found.half_width["number"])  # 3.9 standard errors
    assert float(found.half_width["number"]) < 0.03 * mean_number_mmc(load)


def test_mean_holding_times_do_not_widen_the_interval():
    widths = {times: float(run_queue(2.1, times=times).half_width["empty"]) for times in ("mean", "sampled")}
    assert widths["mean"] < widths["sampled"]


def test_loss_rate_as_an_impulse():
    """M/M/3/3: an arrival in state 3 is an event that leaves the state: its rate is lambda times Erlang B."""
    load = 2.5
    chain = transition_chain(lambda n: (load, n), lambda n, event: jnp.where(event == 0, jnp.minimum(n + 1, 3), n - 1))
    found = run(chain, impulses=lambda n, event: {"lost": (event == 0) & (n == 3), "arrived": event == 0})
    erlang = load**3 / 6 / sum(load**k / math.factorial(k) for k in range(4))
    assert abs(float(found.mean["lost"]) - load * erlang) < 2 * float(found.half_width["lost"])
    assert abs(float(found.mean["arrived"]) - load) < 2 * float(found.half_width["arrived"])


@pytest.mark.parametrize("interval", ["replications", "batches"])
def test_intervals_cover(interval):
    """95 % intervals of 400 independent studies: coverage within four standard deviations."""
    options = dict(replications=16, batches=1) if interval == "replications" else dict(replications=4, batches=8)
    events = 1600 if interval == "replications" else 6400
    chain = queue(1.5, capacity=6)
    weights = np.array([1.5**n / math.prod(min(k, SERVERS) for k in range(1, n + 1)) for n in range(7)])
    exact = weights @ np.arange(7) / weights.sum()

    def study(key):
        return simulate(chain, 0, key, rewards=lambda n: {"number": n}, events=events, warmup=100, interval=interval,
                        **options)

    found = jax.jit(jax.vmap(study))(jax.random.split(jax.random.key(3), 400))
    covered = np.abs(np.asarray(found.mean["number"]) - exact) < np.asarray(found.half_width["number"])
    assert abs(covered.mean() - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400)


def test_generator_chain_against_linear_algebra():
    A = np.asarray(Q) - np.diag(np.asarray(Q).sum(1))
    exact = np.linalg.lstsq(np.vstack([A.T, np.ones(4)]), np.r_[np.zeros(4), 1.0], rcond=None)[0]
    found = run(generator_chain(Q), rewards=lambda i: {f"p{k}": i == k for k in range(4)}, times="sampled")
    for k in range(4):
        assert abs(float(found.mean[f"p{k}"]) - exact[k]) < 2 * float(found.half_width[f"p{k}"])


@pytest.mark.parametrize("n", [2, 3, 8, 9])
def test_generator_chain_picks_every_target_in_proportion(n):
    rates = jnp.asarray(np.random.default_rng(n).random((n, n))).at[1, min(2, n - 1)].set(0.0)
    chain, uniforms = generator_chain(rates), jnp.arange(20_000) / 20_000
    jumps = jax.vmap(lambda u: chain(jnp.asarray(1, jnp.int32), u))(uniforms)
    expected = np.asarray(rates[1].at[1].set(0.0))
    counts = np.bincount(np.asarray(jumps.state), minlength=n) / 20_000
    np.testing.assert_allclose(counts, expected / expected.sum(), atol=1.1 / 20_000)
    assert counts[1] == 0 and (n == 2 or counts[2] == 0)
    np.testing.assert_allclose(jumps.exit_rate, expected.sum(), rtol=1e-15)


def test_events_of_rate_zero_never_happen():
    chain = transition_chain(lambda n: (0.0, 1.0, 0.0, 2.0, 0.0), lambda n, event: event)
    uniforms = jnp.asarray([0.0, 0.3, 1 / 3 + 1e-9, 0.9, 1 - 2.0**-32])
    jumps = jax.vmap(lambda u: chain(jnp.asarray(0), u))(uniforms)
    assert jumps.event.tolist() == [1, 1, 3, 3, 3]


def test_paths_follow_the_transient_law():
    """Where 4,000 paths are at time 0.8, against uniformisation: chi-square."""
    paths = sample_paths(generator_chain(Q), 0, jax.random.key(5), events=40, replications=4000)
    assert paths.times.shape == (4000, 41) and float(paths.times[:, -1].min()) > 0.8
    at = (np.asarray(paths.times) <= 0.8).sum(1) - 1
    counts = np.bincount(np.asarray(paths.states)[np.arange(4000), at], minlength=4)
    law = np.asarray(jax.jit(transient)(Q, jnp.eye(4)[0], 0.8).value.probabilities)
    assert scipy.stats.chisquare(counts, 4000 * law / law.sum()).pvalue > 1e-3


def test_holding_times_are_exponential():
    paths = sample_paths(generator_chain(Q), 1, jax.random.key(6), events=1, replications=4000)
    assert scipy.stats.kstest(np.asarray(paths.times[:, 1]) * 2.8, "expon").pvalue > 1e-3


def test_reproducible_by_key_and_lane():
    chain = generator_chain(Q)
    few, many = (sample_paths(chain, 0, jax.random.key(7), events=20, replications=r) for r in (3, 50))
    np.testing.assert_array_equal(few.states, many.states[:3])
    np.testing.assert_array_equal(few.times, many.times[:3])
    assert (np.asarray(many.states[0]) != np.asarray(many.states[1])).any()
    first, again, other = (run_queue(1.0, seed=s, times="mean") for s in (1, 1, 2))
    assert float(first.mean["number"]) == float(again.mean["number"]) != float(other.mean["number"])


def test_batches_do_not_change_the_path():
    whole, cut = run_queue(1.0, times="mean"), run_queue(1.0, batches=4)
    np.testing.assert_allclose(float(whole.mean["number"]), float(cut.mean["number"]), rtol=1e-13)


def test_vmap_over_parameters():
    loads = jnp.asarray([0.6, 2.1])
    found = jax.jit(jax.vmap(lambda load: simulate(
        queue(load), 0, jax.random.key(0), rewards=lambda n: {"number": n}, events=400, warmup=400)))(loads)
    for load, mean, half in zip(loads, found.mean["number"], found.half_width["number"], strict=True):
        assert abs(float(mean) - mean_number_mmc(float(load))) < 2 * float(half)


def test_state_may_be_a_pytree_and_float32_runs():
    """Two independent M/M/1/4 queues in one state."""
    def move(state, event):
        a, b = state["a"], state["b"]
        return {"a": a + (event == 0).astype(a.dtype) - (event == 1).astype(a.dtype),
                "b": b + (event == 2).astype(b.dtype) - (event == 3).astype(b.dtype)}

    def rates(state):
        return [jnp.where(test, rate, 0.0) for key, up in (("a", 0.5), ("b", 2.0))
                for test, rate in ((state[key] < 4, up), (state[key] > 0, 1.0))]

    with jax.enable_x64(False):
        found = simulate(transition_chain(rates, move), {"a": 0, "b": 0}, jax.random.key(0), events=300, warmup=200,
                         rewards=lambda s: {"a": s["a"], "b": s["b"]}, replications=2048)
        assert found.mean["a"].dtype == jnp.float32
    for name, load in (("a", 0.5), ("b", 2.0)):
        law = load ** np.arange(5) / np.sum(load ** np.arange(5))
        assert abs(float(found.mean[name]) - law @ np.arange(5)) < 2 * float(found.half_width[name])


@pytest.mark.parametrize("degrees", [1, 2, 7, 100, 4095])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.9995])
def test_student_quantile(degrees, probability):
    np.testing.assert_allclose(student_quantile(probability, degrees), scipy.stats.t.ppf(probability, degrees),
                               rtol=1e-9)


def test_absorbing_states_and_bad_rates_give_a_status():
    trap = jnp.asarray([[0.0, 1.0, 0.1], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert int(run(generator_chain(trap), events=40).status) == Status.OUT_OF_DOMAIN
    assert int(run(generator_chain(-trap), events=4).status) == Status.OUT_OF_DOMAIN
    assert int(run(generator_chain(trap * jnp.nan), events=4).status) == Status.OUT_OF_DOMAIN
    assert int(run(queue(-1.0), events=4).status) == Status.OUT_OF_DOMAIN
    assert int(run(queue(1.0), rewards=lambda n: {"x": jnp.nan}, events=4).status) == Status.NONFINITE
    paths = sample_paths(generator_chain(trap), 0, jax.random.key(0), events=200, replications=8)
    assert (np.asarray(paths.states[:, -1]) == 2).all() and np.isposinf(paths.times[:, -1]).all()


@pytest.mark.parametrize(("options", "message"), [
    (dict(events=0), "events = 0 must be a whole number from 1"),
    (dict(events=10, batches=3), "events = 10 is no multiple of batches = 3"),
    (dict(warmup=-1), "warmup = -1 must be a whole number from 0"),
    (dict(replications=1), "replications = 1 gives one sample"),
    (dict(interval="bootstrap"), "interval = 'bootstrap' is unknown; choose from replications, batches"),
    (dict(times="slow"), "times = 'slow' is unknown; choose from mean, sampled"),
    (dict(confidence=1.0), r"confidence = 1.0 is outside \(0, 1\)"),
    (dict(impulses=lambda n, event: {"number": 1.0}), "'number' names a reward and an impulse"),
])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        run(queue(1.0), **options)


def test_bad_generator_shape():
    with pytest.raises(ValueError, match=r"Q has shape \(2, 3\); give a square matrix"):
        generator_chain(jnp.zeros((2, 3)))
