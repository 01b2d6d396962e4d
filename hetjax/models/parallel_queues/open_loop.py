"""Open-loop routing to two nodes by periodic words: the mean number of a word, and the best word with its thresholds.

Costs of the two nodes separate: node 1 sees the 1s of the word, node 2 the 0s. For fixed thresholds the mean number
over the density of the mechanical word fell and then rose in every case tried, so that a descent in the Stern-Brocot
tree finds the best density without trying all: from (lo, mid, hi), with mid better than both ends, the mediants of
(lo, mid) and (mid, hi) are the fractions of least denominator on its two sides; if one is better it becomes mid, else
both become ends. The minimum over thresholds has concave kinks in the density, so thresholds stay fixed in a descent
and are changed between two. :func:`full_search` takes every density and every pair instead.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import sequential_vmap

from hetjax.models.parallel_queues.node import NodeMeans, node_means
from hetjax.models.parallel_queues.params import Params, checked_thresholds, harmless, status
from hetjax.models.parallel_queues.words import checked_word, densities, letters
from hetjax.models.threshold_queue.poisson import means as poisson_means
from hetjax.models.threshold_queue.poisson import whole_means
from hetjax.models.threshold_queue.rule import optimal_threshold
from hetjax.processes.checks import require
from hetjax.result import Solution, Status, has_value

Array = jax.Array
COARSE = 8  # words up to this length are all tried with all thresholds, before the descents start
STARTS = 3  # pairs of thresholds from which they do


class OpenLoop(NamedTuple):
    """The best word: ``ones`` of ``length`` letters (int32; the mechanical word), ``thresholds`` (2,), ``mean_number``.

    ``status``: ok; unstable (no split or no word of that length is stable); not_converged where a threshold is at its
    bound. Density 0/1 or 1/1: one node is left out, its threshold is 1.
    """

    ones: Array
    length: Array
    thresholds: Array
    mean_number: Array
    status: Array


def word_means(params: Params, word: Any, thresholds: Any, max_threshold: int | None = None) -> Solution:
    """The :class:`NodeMeans` (leaves (2,)) of two nodes under a periodic ``word``: 1s to node 1, 0s to node 2.

    Args:
      word: list of 0s and 1s, both present.
      thresholds: (2,) by node, or (2, letters) by node and position of the next customer; real ones are randomised.
      max_threshold: whole bound, needed where thresholds are traced.

    ``status``: unstable where a node gets more than it can serve. Differentiable in rates and thresholds. Words up to
    12 letters, mechanical ones up to 40 and more; :func:`hetjax.parallel_queues.routed` for other streams than Poisson.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.word_means(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]), [1, 1, 0, 1], [2, 3])
    >>> round(float(found.value.number.sum()), 6)
    2.441161
    """
    require(params.nodes == 2, "params", f"{params.nodes} nodes", "two nodes: words have two letters")
    letter = checked_word(word)
    given, bound = checked_thresholds(thresholds, params, ((2,), (2, letter.size)), max_threshold)
    code = status(params)
    both = jnp.asarray([letter, 1 - letter], jnp.int32)
    share = jnp.sum(both, axis=1).astype(given.dtype) / letter.size
    full = jnp.any(params.arrival_rate * share >= params.capacities)
    code = jnp.where((code == int(Status.OK)) & full, int(Status.UNSTABLE), code)
    bad = jnp.any(~((given >= 1) & (given <= bound)))
    code = jnp.where(bad, int(Status.OUT_OF_DOMAIN), code).astype(jnp.uint8)
    ok = code == int(Status.OK)
    safe = harmless(params, code)
    rows = jnp.broadcast_to(given.reshape(2, -1), (2, letter.size))
    rows = jnp.where(ok, rows, jnp.ones_like(rows))
    length = jnp.asarray(letter.size, jnp.int32)
    value = jax.vmap(lambda w, a, c, t: node_means(safe.arrival_rate, w, length, a, c, t, bound))(
        both, safe.mu1, safe.mu2, rows)
    return Solution(jax.tree.map(lambda x: jnp.where(ok, x, jnp.nan), value), code)


def density_means(params: Params, ones: Array, length: Array, thresholds: Array, size: int,
                  max_threshold: int) -> NodeMeans:
    """The same for the mechanical word with ``ones`` 1s in ``length`` letters <= ``size``, all three traced; unchecked.

    Both nodes must be stable and get at least one letter.

    >>> import jax.numpy as jnp
    >>> from hetjax import parallel_queues as pq
    >>> k, b, t = jnp.asarray(3), jnp.asarray(4), jnp.asarray([2.0, 3.0])
    >>> found = pq.density_means(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]), k, b, t, size=4, max_threshold=3)
    >>> round(float(found.number.sum()), 6)
    2.441161
    """
    ones, length = ones.astype(jnp.int32), length.astype(jnp.int32)

    def one(share: Array, mu1: Array, mu2: Array, threshold: Array) -> NodeMeans:
        return node_means(params.arrival_rate, letters(share, length, size), length, mu1, mu2,
                          jnp.broadcast_to(threshold, (size,)), max_threshold)

    return jax.vmap(one)(jnp.stack([ones, length - ones]), params.mu1, params.mu2, thresholds)


def node_costs(params: Params, ones: Array, length: Array, thresholds: Array, size: int,
               max_threshold: int) -> Array:
    """Mean numbers (2,), inf for a node that is unstable at this density; of mechanical words, as the search needs."""
    ones, length = ones.astype(jnp.int32), length.astype(jnp.int32)
    shares = jnp.stack([ones, length - ones])
    stable = params.arrival_rate * shares.astype(params.mu1.dtype) < params.capacities * length.astype(params.mu1.dtype)
    ones, length = (jnp.where(jnp.all(stable), x, jnp.asarray(d, x.dtype)) for x, d in ((ones, 1), (length, 2)))
    tame = jnp.where(jnp.all(stable), params.arrival_rate, jnp.min(params.capacities) / 2)
    found = density_means(Params(tame, params.mu1, params.mu2), ones, length, thresholds, size, max_threshold).number
    return jnp.where(stable, jnp.where(jnp.all(stable), found, 0), jnp.inf)


class _Fractions(NamedTuple):
    """lo < mid < hi as (3, 2) whole numbers (ones, length); the cost of mid; the size the next mediants may have."""

    bounds: Array
    cost: Array


def stern_brocot(cost: Callable[[Array, Array], Array], max_length: int) -> tuple[Array, Array, Array]:
    """(ones, length, cost) of the best density strictly between 0 and 1 with ``length`` <= ``max_length``.

    ``cost(ones, length)`` gives the costs (2,) of both nodes, inf where one is unstable, unimodal in the density.

    >>> import jax.numpy as jnp
    >>> found = stern_brocot(lambda k, b: jnp.full(2, (k / b - 0.3819) ** 2), 12)
    >>> int(found[0]), int(found[1])
    (3, 8)
    """
    def mediant(a: Array, b: Array) -> tuple[Array, Array]:
        c = a + b
        known = (c[1] <= max_length) & (c[0] < c[1])
        value = cost(jnp.where(known, c[0], 1), jnp.where(known, c[1], 2))
        return c, jnp.where(known, value, jnp.inf)

    def going(state: _Fractions) -> Array:
        lo, mid, hi = state.bounds
        return (lo[1] + mid[1] <= max_length) | (mid[1] + hi[1] <= max_length)

    def step(state: _Fractions) -> _Fractions:
        lo, mid, hi = state.bounds
        sides = jax.vmap(mediant)(jnp.stack([lo, mid]), jnp.stack([mid, hi]))
        (left, right), (value_left, value_right) = sides
        here = jnp.sum(state.cost)
        total_left, total_right = jnp.sum(value_left), jnp.sum(value_right)
        go_left = jnp.isinf(state.cost[0]) | (total_left < here)
        go_right = ~go_left & (jnp.isinf(state.cost[1]) | (total_right < here))
        bounds = jnp.where(go_left, jnp.stack([lo, left, mid]),
                           jnp.where(go_right, jnp.stack([mid, right, hi]), jnp.stack([left, mid, right])))
        value = jnp.where(go_left, value_left, jnp.where(go_right, value_right, state.cost))
        return _Fractions(bounds, value)

    start = jnp.asarray([[0, 1], [1, 1], [2, 1]], jnp.int32)  # the first step goes left, to (0, 1/2, 1)
    like = jax.eval_shape(cost, start[1, 0], start[1, 1])
    end = lax.while_loop(going, step, _Fractions(start, jnp.asarray([jnp.inf, 0]).astype(like.dtype)))
    mid, value = end.bounds[1], jnp.sum(end.cost)
    return mid[0], mid[1], jnp.where(mid[1] <= max_length, value, jnp.inf)


def all_thresholds(params: Params, ones: Array, length: Array, size: int, max_threshold: int) -> Array:
    """Costs (2, max_threshold) of both nodes under each constant threshold; inf where a node is unstable."""
    t = jnp.arange(1, max_threshold + 1).astype(params.mu1.dtype)
    table = jax.vmap(lambda x: node_costs(params, ones, length, jnp.stack([x, x]), size, max_threshold))(t)
    return jnp.swapaxes(table, 0, 1)


def _one_node(params: Params, thresholds: Array | None = None) -> tuple[Array, Array]:
    """Costs (2,) and thresholds (by default the best) where all customers go to node 2, and to node 1."""
    rate = jnp.broadcast_to(params.arrival_rate, (2,))
    cost, threshold = poisson_cost(rate, params.mu1, params.mu2, thresholds)
    return jnp.flip(cost), jnp.flip(threshold)


@partial(jax.jit, static_argnums=4)
def poisson_cost(rate: Array, mu1: Array, mu2: Array, threshold: Array | None = None,
                 whole: bool = False) -> tuple[Array, Array]:
    """Mean numbers of nodes with Poisson arrivals and their thresholds, by default the best; elementwise.

    inf where unstable; mu2 = 0 is M/M/1. Needs rate > 0. ``whole``: given thresholds are whole numbers (faster).

    >>> import jax.numpy as jnp
    >>> cost, threshold = poisson_cost(*(jnp.asarray(x) for x in ([0.5, 1.68], [1.0, 2.0], [0.0, 0.4])))
    >>> [round(float(x), 6) for x in cost], threshold.tolist()
    ([1.0, 2.758413], [1.0, 2.0])
    """
    single, stable = mu2 <= 0, (mu1 - rate) + mu2 > 0
    slow = jnp.where(single, mu1, mu2)
    tame = jnp.where(stable, rate, (mu1 + mu2) / 2)
    best = optimal_threshold(tame, mu1, slow) if threshold is None else threshold
    alone = tame / jnp.where(single, mu1 - tame, jnp.ones_like(tame))
    known = whole_means if whole or threshold is None else poisson_means
    number = jnp.where(single, alone, known(tame, mu1, slow, best).number)
    return jnp.where(stable, number, jnp.inf), jnp.where(single, jnp.ones_like(best), best)


def _with_ends(params: Params, code: Array, found: tuple[Array, Array, Array, Array], max_threshold: int) -> OpenLoop:
    """Compares an inner density with leaving a node out; NaN and status where nothing is stable."""
    ones, length, pair, value = found
    ends, end_thresholds = _one_node(params)
    end = jnp.argmin(ends).astype(jnp.int32)
    left_out = ends[end] <= value
    pair = jnp.where(left_out, jnp.where(jnp.arange(2, dtype=jnp.int32) == 1 - end, end_thresholds[end], 1), pair)
    best = jnp.minimum(ends[end], value)
    edge = ~left_out & jnp.any((pair >= max_threshold) & (params.mu2 > 0) & (max_threshold > 1))
    inner = jnp.where(jnp.isinf(best), int(Status.UNSTABLE), jnp.where(edge, int(Status.NOT_CONVERGED), int(Status.OK)))
    code = jnp.where(code == int(Status.OK), inner, code).astype(jnp.uint8)
    known = has_value(code)
    return OpenLoop(jnp.where(left_out, end, ones), jnp.where(left_out, 1, length), jnp.where(known, pair, jnp.nan),
                    jnp.where(known, best, jnp.nan), code)


def prepared(params: Params) -> tuple[Params, Array]:
    """Two nodes without derivatives, harmless where the status given beside them is not OK."""
    require(params.nodes == 2, "params", f"{params.nodes} nodes", "two nodes: words have two letters")
    params = jax.tree.map(lax.stop_gradient, params)
    code = status(params)
    return harmless(params, code), code


def best_word(params: Params, max_length: int = 40, max_threshold: int = 8) -> OpenLoop:
    """The best density with denominator up to ``max_length`` together with the best constant threshold of each node.

    All words up to 8 letters with all thresholds 1..``max_threshold`` give the 3 pairs to start from, the proportional
    split a fourth; from each, a Stern-Brocot descent for the density and the best thresholds for that density take
    turns until both stay. Equal to :func:`full_search` in every case tried (see the tests); .15 s of CPU a point for
    length 40, .04 s for 20. ``vmap`` goes through the points one by one, as each needs its own number of steps. Not
    differentiable.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.best_word(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]))
    >>> int(found.ones), int(found.length), found.thresholds.tolist(), round(float(found.mean_number), 10)
    (23, 31, [2.0, 3.0], 2.4406551836)
    """
    return _best_word(params, max_length, max_threshold)


@partial(jax.jit, static_argnums=(1, 2))
def _best_word(params: Params, max_length: int, max_threshold: int) -> OpenLoop:
    params, code = prepared(params)
    coarse = [(d.numerator, d.denominator) for d in densities(min(COARSE, max_length))]
    coarse_ones, coarse_length = np.asarray(coarse, np.int32).T

    @sequential_vmap
    def search(rate: Array, mu1: Array, mu2: Array) -> tuple[Array, Array, Array, Array]:
        point = Params(rate, mu1, mu2)
        dtype = mu1.dtype
        size = int(max(b for _, b in coarse))
        table = jax.vmap(lambda k, b: all_thresholds(point, k, b, size, max_threshold))(
            jnp.asarray(coarse_ones), jnp.asarray(coarse_length))
        pairs = jnp.min(table[:, 0, :, None] + table[:, 1, None, :], axis=0).reshape(-1)
        _, order = lax.top_k(-pairs, min(STARTS, max_threshold**2))
        starts = jnp.stack([order // max_threshold + 1, order % max_threshold + 1], axis=1).astype(dtype)
        share = rate * ((mu1 + mu2) / jnp.sum(mu1 + mu2))
        _, poisson = poisson_cost(share, mu1, mu2)
        starts = jnp.concatenate([starts, jnp.minimum(poisson, max_threshold)[None]])

        def descend(pair: Array) -> tuple[Array, Array, Array]:
            return stern_brocot(lambda k, b: node_costs(point, k, b, pair, max_length, max_threshold), max_length)

        def turn(state: tuple[Array, ...]) -> tuple[Array, ...]:
            pair, _, _, _, _, rounds = state
            ones, length, value = descend(pair)
            table = all_thresholds(point, ones, length, max_length, max_threshold)
            new = jnp.argmin(table, axis=1).astype(dtype) + 1
            better = jnp.sum(jnp.min(table, axis=1))
            moved = (better < value) & jnp.any(new != pair)
            return (jnp.where(moved, new, pair), ones, length, jnp.minimum(better, value), moved, rounds + 1)

        def from_start(pair: Array) -> tuple[Array, ...]:
            zero = jnp.zeros((), jnp.int32)
            first = (pair, zero, zero + 1, jnp.full((), jnp.inf, dtype), jnp.ones((), bool), zero)
            return lax.while_loop(lambda s: s[4] & (s[5] < 6), turn, first)

        pair, ones, length, value, _, _ = jax.vmap(from_start)(starts)
        best = jnp.argmin(value)
        return ones[best], length[best], pair[best], value[best]

    return _with_ends(params, code, search(params.arrival_rate, params.mu1, params.mu2), max_threshold)


def best_density(params: Params, thresholds: Any, max_length: int = 40, max_threshold: int | None = None) -> OpenLoop:
    """The best density for given constant thresholds (2,), by one Stern-Brocot descent.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.best_density(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]), [2, 3], max_length=40)
    >>> int(found.ones), int(found.length), round(float(found.mean_number), 10)
    (23, 31, 2.4406551836)
    """
    given, bound = checked_thresholds(thresholds, params, ((2,),), max_threshold)
    return _best_density(params, given, max_length, bound)


@partial(jax.jit, static_argnums=(2, 3))
def _best_density(params: Params, given: Array, max_length: int, bound: int) -> OpenLoop:
    params, code = prepared(params)
    bad = jnp.any(~((given >= 1) & (given <= bound)))
    code = jnp.where(bad, int(Status.OUT_OF_DOMAIN), code)

    @sequential_vmap
    def search(rate: Array, mu1: Array, mu2: Array, pair: Array) -> tuple[Array, Array, Array, Array]:
        point = Params(rate, mu1, mu2)
        ones, length, value = stern_brocot(lambda k, b: node_costs(point, k, b, pair, max_length, bound), max_length)
        ends, _ = _one_node(point, pair)
        end = jnp.argmin(ends).astype(jnp.int32)
        left_out = ends[end] <= value
        return (jnp.where(left_out, end, ones), jnp.where(left_out, 1, length), pair, jnp.minimum(ends[end], value))

    pair = jnp.where(bad, jnp.ones_like(given), given)
    ones, length, pair, value = search(params.arrival_rate, params.mu1, params.mu2, pair)
    code = jnp.where((code == int(Status.OK)) & jnp.isinf(value), int(Status.UNSTABLE), code).astype(jnp.uint8)
    return OpenLoop(ones, length, pair, jnp.where(code == int(Status.OK), value, jnp.nan), code)


def full_search(params: Params, max_length: int = 40, max_threshold: int = 8,
                rule: Callable[[Array, Array, Array], Array] | None = None) -> OpenLoop:
    """The best of all densities with denominators up to ``max_length``, each with the best constant thresholds.

    ``rule(rate, mu1, mu2)``: thresholds as a function of a node's arrival rate instead, such as
    :func:`hetjax.threshold_queue.simple_threshold`; one evaluation a word. Nothing is pruned: the check of
    :func:`best_word`. About 490 words for length 40; .2 s of CPU a threshold, .3 s with a rule.

    >>> from hetjax import parallel_queues as pq, threshold_queue
    >>> p = pq.Params(1.2, [1.0, 1.0], [0.5, 0.1])
    >>> found = pq.full_search(p, max_length=5, rule=threshold_queue.simple_threshold)
    >>> int(found.ones), int(found.length), found.thresholds.tolist(), round(float(found.mean_number), 6)
    (3, 5, [1.0, 5.0], 1.830876)
    """
    return _full_search(params, max_length, max_threshold, rule)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _full_search(params: Params, max_length: int, max_threshold: int,
                 rule: Callable[[Array, Array, Array], Array] | None) -> OpenLoop:
    params, code = prepared(params)
    words = np.asarray([(d.numerator, d.denominator) for d in densities(max_length)], np.int32)

    @sequential_vmap
    def search(rate: Array, mu1: Array, mu2: Array) -> tuple[Array, Array, Array, Array]:
        point, pairs = Params(rate, mu1, mu2), jnp.asarray(words)

        def one(word: Array) -> tuple[Array, Array]:
            ones, length = word
            if rule is None:
                table = all_thresholds(point, ones, length, max_length, max_threshold)
                return jnp.sum(jnp.min(table, axis=1)), jnp.argmin(table, axis=1).astype(mu1.dtype) + 1
            shares = jnp.stack([ones, length - ones]).astype(mu1.dtype) / length.astype(mu1.dtype)
            slow = jnp.where(mu2 > 0, mu2, mu1)
            pair = jnp.clip(rule(rate * shares, mu1, slow), 1, max_threshold)
            return jnp.sum(node_costs(point, ones, length, pair, max_length, max_threshold)), pair

        value, thresholds = lax.map(one, pairs, batch_size=8 if rule is not None else None)
        best = jnp.argmin(value)
        return pairs[best, 0], pairs[best, 1], thresholds[best], value[best]

    return _with_ends(params, code, search(params.arrival_rate, params.mu1, params.mu2), max_threshold)
