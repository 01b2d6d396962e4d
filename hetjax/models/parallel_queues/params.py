"""The parameters of parallel nodes behind a router, their domain and the status of a point.

    Poisson(lambda) --> router --> node 1: one queue, servers mu1[0] >= mu2[0]
                               \\-> node 2: one queue, servers mu1[1] >= mu2[1]     (.. node n)

The router sees nothing of the nodes. Each node is a :mod:`hetjax.threshold_queue`: its fast server always works, the
slow one starts when as many customers wait as the node's threshold says, a newcomer included. Rates per unit time.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.processes.checks import as_reals, concrete, pytree, require
from hetjax.result import Status

Array = jax.Array


@pytree
@dataclass(frozen=True, eq=False)
class Params:
    """The stream and the nodes.

    Args:
      arrival_rate: lambda, of the Poisson stream before the router, a scalar.
      mu1: (n,) service rates of the nodes' fast servers.
      mu2: (n,) of their slow servers, mu2 <= mu1; 0 for a node with a single server.

    Leaves of a pytree, of one dtype. Concrete values are checked (ValueError), stability included; traced ones are
    not: see :func:`status`. Batches come by ``vmap``.

    >>> from hetjax.models.parallel_queues import Params
    >>> p = Params(2.0, [2.0, 1.0], [0.5, 0.2])
    >>> p.nodes, round(float(p.load), 6)
    (2, 0.540541)
    """

    arrival_rate: Array
    mu1: Array
    mu2: Array

    def __post_init__(self) -> None:
        given = as_reals(self.arrival_rate, self.mu1, self.mu2)
        for name, value in zip(("arrival_rate", "mu1", "mu2"), given, strict=True):
            object.__setattr__(self, name, value)
        rate, mu1, mu2 = self.arrival_rate, self.mu1, self.mu2
        require(rate.shape == (), "arrival_rate", f"array of shape {rate.shape}", "one rate; use vmap for many points")
        require(mu1.ndim == 1 and mu1.size >= 1 and mu2.shape == mu1.shape, "mu1, mu2",
                f"arrays of shapes {mu1.shape}, {mu2.shape}", "two lists of one length, an entry for each node")
        if concrete(rate, mu1, mu2):
            _check(float(rate), np.asarray(mu1), np.asarray(mu2))

    @property
    def nodes(self) -> int:
        """n."""
        return self.mu1.shape[-1]

    @property
    def capacities(self) -> Array:
        """mu1 + mu2 of each node, (n,)."""
        return self.mu1 + self.mu2

    @property
    def load(self) -> Array:
        """lambda over the sum of all service rates; below 1 some split is stable."""
        return self.arrival_rate / jnp.sum(self.capacities)


def _check(rate: float, mu1: np.ndarray, mu2: np.ndarray) -> None:
    require(0 < rate < np.inf, "arrival_rate", rate, "positive and finite (customers per unit time)")
    for i, (fast, slow) in enumerate(zip(mu1.tolist(), mu2.tolist(), strict=True)):
        require(0 < fast < np.inf, f"mu1[{i}]", fast, "positive and finite")
        require(slow >= 0, f"mu2[{i}]", slow, "positive, or 0 for a node with a single server")
        require(slow <= fast, f"mu2[{i}]", slow,
                f"at most mu1[{i}] = {fast:g}: the fast server comes first; swap the two")
    capacity = mu1 + mu2
    require(rate < capacity.sum(), "arrival_rate", rate,
            f"below {capacity.sum():g}, the service rate of all nodes together: no split is stable. A share p_i of the"
            f" customers needs p_i * arrival_rate < mu1[i] + mu2[i] = {', '.join(f'{c:g}' for c in capacity)}")


def checked_thresholds(thresholds: Any, params: Params, shapes: tuple[tuple[int, ...], ...],
                       bound: int | None = None) -> tuple[Array, int]:
    """``thresholds`` as an array of one of ``shapes`` and a whole number that none exceeds; ValueError unless >= 1."""
    known = concrete(*jax.tree.leaves(thresholds))
    values = np.asarray(thresholds, float) if known else None
    given = (jnp.asarray(values) if values is not None else jnp.asarray(thresholds)).astype(params.mu1.dtype)
    require(given.shape in shapes, "thresholds", f"array of shape {given.shape}",
            " or ".join(str(s) for s in shapes) + ": one for each node" + (", or by letter" if len(shapes) > 1 else ""))
    if values is None:
        require(bound is not None, "max_threshold", None, "a whole number where thresholds are traced")
        return given, int(bound or 1)
    largest = float(values.max())
    require(bool(np.all(values >= 1)) and largest <= (bound or 1e6), "thresholds", values.tolist(),
            f"in [1, {bound or 1e6:g}]: customers waiting, the newcomer included, at which the slow server starts")
    return given, bound or int(np.ceil(largest))


def status(params: Params) -> Array:
    """The uint8 code of :class:`hetjax.result.Status`: OK where some split is stable, UNSTABLE, OUT_OF_DOMAIN.

    >>> from hetjax.models.parallel_queues import Params, status
    >>> int(status(Params(2.0, [2.0, 1.0], [0.5, 0.2])))
    1
    """
    rate, mu1, mu2 = params.arrival_rate, params.mu1, params.mu2
    legal = (rate > 0) & jnp.isfinite(rate) & jnp.all((mu1 > 0) & jnp.isfinite(mu1) & (mu2 >= 0) & (mu2 <= mu1))
    code = jnp.where(rate < jnp.sum(params.capacities), int(Status.OK), int(Status.UNSTABLE))
    return jnp.where(legal, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)


def harmless(params: Params, code: Array) -> Params:
    """Points that are not OK become a legal one, so that no NaN meets a gradient."""
    ok = code == int(Status.OK)
    one = jnp.ones_like(params.mu1)
    leaves, tree = jax.tree.flatten(params)
    tame = (jnp.ones_like(params.arrival_rate) / 2, one, one / 2)
    return jax.tree.unflatten(tree, [jnp.where(ok, x, y) for x, y in zip(leaves, tame, strict=True)])
