"""A node fed by a word: tables, the chain with levels, a truncated sparse chain, derivatives, float32, simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.parallel_queues import parallel_queues_precise as precise
from models.threshold_queue import threshold_oracle

from hetjax import ctmc, threshold_queue
from hetjax import parallel_queues as pq
from hetjax.models.parallel_queues.node import roots
from hetjax.processes import mmpp
from hetjax.result import Status

SIZE, BOUND = 12, 6


def node(rate, word, mu1, mu2, thresholds, dtype=float):
    """The means of one node; the word and its thresholds filled up to SIZE."""
    b = len(word)
    thresholds = np.broadcast_to(np.asarray(thresholds, dtype), (b,))
    given = (np.asarray(rate, dtype), np.pad(np.asarray(word, np.int32), (0, SIZE - b)), np.int32(b),
             np.asarray(mu1, dtype), np.asarray(mu2, dtype), np.pad(thresholds, (0, SIZE - b), constant_values=1))
    return pq.node_means(*(jnp.asarray(x) for x in given), BOUND)


def test_tables(reference):
    for row in reference("word_routing")["rows"]:
        found = node(row["router_rate"], row["word"], row["mu1"], row["mu2"], row["thresholds_by_phase"])
        assert float(found.number) == pytest.approx(row["mean_number"], rel=1e-11)  # the table's own digits
        work = found.fast * row["mu1"] + found.slow * row["mu2"]
        assert float(work) == pytest.approx(row["router_rate"] * np.mean(row["word"]), rel=1e-13)
        assert float(found.number) == pytest.approx(float(found.waiting + found.fast + found.slow), rel=1e-12)
    for row in reference("published")["round_robin_two_mm1"]["rows"]:  # single servers
        found = node(row["router_rate"], [1, 0], 1.0, 0.0, 1.0)
        assert 2 * float(found.number) == pytest.approx(row["open_loop"], rel=2e-10)  # ten printed digits
        assert float(found.slow) == 0


@pytest.mark.parametrize(("word", "thresholds"), [([0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1], 3), ([1, 0, 0, 1], [1, 2, 3, 2]),
                                                  ([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0], 2)])
def test_truncated_sparse_chain(word, thresholds):
    """Event by event, also for a word that crowds its 1s; .55^n is lost beyond level 50."""
    mu1, mu2, b = 1.0, 0.3, len(word)
    rate = 0.55 * (mu1 + mu2) * b / sum(word)
    shift = np.roll(np.eye(b), 1, axis=1)
    D1 = rate * np.diag(word) @ shift
    D0 = rate * (np.diag(1 - np.array(word)) @ shift - np.eye(b))
    by_phase = np.broadcast_to(np.asarray(thresholds, float), (b,))
    law = threshold_oracle.law(D0, D1, mu1, [mu2], [by_phase], 60)
    found = node(rate, word, mu1, mu2, thresholds)
    expected = {"number": lambda x, s: x + s, "waiting": lambda x, s: max(x - 1, 0), "fast": lambda x, s: x > 0,
                "slow": lambda x, s: s, "empty": lambda x, s: x + s == 0}
    for name, value in expected.items():
        total = sum(p * value(x, busy[0]) for (x, busy, _), p in law.items())
        assert float(getattr(found, name)) == pytest.approx(total, rel=2e-9)


@settings(max_examples=10)
@given(rho=st.floats(0.01, 0.995), ratio=st.floats(1, 20), ones=st.integers(1, 3),
       thresholds=st.lists(st.floats(1, 4), min_size=3, max_size=3))
def test_chain_with_levels(rho, ratio, ones, thresholds):
    """The dense route, real thresholds by phase included; words of one size, so that it is compiled once."""
    word = pq.mechanical_word(ones, 3)
    mu2 = 1 / ratio
    rate = rho * (1 + mu2) * len(word) / sum(word)
    p = threshold_queue.Params.from_word(rate, word, 1.0, mu2, thresholds, max_threshold=4)
    expected = LEVELS(p)
    found = node(rate, word, 1.0, mu2, thresholds)
    for name, value in (("number", expected.mean_number), ("waiting", expected.mean_waiting),
                        ("fast", expected.utilization_fast), ("slow", expected.utilization_slow),
                        ("empty", expected.p_empty)):
        # rounding of the rates is amplified by 1/(1 - rho)
        assert float(getattr(found, name)) == pytest.approx(float(value), rel=1e-12 + 1e-13 / (1 - rho), abs=1e-13)


LEVELS = jax.jit(threshold_queue.metrics)


@pytest.mark.parametrize("size", [SIZE, pytest.param(40, marks=pytest.mark.slow)])
def test_every_bth_customer_to_a_single_server(size):
    """Erlang arrivals: mean = rho/(1 - sigma), sigma the root of the queue G/M/1."""
    word = np.array(pq.mechanical_word(1, size), np.int32)
    for rho in (0.05, 0.5, 0.9, 0.999):
        rate = rho * size
        found = pq.node_means(*(jnp.asarray(x) for x in (rate, word, np.int32(size), 1.0, 0.0, np.ones(size))), BOUND)
        low, high = 0.0, 1 - (1 - rho) / 2
        for _ in range(200):
            z = (low + high) / 2
            low, high = (z, high) if z < (rate / (rate + 1 - z)) ** size else (low, z)
        assert float(found.number) == pytest.approx(rho / (1 - low), rel=1e-12 / (1 - rho))


def test_roots():
    """All solve the equation, lie inside the unit disc and differ; near saturation too."""
    k, b = np.array([1, 3, 39, 13, 38, 2]), np.array([40, 40, 40, 31, 39, 3])
    rho = np.array([0.01, 0.5, 0.9, 0.999, 0.99999, 0.3])
    ratio = k / b / rho
    y = jax.jit(jax.vmap(lambda k, b, c: roots(k, b, c, 40)))(*(jnp.asarray(x, float) for x in (k, b, ratio)))
    for row, ones, length, c in zip(np.asarray(y), k, b, ratio, strict=True):
        z = np.exp(row[:ones])
        assert np.all(np.abs(z) < 1)
        np.testing.assert_allclose(z**ones * (1 + c * (1 - z)) ** length, 1, rtol=1e-11)
        assert np.abs(z[:, None] - z[None])[~np.eye(ones, dtype=bool)].min(initial=1) > 1e-3 * np.abs(z).min()


@pytest.mark.parametrize("forward", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_derivatives(forward):
    """In rates and real thresholds by phase, against differences of a chain solved with 40 digits."""
    word = np.pad(np.array([0, 1, 1], np.int32), (0, SIZE - 3))

    def by_word(x):
        thresholds = jnp.concatenate([x[3:], jnp.ones(SIZE - 3)])
        return pq.node_means(x[0], jnp.asarray(word), jnp.asarray(3, jnp.int32), x[1], x[2], thresholds, BOUND).number

    at = [0.7, 1.0, 0.4, 1.3, 2.5, 1.8]
    found = jax.jit((jax.jacfwd if forward else jax.value_and_grad)(by_word))(jnp.asarray(at))
    value, slopes = precise.slopes(lambda x: precise.mean_number(x[0], [0, 1, 1], x[1], x[2], x[3:]), at)
    if not forward:
        assert float(found[0]) == pytest.approx(value, rel=1e-13)
        found = found[1]
    np.testing.assert_allclose(found, slopes, rtol=1e-11)


def test_float32():
    rng = np.random.default_rng(3)
    for _ in range(20):
        word = pq.mechanical_word(int(rng.integers(1, 12)), 12)
        mu2 = np.float32(rng.uniform(0.05, 1))
        rate = np.float32(rng.uniform(0.02, 0.95) * (1 + mu2) * 12 / sum(word))
        load = rate * np.mean(word) / (1 + mu2)
        thresholds = float(rng.integers(1, 6))
        narrow, wide = (node(rate, word, 1.0, mu2, thresholds, d) for d in (np.float32, np.float64))
        assert narrow.number.dtype == jnp.float32
        assert float(narrow.number) == pytest.approx(float(wide.number), rel=3e-5 / (1 - load))


@pytest.mark.slow
def test_streams_that_are_not_poisson():
    """A word applied to an MMPP: the two streams share the arrivals; with equal rates it is the Poisson word."""
    word = [1, 0]
    stream = mmpp([[0.0, 1.0], [0.5, 0.0]], [1.0, 3.0])
    first, second = pq.routed(stream, word), pq.routed(stream, [1 - x for x in word])
    assert float(first.rate()) == pytest.approx(float(second.rate()), rel=1e-13)
    assert float(first.rate() + second.rate()) == pytest.approx(float(stream.rate()), rel=1e-13)
    flat = pq.routed(mmpp([[0.0, 1.0], [0.5, 0.0]], [1.2, 1.2]), word)
    p = threshold_queue.Params.from_map(flat, 1.0, 0.4, 2)
    found = jax.jit(threshold_queue.mean_number)(p)
    assert float(found) == pytest.approx(float(node(1.2, word, 1.0, 0.4, 2).number), rel=1e-11)


def test_words():
    assert [pq.mechanical_word(k, 5) for k in range(6)] == [
        (0,) * 5, (0, 0, 0, 0, 1), (0, 0, 1, 0, 1), (0, 1, 0, 1, 1), (0, 1, 1, 1, 1), (1,) * 5]
    for b in range(2, 9):
        known = pq.necklaces(b)  # Moebius: sum over d | b of mu(d) 2^(b/d) / b
        assert len(known) == {2: 1, 3: 2, 4: 3, 5: 6, 6: 9, 7: 18, 8: 30}[b]
        even = {sum(w): w for w in known if pq.is_mechanical(w)}
        assert len(even) == sum(np.gcd(k, b) == 1 for k in range(1, b))  # one for each reduced density
        for k, w in even.items():  # balanced: any two factors of one length differ by at most one 1
            circle = np.array(w * 2)
            for size in range(1, b):
                counts = {int(circle[i:i + size].sum()) for i in range(b)}
                assert max(counts) - min(counts) <= 1, (k, w)
    with pytest.raises(ValueError, match="ones, length"):
        pq.mechanical_word(6, 5)


def test_simulation():
    """Two nodes under the word 1101 with thresholds (2, 3): 95 % interval, widened to 3 half widths."""
    rate, mu1, mu2 = 2.0, (2.0, 1.0), (0.5, 0.2)
    word = jnp.asarray([1, 1, 0, 1], jnp.int32)

    def rates(state):
        _, x1, s1, x2, s2 = state
        first, second = (jnp.where(x > 0, mu, 0.0) for x, mu in ((x1, mu1[0]), (x2, mu1[1])))
        return rate, first, mu2[0] * s1.astype(float), second, mu2[1] * s2.astype(float)

    def move(state, event):
        i, x1, s1, x2, s2 = state
        one = word[i]
        left = [(event == e).astype(jnp.int32) for e in range(5)]
        x1, x2 = x1 + left[0] * one - left[1], x2 + left[0] * (1 - one) - left[3]
        s1, s2 = s1 - left[2], s2 - left[4]
        i = jnp.where(event == 0, (i + 1) % 4, i)
        start1, start2 = (((s == 0) & (x - 1 >= t)).astype(jnp.int32) for s, x, t in ((s1, x1, 2), (s2, x2, 3)))
        return i, x1 - start1, s1 + start1, x2 - start2, s2 + start2

    chain = ctmc.transition_chain(rates, move)
    found = jax.jit(lambda key: ctmc.simulate(chain, (0, 0, 0, 0, 0), key, events=3000, warmup=1000, replications=1024,
                                              rewards=lambda s: {"number": sum(s[1:])}))(jax.random.key(5))
    exact = pq.word_means(pq.Params(rate, mu1, mu2), [1, 1, 0, 1], [2, 3])
    assert int(exact.status) == Status.OK
    assert abs(float(found.mean["number"]) - float(exact.value.number.sum())) < 3 * float(found.half_width["number"])
    assert float(found.half_width["number"]) < 0.02
