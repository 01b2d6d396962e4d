"""Bernoulli routing: each customer goes to node i with probability p_i, whatever happened before.

Node i then is a threshold queue with Poisson arrivals at rate p_i lambda, whose mean number N_i is known in closed form
(:mod:`hetjax.models.threshold_queue.poisson`). For fixed thresholds the best split has equal marginal costs,

    N_i'(p_i lambda) = nu where p_i > 0,      N_i'(0) >= nu where p_i = 0,

and sum p_i = 1 fixes nu (:mod:`hetjax.models.parallel_queues.equal_margins`): exact as long as N_i' rises. It does for
thresholds near the best ones.
Under far too long thresholds N_i has an inflection (at mu1 < rate the queue fills up to the threshold, whatever the
rate): the status says so. With the best thresholds N_i = min over T, whose slope falls at each change of T; therefore
thresholds stay fixed while the split is found and then follow it, from several starts.

Single servers have the classical square-root rule (Bell and Stidham, Management Science 29, 1983; Little's law and a
Lagrange multiplier): over the set of fastest nodes that get any customers at all,

    lambda_i = mu_i - sqrt(mu_i) (sum mu - lambda)/sum sqrt(mu),

slow nodes being left out until this is non-negative for all that remain.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.parallel_queues.equal_margins import equal_margins
from hetjax.models.parallel_queues.open_loop import poisson_cost
from hetjax.models.parallel_queues.params import Params, checked_thresholds, harmless, status
from hetjax.result import Solution, Status

Array = jax.Array
_FINE, _ROUGH = 60, 5  # evaluations at most: until the margins are equal, or to choose thresholds
_TURNS = 3  # of thresholds for the split and the split for them
_SCAN, _STARTS = 17, 3  # splits of two nodes that are looked at, and that are improved
_LARGEST = 1_000_000


class Split(NamedTuple):
    """``probabilities`` (n,), ``thresholds`` (n,), ``mean_number`` of all nodes, ``marginal_cost`` d mean/d rate.

    ``status``: ok, unstable, out_of_domain; not_converged where marginal costs are not equal in the end, as they fall
    somewhere (fixed thresholds far from the best ones).
    """

    probabilities: Array
    thresholds: Array
    mean_number: Array
    marginal_cost: Array
    status: Array


def node_numbers(params: Params, probabilities: Array, thresholds: Array) -> Array:
    """Mean numbers (n,) of the nodes under a split (n,); nodes without customers are empty. inf where unstable.

    Differentiable in all arguments where stable.

    >>> import jax.numpy as jnp
    >>> from hetjax import parallel_queues as pq
    >>> p = pq.Params(2.0, [2.0, 1.0], [0.5, 0.2])
    >>> numbers = pq.node_numbers(p, jnp.asarray([0.7644646, 0.2355354]), jnp.asarray([2.0, 3.0]))
    >>> round(float(numbers.sum()), 7)
    2.7797159
    """
    return _numbers(params.arrival_rate * probabilities, params.mu1, params.mu2, thresholds)


@partial(jax.jit, static_argnums=4)
def _numbers(rate: Array, mu1: Array, mu2: Array, thresholds: Array, whole: bool = False) -> Array:
    """Differentiable also at rate 0, where N = rate/mu1 + ..: the fast server serves alone. ``whole``: so are the
    thresholds."""
    idle = rate <= 0
    number, _ = poisson_cost(jnp.where(idle, mu1 / 2, rate), mu1, mu2, thresholds, whole)
    return jnp.where(idle, rate / mu1, number)


@jax.jit
def square_root_rule(arrival_rate: Array, mu: Array) -> Array:
    """The best split (n,) of a Poisson stream over single servers of rates ``mu`` (n,), in closed form; O(n log n).

    >>> import jax.numpy as jnp
    >>> split = square_root_rule(jnp.asarray(1.0), jnp.asarray([2.0, 1.0, 0.1]))
    >>> [round(float(x), 6) for x in split]
    [0.828427, 0.171573, 0.0]
    """
    order = jnp.argsort(-mu)
    rates, roots = mu[order], jnp.sqrt(mu[order])
    spare = jnp.cumsum(rates) - arrival_rate
    ratio = spare / jnp.cumsum(roots)
    used = (spare > 0) & (roots > ratio)  # the slowest of the first j nodes still gets customers; or more are needed
    need = jnp.where(used | (spare <= 0), jnp.arange(1, mu.size + 1), 0)
    count = jnp.max(need)
    share = jnp.where(jnp.arange(mu.size) < count, rates - roots * ratio[count - 1], jnp.zeros_like(rates))
    return jnp.zeros_like(mu).at[order].set(share / arrival_rate)


def _shares(weights: Array) -> Array:
    return weights / jnp.sum(weights)


def _margins(params: Params, thresholds: Array, rates: Array) -> Array:
    """N_i' (n,)."""
    _, slope = jax.jvp(lambda x: _numbers(x, params.mu1, params.mu2, thresholds), (rates,), (jnp.ones_like(rates),))
    return slope


def best_split(params: Params, thresholds: Any = None) -> Split:
    """The split that minimises the mean number, for given ``thresholds`` (n,) or with the best ones.

    Exact by equal marginal costs (for single servers: :func:`square_root_rule`). Without thresholds the split
    and the best thresholds for it take turns, from the best three of the split in proportion to capacity, the
    square-root rule and, for two nodes, 17 equally spaced splits; the best end is taken. One point (vmap for many); not
    differentiable. About 35 us a point in a batch, 6 us for given thresholds.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.best_split(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]))
    >>> round(float(found.probabilities[0]), 7), found.thresholds.tolist(), round(float(found.mean_number), 7)
    (0.7644646, [2.0, 3.0], 2.7797159)
    """
    given = None
    if thresholds is not None:
        given, _ = checked_thresholds(thresholds, params, ((params.nodes,),), _LARGEST)
    return _best_split(params, given)


@jax.jit
def _best_split(params: Params, given: Array | None) -> Split:
    params = jax.tree.map(lax.stop_gradient, params)
    code = status(params)
    params = harmless(params, code)
    rate, mu1, n, capacities = params.arrival_rate, params.mu1, params.nodes, params.capacities
    bits = jnp.finfo(mu1.dtype).bits
    spare = capacities * ((jnp.sum(capacities) - rate) / jnp.sum(capacities))

    def margins(split: Array, pair: Array, steps: int) -> Array:
        """The best split for the thresholds ``pair``, from another one that may overload nodes."""
        start = jnp.minimum(rate * split, capacities - spare / 2)
        start = start + (rate - jnp.sum(start)) * _shares(capacities - start)
        rates = equal_margins(lambda x: _numbers(x, mu1, params.mu2, pair, given is None), rate, capacities, start,
                              steps)
        return _shares(jnp.where(rates > 64 * float(jnp.finfo(rates.dtype).eps) * rate, rates, 0))

    if given is not None:
        bad = jnp.any(~(given >= 1))
        code = jnp.where(bad, int(Status.OUT_OF_DOMAIN), code).astype(jnp.uint8)
        pair = jnp.where(bad, jnp.ones_like(given), given)
        split = margins(_shares(capacities), pair, _FINE)
    else:
        splits = jnp.stack([_shares(capacities), square_root_rule(rate, capacities)])
        if n == 2:
            p = jnp.linspace(0, 1, _SCAN, dtype=mu1.dtype)
            splits = jnp.concatenate([splits, jnp.stack([p, 1 - p], axis=1)])
        splits = splits[lax.top_k(-_with_best_thresholds(params, splits)[0], min(_STARTS, len(splits)))[1]]
        _, pairs = _with_best_thresholds(params, splits)
        splits = jax.vmap(lambda s, t: margins(s, t, _ROUGH))(splits, pairs)

        def finish(count: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            _, pair = _with_best_thresholds(params, state[0])
            return margins(state[0], pair, _FINE), pair

        best = jnp.argmin(_with_best_thresholds(params, splits)[0])
        split, pair = lax.fori_loop(0, _TURNS, finish, (splits[best], pairs[best]))
    value = jnp.sum(node_numbers(params, split, pair))
    margin = _margins(params, pair, rate * split)
    used = (split * rate > 1e-6 * jnp.max(mu1)) | (split == jnp.max(split))
    nu = jnp.sum(jnp.where(used, margin * split, jnp.zeros_like(margin))) / jnp.sum(jnp.where(used, split, 0))
    spread = jnp.max(jnp.where(used, jnp.abs(margin / nu - 1), jnp.zeros_like(margin)))
    rough = (spread > (1e-6 if bits == 64 else 1e-2)) & (code == int(Status.OK))
    code = jnp.where(rough, int(Status.NOT_CONVERGED), code).astype(jnp.uint8)
    known = (code == int(Status.OK)) | rough
    shown = [jnp.where(known, x, jnp.nan) for x in (split, pair, value, nu)]
    return Split(shown[0], shown[1], shown[2], shown[3], code)


def _with_best_thresholds(params: Params, splits: Array) -> tuple[Array, Array]:
    """Costs (..) of ``splits`` (.., n) with the best thresholds (.., n), found exactly; 1 without a slow server; that
    for little traffic where nobody comes."""
    mu1, mu2 = (jnp.broadcast_to(x, splits.shape) for x in (params.mu1, params.mu2))
    costs, thresholds = poisson_cost(jnp.maximum(params.arrival_rate * splits, 1e-6 * mu1), mu1, mu2)
    return jnp.sum(costs, axis=-1), thresholds


def best_split_by_gradient(params: Params, thresholds: Any, steps: int = 60) -> Solution:
    """The same split for given thresholds by gradients (optax, L-BFGS): the second route.

    The rates are slack-weighted: with capacities C_i and slack C - lambda > 0, rate_i = C_i - (C - lambda) w_i, w the
    softmax of free parameters, is stable for any w; a rate below 0 counts as 0 and costs, so that slow nodes are left
    out. ``value``: (n,) probabilities; ``residual``: the last change of the mean number, relative. Loses half of the
    digits of the exact split, none of its mean number.

    >>> from hetjax import parallel_queues as pq
    >>> found = pq.best_split_by_gradient(pq.Params(2.0, [2.0, 1.0], [0.5, 0.2]), [2.0, 3.0])
    >>> round(float(found.value[0]), 4)
    0.7645
    """
    given, _ = checked_thresholds(thresholds, params, ((params.nodes,),), _LARGEST)
    return _by_gradient(params, given, steps)


@partial(jax.jit, static_argnums=2)
def _by_gradient(params: Params, given: Array, steps: int) -> Solution:
    import optax

    params = jax.tree.map(lax.stop_gradient, params)
    code = status(params)
    params = harmless(params, code)
    capacity = params.capacities
    slack = jnp.sum(capacity) - params.arrival_rate

    def split(free: Array) -> tuple[Array, Array]:
        rates = capacity - slack * jax.nn.softmax(free)
        lacking = jnp.sum(jnp.maximum(-rates, 0))
        rates = jnp.maximum(rates, 0)
        return rates * (params.arrival_rate / (params.arrival_rate + lacking)), lacking

    def cost(free: Array) -> Array:
        rates, lacking = split(free)
        return jnp.sum(_numbers(rates, params.mu1, params.mu2, given)) + lacking * (1e-3 / jnp.max(params.mu1))

    optimizer = optax.lbfgs()
    slope = optax.value_and_grad_from_state(cost)

    def step(state: Any, _: None) -> tuple[Any, Array]:
        free, memory = state
        value, gradient = slope(free, state=memory)
        updates, memory = optimizer.update(gradient, memory, free, value=value, grad=gradient, value_fn=cost)
        return (optax.apply_updates(free, updates), memory), value

    start = jnp.log(capacity / jnp.sum(capacity))
    with jax.numpy_dtype_promotion("standard"):  # optax mixes integer counters and reals
        (free, _), values = lax.scan(step, (start, optimizer.init(start)), None, length=steps)
    rates, _ = split(free)
    change = jnp.abs(values[-1] / values[-2] - 1)
    done = change < 1e-6  # a share that goes to 0 takes for ever, but the mean number does not change any more
    code = jnp.where(done | (code != int(Status.OK)), code, int(Status.NOT_CONVERGED)).astype(jnp.uint8)
    return Solution(rates / params.arrival_rate, code, change, steps)
