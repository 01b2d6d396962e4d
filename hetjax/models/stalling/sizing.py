"""The cheapest park of fast and slow servers and buffer that keeps a response-time or loss target, by comparing all.

Costs are c1 m + c2 n + c3 K. Pairs (m, n) are taken in the order of c1 m + c2 n, each with all buffers 0..max_buffer at
once, until that sum alone exceeds the cheapest park found: every park of the box that could be cheaper was evaluated,
no property of the metrics is assumed. (Neither the response time nor the loss is monotone in K.) Costs are added as
exact fractions of the decimal numbers given, so that ties are ties.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from hetjax.models.registry import evaluate
from hetjax.models.stalling.model import MODEL

_BATCH = 4096  # parks evaluated at once
_NARROW = 1e-9  # a target met or missed by less than this share may be decided by rounding
_MOST = 512


class LeastServers(NamedTuple):
    """What :func:`least_servers` found.

    ``m, n, K``: the cheapest park; of several the one with most room to its targets. ``cost``: its cost. ``values``:
    its metrics. ``ties``: all parks (m, n, K) of that cost which keep the targets, itself included. ``certified``: no
    park outside the box is cheaper, and none was decided by rounding; ``certificate`` says so in words, or why not.
    ``compared``: parks evaluated.
    """

    m: int
    n: int
    K: int
    cost: float
    values: dict[str, float]
    ties: tuple[tuple[int, int, int], ...]
    certified: bool
    certificate: str
    compared: int


def least_servers(arrival_rate: float, mu1: float, mu2: float, targets: Mapping[str, float], *, cost_fast: float = 1,
                  cost_slow: float = 1, cost_place: float = 0, M: float = math.inf, max_fast: int = 16,
                  max_slow: int = 16, max_buffer: int = 64) -> LeastServers:
    """The cheapest (m, n, K) of the stalling queue whose metrics stay at or below ``targets``, exactly.

    Args:
      arrival_rate: Poisson arrivals per unit time.
      mu1, mu2: rates of a fast and of a slow server.
      targets: upper bounds by the names of the model ``stalling``, like {"mean_response_time": 2.0} or
        {"p_loss": 1e-3}; all must be kept.
      cost_fast, cost_slow, cost_place: of a fast server, a slow server and a place of the stalling buffer.
      M: places in the waiting line.
      max_fast, max_slow, max_buffer: the box that is searched: m in 1..max_fast, n in 0..max_slow, K in 0..max_buffer.

    ValueError for numbers outside their domain, and where no park of the box keeps the targets (it names the nearest).
    Cost: at most max_fast (max_slow + 1)(max_buffer + 1) evaluations of O(m n) each. On the host.

    With ``cost_place`` = 0 buffers beyond the box might let a cheaper pair of numbers keep the targets; for an endless
    line and a bound on mean_response_time or mean_number that is excluded by the certificate of
    :func:`hetjax.stalling.optimal_buffer`, where it is not, ``certified`` is False and says why.

    >>> from hetjax.models.stalling.sizing import least_servers
    >>> park = least_servers(4.0, 1.0, 0.25, {"p_loss": 0.05}, cost_slow=0.1, cost_place=0.02, M=2, max_fast=6,
    ...                      max_slow=4, max_buffer=30)
    >>> (park.m, park.n, park.K), park.cost, park.ties
    ((4, 1, 10), 4.3, ((4, 0, 15), (4, 1, 10)))
    """
    costs = [_cost(name, value, zero) for name, value, zero in (
        ("cost_fast", cost_fast, False), ("cost_slow", cost_slow, False), ("cost_place", cost_place, True))]
    for name, limit, least in (("max_fast", max_fast, 1), ("max_slow", max_slow, 0), ("max_buffer", max_buffer, 0)):
        if not isinstance(limit, int) or not least <= limit <= (_MOST if least or name == "max_slow" else 10**6):
            raise ValueError(f"{name} = {limit!r} is no whole number from {least} on; give the largest to look at")
    for name, rate in (("arrival_rate", arrival_rate), ("mu1", mu1), ("mu2", mu2)):
        if not 0 < rate < math.inf:
            raise ValueError(f"{name} = {rate!r} is outside its domain (0, inf); give a positive rate")
    if not targets:
        raise ValueError("targets = {} asks for nothing; give upper bounds like {'mean_response_time': 2.0}")
    for name, bound in targets.items():
        MODEL.metric(name)
        if not 0 < bound < math.inf:
            raise ValueError(f"targets[{name!r}] = {bound!r} is outside its domain (0, inf); give an upper bound > 0")
    search = _Search(arrival_rate, mu1, mu2, dict(targets), M, max_fast, max_slow, max_buffer)
    return search.cheapest(costs[0], costs[1], costs[2])


def _cost(name: str, value: float, zero: bool) -> Fraction:
    if not (0 < value < math.inf or (zero and value == 0)):
        raise ValueError(f"{name} = {value!r} is outside its domain {'[0' if zero else '(0'}, inf); give a cost")
    return Fraction(str(value))


class _Search:
    def __init__(self, arrival_rate: float, mu1: float, mu2: float, targets: dict[str, float], M: float,
                 max_fast: int, max_slow: int, max_buffer: int) -> None:
        self.rates, self.targets, self.M = (arrival_rate, mu1, mu2), targets, M
        self.box = (max_fast, max_slow, max_buffer)
        self.bounds = {"max_m": max_fast, "max_n": max(max_slow, 1)}

    def _axes(self, m: np.ndarray, n: np.ndarray) -> dict[str, Any]:
        arrival_rate, mu1, mu2 = self.rates
        return {"q": arrival_rate / (m * mu1), "r": mu1 / mu2, "M": self.M, "m": m, "n": n} | self.bounds

    def _values(self, m: np.ndarray, n: np.ndarray, K: np.ndarray) -> dict[str, np.ndarray]:
        """The metrics of the targets at parks, in batches of one size; NaN without steady state."""
        parts = []
        for first in range(0, len(m), _BATCH):
            chosen = [np.resize(x[first:first + _BATCH], _BATCH) for x in (m, n, K)]
            found = evaluate(MODEL, **self._axes(chosen[0], chosen[1]), K=chosen[2].astype(float), mu1=self.rates[1],
                             metrics=list(self.targets))
            parts.append({name: np.asarray(found[name], float) for name in self.targets})
        return {name: np.concatenate([part[name] for part in parts])[:len(m)] for name in self.targets}

    def _use(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The largest share of a target that is used; infinite where there is no value."""
        used = np.max([values[name] / bound for name, bound in self.targets.items()], axis=0)
        return np.where(np.isnan(used), np.inf, used)

    def _batches(self, pairs: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        size = max(1, _BATCH // (self.box[2] + 1))
        for first in range(0, len(pairs), size):
            yield pairs[first:first + size]

    def cheapest(self, fast: Fraction, slow: Fraction, place: Fraction) -> LeastServers:
        """The search itself."""
        arrival_rate, mu1, mu2 = self.rates
        max_fast, max_slow, max_buffer = self.box
        pairs = sorted(itertools.product(range(1, max_fast + 1), range(max_slow + 1)),
                       key=lambda pair: (fast * pair[0] + slow * pair[1], pair))
        if math.isinf(self.M):  # without these no park has a steady state
            pairs = [(m, n) for m, n in pairs if m * mu1 + n * mu2 > arrival_rate]
        best: Fraction | None = None
        parks: list[tuple[Fraction, float, tuple[int, int, int]]] = []
        nearest, compared, narrow = (math.inf, (0, 0, 0)), 0, 0
        for batch in self._batches(pairs):
            if best is not None and fast * batch[0][0] + slow * batch[0][1] > best:
                break
            m, n = (np.repeat([pair[i] for pair in batch], max_buffer + 1) for i in (0, 1))
            K = np.tile(np.arange(max_buffer + 1), len(batch))
            used = self._use(self._values(m, n, K))
            compared += len(m)
            narrow += int(np.sum(np.abs(used - 1) < _NARROW))
            closest = int(np.argmin(used))
            nearest = min(nearest, (float(used[closest]), (int(m[closest]), int(n[closest]), int(K[closest]))))
            for i in np.flatnonzero(used <= 1):
                park = (int(m[i]), int(n[i]), int(K[i]))
                cost = fast * park[0] + slow * park[1] + place * park[2]
                if best is None or cost <= best:
                    best = cost
                    parks.append((cost, float(used[i]), park))
        if best is None:
            raise ValueError(self._nothing(nearest))
        ties = sorted((used, park) for cost, used, park in parks if cost == best)
        _, (m0, n0, K0) = ties[0]
        values = self._values(*(np.asarray([x]) for x in ties[0][1]))
        doubts = self._doubts(best, fast, slow, place, [pair for pair in pairs
                                                        if fast * pair[0] + slow * pair[1] < best])
        if narrow:
            doubts.append(f"{narrow} parks keep or miss a target by less than {_NARROW:g} of it: rounding may decide")
        words = "; ".join(doubts) or "every park that could be cheaper was compared or excluded"
        return LeastServers(m0, n0, K0, float(best), {name: float(x[0]) for name, x in values.items()},
                            tuple(sorted(park for _, park in ties)), not doubts, words, compared)

    def _nothing(self, nearest: tuple[float, tuple[int, int, int]]) -> str:
        used, (m, n, K) = nearest
        words = "none has a steady state" if math.isinf(used) else (
            f"nearest is m = {m}, n = {n}, K = {K} with {used:.6g} times the bound")
        return (f"targets = {self.targets} are kept by no park with m <= {self.box[0]}, n <= {self.box[1]},"
                f" K <= {self.box[2]} ({words}); raise max_fast, max_slow or max_buffer, or the bounds")

    def _doubts(self, best: Fraction, fast: Fraction, slow: Fraction, place: Fraction,
                cheaper: list[tuple[int, int]]) -> list[str]:
        """Why a park outside the box might be cheaper; empty if none can be."""
        max_fast, max_slow, max_buffer = self.box
        found = []
        if fast * (max_fast + 1) < best:
            found.append(f"parks with more than max_fast = {max_fast} fast servers may be cheaper")
        if slow * (max_slow + 1) + fast < best:
            found.append(f"parks with more than max_slow = {max_slow} slow servers may be cheaper")
        if place > 0:
            cheaper = [(m, n) for m, n in cheaper if fast * m + slow * n + place * (max_buffer + 1) < best]
        if cheaper and not self._hopeless(cheaper):
            found.append(f"buffers beyond max_buffer = {max_buffer} may let a cheaper pair of numbers keep the targets")
        return found

    def _hopeless(self, pairs: list[tuple[int, int]]) -> bool:
        """Whether the least mean number over all buffers, certified by optimal_buffer, misses a target everywhere."""
        bounds = [bound * (self.rates[0] if name == "mean_response_time" else 1)
                  for name, bound in self.targets.items() if name in ("mean_response_time", "mean_number")]
        if not bounds or not math.isinf(self.M):
            return False
        m, n = (np.asarray([pair[i] for pair in pairs]) for i in (0, 1))
        found = evaluate("stalling_buffer", **self._axes(m, n), metrics=["mean_number_at_optimum", "certified"])
        missed = np.asarray(found["mean_number_at_optimum"]) > min(bounds)
        return bool(np.all(missed & (np.asarray(found["certified"]) == 1)))
