"""N(K) of the stalling queue in many digits, by the paper's own route: Lemma A1's ratios A_{i,j}, continued to real K.

From level m - 1 on A_{i,j} obeys a recursion with constant coefficients, so that A_{m-1+k} = alpha z^k + beta t^k with
the roots z, t of y^2 - (1 + q + j/(m r)) y + q; h_j from the ratios at level m + K; means from Table 1 as corrected. It
subtracts freely, unlike the package, and is given the digits for that.
"""

import math

import mpmath
from mpmath import mpf


class Oracle:
    """One queue (exact binary parameters) with ``digits`` decimal digits."""

    def __init__(self, q, r, M, m, n, digits=60):
        self.m, self.n, self.digits = m, n, digits
        self.endless = M == math.inf
        with mpmath.workdps(digits):
            self.q, self.r = mpf(q), mpf(r)
            self.M = mpmath.inf if self.endless else mpf(M)
            self.phases = [self._phase(j) for j in range(n + 1)]
            weights = [(m * self.q) ** s / mpmath.factorial(s) for s in range(m)]
            self.p1 = (m * self.q) ** m / mpmath.factorial(m) / mpmath.fsum(weights)
            self.below = mpmath.fsum(s * w for s, w in enumerate(weights)) / mpmath.fsum(weights)
            rho = self.q / (1 + mpf(n) / (m * self.r))
            if self.endless:
                self.s1, self.s2 = rho / (1 - rho), rho / (1 - rho) ** 2
            else:
                count, self.s2 = sums(rho, self.M)
                self.s1 = count - 1

    def _phase(self, j):
        q, m = self.q, self.m
        a = mpf(j) / self.r
        before, here = mpf(0), mpf(1)
        for i in range(m):
            before, here = here, ((q * m + a + i) * here - q * m * before) / (i + 1)
        e = 1 + q + a / m
        z = (e + mpmath.sqrt(e * e - 4 * q)) / 2
        t = q / z
        return here - t * before, here - z * before, z, t  # proportional to alpha z and beta t

    def number(self, K):
        """The mean number in system with a buffer of K places."""
        with mpmath.workdps(self.digits):
            q, m, n, K = self.q, self.m, self.n, mpf(K)
            h, h1, u1 = mpf(1), mpf(1), mpf(0)
            for j in range(n, 0, -1):
                alpha, beta, z, t = self.phases[j]
                fade = (t / z) ** (K + 1)
                u = (alpha * z - beta * t * fade) / (alpha - beta * fade)
                if j == 1:
                    h1, u1 = h, u
                h = h * (u / q - 1) + mpmath.binomial(n, j - 1)
            count, weighted = sums(q, K)
            P = q**K * self.p1 / (h * (1 + self.p1 * count) + q**K * self.p1 * self.s1)
            level_m = h * P / q**K
            slow = self.r * m * h1 * (u1 - q) * P if n else mpf(0)
            return (level_m / self.p1 * self.below + level_m * (m * count + weighted) + slow
                    + P * ((m + K + n) * self.s1 + self.s2))

    def never(self):
        """N(inf), the mean number if the slow servers are never used (M/M/m), q < 1."""
        with mpmath.workdps(self.digits):
            wait = self.p1 / (1 - self.q + self.p1)
            return self.m * self.q + wait * self.q / (1 - self.q)

    def scale(self, K):
        """min(1, q^K)."""
        with mpmath.workdps(self.digits):
            return min(mpf(1), self.q ** mpf(K))

    def slope(self, K):
        """dN/dK over min(1, q^K), by a central difference (one-sided at K = 0)."""
        with mpmath.workdps(self.digits):
            h, K = mpf(10) ** (-self.digits // 3), mpf(K)
            if K == 0:
                rise = (4 * self.number(h) - self.number(2 * h) - 3 * self.number(0)) / (2 * h)
            else:
                rise = (self.number(K + h) - self.number(K - h)) / (2 * h)
            return rise / self.scale(K)

    def difference(self, K):
        """[N(K+1) - N(K)] over min(1, q^K)."""
        with mpmath.workdps(self.digits):
            return (self.number(mpf(K) + 1) - self.number(K)) / self.scale(K)

    def minima(self, last):
        """All local minima of N on 0..last, the best first, as far as N(last + 1) tells."""
        values = [self.number(k) for k in range(last + 2)]
        found = [k for k in range(last + 1)
                 if (k == 0 or values[k - 1] > values[k]) and values[k + 1] >= values[k]]
        return sorted(found, key=values.__getitem__)


def sums(x, K):
    """sum_{s=0}^K x^s and sum s x^s, continued in K."""
    if x == 1:
        return K + 1, K * (K + 1) / 2
    return (1 - x ** (K + 1)) / (1 - x), (x - (K + 1) * x ** (K + 1) + K * x ** (K + 2)) / (1 - x) ** 2


def digits_for(q, K):
    """Enough digits for differences of N that are q^K N, with room for the means' own cancellation."""
    return int(60 + 2 * (K + 2) * abs(math.log10(q)))
