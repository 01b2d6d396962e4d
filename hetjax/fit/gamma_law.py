"""The gamma and chi-square laws on the host, in double precision whatever JAX is set to."""

import math


def upper_gamma(shape: float, x: float) -> float:
    """P(X > x) of a gamma variable of the given shape and scale 1, relative error about 1e-13 sqrt(shape).

    Series below the mean, continued fraction (Lentz) above; O(sqrt(shape)) terms.

    >>> round(upper_gamma(2.0, 3.0), 12), round(4 * math.exp(-3), 12)
    (0.199148273471, 0.199148273471)
    """
    if x <= 0:
        return 1.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        k = shape
        while term > total * 1e-17:
            k += 1
            term *= x / k
            total += term
        return max(1 - total * scale, 0.0)
    b = x + 1 - shape
    c, d = 1e300, 1 / b
    h = d
    for i in range(1, 1_000_000):
        a = -i * (i - shape)
        b += 2
        d = a * d + b
        c = b + a / c
        d = 1 / (d if d else 1e-300)
        step = d * c
        h *= step
        if abs(step - 1) < 1e-16:
            break
    return scale * h


def chi_square_tail(x: float, degrees: int) -> float:
    """P(chi-square with ``degrees`` of freedom > x).

    >>> round(chi_square_tail(3.841458820694, 1), 12)
    0.05
    """
    return upper_gamma(degrees / 2, x / 2)


def gamma_quantile(shape: float, p: float) -> float:
    """The x with P(X <= x) = p for a gamma variable of the given shape and scale 1, 0 < p < 1.

    Newton's method from the Wilson-Hilferty approximation, kept inside a shrinking bracket.

    >>> round(gamma_quantile(1.0, 0.95), 10), round(-math.log(0.05), 10)
    (2.9957322736, 2.9957322736)
    """
    low, high = 0.0, math.inf
    z = math.sqrt(2) * _inverse_erf(2 * p - 1)
    x = max(shape * (1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3, 1e-8 * shape)
    for _ in range(100):
        excess = 1 - upper_gamma(shape, x) - p
        low, high = (low, x) if excess > 0 else (x, high)
        density = math.exp((shape - 1) * math.log(x) - x - math.lgamma(shape))
        new = x - excess / density if density > 0 else -1.0
        if not low <= new <= high:
            new = (low + high) / 2 if high < math.inf else 2 * x
        if abs(new - x) <= 1e-14 * x:
            return new
        x = new
    return x


def _inverse_erf(y: float) -> float:
    x = 0.0
    for _ in range(60):  # a start for Newton above: a few digits would do
        step = (math.erf(x) - y) / (2 / math.sqrt(math.pi) * math.exp(-x * x))
        x -= max(-0.5, min(0.5, step))
        if abs(step) < 1e-12:
            break
    return x
