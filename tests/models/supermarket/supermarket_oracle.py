"""The level recursion of the supermarket model in high precision, independent of the library's: plain s_k, plain linear
solves, a bracketed root in u_{k+1}. Digits, not care, keep it accurate."""

import mpmath as mp


def levels(arrival_rate, d, alpha, T, digits=50, small="1e-30", most=3000):
    """s_1, s_2, ... as mpmath row vectors until u_k < small, or most of them."""
    with mp.workdps(digits):
        rate, d = mp.mpf(arrival_rate), mp.mpf(d)
        alpha = mp.matrix([[mp.mpf(a) for a in alpha]])
        T = mp.matrix([[mp.mpf(x) for x in row] for row in T])
        n = alpha.cols
        one = mp.ones(n, 1)
        s = rate * alpha * (-T) ** -1
        found = [s]
        u = (s * one)[0]
        before = mp.mpf(1)
        while u > mp.mpf(small) and len(found) < most:
            def excess(v, s=s, u=u):
                r = rate * (u**d - v**d) / (u - v)
                return ((r * s + rate * v**d * alpha) * (r * mp.eye(n) - T) ** -1 * one)[0] - v

            guess = u * (u / before) ** d
            low, high = guess / 2, min(2 * guess, (u + guess) / 2)
            while excess(low) < 0:
                low /= 2
            while excess(high) > 0:
                high = (high + u) / 2
            v = mp.findroot(excess, (low, high), solver="anderson", tol=mp.mpf(10) ** (-2 * digits + 10), maxsteps=400)
            r = rate * (u**d - v**d) / (u - v)
            s = (r * s + rate * v**d * alpha) * (r * mp.eye(n) - T) ** -1
            before, u = u, v
            found.append(s)
        return found


def mean_queue_length(*args, **options):
    """sum_k u_k."""
    with mp.workdps(options.get("digits", 50)):
        return mp.fsum(mp.fsum(s) for s in levels(*args, **options))
