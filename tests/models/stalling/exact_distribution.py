"""Oracles of the stalling queue's state law: balance equations in exact rationals, the paper's sums in many digits.

``balance_solution`` knows only the transitions (the system in words); ``alternating_sums`` evaluates equation (6) and
Table 1 with enough digits for its cancellation. They share no formula.
"""

from fractions import Fraction
from math import comb

import mpmath


def transitions(q, r, m, n, K, M):
    """{(state, state'): rate} of the system in words, states (i, j, k), unit 1/mu1; exact for Fractions."""
    rates = {}
    b = q * m

    def move(state, target, rate):
        if rate:
            rates[state, target] = rates.get((state, target), 0) + rate

    def visit(i, j, k):
        state = (i, j, k)
        line = max(k - K, 0)
        if i < m:
            move(state, (i + 1, j, k), b)
        elif k < K:
            move(state, (i, j, k + 1), b)
        elif j < n:
            move(state, (i, j + 1, k), b)
        elif line < M:
            move(state, (i, j, k + 1), b)
        if k:  # the head of the buffer, or of the line through the buffer, takes the free fast server
            move(state, (i, j, k - 1), i * r / r)
        else:
            move(state, (i - 1, j, k), i * r / r)
        move(state, (i, j, k - 1) if line else (i, j - 1, k), j / r)

    for j in range(n + 1):
        for i in range(m):
            visit(i, j, 0)
        for k in range(K + 1):
            visit(m, j, k)
    for k in range(K + 1, K + M + 1):
        visit(m, n, k)
    return rates


def balance_solution(q, r, K, M, m, n, number=Fraction):
    """{(i, j, k): P} in exact rationals (or ``number``s), by elimination without subtraction (GTH)."""
    q, r = number(q), number(r)
    rates = transitions(q, r, m, n, K, M)
    states = sorted({s for pair in rates for s in pair}, key=lambda s: (s[0] + s[2], s[1]))
    place = {s: x for x, s in enumerate(states)}
    size = len(states)
    rows = [dict() for _ in range(size)]
    for (source, target), rate in rates.items():
        rows[place[source]][place[target]] = rate
    for x in range(size - 1, 0, -1):
        total = sum(rate for y, rate in rows[x].items() if 0 <= y < x)
        for z in range(x):
            into = rows[z].pop(x, None)
            if into is None:
                continue
            rows[z][-1 - x] = into / total  # kept for the way back
            for y, rate in rows[x].items():
                if 0 <= y < x and y != z:
                    rows[z][y] = rows[z].get(y, 0) + into / total * rate
    weights = [number(1)]
    for x in range(1, size):
        weights.append(sum(weights[z] * rows[z].get(-1 - x, 0) for z in range(x)))
    norm = sum(weights)
    return {s: w / norm for s, w in zip(states, weights, strict=True)}


def alternating_sums(q, r, K, M, m, n, digits):
    """p_full, p_empty, p_stuck, p_slow by the paper's sums with ``digits`` digits; K to 1e7.

    The levels of the buffer are passed with the two roots of A's recursion. p_slow is the sum of its positive parts'
    alternating forms, not 1 - ....
    """
    with mpmath.workdps(digits):
        q, r = mpmath.mpf(q), mpmath.mpf(r)
        b = q * m
        top, growth = [], []
        for j in range(n + 1):
            a = j / r
            low, high = mpmath.mpf(1), b + a
            for i in range(1, m):
                low, high = high, ((b + a + i) * high - b * low) / (i + 1)
            s = b + a + m
            D = mpmath.sqrt((a + m - b)**2 + 4 * a * b)
            if j == 0:  # the level marginals themselves: the recursion would cancel
                last = b**m / mpmath.factorial(m) * q**K
                after = last * q
            else:
                x1, x2 = (s + D) / (2 * m), 2 * b / (s + D)
                alpha = (high - x2 * low) * x1 / (x1 - x2)
                last = alpha * x1**K + (high - alpha) * x2**K
                after = alpha * x1**(K + 1) + (high - alpha) * x2**(K + 1)
            top.append(last)
            growth.append(m * after / last - b)
        h = [mpmath.mpf(1)] * (n + 1)
        for j in range(n, 0, -1):
            h[j - 1] = h[j] * growth[j] / b + comb(n, j - 1)
        rho = q / (1 + n / (m * r))
        S1 = M if rho == 1 else (rho / (1 - rho) if mpmath.isinf(M) else (rho - rho**(M + 1)) / (1 - rho))
        p1 = b**m / mpmath.factorial(m) / sum(b**s / mpmath.factorial(s) for s in range(m))
        C1 = K + 1 if q == 1 else (1 - q**(K + 1)) / (1 - q)
        full = q**K * p1 / (h[0] * (1 + p1 * C1) + q**K * p1 * S1)
        return {
            "p_full": full,
            "p_empty": full * sum((-1)**s * h[s] / top[s] for s in range(n + 1)),
            "p_stuck": full * sum((-1)**(s - 1) * h[s] / top[s] for s in range(1, n + 1)),
            "p_slow": full * (sum((-1)**(s - 1) * h[s] * growth[s] * r / s for s in range(1, n + 1)) + S1 * (n > 0)),
        }
