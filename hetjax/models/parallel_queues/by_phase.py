"""Words with thresholds by phase (position of the next customer), and words of any order, as checks and refinements."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import sequential_vmap

from hetjax.models.parallel_queues.node import node_means
from hetjax.models.parallel_queues.open_loop import best_word, prepared, stern_brocot
from hetjax.models.parallel_queues.params import Params, status
from hetjax.models.parallel_queues.words import is_mechanical, letters, necklaces
from hetjax.processes.checks import require
from hetjax.result import Status, has_value

Array = jax.Array
_Search = tuple[Array, Array, Array, Array, Array]


class ByPhase(NamedTuple):
    """``ones`` of ``length`` letters (the mechanical word), ``thresholds`` (2, size) by node and position of the next
    customer (1 after ``length``), ``mean_number`` and that under the best constant thresholds of the same word.

    Node 2 gets the 0s: its thresholds go with the positions of the complement of node 1's word, which is the mechanical
    word of ``length`` - ``ones`` in its own order, ``mechanical_word(length - ones, length)``. ``status`` as in
    :class:`hetjax.parallel_queues.OpenLoop`.
    """

    ones: Array
    length: Array
    thresholds: Array
    mean_number: Array
    constant_mean_number: Array
    status: Array


class GeneralWord(NamedTuple):
    """The best word of any order, ``word`` (size,) and its ``length``, ``thresholds`` (2,), ``mean_number`` of it and
    of the best mechanical word among those tried, ``status``."""

    word: Array
    length: Array
    thresholds: Array
    mean_number: Array
    mechanical_mean_number: Array
    status: Array


def _node_by_phase(rate: Array, word: Array, length: Array, mu1: Array, mu2: Array,
                   max_threshold: int) -> tuple[Array, Array, Array]:
    """Thresholds (size,) that no single step improves, their mean number and the best constant one's; stable nodes."""
    size, dtype = word.shape[0], mu1.dtype
    moves = jnp.concatenate([jnp.eye(size, dtype=dtype), jnp.ones((1, size), dtype)])
    moves = jnp.where((jnp.arange(size, dtype=jnp.int32) < length)[None], jnp.concatenate([moves, -moves]), 0)
    gain = 1 - 64 * float(jnp.finfo(dtype).eps)

    def cost(thresholds: Array) -> Array:
        return node_means(rate, word, length, mu1, mu2, thresholds, max_threshold).number

    count = max(moves.shape[0], max_threshold)
    moves = jnp.concatenate([moves, jnp.zeros((count - moves.shape[0], size), dtype)])
    constant = jnp.minimum(jnp.arange(1, count + 1), max_threshold).astype(dtype)[:, None]

    def search(state: _Search) -> _Search:
        here, value, start, _, first = state
        stepped = jnp.clip(here[None] + moves, 1, max_threshold)
        around = jnp.where(first, jnp.broadcast_to(constant, moves.shape), stepped)
        values = jax.vmap(cost)(around)
        best = jnp.argmin(values)
        better = first | (values[best] < value * gain)
        value = jnp.where(better, values[best], value)
        return jnp.where(better, around[best], here), value, jnp.where(first, value, start), better, first & False

    here, yes = jnp.ones((size,), dtype), jnp.ones((), bool)
    found, value, start, _, _ = lax.while_loop(lambda s: s[3], search, (here, here[0], here[0], yes, yes))
    found = jnp.where(jnp.arange(size, dtype=jnp.int32) < length, found, jnp.ones_like(found))
    return found, value, start


def best_thresholds_of_word(params: Params, ones: Any, length: Any, size: int | None = None,
                            max_threshold: int = 8) -> ByPhase:
    """The best thresholds by phase for the mechanical word of ``ones`` in ``length`` letters, 0 < ones < length.

    In each round every threshold is tried one higher and one lower, and all together, and the best is taken. ``size``
    >= length is needed where length is traced. (2 size + 2) evaluations a round; not differentiable.

    >>> from hetjax import parallel_queues as pq
    >>> p = pq.Params(1.3592957767505314, [1.0, 1.0], [0.3592957767505315, 0.3592957767505315])
    >>> found = pq.best_thresholds_of_word(p, 1, 2)
    >>> found.thresholds[0].tolist(), [round(float(x) / 2, 9) for x in (found.mean_number, found.constant_mean_number)]
    ([2.0, 1.0], [1.136777961, 1.148218638])
    """
    if size is None:
        require(not isinstance(length, jax.core.Tracer), "size", None, "a whole number >= length where that is traced")
        size = int(length)
    params, code = prepared(params)
    k, b = jnp.asarray(ones).astype(jnp.int32), jnp.asarray(length).astype(jnp.int32)
    legal = (k > 0) & (k < b) & (b <= size)
    require(isinstance(legal, jax.core.Tracer) or bool(legal), "ones, length", (ones, length),
            f"0 < ones < length <= {size}")
    return _of_word(params, code, jnp.where(legal, k, 1), jnp.where(legal, b, 2), legal, size, max_threshold)


@partial(jax.jit, static_argnums=(5, 6))
def _of_word(params: Params, code: Array, ones: Array, length: Array, legal: Array, size: int,
             max_threshold: int) -> ByPhase:
    shares = jnp.stack([ones, length - ones])
    flow = params.arrival_rate * (shares.astype(params.mu1.dtype) / length.astype(params.mu1.dtype))
    stable = jnp.all(flow < params.capacities)
    rate = jnp.where(stable, params.arrival_rate, jnp.min(params.capacities) / 2)
    thresholds, value, constant = jax.vmap(lambda k, a, c: _node_by_phase(
        rate, letters(k, length, size), length, a, c, max_threshold))(shares, params.mu1, params.mu2)
    edge = jnp.any((thresholds >= max_threshold) & (params.mu2 > 0)[:, None]) & (max_threshold > 1)
    found = jnp.where(stable, jnp.where(edge, int(Status.NOT_CONVERGED), int(Status.OK)), int(Status.UNSTABLE))
    found = jnp.where(legal, found, int(Status.OUT_OF_DOMAIN))
    code = jnp.where(code == int(Status.OK), found, code).astype(jnp.uint8)
    known = has_value(code)
    number, before = (jnp.where(known, jnp.sum(x), jnp.nan) for x in (value, constant))
    return ByPhase(ones, length, thresholds, number, before, code)


def best_word_by_phase(params: Params, max_length: int = 12, max_threshold: int = 8) -> ByPhase:
    """The best mechanical word together with the best thresholds by phase.

    A Stern-Brocot descent whose cost is that of :func:`best_thresholds_of_word`, and the same for the best word with
    constant thresholds; the better end. 4 s of CPU a point for length 40, .1 s for 12. ``vmap`` takes the
    points one by one. Words with both letters only.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.best_word_by_phase(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]), max_length=40)
    >>> int(found.ones), int(found.length), round(float(found.mean_number), 9)
    (20, 27, 2.439852948)
    """
    constant = best_word(params, max_length, max_threshold)
    return _improved(params, constant.ones, constant.length, max_length, max_threshold)


@partial(jax.jit, static_argnums=(3, 4))
def _improved(params: Params, k: Array, b: Array, max_length: int, max_threshold: int) -> ByPhase:
    """The best by descent and with the word of density k/b."""
    params, code = prepared(params)

    @sequential_vmap
    def search(rate: Array, mu1: Array, mu2: Array, k: Array, b: Array) -> ByPhase:
        point = Params(rate, mu1, mu2)
        ok = status(point)

        def cost(ones: Array, length: Array) -> Array:
            shares = jnp.stack([ones, length - ones]).astype(mu1.dtype)
            stable = rate * shares < (mu1 + mu2) * length.astype(mu1.dtype)
            found = _of_word(point, ok, ones, length, jnp.ones((), bool), max_length, max_threshold)
            return jnp.where(stable, jnp.where(jnp.all(stable), found.mean_number / 2, 0), jnp.inf)

        ones, length, _ = stern_brocot(cost, max_length)
        words = jnp.stack([jnp.stack([ones, length]), jnp.stack([k, b])])
        legal = (words[:, 0] > 0) & (words[:, 0] < words[:, 1])
        both = jax.vmap(lambda w, yes: _of_word(point, ok, jnp.where(yes, w[0], 1), jnp.where(yes, w[1], 2), yes,
                                                max_length, max_threshold))(words, legal)
        best = jnp.argmin(jnp.where(jnp.isfinite(both.mean_number), both.mean_number, jnp.inf))
        return jax.tree.map(lambda x: x[best], both)

    found = search(params.arrival_rate, params.mu1, params.mu2, k, b)
    return found._replace(status=jnp.where(code == int(Status.OK), found.status, code))


def best_general_word(params: Params, max_length: int = 8, max_threshold: int = 8) -> GeneralWord:
    """The best of all words of both letters up to ``max_length`` <= 12, up to rotation, with constant thresholds.

    The check that even spreading is best: ``mean_number`` equals ``mechanical_mean_number`` in every case tried. The
    number of words doubles with each letter: 69 up to length 8, 125 up to 9. Not differentiable.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.best_general_word(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]), max_length=4, max_threshold=3)
    >>> found.word.tolist(), found.thresholds.tolist(), round(float(found.mean_number), 6)
    ([0, 1, 1, 1], [2.0, 3.0], 2.441161)
    """
    require(2 <= max_length <= 12, "max_length", max_length, "in 2..12: the number of words doubles with each letter")
    return _best_general_word(params, max_length, max_threshold)


@partial(jax.jit, static_argnums=(1, 2))
def _best_general_word(params: Params, max_length: int, max_threshold: int) -> GeneralWord:
    params, code = prepared(params)
    known = [word for b in range(2, max_length + 1) for word in necklaces(b)]
    even = jnp.asarray([is_mechanical(word) for word in known])
    words = np.asarray([word + (0,) * (max_length - len(word)) for word in known], np.int32)
    lengths = np.asarray([len(word) for word in known], np.int32)

    @sequential_vmap
    def search(rate: Array, mu1: Array, mu2: Array) -> tuple[Array, Array]:
        t = jnp.arange(1, max_threshold + 1).astype(mu1.dtype)

        def one(given: tuple[Array, Array]) -> tuple[Array, Array]:
            word, length = given
            inside = jnp.arange(max_length, dtype=jnp.int32) < length
            both = jnp.where(inside[None], jnp.stack([word, 1 - word]), 0)
            share = jnp.sum(both, axis=1).astype(mu1.dtype) / length.astype(mu1.dtype)
            stable = jnp.all(rate * share < mu1 + mu2)
            tame = jnp.where(stable, rate, jnp.min(mu1 + mu2) / 2)
            table = jax.vmap(lambda w, a, c: jax.vmap(lambda x: node_means(
                tame, w, length, a, c, x, max_threshold).number)(t))(both, mu1, mu2)
            value = jnp.sum(jnp.min(table, axis=1))
            return jnp.where(stable, value, jnp.inf), jnp.argmin(table, axis=1).astype(mu1.dtype) + 1

        return lax.map(one, (jnp.asarray(words), jnp.asarray(lengths)))

    values, thresholds = search(params.arrival_rate, params.mu1, params.mu2)
    best = jnp.argmin(values)
    mechanical = jnp.min(jnp.where(even, values, jnp.inf))
    edge = jnp.any((thresholds[best] >= max_threshold) & (params.mu2 > 0)) & (max_threshold > 1)
    found = jnp.where(jnp.isinf(values[best]), int(Status.UNSTABLE),
                      jnp.where(edge, int(Status.NOT_CONVERGED), int(Status.OK)))
    code = jnp.where(code == int(Status.OK), found, code).astype(jnp.uint8)
    good = has_value(code)
    value, even_value = (jnp.where(good, x, jnp.nan) for x in (values[best], mechanical))
    return GeneralWord(jnp.asarray(words)[best], jnp.asarray(lengths)[best], thresholds[best], value, even_value, code)
