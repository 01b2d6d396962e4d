"""The stalling buffer from a log: how many customers waited when slow servers were started.

Under the rule of the stalling queue an arrival goes straight to a slow server exactly if all fast ones are busy and K
customers wait. So each slow service that begins at its customer's arrival shows K itself; and each customer who waits
although a slow server is free shows a lower bound, the number then waiting, himself included. The likelihood of K is
flat on what agrees with the log and 0 elsewhere: K is read off, or bounded from below, or the log follows another rule.
"""

from dataclasses import dataclass

import numpy as np

from hetjax.fit.log_file import Log


@dataclass(frozen=True)
class BufferFit:
    """``K``: the buffer, or None where the log does not say. ``at_least``: its lower bound. ``starts``: slow services
    begun at arrival, each of which showed ``K``. ``words``: what this rests on."""

    K: int | None
    at_least: int
    starts: int
    words: str


def busy_at_once(begun: np.ndarray, ended: np.ndarray) -> int:
    """The most services (sorted starts and ends) at one time; a server that is handed over is busy once.

    >>> busy_at_once(np.asarray([0.0, 1.0, 2.0]), np.asarray([2.0, 3.0, 4.0]))
    2
    """
    return int(np.max(np.arange(1, len(begun) + 1) - np.searchsorted(ended, begun, side="right"), initial=0))


def fit_buffer(log: Log, slow: str, slow_servers: int | None = None) -> BufferFit:
    """The buffer of a log with start and departure, ``slow`` the class of its slow servers.

    ``slow_servers``: how many there are; by default as many as were busy at once. The log must hold everybody who is
    in the system in its time: begin it with an empty one. Customers with a start equal to their arrival did not wait.
    O(customers log customers).

    >>> log = Log.from_arrays([0, 1, 2, 3], start=[0, 5, 2, 9], departure=[5, 9, 7, 12], server=["a", "a", "b", "a"])
    >>> fit_buffer(log, "b").K
    1
    """
    assert log.start is not None and log.departure is not None
    is_slow = log.server == slow
    begun, ended = np.sort(log.start[is_slow]), np.sort(log.departure[is_slow])

    def before(instants: np.ndarray) -> np.ndarray:
        return np.searchsorted(instants, log.arrival, side="left")

    waiting = before(np.sort(log.arrival)) - before(np.sort(log.start))
    busy = before(begun) - before(ended)
    known = slow_servers is not None
    at_once = busy_at_once(begun, ended)
    servers = slow_servers if slow_servers is not None else at_once
    stalled = (log.start > log.arrival) & (busy < servers)
    bound = int(np.max(waiting[stalled] + 1, initial=0))
    shown = waiting[is_slow & (log.start == log.arrival)]
    if servers < at_once:
        raise ValueError(f"slow_servers = {slow_servers}: {at_once} of class {slow!r} are busy at once; give as many")
    assumed = "" if known else f" (taking the number of slow servers for {servers}, as many as were busy at once)"
    if not len(shown):
        between = np.isin(log.start[is_slow], log.arrival).any()
        why = ("the log does not follow the rule of a stalling buffer: slow services began at the arrival of another"
               " customer" if between else "not identified: no slow service began at an arrival")
        return BufferFit(None, bound, 0, f"{why}; K >= {bound}{assumed}")
    least, most = int(shown.min()), int(shown.max())
    if least != most or bound > least:
        return BufferFit(None, bound, len(shown), "the log does not follow the rule of a stalling buffer: slow services"
                         f" began at arrivals with {least} to {most} customers waiting, while up to {bound} waited"
                         f" beside a free slow server{assumed}")
    return BufferFit(least, bound, len(shown), f"identified: {len(shown)} slow services began at an arrival, all with"
                     f" {least} customers waiting{assumed}")
