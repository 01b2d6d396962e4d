"""Derivatives of stationary rewards with respect to the parameters that a chain is built from.

Two ways, both with the factors of the elimination used again:

*elimination* (default): the tangents of every parameter ride through the elimination of :mod:`hetjax.ctmc.levels`. With
X_l = [G_l, N_l M_l] = N_l [D_l, M_l],

    dX_l = N_l ( [dD_l, dM_l] + dW_l X_l - diag(dD_l 1 + dW_l 1) X_l ),
    dW_{l-1} = dA_{l-1} + dU_{l-1} G_l + U_{l-1} dG_l,   dM_{l-1} = df_{l-1} + dU_{l-1} N_l M_l + U_{l-1} d(N_l M_l),

and level 0 is differentiated step by step. Cost grows with the number of parameters; as accurate as the values.

*adjoint*: with h the relative values of the chain, -Q h = f - E f, dE f = pi df + sum pi_i dq_ij (h_j - h_i)
(Schweitzer, J. Appl. Prob. 5, 1968). Only differences of h matter: v_l = N_l (M_l - E f m_l) + G_l u_{l-1},
u_l = v_l - v_l(0) give h_{l+1}(j) - h_l(i) = v_{l+1}(j) - u_l(i) and so on. One pass down, one up, whatever the number
of parameters. M_l - E f m_l cancels: good to 1e-13 for ordinary chains, possibly wrong in the first digits for nearly
decomposable ones; use the default there.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from hetjax.ctmc import elimination
from hetjax.ctmc.batching import points_last
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
from hetjax.ctmc.elimination import reduce, total
from hetjax.ctmc.generator import Levels
from hetjax.ctmc.levels import expectation_points, status_of
from hetjax.numerics.hold import hold
from hetjax.result import Solution, Status

Method = Literal["elimination", "adjoint"]


class Sensitivity(NamedTuple):
    """Rewards ``value`` (k,) or a scalar, and ``gradient``: the parameters' pytree, each leaf (k, ...) or (...)."""

    value: jax.Array
    gradient: Any


Chain = Callable[[Any], tuple[jax.Array | Levels, jax.Array]]


def sensitivity(chain: Chain, parameters: Any, method: Method = "elimination") -> Solution:
    """Stationary rewards of a chain and their derivatives in its parameters.

    Args:
      chain: ``chain(parameters) -> (Q, rewards)`` with Q dense (n, n) and rewards (n,) or (k, n), or ``(levels,
        rewards)`` with rewards (L, S) or (k, L, S).
      parameters: a pytree of floating scalars or arrays, p numbers in all.
      method: "elimination" (as accurate as the values; 4.5 times the value for p = 4, S = 3, growing with p) or
        "adjoint" (2.5 times the value there, whatever p; relative errors may reach 1 on nearly decomposable chains).

    Returns:
      ``Solution`` with a :class:`Sensitivity`; ``status`` as :func:`hetjax.ctmc.expectation_levels`, grad_nonfinite if
      only derivatives are not finite. For up to 24 phases (or dense states); larger chains are differentiated plainly,
      step by step. To differentiate inside a larger function, in either mode, use :func:`stationary_reward`.

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> def machine(p):
    ...     return ctmc.generator([(0, 1, p["fail"]), (1, 0, p["mend"])], 2), jnp.array([1.0, 0.0])
    >>> out = ctmc.sensitivity(machine, {"fail": 1.0, "mend": 3.0}).value
    >>> round(float(out.value), 6), round(float(out.gradient["fail"]), 6), round(float(out.gradient["mend"]), 6)
    (0.75, -0.1875, 0.0625)
    """
    if method not in ("elimination", "adjoint"):
        raise ValueError(f"method = {method!r}; give 'elimination' or 'adjoint'")
    flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, parameters))
    if not jnp.issubdtype(flat.dtype, jnp.floating):
        raise ValueError(f"parameters have dtype {flat.dtype}; give floating numbers")

    def build(vector: jax.Array) -> tuple[Levels, jax.Array]:
        found, rewards = chain(unravel(vector))
        if not isinstance(found, Levels):
            none = jnp.zeros((1, found.shape[0]), found.dtype)
            found = Levels(none, found[None], none)
            rewards = rewards[..., None, :]
        return prepare(found), (rewards if rewards.ndim == 3 else rewards[None]).astype(found.local.dtype)

    scalar = jax.eval_shape(lambda v: chain(unravel(v)), flat)
    single = scalar[1].ndim == (2 if isinstance(scalar[0], Levels) else 1)
    large = (scalar[0].local if isinstance(scalar[0], Levels) else scalar[0]).shape[-1] > LARGE
    if large:
        values, status = expectation_points(*build(flat))
        derivative = jax.jacfwd if method == "elimination" else jax.jacrev
        gradient = derivative(lambda v: expectation_points(*build(v))[0])(flat)
    elif method == "elimination":
        levels, rewards = build(flat)
        _, push = jax.linearize(lambda x: _numbers(*build(x)), flat)
        tangents = jax.vmap(push)(jnp.eye(flat.size, dtype=flat.dtype))
        values, gradient, status = _tangents_batched(levels, rewards, tangents)
    else:
        _, pull = jax.vjp(lambda x: _numbers(*build(x)), flat)
        values, cotangents, status = _adjoint_batched(*build(flat))
        gradient = jax.vmap(pull)(cotangents)[0]
    broken = (status == Status.OK) & ~jnp.all(jnp.isfinite(gradient))
    status = jnp.where(broken, jnp.uint8(Status.GRAD_NONFINITE), status)
    tree = jax.vmap(unravel)(gradient)
    value = Sensitivity(values[0], jax.tree.map(lambda x: x[0], tree)) if single else Sensitivity(values, tree)
    return Solution(value, status, jnp.zeros((), values.dtype), jnp.zeros((), jnp.int32))


def stationary_reward(chain: Chain, parameters: Any, method: Method = "elimination") -> jax.Array:
    """The rewards of :func:`sensitivity` as a function to differentiate, once, in forward or reverse mode.

    Either mode costs what ``sensitivity`` costs; ``chain`` must take everything it is differentiated in through
    ``parameters``. Values are NaN where the status of ``sensitivity`` is not ok.

    >>> import jax, jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> def up(fail):
    ...     return ctmc.generator([(0, 1, fail), (1, 0, 3.0)], 2), jnp.array([1.0, 0.0])
    >>> round(float(jax.grad(lambda fail: ctmc.stationary_reward(up, fail))(1.0)), 6)
    -0.1875
    """

    def visible(solution: Solution) -> jax.Array:
        good = (solution.status == Status.OK) | (solution.status == Status.GRAD_NONFINITE)
        return jnp.where(good, solution.value.value, jnp.nan)

    @jax.custom_jvp
    def reward(parameters: Any) -> jax.Array:
        return visible(sensitivity(chain, parameters, method))

    @reward.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[jax.Array, jax.Array]:
        solution = sensitivity(chain, primals[0], method)
        leaves = zip(jax.tree.leaves(solution.value.gradient), jax.tree.leaves(tangents[0]), strict=True)
        change = total([jnp.tensordot(g, t, axes=jnp.ndim(t)) for g, t in leaves])
        return visible(solution), change

    return reward(jax.tree.map(jnp.asarray, parameters))


def _numbers(levels: Levels, rewards: jax.Array) -> tuple[jax.Array, ...]:
    """Everything that has a derivative."""
    return levels.up, levels.local, levels.down, rewards


def _columns(levels: Levels, rewards: jax.Array) -> jax.Array:
    """(L, S, 1 + k, ...): the constant 1 and the rewards, 0 in phases that do not exist."""
    columns = jnp.concatenate([jnp.ones_like(rewards[:1]), rewards])
    if levels.mask is not None:
        columns = columns * levels.mask.astype(columns.dtype)[None]
    return jnp.moveaxis(columns, 0, 2)


def _last(rates: jax.Array, collected: jax.Array, levels: Levels) -> tuple[jax.Array, jax.Array]:
    """The rewards from the chain watched on level 0, and whether its law is unique."""
    ends, unique = measure(close(rates, levels.mask))
    sums = reduce(jnp.add, ends[:, None] * collected)
    return sums[1:] / sums[:1], unique


def _tangent_points(levels: Levels, rewards: jax.Array, tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Values (k, ...), gradient (k, p, ...) and status; points last, tangents (p, ...) first."""
    S, p = levels.local.shape[1], tangents[0].shape[0]
    points = levels.local.shape[3:]
    columns = _columns(levels, rewards)
    up_t, local_t, down_t = (jnp.moveaxis(t, 0, 1) for t in tangents[:3])  # (L, p, S, ...)
    reward_t = jnp.moveaxis(tangents[3], 1, 3)  # (p, L, S, k, ...)
    column_t = jnp.moveaxis(jnp.concatenate([jnp.zeros_like(reward_t[:, :, :, :1]), reward_t], axis=3), 0, 1)

    def step(carry: Any, blocks: Any) -> tuple[Any, None]:
        rates, collected, rates_t, collected_t, exponent, zeros, legal = carry
        (down, local, up, column), (down_t, local_t, up_t, column_t) = blocks
        right = jnp.concatenate([full_block(down, rates), collected], axis=1)
        rates, exits, right, rates_t = hold((rates, exit_rates(down, rates), right, rates_t))
        x, factors = hold(elimination.solve_and_factor(rates, exits, right))
        diagonal = jnp.stack([factors[i, i] for i in range(S)])
        zeros = zeros + reduce(jnp.add, (diagonal == 0).astype(jnp.int32))
        legal = legal & legal_rates(local, down, up)
        sources = [jnp.concatenate([full_block(down_t[a], rates), collected_t[a]], axis=1) for a in range(p)]
        right_t = jnp.stack(sources, axis=1)
        leave_t = jnp.stack([exit_rates(down_t[a], rates) for a in range(p)], axis=1)  # (S, p, ...)
        sides = []
        for i in range(S):
            rows = [rates_t[:, i, j][:, None] * (x[j] - x[i])[None] for j in range(S) if j != i]
            sides.append(total([right_t[i] - leave_t[i][:, None] * x[i][None], *rows]))
        side = hold(jnp.stack(sides))  # (S, p, m, ...)
        x_t = elimination.apply_right(factors, side.reshape(S, p * x.shape[1], *points)).reshape(side.shape)
        x_t = hold(x_t)
        above = hold(block_times(up, x))
        above_t = jnp.stack([block_times(up_t[a], x) + block_times(up, x_t[:, a]) for a in range(p)])
        raw = column * power_of_two(-exponent, x.dtype)[None, None] + above[:, S:]
        raw_t = column_t * power_of_two(-exponent, x.dtype)[None, None, None] + above_t[:, :, S:]
        shift = jnp.maximum(binary_exponent(reduce(jnp.maximum, raw[:, 0])), 0)
        factor = power_of_two(-shift, x.dtype)
        collected, collected_t = raw * factor[None, None], raw_t * factor[None, None, None]
        rates, rates_t = local + above[:, :S], local_t + above_t[:, :, :S]
        return (rates, collected, rates_t, collected_t, exponent + shift, zeros, legal), None

    zero = jnp.zeros(points, jnp.int32)
    start = (levels.local[-1], columns[-1], local_t[-1], column_t[-1], zero, zero, legal_rates(levels.local[-1]))
    steps = ((*step_blocks(levels), columns[:-1]), (down_t[1:], local_t[:-1], up_t[:-1], column_t[:-1]))
    (rates, collected, rates_t, collected_t, _, zeros, legal), _ = lax.scan(step, start, steps, reverse=True)
    values, unique = _last(rates, collected, levels)
    _, push = jax.linearize(lambda r, c: _last(r, c, levels)[0], rates, collected)
    gradient = jnp.stack([push(rates_t[a], collected_t[a]) for a in range(p)], axis=1)
    return values, gradient, _judge(values, unique, zeros, legal, levels)


def _judge(values: jax.Array, unique: jax.Array, zeros: jax.Array, legal: jax.Array, levels: Levels) -> jax.Array:
    legal = legal & unique & (zeros <= missing_phases(levels.mask))
    return status_of(legal, jnp.all(jnp.isfinite(values), axis=0))


def _adjoint_points(levels: Levels, rewards: jax.Array) -> tuple[Any, ...]:
    """Values (k, ...), derivatives (k, ...) in (up, local, down, rewards), and status; points last."""
    S = levels.local.shape[1]
    points = levels.local.shape[3:]
    columns = _columns(levels, rewards)
    k = rewards.shape[0]

    def descend(carry: Any, blocks: Any) -> tuple[Any, Any]:
        rates, collected, exponent, zeros, legal = carry
        down, local, up, column = blocks
        right = jnp.concatenate([full_block(down, rates), collected], axis=1)
        rates, exits, right = hold((rates, exit_rates(down, rates), right))
        x, factors = hold(elimination.solve_and_factor(rates, exits, right))
        zeros = zeros + total([(factors[i, i] == 0).astype(jnp.int32) for i in range(S)])
        legal = legal & legal_rates(local, down, up)
        above = hold(block_times(up, x))
        raw = hold(column * power_of_two(-exponent, x.dtype)[None, None] + above[:, S:])
        shift = jnp.maximum(binary_exponent(reduce(jnp.maximum, raw[:, 0])), 0)
        carry = (local + above[:, :S], raw * power_of_two(-shift, x.dtype)[None, None], exponent + shift, zeros, legal)
        return carry, (x, factors, exponent)

    zero = jnp.zeros(points, jnp.int32)
    start = (levels.local[-1], columns[-1], zero, zero, legal_rates(levels.local[-1]))
    (rates, collected, exponent, zeros, legal), (x, factors, exponents) = lax.scan(
        descend, start, (*step_blocks(levels), columns[:-1]), reverse=True)
    rates = close(rates, levels.mask)
    ends, unique = measure(rates)
    sums = reduce(jnp.add, ends[:, None] * collected)
    values = sums[1:] / sums[:1]
    ends = ends / sums[:1]  # pi_0 2^exponent

    def centred(m: jax.Array) -> jax.Array:
        return m[:, 1:] - values[None] * m[:, :1]

    relative = elimination.apply_right(elimination.factor(rates), centred(collected))  # 2^-exponent h_0
    relative = relative - relative[:1]

    def outer(law: jax.Array, block: jax.Array, ahead: jax.Array, here: jax.Array, scale: jax.Array) -> jax.Array:
        """law_i (ahead_j - here_i), (k, S, S, ...), or its diagonal."""
        weight = law * scale[None]
        if block.ndim == law.ndim:
            return jnp.moveaxis(weight[:, None] * (ahead - here), 1, 0)
        return jnp.moveaxis(weight[:, None, None] * (ahead[None] - here[:, None]), 2, 0)

    def climb(carry: Any, blocks: Any) -> tuple[Any, Any]:
        law, power, relative, below_exponent = carry  # pi = law 2^power; h = relative 2^below_exponent
        up, local, down, x, factors, exponent = blocks
        gap = below_exponent - exponent
        big = 1 / power_of_two(-gap, x.dtype)
        old, side = hold((relative * big[None, None], centred(x[:, S:])))
        ahead = hold(side + block_times(x[:, :S], old))
        scale = hold(power_of_two(jnp.minimum(power + exponent, 0), x.dtype))
        up_d = outer(law, up, ahead, old, scale)
        left = law_times(law, up)
        here, _, _ = elimination.apply_left(factors, left)
        shift = binary_exponent(reduce(jnp.maximum, here))
        here, power = hold((scale_down(here, shift), power + shift))
        scale = power_of_two(jnp.minimum(power + exponent, 0), x.dtype)
        down_d = outer(here, down, old, ahead, scale)
        local_d = outer(here, local, ahead, ahead, scale)
        law_of_level = here * power_of_two(jnp.minimum(power, 0), x.dtype)[None]
        return (here, power, ahead - ahead[:1], exponent), (up_d, local_d, down_d, law_of_level)

    shift = binary_exponent(reduce(jnp.maximum, ends))
    ends = scale_down(ends, shift)
    power = shift - exponent
    local_0 = outer(ends, levels.local[0], relative, relative, power_of_two(jnp.minimum(shift, 0), rates.dtype))
    law_0 = ends * power_of_two(jnp.minimum(power, 0), rates.dtype)[None]
    steps = (levels.up[:-1], levels.local[1:], levels.down[1:], x, factors, exponents)
    _, (up_d, local_d, down_d, law) = lax.scan(climb, (ends, power, relative, exponent), steps)
    none = jnp.zeros_like(levels.up[:1])[:, None] + jnp.zeros((1, k, *[1] * (levels.up.ndim - 1)), rates.dtype)
    law = jnp.concatenate([law_0[None], law])
    kinds = jnp.eye(k, dtype=rates.dtype).reshape(k, k, 1, 1, *[1] * len(points)) * law[None, None]
    in_blocks = [(up_d, none), (local_0[None], local_d), (none, down_d)]
    derivatives = [jnp.moveaxis(jnp.concatenate(parts), 1, 0) for parts in in_blocks]
    return values, (*derivatives, kinds), _judge(values, unique, zeros, legal, levels)


_tangents_batched = points_last(_tangent_points, block_size)
_adjoint_batched = points_last(_adjoint_points, block_size)
