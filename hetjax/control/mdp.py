"""Markov decision processes in continuous time, given by transition functions.

In state s action a costs c(s, a) per unit time and moves to t at rate r(s, a, t). With the *advantage*

    A(s, a) = c(s, a) + sum_t r(s, a, t) [h(t) - h(s)]

the average cost g and relative values h of the optimum solve min_a A(s, a) = g, the values v of discounting at rate b
solve min_a A(s, a) = b v(s). Two routes to them:

*Policy iteration* (Howard): values of one policy exactly, by subtraction-free elimination of its chain watched outside
a recurrent state (kappa and tau, expected cost and time until it is reached: h = kappa - g tau); then in each state
the action of least advantage, where it is less by more than rounding.

*Value iteration* on the uniformised chain: h <- h + (min_a A)/L with L above every exit rate (hence aperiodic), or
v <- v + (min_a A - b v)/(L + b). For any h and the optimal average cost from any state, and for any v,

    min_s min_a A <= g <= max_s min_a A,          v + min_s(q)/b <= optimum <= v + max_s(q)/b,   q = min_a A - b v

(Odoni 1969, MacQueen 1966, here in continuous time): the span of these bounds stops the iteration, and they are given.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.control.process import MDP, tidy
from hetjax.ctmc import panels
from hetjax.processes.checks import as_real, concrete, require
from hetjax.result import Solution, Status

Array = jax.Array
_Sweep = tuple[Array, Array, Array, Array]
_ROUNDING = 256  # an action is changed where it is better by so many units of rounding of the terms compared


class AverageOptimum(NamedTuple):
    """``policy`` (n,) int32, its average cost ``gain`` with bounds ``lower`` <= optimum <= ``upper``, and relative
    ``values`` (n,)."""

    policy: Array
    gain: Array
    lower: Array
    upper: Array
    values: Array


class DiscountedOptimum(NamedTuple):
    """``policy`` (n,) int32, ``values`` (n,) with bounds ``lower`` <= optimum <= ``upper``, (n,) each."""

    policy: Array
    values: Array
    lower: Array
    upper: Array


def _advantages(mdp: MDP, h: Array) -> Array:
    """(n, m); infinite where an action is not feasible."""
    found = mdp.costs + jnp.sum(mdp.rates * (h[mdp.targets] - h[:, None, None]), axis=2)
    return jnp.where(mdp.feasible, found, jnp.inf)


def _fastest(mdp: MDP) -> Array:
    """A rate above every exit rate."""
    return 1.05 * jnp.maximum(jnp.max(jnp.sum(mdp.rates, axis=2)), float(jnp.finfo(mdp.rates.dtype).tiny))


def _code(legal: Array, done: Array, finite: Array) -> Array:
    code = jnp.where(done, int(Status.OK), int(Status.NOT_CONVERGED))
    code = jnp.where(finite, code, int(Status.NONFINITE))
    return jnp.where(legal, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)


def _tolerance(tolerance: float | None, dtype: Any) -> float:
    if tolerance is None:
        return 1e-9 if jnp.finfo(dtype).bits == 64 else 1e-4
    require(tolerance > 0, "tolerance", tolerance, "positive")
    return float(tolerance)


def _still(mdp: MDP) -> MDP:
    return jax.tree.map(lax.stop_gradient, mdp)


def relative_value_iteration(mdp: MDP, tolerance: float | None = None, max_iterations: int = 100_000) -> Solution:
    """The least average cost by value iteration, until the bounds of the gain are closer than ``tolerance`` times it.

    ``Solution.value``: :class:`AverageOptimum`, ``gain`` the middle of the bounds; ``residual`` their distance.
    ``status``: not_converged at the cap (bounds still hold; also where the least cost depends on the first state),
    out_of_domain for illegal rates. Default tolerance 1e-9 (float32: 1e-4). O(n m k) a sweep; sweeps grow like the
    relaxation time, 10^5 near saturation. Not differentiable: :func:`policy_iteration` is.

    >>> from hetjax import control
    >>> repair = control.from_rates([[[0, 1.0], [0.5, 0]], [[0, 1.0], [2.0, 0]]], [[0.0, 0.0], [5.0, 6.0]])
    >>> best = control.relative_value_iteration(repair).value
    >>> best.policy.tolist(), round(float(best.gain), 6)
    ([0, 1], 2.0)
    """
    mdp, legal = tidy(_still(mdp))
    allowed, step = _tolerance(tolerance, mdp.costs.dtype), 1 / _fastest(mdp)

    def sweep(state: _Sweep) -> _Sweep:
        h, _, _, count = state
        q = jnp.min(_advantages(mdp, h), axis=1)
        new = h + q * step
        return new - new[0], jnp.min(q), jnp.max(q), count + 1

    def going(state: _Sweep) -> Array:
        _, lower, upper, count = state
        wide = upper - lower > allowed * jnp.maximum(jnp.abs(lower), jnp.abs(upper))
        return (count < max_iterations) & ((count == 0) | wide)

    zero = jnp.zeros((), mdp.costs.dtype)
    h, lower, upper, count = lax.while_loop(
        going, sweep, (jnp.zeros_like(mdp.costs[:, 0]), zero, zero, jnp.zeros((), jnp.int32)))
    done = ~going((h, lower, upper, jnp.minimum(count, max_iterations - 1)))
    policy = jnp.argmin(_advantages(mdp, h), axis=1).astype(jnp.int32)
    value = AverageOptimum(policy, (lower + upper) / 2, lower, upper, h)
    return Solution(value, _code(legal, done, jnp.isfinite(upper - lower)), upper - lower, count)


def value_iteration(mdp: MDP, discount_rate: Any, tolerance: float | None = None,
                    max_iterations: int = 100_000) -> Solution:
    """The least discounted costs by value iteration, until their bounds are closer than ``tolerance`` max |values|.

    ``discount_rate`` b > 0 per unit time: costs at time t count exp(-b t). ``Solution.value``:
    :class:`DiscountedOptimum`, ``values`` in the middle of the bounds. Else as :func:`relative_value_iteration`.

    >>> from hetjax import control
    >>> repair = control.from_rates([[[0, 1.0], [0.5, 0]], [[0, 1.0], [2.0, 0]]], [[0.0, 0.0], [5.0, 6.0]])
    >>> best = control.value_iteration(repair, 0.1).value
    >>> best.policy.tolist(), [round(float(v), 5) for v in best.values]
    ([0, 1], [19.35484, 21.29032])
    """
    mdp, legal = tidy(_still(mdp))
    b = lax.stop_gradient(_discount(mdp, discount_rate))
    legal = legal & _positive(b)
    b = jnp.where(_positive(b), b, jnp.ones_like(b))
    allowed, step = _tolerance(tolerance, mdp.costs.dtype), 1 / (_fastest(mdp) + b)

    def sweep(state: _Sweep) -> _Sweep:
        v, low, high, count = state
        v = jnp.where(count > 0, v + (low + high) / 2, v)  # to the middle of the bounds
        q = jnp.min(_advantages(mdp, v), axis=1) - b * v
        return v + q * step, jnp.min(q) * (1 / b - step), jnp.max(q) * (1 / b - step), count + 1

    def going(state: _Sweep) -> Array:
        v, low, high, count = state
        return (count < max_iterations) & ((count == 0) | (high - low > allowed * jnp.max(jnp.abs(v + low))))

    zero = jnp.zeros((), mdp.costs.dtype)
    v, low, high, count = lax.while_loop(
        going, sweep, (jnp.zeros_like(mdp.costs[:, 0]), zero, zero, jnp.zeros((), jnp.int32)))
    done = ~going((v, low, high, jnp.minimum(count, max_iterations - 1)))
    policy = jnp.argmin(_advantages(mdp, v), axis=1).astype(jnp.int32)
    value = DiscountedOptimum(policy, v + (low + high) / 2, v + low, v + high)
    return Solution(value, _code(legal, done, jnp.all(jnp.isfinite(v))), high - low, count)


def _discount(mdp: MDP, discount_rate: Any) -> Array:
    b = as_real(discount_rate, like=mdp.costs)
    require(b.shape == (), "discount_rate", f"array of shape {b.shape}", "one number; use vmap for many")
    if concrete(b):
        require(0 < float(b) < np.inf, "discount_rate", float(b), "positive and finite, per unit time")
    return b


def _positive(b: Array) -> Array:
    return (b > 0) & jnp.isfinite(b)


def _chain(mdp: MDP, policy: Array) -> tuple[Array, Array]:
    """The rates (n, n) and cost rates (n,) under a policy."""
    s = jnp.arange(policy.shape[0])
    targets, rates = mdp.targets[s, policy], mdp.rates[s, policy]
    n = policy.shape[0]
    return jnp.zeros((n, n), rates.dtype).at[s[:, None], targets].add(rates), mdp.costs[s, policy]


def _average(mdp: MDP, policy: Array) -> tuple[Array, Array, Array]:
    """Gain, relative values and whether there is one recurrent class."""
    W, c = _chain(mdp, policy)
    law, _ = panels.stationary_measure(lax.stop_gradient(W))
    home = jnp.argmax(law)  # a recurrent state
    inner = W.at[:, home].set(0).at[home].set(0)
    exits = W[:, home].at[home].set(1)
    right = jnp.stack([c, jnp.ones_like(c)], axis=1).at[home].set(0)
    x, trapped = panels.solve(inner, exits, right)
    kappa, tau = x[:, 0], x[:, 1]
    away = W[home].at[home].set(0)
    gain = (c[home] + away @ kappa) / (1 + away @ tau)
    return gain, kappa - gain * tau, ~jnp.any(trapped)


def _improve(mdp: MDP, policy: Array, h: Array) -> tuple[Array, Array]:
    """The better policy and min_a of the advantages (n,)."""
    found = _advantages(mdp, h)
    size = jnp.abs(mdp.costs) + jnp.sum(mdp.rates * (jnp.abs(h[mdp.targets]) + jnp.abs(h)[:, None, None]), axis=2)
    margin = (_ROUNDING * float(jnp.finfo(h.dtype).eps)) * jnp.max(size, axis=1)
    least = jnp.min(found, axis=1)
    now = found[jnp.arange(policy.shape[0]), policy]
    return jnp.where(least < now - margin, jnp.argmin(found, axis=1).astype(jnp.int32), policy), least


def _start(mdp: MDP, start: Any) -> Array | None:
    if start is None:
        return None
    first = jnp.asarray(start, jnp.int32)
    n, m = mdp.costs.shape
    require(first.shape == (n,), "start", f"array of shape {first.shape}", f"one action for each of {n} states")
    if concrete(first, mdp.feasible):
        actions = np.asarray(first)
        bad = (actions < 0) | (actions >= m)
        bad[~bad] = ~np.asarray(mdp.feasible)[np.flatnonzero(~bad), actions[~bad]]
        for s in np.flatnonzero(bad)[:1].tolist():
            raise ValueError(f"start[{s}] = {actions[s]}: must be a feasible action of state {s} in 0..{m - 1}")
    return first


def _howard(mdp: MDP, start: Array | None, max_iterations: int,
            evaluate: Callable[[Array], tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """(policy, whether it stopped changing, evaluations); ``evaluate`` gives values and whether they are good."""
    if start is None:  # what some sweeps of value iteration suggest
        step = 1 / _fastest(mdp)
        h = lax.fori_loop(0, 100, lambda _, h: h + jnp.min(_advantages(mdp, h), axis=1) * step,
                          jnp.zeros_like(mdp.costs[:, 0]))
        first = jnp.argmin(_advantages(mdp, h), axis=1).astype(jnp.int32)
    else:
        possible = jnp.argmax(mdp.feasible, axis=1).astype(jnp.int32)
        given = jnp.clip(start, 0, mdp.costs.shape[1] - 1)
        first = jnp.where(mdp.feasible[jnp.arange(start.size), given], given, possible)

    def step_once(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        policy, _, count = state
        h, good = evaluate(policy)
        better, _ = _improve(mdp, policy, h)
        better = jnp.where(good, better, policy)
        return better, jnp.any(better != policy), count + 1

    policy, moving, count = lax.while_loop(lambda s: s[1] & (s[2] < max_iterations), step_once,
                                           (first, jnp.ones((), bool), jnp.zeros((), jnp.int32)))
    return policy, ~moving, count


def policy_iteration(mdp: MDP, start: Any = None, max_iterations: int = 100) -> Solution:
    """The least average cost by Howard's policy iteration with exact evaluation.

    ``start``: (n,) actions to begin with; by default what 100 sweeps of value iteration suggest. ``Solution.value``:
    :class:`AverageOptimum`; ``upper`` is the gain of the policy, ``lower`` a bound for every policy; ``residual`` their
    distance, rounding where status is ok. Policies may have transient states but need a single recurrent class: where
    one with several is met the status is out_of_domain (discount, or start elsewhere). not_converged at the cap.

    O(n^3) a step. Differentiable in rates and costs: derivatives of ``gain`` and ``values`` at the policy found, which
    are those of the optimum where the policy does not change.

    >>> from hetjax import control
    >>> repair = control.from_rates([[[0, 1.0], [0.5, 0]], [[0, 1.0], [2.0, 0]]], [[0.0, 0.0], [5.0, 6.0]])
    >>> best = control.policy_iteration(repair).value
    >>> best.policy.tolist(), round(float(best.gain), 6)
    ([0, 1], 2.0)
    """
    return _policy_iteration(mdp, _start(mdp, start), max_iterations)


@partial(jax.jit, static_argnums=2)
def _policy_iteration(mdp: MDP, start: Array | None, max_iterations: int) -> Solution:
    mdp, legal = tidy(mdp)
    still = _still(mdp)

    def evaluate(policy: Array) -> tuple[Array, Array]:
        _, h, single = _average(still, policy)
        return h, single

    policy, done, count = _howard(still, start, max_iterations, evaluate)
    gain, h, single = _average(mdp, policy)
    _, least = _improve(still, policy, lax.stop_gradient(h))
    lower = jnp.minimum(jnp.min(least), lax.stop_gradient(gain))
    value = AverageOptimum(policy, gain, lower, lax.stop_gradient(gain), h)
    return Solution(value, _code(legal & single, done, jnp.isfinite(gain)), value.upper - lower, count)


def discounted_policy_iteration(mdp: MDP, discount_rate: Any, start: Any = None, max_iterations: int = 100) -> Solution:
    """The least discounted costs by Howard's policy iteration with exact evaluation; any chains.

    ``discount_rate`` b > 0 per unit time. ``Solution.value``: :class:`DiscountedOptimum`; ``upper`` are the values of
    the policy, ``lower`` bounds for every policy. Else as :func:`policy_iteration`.

    >>> from hetjax import control
    >>> repair = control.from_rates([[[0, 1.0], [0.5, 0]], [[0, 1.0], [2.0, 0]]], [[0.0, 0.0], [5.0, 6.0]])
    >>> best = control.discounted_policy_iteration(repair, 0.1).value
    >>> best.policy.tolist(), [round(float(v), 5) for v in best.values]
    ([0, 1], [19.35484, 21.29032])
    """
    return _discounted_policy_iteration(mdp, _discount(mdp, discount_rate), _start(mdp, start), max_iterations)


@partial(jax.jit, static_argnums=3)
def _discounted_policy_iteration(mdp: MDP, b: Array, start: Array | None, max_iterations: int) -> Solution:
    mdp, legal = tidy(mdp)
    legal = legal & _positive(b)
    b = jnp.where(_positive(b), b, jnp.ones_like(b))
    still = _still(mdp)

    def values(process: MDP, rate: Array, policy: Array) -> Array:
        W, c = _chain(process, policy)
        return panels.solve(W, jnp.broadcast_to(rate, c.shape), c[:, None])[0][:, 0]

    policy, done, count = _howard(still, start, max_iterations,
                                  lambda policy: (values(still, lax.stop_gradient(b), policy), jnp.ones((), bool)))
    v = values(mdp, b, policy)
    fixed = lax.stop_gradient(v)
    _, least = _improve(still, policy, fixed)
    drop = jnp.minimum(jnp.min(least - lax.stop_gradient(b) * fixed), 0) / lax.stop_gradient(b)
    value = DiscountedOptimum(policy, v, fixed + drop, fixed)
    return Solution(value, _code(legal, done, jnp.all(jnp.isfinite(v))), -drop, count)
