"""Markovian arrival processes: arrivals driven by a Markov chain of phases.

MAP(D0, D1): D1_ij is the rate of an arrival with a change of phase from i to j (i = j allowed), D0_ij (i != j) of a
change without one; D0 + D1 is a generator. With gamma its stationary law the arrival rate is lambda = gamma D1 1. The
phases at arrivals form the chain P = M D1, M = (-D0)^-1, with stationary law gamma D1 / lambda. Rates per unit time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.ctmc.elimination import off_diagonal
from hetjax.ctmc.elimination import solve as eliminate
from hetjax.ctmc.stationary import stationary
from hetjax.processes.checks import as_real, concrete, pytree, require
from hetjax.processes.phase_type import PH
from hetjax.processes.phase_type import erlang as erlang_service

Array = jax.Array


@pytree
@dataclass(frozen=True, eq=False)
class MAP:
    """A Markovian arrival process: ``D0``, ``D1`` of shape (phases, phases), rates per unit time.

    The seed papers write (C, D) for (D0, D1). Concrete values are checked: ValueError if D0 has a negative off-diagonal
    or D1 a negative rate, if the rows of D0 + D1 do not sum to 0, or if there are no arrivals at all.

    >>> float(MAP([[-3.0]], [[3.0]]).rate())
    3.0
    """

    D0: Array
    D1: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "D0", as_real(self.D0))
        object.__setattr__(self, "D1", as_real(self.D1))
        if concrete(self.D0, self.D1):
            _check(np.asarray(self.D0), np.asarray(self.D1))

    @property
    def phases(self) -> int:
        """The number of phases."""
        return self.D0.shape[-1]

    def phase_law(self) -> Array:
        """gamma: the stationary law of the phase, gamma (D0 + D1) = 0, shape (phases,)."""
        return stationary(self.D0 + self.D1).value

    def arrival_phase_law(self) -> Array:
        """The stationary law of the phase just after an arrival, gamma D1 / lambda."""
        flow = self.phase_law() @ self.D1
        return flow / jnp.sum(flow)

    def rate(self) -> Array:
        """The arrival rate lambda = gamma D1 1."""
        return jnp.sum(self.phase_law() @ self.D1)

    def interarrival(self) -> PH:
        """The law of one stationary interarrival time, PH(arrival_phase_law, D0)."""
        return PH(self.arrival_phase_law(), self.D0)

    def scv(self) -> Array:
        """The squared coefficient of variation of a stationary interarrival time."""
        return self.interarrival().scv()

    def correlation(self, lag: int) -> Array:
        """The correlation of stationary interarrival times ``lag`` apart; O(phases^3 + lag phases^2).

        pi M P^lag (M 1 - m) / variance with pi the phase law at arrivals and m = pi M 1. Centring again at each step
        keeps the relative accuracy of correlations that have almost died out.

        >>> round(float(mmpp([[0.0, 1.0], [1.0, 0.0]], [1.0, 9.0]).correlation(1)), 6)
        0.148607
        """
        if lag < 0 or lag != int(lag):
            raise ValueError(f"lag = {lag!r}: must be a whole number >= 0")
        pi = self.arrival_phase_law()
        leave = jnp.sum(self.D1, axis=1)
        identity = jnp.eye(self.phases, dtype=pi.dtype)
        M = eliminate(self.D0, leave, identity)[0]
        once = jnp.sum(M, axis=1)
        mean = pi @ once
        around = once - mean
        variance = 2 * (pi @ M @ around) + mean**2
        if lag == 0:
            return jnp.ones_like(mean)
        vector = around
        for _ in range(lag):
            vector = M @ (self.D1 @ vector)
            vector = vector - pi @ vector
        return pi @ M @ vector / variance

    def is_valid(self) -> Array:
        """True where (D0, D1) are a MAP up to rounding; works on traced values."""
        scale = jnp.max(jnp.abs(self.D0))
        off = off_diagonal(self.D0)
        rows = jnp.sum(self.D0 + self.D1, axis=-1)
        return (
            jnp.all(off >= 0)
            & jnp.all(self.D1 >= 0)
            & jnp.any(self.D1 > 0)
            & jnp.all(jnp.isfinite(self.D0))
            & jnp.all(jnp.abs(rows) <= 64 * jnp.finfo(self.D0.dtype).eps * scale)
        )

    def rescaled(self, rate: Any) -> "MAP":
        """The same pattern with another arrival rate."""
        factor = as_real(rate, like=self.D0) / self.rate()
        return MAP(self.D0 * factor, self.D1 * factor)

    def thinned(self, keep: Any) -> "MAP":
        """Each arrival is kept independently with probability ``keep`` (a Bernoulli split)."""
        keep = as_real(keep, like=self.D0)
        if concrete(keep):
            require(0 < float(keep) <= 1, "keep", float(keep), "in (0, 1]")
        return MAP(self.D0 + (1 - keep) * self.D1, keep * self.D1)

    def sample(self, key: Array, arrivals: int) -> tuple[Array, Array]:
        """``arrivals`` successive interarrival times and the phases just after them, started in stationarity."""
        dtype = self.D0.dtype
        rates = -jnp.diag(self.D0)
        stay = off_diagonal(self.D0)
        cumulative = jnp.cumsum(jnp.concatenate([self.D1, stay], axis=1) / rates[:, None], axis=1)
        start_key, key = jax.random.split(key)
        start = jax.random.choice(start_key, self.phases, p=self.arrival_phase_law())

        def one(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            def move(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
                key, phase, elapsed, _ = carry
                key, hold_key, move_key = jax.random.split(key, 3)
                hold = jax.random.exponential(hold_key, (), dtype) / rates[phase]
                target = jnp.sum(jax.random.uniform(move_key, (), dtype) >= cumulative[phase])
                target = jnp.minimum(target, 2 * self.phases - 1)
                return key, target % self.phases, elapsed + hold, target < self.phases

            phase, _ = state
            first = move((key, phase, jnp.zeros((), dtype), jnp.zeros((), bool)))
            _, phase, elapsed, _ = jax.lax.while_loop(lambda c: ~c[3], move, first)
            return (phase, elapsed), (elapsed, phase)

        _, (times, phases) = jax.lax.scan(one, (start, jnp.zeros((), dtype)), jax.random.split(key, arrivals))
        return times, phases


def _check(D0: np.ndarray, D1: np.ndarray) -> None:
    require(
        D0.ndim == 2 and D0.shape == D1.shape and D0.shape[0] == D0.shape[1] and D0.size > 0,
        "D0, D1",
        f"shapes {D0.shape}, {D1.shape}",
        "two square matrices of one size",
    )
    off = D0 - np.diag(np.diag(D0))
    require(
        bool(np.all(np.isfinite(D0)) and np.all(off >= 0)), "D0", D0.tolist(), "finite with off-diagonal rates >= 0"
    )
    require(bool(np.all(np.isfinite(D1)) and np.all(D1 >= 0)), "D1", D1.tolist(), "finite rates >= 0")
    require(bool(np.any(D1 > 0)), "D1", D1.tolist(), "positive somewhere: without arrivals there is no arrival process")
    rows = np.abs((D0 + D1).sum(axis=1))
    require(
        bool(np.all(rows <= 64 * np.finfo(D0.dtype).eps * np.abs(D0).max())),
        "D0 + D1",
        (D0 + D1).tolist(),
        "a generator: rows that sum to 0; set the diagonal of D0 to minus the other rates of its row",
    )


def poisson(rate: Any) -> MAP:
    """The Poisson process with the given rate > 0."""
    rate = as_real(rate)
    if concrete(rate):
        require(float(rate) > 0 and math.isfinite(float(rate)), "rate", float(rate), "positive and finite")
    return MAP(-rate.reshape(1, 1), rate.reshape(1, 1))


def mmpp(generator: Any, rates: Any) -> MAP:
    """The Markov-modulated Poisson process: Poisson at ``rates`` (p,) by the phase of the chain ``generator`` (p, p).

    The diagonal of ``generator`` is not read: it is minus the sum of the other rates of its row.
    """
    rates = as_real(rates)
    moves = as_real(generator, like=rates)
    require(
        moves.shape == (rates.shape[0], rates.shape[0]),
        "generator, rates",
        f"shapes {moves.shape}, {rates.shape}",
        "(p, p) and (p,)",
    )
    moves = off_diagonal(moves)
    return MAP(moves - jnp.diag(jnp.sum(moves, axis=1) + rates), jnp.diag(rates))


def erlang_arrivals(order: int, rate: Any) -> MAP:
    """Arrivals with Erlang(order) interarrival times and the given arrival rate (= 1 / mean interarrival time)."""
    return renewal(erlang_service(order, as_real(rate) * order))


def renewal(interarrival: PH) -> MAP:
    """The renewal process with phase-type interarrival times: D0 = T, D1 = t alpha."""
    return MAP(interarrival.T, interarrival.exit_rates[:, None] * interarrival.alpha[None, :])


def superpose(first: MAP, second: MAP) -> MAP:
    """The superposition of two independent MAPs: Kronecker sums, phases (i, j) in row-major order."""

    def kronecker_sum(a: Array, b: Array) -> Array:
        return jnp.kron(a, jnp.eye(b.shape[0], dtype=a.dtype)) + jnp.kron(jnp.eye(a.shape[0], dtype=b.dtype), b)

    return MAP(kronecker_sum(first.D0, second.D0), kronecker_sum(first.D1, second.D1))


__all__: Sequence[str] = ["MAP", "erlang_arrivals", "mmpp", "poisson", "renewal", "superpose"]
