"""The parameters of the threshold queue, their domain and the status of a point.

    MAP (D0, D1) --> one queue --> server 1, rate mu1: always busy while anyone is there to be served
                                   servers 2..c, rates mu2 >= .. >= mu_c: the fastest idle one, server j, takes the
                                   head of the queue as soon as q_j customers wait, a newcomer included

Customers who wait are those in the queue, never those in service. The thresholds q_2 <= .. <= q_c may depend on the
phase f of the arrival process, and act at once on the phase after any event. q_j = 1 for all j is fastest-server-first.
A real threshold q + f is randomised: at each event that leaves q customers waiting the server is started with
probability 1 - f (phase changes are events and draw anew). Rates per unit time.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc import stationary
from hetjax.processes import MAP, poisson
from hetjax.processes.checks import as_real, as_reals, concrete, require
from hetjax.result import Status

LARGEST_SERVERS = 6  # 2^(c-1) busy sets a level
_LEAVES = ("D0", "D1", "mu1", "mu2", "thresholds")
Array = jax.Array


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False)
class Params:
    """One threshold queue with infinite buffer, or room for ``capacity`` customers in all (in service included).

    Args:
      D0, D1: (p, p) rates of phase changes without and with an arrival.
      mu1: service rate of the fast server, a scalar.
      mu2: that of the slow server, a scalar; or (c - 1,) falling rates of servers 2..c.
      thresholds: one for all phases, or (p,) by phase; with several slow servers (c - 1,), or (c - 1, p). All >= 1.
      capacity: whole number, or None for an infinite buffer.
      max_threshold: a whole number that no threshold exceeds; known by itself unless thresholds are traced. It gives
        the number of levels, so one common number saves recompilations.

    The first five are leaves of a pytree of one dtype, the last two are static. Concrete values are checked
    (ValueError), stability included; traced ones are not, see :func:`status`. Batches come by ``vmap``.

    >>> from hetjax.models.threshold_queue import Params
    >>> p = Params(D0=[[-1.0]], D1=[[1.0]], mu1=1.0, mu2=0.25, thresholds=2)
    >>> float(p.load), p.max_threshold
    (0.8, 2)
    """

    D0: Array
    D1: Array
    mu1: Array
    mu2: Array
    thresholds: Array
    capacity: int | None
    max_threshold: int

    def __init__(self, D0: Any, D1: Any, mu1: Any, mu2: Any, thresholds: Any, capacity: int | None = None,
                 max_threshold: int | None = None) -> None:
        leaves = dict(zip(_LEAVES, as_reals(D0, D1, mu1, mu2, thresholds), strict=True))
        if concrete(leaves["D0"], leaves["D1"]):
            MAP(leaves["D0"], leaves["D1"])
        _check_shapes(leaves)
        leaves["thresholds"] = _spread(leaves["thresholds"], leaves["mu2"], leaves["D0"].shape[0])
        if concrete(leaves["mu1"], leaves["mu2"]):
            _check_rates(np.asarray(leaves["mu1"]), np.asarray(leaves["mu2"]))
        if concrete(leaves["thresholds"]):
            values = np.asarray(leaves["thresholds"])
            _check_thresholds(values)
            largest = int(np.ceil(values.max()))
        else:
            require(max_threshold is not None, "max_threshold", None,
                    "a whole number where thresholds are traced: it gives the number of levels")
            largest = int(max_threshold or 1)
        bound = largest if max_threshold is None else max_threshold
        require(isinstance(bound, int | np.integer) and bound >= largest, "max_threshold", bound,
                f"a whole number >= {largest}, the largest threshold")
        least = leaves["mu2"].size + 1
        require(capacity is None or (isinstance(capacity, int | np.integer) and capacity >= least), "capacity",
                capacity, f"None (infinite) or a whole number >= {least}, the number of servers")
        for name, leaf in leaves.items():
            object.__setattr__(self, name, leaf)
        object.__setattr__(self, "capacity", None if capacity is None else int(capacity))
        object.__setattr__(self, "max_threshold", int(bound))
        if capacity is None and concrete(*leaves.values()):
            rate, work = float(self.arrival_rate), float(self.total_rate)
            require(rate < work, "arrival rate of (D0, D1)", rate,
                    f"below {work:g}, the service rate of all servers, or queues grow for ever; give a capacity")

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[int | None, int]]:
        """The real leaves with their names; capacity and bound."""
        return (tuple((jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in _LEAVES),
                (self.capacity, self.max_threshold))

    @classmethod
    def tree_unflatten(cls, static: tuple[int | None, int], leaves: tuple[Any, ...]) -> "Params":
        """Rebuilds without checks, as transformations pass placeholders."""
        self = object.__new__(cls)
        for name, leaf in zip((*_LEAVES, "capacity", "max_threshold"), (*leaves, *static), strict=True):
            object.__setattr__(self, name, leaf)
        return self

    @classmethod
    def from_map(cls, arrivals: MAP, mu1: Any, mu2: Any, thresholds: Any, **static: int | None) -> "Params":
        """From an arrival process, like ``hetjax.processes.mmpp(...)``."""
        return cls(arrivals.D0, arrivals.D1, mu1, mu2, thresholds, **static)

    @classmethod
    def from_rate(cls, arrival_rate: Any, mu1: Any, mu2: Any, thresholds: Any, **static: int | None) -> "Params":
        """Poisson arrivals of the given rate."""
        return cls.from_map(poisson(arrival_rate), mu1, mu2, thresholds, **static)

    @classmethod
    def from_word(cls, router_rate: Any, word: Any, mu1: Any, mu2: Any, thresholds: Any,
                  **static: int | None) -> "Params":
        """The node that gets the 1s of the periodic ``word`` of 0s and 1s, applied to a Poisson stream of router_rate.

        Phase = position in the word of the next customer.

        >>> from hetjax.models.threshold_queue import Params
        >>> float(Params.from_word(1.5, [1, 0, 1], 1.0, 0.5, [1, 2, 1]).arrival_rate)
        1.0
        """
        letters = np.asarray(word)
        require(letters.ndim == 1 and set(letters.tolist()) <= {0, 1} and bool(letters.any()), "word", word,
                "a list of 0s and 1s with at least one 1")
        rate = as_real(router_rate)
        shift = np.roll(np.eye(letters.size), 1, axis=1)
        ones, zeros = (jnp.asarray(np.diag(x) @ shift, rate.dtype) for x in (letters, 1 - letters))
        rate = jnp.broadcast_to(rate, shift.shape)
        return cls(rate * (zeros - jnp.eye(letters.size, dtype=rate.dtype)), rate * ones, mu1, mu2, thresholds,
                   **static)

    def with_thresholds(self, thresholds: Any, max_threshold: int | None = None) -> "Params":
        """The same queue under other thresholds."""
        return Params(self.D0, self.D1, self.mu1, self.mu2, thresholds, self.capacity,
                      max_threshold=self.max_threshold if max_threshold is None else max_threshold)

    @property
    def phases(self) -> int:
        """The number p of phases of the arrival process."""
        return self.D0.shape[-1]

    @property
    def slow_servers(self) -> int:
        """c - 1."""
        return self.mu2.size

    @property
    def slow_rates(self) -> Array:
        """mu2 as (c - 1,)."""
        return self.mu2.reshape(-1)

    @property
    def phase_law(self) -> Array:
        """The stationary law of the phase, (p,)."""
        return stationary(self.D0 + self.D1).value

    @property
    def arrival_rate(self) -> Array:
        """Arrivals per unit time, lost ones included."""
        return self.phase_law @ jnp.sum(self.D1, axis=1)

    @property
    def total_rate(self) -> Array:
        """mu1 + mu2 + .. + mu_c."""
        return self.mu1 + jnp.sum(self.slow_rates)

    @property
    def load(self) -> Array:
        """arrival rate / total rate."""
        return self.arrival_rate / self.total_rate


def _check_shapes(leaves: dict[str, Array]) -> None:
    mu1, mu2 = leaves["mu1"], leaves["mu2"]
    require(mu1.shape == (), "mu1", f"array of shape {mu1.shape}", "one rate; use vmap for many queues")
    require(mu2.ndim <= 1 and 1 <= mu2.size < LARGEST_SERVERS, "mu2", f"array of shape {mu2.shape}",
            f"one rate, or a list of 1 to {LARGEST_SERVERS - 1}, one for each slow server")


def _spread(thresholds: Array, mu2: Array, phases: int) -> Array:
    """(c - 1, p)."""
    slow = mu2.size
    legal = {(): (1, 1), (slow, phases): (slow, phases)} | ({(phases,): (1, phases)} if slow == 1 else
                                                           {(slow,): (slow, 1)})
    require(thresholds.shape in legal, "thresholds", f"array of shape {thresholds.shape}",
            f"one, {'(phases,)' if slow == 1 else '(slow servers,)'} or (slow servers, phases) = {(slow, phases)}")
    return jnp.broadcast_to(thresholds.reshape(legal[thresholds.shape]), (slow, phases))


def _check_rates(mu1: np.ndarray, mu2: np.ndarray) -> None:
    rates = np.concatenate([mu1.reshape(-1), mu2.reshape(-1)])
    names = ["mu1", "mu2"] if mu2.ndim == 0 else ["mu1"] + [f"mu2[{j}]" for j in range(mu2.size)]
    for name, rate in zip(names, rates.tolist(), strict=True):
        require(0 < rate < np.inf, name, rate, "positive and finite (customers per unit time)")
    for j in range(1, len(names)):
        require(rates[j] <= rates[j - 1], names[j], float(rates[j]),
                f"at most {names[j - 1]} = {rates[j - 1]:g}, as servers go from fast to slow; swap the two")


def _check_thresholds(values: np.ndarray) -> None:
    least = float(values.min()) if not np.isnan(values).any() else np.nan
    require(least >= 1 and float(values.max()) <= 1e4, "thresholds", least if not least >= 1 else float(values.max()),
            "in [1, 1e4]: customers waiting, the newcomer included, at which a slow server starts")
    require(bool(np.all(np.diff(values, axis=0) >= 0)), "thresholds", values.tolist(),
            "rising from server to server in each phase: a slower server starts later")


def status(params: Params) -> Array:
    """The uint8 code of :class:`hetjax.result.Status`: OK; UNSTABLE where the load is 1 or more and the buffer
    infinite; OUT_OF_DOMAIN for illegal rates or thresholds, or thresholds above ``max_threshold``.

    >>> from hetjax.models.threshold_queue import Params, status
    >>> int(status(Params([[-1.0]], [[1.0]], 1.0, 0.25, 2)))
    1
    """
    rates = jnp.concatenate([params.mu1.reshape(1), params.slow_rates])
    t = params.thresholds
    legal = MAP(params.D0, params.D1).is_valid() if not concrete(params.D0) else jnp.ones((), bool)
    legal = legal & jnp.all(rates > 0) & jnp.all(jnp.isfinite(rates)) & jnp.all(jnp.diff(rates) <= 0)
    legal = legal & jnp.all(t >= 1) & jnp.all(t <= params.max_threshold) & jnp.all(jnp.diff(t, axis=0) >= 0)
    stable = params.arrival_rate < params.total_rate if params.capacity is None else jnp.ones((), bool)
    code = jnp.where(stable, int(Status.OK), int(Status.UNSTABLE))
    return jnp.where(legal, code, int(Status.OUT_OF_DOMAIN)).astype(jnp.uint8)
