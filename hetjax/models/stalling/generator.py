"""The stalling queue as a Markov chain with levels, and its metrics summed over the stationary law: a second route.

Level l = fast servers busy + customers stalled, phase j = slow servers busy, L = m + K the full buffer; the waiting
line adds the levels L + 1 .. L + M, which have phase n only. Rates, lambda = q m mu1, mu2 = mu1/r:

    (l, j) -> (l + 1, j)      lambda              l < L; from level L on in phase n only, up to level L + M
    (L, j) -> (L, j + 1)      lambda              j < n
    (l, j) -> (l - 1, j)      min(l, m) mu1       l <= L
    (l, n) -> (l - 1, n)      m mu1 + n mu2       l > L
    (l, j) -> (l, j - 1)      j mu2               l <= L

This is the system in words; nothing of the closed form enters. Its cost grows with K and M, the closed form's does
not.
"""

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import Levels
from hetjax.models.stalling.metrics import Metrics
from hetjax.models.stalling.paper_objects import buffer_length, waiting_places
from hetjax.models.stalling.params import Params

LARGEST = 2**24  # (levels)(phases)^2, the numbers in one block diagonal


def generator(params: Params) -> Levels:
    """The chain of all (m + K + 1)(n + 1) + M states for :mod:`hetjax.ctmc`: m + K + M + 1 levels, n + 1 phases.

    Rates per unit time (that of mu1). ``params`` holds one point (vmap for many); q, r and mu1 may be traced, K and M
    must be whole numbers known when tracing, as they give shapes. ValueError otherwise, for arrays of points, and for
    more than 2^24 numbers in a block diagonal (take the closed form there).

    >>> from hetjax import ctmc, stalling
    >>> levels = stalling.generator(stalling.Params(q=1.5, r=2.0, K=0, M=25, m=1, n=1))
    >>> law = ctmc.stationary_levels(levels).value
    >>> law.shape, round(float(law[-1, -1]), 6)
    ((27, 2), 0.036364)
    """
    if jnp.ndim(params.q) or jnp.ndim(params.r) or jnp.ndim(params.mu1):
        raise ValueError(f"params has leaves of shape {jnp.broadcast_shapes(params.q.shape, params.r.shape)}; give one"
                         " point, with vmap for many")
    K, M, m, n = buffer_length(params), waiting_places(params), params.m, params.n
    full, size = m + K, (m + K + M + 1) * (n + 1) ** 2
    if size > LARGEST:
        raise ValueError(f"K = {K}, M = {M}, m = {m}, n = {n} make a chain of (levels)(phases)^2 = {size:.3g} numbers,"
                         f" more than {LARGEST}; give smaller ones, or use the closed form")
    real = params.q.dtype
    l, j = np.arange(full + M + 1), np.arange(n + 1)
    below = np.expand_dims(l <= full, 1)
    exists = below | np.expand_dims(j == n, 0)
    climbs = np.expand_dims(l < full, 1) | (np.expand_dims(j == n, 0) & np.expand_dims(l < full + M, 1))
    fast = np.expand_dims(np.minimum(l, m), 1) * exists  # busy servers whose completion takes the level down
    slow = n * (exists & ~below)
    fills = (np.expand_dims(l == full, (1, 2))) & (np.eye(n + 1, k=1) > 0)
    frees = np.expand_dims(below, 2) * np.diag(j[1:], -1)

    def times(rate: jax.Array, pattern: np.ndarray) -> jax.Array:
        return jnp.expand_dims(rate, tuple(range(pattern.ndim))) * jnp.asarray(pattern, real)

    return Levels(up=times(params.arrival_rate, climbs),
                  local=times(params.arrival_rate, fills) + times(params.mu2, frees),
                  down=times(params.mu1, fast) + times(params.mu2, slow),
                  mask=jnp.asarray(exists))


def metrics_of_law(params: Params, law: jax.Array) -> Metrics:
    """All metrics by their definitions, as sums over ``law``, the stationary law (levels, phases) of
    :func:`generator`.

    Sums and quotients of non-negative numbers only: they are as accurate as the law is. The response times follow
    from Little's law; the share m mu1/(m mu1 + n mu2) of those who leave the waiting line goes to fast servers.

    >>> from hetjax import ctmc, stalling
    >>> p = stalling.Params(q=1.5, r=2.0, K=0, M=25, m=1, n=1)
    >>> found = stalling.metrics_of_law(p, ctmc.stationary_levels(stalling.generator(p)).value)
    >>> round(float(found.mean_number), 4)
    13.7455
    """
    K, m, n = buffer_length(params), params.m, params.n
    full, l, j = m + K, np.arange(law.shape[0]), np.arange(n + 1)
    level, phase = law.sum(1), law.sum(0)

    def mean(weights: jax.Array, values: np.ndarray) -> jax.Array:
        return (weights * jnp.asarray(values, law.dtype)).sum()

    fast, slow = mean(level, np.minimum(l, m)), mean(phase, j)
    stalled, waiting = mean(level, np.clip(l - m, 0, K)), mean(level, np.maximum(l - full, 0))
    number = fast + slow + stalled + waiting
    served_fast, served_slow = fast * params.mu1, slow * params.mu2
    served = served_fast + served_slow
    rate_fast, rate_slow = m * params.mu1, n * params.mu2
    waiting_fast = waiting * (rate_fast / (rate_fast + rate_slow))
    waiting_slow = waiting * (rate_slow / (rate_fast + rate_slow))
    return Metrics(
        mean_number=number, mean_fast=fast, mean_slow=slow, mean_stalled=stalled, mean_waiting=waiting,
        mean_stuck=mean(law[0], j), p_full=law[full, n], p_empty=law[0, 0], p_slow_only=law[0, n],
        p_stuck=law[0, 1:].sum(), p_slow=phase[1:].sum(), p_fast=level[1:].sum(), p_stalling=level[m + 1:].sum(),
        p_wait=level[full + 1:].sum(), p_loss=law[-1, n], throughput=served, utilization_fast=fast / m,
        utilization_slow=slow / max(n, 1), mean_response_time=number / served,
        mean_response_time_fast=(fast + stalled + waiting_fast) / served_fast,
        mean_response_time_slow=(slow + waiting_slow) / served_slow if n else jnp.full_like(slow, jnp.nan))
