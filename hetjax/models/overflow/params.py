"""The parameters of the overflow system, their domain and the status of a point.

    type 1, Poisson lambda1 -->  server 1  (dedicated to type 1)
                                   |  a type-t customer who finds the own server busy overflows to the other server;
                                   |  if that is busy too the customer is lost
    type 2, Poisson lambda2 -->  server 2  (dedicated to type 2)

A type-t customer is served at rate mu_t whichever server does it (for rates that depend on the server as well see
:mod:`hetjax.models.overflow.general`). State (i, j): the type in service at server 1 and at server 2, 0 for idle.
All four rates are per unit time; the probabilities depend on their ratios only:
rho_t = lambda_t / mu_t (offered load of type t), alpha = mu2 / mu1.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hetjax.models.registry import Axis, inside
from hetjax.processes.checks import as_reals, pytree
from hetjax.result import Status

RATE_AXES = (
    Axis("lambda1", 1e-6, 1e6, "1/time", "arrival rate of type 1"),
    Axis("lambda2", 1e-6, 1e6, "1/time", "arrival rate of type 2"),
    Axis("mu1", 1e-6, 1e6, "1/time", "service rate of a type-1 customer at either server"),
    Axis("mu2", 1e-6, 1e6, "1/time", "service rate of a type-2 customer at either server"),
)
COST_AXES = (
    Axis("loss_cost_1", 0.0, 1e6, "cost/customer", "cost of losing a type-1 customer", default=1.0),
    Axis("loss_cost_2", 0.0, 1e6, "cost/customer", "cost of losing a type-2 customer", default=1.0),
    Axis("overflow_cost_1", 0.0, 1e6, "cost/customer", "extra cost of serving type 1 at server 2", default=0.0),
    Axis("overflow_cost_2", 0.0, 1e6, "cost/customer", "extra cost of serving type 2 at server 1", default=0.0),
)


@pytree
@dataclass(frozen=True, eq=False)
class Params:
    """One overflow system, or a batch of them: four rates per unit time, each in [1e-6, 1e6].

    All four are leaves of a pytree: scalars, or arrays of one shape. Python numbers become arrays of the leaves' common
    floating dtype. Concrete values outside the domain raise ValueError; traced values are not checked, see
    :func:`status`.

    >>> from hetjax.models.overflow import Params
    >>> p = Params(lambda1=1.0, lambda2=3.0, mu1=2.0, mu2=1.0)
    >>> float(p.rho1), float(p.rho2), float(p.alpha)
    (0.5, 3.0, 0.5)
    """

    lambda1: jax.Array
    lambda2: jax.Array
    mu1: jax.Array
    mu2: jax.Array

    def __post_init__(self) -> None:
        given = as_reals(self.lambda1, self.lambda2, self.mu1, self.mu2)
        for axis, value in zip(RATE_AXES, given, strict=True):
            check_values(axis, value)
            object.__setattr__(self, axis.name, value)

    @property
    def rho1(self) -> jax.Array:
        """Offered load of type 1, lambda1 / mu1."""
        return self.lambda1 / self.mu1

    @property
    def rho2(self) -> jax.Array:
        """Offered load of type 2, lambda2 / mu2."""
        return self.lambda2 / self.mu2

    @property
    def alpha(self) -> jax.Array:
        """mu2 / mu1."""
        return self.mu2 / self.mu1


@pytree
@dataclass(frozen=True, eq=False)
class Costs:
    """What a loss and an overflow cost, per customer of each type; each in [0, 1e6].

    >>> from hetjax.models.overflow import Costs
    >>> float(Costs(loss_1=5.0, overflow_1=0.5).loss_2)
    1.0
    """

    loss_1: ArrayLike = 1.0
    loss_2: ArrayLike = 1.0
    overflow_1: ArrayLike = 0.0
    overflow_2: ArrayLike = 0.0

    def __post_init__(self) -> None:
        for axis, value in zip(COST_AXES, (self.loss_1, self.loss_2, self.overflow_1, self.overflow_2), strict=True):
            check_values(axis, value)


def check_values(axis: Axis, value: ArrayLike) -> None:
    """ValueError with the first concrete value outside the domain of ``axis``."""
    if isinstance(value, jax.core.Tracer):
        return
    concrete = np.asarray(value)
    real = concrete.dtype.type if np.issubdtype(concrete.dtype, np.floating) else float
    outside = ~((concrete >= real(axis.low)) & (concrete <= real(axis.high)))
    if np.any(outside):
        axis.check(float(concrete[outside].flat[0]))


def status(params: Params) -> jax.Array:
    """The uint8 code of :class:`hetjax.result.Status` of each point: OK, or OUT_OF_DOMAIN where a rate is outside
    [1e-6, 1e6] or NaN. A loss system is always stable.

    >>> from hetjax.models.overflow import Params, status
    >>> int(status(Params(1.0, 2.0, 3.0, 4.0)))
    1
    """
    return domain_status(RATE_AXES, (params.lambda1, params.lambda2, params.mu1, params.mu2))


def domain_status(axes: tuple[Axis, ...], values: tuple[Any, ...]) -> jax.Array:
    """OK where each value lies in the closed domain of its axis, else OUT_OF_DOMAIN."""
    legal = inside(axes, dict(zip((axis.name for axis in axes), values, strict=True)))
    return jnp.where(legal, int(Status.OK), int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)
