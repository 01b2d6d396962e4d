"""The stalling queue's mean number in numpy and by scipy.sparse: the contenders of stalling_mean_number.py.

:class:`NumpyMeanNumber` is the recursion of hetjax/models/stalling/recursion.py written for numpy's strengths: blocks
that stay in the cache, every operation in place, work arrays made once a thread, blocks shared out to threads (numpy's
loops release the interpreter lock). It is the special case of stalling_numpy_whole.py for points with q <= .99: it
needs no turned-over sums and no rescaling, and plain geometric sums and one form of the crossing do.
"""

import math
import threading
from multiprocessing.pool import ThreadPool

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve


class NumpyMeanNumber:
    """``self(q, r, K, M)``: mean numbers of flat float64 arrays with q <= .99, ``block`` points at a time."""

    arrays = 18

    def __init__(self, m: int, n: int, block: int = 4096, threads: int = 2) -> None:
        self.m, self.n, self.block = m, n, block
        self.pool = ThreadPool(threads) if threads > 1 else None
        self.local = threading.local()

    def __call__(self, q: np.ndarray, r: np.ndarray, K: np.ndarray, M: np.ndarray) -> np.ndarray:
        """The mean numbers."""
        out = np.empty_like(q)
        starts = range(0, q.size, self.block)

        def one(start: int) -> None:
            part = slice(start, start + self.block)
            self._block(q[part], r[part], K[part], M[part], out[part])

        if self.pool is None:
            for start in starts:
                one(start)
        else:
            self.pool.map(one, starts, chunksize=max(1, len(starts) // 8))
        return out

    def _work(self, size: int) -> list[np.ndarray]:
        kept: list[np.ndarray] = getattr(self.local, "work", [])
        if not kept or kept[0].size < size:
            kept = self.local.work = list(np.empty((self.arrays, self.block)))
        return [array[:size] for array in kept]

    def _block(self, q: np.ndarray, r: np.ndarray, K: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
        m, n = self.m, self.n
        b, per_r, base, k, inverse, scale, t, before, x, Y, w, a, u, v, D, E, h, g = self._work(q.size)
        add, sub, mul, div = np.add, np.subtract, np.multiply, np.divide
        mul(q, m, out=b)
        div(1, r, out=per_r)
        sub(b, m, out=base)  # m (q - 1)
        add(K, 1, out=k)
        mul(b, m, out=inverse)
        div(1, inverse, out=inverse)  # 1/(m b)
        div(per_r, b, out=scale)  # 1/(r b)
        t.fill(1)
        for j in range(n, 0, -1):
            mul(per_r, j, out=a)
            self._ascend(a, b, Y, w, u)
            # levels m..L; B = m (q-1) - a < 0
            sub(base, a, out=h)
            mul(a, b, out=u)
            mul(u, 4, out=D)
            mul(h, h, out=v)
            add(D, v, out=D)
            np.sqrt(D, out=D)
            sub(D, h, out=v)
            mul(v, .5, out=v)  # v+
            div(u, v, out=g)  # v-
            add(v, b, out=E)
            mul(E, D, out=E)
            mul(E, inverse, out=E)  # w+/w- - 1
            np.log1p(E, out=E)
            mul(E, k, out=E)
            np.negative(E, out=E)
            np.expm1(E, out=E)
            np.negative(E, out=E)
            sub(1, E, out=h)
            mul(h, D, out=D)  # D kappa
            mul(v, E, out=v)
            add(v, D, out=v)
            mul(v, Y, out=v)
            mul(b, E, out=h)
            mul(h, w, out=h)
            add(v, h, out=v)  # numerator
            mul(a, Y, out=a)
            mul(g, w, out=g)
            add(a, g, out=a)
            mul(a, E, out=a)
            mul(D, w, out=D)
            add(a, D, out=a)  # denominator
            before, t = t, before
            div(v, a, out=x)
            mul(x, before, out=t)
            mul(t, scale, out=t)
            mul(t, n - j + 1, out=t)
            add(t, 1, out=t)
        # h_0 = t, slow servers given level L: n X_1 t_1/t_0
        div(1, t, out=h)
        mul(x, before, out=x)
        mul(x, h, out=x)
        mul(x, n, out=x)
        div(1, b, out=a)
        self._poisson(b, a, w, v, u, D)
        # buffer: Y = sum q^s, D = sum s q^s, E = q^K
        np.log(q, out=E)
        mul(E, K, out=E)
        np.expm1(E, out=g)
        add(g, 1, out=E)
        sub(q, 1, out=u)
        div(1, u, out=u)
        mul(g, u, out=g)
        self._sum_moments(q, u, g, D, K, E)
        mul(g, q, out=Y)
        # waiting line: ratio a = rho
        mul(per_r, n, out=a)
        add(a, m, out=a)
        div(b, a, out=a)
        np.log(a, out=g)
        mul(g, M, out=g)
        np.expm1(g, out=base)
        add(base, 1, out=inverse)
        sub(a, 1, out=scale)
        div(1, scale, out=scale)
        mul(base, scale, out=base)
        self._sum_moments(a, scale, base, g, M, inverse)
        mul(base, a, out=base)  # S_1; g = S_2
        add(Y, 1, out=Y)
        # N
        mul(Y, w, out=u)  # weight of the levels m..L
        mul(E, w, out=E)  # of level L
        mul(base, h, out=base)
        mul(g, h, out=g)
        add(K, m + n, out=k)
        mul(k, base, out=k)
        add(k, g, out=k)
        add(k, x, out=k)
        mul(k, E, out=k)
        mul(base, E, out=base)
        add(base, u, out=base)
        add(base, 1, out=base)
        mul(u, m, out=u)
        mul(D, w, out=D)
        add(u, D, out=u)
        add(u, v, out=u)
        add(u, k, out=u)
        div(u, base, out=out)

    def _ascend(self, a: np.ndarray, b: np.ndarray, Y: np.ndarray, w: np.ndarray, u: np.ndarray) -> None:
        """Levels 1..m-1: (Y, w), the first step done in place of loading ones."""
        if self.m > 1:
            np.add(a, b, out=w)
            np.add(w, 1, out=Y)
        else:
            w.fill(1)
            Y.fill(1)
        for l in range(2, self.m):
            np.multiply(a, Y, out=u)
            np.multiply(w, b, out=w)
            np.add(w, u, out=w)
            np.multiply(Y, l, out=Y)
            np.add(Y, w, out=Y)
            if l % 16 == 0:
                np.divide(Y, w, out=Y)
                w.fill(1)

    def _poisson(self, b: np.ndarray, per_b: np.ndarray, p1: np.ndarray, below: np.ndarray, v: np.ndarray,
                 w: np.ndarray) -> None:
        """Weight of level m over that of the levels below, and the mean number there; f = i_s/s!."""
        v.fill(0)
        w[:] = per_b
        for s in range(1, self.m):
            v, w = w, v
            np.add(v, 1 / math.factorial(s), out=w)
            np.multiply(w, per_b, out=w)
        np.multiply(w, float(math.factorial(self.m)), out=w)
        np.divide(1, w, out=p1)
        np.multiply(v, float(math.factorial(self.m - 1)), out=v)
        np.minimum(v, 1e307, out=v)
        np.add(v, 1, out=w)
        np.divide(v, w, out=v)
        np.multiply(v, b, out=below)

    @staticmethod
    def _sum_moments(ratio: np.ndarray, per: np.ndarray, plain: np.ndarray, out: np.ndarray, terms: np.ndarray,
                     decay: np.ndarray) -> None:
        """sum_{s=1}^T s x^s = x [T x^T - sum_{s<T} x^s]/(x - 1), with ``per`` = 1/(x-1)."""
        np.multiply(terms, decay, out=out)
        np.subtract(out, plain, out=out)
        np.multiply(out, ratio, out=out)
        np.multiply(out, per, out=out)


def sparse_mean_number(q: float, r: float, K: int, M: int, m: int, n: int) -> float:
    """By the balance equations: sparse generator assembled without loops, scipy's direct solver."""
    top = m + K
    l, j = np.meshgrid(np.arange(top + 1), np.arange(n + 1), indexing="ij")
    state = l * (n + 1) + j
    full = state[top, n]
    line = full + np.arange(M + 1)
    b = q * m
    below, slow = l < top, j > 0
    busy = l > 0
    sources = [state[below], state[top, :n], line[:-1], state[busy], state[slow], line[1:]]
    targets = [state[below] + n + 1, state[top, :n] + 1, line[1:], state[busy] - n - 1, state[slow] - 1, line[:-1]]
    rates = [np.full(sources[0].size + n + M, b), np.minimum(l, m)[busy], j[slow] / r, np.full(M, m + n / r)]
    source, target, rate = (np.concatenate(x) for x in (sources, targets, rates))
    size = line[-1] + 1
    leaving = np.bincount(source, rate, size)
    inner = target != 0  # the balance equation of state 0 is replaced by the normalisation
    every = np.arange(size)
    rows = np.concatenate([target[inner], every[1:], np.zeros(size, int)])
    columns = np.concatenate([source[inner], every[1:], every])
    matrix = sparse.csc_matrix((np.concatenate([rate[inner], -leaving[1:], np.ones(size)]), (rows, columns)))
    right = np.zeros(size)
    right[0] = 1
    p = spsolve(matrix, right)
    customers = np.concatenate([(l + j).ravel(), top + n + np.arange(1, M + 1)])
    return float(customers @ p)
