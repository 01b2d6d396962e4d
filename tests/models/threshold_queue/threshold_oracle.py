"""The threshold queue written down event by event and solved by a sparse factorisation: the independent route."""

import math

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve


def started(x, busy, thresholds):
    """{(x, busy): probability} after the rule; thresholds of this phase by slow server, real ones randomised."""
    idle = [j for j, b in enumerate(busy) if not b]
    waiting = max(x - 1, 0)
    if not idle or waiting == 0:
        return {(x, busy): 1.0}
    j = idle[0]
    whole = math.floor(thresholds[j])
    p = 1.0 if waiting > whole else 1 - (thresholds[j] - whole) if waiting == whole else 0.0
    found = {(x, busy): 1 - p} if p < 1 else {}
    if p:
        after = started(x - 1, (*busy[:j], True, *busy[j + 1:]), thresholds)
        for state, probability in after.items():
            found[state] = found.get(state, 0.0) + p * probability
    return found


def law(D0, D1, mu1, slow, thresholds, capacity):
    """{(x, busy, f): probability}; slow = rates of slow servers, thresholds[j][f]; arrivals at capacity are lost."""
    D0, D1 = np.asarray(D0), np.asarray(D1)
    states, todo, entries = {(0, (False,) * len(slow), 0): 0}, [(0, (False,) * len(slow), 0)], []
    while todo:
        here = todo.pop()
        x, busy, f = here

        def go(rate, x, busy, f, here=here):
            for (x2, busy2), p in started(x, busy, [t[f] for t in thresholds]).items():
                to = (x2, busy2, f)
                if to not in states:
                    states[to] = len(states)
                    todo.append(to)
                entries.append((states[here], states[to], rate * p))

        full = x + sum(busy) == capacity
        for g in range(len(D0)):
            if D1[f, g]:
                go(D1[f, g], x if full else x + 1, busy, g)
            if g != f and D0[f, g]:
                go(D0[f, g], x, busy, g)
        if x:
            go(mu1, x - 1, busy, f)
        for j, rate in enumerate(slow):
            if busy[j]:
                go(rate, x, (*busy[:j], False, *busy[j + 1:]), f)
    n = len(states)
    i, j, v = (np.array(c) for c in zip(*entries, strict=True))
    Q = coo_matrix((v, (i, j)), shape=(n, n)).tolil()
    Q.setdiag(Q.diagonal() - np.asarray(Q.sum(1)).ravel())
    A = Q.T.tolil()
    A[0] = 1.0
    p = spsolve(A.tocsc(), np.eye(n)[0])
    return dict(zip(states, p, strict=True))


def mean_number(*arguments):
    return sum(p * (x + sum(busy)) for (x, busy, _), p in law(*arguments).items())


def random_maps(rng, n, p):
    """(n, p, p) D0, D1 with rates over several orders of magnitude."""
    quiet = rng.exponential(size=(n, p, p)) * rng.choice([0.01, 1, 5], size=(n, p, p))
    D1 = rng.exponential(size=(n, p, p)) * rng.choice([0, 0.1, 3], size=(n, p, p)) + 1e-3
    quiet[:, range(p), range(p)] = 0
    D0 = quiet.copy()
    D0[:, range(p), range(p)] = -(quiet.sum(2) + D1.sum(2))
    return D0, D1


def map_rate(D0, D1):
    A = (D0 + D1).T.copy()
    A[-1] = 1
    return np.linalg.solve(A, np.eye(len(A))[-1]) @ D1.sum(1)
