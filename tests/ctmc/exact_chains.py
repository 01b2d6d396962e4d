"""Independent references: exact rationals for dense chains, subtraction-free multi-precision for long level chains."""

from fractions import Fraction

import mpmath
import numpy as np


def exact_stationary(Q):
    """The stationary law of an irreducible chain in Fractions (state 0 last to be eliminated)."""
    n = len(Q)
    rate = [[Fraction(x) if isinstance(x, (int, Fraction)) else Fraction(float(x)) for x in row] for row in Q]
    pivots = {}
    for k in range(n - 1, 0, -1):
        pivots[k] = sum(rate[k][:k])
        for i in range(k):
            if rate[i][k]:
                for j in range(k):
                    rate[i][j] += rate[i][k] * rate[k][j] / pivots[k]
    law = [Fraction(1)]
    for k in range(1, n):
        law.append(sum(law[j] * rate[j][k] for j in range(k)) / pivots[k])
    return [p / sum(law) for p in law]


def exact_derivative(Q, dQ):
    """d pi for the exact rational dQ: the linear system dpi Q = -pi dQ, dpi 1 = 0, by Gauss-Jordan in Fractions."""
    n = len(Q)
    pi = exact_stationary(Q)
    q = [[Fraction(float(x)) for x in row] for row in Q]
    d = [[Fraction(float(x)) for x in row] for row in dQ]
    for m in (q, d):
        for i in range(n):
            m[i][i] = -sum(m[i][j] for j in range(n) if j != i)
    rows = [[q[i][j] for i in range(n)] + [-sum(pi[i] * d[i][j] for i in range(n))] for j in range(n - 1)]
    rows.append([Fraction(1)] * n + [Fraction(0)])
    for c in range(n):
        p = next(r for r in range(c, n) if rows[r][c])
        rows[c], rows[p] = rows[p], rows[c]
        rows[c] = [x / rows[c][c] for x in rows[c]]
        for r in range(n):
            if r != c and rows[r][c]:
                rows[r] = [x - rows[r][c] * y for x, y in zip(rows[r], rows[c], strict=True)]
    return np.array([float(row[-1]) for row in rows])


def precise_levels(up, local, down, digits=30):
    """log pi (L, S) by eliminating single states from the top in multi-precision (any exponent; no matrices)."""
    L, S = np.asarray(local).shape[:2]
    with mpmath.workdps(digits):
        def block(b, l):
            b = np.asarray(b, float)
            square = b[l] if b.ndim == 3 else np.diag(b[l])
            return [[mpmath.mpf(x) for x in row] for row in square]

        inside = block(local, L - 1)
        columns, pivots = {}, {}
        for l in range(L - 1, -1, -1):
            drop = block(down, l) if l else [[mpmath.mpf(0)] * S for _ in range(S)]
            climb = block(up, l - 1) if l else None
            below = block(local, l - 1) if l else None
            for k in range(S - 1, -1, -1):
                if l == 0 and k == 0:
                    break
                s = sum(inside[k][:k]) + sum(drop[k])
                pivots[l, k] = s
                columns[l, k] = ([row[k] for row in climb] if l else [], [inside[i][k] for i in range(k)])
                for i in range(k):
                    f = inside[i][k] / s
                    for j in range(k):
                        inside[i][j] += f * inside[k][j]
                    for j in range(S):
                        drop[i][j] += f * drop[k][j]
                if l:
                    for i in range(S):
                        f = climb[i][k] / s
                        for j in range(k):
                            climb[i][j] += f * inside[k][j]
                        for j in range(S):
                            below[i][j] += f * drop[k][j]
            if l:
                inside = below
        law = {(0, 0): mpmath.mpf(1)}
        for l in range(L):
            for k in range(S):
                if l == k == 0:
                    continue
                lower, same = columns[l, k]
                total = sum((law[l - 1, i] * c for i, c in enumerate(lower)), mpmath.mpf(0))
                law[l, k] = (total + sum(law[l, i] * c for i, c in enumerate(same))) / pivots[l, k]
        norm = sum(law.values())
        return np.array([[float(mpmath.log(law[l, k] / norm)) for k in range(S)] for l in range(L)])
