"""Rates, laws and the stalling buffer from a log of arrivals and services, with standard errors and doubts in words."""

import math
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hetjax.fit.log_file import Log
from hetjax.fit.sample import SampleFit, fit_sample
from hetjax.fit.stalling_log import BufferFit, busy_at_once, fit_buffer

LARGEST = 1e100  # of a time


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error and a 95 % interval (log-normal)."""

    value: float
    standard_error: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class LogFit:
    """What :func:`fit_log` found.

    ``interarrival``: the gaps between arrivals; ``services``: durations by class of server, slowest last. ``fast``,
    ``slow``: the two classes, where there are two. ``r``: rate of a fast over that of a slow server. ``q``: arrival
    rate over that of all fast servers, where their number was given. ``buffer``: of the stalling queue, where starts
    and departures are logged. ``remarks``: what the data speak against, or cannot tell.
    """

    interarrival: SampleFit
    services: dict[str, SampleFit]
    fast: str | None
    slow: str | None
    r: Estimate | None
    q: Estimate | None
    buffer: BufferFit | None
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, texts and lists, for JSON."""
        return asdict(self)

    def text(self) -> str:
        """A readable table and the remarks."""
        rows = [("", "count", "rate", "std. error", "95 % interval", "SCV", "lag 1")]
        for name, found in [("arrivals", self.interarrival), *((f"service {k}", v) for k, v in self.services.items())]:
            low, high = found.interval
            rows.append((name, f"{found.count}", f"{found.rate:.5g}", f"{found.standard_error:.2g}",
                         f"{low:.5g} .. {high:.5g}", f"{found.scv:.3f} ± {found.scv_standard_error:.3f}",
                         f"{found.lag1:+.3f}"))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(
            zip(row, widths, strict=True))).rstrip() for row in rows]
        for name, estimate in (("r", self.r), ("q", self.q)):
            if estimate is not None:
                low, high = estimate.interval
                lines.append(f"{name} = {estimate.value:.5g} ± {estimate.standard_error:.2g}, 95 % {low:.5g} .."
                             f" {high:.5g}")
        if self.buffer is not None:
            shown = f"K = {self.buffer.K}, " if self.buffer.K is not None else "K: "
            lines.append(shown + self.buffer.words)
        return "\n".join([*lines, *(f"note: {remark}" for remark in self.remarks)])


def fit_log(source: str | os.PathLike[str] | Log, *, slow: str | None = None, fast_servers: int | None = None,
            slow_servers: int | None = None) -> LogFit:
    """Estimates from a CSV file (see :meth:`Log.read`) or a :class:`Log`.

    Maximum likelihood for Poisson arrivals and exponential services by class of server, with exact intervals, and tests
    whether the data look like that (SCV, shape, lag-1 correlation). ``slow``: the class of the slow servers, by
    default the slower of two classes. ``fast_servers``, ``slow_servers``: how many there are. ValueError in one line
    for a log or an argument that does not fit.

    Arrivals count from the first to the last: with N of them N - 1 gaps. Services still running at the end are not in
    such a log, which biases the rate of rare long ones upwards; the bias vanishes as the log grows.

    >>> log = Log.from_arrays([0.0, 1.0, 1.5, 4.0], service=[1.0, 2.0, 0.5, 0.5])
    >>> found = fit_log(log)
    >>> found.interarrival.rate, found.services["all"].rate
    (0.75, 1.0)
    """
    log = source if isinstance(source, Log) else Log.read(source)
    _check_range(log)
    for name, count in (("fast_servers", fast_servers), ("slow_servers", slow_servers)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise ValueError(f"{name} = {count!r} is no whole number from 1 on; give the number of servers")
    interarrival = fit_sample(np.diff(log.arrival))
    remarks = interarrival.remarks("times between arrivals", "Poisson")
    services: dict[str, SampleFit] = {}
    if log.service is not None:
        for name in sorted(set(log.server.tolist())):
            times = log.service[log.server == name]
            if len(times) < 2 or not times.any():
                remarks.append(f"service {name}: {len(times)} times do not identify a rate")
            else:
                services[name] = fit_sample(times)
        services = dict(sorted(services.items(), key=lambda item: -item[1].rate))
    else:
        remarks.append("service rates are not identified: the log has no column service, nor start and departure")
    for name, found in services.items():
        remarks += [f"service {name}: {words}" for words in found.remarks("times", "exponential")]
    fast, slow = _two_classes(services, log, slow)
    r = q = buffer = None
    if fast is not None and slow is not None:
        above, below = services[fast], services[slow]
        r = _product(above.rate / below.rate, 1 / above.count, 1 / below.count)
    if fast_servers is not None:
        first = fast if fast is not None else next(iter(services), None) if len(services) == 1 else None
        if first is None:
            remarks.append("q is not identified: which class is the fast one is not known")
        else:
            _check_servers(log, first, fast_servers)
            q = _product(interarrival.rate / (fast_servers * services[first].rate), 1 / interarrival.count,
                         1 / services[first].count)
    if slow is not None and log.start is not None:
        buffer = fit_buffer(log, slow, slow_servers)
    return LogFit(interarrival, services, fast, slow, r, q, buffer, tuple(remarks))


def _check_range(log: Log) -> None:
    """ValueError for times whose differences or sums leave the range of the computer's numbers."""
    for name, times in (("arrival", log.arrival), ("service", log.service)):
        if times is not None and (bad := np.flatnonzero(np.abs(times) > LARGEST)).size:
            raise ValueError(f"column {name}: {times[bad[0]]:.3g} is outside [-{LARGEST:g}, {LARGEST:g}]; give times in"
                             " another unit")


def _check_servers(log: Log, name: str, count: int) -> None:
    """ValueError if more than ``count`` services of class ``name`` were going on at once."""
    if log.start is None or log.departure is None:
        return
    ours = log.server == name
    most = busy_at_once(np.sort(log.start[ours]), np.sort(log.departure[ours]))
    if most > count:
        raise ValueError(f"fast_servers = {count}: {most} of class {name!r} are busy at once; give as many")


def _two_classes(services: dict[str, SampleFit], log: Log, slow: str | None) -> tuple[str | None, str | None]:
    if slow is not None and slow not in set(log.server.tolist()):
        raise ValueError(f"slow = {slow!r} is no class of the log; choose from {', '.join(sorted(set(log.server)))}")
    if len(services) != 2 or (slow is not None and slow not in services):
        return None, None
    names = list(services)
    last = slow if slow is not None else names[-1]
    return next(name for name in names if name != last), last


def _product(value: float, *variances: float) -> Estimate:
    """A quotient of independent rates; ``variances`` of their logarithms, 1 / count for exponential times."""
    spread = math.sqrt(sum(variances))
    return Estimate(value, value * spread, (value * math.exp(-1.959964 * spread), value * math.exp(1.959964 * spread)))
