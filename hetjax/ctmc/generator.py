"""Building chains: transitions with rates to a dense generator, levels of phases, and checks on the host."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


def generator(transitions: Sequence[tuple[Any, Any, Any]], n_states: int, *parameters: Any) -> jax.Array:
    """A dense generator (n, n) from transitions ``(source, target, rate)``.

    ``source`` and ``target`` are state numbers (integers, or arrays of them for many transitions at once, fixed at
    trace time); ``rate`` is a number or an array (traced or not), or a function of ``parameters`` that gives it. Rates
    of equal transitions add up, transitions from a state to itself are dropped, the diagonal makes rows sum to 0.
    Raises ValueError for state numbers outside 0..n_states-1. Rates are in events per unit time.

    >>> from hetjax import ctmc
    >>> def repair(failure, mend):
    ...     return ctmc.generator([(0, 1, failure), (1, 0, mend)], 2)
    >>> repair(0.5, 2.0).tolist()
    [[-0.5, 0.5], [2.0, -2.0]]
    >>> ctmc.generator([([0, 1], [1, 2], lambda x: 3 * x), ([1, 2], [0, 1], 1.0)], 3, 2.0).tolist()
    [[-6.0, 6.0, 0.0], [1.0, -7.0, 6.0], [0.0, 1.0, -1.0]]
    """
    sources, targets, rates = [], [], []
    for number, (source, target, rate) in enumerate(transitions):
        value = jnp.asarray(rate(*parameters) if callable(rate) else rate)
        value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(jnp.result_type(float))
        i, j = np.broadcast_arrays(np.asarray(source), np.asarray(target))
        for name, states in (("source", i), ("target", j)):
            if not np.issubdtype(states.dtype, np.integer) or np.any((states < 0) | (states >= n_states)):
                raise ValueError(f"transition {number}: {name} = {states.tolist()} must be state numbers in"
                                 f" 0..{n_states - 1}; correct it or raise n_states")
        sources.append(i.reshape(-1))
        targets.append(j.reshape(-1))
        rates.append(jnp.broadcast_to(value, i.shape).reshape(-1))
    if not rates:
        raise ValueError("transitions is empty; give at least one (source, target, rate)")
    dtype = jnp.result_type(*rates)
    i, j = np.concatenate(sources), np.concatenate(targets)
    flat = jnp.where(jnp.asarray(i != j), jnp.concatenate([r.astype(dtype) for r in rates]), jnp.zeros((), dtype))
    off_diagonal = jnp.zeros((n_states, n_states), dtype).at[i, j].add(flat)
    return off_diagonal - jnp.diag(jnp.sum(off_diagonal, axis=1))


class StateSpace(NamedTuple):
    """States reached from a start, and the transitions between them, each with the name of its rate and a factor."""

    states: tuple[Hashable, ...]
    source: np.ndarray
    target: np.ndarray
    name: tuple[str, ...]
    factor: np.ndarray

    def number(self, state: Hashable) -> int:
        """The number of ``state``."""
        return self.states.index(state)

    def generator(self, rates: Mapping[str, Any]) -> jax.Array:
        """The dense generator for named ``rates`` (numbers or traced scalars)."""
        names = sorted(set(self.name))
        for missing in [name for name in names if name not in rates]:
            raise ValueError(f"rate {missing!r} is missing; give {', '.join(names)}")
        values = jnp.stack([jnp.asarray(rates[name], dtype=jnp.result_type(float, *rates.values())) for name in names])
        which = np.array([names.index(name) for name in self.name])
        rate = values[which] * jnp.asarray(self.factor, values.dtype)
        return generator([(self.source, self.target, rate)], len(self.states))


def explore(start: Hashable, moves: Callable[[Any], Iterable[tuple[Any, str, float]]],
            max_states: int = 100_000) -> StateSpace:
    """All states reached from ``start``; ``moves(state)`` gives ``(next_state, rate_name, factor)`` per transition.

    States are hashable (tuples of integers, say) and numbered in the order in which they are met. Runs on the host,
    once; the rates stay free parameters. Raises ValueError beyond ``max_states``.

    >>> from hetjax import ctmc
    >>> def moves(n):  # M/M/2/4
    ...     if n < 4:
    ...         yield n + 1, "arrival", 1.0
    ...     if n > 0:
    ...         yield n - 1, "service", min(n, 2)
    >>> space = ctmc.explore(0, moves)
    >>> pi = ctmc.stationary(space.generator({"arrival": 1.0, "service": 1.0})).value
    >>> [round(float(p), 4) for p in pi]
    [0.3478, 0.3478, 0.1739, 0.087, 0.0435]
    """
    number = {start: 0}
    order = [start]
    rows: list[tuple[int, int, str, float]] = []
    for state in order:  # grows while we walk it
        for after, name, factor in moves(state):
            if after not in number:
                number[after] = len(order)
                order.append(after)
                if len(order) > max_states:
                    raise ValueError(f"more than max_states = {max_states} states are reached from {start!r};"
                                     " bound the state or raise max_states")
            rows.append((number[state], number[after], name, float(factor)))
    return StateSpace(tuple(order), np.array([r[0] for r in rows]), np.array([r[1] for r in rows]),
                      tuple(r[2] for r in rows), np.array([r[3] for r in rows]))


class Levels(NamedTuple):
    """A chain of L levels with S phases each that moves by at most one level: a block-tridiagonal generator.

    Attributes:
      up: (L, S, S) rates from level l, phase i to level l + 1, phase j; ``up[L-1]`` is never used. Or (L, S), if the
        phase does not change.
      local: (L, S, S) rates within level l; the diagonals are never used.
      down: (L, S, S), or (L, S), rates from level l to level l - 1; ``down[0]`` is never used.
      mask: (L, S) bool, False where level l has no phase j (levels with fewer phases); None: all exist.

    Rates are per unit time. Leaves may have further axes for independent problems, all the same and last; ``vmap`` does
    the same (see :func:`hetjax.ctmc.stationary_levels`).
    """

    up: jax.Array
    local: jax.Array
    down: jax.Array
    mask: jax.Array | None = None


def levels_to_dense(levels: Levels) -> jax.Array:
    """The dense generator (L S, L S) of one chain; state (l, j) has number l S + j; missing phases get no rates.

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> mm1k = ctmc.Levels(up=jnp.ones((3, 1)), local=jnp.zeros((3, 1, 1)), down=jnp.full((3, 1), 2.0))
    >>> ctmc.levels_to_dense(mm1k).tolist()
    [[-1.0, 1.0, 0.0], [2.0, -3.0, 1.0], [0.0, 2.0, -2.0]]
    """
    L, S = check_shapes(levels)
    up, local, down = (_square(x, levels.local) for x in levels[:3])
    blocks = jnp.zeros((L, S, L, S), local.dtype)
    l = np.arange(L)
    blocks = blocks.at[l, :, l, :].set(local * (1 - jnp.eye(S, dtype=local.dtype))[None])
    blocks = blocks.at[l[:-1], :, l[1:], :].set(up[:-1]).at[l[1:], :, l[:-1], :].set(down[1:])
    if levels.mask is not None:
        real = levels.mask.astype(local.dtype)
        blocks = blocks * real[:, :, None, None] * real[None, None]
    Q = blocks.reshape(L * S, L * S)
    return Q - jnp.diag(jnp.sum(Q, axis=1))


def dense_to_levels(Q: jax.Array, phases: int) -> Levels:
    """The levels of a dense generator whose states are numbered level by level, ``phases`` to a level.

    Raises ValueError if rates jump over a level (concrete Q; a traced one is taken at its word).

    >>> from hetjax import ctmc
    >>> Q = ctmc.generator([(0, 1, 1.0), (1, 2, 1.0), (2, 1, 4.0), (1, 0, 2.0)], 3)
    >>> ctmc.dense_to_levels(Q, 1).down[:, 0, 0].tolist()
    [0.0, 2.0, 4.0]
    """
    n = Q.shape[0]
    if Q.ndim != 2 or Q.shape[1] != n or n % phases:
        raise ValueError(f"Q has shape {Q.shape}; give a square matrix whose size is a multiple of phases = {phases}")
    L = n // phases
    blocks = jnp.asarray(Q).reshape(L, phases, L, phases)
    if not isinstance(Q, jax.core.Tracer):
        level = np.arange(n) // phases
        far = np.argwhere((np.abs(level[:, None] - level[None]) > 1) & (np.asarray(Q) != 0))
        if far.size:
            raise ValueError(f"Q[{far[0][0]}, {far[0][1]}] jumps over a level of {phases} phases;"
                             " give more phases a level")
    l = np.arange(L)
    none = jnp.zeros((1, phases, phases), blocks.dtype)
    up = jnp.concatenate([blocks[l[:-1], :, l[1:], :], none])
    down = jnp.concatenate([none, blocks[l[1:], :, l[:-1], :]])
    return Levels(up, blocks[l, :, l, :] * (1 - jnp.eye(phases, dtype=blocks.dtype))[None], down)


def _square(block: jax.Array, local: jax.Array) -> jax.Array:
    """(L, S, S, ...) from (L, S, ...) (phases that do not change) or itself."""
    if block.ndim == local.ndim:
        return block
    S = local.shape[1]
    return block[:, :, None] * jnp.eye(S, dtype=block.dtype).reshape(1, S, S, *[1] * (local.ndim - 3))


def check_shapes(levels: Levels) -> tuple[int, int]:
    """(L, S) of ``levels``; ValueError if the blocks do not fit together."""
    shape = levels.local.shape
    if len(shape) < 3 or shape[1] != shape[2] or 0 in shape[:3]:
        raise ValueError(f"local has shape {shape}; give (levels, phases, phases)")
    for name in ("up", "down"):
        block = getattr(levels, name)
        if block.shape not in (shape, (shape[0], *shape[2:])):
            raise ValueError(f"{name} has shape {block.shape}; give {shape},"
                             f" or {(shape[0], *shape[2:])} if phases do not change")
    if levels.mask is not None and levels.mask.shape[:2] != shape[:2]:
        raise ValueError(f"mask has shape {levels.mask.shape}; give {shape[:2]}")
    return shape[0], shape[1]


class Classes(NamedTuple):
    """The recurrent classes (each a sorted tuple of states) and the transient states of a chain."""

    recurrent: tuple[tuple[int, ...], ...]
    transient: tuple[int, ...]


def classes(Q: Any) -> Classes:
    """The recurrent classes and the transient states of a dense generator, on the host.

    >>> from hetjax import ctmc
    >>> ctmc.classes([[0, 1.0, 0], [0, 0, 1.0], [0, 2.0, 0]])
    Classes(recurrent=((1, 2),), transient=(0,))
    """
    n = len(Q)
    reach = (np.asarray(Q) > 0) | np.eye(n, dtype=bool)
    for _ in range(max(n - 1, 1).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    recurrent = []
    seen = np.zeros(n, bool)
    for i in range(n):
        if not seen[i] and np.all(reach[reach[i], i]):  # everything reached from i leads back
            seen |= reach[i]
            recurrent.append(tuple(int(j) for j in np.flatnonzero(reach[i])))
    return Classes(tuple(recurrent), tuple(int(j) for j in np.flatnonzero(~seen)))


def check_generator(Q: Any, irreducible: bool = False) -> None:
    """Raises ValueError, in one line, if Q (concrete) has no unique stationary distribution.

    Checks the shape, that off-diagonal rates are finite and not negative, that there is one recurrent class
    and, with ``irreducible``, no transient state. The diagonal may be anything.

    >>> from hetjax import ctmc
    >>> ctmc.check_generator([[0, 0.0, 0], [1.0, 0, 1.0], [0, 0, 0]])
    Traceback (most recent call last):
    ...
    ValueError: Q has 2 recurrent classes, absorbing states 0, 2; a stationary distribution needs one: connect them
    """
    rates = np.array(Q, dtype=float)
    if rates.ndim != 2 or rates.shape[0] != rates.shape[1] or rates.size == 0:
        raise ValueError(f"Q has shape {rates.shape}; give a square matrix of rates")
    np.fill_diagonal(rates, 0)
    bad = np.argwhere(~((rates >= 0) & (rates < np.inf)))
    if bad.size:
        i, j = bad[0]
        raise ValueError(f"Q[{i}, {j}] = {rates[i, j]:g} is no rate; off-diagonal entries must be finite and >= 0")
    _require_one_class(classes(rates), "Q", irreducible, str)


def check_levels(levels: Levels, irreducible: bool = False) -> None:
    """Raises ValueError, in one line, if ``levels`` (concrete, one chain) have no unique stationary distribution.

    States are named (level, phase). The same checks as :func:`check_generator`; phases that do not exist are left out.
    """
    L, S = check_shapes(levels)
    for name, used in (("up", slice(L - 1)), ("local", slice(L)), ("down", slice(1, L))):
        values = np.array(getattr(levels, name), dtype=float)
        if name == "local":
            values[:, np.arange(S), np.arange(S)] = 0
        part = values[used]
        bad = np.argwhere(~((part >= 0) & (part < np.inf)))
        if bad.size:
            where = bad[0] + [1 if name == "down" else 0, *[0] * (part.ndim - 1)]
            raise ValueError(f"{name}[{', '.join(map(str, where))}] = {values[tuple(where)]:g} is no rate;"
                             " rates must be finite and >= 0")
    real = np.ones(L * S, bool) if levels.mask is None else np.asarray(levels.mask).reshape(-1)
    states = np.flatnonzero(real)
    found = classes(np.asarray(levels_to_dense(levels))[np.ix_(states, states)])
    _require_one_class(found, "levels", irreducible, lambda k: f"({states[k] // S}, {states[k] % S})")


def _require_one_class(found: Classes, what: str, irreducible: bool, name: Callable[[int], str]) -> None:
    if len(found.recurrent) > 1:
        which = "absorbing states " + ", ".join(name(c[0]) for c in found.recurrent[:5])
        if any(len(c) > 1 for c in found.recurrent):
            shown = [", ".join(map(name, c[:5])) + (", ..." if len(c) > 5 else "") for c in found.recurrent[:3]]
            which = "of states " + " and ".join(f"{{{s}}}" for s in shown)
        raise ValueError(f"{what} has {len(found.recurrent)} recurrent classes, {which};"
                         " a stationary distribution needs one: connect them")
    if irreducible and found.transient:
        raise ValueError(f"{what} has transient states {', '.join(map(name, found.transient[:5]))};"
                         " drop them or do not ask for irreducible")
