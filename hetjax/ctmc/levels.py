"""Stationary laws and stationary rewards of chains with levels (block-tridiagonal generators), right at any load.

Level l moves up by U_l, down by D_l, inside by A_l (off-diagonal rates). Levels are eliminated from the top: with W_l
the rates inside level l of the chain watched only on levels <= l,

    W_l = A_l + U_l G_{l+1},    N_l = (diag(D_l 1 + W_l 1) - W_l)^-1,    G_l = N_l D_l,

where G_l[i, j] is the probability that the chain, started in phase i of level l, first enters level l - 1 in phase j.
G is stochastic whatever the load, so nothing can overflow; everything is a sum of products of non-negative numbers
(:mod:`hetjax.ctmc.elimination`), so every entry is right to about eps times its distance from level 0.

The law then grows upwards, pi_l = pi_{l-1} U_{l-1} N_l, each level with its own power of two. A reward needs no law:
M_l = f_l + U_l N_{l+1} M_{l+1} is the reward collected above and in level l per unit of time in level l, so
sum pi f = pi_0 M_0 / pi_0 m_0, m the same for f = 1: one pass, no storage.

Sources: Grassmann, Taksar and Heyman, Oper. Res. 33 (1985); Gaver, Jacobs and Latouche, Adv. Appl. Prob. 16 (1984).
"""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.ctmc import cofactors, elimination, panels
from hetjax.ctmc.batching import mended, points_last
from hetjax.ctmc.blocks import (
    LARGE,
    binary_exponent,
    block_size,
    block_times,
    close,
    exit_rates,
    full_block,
    law_times,
    legal_rates,
    measure,
    missing_phases,
    power_of_two,
    prepare,
    scale_down,
    step_blocks,
)
from hetjax.ctmc.elimination import reduce
from hetjax.ctmc.generator import Levels, check_shapes
from hetjax.numerics.hold import hold
from hetjax.result import Solution, Status


def expectation_levels(levels: Levels, rewards: jax.Array) -> Solution:
    """Stationary means ``sum_{l,j} pi[l, j] rewards[k, l, j]`` without the law: one pass, half the cost.

    Args:
      levels: the chain; see :class:`hetjax.ctmc.Levels`.
      rewards: (L, S), or (k, L, S) for several means at once, per unit time, of any sign. Negative terms may cancel.

    Returns:
      ``Solution`` with ``value`` a scalar, or (k,). ``status``: out_of_domain for negative or NaN rates and for several
      recurrent classes; nonfinite if a quantity leaves the range of the dtype, not_converged if the ratio of phases
      does and digits are lost by it. Up to 24 phases such points, and those with states that never lead to level 0,
      are solved through the law, which holds more chains; beyond, :func:`stationary_levels` is the way.

    Relative error max(1e-13, L eps) for rewards >= 0; cost O(L S^3). Points under ``vmap`` go to the last
    axis in blocks that fit the cache. Leaves may also have further trailing axes, the same for all, (L, S, S, ...):
    the fastest form when the chain is built that way (rewards then are (k, L, S, ...)).

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> mm1k = ctmc.Levels(up=jnp.ones((3, 1)), local=jnp.zeros((3, 1, 1)), down=jnp.full((3, 1), 2.0))
    >>> mean = ctmc.expectation_levels(mm1k, jnp.arange(3.0)[:, None])
    >>> round(float(mean.value), 6)
    0.571429
    """
    levels = prepare(levels)
    L, S = check_shapes(levels)
    single = rewards.ndim == levels.local.ndim - 1 and levels.local.ndim == 3
    rewards = rewards[None] if single else rewards
    if rewards.ndim != levels.local.ndim or rewards.shape[1:] != (L, S, *levels.local.shape[3:]):
        raise ValueError(f"rewards has shape {rewards.shape}; give {(L, S)} or (k, {L}, {S})"
                         + ("" if single or levels.local.ndim == 3 else " with the points of the levels last"))
    values, status = _run(_expectation, levels, rewards.astype(levels.local.dtype))
    none = jnp.zeros(status.shape, jnp.int32)
    return Solution(values[0] if single else values, status, none.astype(values.dtype), none)


def stationary_levels(levels: Levels, form: Literal["probability", "scaled", "log"] = "probability") -> Solution:
    """The stationary law of a chain with levels.

    Args:
      levels: the chain; see :class:`hetjax.ctmc.Levels`.
      form: "probability": (L, S), values below the dtype's range are exact zeros; "scaled": a pair (P, E), (L, S)
        floats and (L,) int32, the law is P 2^E at any size; "log": its natural logarithm (L, S).

    Returns:
      ``Solution``; ``residual`` is the largest relative difference of inflow and outflow of a state. ``status``:
      out_of_domain for negative or NaN rates and several recurrent classes; nonfinite if a quantity leaves the range
      inside a level; not_converged if the ratio of phases within one level left the range and the balance of
      some state is lost by it (phases with opposite drift over hundreds of levels, coupled in the middle).

    Relative error of every entry max(1e-13, L eps), L its distance from level 0, at any load. Cost O(L S^3). Transient
    states get exact zeros. Points under ``vmap`` go to the last axis in blocks; see :func:`expectation_levels`.

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> mm1k = ctmc.Levels(up=jnp.ones((3, 1)), local=jnp.zeros((3, 1, 1)), down=jnp.full((3, 1), 2.0))
    >>> [round(float(p), 6) for p in ctmc.stationary_levels(mm1k).value[:, 0]]
    [0.571429, 0.285714, 0.142857]
    """
    if form not in ("probability", "scaled", "log"):
        raise ValueError(f"form = {form!r}; give 'probability', 'scaled' or 'log'")
    levels = prepare(levels)
    check_shapes(levels)
    law, exponent, status, residual = _run(_law, levels)
    if form == "probability":
        value: Any = law * power_of_two(exponent, law.dtype)[:, None]
    elif form == "scaled":
        value = (law, exponent)
    else:
        none = law == 0
        value = jnp.where(none, -jnp.inf, jnp.log(jnp.where(none, jnp.ones_like(law), law)))
        value = value + (exponent.astype(law.dtype) * np.log(2).astype(law.dtype))[:, None]
    return Solution(value, status, residual, jnp.zeros(status.shape, jnp.int32))


def _in_closed_form(levels: Levels) -> bool:
    return levels.mask is None and levels.local.shape[1] <= cofactors.PHASES


def _expectation_fast(levels: Levels, rewards: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """((k, ...) means, status) and where they are good; everything points last. In closed form where that is
    possible."""
    if not _in_closed_form(levels):
        values, status = expectation_points(levels, rewards)
        return (values, status), status == Status.OK
    by_level = jnp.moveaxis(rewards, 0, 1)
    steps = (*step_blocks(levels), by_level[:-1])
    values, good = cofactors.expectation((levels.local[-1], by_level[-1]), steps, lambda blocks: blocks)
    return (values, jnp.full(good.shape, Status.OK, jnp.uint8)), good


def _expectation_block(levels: Levels, rewards: jax.Array) -> tuple[jax.Array, jax.Array]:
    if levels.local.shape[1] > LARGE:  # vmap would compute the law everywhere
        return expectation_points(levels, rewards)
    return mended(_expectation_fast, from_law)(levels, rewards)


def from_law(levels: Levels, rewards: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(k, ...) means and status through the law, which holds more chains; everything points last."""
    law, exponent, status, _ = _law_points(levels)
    law = law * power_of_two(exponent, law.dtype)[:, None]
    return jnp.sum(law[None] * rewards, axis=(1, 2)), status


def expectation_points(levels: Levels, rewards: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(k, ...) means and status; everything points last. The general elimination."""
    columns = jnp.concatenate([jnp.ones_like(rewards[:1]), rewards])
    columns = columns if levels.mask is None else columns * levels.mask.astype(columns.dtype)[None]
    columns = jnp.moveaxis(columns, 0, 2)  # (L, S, 1 + k, ...)
    steps = (*step_blocks(levels), columns[:-1])
    return expectation_steps((levels.local[-1], columns[-1]), steps, lambda blocks: blocks, levels.mask)


def expectation_steps(top: tuple[jax.Array, jax.Array], steps: Any, read: Callable[[Any], tuple[jax.Array, ...]],
                      mask: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """:func:`expectation_points` for levels that are read where they are used.

    ``top`` holds local (S, S, ...) and the columns (S, 1 + k, ...), 1 and the rewards, of the last level; ``read``
    turns each of ``steps``, l = 1..L-1, into down_l, local_{l-1}, up_{l-1}, columns_{l-1}.
    """
    S, dtype = top[0].shape[0], top[0].dtype
    points = top[0].shape[2:]
    solve = panels.solve if S > LARGE else elimination.solve

    def step(carry: Any, blocks: Any) -> tuple[Any, None]:
        rates, collected, exponent, zeros, legal, faint = carry
        down, local, up, reward = read(blocks)
        up = hold(up)  # read once for every column of the result
        right = jnp.concatenate([full_block(down, rates), collected], axis=1)
        rates, exits, right = hold((rates, exit_rates(down, rates), right))
        x, zero = solve(rates, exits, right)
        zero = zero if S <= LARGE else jnp.sum(zero, dtype=jnp.int32)
        legal = legal & legal_rates(local, down, up)
        above = hold(block_times(up, x))
        raw = hold(reward * power_of_two(-exponent, x.dtype)[None, None] + above[:, S:])
        shift = binary_exponent(reduce(jnp.maximum, raw[:, 0]))
        shift = jnp.maximum(shift, 0)
        scaled = hold(raw * power_of_two(-shift, x.dtype)[None, None])
        faint = jnp.minimum(faint, faintest(scaled[:, 0], reward[:, 0]))
        return (local + above[:, :S], scaled, exponent + shift, zeros + zero, legal, faint), None

    zero = jnp.zeros(points, jnp.int32)
    start = (*top, zero, zero, legal_rates(top[0]), jnp.ones(points, dtype))
    (rates, collected, _, zeros, legal, faint), _ = lax.scan(step, start, steps, reverse=True)
    ends, unique = measure(close(rates, mask))
    sums = reduce(jnp.add, ends[:, None] * collected)
    values = sums[1:] / sums[:1]
    legal = legal & unique & (zeros <= missing_phases(mask))
    lost = sums[0] / reduce(jnp.maximum, ends) < jnp.finfo(rates.dtype).tiny / jnp.finfo(rates.dtype).eps
    finite = jnp.all(jnp.isfinite(values), axis=0) & ~lost
    info = jnp.finfo(rates.dtype)
    real = jnp.ones_like(ends) if mask is None else mask[0].astype(dtype)
    diagonal = jnp.eye(S, dtype=bool).reshape(S, S, *(1,) * len(points))
    entered = reduce(jnp.add, jnp.where(diagonal, 0, rates)) > 0  # a phase that nothing leads to has probability 0
    real = jnp.where(entered, real, 0)
    faint = jnp.minimum(faint, faintest(ends / reduce(jnp.maximum, ends)[None], real))
    status = status_of(legal, finite)
    faint = (status == Status.OK) & (faint < info.tiny / info.eps)
    return values, jnp.where(faint, jnp.uint8(Status.NOT_CONVERGED), status)


def faintest(numbers: jax.Array, real: jax.Array) -> jax.Array:
    """The smallest number of the phases that exist: digits were lost if it is close to the end of the range."""
    return lax.stop_gradient(reduce(jnp.minimum, jnp.where(real > 0, numbers, jnp.ones_like(numbers))))


def status_of(legal: jax.Array, finite: jax.Array) -> jax.Array:
    """The status code from what was found."""
    return jnp.where(legal, jnp.where(finite, Status.OK, Status.NONFINITE), Status.OUT_OF_DOMAIN).astype(jnp.uint8)


def _law_points(levels: Levels) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """(L, S, ...) mantissas, (L, ...) exponents, status, residual; everything points last."""
    S = levels.local.shape[1]
    points = levels.local.shape[3:]

    def eliminate(carry: Any, blocks: Any) -> tuple[Any, jax.Array]:
        rates, legal = carry
        down, local, up = blocks
        exits, right = exit_rates(down, rates), full_block(down, rates)
        rates, exits, right = hold((rates, exits, right))
        if S > LARGE:
            x, trapped = panels.solve(rates, exits, jnp.concatenate([right, jnp.eye(S, dtype=rates.dtype)], axis=1))
            x, factors = x[:, :S], jnp.concatenate([x[:, S:], trapped[:, None].astype(x.dtype)], axis=1)
        else:
            x, factors = elimination.solve_and_factor(rates, exits, right)
        legal = legal & legal_rates(local, down, up)
        return (local + hold(block_times(up, x)), legal), factors

    start = (levels.local[-1], legal_rates(levels.local[-1]))
    (rates, legal), factors = lax.scan(eliminate, start, step_blocks(levels), reverse=True)
    ends, unique = measure(close(rates, levels.mask))

    def climb(carry: Any, blocks: Any) -> tuple[Any, Any]:
        below, exponent, first, astray = carry
        factors, up, level = blocks
        left = law_times(below, up)
        if S > LARGE:
            here, starts, unreached = panels.apply_left(factors[:, :S], factors[:, S] > 0, left)
        else:
            here, starts, unreached = elimination.apply_left(factors, left)
        shift = binary_exponent(reduce(jnp.maximum, here))
        here, exponent = scale_down(here, shift), exponent + shift
        return (here, exponent, jnp.where(starts > 0, level, first), astray + unreached), (here, exponent)

    ends = scale_down(ends, binary_exponent(reduce(jnp.maximum, ends)))
    zeros = jnp.zeros(points, jnp.int32)
    L = levels.local.shape[0]
    (_, _, first, astray), (law, exponent) = lax.scan(
        climb, (ends, zeros, zeros, zeros), (factors, levels.up[:-1], jnp.arange(1, L, dtype=jnp.int32)))
    law = jnp.concatenate([ends[None], law])
    exponent = jnp.concatenate([zeros[None], exponent])
    after = jnp.arange(L, dtype=jnp.int32).reshape(L, *[1] * len(points)) >= first[None]
    law, exponent = _normalised(law * after[:, None].astype(law.dtype), jnp.where(after, exponent, jnp.int32(-2**30)))
    legal = legal & (unique | (first > 0)) & (astray <= missing_phases(levels.mask))
    residual = _residual(levels, law, exponent)
    status = status_of(legal, jnp.all(jnp.isfinite(law), axis=(0, 1)))
    lost = (status == Status.OK) & (residual > jnp.finfo(law.dtype).eps ** 0.5)
    return law, exponent, jnp.where(lost, jnp.uint8(Status.NOT_CONVERGED), status), residual


def _normalised(law: jax.Array, exponent: jax.Array) -> tuple[jax.Array, jax.Array]:
    exponent = exponent - jnp.max(exponent, axis=0, keepdims=True)
    mass = hold(reduce(jnp.add, law, 1) * power_of_two(exponent, law.dtype))
    return law / jnp.sum(mass, axis=0)[None, None], exponent


def _law_closed(levels: Levels) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """:func:`_law_points` in closed form, and where it is good."""
    law, exponent, good = cofactors.law(levels.local[-1], step_blocks(levels))
    law, exponent = _normalised(law, exponent)
    return (law, exponent, jnp.full(good.shape, Status.OK, jnp.uint8), _residual(levels, law, exponent)), good


def _law_block(levels: Levels) -> Any:
    return (mended(_law_closed, _law_points) if _in_closed_form(levels) else _law_points)(levels)


def _residual(levels: Levels, law: jax.Array, exponent: jax.Array) -> jax.Array:
    """The largest relative difference of inflow and outflow of a state that matters.

    Where two phases of a level differ by more than the range, the smaller one is flushed. That is harmless unless it
    feeds levels that carry mass: then some state receives more than it sends.
    """
    law, exponent = lax.stop_gradient((law, exponent))
    levels = jax.tree.map(lax.stop_gradient, levels)
    if law.shape[1] == 1:  # flow up = flow down holds by construction
        return jnp.zeros_like(law[0, 0])
    info = jnp.finfo(law.dtype)
    most = info.maxexp // 3

    def step(carry: Any, blocks: Any) -> tuple[Any, jax.Array]:
        inflow, leaving = carry
        below, here, shift, down, local, up = blocks
        back = scale_down(law_times(here, down), -shift)
        worst = _imbalance(below, local, inflow + back, leaving + exit_rates(up, local))
        return (scale_down(law_times(below, up), shift), exit_rates(down, local)), worst

    none = jnp.zeros_like(law[0])
    shifts = jnp.clip(exponent[1:] - exponent[:-1], -most, most)
    (inflow, leaving), worst = lax.scan(step, (none, none), (law[:-1], law[1:], shifts, *step_blocks(levels)))
    worst = jnp.concatenate([worst, _imbalance(law[-1], levels.local[-1], inflow, leaving)[None]])
    matters = lax.cummax(exponent, axis=0, reverse=True) > -info.maxexp
    return jnp.max(jnp.where(matters, worst, jnp.zeros_like(worst)), axis=0)


def _imbalance(law: jax.Array, local: jax.Array, inflow: jax.Array, leaving: jax.Array) -> jax.Array:
    """The same for one level, from what comes from other levels and the rates to them."""
    S = law.shape[0]
    diagonal = jnp.eye(S, dtype=bool).reshape(S, S, *[1] * (law.ndim - 1))
    local = jnp.where(diagonal, jnp.zeros_like(local), local)
    inflow = inflow + law_times(law, local)
    outflow = law * (leaving + reduce(jnp.add, local, 1))
    inflow, outflow = hold((inflow, outflow))
    larger = jnp.maximum(inflow, outflow)
    largest = hold(reduce(jnp.maximum, larger))
    seen = larger > largest[None] * 2.0 ** (-(jnp.finfo(law.dtype).maxexp // 3) / 2)
    difference = jnp.where(seen, jnp.abs(inflow - outflow), jnp.zeros_like(larger))
    return reduce(jnp.maximum, hold(difference / jnp.where(seen, larger, jnp.ones_like(larger))))


_expectation_batched = points_last(_expectation_fast, block_size, from_law)
_law_closed_batched = points_last(_law_closed, block_size, _law_points)
_law_batched = points_last(_law_points, block_size)


@jax.custom_jvp
def _expectation(levels: Levels, rewards: jax.Array) -> Any:
    return _expectation_batched(levels, rewards)


@_expectation.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return jax.jvp(expectation_points, primals, tangents)


@jax.custom_jvp
def _law(levels: Levels) -> Any:
    return (_law_closed_batched if _in_closed_form(levels) else _law_batched)(levels)


@_law.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return jax.jvp(_law_points, primals, tangents)


_POINTS: dict[Any, Any] = {_expectation: _expectation_block, _law: _law_block}


def _run(function: Any, levels: Levels, *arguments: jax.Array) -> Any:
    """Chooses the layout: points last up to LARGE phases, else points first."""
    points, S = levels.local.ndim - 3, levels.local.shape[1]
    if points and S > LARGE:
        form: Any = _POINTS[function]
        for _ in range(points):
            form = jax.vmap(form, in_axes=-1, out_axes=-1)
        return form(levels, *arguments)
    return _POINTS[function](levels, *arguments) if points or S > LARGE else function(levels, *arguments)
