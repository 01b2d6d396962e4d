"""Phase-type distributions: the time a Markov chain with one absorbing state takes to be absorbed.

PH(alpha, T): the chain starts in phase i with probability alpha_i, moves from i to j at rate T_ij and is absorbed from
i at rate t_i = -(T 1)_i (the exit rates). With M = (-T)^-1 the k-th moment is k! alpha M^k 1 and the density at x is
alpha e^{Tx} t. Rates are per unit time; every constructor takes rates or a mean, never both.

All constructors are differentiable in their real arguments; the number of phases is static.
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
from hetjax.processes.checks import as_real, concrete, pytree, require

Array = jax.Array


@pytree
@dataclass(frozen=True, eq=False)
class PH:
    """A phase-type distribution: ``alpha`` (phases,) and ``T`` (phases, phases), rates per unit time.

    Concrete values are checked: ValueError if alpha is no probability vector or T no sub-generator from which every
    phase can be left for good. Traced values are not; see :meth:`is_valid`.

    >>> PH([1.0, 0.0], [[-2.0, 2.0], [0.0, -2.0]]).mean()
    Array(1., dtype=float64)
    """

    alpha: Array
    T: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", as_real(self.alpha))
        object.__setattr__(self, "T", as_real(self.T))
        if concrete(self.alpha, self.T):
            _check(np.asarray(self.alpha), np.asarray(self.T))

    @property
    def phases(self) -> int:
        """The number of phases."""
        return self.alpha.shape[-1]

    @property
    def exit_rates(self) -> Array:
        """t = -T 1 >= 0, shape (phases,); a row sum that rounding made positive counts as 0."""
        return jnp.maximum(-jnp.sum(self.T, axis=-1), 0)

    def moment(self, order: int) -> Array:
        """E X^order = order! alpha (-T)^-order 1, without subtractions; O(order phases^3).

        >>> float(PH([0.5, 0.5], [[-1.0, 0.0], [0.0, -4.0]]).moment(2))
        1.0625
        """
        vector = jnp.ones_like(self.alpha)
        for _ in range(order):
            vector = _expected(self.T, self.exit_rates, vector)
        return math.factorial(order) * jnp.dot(self.alpha, vector)

    def mean(self) -> Array:
        """The mean, in time units."""
        return self.moment(1)

    def rate(self) -> Array:
        """1 / mean."""
        return 1 / self.moment(1)

    def scv(self) -> Array:
        """The squared coefficient of variation, variance / mean^2."""
        return self.moment(2) / self.moment(1) ** 2 - 1

    def is_valid(self) -> Array:
        """True where (alpha, T) are a phase-type distribution up to rounding; works on traced values."""
        tolerance = 64 * jnp.finfo(self.T.dtype).eps
        scale = jnp.max(jnp.abs(self.T))
        off = off_diagonal(self.T)
        return (
            jnp.all(self.alpha >= 0)
            & (jnp.abs(jnp.sum(self.alpha) - 1) <= tolerance)
            & jnp.all(off >= 0)
            & jnp.all(jnp.diag(self.T) < 0)
            & jnp.all(self.exit_rates >= -tolerance * scale)
            & jnp.any(self.exit_rates > 0)
            & jnp.all(jnp.isfinite(self.T))
        )

    def rescaled(self, mean: Any) -> "PH":
        """The same shape with another mean."""
        return PH(self.alpha, self.T * (self.mean() / as_real(mean, like=self.T)))

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Independent samples of the given shape; cost grows with the number of phases visited."""
        dtype = self.T.dtype
        rates = -jnp.diag(self.T)
        moves = off_diagonal(self.T)
        cumulative = jnp.cumsum(moves / rates[:, None], axis=1)  # beyond the last: absorbed
        size = math.prod(shape)
        start_key, key = jax.random.split(key)
        start = jnp.searchsorted(jnp.cumsum(self.alpha), jax.random.uniform(start_key, (size,), dtype), side="right")

        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            key, phase, elapsed = state
            key, hold_key, move_key = jax.random.split(key, 3)
            alive = phase < self.phases
            safe = jnp.minimum(phase, self.phases - 1)
            hold = jax.random.exponential(hold_key, (size,), dtype) / rates[safe]
            uniform = jax.random.uniform(move_key, (size, 1), dtype)
            nxt = jnp.sum(uniform >= cumulative[safe], axis=1).astype(phase.dtype)
            return key, jnp.where(alive, nxt, phase), elapsed + jnp.where(alive, hold, 0)

        start = jnp.minimum(start, self.phases - 1)
        _, _, total = jax.lax.while_loop(
            lambda s: jnp.any(s[1] < self.phases), step, (key, start, jnp.zeros(size, dtype))
        )
        return total.reshape(shape)


def _expected(T: Array, exits: Array, reward: Array) -> Array:
    """(-T)^-1 reward: expected reward until absorption, by phase; entrywise accurate for reward >= 0."""
    return eliminate(T, exits, reward[:, None])[0][:, 0]


def _check(alpha: np.ndarray, T: np.ndarray) -> None:
    eps = 64 * float(np.finfo(T.dtype).eps)
    require(
        alpha.ndim == 1 and T.shape == (alpha.size, alpha.size) and alpha.size > 0,
        "alpha, T",
        f"shapes {alpha.shape}, {T.shape}",
        "one probability and one row of T for each phase: (p,) and (p, p)",
    )
    require(
        bool(np.all(np.isfinite(alpha)) and np.all(alpha >= 0) and abs(alpha.sum() - 1) <= eps),
        "alpha",
        alpha.tolist(),
        "a probability vector: entries >= 0 that sum to 1; divide by the sum",
    )
    off = T - np.diag(np.diag(T))
    exits = -T.sum(axis=1)
    require(
        bool(np.all(np.isfinite(T)) and np.all(off >= 0)),
        "T",
        T.tolist(),
        "finite with off-diagonal rates >= 0 (rates, not means)",
    )
    require(
        bool(np.all(exits >= -eps * np.abs(T).max(axis=1)) and np.all(np.diag(T) < 0)),
        "T",
        T.tolist(),
        "a sub-generator: negative diagonal, row sums <= 0; the diagonal must cover the rates of its row",
    )
    reach = exits > eps * np.abs(T).max(axis=1)
    for _ in range(alpha.size):
        reach = reach | ((off > 0) @ reach)
    require(
        bool(np.all(reach)),
        "T",
        T.tolist(),
        "absorption from every phase: a phase that is never left needs an exit rate",
    )


def exponential(rate: Any) -> PH:
    """The exponential distribution with the given rate > 0: PH([1], [[-rate]])."""
    rate = _positive("rate", as_real(rate))
    return PH(jnp.ones((1,), rate.dtype), -rate.reshape(1, 1))


def erlang(order: int, rate: Any) -> PH:
    """Erlang: the sum of ``order`` exponentials, each of the given rate (mean order / rate, SCV 1 / order)."""
    order = _whole("order", order)
    rate = _positive("rate", as_real(rate))
    shift = jnp.eye(order, k=1, dtype=rate.dtype) - jnp.eye(order, dtype=rate.dtype)
    return PH(jnp.zeros((order,), rate.dtype).at[0].set(1), rate * shift)


def hyperexponential(probabilities: Any, rates: Any) -> PH:
    """A mixture of exponentials: with probability p_i the rate is rates_i; both of shape (phases,)."""
    rates = _positive("rates", as_real(rates))
    return PH(as_real(probabilities, like=rates), -jnp.diag(rates))


def coxian(rates: Any, continue_probabilities: Any) -> PH:
    """Coxian: phases in sequence with ``rates`` (p,); after phase i the next begins with probability c_i, (p-1,)."""
    rates = _positive("rates", as_real(rates))
    go_on = as_real(continue_probabilities, like=rates)
    require(
        go_on.shape == (rates.shape[0] - 1,),
        "continue_probabilities",
        f"shape {go_on.shape}",
        f"one probability fewer than rates: shape ({rates.shape[0] - 1},)",
    )
    if concrete(go_on):
        require(
            bool(jnp.all((go_on >= 0) & (go_on <= 1))),
            "continue_probabilities",
            np.asarray(go_on).tolist(),
            "in [0, 1]",
        )
    T = -jnp.diag(rates) + jnp.diag(rates[:-1] * go_on, k=1)
    return PH(jnp.zeros_like(rates).at[0].set(1), T)


def hyperexponential_balanced(mean: Any, scv: Any) -> PH:
    """H2 with a given mean and SCV >= 1 whose two phases carry equal shares of the mean (balanced means).

    p = (1 + sqrt((c-1)/(c+1)))/2, rates 2p/mean and 2(1-p)/mean, with 1-p formed without cancellation. The derivative
    in the SCV is infinite at SCV = 1, where the two phases merge; :func:`coxian_two_moments` is smooth there.
    """
    mean = _positive("mean", as_real(mean))
    scv = _least("scv", as_real(scv, like=mean), 1.0, "use erlang_mixture or coxian_two_moments below 1")
    root = jnp.sqrt((scv - 1) / (scv + 1))
    small = 1 / ((scv + 1) * (1 + root))  # = (1 - root)/2, since 1 - root^2 = 2/(c+1)
    p = jnp.stack([1 - small, small])
    return PH(p, -jnp.diag(2 * p / mean))


def hyperexponential_three_moments(mean: Any, scv: Any, third: Any) -> PH:
    """H2 with a given mean, SCV > 1 and third raw moment E X^3.

    With the reduced moments r_k = E X^k / k! the two phase means solve
    x^2 - x (r3 - r1 r2)/(r2 - r1^2) + (r1 r3 - r2^2)/(r2 - r1^2) = 0.
    Feasible where r2 > r1^2 (SCV > 1) and r1 r3 > r2^2, that is E X^3 > 3/2 mean^3 (1 + SCV)^2.
    """
    mean = _positive("mean", as_real(mean))
    scv = as_real(scv, like=mean)
    third = as_real(third, like=mean)
    if concrete(mean, scv, third):
        require(float(scv) > 1, "scv", float(scv), "> 1; use erlang_mixture or coxian_two_moments below")
        least = 1.5 * float(mean) ** 3 * (1 + float(scv)) ** 2
        require(
            float(third) > least, "third", float(third), f"> 3/2 mean^3 (1 + scv)^2 = {least:g} for these two moments"
        )
    r2 = (1 + scv) / 2  # in units of the mean
    r3 = third / (6 * mean**3)
    excess = (scv - 1) / 2
    slope = (r3 - 3 * r2 + 2) / excess  # the roots are 1 + a and 1 - b with a - b = slope, a b = excess
    larger = (jnp.abs(slope) + jnp.sqrt(slope**2 + 4 * excess)) / 2
    a, b = (jnp.where(slope > 0, x, y) for x, y in ((larger, excess / larger), (excess / larger, larger)))
    large = 1 + a
    small = (r3 - r2**2) / (excess * large)
    p = jnp.stack([a, b]) / (a + b)
    return PH(p, -jnp.diag(1 / (mean * jnp.stack([small, large]))))


def coxian_two_moments(mean: Any, scv: Any) -> PH:
    """Cox-2 with a given mean and SCV >= 1/2, smooth through SCV = 1.

    Rates 2/mean and 1/(mean SCV); the second phase begins with probability 1/(2 SCV).
    """
    mean = _positive("mean", as_real(mean))
    scv = _least("scv", as_real(scv, like=mean), 0.5, "use erlang_mixture below 1/2")
    return coxian(jnp.stack([2 / mean, 1 / (mean * scv)]), (1 / (2 * scv)).reshape(1))


def erlang_mixture(mean: Any, scv: Any, order: int | None = None) -> PH:
    """A mixture of Erlang(order-1) and Erlang(order) of one rate, with a given mean and SCV in [1/order, 1/(order-1)].

    ``order`` is ceil(1/scv) unless given (it must be given for a traced SCV, since it is the number of phases).
    p = (order c - sqrt(order (1 - (order-1) c)))/(1+c) is the weight of the shorter one, rate (order - p)/mean. The
    derivative in the SCV is infinite at its upper end 1/(order-1).
    """
    mean = _positive("mean", as_real(mean))
    scv = as_real(scv, like=mean)
    if order is None:
        require(concrete(scv), "order", None, "needed when scv is traced: it is the number of phases")
        order = max(2, math.ceil(1 / float(scv) * (1 - 1e-12)))
    order = _whole("order", order, least=2)
    if concrete(scv):
        low, high = 1 / order, 1 / (order - 1)
        require(
            low * (1 - 1e-12) <= float(scv) <= high * (1 + 1e-12),
            "scv",
            float(scv),
            f"in [{low:g}, {high:g}] for order {order}",
        )
    root = jnp.sqrt(jnp.maximum(order * (1 - (order - 1) * scv), 0))
    p = jnp.clip((order * scv - root) / (1 + scv), 0, 1)
    base = erlang(order, (order - p) / mean)
    start = jnp.zeros((order,), base.T.dtype).at[0].set(1 - p).at[1].set(p)
    return PH(start, base.T)


def from_moments(mean: Any, scv: Any, third: Any = None) -> PH:
    """A phase-type distribution with a given mean, SCV and (for SCV > 1) third moment; SCV must be concrete.

    SCV < 1: :func:`erlang_mixture`; SCV = 1: :func:`exponential`; SCV > 1: H2 with balanced means, or with the third
    moment.

    >>> float(from_moments(2.0, 0.3).scv())  # doctest: +ELLIPSIS
    0.3...
    """
    require(
        concrete(as_real(scv)),
        "scv",
        "a traced value",
        "concrete: it decides the structure; use coxian_two_moments inside jit",
    )
    value = float(as_real(scv))
    require(value > 0 and math.isfinite(value), "scv", value, "positive and finite")
    if third is not None:
        return hyperexponential_three_moments(mean, scv, third)
    if value == 1:
        return exponential(1 / _positive("mean", as_real(mean)))
    return hyperexponential_balanced(mean, scv) if value > 1 else erlang_mixture(mean, scv)


def _positive(name: str, value: Array) -> Array:
    if concrete(value):
        require(
            bool(jnp.all((value > 0) & jnp.isfinite(value))), name, np.asarray(value).tolist(), "positive and finite"
        )
    return value


def _least(name: str, value: Array, least: float, remedy: str) -> Array:
    if concrete(value):
        require(
            bool(jnp.all((value >= least) & jnp.isfinite(value))),
            name,
            np.asarray(value).tolist(),
            f">= {least:g}; {remedy}",
        )
    return value


def _whole(name: str, value: int, least: int = 1) -> int:
    require(isinstance(value, int | np.integer) and value >= least, name, value, f"a whole number >= {least}")
    return int(value)


__all__: Sequence[str] = [
    "PH",
    "coxian",
    "coxian_two_moments",
    "erlang",
    "erlang_mixture",
    "exponential",
    "from_moments",
    "hyperexponential",
    "hyperexponential_balanced",
    "hyperexponential_three_moments",
]
