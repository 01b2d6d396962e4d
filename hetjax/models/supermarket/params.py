"""The parameters of the supermarket model, their domain and the status of a point.

    Poisson, rate lambda per server --> looks at d queues chosen at random --> joins the shortest of them
                                                                                |
    each of N servers: first come first served, phase-type service times PH(alpha, T), one queue each

With N servers the total arrival rate is N lambda. mean service time m = alpha (-T)^-1 1, load rho = lambda m < 1.
d may be any real number from 1 on: in the limit N -> infinity only u^d enters, the probability that all d queues looked
at have a certain length, and a mixture of two integers is close to the real number between them. Rates per unit time.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import elimination
from hetjax.processes import MAP, PH
from hetjax.processes.checks import as_reals, concrete, pytree, require
from hetjax.result import Status

SMALLEST_D = 1.01  # d = 1 apart; between them the tail takes tens of thousands of levels and more
LARGEST_D = 1e6


@pytree
@dataclass(frozen=True, eq=False)
class Params:
    """One supermarket system: ``arrival_rate`` per server, ``d`` choices, service PH(``alpha``, ``T``).

    Attributes:
      arrival_rate: lambda > 0, a scalar, per server and unit time.
      d: the number of queues looked at, real, 1 or in [1.01, 1e6], a scalar.
      alpha: (phases,) probabilities of the first phase of a service.
      T: (phases, phases) rates of its phases per unit time.

    All four are leaves of a pytree of one dtype. Concrete values are checked: ValueError for a load >= 1, a d outside
    the domain, an alpha that is no probability vector, a T that is no sub-generator. Traced values are not; see
    :func:`status`. Batches come by ``vmap``.

    >>> from hetjax.models.supermarket import Params
    >>> from hetjax.processes import erlang
    >>> p = Params.from_service(0.5, 2, erlang(2, 2.0))
    >>> float(p.rho)
    0.5
    """

    arrival_rate: jax.Array
    d: jax.Array
    alpha: jax.Array
    T: jax.Array

    def __post_init__(self) -> None:
        given = as_reals(self.arrival_rate, self.d, self.alpha, self.T)
        for name, value in zip(("arrival_rate", "d", "alpha", "T"), given, strict=True):
            object.__setattr__(self, name, value)
        require(self.arrival_rate.shape == () and self.d.shape == (), "arrival_rate, d",
                f"shapes {self.arrival_rate.shape}, {self.d.shape}", "scalars; use vmap for many systems")
        if concrete(self.alpha, self.T):
            PH(self.alpha, self.T)
        if concrete(self.arrival_rate):
            require(0 < float(self.arrival_rate) < math.inf, "arrival_rate", float(self.arrival_rate),
                    "positive and finite (customers per server and unit time)")
        if concrete(self.d):
            d = float(self.d)
            require(d == 1 or float(np.float32(SMALLEST_D)) <= d <= LARGEST_D, "d", d,
                    f"1 or in [{SMALLEST_D:g}, {LARGEST_D:g}] (queues looked at by an arrival)")
        if concrete(*given):
            require(float(self.rho) < 1, "arrival_rate", float(self.arrival_rate),
                    f"below the service rate {1 / float(self.mean_service):g} of a server, or queues grow for ever")

    @classmethod
    def from_service(cls, arrival_rate: Any, d: Any, service: PH) -> "Params":
        """From a phase-type law, like ``hetjax.processes.hyperexponential_balanced(1.0, 10.0)``."""
        return cls(arrival_rate, d, service.alpha, service.T)

    @classmethod
    def from_map(cls, arrivals: MAP, d: Any, service: PH) -> "Params":
        """The limit of fast MAP arrivals: descriptor (N D0, N D1), so that the phase of the arrival process moves N
        times faster than a queue and averages out: Poisson arrivals at the rate gamma D1 1 per server.

        An environment as slow as a queue does not average out, see :mod:`hetjax.models.supermarket.environment`.
        """
        return cls(arrivals.rate(), d, service.alpha, service.T)

    @property
    def phases(self) -> int:
        """The number of phases of a service."""
        return self.alpha.shape[-1]

    @property
    def service(self) -> PH:
        """The law of a service time."""
        return PH(self.alpha, self.T)

    @property
    def exit_rates(self) -> jax.Array:
        """t0 = -T 1, shape (phases,)."""
        return jnp.maximum(-jnp.sum(self.T, axis=-1), 0)

    @property
    def mean_service(self) -> jax.Array:
        """m = alpha (-T)^-1 1, in time units."""
        return jnp.sum(self.busy_phases())

    @property
    def rho(self) -> jax.Array:
        """The load lambda m: the share of time a server is busy, whatever d is."""
        return self.arrival_rate * self.mean_service

    def busy_phases(self) -> jax.Array:
        """alpha (-T)^-1, shape (phases,): the expected time a service spends in each phase."""
        return elimination.apply_left(elimination.factor(self.T, self.exit_rates), self.alpha)[0]

    def service_scv(self) -> jax.Array:
        """The squared coefficient of variation of a service time."""
        return PH(self.alpha, self.T).scv()


def status(params: Params) -> jax.Array:
    """The uint8 code of :class:`hetjax.result.Status`: OK, UNSTABLE where rho >= 1, OUT_OF_DOMAIN where d is not 1 or
    in [1.01, 1e6], or (alpha, T) is no phase-type law, or a value is NaN.

    >>> from hetjax.models.supermarket import Params, status
    >>> int(status(Params(0.5, 2, [1.0], [[-1.0]])))
    1
    """
    real = params.T.dtype.type
    d, rate = params.d, params.arrival_rate
    legal = (d == 1) | ((d >= real(SMALLEST_D)) & (d <= real(LARGEST_D)))
    legal = legal & (rate > 0) & jnp.isfinite(rate) & PH(params.alpha, params.T).is_valid()
    code = jnp.where(params.rho < 1, int(Status.OK), int(Status.UNSTABLE))
    return jnp.where(legal, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)


def legal_or_harmless(params: Params) -> tuple[Params, jax.Array]:
    """The parameters with illegal ones replaced by half a load, so that no NaN meets a gradient, and their status."""
    code = status(params)
    legal = code == int(Status.OK)
    dtype = params.T.dtype
    unit = jnp.zeros_like(params.alpha).at[0].set(1)
    half, two = jnp.asarray(0.5, dtype), jnp.asarray(2, dtype)
    harmless = (half, two, unit, -jnp.eye(params.phases, dtype=dtype))
    leaves = (params.arrival_rate, params.d, params.alpha, params.T)
    chosen = [jnp.where(legal, x, y) for x, y in zip(leaves, harmless, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(params), chosen), code
