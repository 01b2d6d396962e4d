"""The stalling queue's mean number in numpy over the whole domain: the like-for-like contender of
stalling_mean_number.py.

The algorithm of hetjax/models/stalling: load ratios above 1 turned over, the accurate geometric sums of
hetjax/numerics/geometric.py, ln rho from compensated products, rescaled phases, both branches of the crossing and of
the line. Written for numpy's strengths: blocks that stay in the cache, work arrays made once a thread, every operation
in place, and numpy's own vectorised log, log1p, expm1 and exp where hetjax has polynomials.
"""

import math

import numpy as np
from stalling_numpy import NumpyMeanNumber

from hetjax.numerics.geometric import BERNOULLI

SECOND = tuple((-1.0) ** i / math.factorial(i + 2) for i in range(13, -1, -1))  # (e^-s - 1 + s)/s^2 for s < ln(2)/2
NEAR = math.log(2) / 2


class NumpyWholeDomain(NumpyMeanNumber):
    """``self(q, r, K, M)``: mean numbers of flat float64 arrays anywhere in the domain, K and M finite."""

    arrays = 36

    def _block(self, q: np.ndarray, r: np.ndarray, K: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
        m, n = self.m, self.n
        (b, per_b, per_r, t, one, exponent, x, before, p1, below, log_ratio, sums, lagging, ascending, line_sums,
         line_lagging, line_ascending, u, v, w, y, *free) = self._work(q.size)
        add, sub, mul, div = np.add, np.subtract, np.multiply, np.divide
        mul(q, m, out=b)
        div(1, b, out=per_b)
        div(1, r, out=per_r)
        self._phases(b, per_b, per_r, K, (t, one, exponent, x, before), [u, v, w, y, *free])
        div(before, t, out=before)
        mul(x, before, out=x)
        mul(x, n, out=x)  # slow servers given level L
        self._poisson(b, per_b, p1, below, u, v)
        over = q > 1
        np.log(q, out=log_ratio)
        mul(per_b, m, out=u)
        np.copyto(u, q, where=~over)  # the ratio turned over where it is above 1
        ratio, decay = free[0], free[1]
        ratio[:] = u
        np.abs(log_ratio, out=v)
        self._sums(v, ratio, K, decay, sums, lagging, ascending, free[4:])
        # waiting line
        mul(r, m, out=u)
        add(u, n, out=u)  # m r + n
        line_log, line_ratio, line_decay = free[2], free[3], y
        rising = self._log_rho(q, r, u, line_log, line_ratio, [v, w, y, *free[4:]])
        mul(u, per_r, out=u)
        mul(u, per_b, out=u)
        np.copyto(line_ratio, u, where=rising)
        np.abs(line_log, out=v)
        self._sums(v, line_ratio, M, line_decay, line_sums, line_lagging, line_ascending, free[4:])
        # ln of (level or top) over the heaviest state of the line
        np.log(t, out=u)
        mul(exponent, math.log(2), out=exponent)
        add(u, exponent, out=u)
        mul(v, M, out=w)
        np.copyto(w, 0, where=~rising)
        sub(u, w, out=u)
        np.minimum(log_ratio, 0, out=w)
        mul(w, K, out=w)
        sub(u, w, out=u)
        saturated = u < 0
        np.abs(u, out=u)
        np.negative(u, out=u)
        np.exp(u, out=u)
        rest, line = v, t
        rest.fill(1)
        np.copyto(rest, u, where=saturated)
        mul(p1, rest, out=w)  # level
        np.copyto(u, 1, where=saturated)
        mul(p1, u, out=line)
        np.copyto(rest, decay * rest, where=over)  # below
        mul(sums, ratio, out=sums)
        add(sums, 1, out=sums)
        level, plain = w, before
        mul(line_sums, line_ratio, out=plain)
        np.copyto(plain, line_sums, where=rising)
        # base, and the parts of the numerator over it
        room, tail, base = exponent, u, one
        add(K, m, out=room)
        add(M, n, out=tail)
        np.copyto(tail, 0, where=~saturated)
        add(room, tail, out=base)
        np.copyto(base, 0, where=~over)
        mul(tail, sums, out=log_ratio)
        add(log_ratio, ascending, out=log_ratio)
        np.negative(log_ratio, out=log_ratio)
        mul(sums, m, out=lagging)
        add(lagging, ascending, out=lagging)
        np.copyto(log_ratio, lagging, where=~over)  # levels
        np.copyto(room, 0, where=over)
        add(room, n, out=room)
        mul(room, plain, out=room)
        mul(M, plain, out=ascending)
        sub(ascending, line_lagging, out=ascending)
        np.copyto(ascending, line_ascending, where=~rising)
        add(room, ascending, out=room)
        np.negative(line_lagging, out=line_lagging)
        np.copyto(room, line_lagging, where=saturated)
        # N = base + (...)/total
        sub(below, base, out=below)
        mul(below, rest, out=below)
        mul(log_ratio, level, out=log_ratio)
        add(below, log_ratio, out=below)
        mul(room, line, out=room)
        add(below, room, out=below)
        mul(sums, level, out=sums)
        np.copyto(decay, 1, where=over)
        mul(level, decay, out=level)  # level L
        mul(level, x, out=x)
        add(below, x, out=below)
        mul(line, plain, out=line)
        add(rest, sums, out=rest)
        add(rest, line, out=rest)
        div(below, rest, out=below)
        add(base, below, out=out)

    def _phases(self, b: np.ndarray, per_b: np.ndarray, per_r: np.ndarray, K: np.ndarray, state: tuple[np.ndarray, ...],
                work: list[np.ndarray]) -> None:
        """t_0, its unit and exponent, X_1, t_1 into ``state``."""
        m, n = self.m, self.n
        t, one, exponent, x, before = state
        base, k, inverse, scale, Y, w, a, u, D, E, g, large, up = work[:13]
        add, sub, mul, div = np.add, np.subtract, np.multiply, np.divide
        sub(b, m, out=base)
        add(K, 1, out=k)
        div(per_b, m, out=inverse)
        mul(per_r, per_b, out=scale)
        t.fill(1)
        one.fill(1)
        exponent.fill(0)
        for j in range(n, 0, -1):
            mul(per_r, j, out=a)
            self._ascend(a, b, Y, w, u)
            sub(base, a, out=g)  # B
            mul(a, b, out=u)
            mul(u, 4, out=D)
            mul(g, g, out=large)
            add(D, large, out=D)
            np.sqrt(D, out=D)
            negative = g < 0
            np.abs(g, out=g)
            add(g, D, out=large)
            mul(large, .5, out=large)
            add(a, b, out=E)
            add(E, m, out=E)
            add(E, D, out=E)
            mul(E, .5, out=E)
            mul(E, D, out=E)
            mul(E, inverse, out=E)  # w+/w- - 1
            np.log1p(E, out=E)
            mul(E, k, out=E)
            np.negative(E, out=E)
            np.exp(E, out=g)  # kappa
            np.expm1(E, out=E)
            np.negative(E, out=E)
            mul(D, large, out=D)
            mul(D, g, out=D)
            mul(u, E, out=u)
            mul(large, E, out=E)
            mul(large, E, out=large)
            np.copyto(up, u)
            np.copyto(up, large, where=negative)
            np.copyto(u, large, where=~negative)
            add(up, D, out=up)
            add(u, D, out=u)
            mul(up, Y, out=up)
            mul(E, b, out=g)
            mul(g, w, out=g)
            add(up, g, out=up)  # numerator
            mul(E, a, out=E)
            mul(E, Y, out=E)
            mul(u, w, out=u)
            add(u, E, out=u)  # denominator
            div(up, u, out=x)
            np.copyto(before, t)
            mul(x, scale, out=u)
            mul(u, n - j + 1, out=u)
            mul(t, u, out=t)
            add(t, one, out=t)
            if 55 * n >= 1024:  # as hetjax, which leaves it out where t_0 is in range
                large_t = t > 2.0**256
                if large_t.any():
                    for array in (t, one, before):
                        np.multiply(array, 2.0**-512, out=array, where=large_t)
                    np.add(exponent, 512, out=exponent, where=large_t)

    def _log_rho(self, q: np.ndarray, r: np.ndarray, capacity: np.ndarray, out: np.ndarray, ratio: np.ndarray,
                 work: list[np.ndarray]) -> np.ndarray:
        """ln rho and rho = q m r/``capacity``; True where it is above 1."""
        m, n = self.m, self.n
        add, sub, mul, div = np.add, np.subtract, np.multiply, np.divide
        per, high, low, d, d_high, d_low, total, lost, s, z, error = work[:11]
        div(1, capacity, out=per)
        mul(r, m, out=ratio)
        mul(ratio, per, out=ratio)
        mul(ratio, q, out=ratio)
        sub(q, 1, out=d)
        for x, bits, top, rest in ((r, 17, high, low), (d, 26, d_high, d_low)):
            np.bitwise_and(x.view(np.int64), -(1 << (53 - bits)), out=top.view(np.int64))
            sub(x, top, out=rest)
        mul(high, m, out=high)
        mul(low, m, out=low)
        total.fill(-n)
        lost.fill(0)
        for x, y in ((high, d_high), (high, d_low), (low, d_high), (low, d_low)):
            mul(x, y, out=error)
            add(total, error, out=s)
            sub(s, total, out=z)
            sub(error, z, out=error)
            sub(s, z, out=z)
            sub(total, z, out=z)
            add(error, z, out=error)
            add(lost, error, out=lost)
            total, s = s, total
        add(total, lost, out=total)
        mul(total, per, out=total)  # rho - 1
        np.log(ratio, out=out)
        np.log1p(total, out=z, where=total > -.5)
        np.copyto(out, z, where=total > -.5)
        return out > 0

    def _sums(self, s: np.ndarray, ratio: np.ndarray, terms: np.ndarray, decay: np.ndarray, plain: np.ndarray,
              lagging: np.ndarray, ascending: np.ndarray, work: list[np.ndarray]) -> None:
        """GeometricSums of e^-s and ratio^terms; ``s`` is left as it is."""
        add, sub, mul, div = np.add, np.subtract, np.multiply, np.divide
        gap, square, c, per, lag, per_x, y, lost, h1, inverse = work[:10]
        near = s < 1
        sub(1, ratio, out=gap)
        np.copyto(gap, 1, where=near)
        np.maximum(s, 1e-300, out=per_x)
        mul(per_x, gap, out=inverse)
        div(1, inverse, out=inverse)
        mul(s, s, out=square)
        self._polynomial(BERNOULLI[::-1], square, c)
        mul(c, s, out=c)
        add(c, .5, out=per)
        mul(per, s, out=per)
        add(per, 1, out=per)
        mul(s, s, out=lag)
        mul(lag, inverse, out=lag)
        np.copyto(per, lag, where=~near)  # 1/F_0
        mul(ratio, s, out=lag)
        sub(gap, lag, out=lag)
        mul(lag, inverse, out=lag)
        sub(.5, c, out=c)
        np.copyto(lag, c, where=near)  # F_1/F_0
        mul(inverse, gap, out=per_x)
        # moments of the terms
        mul(s, terms, out=y)
        np.negative(y, out=lost)
        np.exp(lost, out=decay)
        np.expm1(lost, out=lost)
        np.negative(lost, out=lost)
        short = y < NEAR
        np.minimum(y, NEAR, out=square)
        self._polynomial(SECOND, square, c)
        mul(square, c, out=h1)
        add(h1, c, out=c)
        sub(1, h1, out=h1)
        mul(h1, terms, out=h1)
        mul(lost, per_x, out=lost)
        np.copyto(lost, h1, where=short)  # H_0
        mul(terms, decay, out=h1)
        sub(lost, h1, out=h1)
        mul(h1, per_x, out=h1)
        sub(1, c, out=c)
        mul(c, terms, out=c)
        mul(c, terms, out=c)
        np.copyto(h1, c, where=short)
        mul(lost, per, out=plain)
        mul(h1, per, out=h1)
        mul(plain, lag, out=lagging)
        sub(h1, lagging, out=lagging)
        sub(1, lag, out=lag)
        mul(lag, plain, out=ascending)
        add(ascending, h1, out=ascending)
        mul(ascending, ratio, out=ascending)

    @staticmethod
    def _polynomial(coefficients: tuple[float, ...], x: np.ndarray, out: np.ndarray) -> None:
        np.multiply(x, coefficients[0], out=out)
        np.add(out, coefficients[1], out=out)
        for coefficient in coefficients[2:]:
            np.multiply(out, x, out=out)
            np.add(out, coefficient, out=out)
