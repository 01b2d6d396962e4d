"""A few queues as a Markov chain: the exact generator, for checks."""

import itertools
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import generator as dense_generator
from hetjax.models.supermarket.params import Params
from hetjax.models.supermarket.policies import SHORTEST_OF_D, Policy
from hetjax.processes.checks import require

Array = jax.Array


class SmallSystem(NamedTuple):
    """``Q`` (n, n), and ``counts`` (n, levels, phases): queues of exactly k = 1.. customers in each phase, by state."""

    Q: Array
    counts: np.ndarray

    @property
    def queue_lengths(self) -> np.ndarray:
        """(n,) customers in all queues."""
        return np.einsum("nki,k->n", self.counts, np.arange(1, self.counts.shape[1] + 1))


def generator(params: Params, N: int, levels: int, policy: Policy = SHORTEST_OF_D) -> SmallSystem:
    """The generator of N queues of at most ``levels`` customers each; an arrival that would exceed that is lost.

    States are the numbers of queues of each length and phase: binomial(N + levels phases, N) of them, at most 20,000.
    Differentiable in the parameters (traced ones are legal). Policies: see :mod:`hetjax.models.supermarket.policies`; a
    real d is the mixture of its two whole neighbours.

    >>> from hetjax import ctmc
    >>> from hetjax.models.supermarket import Params, generator
    >>> single = generator(Params(0.5, 1, [1.0], [[-1.0]]), 1, levels=2)  # M/M/1 with 2 places
    >>> [round(float(p), 4) for p in ctmc.stationary(single.Q).value]
    [0.5714, 0.2857, 0.1429]
    """
    p = params.phases
    require(N >= 1 and levels >= 1, "N, levels", f"{N}, {levels}", "at least 1")
    cells = [(0, 0), *((k, i) for k in range(1, levels + 1) for i in range(p))]
    states = list(itertools.combinations_with_replacement(range(len(cells)), N))
    require(len(states) <= 20_000, "N, levels", f"{N}, {levels} with {len(states)} states", "fewer than 20,000 states")
    number = {state: at for at, state in enumerate(states)}
    counts = np.zeros((len(states), levels, p))
    for at, state in enumerate(states):
        for c in state:
            if c:
                k, i = cells[c]
                counts[at, k - 1, i] += 1

    def after(state: tuple[int, ...], old: int, new: int) -> int:
        changed = list(state)
        changed[changed.index(old)] = new
        return number[tuple(sorted(changed))]

    def cell(k: int, i: int) -> int:
        return 0 if k == 0 else 1 + (k - 1) * p + i

    reach = np.flip(np.cumsum(np.flip(counts.sum(2), 1), 1), 1)  # n_k
    chance = jax.vmap(lambda n: policy.chance(params, n, jnp.asarray(N, n.dtype)))(jnp.asarray(reach, params.T.dtype))
    ends = jnp.concatenate([jnp.ones_like(chance[:, :1]), chance], axis=1)
    joins = N * params.arrival_rate * (ends[:, :-1] - ends[:, 1:])  # (n, levels): to a queue of k = 0..levels-1
    rows: dict[str, list[tuple[int, ...]]] = {"join": [], "start": [], "move": [], "done": []}
    for at, state in enumerate(states):
        lengths = Counter(cells[c][0] for c in state)
        for c, many in Counter(state).items():
            k, i = cells[c]
            share = (many, lengths[k])
            if k == 0:
                rows["start"] += [(at, after(state, c, cell(1, j)), 0, j, *share) for j in range(p)]
            elif k < levels:
                rows["join"].append((at, after(state, c, cell(k + 1, i)), k, i, *share))
            if k:
                rows["move"] += [(at, after(state, c, cell(k, j)), i, j, many, 1) for j in range(p) if j != i]
                rows["done"] += [(at, after(state, c, cell(k - 1, j)), i, j, many, 1) for j in range(p)]
    first = params.alpha
    transitions = []
    for kind, found in rows.items():
        if not found:
            continue
        source, target, k, j, many, among = np.array(found).T
        weight = jnp.asarray(many / among, params.T.dtype)
        rate = {"start": lambda s, k, j: joins[s, 0] * first[j], "join": lambda s, k, j: joins[s, k],
                "move": lambda s, k, j: params.T[k, j],
                "done": lambda s, k, j: params.exit_rates[k] * first[j]}[kind](source, k, j)
        transitions.append((source, target, weight * rate))
    return SmallSystem(dense_generator(transitions, len(states)), counts)
