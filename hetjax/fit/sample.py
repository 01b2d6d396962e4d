"""What a sample of times says: its rate, how sure it is, and whether it looks exponential and independent."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

SUSPICIOUS = 3.0  # standard errors
_SHAPE_AT_1_PERCENT = 1.308  # M. A. Stephens, JASA 69 (1974): D* for exponential laws of unknown mean


@dataclass(frozen=True)
class SampleFit:
    """Independent times fitted by an exponential law, and what speaks against it; rates per unit time of the log.

    Attributes:
      count: how many times.
      mean: their mean.
      rate: 1 / mean, the maximum likelihood estimate.
      standard_error: of the rate if the law is exponential, rate / sqrt(count).
      interval: a 95 % confidence interval of the rate, exact for an exponential law (chi-square).
      standard_error_any_law: of the rate for independent times of any law, rate sqrt(SCV / count).
      scv, scv_standard_error: squared coefficient of variation, by the delta method for any law.
      scv_z: how many standard errors the SCV is from that of an exponential sample of this size, whose mean
        (count - 1)/(count + 1) and variance (Greenwood's statistic) are exact.
      shape: Stephens' form of the Kolmogorov-Smirnov distance from the exponential law of this mean; above 1.308 in 1 %
        of exponential samples.
      lag1, lag1_z: autocorrelation of neighbours, and the same in its standard errors 1 / sqrt(count).
      zeros: share of times that are exactly 0.
    """

    count: int
    mean: float
    rate: float
    standard_error: float
    interval: tuple[float, float]
    standard_error_any_law: float
    scv: float
    scv_standard_error: float
    scv_z: float
    shape: float
    lag1: float
    lag1_z: float
    zeros: float

    @property
    def exponential(self) -> bool:
        """Whether nothing speaks against an exponential law (SCV within three standard errors, shape at 1 %)."""
        return abs(self.scv_z) <= SUSPICIOUS and self.shape <= _SHAPE_AT_1_PERCENT

    @property
    def independent(self) -> bool:
        """Whether neighbours are uncorrelated within three standard errors."""
        return abs(self.lag1_z) <= SUSPICIOUS

    def remarks(self, what: str, law: str) -> list[str]:
        """What speaks against ``law``, in words; empty if nothing does."""
        found = []
        if self.zeros > 0.01:
            found.append(f"{100 * self.zeros:.1f} % of the {what} are 0: the clock of the log is too coarse, or"
                         f" customers come in groups; no {law} law fits")
        if abs(self.scv_z) > SUSPICIOUS:
            found.append(f"the {what} vary {'more' if self.scv_z > 0 else 'less'} than {law} ones: SCV {self.scv:.3g},"
                         f" {abs(self.scv_z):.1f} standard errors from 1; take law(), not the rate alone")
        elif self.shape > _SHAPE_AT_1_PERCENT:
            found.append(f"the {what} are not {law}, whatever their SCV of {self.scv:.3g} says: shape"
                         f" {self.shape:.2f} is above {_SHAPE_AT_1_PERCENT} (1 % level)")
        if not self.independent:
            found.append(f"neighbouring {what} are correlated ({self.lag1:+.3f}, {abs(self.lag1_z):.1f} standard"
                         " errors): standard errors here are wrong, and no renewal law fits")
        return found

    def law(self) -> Any:
        """A phase-type law with the mean and SCV of the sample: exponential where nothing speaks against that."""
        from hetjax.processes import exponential, from_moments

        return exponential(self.rate) if self.exponential else from_moments(self.mean, max(self.scv, 1 / 64))


def fit_sample(times: Any) -> SampleFit:
    """:class:`SampleFit` of times >= 0, in their order, at least 2 of them and not all 0. O(count log count).

    >>> import numpy as np
    >>> found = fit_sample(-np.log((np.arange(1000) * 0.618034 % 1)[1:]))    # quantiles of an exponential law
    >>> round(found.rate, 3), round(found.scv, 2), found.exponential
    (1.005, 0.98, True)
    """
    from scipy.special import gammaincinv

    x = np.asarray(times, float)
    n, mean = len(x), float(np.mean(x))
    if n < 2 or not mean > 0:
        raise ValueError(f"{n} times with the mean {mean:g} have no rate; give at least 2 times, not all 0")
    second = float(np.mean(x * x))
    influence = (x * x - second) / mean**2 - 2 * second * (x - mean) / mean**3
    scv = second / mean**2 - 1
    rate = 1 / mean
    deviations = x - mean
    variation = float(deviations @ deviations)
    lag1 = float(deviations[:-1] @ deviations[1:]) / variation if variation > 0 else 0.0
    expected = (n - 1) / (n + 1)
    spread = math.sqrt(4 * n * n * (n - 1) / ((n + 1) ** 2 * (n + 2) * (n + 3)))
    tails = np.exp(-np.sort(x) * rate)  # P(X > x) of the fitted law
    steps = np.arange(n + 1) / n
    low, high = gammaincinv(n, [0.025, 0.975]) * rate / n
    distance = float(max(np.max(steps[1:] - (1 - tails)), np.max((1 - tails) - steps[:-1])))
    return SampleFit(
        n, mean, rate, rate / math.sqrt(n),
        (float(low), float(high)), rate * math.sqrt(max(scv, 0) / n),
        scv, float(np.sqrt(np.mean(influence**2) / n)), (scv - expected) / spread,
        (distance - 0.2 / n) * (math.sqrt(n) + 0.26 + 0.5 / math.sqrt(n)), lag1, (lag1 + 1 / n) * math.sqrt(n),
        float(np.mean(x == 0)))
