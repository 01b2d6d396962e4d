# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 The stalling paper, reproduced
#
# **Question: which of the formulas, tables and figures of *Stalling in queuing systems with heterogeneous channels*
# (L. Sakalauskas, L. Kaklauskas, R. Macaitienė, Applied Sciences 14, 2024, 773) can be reproduced, and where does the
# print differ from what is true?**
#
# We take the balance equations (1), (2) of the paper as the truth, solve them directly, and hold each printed formula
# against them: as printed, as corrected, in numbers. Then come Theorem A2 on the optimal buffer, and the two
# applications (Tables 2 and 3, Figures 4 and 5). Figures 1 and 3 show the system, Figure 2 its states; they are drawn
# anew from the definitions.
#
# Notation: $m$ fast servers (rate $\mu_1$), $n$ slow ones ($\mu_2$), $K$ stalling places, $M$ waiting places;
# $q = \lambda/(m\mu_1)$, $r = \mu_1/\mu_2$, $\rho = \lambda/(m\mu_1 + n\mu_2)$. State $(i, j, k)$: $i$ fast and $j$
# slow servers busy, $k$ customers stalled or waiting. How many digits the formulas keep is the subject of notebook 03.

# %%
import math
import os

import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES

hetjax.enable_x64()
stalling = hetjax.stalling
paper, applications = stalling.paper_objects, stalling.applications
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()

# %% [markdown]
# ## Figures 1 and 3: the system
#
# Customers enter at the left. The buffer feeds fast servers only; the waiting line opens when the buffer is full and
# every server is busy.

# %%
def box(axes, x, y, text, **style):
    axes.text(x, y, text, ha="center", va="center",
              bbox={"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "0.3"} | style)


def arrow(axes, start, end, text="", at=(0, 0.25), **style):
    look = {"arrowstyle": "-|>", "color": "0.25", "shrinkA": 2, "shrinkB": 2} | style
    axes.annotate("", xy=end, xytext=start, arrowprops=look)
    if text:
        axes.text((start[0] + end[0]) / 2 + at[0], (start[1] + end[1]) / 2 + at[1], text, ha="center", fontsize=8)


figure, axes = plt.subplots(figsize=(8.6, 3.1))
axes.set(xlim=(-0.3, 10.6), ylim=(-2.6, 2.5))
axes.axis("off")
box(axes, 3.1, 1.2, "stalling buffer\n$K$ places", facecolor="#cfe3f1")
box(axes, 8.0, 1.2, "$m$ fast servers\nrate $\\mu_1$ each", facecolor="#cfe3f1")
box(axes, 3.1, -1.2, "waiting line\n$M$ places", facecolor="0.9")
box(axes, 8.0, -1.2, "$n$ slow servers\nrate $\\mu_2 = \\mu_1/r$ each", facecolor="#f6dfb8")
arrow(axes, (-0.2, 0), (1.1, 0), "Poisson, $\\lambda$")
arrow(axes, (1.1, 0), (2.3, 0.95), "1: to a free fast server,\nelse into the buffer", at=(-0.95, 0.55))
arrow(axes, (1.1, 0), (6.5, -0.85), "2: buffer full, a slow server free", at=(1.15, 0.3), linestyle="--")
arrow(axes, (1.1, 0), (2.3, -0.95), "3: all servers busy,\ninto the line", at=(-0.95, -0.85))
arrow(axes, (3.75, 1.2), (7.3, 1.2), "first come, first served", at=(0, 0.15))
arrow(axes, (3.65, -1.2), (7.15, -1.2), "when a slow server frees", at=(0, -0.45))
arrow(axes, (3.1, -0.7), (3.1, 0.7), "when a\nplace frees", at=(0.6, 0.2))
arrow(axes, (8.7, 1.2), (10.4, 1.2))
arrow(axes, (8.85, -1.2), (10.4, -1.2))
arrow(axes, (3.1, -1.7), (3.1, -2.5), "4: lost if the line is full too", at=(1.6, -0.15))
show(figure, "02_system")

# %% [markdown]
# ## Figure 2 and equation (1): states and balance equations
#
# The function below writes the moves of the paper's state graph and solves its balance equations by Gaussian
# elimination: nothing of hetjax is in it. The figure draws the graph for two fast and two slow servers, $K = 2$,
# $M = 2$.

# %%
def moves(q, r, K, M, m, n):
    """{(from, to): rate}, mu1 = 1, states (i, j, k)."""
    rates = {}

    def add(start, end, rate):
        rates[start, end] = rate

    for level in range(m + K + 1):
        for j in range(n + 1):
            here = (min(level, m), j, max(level - m, 0))
            if level < m + K:
                up = (min(level + 1, m), j, max(level + 1 - m, 0))
                add(here, up, q * m)
                add(up, here, min(level + 1, m))
            elif j < n:
                add(here, (m, j + 1, K), q * m)
            if j:
                add(here, (here[0], j - 1, here[2]), j / r)
    for k in range(K, K + M):
        add((m, n, k), (m, n, k + 1), q * m)
        add((m, n, k + 1), (m, n, k), m + n / r)
    return rates


def law_of(q, r, K, M, m, n):
    """{state: stationary probability}."""
    rates = moves(q, r, K, M, m, n)
    states = sorted({state for pair in rates for state in pair})
    number = {state: i for i, state in enumerate(states)}
    generator = np.zeros((len(states), len(states)))
    for (start, end), rate in rates.items():
        generator[number[start], number[end]] += rate
        generator[number[start], number[start]] -= rate
    equations = generator.T.copy()
    equations[0] = 1  # the normalisation (2) in place of one equation
    return dict(zip(states, np.linalg.solve(equations, np.eye(len(states))[0]), strict=True))


assert len(law_of(0.5, 4.0, 3, 6, 4, 2)) == (4 + 3 + 1) * (2 + 1) + 6  # the number of states the paper states

figure, axes = plt.subplots(figsize=(8.6, 3.2))
m, n, K, M = 2, 2, 2, 2
where = {state: (state[0] + state[2], -state[1]) for pair in moves(1, 1, K, M, m, n) for state in pair}
for start, end in moves(1, 1, K, M, m, n):
    a, b = np.array(where[start], float), np.array(where[end], float)
    side = 0.05 * np.array([-(b - a)[1], (b - a)[0]])
    arrow(axes, a + 0.26 * (b - a) + side, b - 0.26 * (b - a) + side, shrinkA=0, shrinkB=0, linewidth=0.9)
for state, (x, y) in where.items():
    colour = "0.85" if state[2] > K else "#cfe3f1" if state[2] else "white"
    axes.text(x, y, "{},{},{}".format(*state), ha="center", va="center",
              bbox={"boxstyle": "circle,pad=0.25", "facecolor": colour, "edgecolor": "0.3"})
for x, y, text in ((0.5, 0.2, "$\\lambda$"), (0.5, -0.27, "$\\mu_1$"), (2.5, -0.27, "$2\\mu_1$"),
                   (0.16, -0.5, "$\\mu_2$"), (0.18, -1.5, "$2\\mu_2$"), (4.14, -0.5, "$\\lambda$"),
                   (4.5, -1.75, "$\\lambda$"), (4.5, -2.32, "$2\\mu_1 + 2\\mu_2$")):
    axes.text(x, y, text, ha="center", fontsize=8)
axes.set(xlim=(-0.5, 6.5), ylim=(-2.5, 0.45), xticks=range(7), yticks=[0, -1, -2], yticklabels=["0", "1", "2"],
         xlabel="Busy fast servers $i$ plus stalled or waiting customers $k$", ylabel="Busy slow servers $j$",
         title="States $i,j,k$ for $m = n = K = M = 2$; blue: somebody stalls, grey: somebody waits in the line")
show(figure, "02_states")

# %% [markdown]
# ## Lemmas A1 and A3, and the roots $z_j$, $t_j$
#
# * Lemma A1 as printed reads $A_{i+1,j} = [(qm + j/r + \min(i,m))\,A_{i-1,j} - qm\,A_{i-1,j}]/\min(i+1,m)$. The first
#   $A$ on the right is $A_{i,j}$, and the recursion holds from $i = 1$ on (printed: $i > 1$).
# * Lemma A3 holds from $i = 1$ on too (printed: $i > 1$), and needs $b_{i,s} = 0$ for $s > i$, which the paper does not
#   say; without it $A$ is wrong from $i = 2$ on.
# * $z_j + t_j = q + 1 + j/(m r)$, by the definition two lines above it; printed $q + 1 + j/r$.
#
# The truth is $A_{i,j} = R_{i,j}/R_{0,j}$, equation (4), with $R_{i,j} = \sum_{s \ge j} \binom{s}{j} P(i, s)$ from the
# law of all states at one moderate point, the servers of Table 2 with a short buffer.

# %%
q, r, K, M, m, n = 0.7, 5.0, 4, 8, 5, 2
law = law_of(q, r, K, M, m, n)


def polynomials(q, printed=False):
    """A_{i,j}, i = 0..m+K+1, j = 0..n, by Lemma A1, at loads q (a number or an array)."""
    j = np.arange(n + 1).reshape(-1, *[1] * np.ndim(q))
    A = [np.ones_like(j + q), q * m + j / r]
    for i in range(1, m + K + 1):
        first = A[i - 1] if printed else A[i]
        A.append(((q * m + j / r + min(i, m)) * first - q * m * A[i - 1]) / min(i + 1, m))
    return np.array(A)


R = np.array([[sum(math.comb(s, j) * law[min(i, m), s, max(i - m, 0)] for s in range(j, n + 1)) for j in range(n + 1)]
              for i in range(m + K + 1)])
A = R / R[0]
point = stalling.Params(q, r, K, M, m, n)
chebyshev = np.asarray(paper.chebyshev_polynomials(point))
print(f"{'i':>3} {'A_i1 by (4)':>12} {'A1 printed':>12} {'A1 corrected':>13} {'A3 corrected':>13}")
columns = (A, polynomials(q, True), polynomials(q), chebyshev)
for i in range(m + K + 1):
    print(f"{i:3d} {columns[0][i, 1]:12.6f} {columns[1][i, 1]:12.6f}", *(f"{c[i, 1]:13.6f}" for c in columns[2:]))
assert np.allclose(polynomials(q)[:-1], A, rtol=1e-10) and np.allclose(chebyshev[:-1], A, rtol=1e-10)
assert abs(polynomials(q, True)[2, 1] / A[2, 1] - 1) > 0.1
z, t = paper.characteristic_roots(point)
print(f"z_1 + t_1 = {float(z[1] + t[1]):.6f};  q + 1 + 1/(m r) = {q + 1 + 1 / (m * r):.6f},"
      f"  printed q + 1 + 1/r = {q + 1 + 1 / r:.6f}")
assert abs(z[1] + t[1] - (q + 1 + 1 / (m * r))) < 1e-14

# %% [markdown]
# ## Theorem A1 and Table 1: printed, corrected, true
#
# The function below evaluates Table 1 as printed, or with four corrections and nothing else changed (both with the
# corrected Lemma A1):
#
# * $C_1 = \sum_{s=0}^{K} q^s = (1 - q^{K+1})/(1-q)$ is printed with $M$ in place of $K$. It enters $P_{m,n,K}$,
#   equation (8), and so all of Table 1.
# * $\overline N_{stalling} = K - (h_0 P_{m,n,K}/q^K)\,(K/p_1 + C)$ needs $C = \sum_{s=0}^{K} (K - s)\,q^s$; printed is
#   $C_2 = \sum_{s=1}^{K} s\,q^s$.
# * The second term of $\overline N$ is $p_2 q/(1-q)$, printed $p_2 q/(1-q)^2$, with $p_2 = p_1/((1-q) + p_1)$; "$p_m$"
#   in the same formula is $p_2$ as well.
# * At $q = 1$ the factor of $h_0$ in $\overline N$ is $K(K+1)/2 - m$, printed $K + 1 - m$.

# %%
def table_1(q, corrected):
    """The rows of Table 1 at loads q, by the paper's formulas."""
    rho, one, L = q / (1 + n / (m * r)), q == 1, m + K
    gap = np.where(one, 1, 1 - q)  # where q = 1 the rows have a second form
    A = polynomials(q)
    h = [np.ones_like(A[0, 0])]
    for j in range(n, 0, -1):  # Lemma A2
        h.insert(0, h[0] * (A[L + 1, j] / (q * A[L, j]) - 1) + math.comb(n, j - 1))
    p1 = (m * q)**m / math.factorial(m) / sum((m * q)**s / math.factorial(s) for s in range(m))
    p2 = p1 / (1 - q + p1)
    C1 = np.where(one, K + 1, (1 - q**((K if corrected else M) + 1)) / gap)
    C = sum(((K - s) if corrected else s) * q**s for s in range(K + 1))
    S1, S2 = sum(rho**s for s in range(1, M + 1)), sum(s * rho**s for s in range(1, M + 1))
    P = q**K * p1 / (h[0] * (1 + p1 * C1) + q**K * p1 * S1)
    level = h[0] * P / q**K
    totals = A[:L + 1].sum(axis=0) / A[L]
    sign = [(-1)**s for s in range(n + 1)]
    first = h[1] * totals[1]
    second = p2 * q / (gap if corrected else gap**2)
    bracket = (K + m * gap - p2 * q / gap) * (h[0] * q / gap - S1) - first + h[0] * q / gap**2 - S1 * n - S2
    factor = K * (K + 1) / 2 - m if corrected else K + 1 - m
    return {
        "p_full": P,
        "p_empty": P * sum(sign[s] * h[s] / A[L, s] for s in range(n + 1)),
        "p_slow_only": P / A[L, n],
        "p_stuck": -P * sum(sign[s] * h[s] / A[L, s] for s in range(1, n + 1)),
        "mean_stuck": h[1] * P / A[L, 1],
        "p_slow": 1 - P * sum(sign[s] * h[s] * totals[s] for s in range(n + 1)),
        "mean_slow": P * (first + n * S1),
        "p_fast": 1 - level / ((q * m)**m / math.factorial(m)),
        "mean_fast": m - m * level / p2,
        "p_stalling": 1 - level * (1 + p1) / p1,
        "mean_stalled": K - level * (K / p1 + C),
        "p_wait": P * S1,
        "mean_waiting": P * S2,
        "p_loss": P * rho**M,
        "mean_number": np.where(one, m + P * (factor * h[0] + first + S2 + S1 * (K + n)),
                                q * m + second - P * bracket),
    }


def balance(law):
    """The same from the law of all states."""
    weights = {
        "p_full": lambda i, j, k: (i, j, k) == (m, n, K), "p_empty": lambda i, j, k: i + j + k == 0,
        "p_slow_only": lambda i, j, k: (i, j) == (0, n), "p_stuck": lambda i, j, k: i == 0 < j,
        "mean_stuck": lambda i, j, k: j * (i == 0), "p_slow": lambda i, j, k: j > 0, "mean_slow": lambda i, j, k: j,
        "p_fast": lambda i, j, k: i > 0, "mean_fast": lambda i, j, k: i, "p_stalling": lambda i, j, k: k > 0,
        "mean_stalled": lambda i, j, k: min(k, K), "p_wait": lambda i, j, k: k > K,
        "mean_waiting": lambda i, j, k: max(k - K, 0), "p_loss": lambda i, j, k: k == K + M,
        "mean_number": lambda i, j, k: i + j + k}
    return {name: sum(float(weight(*state)) * p for state, p in law.items()) for name, weight in weights.items()}


loads = np.linspace(0.02, 0.98, 11 if SMALL else 97)
metrics = list(balance(law))
library = hetjax.evaluate("stalling", q=np.append(loads, q), r=r, K=K, M=M, m=m, n=n, metrics=metrics)
printed, corrected, true = table_1(q, False), table_1(q, True), balance(law)
print(f"q = {q}, r = {r:g}, K = {K}, M = {M}, m = {m}, n = {n}")
print(f"{'Table 1':>14} {'as printed':>12} {'corrected':>12} {'balance eqs.':>12} {'hetjax':>12}")
for name in metrics:
    hetjax_value = float(library[name][-1])
    print(f"{name:>14} {printed[name]:12.8f} {corrected[name]:12.8f} {true[name]:12.8f} {hetjax_value:12.8f}")
    assert abs(corrected[name] / true[name] - 1) < 1e-10
    assert abs(hetjax_value / true[name] - 1) < 1e-12
    assert abs(printed[name] / true[name] - 1) > 1e-3  # C_1 spoils every row

at_one = {which: float(table_1(1.0, which)["mean_number"]) for which in (False, True)}
true_at_one = balance(law_of(1.0, r, K, M, m, n))["mean_number"]
print(f"N at q = 1: printed {at_one[False]:.6f}, corrected {at_one[True]:.6f}, balance equations {true_at_one:.6f}")
assert abs(at_one[True] / true_at_one - 1) < 1e-12 and abs(at_one[False] / true_at_one - 1) > 1e-3

# %% [markdown]
# (`stalling.published_mean_number(params, corrected=...)` and its siblings hold the same formulas for use elsewhere.)
#
# How far is the print from the truth over all loads? The figure keeps the queue and varies $q$. The misprint in $C_1$
# alone makes errors of up to 25 %; those in $\overline N_{stalling}$ and $\overline N$ make factors of more than a
# hundred, one at low, the other at high loads.

# %%
printed, corrected = table_1(loads, False), table_1(loads, True)
figure, axes = plt.subplots(figsize=(6.6, 3.5))
names = {"p_full": "$P_{m,n,K}$", "mean_fast": "$\\overline{N}_{fast}$",
         "mean_stalled": "$\\overline{N}_{stalling}$", "mean_slow": "$\\overline{N}_{slow}$",
         "mean_number": "$\\overline{N}$"}
for i, (name, label) in enumerate(names.items()):
    right = np.asarray(library[name][:-1])
    error = np.abs(printed[name] / right - 1)
    axes.semilogy(loads, error, color=CATEGORIES[i], linestyle=DASHES[i], label=label)
    rest = np.abs(corrected[name] / right - 1)[loads > 0.3].max()
    print(f"{name:>14}: as printed off by up to {error.max():7.1e}; corrected by up to {rest:.0e} where q > 0.3")
    assert rest < 1e-9
axes.set(xlabel="Load of the fast servers $q$", ylabel="Relative error of the formula as printed", ylim=(1e-6, 1e4))
figure.legend(title="Table 1, as printed", loc="outside right center")
show(figure, "02_table_1_printed")

# %% [markdown]
# ## Theorem A2: the optimal buffer
#
# For $0 < q < 1$ the real $K_0$ that minimises $\overline N$ is approximated by (i), with error $O(q^K)$, and by (ii),
# with error $O(1/r)$. (i) is right as printed. (ii) is not: it reads
#
# $$K_0 = r m(1-q) - \frac{1+q}{1-q} + \frac{p_2 q}{(1-q)^2} - m(1-q) - \frac1{\ln q} + O(1/r),$$
#
# while the limit of (i) is $K_0 = m(1-q)(r-1) + (p_2 q - 1)/(1-q) - 1/\ln q + O(1/r)$. The constants differ, so the
# printed error never gets small. And the theorem says $M \ge 1$, but (ii) needs an *endless* waiting line: slow servers
# of vanishing speed fill up and stay full, and then
# $K_0 \sim m(1-q)\,r\,(1-q^n)/(1 - q^n + q^{n+M})$.

# %%
ratios = np.geomspace(2, 2000, 13 if SMALL else 61)
queues = [(load, places) for load in (0.5, 0.8) for places in (math.inf, 20.0, 5.0)]
best = hetjax.evaluate(
    "stalling_buffer", q=np.array([[load] for load, _ in queues]), r=ratios, M=np.array([[M] for _, M in queues]),
    m=5, n=2, metrics=["optimal_buffer_real", "error_i", "error_ii_printed", "error_ii_corrected"])

figure, (errors, slopes) = plt.subplots(1, 2, figsize=(10, 3.4))
names = {"error_i": "(i)", "error_ii_printed": "(ii) printed", "error_ii_corrected": "(ii) corrected"}
for row in (0, 3):
    load = queues[row][0]
    for i, (name, label) in enumerate(names.items()):
        error = np.abs(np.asarray(best[name])[row])
        errors.loglog(ratios, np.where(error > 1e-11, error, np.nan), color=CATEGORIES[i], linestyle=DASHES[row // 3],
                      label=f"{label}, $q = {load}$")
        print(f"q = {load}, M = inf: {label:>14} off by {error[0]:9.2e} places at r = 2, {error[-1]:9.2e} at r = 2000")
    assert error[-1] < 0.05  # (ii) corrected
errors.set(xlabel="Speed ratio $r = \\mu_1/\\mu_2$", ylabel="Error of $K_0$ (places)", ylim=(1e-11, 30),
           title="Theorem A2, endless waiting line")
for row, (load, places) in enumerate(queues):
    slope = np.asarray(best.optimal_buffer_real)[row] / (5 * (1 - load) * ratios)
    label = f"$q = {load}$, $M = {'\\infty' if places == math.inf else f'{places:g}'}$"
    slopes.semilogx(ratios, slope, color=CATEGORIES[row % 3], linestyle=DASHES[row // 3], label=label)
    limit = 1.0 if places == math.inf else (1 - load**2) / (1 - load**2 + load ** (2 + places))
    slopes.plot(ratios[-1] * 1.35, limit, marker="<", color=CATEGORIES[row % 3], clip_on=False)
    print(f"q = {load}, M = {places:4g}: K_0/(m (1-q) r) = {slope[-1]:.5f} at r = 2000, limit {limit:.5f}")
    assert abs(slope[-1] - limit) < 0.02
slopes.set(xlabel="Speed ratio $r = \\mu_1/\\mu_2$", ylabel="$K_0\\,/\\,(m(1-q)\\,r)$", ylim=(0, 1.1),
           title="A finite line changes even the slope (marks: limits)")
errors.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
slopes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
show(figure, "02_theorem_a2")

# %% [markdown]
# (i) is right to rounding once $q^{K_0}$ is small (its line ends where the error passes 1e-11 places); corrected (ii)
# improves like $1/r$; printed (ii) stays off by a constant.
#
# ## Section 4.1, Figure 4: the performance of the servers
#
# The paper rates a server by $W = U\,R\,D\,\mathrm{IOPS}_{raid}/(S\,T)$ (processors, transfer rate, transferred data,
# operations of the disk array; memory speed and type) and takes $r = W_{fast}/W_{slow} = 1190/171 = 6.959$. Its own
# data give another ratio. $\mathrm{IOPS}_{raid}$ reproduces; the factor rpm printed in $\mathrm{IOPS}_{disk}$ cannot be
# right.

# %%
fast, slow = applications.FAST_SERVER, applications.SLOW_SERVER
factors = {"processors $U$": "benchmark", "transfer rate $R$": "transfer_rate",
           "transferred data $D$": "transferred_data", "$\\mathrm{IOPS}_{raid}$": "iops",
           "memory speed $1/S$": "memory_speed", "memory type $1/T$": "memory_type"}
ratio = {label: fast[key] / slow[key] if "1/" not in label else slow[key] / fast[key] for label, key in factors.items()}
W = [applications.performance_coefficient(**server) for server in (fast, slow)]
product = W[0] / W[1]
print("IOPS_raid:", applications.iops_raid(57, 5), applications.iops_raid(133, 7), "(printed 18,098 and 62,843)")
print(f"IOPS_disk of 7,200 rpm and 17.5 ms: printed formula {applications.iops_disk_published(7200, 13.4, 4.1):,.0f},"
      f" without rpm {applications.iops_disk(13.4, 4.1):.1f} (the paper uses 57)")
print(f"W_fast / W_slow = {product:.2f} by the printed formula and data; 1190 / 171 = {1190 / 171:.3f}")
assert abs(product - math.prod(ratio.values())) < 1e-12 and product > 2 * 1190 / 171

figure, axes = plt.subplots(figsize=(6.6, 2.9))
labels = [*ratio, "product $W_{fast}/W_{slow}$", "printed $1190/171$"]
values = [*ratio.values(), product, 1190 / 171]
bars = axes.barh(labels, values, color=["#9ecae1"] * len(ratio) + ["#0072B2", "#E69F00"], edgecolor="0.2")
axes.bar_label(bars, [f" {value:.2f}" for value in values])
axes.axvline(1, color="0.3", linewidth=0.8)
axes.invert_yaxis()
axes.set(xscale="log", xlim=(0.3, 30), xlabel="Fast server over slow server")
show(figure, "02_figure_4_performance")

# %% [markdown]
# ## Table 2: the cluster of five fast and two slow servers
#
# The inputs printed in Table 2 exclude each other. Rates 0.58 and 0.146 give $q = 0.58/(5\cdot 0.146) = 0.7945$,
# printed 0.751; rates 0.146 and 0.045 give $r = 3.244$, printed 6.959; $K$ and $M$ are not printed at all. The printed
# results are those of $q = 0.75124$, $r = 6.959$ and a buffer so long that slow servers are never used, the plain queue
# M/M/5. Two rows are mislabelled: "$P_0 = 0.464$" is the Erlang C probability $p_2$, and the value 0.981 of
# "$P_{m,n,K}$" is $P_{fast}$.

# %%
given, consistent = applications.TABLE_2_PRINTED_INPUTS, applications.TABLE_2_CONSISTENT_INPUTS
inputs = {"q": [given["arrival_rate"] / (5 * given["mu1"]), consistent["q"]],
          "r": [given["mu1"] / given["mu2"], consistent["r"]]}
print(f"from the printed rates: q = {inputs['q'][0]:.4f}, r = {inputs['r'][0]:.4f};"
      f" printed: q = {given['q']}, r = {given['r']}")
places = np.array([0, 4, 10, 20, 40, 100]) if SMALL else np.arange(101)
printed = applications.TABLE_2_PRINTED_OUTPUTS
cluster = hetjax.evaluate("stalling", q=np.array(inputs["q"])[:, None], r=np.array(inputs["r"])[:, None], K=places,
                          M=10, m=5, n=2, metrics=metrics)
print(f"{'':>14} {'printed':>8} {'rates as printed':>17} {'q, r consistent':>16}   (K = 100)")
for name, value in printed.items():
    by_rates, fitted = (float(x) for x in cluster[name][:, -1])
    print(f"{name:>14} {value:8.4f} {by_rates:17.4f} {fitted:16.4f}")
    assert abs(fitted - value) < 6e-4
offered = 5 * consistent["q"]
p1 = offered**5 / math.factorial(5) / sum(offered**s / math.factorial(s) for s in range(5))
p2 = p1 / (1 - consistent["q"] + p1)
print(f"P_0 = 0.464 is p_2 = {p2:.4f};  P_mnK = 0.981 is P_fast = {float(cluster.p_fast[1, -1]):.4f};"
      f"  P_mnK itself is {float(cluster.p_full[1, -1]):.1e}")
assert abs(p2 - 0.464) < 6e-4

figure, panels = plt.subplots(2, 3, figsize=(9.4, 4.6), sharex=True)
shown = {"mean_number": "$\\overline{N}$ (customers)", "mean_stalled": "$\\overline{N}_{stalling}$ (customers)",
         "mean_fast": "$\\overline{N}_{fast}$ (customers)", "p_stalling": "$P_{stalling}$", "p_empty": "$P_{0,0,0}$",
         "mean_slow": "$\\overline{N}_{slow}$ (customers)"}
for panel, (name, label) in zip(panels.flat, shown.items(), strict=True):
    for i, which in enumerate(("rates as printed", "$q$, $r$ consistent")):
        panel.plot(places, cluster[name][i], color=CATEGORIES[i], linestyle=DASHES[i], label=which)
    panel.axhline(printed[name], color="0.2", linewidth=0.9, linestyle=":",
                  label="printed result")
    panel.set_ylabel(label)
for panel in panels[1]:
    panel.set_xlabel("Stalling buffer $K$ (places)")
figure.legend(*panel.get_legend_handles_labels(), loc="outside right center")
show(figure, "02_table_2")

# %% [markdown]
# No buffer makes the printed rates give the printed results; the consistent inputs reach all of them from about 40
# places on.
#
# ## Table 3 and Figure 5: chainsaws beside harvesters
#
# Table 3 gives the work rates of a harvester ($\mu_1$) and of a chainsaw ($\mu_2$) for trees of 0.1 to 1 m³; Figure 5
# the number $n$ of chainsaws needed beside $m = 1$ or 2 harvesters. The paper does not say for which tree. The two
# stated answers are 10 chainsaws at 50 m³/h beside one harvester, 20 at 100 m³/h beside two. We take "needed" as the
# least $n$ with a steady state, $\lambda < m\mu_1 + n\mu_2$, and ask which trees give both answers.

# %%
rates = applications.FOREST[:, [2, 4]]
loads = np.linspace(0.5, 120, 60 if SMALL else 479)


def chainsaws(load, mu1, mu2, m):
    """The least n with load < m mu1 + n mu2."""
    return np.maximum(np.floor((load - m * mu1) / mu2) + 1, 0)


stated = [(x["m"], x["arrival_rate"], x["n"]) for x in applications.FOREST_OPTIMA]
print(" tree  harvester  chainsaw   least n for", *(f"(m = {m}, {load:g} m3/h)" for m, load, _ in stated))
fitting = []
for volume, (mu1, mu2) in zip(applications.FOREST[:, 0], rates, strict=True):
    needed = [int(chainsaws(load, mu1, mu2, m)) for m, load, _ in stated]
    print(f"{volume:5.1f} {mu1:10.1f} {mu2:9.1f} {needed[0]:25d} {needed[1]:16d}")
    fitting += [float(volume)] * (needed == [n for *_, n in stated])
print("trees that give both stated answers:", fitting, "m3")
assert fitting == [0.4]

figure, panels = plt.subplots(1, 2, figsize=(9.4, 3.5), sharey=True)
shades = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(rates)))
for panel, (m, load, n) in zip(panels, stated, strict=True):
    for i, (volume, (mu1, mu2)) in enumerate(zip(applications.FOREST[:, 0], rates, strict=True)):
        panel.step(loads, chainsaws(loads, mu1, mu2, m), where="mid", color=shades[i],
                   linestyle="-" if volume == 0.4 else DASHES[i % 5], linewidth=2.6 if volume == 0.4 else 1.1,
                   label=f"{volume:g}" if m == 1 else None)
    panel.plot(load, n, "o", markersize=9, markerfacecolor="none", markeredgecolor="black", markeredgewidth=1.6,
               label="stated" if m == 1 else None)
    panel.set(xlabel="Load $\\lambda$ (m³/h)", title=f"$m = {m}$ harvester{'s' * (m > 1)}", ylim=(0, 60))
panels[0].set_ylabel("Chainsaws needed $n$")
figure.legend(title="Tree (m³)", loc="outside right center")
show(figure, "02_figure_5_forest")

# %% [markdown]
# ## What to try next
#
# * Take another point in the table of printed and corrected formulas, for instance $K = M$: which rows does the
#   misprint in $C_1$ leave alone, and why?
# * Which $n$ minimises $\overline N$ in the forest, with chainsaws as slow servers and a stalling buffer? Sweep `n` and
#   `K` (`sweeps/forest.toml` has the axes). More chainsaws than needed never harm if the buffer is right: is that so?
# * The abstract calls the solution numerically stable. Raise $n$ to 20 in the table above and watch `p_empty`; then go
#   on to notebook 03.
