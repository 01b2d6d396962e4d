"""The law of an absorption time by uniformisation: the mass b_n left after n steps at rate R, each x then one sum.

    P(time > x) = sum_n e^(-Rx) (Rx)^n / n! b_n

is a sum of positive terms, so that small tails keep their relative accuracy.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln

from hetjax.result import Solution, Status

Array = jax.Array


class TimeLaw(NamedTuple):
    """A uniformised law of a time: ``rate`` R, ``survival`` (steps + 1,), the mass b_n left after n steps, and
    ``missing``, the probability that the truncation of queue lengths left out."""

    rate: Array
    survival: Array
    missing: Array

    def log_tail(self, x: Any) -> Array:
        """log P(time > x), elementwise in x >= 0 (time units). O(steps) each.

        Right while R x + 10 sqrt(R x) stays below the number of steps.
        """
        x = jnp.asarray(x, self.rate.dtype)
        tiny = float(jnp.finfo(x.dtype).tiny)
        n = jnp.arange(self.survival.shape[0]).astype(x.dtype)
        mean = jnp.maximum(self.rate * x, tiny)[..., None]
        shape = (*x.shape, n.shape[0])
        log_mass = jnp.broadcast_to(jnp.log(jnp.maximum(self.survival, tiny)) - gammaln(n + 1), shape)
        return jax.nn.logsumexp(jnp.broadcast_to(n, shape) * jnp.log(mean) - mean + log_mass, axis=-1)

    def tail(self, x: Any) -> Array:
        """P(time > x), elementwise."""
        return jnp.exp(self.log_tail(x))

    def mean(self) -> Array:
        """The mean time, sum_n b_n / R; what is left after the last step is not counted."""
        return jnp.sum(self.survival) / self.rate

    def percentile(self, p: Any, newton_steps: int = 40) -> Solution:
        """The time x with P(time <= x) = p, elementwise; 0 where P(time = 0) >= p.

        Bracketed Newton steps on log P(time > x), derivatives by one more. Status not_converged where the steps of the
        law do not reach that far or queue lengths are missing.

        >>> from hetjax.models.supermarket import Params, fixed_point, response_time
        >>> params = Params(0.9, 2, [1.0], [[-1.0]])
        >>> law = response_time(params, fixed_point(params).value, steps=128)
        >>> round(float(law.percentile(0.99).value), 6)
        8.79097
        """
        p = jnp.asarray(p, self.rate.dtype)
        target = jnp.log1p(-p)
        held = lax.stop_gradient(self)
        high = jnp.broadcast_to(held.survival.shape[0] / held.rate, p.shape)

        def excess(law: "TimeLaw", x: Array) -> tuple[Array, Array]:
            g, slope = jax.jvp(law.log_tail, (x,), (jnp.ones_like(x),))
            return g - target, lax.stop_gradient(jnp.where(slope < 0, slope, -law.rate))

        def newton(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, low, high = carry
            g, slope = excess(held, x)
            low, high = jnp.where(g > 0, x, low), jnp.where(g > 0, high, x)
            change = g / slope
            new = jnp.where((x - change > low) & (x - change < high), x - change, (low + high) / 2)
            settled = jnp.abs(change) <= 16 * float(jnp.finfo(x.dtype).eps) * x  # there the bracket is noise
            return jnp.where(settled, x, new), low, high

        x, _, _ = lax.fori_loop(0, newton_steps, newton, (high / 16, jnp.zeros_like(high), high))
        g, slope = excess(self, x)
        at_zero = held.survival[0] <= 1 - p
        x = jnp.where(at_zero, 0, x - g / slope)
        reach = held.rate * x
        eps = float(jnp.finfo(x.dtype).eps)
        covered = (reach + 10 * jnp.sqrt(reach) + 10 < held.survival.shape[0]) & (jnp.abs(g) < 1e4 * eps)
        sound = (at_zero | covered) & (held.missing < 1e4 * eps)
        code = jnp.where(sound, int(Status.OK), int(Status.NOT_CONVERGED)).astype(jnp.uint8)
        return Solution(x, code, lax.stop_gradient(jnp.abs(g)), newton_steps)
