"""The objects of the source paper, by its own recursions: A_{i,j}, h_j, R_{i,j}, z_j, t_j, b_{i,s}, p_1, p_2, C_s, S_s.

They are here to follow the paper and to check the library against; nothing else in the package uses them. K must be
a whole number known when tracing, as it gives shapes; q, r and M may be traced or real. The polynomials A grow like
z^(m + K): in float64 they leave the range at m + K of a few hundred to a few thousand levels, while the ratios the
results need do not (see :mod:`~hetjax.models.stalling.closed_form`). Costs O((m + K) n) unless stated.

Source: "Stalling in Queuing Systems with Heterogeneous Channels", Lemmas A1-A3 and equations (3)-(11), with the
corrections named in each docstring.
"""

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.models.stalling.params import Params


def buffer_length(params: Params) -> int:
    """K as a Python int; ValueError unless it is a known whole number (it gives shapes)."""
    return _whole("K", params.K)


def waiting_places(params: Params) -> int:
    """M as a Python int; ValueError unless it is a known whole number (it gives shapes)."""
    return _whole("M", params.M)


def _whole(name: str, value: jax.Array) -> int:
    if isinstance(value, jax.core.Tracer):
        raise ValueError(f"{name} is traced, but it gives array shapes here; close over a number instead")
    number = np.asarray(value)
    if number.ndim or not np.isfinite(number) or number != np.floor(number):
        raise ValueError(f"{name} = {number} gives array shapes here; give one whole number in [0, 1e7]")
    return int(number)


def _phases(params: Params) -> jax.Array:
    return jnp.arange(params.n + 1, dtype=params.q.dtype)


def _count(value: int, like: jax.Array) -> jax.Array:
    return jnp.asarray(value, like.dtype)


def level_polynomials(params: Params) -> jax.Array:
    """A_{i,j} = R_{i,j} / R_{0,j}, shape [m + K + 2, n + 1], i = 0..m+K+1 (Lemma A1).

    Corrected: the first A on the right of the printed recursion is A_{i,j}, and it holds from i = 1 on.

    >>> from hetjax.models.stalling import Params
    >>> from hetjax.models.stalling.paper_objects import level_polynomials
    >>> level_polynomials(Params(0.5, 2.0, 0, 0, 1, 1)).tolist()
    [[1.0, 1.0], [0.5, 1.0], [0.25, 1.5]]
    """
    K, m, death = buffer_length(params), params.m, _phases(params) / params.r
    arrivals = params.q * _count(m, params.q)

    def step(pair: tuple[jax.Array, jax.Array], i: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        before, now = pair
        busy, more = (jnp.minimum(x, m).astype(now.dtype) for x in (i, i + 1))
        after = ((arrivals + death + busy) * now - arrivals * before) / more
        return (now, after), after

    first = jnp.stack([jnp.ones_like(death), arrivals + death])
    return jnp.concatenate([first, jax.lax.scan(step, (first[0], first[1]), jnp.arange(1, m + K + 1))[1]])


def moment_ratios(params: Params) -> jax.Array:
    """h_j = R_{m+K,j} / R_{m+K,n}, shape [n + 1], h_n = 1 (Lemma A2); h_0 reaches 1e4238 inside the domain."""
    A, n = level_polynomials(params), params.n
    L = params.m + buffer_length(params)
    growth = A[L + 1] / (params.q * A[L]) - 1

    def step(h: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        lower = h * growth[j] + binomials(n, h.dtype)[n, j - 1]
        return lower, lower

    one = jnp.ones((), params.q.dtype)
    lower = jax.lax.scan(step, one, jnp.arange(1, n + 1), reverse=True)[1]
    return jnp.concatenate([lower, one[None]])


def binomials(n: int, dtype: np.dtype | type) -> jax.Array:
    """C(s, j) for 0 <= s, j <= n, shape [n + 1, n + 1]; infinite beyond the range of ``dtype``."""
    table = np.zeros((n + 1, n + 1))
    table[:, 0] = 1
    for s in range(1, n + 1):
        table[s, 1:] = table[s - 1, 1:] + table[s - 1, :-1]
    with np.errstate(over="ignore"):
        return jnp.asarray(table.astype(dtype))


def binomial_moments(params: Params) -> jax.Array:
    """R_{i,j} = sum_s C(s, j) P(level i, s slow servers busy), shape [m + K + 1, n + 1] (equation (3)).

    By (4), (5) and (8) it is P_{m,n,K} h_j A_{i,j} / A_{m+K,j}: no sum is needed.
    """
    A = level_polynomials(params)[:-1]
    return occupancy(params) * moment_ratios(params)[None] * A / A[-1:]


def occupancy(params: Params, *, corrected: bool = True) -> jax.Array:
    """P_{m,n,K}, every server busy, the buffer full and the line empty (equation (8)).

    ``corrected=False`` takes C_1 as printed, with M in place of K.
    """
    weight = params.q ** buffer_length(params) * p1(params)
    levels = 1 + p1(params) * C1(params, corrected=corrected)
    return weight / (moment_ratios(params)[0] * levels + weight * S1(params))


def p1(params: Params) -> jax.Array:
    """p_1 = [(mq)^m / m!] / sum_{s<m} (mq)^s / s! (equation (9)).

    By z_1 = b = m q, z_{s+1} = b z_s / ((s + 1)(1 + z_s)), p_1 = z_m, so that neither powers nor factorials appear.
    """
    arrivals = params.q * _count(params.m, params.q)

    def step(z: jax.Array, s: jax.Array) -> tuple[jax.Array, None]:
        return arrivals / s * (z / (1 + z)), None

    return jax.lax.scan(step, arrivals, jnp.arange(2, params.m + 1, dtype=arrivals.dtype))[0]


def p2(params: Params) -> jax.Array:
    """p_2 = p_1 / ((1 - q) + p_1): for q < 1 the Erlang C probability of M/M/m. The paper's p_m is the same number."""
    return p1(params) / ((1 - params.q) + p1(params))


def _geometric(first: jax.Array, ratio: jax.Array, terms: jax.Array) -> jax.Array:
    """first + first ratio + ... (``terms`` terms) by the printed quotient; it loses digits near ratio 1."""
    unit = ratio == 1
    return jnp.where(unit, terms, (first - first * ratio**terms) / jnp.where(unit, 1, 1 - ratio))


def C1(params: Params, *, corrected: bool = True) -> jax.Array:
    """C_1 = sum_{s=0}^K q^s (equation (10)); as printed its closed form has M in place of K where q != 1."""
    if corrected:
        return _geometric(jnp.ones_like(params.q), params.q, params.K + 1)
    return jnp.where(params.q == 1, params.K + 1, _geometric(jnp.ones_like(params.q), params.q, params.M + 1))


def _weighted(ratio: jax.Array, terms: jax.Array) -> jax.Array:
    """sum_{s=1}^terms s ratio^s by the printed quotient, which cancels near ratio 1."""
    unit = ratio == 1
    top = ratio - (terms + 1) * ratio ** (terms + 1) + terms * ratio ** (terms + 2)
    return jnp.where(unit, terms * (terms + 1) / 2, top / jnp.where(unit, 1, (1 - ratio) ** 2))


def C2(params: Params) -> jax.Array:
    """C_2 = sum_{s=1}^K s q^s (below Table 1). N_stalling as printed uses it; the right sum is of (K - s) q^s."""
    return _weighted(params.q, params.K)


def S1(params: Params) -> jax.Array:
    """S_1 = sum_{s=1}^M rho^s (equation (10))."""
    return _geometric(params.rho, params.rho, params.M)


def S2(params: Params) -> jax.Array:
    """S_2 = sum_{s=1}^M s rho^s (equation (11))."""
    return _weighted(params.rho, params.M)


def characteristic_roots(params: Params) -> tuple[jax.Array, jax.Array]:
    """(z_j, t_j), each [n + 1]: the roots of x^2 - (q + 1 + j / (m r)) x + q = 0 (section 3.2).

    So z_j + t_j = q + 1 + j / (m r), where j / r is printed, and z_j t_j = q. With w = 1 - q + j / (m r) the
    discriminant is w^2 + 4 q j / (m r): no difference of the printed squares; t_j is taken as q / z_j.
    """
    death = _phases(params) / (_count(params.m, params.q) * params.r)
    root = jnp.sqrt((1 - params.q + death) ** 2 + 4 * params.q * death)
    z = (params.q + 1 + death + root) / 2
    return z, params.q / z


def chebyshev_coefficients(params: Params) -> jax.Array:
    """b_{i,s} of Lemma A3, shape [m + K + 2, m + K + 2], zero for s > i; O((m + K)^2).

    Corrected: the recursion holds from i = 1 on, and b_{i,s} = 0 for s > i is part of it (without it A is wrong from
    i = 2 on).
    """
    m, levels = params.m, params.m + buffer_length(params) + 2
    columns = jnp.arange(levels)
    mq = params.q * _count(m, params.q)

    def shifted(row: jax.Array, by: int) -> jax.Array:
        return jnp.concatenate([jnp.zeros(by, row.dtype), row])[:levels]

    def step(pair: tuple[jax.Array, jax.Array], i: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        before, last = pair
        idle = (m - jnp.minimum(i - 1, m)).astype(last.dtype)
        new = m * last - idle * shifted(last, 1) + mq * shifted(last - before, 2)
        new = jnp.where(columns <= i, new / jnp.minimum(i, m).astype(last.dtype), 0)
        return (last, new), new

    zero = jnp.zeros(levels, params.q.dtype)
    first = zero.at[0].set(1)
    return jnp.concatenate([first[None], jax.lax.scan(step, (zero, first), jnp.arange(1, levels))[1]])


def chebyshev_polynomials(params: Params) -> jax.Array:
    """A_{i,j} = sum_{s<=i} b_{i,s} U_{i-s}(j), shape [m + K + 2, n + 1] (Lemma A3).

    U_k = (z^{k+1} - t^{k+1}) / (z - t) is summed as z^k + z^{k-1} t + ... + t^k (z = t happens at q = 1, j = 0).
    The b alternate in sign, so digits go as m grows.
    """
    z, t = characteristic_roots(params)
    b = chebyshev_coefficients(params)
    levels = b.shape[0]

    def step(pair: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        u, power = pair
        return (z * u + power * t, power * t), u

    u = jax.lax.scan(step, (jnp.ones_like(z), jnp.ones_like(z)), None, length=levels)[1]
    lag = np.subtract.outer(np.arange(levels), np.arange(levels))
    return jnp.where(jnp.asarray(lag >= 0)[..., None], b[..., None] * u[np.maximum(lag, 0)], 0).sum(1)


def corollary_level_sum(params: Params) -> jax.Array:
    """z_1 / (z_1 - 1), the limit of sum_i A_{i,1} / A_{m+K,1} as K grows, q < 1 (Corollary of Lemma A3); n >= 1.

    As (z - 1)(z - q) = z / (m r) it is m r (z_1 - q), the value used here: z_1 - 1 would lose digits at large r.
    """
    death = 1 / (_count(params.m, params.q) * params.r)
    gap = 1 - params.q + death
    above_q = (gap + jnp.sqrt(gap**2 + 4 * params.q * death)) / 2  # z_1 - q
    return above_q / death


def corollary_growth(params: Params) -> jax.Array:
    """z_j [n + 1], the limit of A_{m+K+1,j} / A_{m+K,j} as K grows, q < 1 (Corollary of Lemma A3)."""
    return characteristic_roots(params)[0]
