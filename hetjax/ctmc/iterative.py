"""Stationary distributions of lattice chains too large for elimination: matrix-free, a million states and more.

The states form a lattice (queue lengths, phases), and the chain is given by its moves: a displacement and, for every
state, the rate of that move. No matrix is formed: a move is a shifted array. The solver is multilevel aggregation:

1. A few damped Jacobi sweeps x <- (x + inflow(x) / exit rate) / 2 remove errors between neighbouring states.
2. Blocks of two states along every long axis become one state. With X the mass of a block and x the current guess, the
   block's rates are the averages sum x rate / X: again a lattice chain; displacements become (parity + move) // 2.
3. The block chain is solved in the same way (down to two states an axis, where the transition matrix is squared until
   it is constant), and x is scaled to the new block masses. Then sweeps again.

Everything is non-negative, nothing is subtracted, and the exact law is a fixed point.

Source: Horton and Leutenegger, A multi-level solution algorithm for steady-state Markov chains (1994).
"""

import itertools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from hetjax.result import Solution, Status

Moves = dict[tuple[int, ...], jax.Array]
SQUARINGS = 60


def stationary_iterative(moves: Mapping[tuple[int, ...], ArrayLike], shape: tuple[int, ...], *,
                         start: ArrayLike | None = None, tolerance: float | None = None, max_cycles: int = 200,
                         sweeps: int = 3) -> Solution:
    """The stationary distribution of a chain on a lattice, by multilevel aggregation.

    Args:
      moves: displacement (one integer an axis) -> rates per unit time of that move from every state: an array that
        broadcasts to ``shape``. Moves that would leave the lattice do not happen.
      shape: the number of states along each axis.
      start: first guess, of that shape (default: uniform). States that the guess gives no mass to and that cannot be
        reached stay at 0.
      tolerance: of the residual (default 1e-12 in float64, 1e-5 in float32).
      max_cycles: at most so many cycles. Static, as sweeps: Jacobi sweeps before and after each aggregation.

    Returns:
      ``Solution``: ``value`` of the given shape, non-negative with sum 1; ``residual`` the sum over the states of
      abs(inflow - outflow), divided by the total flow; ``status`` not_converged if that stays above the tolerance,
      out_of_domain for a negative rate, nonfinite for NaN; ``iterations`` cycles used.

    A cycle costs about 4 sweeps x (number of moves) passes over the lattice (two axes); the number of cycles hardly
    depends on its size: for two queues with loads .6 and .9, 56 cycles with 300 x 300 and with 1000 x 1000 states (10 s
    on two busy cores), with loads .9 and .99 about 82. Memory about 4 + 2 (number of moves) lattices. The error is the
    residual times the chain's condition; small probabilities are not guaranteed relatively (use ``stationary_levels``
    for that). Not differentiable.
    :func:`jax.vmap` runs to the slowest problem.

    >>> import jax.numpy as jnp
    >>> from hetjax.ctmc.iterative import stationary_iterative
    >>> answer = stationary_iterative({(1, 0): 0.5, (-1, 1): 1.0, (0, -1): 0.8}, (40, 40))  # two queues in series
    >>> int(answer.status), answer.value.shape, round(float(answer.value[0, 0]), 4)
    (1, (40, 40), 0.1875)
    """
    for name, count in (("max_cycles", max_cycles), ("sweeps", sweeps)):
        if count < 1:
            raise ValueError(f"{name} = {count!r} must be at least 1")
    rates, dtype = _on_lattice(moves, shape)
    if start is not None and jnp.shape(start) != shape:
        raise ValueError(f"start has shape {jnp.shape(start)}, but the lattice {shape}; give one value a state")
    goal = tolerance if tolerance is not None else 1e-12 if dtype == jnp.float64 else 1e-5
    legal = jnp.stack([(r >= 0).all() for r in rates.values()]).all()
    known = jnp.stack([jnp.isfinite(r).all() for r in rates.values()]).all()
    rates = {s: jnp.where(r > 0, r, 0) for s, r in rates.items()}
    exits = _total(rates)

    def imbalance(x: jax.Array) -> jax.Array:
        flow = x * exits
        return jnp.abs(_inflow(rates, x) - flow).sum() / flow.sum()

    def go_on(carry: Any) -> jax.Array:
        _, residual, cycles = carry
        return (residual > goal) & (cycles < max_cycles)

    def body(carry: Any) -> Any:
        x, _, cycles = carry
        x = _cycle(rates, x, sweeps)
        x = x / x.sum()
        return x, imbalance(x), cycles + 1

    x = jnp.ones(shape, dtype) if start is None else jnp.asarray(start).astype(dtype)
    x = x / x.sum()
    x, residual, cycles = lax.while_loop(go_on, body, (x, imbalance(x), 0))
    finite = known & jnp.isfinite(residual) & jnp.isfinite(x).all()
    code = jnp.where(residual <= goal, int(Status.OK), int(Status.NOT_CONVERGED))
    code = jnp.where(finite, code, int(Status.NONFINITE))
    code = jnp.where(known & ~legal, int(Status.OUT_OF_DOMAIN), code)
    return Solution(x, code.astype(jnp.uint8), residual, cycles)


def _on_lattice(moves: Mapping[tuple[int, ...], ArrayLike], shape: tuple[int, ...]) -> tuple[Moves, Any]:
    if not moves:
        raise ValueError("moves is empty; give at least one displacement with its rates")
    given = {tuple(int(k) for k in s): jnp.asarray(r) for s, r in moves.items()}
    floats = [r.dtype for r in given.values() if jnp.issubdtype(r.dtype, jnp.floating) and not r.weak_type]
    dtype = jnp.result_type(*floats) if floats else jnp.result_type(float)
    rates = {}
    for s, r in given.items():
        if len(s) != len(shape) or not any(s):
            raise ValueError(f"move {s} must have {len(shape)} entries, not all 0, for a lattice of shape {shape}")
        inside = np.ones(shape, bool)
        for axis, (step, size) in enumerate(zip(s, shape, strict=True)):
            target = np.arange(size) + step
            inside &= ((target >= 0) & (target < size)).reshape([-1 if k == axis else 1 for k in range(len(shape))])
        if r.ndim > len(shape) or any(k not in (1, n) for k, n in zip(r.shape[::-1], shape[::-1], strict=False)):
            raise ValueError(f"the rates of move {s} have shape {r.shape}, which does not broadcast to {shape}")
        full = jnp.broadcast_to(r.reshape((1,) * (len(shape) - r.ndim) + r.shape), shape).astype(dtype)
        rates[s] = jnp.where(inside, full, 0)
    return rates, dtype


def _total(rates: Moves) -> jax.Array:
    first, *others = rates.values()
    return sum(others, first)


def _shifted(x: jax.Array, s: tuple[int, ...]) -> jax.Array:
    """x moved by s, zeros coming in."""
    return lax.pad(x, jnp.zeros((), x.dtype), [(step, -step, 0) for step in s])


def _inflow(rates: Moves, x: jax.Array) -> jax.Array:
    first, *others = (_shifted(x * r, s) for s, r in rates.items())
    return sum(others, first)


def _smooth(rates: Moves, exits: jax.Array, x: jax.Array, sweeps: int) -> jax.Array:
    moving = exits > 0
    safe = jnp.where(moving, exits, 1)
    return lax.fori_loop(0, sweeps, lambda _, z: jnp.where(moving, (z + _inflow(rates, z) / safe) / 2, z), x)


def _cycle(rates: Moves, x: jax.Array, sweeps: int) -> jax.Array:
    """Sweeps, the block chain, sweeps."""
    if max(x.shape) <= 2:
        return _solve_smallest(rates, x)
    exits = _total(rates)
    x = _smooth(rates, exits, x, sweeps)
    blocks, block_rates = _aggregate(rates, x)
    # twice (a W-cycle): with one visit the number of cycles grows with the load, and doubles where this one needs 50
    solved = lax.fori_loop(0, 2, lambda _, z: _cycle(block_rates, z, sweeps), blocks)
    factor = solved / jnp.where(blocks > 0, blocks, 1)
    for axis, half in enumerate(_halved(x.shape)):
        factor = jnp.repeat(factor, 2, axis) if half else factor
    x = x * factor[tuple(slice(0, size) for size in x.shape)]
    return _smooth(rates, exits, x, sweeps)


def _halved(shape: tuple[int, ...]) -> list[bool]:
    """Which axes are blocked: long ones first, so that a short axis of phases, often weakly coupled, stays whole."""
    return [size > 2 and 2 * size >= max(shape) for size in shape]


def _aggregate(rates: Moves, x: jax.Array) -> tuple[jax.Array, Moves]:
    """Block masses, and the rates between blocks given the masses inside."""
    halved = _halved(x.shape)

    def part(a: jax.Array, parity: tuple[int, ...]) -> jax.Array:
        even = jnp.pad(a, [(0, size % 2 if half else 0) for size, half in zip(a.shape, halved, strict=True)])
        return even[tuple(slice(p, None, 2) if half else slice(None) for p, half in zip(parity, halved, strict=True))]

    parities = list(itertools.product(*((0, 1) if half else (0,) for half in halved)))
    blocks = sum((part(x, parity) for parity in parities[1:]), part(x, parities[0]))
    flows: Moves = {}
    for s, r in rates.items():
        flow = x * r
        for parity in parities:
            step = tuple((p + k) // 2 if half else k for p, k, half in zip(parity, s, halved, strict=True))
            if any(step):
                flows[step] = flows[step] + part(flow, parity) if step in flows else part(flow, parity)
    mass = jnp.where(blocks > 0, blocks, 1)
    return blocks, {step: flow / mass for step, flow in flows.items()}


def _solve_smallest(rates: Moves, x: jax.Array) -> jax.Array:
    """At most two states an axis: x P^(2^60) for the uniformised P, rows kept at sum 1."""
    n = x.size
    number = np.arange(n).reshape(x.shape)
    Q = jnp.zeros((n, n), x.dtype)
    for s, r in rates.items():
        source = tuple(slice(max(0, -k), max(0, size - max(0, k))) for k, size in zip(s, x.shape, strict=True))
        target = tuple(slice(max(0, k), max(0, size + min(0, k))) for k, size in zip(s, x.shape, strict=True))
        Q = Q.at[number[source].reshape(-1), number[target].reshape(-1)].add(r[source].reshape(-1))
    exits = Q.sum(1)
    fastest = 2 * jnp.maximum(exits.max(), jnp.finfo(x.dtype).tiny)
    P = Q / fastest + jnp.diag(1 - exits / fastest)

    def square(_: int, P: jax.Array) -> jax.Array:
        P = P @ P
        return P / P.sum(1, keepdims=True)

    return (x.reshape(-1) @ lax.fori_loop(0, SQUARINGS, square, P)).reshape(x.shape)
