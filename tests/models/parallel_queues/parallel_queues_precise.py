"""A node fed by a word with 40 digits: the chain of (number in the node, slow server, position), truncated where its
law has fallen below 1e-25, solved level by level from the top; and differences of it."""

import mpmath


def mean_number(rate, word, mu1, mu2, thresholds, levels=60):
    """Mean number of the node; ``thresholds`` by position, real ones start at a waiting number T with probability
    1 - (T - floor T), anew after each event. Poisson arrivals at ``rate``: word [1]."""
    b, zero = len(word), mpmath.mpf(0)

    def start(n, i):
        return min(max(n - 1 - thresholds[i] + 1, zero), mpmath.mpf(1)) if n >= 2 else zero

    def moves(n, s, i):
        """(rate, n, s, i) of all that can happen, starts of the slow server included."""
        after = [(rate, n + word[i], s, (i + 1) % b)]
        if n - s > 0:
            after.append((mu1, n - 1, s, i))
        if s:
            after.append((mu2, n - 1, 0, i))
        for speed, m, t, j in after:
            p = start(m, j) if t == 0 else zero
            yield speed * p, m, 1, j
            yield speed * (1 - p), m, t, j

    def blocks(n):
        """Rates down, inside (with the diagonal) and up from level n."""
        found = [mpmath.matrix(2 * b, 2 * b) for _ in range(3)]
        for s in (0, 1):
            for i in range(b):
                if n == 0 and s:
                    found[1][b + i, b + i] = -1  # not a state
                    continue
                for speed, m, t, j in moves(n, s, i):
                    if m <= levels:
                        found[m - n + 1][s * b + i, t * b + j] += speed
                        found[1][s * b + i, s * b + i] -= speed
        return found

    ratios, below = [], None
    for n in range(levels, 0, -1):
        down, inside, _ = blocks(n)
        up = blocks(n - 1)[2]
        ratio = -up * mpmath.inverse(inside + (below if below is not None else 0 * inside))
        ratios.append(ratio)
        below = ratio * down
    _, inside, _ = blocks(0)
    balance = (inside + below)[:b, :b].T
    for i in range(b):
        balance[0, i] = 1
    first = mpmath.lu_solve(balance, mpmath.matrix([1] + [0] * (b - 1)))
    law = mpmath.matrix(1, 2 * b)
    for i in range(b):
        law[i] = first[i]
    total, number = mpmath.fsum(law), zero
    for n, ratio in enumerate(reversed(ratios), start=1):
        law = law * ratio
        total += mpmath.fsum(law)
        number += n * mpmath.fsum(law)
    return number / total


def slopes(function, at, h="1e-12"):
    """(value, derivatives) as floats by central differences, error h^2, with 40 digits."""
    with mpmath.workdps(40):
        x, h = [mpmath.mpf(y) for y in at], mpmath.mpf(h)
        found = [(function([*x[:i], y + h, *x[i + 1:]]) - function([*x[:i], y - h, *x[i + 1:]])) / (2 * h)
                 for i, y in enumerate(x)]
        return float(function(x)), [float(y) for y in found]
