"""The stalling queue with many digits (mpmath) and in exact rationals: two routes that share nothing with the library.

:func:`exact_means` solves the balance equations of all states in fractions. :class:`Oracle` writes the textbook
expressions down plainly, with divisions by 1-q and 1-rho and the K+1 levels at the full service rate by the
eigenvalues of a 2 x 2 matrix, and pays for the cancellation with digits; its derivatives are central differences at
those digits.
"""

from fractions import Fraction

import mpmath
from mpmath import mpf

DIGITS = 110
STEP = mpf(10) ** -26


def exact_means(q, r, K, M, m, n):
    """(mean number, p_loss, mean_slow, mean_waiting, p_empty) by Gauss elimination over all states; Fractions, small
    sizes."""
    q, r = Fraction(q), Fraction(r)
    states = [(l, j, 0) for l in range(m + K + 1) for j in range(n + 1)] + [(m + K, n, w) for w in range(1, M + 1)]
    index = {state: i for i, state in enumerate(states)}
    size = len(states)
    rate = [[Fraction(0)] * size for _ in range(size)]
    for (l, j, w), i in index.items():
        moves = []
        if l < m + K:
            moves.append(((l + 1, j, 0), q * m))
        elif j < n:
            moves.append(((l, j + 1, 0), q * m))
        elif w < M:
            moves.append(((l, n, w + 1), q * m))
        if w:
            moves.append(((l, n, w - 1), m + n / r))
        else:
            moves.append(((l - 1, j, 0), Fraction(min(l, m)))) if l else None
            moves.append(((l, j - 1, 0), j / r)) if j else None
        for target, speed in moves:
            rate[i][index[target]] += speed
    for i in range(size - 1, 0, -1):  # state reduction: no subtraction either, and exact
        leave = sum(rate[i][:i])
        for k in range(i):
            rate[k][i] /= leave
            for t in range(i):
                if t != k:
                    rate[k][t] += rate[k][i] * rate[i][t]
    p = [Fraction(1)] + [Fraction(0)] * (size - 1)
    for i in range(1, size):
        p[i] = sum(p[k] * rate[k][i] for k in range(i))
    total = sum(p)
    p = [x / total for x in p]

    def mean(value):
        return sum(value(*s) * x for s, x in zip(states, p, strict=True))

    return {"mean_number": mean(lambda l, j, w: l + j + w), "mean_slow": mean(lambda l, j, w: j),
            "mean_fast": mean(lambda l, j, w: min(l, m)), "mean_stalled": mean(lambda l, j, w: max(l - m, 0)),
            "mean_waiting": mean(lambda l, j, w: w), "mean_stuck": mean(lambda l, j, w: j * (l == 0)),
            "p_loss": p[index[(m + K, n, M)]], "p_full": p[index[(m + K, n, 0)]], "p_slow_only": p[index[(0, n, 0)]],
            "p_wait": mean(lambda l, j, w: int(w > 0)), "p_fast": mean(lambda l, j, w: int(l > 0)),
            "p_stalling": mean(lambda l, j, w: int(l > m or w > 0)), "p_empty": p[0]}


def _sums(x, terms):
    """sum_{s=1}^{T} x^s and sum s x^s, continued to real T; x^T is 0 where T is infinite."""
    if x == 1:
        return terms, terms * (terms + 1) / 2
    power = mpf(0) if mpmath.isinf(terms) else x**terms
    first = x * (1 - power) / (1 - x)
    last = mpf(0) if mpmath.isinf(terms) else terms * power * x / (1 - x)
    return first, first / (1 - x) - last


class Oracle:
    """All closed-form metrics at one point with DIGITS digits; ``value(name, q=.., ..)`` re-evaluates at moved
    parameters."""

    def __init__(self, q, r, K, M, m, n, digits=DIGITS):
        self.digits = digits  # second differences where q = 1 need 160
        self.at = {"q": mpf(q), "r": mpf(r), "K": mpf(K), "M": mpf(M)}
        self.m, self.n = m, n
        self.kept = {}

    def value(self, name, **moves):
        key = tuple(sorted(moves.items()))
        with mpmath.workdps(self.digits):
            if key not in self.kept:
                self.kept[key] = self.evaluate(**{k: v + moves.get(k, 0) for k, v in self.at.items()})
            return self.kept[key][name]

    def derivative(self, name, *axes):
        """First or second partial derivative by central differences."""
        with mpmath.workdps(self.digits):
            h = [STEP * (max(self.at[a], 1) if a in "KM" else self.at[a]) for a in axes]
            if len(axes) == 1:
                return (self.value(name, **{axes[0]: h[0]}) - self.value(name, **{axes[0]: -h[0]})) / (2 * h[0])
            if axes[0] == axes[1]:
                a = axes[0]
                return (self.value(name, **{a: h[0]}) - 2 * self.value(name) + self.value(name, **{a: -h[0]})) / h[0]**2
            return sum(s * t * self.value(name, **{axes[0]: s * h[0], axes[1]: t * h[1]})
                       for s in (1, -1) for t in (1, -1)) / (4 * h[0] * h[1])

    def condition(self, name):
        """Sum of |x d name/dx| / |name| over the finite parameters."""
        with mpmath.workdps(self.digits):
            base = abs(self.value(name))
            finite = [a for a in "qrKM" if mpmath.isfinite(self.at[a])]
            return float(sum(abs(self.at[a] * self.derivative(name, a)) for a in finite) / base)

    def evaluate(self, q, r, K, M):
        m, n = self.m, self.n
        b = q * m
        rho = b / (m + n / r)
        endless = mpmath.isinf(K)
        below = [b**0 / 1]
        for l in range(1, m):
            below.append(below[-1] * b / l)
        under = sum(below)
        p1 = below[-1] * b / m / under
        h, h1, rise1, rise_n, v = mpf(1), mpf(0), mpf(0), mpf(0), mpf(0)
        for j in range(n, 0, -1):
            v, rise = self.climb(j / r, b, K, endless)
            h1 = h
            binomial = mpmath.binomial(n, j - 1)
            h = h * v / b + binomial
            rise1 = rise
            rise_n = rise if j == n else rise_n
        power = mpf(0) if endless else q**K
        s1, s2 = _sums(rho, M)
        c1, c2 = _sums(q, K)
        level = 1 / (1 / p1 + 1 + c1 + power / h * s1)  # R_m
        P = level * power / h
        top = level * power  # = h P
        kk = mpf(0) if endless else K
        under_mean = sum(l * x for l, x in enumerate(below)) / under
        out = {"mean_fast": level / p1 * under_mean + m * (level * (1 + c1) + P * s1),
               "mean_stalled": level * c2 + kk * P * s1, "mean_waiting": P * s2,
               "mean_slow": b * r * (h - 1) / h * top + n * P * s1,
               "p_full": P, "p_loss": mpf(0) if mpmath.isinf(M) else P * rho**M, "p_wait": P * s1,
               "p_stalling": level * c1 + P * s1,
               "p_fast": level * (1 + c1) + P * s1 + level / p1 * (under - 1) / under}
        out["mean_number"] = out["mean_fast"] + out["mean_stalled"] + out["mean_waiting"] + out["mean_slow"]
        empty = level / p1 / under
        out["p_slow_only"] = empty if n == 0 else mpf(0) if endless else empty / h * mpmath.exp(-rise_n)
        out["mean_stuck"] = mpf(0) if n == 0 or endless else empty * h1 / h * mpmath.exp(-rise1)
        out["throughput"] = out["mean_fast"] + out["mean_slow"] / r
        out["utilization_fast"] = out["mean_fast"] / m
        out["utilization_slow"] = out["mean_slow"] / max(n, 1)
        out["mean_response_time"] = out["mean_number"] / out["throughput"]
        phi = m / (m + n / r)
        by_fast = out["mean_fast"] + out["mean_stalled"] + phi * out["mean_waiting"]
        out["mean_response_time_fast"] = by_fast / out["mean_fast"]
        if n:
            out["mean_response_time_slow"] = r * (1 + (1 - phi) * s2 / (b * r * (h - 1) + n * s1))
        return out

    def climb(self, a, b, K, endless):
        """v_L and ln prod_{l<L} (1 + v_l/b) of slow rate a: by steps below level m, by the powers of a matrix from
        there."""
        m = self.m
        v, rise = a, mpf(1)
        for l in range(1, m):
            rise *= 1 + v / b
            v = a + l * v / (v + b)
        # (a Y, w) with v = a Y/w -> ((a + m) Y' + ..): v -> ((a+m) v + a b)/(v + b)
        trace, root = a + m + b, mpmath.sqrt((a + m + b)**2 - 4 * m * b)
        big, small = (trace + root) / 2, 2 * m * b / (trace + root)
        k = K + 1
        p, s = (mpf(1), mpf(0)) if endless else (big**k, small**k)
        # M^k = [p (M - small) - s (M - big)]/root
        top = (p * ((a + m - small) * v + a * b) - s * ((a + m - big) * v + a * b)) / root
        low = (p * (v + b - small) - s * (v + b - big)) / root
        return top / low, (mpf(0) if endless else mpmath.log(rise) + mpmath.log(low) - k * mpmath.log(b))
