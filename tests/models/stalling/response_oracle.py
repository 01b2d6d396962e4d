"""The law of the response time by other routes: an absorbing chain, incomplete gamma functions, simulation."""

import heapq
from itertools import count

import mpmath
import numpy as np
from mpmath import mpf
from stalling_oracle import Oracle


def weights(q, r, K, M, m, n):
    """(below, R_m, P, h_0) un-normalised with R_m = 1, real K and M."""
    b = q * m
    below, term = mpf(0), mpf(1)
    for l in range(m):
        below += term
        term *= b / (l + 1)
    h, oracle = mpf(1), Oracle(q, r, K, M, m, n)
    for j in range(n, 0, -1):
        v, _ = oracle.climb(j / r, b, K, False)
        h = h * v / b + mpmath.binomial(n, j - 1)
    return below / term, mpf(1), q**K / h, h


def chain_law(q, r, K, M, m, n, t, kind="response", server="any"):
    """(tail, density) for whole K and M: the chain that an accepted customer runs through, by matrix exponential."""
    q, r, t = mpf(q), mpf(r), mpf(t)
    below, _, P, h = weights(q, r, mpf(K), mpf(M), m, n)
    b, mu = q * m, 1 / r
    nu = m + n * mu
    size = 2 + K + 2 * M  # fast service, slow service, K places to go, M places of the line for either end
    fast, slow, stage, line, line_slow = 0, 1, 2, 2 + K, 2 + K + M
    T, start = mpmath.zeros(size), mpmath.zeros(1, size)
    T[fast, fast], T[slow, slow] = -1, -mu
    for k in range(K):
        T[stage + k, stage + k] = -m
        T[stage + k, stage + k - 1 if k else fast] += m
        start[stage + k] += q**k
    for w in range(M):
        for first, after in ((line, stage + K - 1 if K else fast), (line_slow, slow)):
            T[first + w, first + w] = -nu
            T[first + w, first + w - 1 if w else after] += nu
        weight = P * (b / nu)**w
        start[line + w] += weight * m / nu
        start[line_slow + w] += weight * n * mu / nu
    start[fast] += below
    start[slow] += P * (h - 1)
    ends_fast = [i for i in range(size) if i in (fast, *range(stage, stage + K), *range(line, line + M))]
    keep = {"any": set(range(size)), "fast": set(ends_fast), "slow": set(range(size)) - set(ends_fast)}[server]
    total = sum(start[i] for i in keep)
    for i in range(size):
        start[i] = start[i] / total if i in keep else mpf(0)
    if kind == "waiting":
        for i in (fast, slow):
            start[i] = mpf(0)
            for j in range(size):
                T[i, j] = mpf(0)
    alive = start * mpmath.expm(T * t)
    served = [i for i in range(size) if kind == "response" or i not in (fast, slow)]
    tail = sum(alive[i] for i in served)
    density = -sum(alive[i] * sum(T[i, j] for j in served) for i in served)
    return tail, density


def upper(a, x):
    """Q(a, x), 0 at a = 0."""
    return mpmath.gammainc(a, x, regularized=True) if a else mpf(0)


def queue_tails(t, gap, rate, up, places, service):
    """P(X > t), P(X <= t < X + Exp(service)) and the density rate e^{-gap u} Q(places, up u) of X."""
    waiting = rate / gap * (mpmath.exp(-gap * t) * upper(places, up * t)
                            - (up / rate)**places * upper(places, rate * t))
    a, spare = gap - service, rate - service
    lower = (up / spare)**places * (1 - upper(places, spare * t)) if places else mpf(1)
    served = rate / a * mpmath.exp(-service * t) * (1 - mpmath.exp(-a * t) * upper(places, up * t) - lower)
    return waiting, served, rate * mpmath.exp(-gap * t) * upper(places, up * t)


def after_stage(t, gap, rate, up, places, shape, stage_rate, service):
    """P(X > t), P(X <= t < X + Exp) with a Gamma(shape, stage_rate) time after the queue, by quadrature; shape >= 1."""
    middle, spread = shape / stage_rate, mpmath.sqrt(shape) / stage_rate
    points = sorted({mpf(0), t, *(x for x in (middle + k * spread for k in (-12, -5, -2, 0, 2, 5, 12)) if 0 < x < t)})

    def gamma(u):
        return stage_rate * (stage_rate * u)**(shape - 1) * mpmath.exp(-stage_rate * u) / mpmath.gamma(shape)

    whole = queue_tails(mpf(0), gap, rate, up, places, service)[0]
    waiting = whole * upper(shape, stage_rate * t) + mpmath.quad(
        lambda u: gamma(u) * queue_tails(t - u, gap, rate, up, places, service)[0], points)
    return waiting, mpmath.quad(lambda u: gamma(u) * queue_tails(t - u, gap, rate, up, places, service)[1], points)


def simulate(q, r, K, M, m, n, customers, seed):
    """(waiting time, service time, served by a slow server) of accepted customers after a warm-up, event by event."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1 / (q * m), customers)
    ones, order = rng.exponential(1.0, customers), count()
    fast, slow = m, n
    buffer, line, events, out = [], [], [], []
    now = 0.0

    def serve(who, arrived, is_slow):
        length = ones[who] * (r if is_slow else 1.0)
        out.append((who, now - arrived, length, is_slow))
        heapq.heappush(events, (now + length, next(order), is_slow))

    clock = 0.0
    for who in range(customers):
        clock += gaps[who]
        while events and events[0][0] <= clock:
            now, _, is_slow = heapq.heappop(events)
            if is_slow:
                if line:
                    serve(*line.pop(0), True)
                else:
                    slow += 1
            elif buffer:
                serve(*buffer.pop(0), False)
                if line:
                    buffer.append(line.pop(0))
            elif line:
                serve(*line.pop(0), False)
            else:
                fast += 1
        now = clock
        if fast:
            fast -= 1
            serve(who, now, False)
        elif len(buffer) < K:
            buffer.append((who, now))
        elif slow:
            slow -= 1
            serve(who, now, True)
        elif len(line) < M:
            line.append((who, now))
    kept = [row for row in out if row[0] > customers // 20]
    return tuple(np.array([row[i] for row in kept]) for i in (1, 2, 3))
