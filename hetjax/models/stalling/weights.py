"""The un-normalised probabilities of one point, scaled so that nothing overflows and the heaviest states have weight
O(1).

With level m at weight 1 the levels below hold 1/p1 together (p1 = (mq)^m/m! / sum_{l<m} (mq)^l/l!), level m+k holds
q^k, phase n of the full buffer q^K/h_0, and s customers in the waiting line q^K rho^s/h_0. All of it is multiplied by
p1 and then scaled

    by q^-K where q > 1, by h_0 rho^-M where that is below 1 and rho > 1,

in such a way that the states which carry the probability have weights without steep derivatives: their quotients then
keep their digits under differentiation.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.stalling.full_level import FullBuffer, full_buffer
from hetjax.models.stalling.load import log_rho
from hetjax.numerics.counting import Count
from hetjax.numerics.decay import decay_and_rest
from hetjax.numerics.erlang import TruncatedPoisson, truncated_poisson
from hetjax.numerics.geometric import GeometricSums, finite_terms, geometric_sums
from hetjax.numerics.hold import hold
from hetjax.numerics.logarithm import log


class Geometric(NamedTuple):
    """A geometric sequence 1, ratio, .., ratio^terms turned to fall: ``log`` = -|ln ratio|, ``ratio`` = e^log,
    ``decay`` = ratio^terms.

    ``rising``: it was turned over, its last element is the 1.
    """

    log: jax.Array
    ratio: jax.Array
    decay: jax.Array
    terms: jax.Array
    sums: GeometricSums
    rising: jax.Array


class Weights(NamedTuple):
    """The scaled weights of one point.

    ``below``: all levels under m. ``level``: the heaviest of the levels m..m+K. ``top``: level m+K. ``line``: the
    heaviest of the states with all servers busy and the buffer full. ``line_mass``: those of them with someone in the
    waiting line.
    ``total``: everything. ``lead``: ln of the heaviest level m..m+K over ``line``. ``saturated``: ``lead`` < 0.
    ``buffer``, ``waiting``: the geometric sequences of the levels m..m+K and of the waiting line.
    ``m``, ``n``, ``K``, ``M`` as numbers of the working dtype.
    """

    below: jax.Array
    level: jax.Array
    top: jax.Array
    line: jax.Array
    line_mass: jax.Array
    total: jax.Array
    lead: jax.Array
    saturated: jax.Array
    poisson: TruncatedPoisson
    full: FullBuffer
    buffer: Geometric
    waiting: Geometric
    m: Any
    n: Any
    K: jax.Array
    M: jax.Array

    def hold(self, tangents_too: bool = True) -> "Weights":
        """The same, so marked that a compiler computes them once, however many results are formed from them.

        ``tangents_too``: also their tangents, which then cannot be transposed where some are known zeros.
        """
        numbers = {name: x for name, x in self._asdict().items() if name not in ("m", "n")}
        return self._replace(**(jax.lax.optimization_barrier if tangents_too else hold)(numbers))

    @property
    def line_sum(self) -> jax.Array:
        """sum_{s=1}^M rho^s, over rho^M where rho > 1."""
        return jnp.where(self.waiting.rising, self.waiting.sums.plain, self.waiting.ratio * self.waiting.sums.plain)

    @property
    def levels(self) -> jax.Array:
        """The weight of the levels m..m+K, waiting line left out."""
        return self.level * (1 + self.buffer.ratio * self.buffer.sums.plain)

    def number_parts(self) -> tuple[jax.Array, jax.Array]:
        """The mean number as a base, where most of the probability sits, and what it deviates from it (at n = 0 with
        M merged into K); so its derivatives keep their digits when K or M are large."""
        buffer, waiting = self.buffer.sums, self.waiting.sums
        zero = jnp.zeros_like(self.K)
        plain, room, over = self.line_sum, self.m + self.K, self.buffer.rising
        base = jnp.where(over, jnp.where(self.saturated, room + self.n + self.M, room), zero)
        count = 1 + self.buffer.ratio * buffer.plain
        levels = jnp.where(over, -buffer.ascending - jnp.where(self.saturated, self.n + self.M, zero) * count,
                           self.m * count + buffer.ascending)
        climbing = jnp.where(self.waiting.rising, self.M * plain - waiting.lagging, waiting.ascending)  # sum s rho^s
        ahead = self.n + jnp.where(over, zero, room)
        line = jnp.where(self.saturated, -waiting.lagging, climbing + ahead * plain)
        return base, (self.below * (self.poisson.mean - base) + self.level * levels + self.top * self.full.slow
                      + self.line * line) / self.total


def fold(log_ratio: jax.Array, ratio: jax.Array, terms: jax.Array, rising: jax.Array,
         inverse: jax.Array | None = None, shared: bool = False) -> Geometric:
    """The sequence turned over where ``rising`` (ratio > 1); ``inverse``: 1/ratio, where it is at hand; ``shared`` as
    in :func:`hetjax.numerics.geometric.geometric_sums`."""
    x = log_ratio * jnp.where(rising, -1, 1)
    inner = jnp.where(rising, 1 / ratio if inverse is None else inverse, ratio)
    if shared:
        x = jax.lax.optimization_barrier(x)
    decay, _ = decay_and_rest(-x * terms, shared)
    return Geometric(x, inner, decay, terms, geometric_sums(x, inner, terms, decay, shared), rising)


def weigh(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, m: Count, n: Count, shared: bool = False,
          full: FullBuffer | None = None) -> Weights:
    """The weights at one point; O(m n), independent of K and M, which may be real or (q < 1, rho < 1) infinite.

    ``shared``: many results will be formed from them; what they have in common is then computed once, and they should
    be held (:meth:`Weights.hold`).
    ``full``: what :func:`full_buffer` would give, where it is at hand.
    """
    K, M = finite_terms(K), finite_terms(M)
    m_real, n_real = m.real(q), n.real(q)
    capacity = m_real * r + n_real
    per_b, per_r, per_capacity = 1 / (q * m_real), 1 / r, 1 / capacity  # the divisions that all that follows shares
    buffer = fold(log(q), q, K, q > 1, m_real * per_b, shared)
    log_load = log_rho(q, r, m_real, n_real)
    waiting = fold(log_load, q * (m_real * r * per_capacity), M, log_load > 0, capacity * per_r * per_b, shared)
    poisson = truncated_poisson(q * m_real, m)
    full = full_buffer(q, r, K, m, n) if full is None else full
    zero = jnp.zeros_like(q)
    # ln of (level or top, whichever was scaled to p1) over the heaviest state of the waiting line
    lead = full.log_h0 + jnp.where(waiting.rising, waiting.log * M, zero)
    lead = lead - jnp.where(buffer.rising, zero, buffer.log * K)
    saturated = lead < 0
    scale, _ = decay_and_rest(jnp.where(saturated, -lead, lead), shared)
    rest = jnp.where(saturated, scale, jnp.ones_like(scale))
    level = poisson.tail * rest
    below = jnp.where(buffer.rising, buffer.decay, jnp.ones_like(q)) * rest
    line = poisson.tail * jnp.where(saturated, jnp.ones_like(scale), scale)
    line_mass = line * jnp.where(waiting.rising, waiting.sums.plain, waiting.ratio * waiting.sums.plain)
    top = level * jnp.where(buffer.rising, jnp.ones_like(q), buffer.decay)
    total = below + level * (1 + buffer.ratio * buffer.sums.plain) + line_mass
    return Weights(below, level, top, line, line_mass, total, lead, saturated, poisson, full, buffer, waiting,
                   m_real, n_real, K, M)
