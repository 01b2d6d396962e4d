"""A log of the stalling queue with an endless line, by an event loop that shares no code with the package."""

import heapq

import numpy as np


def stalling_log(seed, rate, mu1, mu2, m, n, K, customers, service=None):
    """Columns arrival, start, departure, server of all customers, from an empty system until the last one leaves.

    ``service(rng)`` draws services of mean 1; exponential by default."""
    rng = np.random.default_rng(seed)
    draw = service or (lambda rng: rng.exponential())
    arrival = np.cumsum(rng.exponential(1 / rate, customers))
    start, departure, server = np.zeros(customers), np.zeros(customers), [""] * customers
    buffer, line, busy = [], [], {"fast": 0, "slow": 0}
    events = [(t, "arrival", i) for i, t in enumerate(arrival.tolist())]
    heapq.heapify(events)

    def begin(i, t, kind):
        start[i], server[i] = t, kind
        departure[i] = t + draw(rng) / (mu1 if kind == "fast" else mu2)
        busy[kind] += 1
        heapq.heappush(events, (departure[i], kind, i))

    while events:
        t, what, i = heapq.heappop(events)
        if what == "arrival":
            if busy["fast"] < m:
                begin(i, t, "fast")
            elif len(buffer) < K:
                buffer.append(i)
            elif busy["slow"] < n:
                begin(i, t, "slow")
            else:
                line.append(i)
            continue
        busy[what] -= 1
        if what == "fast" and buffer:
            begin(buffer.pop(0), t, "fast")
            if line:
                buffer.append(line.pop(0))
        elif line:
            begin(line.pop(0), t, what)
    return {"arrival": arrival, "start": start, "departure": departure, "server": server}


def write_csv(path, columns, newline="\n"):
    """The columns as CSV with all digits."""
    rows = zip(*columns.values(), strict=True)
    path.write_text(newline.join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + newline)
    return path
