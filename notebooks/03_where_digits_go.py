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
# # 03 Where "numerically stable" formulas lose their digits
#
# **Question: the stalling paper calls its explicit solution numerically stable. Where is it not, why, and what does a
# formula look like that loses nothing?**
#
# We take the paper's equation (6) and Table 1 *with all misprints corrected* (notebook 02), so that in exact arithmetic
# everything is right; what remains is rounding. One Python function is run in two kinds of numbers: in float64, and in
# several hundred digits, which gives the truth. Then we derive a form of the same solution in which nothing is ever
# subtracted, write it down in twenty lines, and look at its error.
#
# Notation: $m$ fast and $n$ slow servers, stalling buffer $K$, waiting line $M$, $q = \lambda/(m\mu_1)$,
# $r = \mu_1/\mu_2$, $\rho = q/(1 + n/(mr))$; time unit $1/\mu_1$, arrival rate $b = qm$.
#
# This notebook needs [mpmath](https://mpmath.org): `pip install mpmath`.

# %%
import math
import os
import sys

import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES

try:
    import mpmath
except ImportError:
    sys.exit("This notebook computes in hundreds of digits with mpmath, which is not installed: pip install mpmath")

hetjax.enable_x64()
stalling = hetjax.stalling
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()

# %% [markdown]
# ## The paper's formulas, for any kind of number
#
# Lemmas A1 and A2 give the polynomials $A_{i,j}$ and the ratios $h_j$, equation (8) the probability $P = P_{m,n,K}$.
# With $L = m + K$, Table 1 has for the idle system and for "stuck" (slow servers busy, fast ones idle)
#
# $$P_{0,0,0} = P\sum_{s=0}^{n} \frac{(-1)^s h_s}{A_{L,s}},\qquad
# P_{stuck} = P\sum_{s=1}^{n} \frac{(-1)^{s-1} h_s}{A_{L,s}},\qquad
# P_{slow} = 1 - P\sum_{s=0}^{n} (-1)^s h_s \sum_{i=0}^{L}\frac{A_{i,s}}{A_{L,s}}.$$

# %%
def paper(q, r, K, M, m, n):
    """The alternating sums' terms, P and a few rows of Table 1, in the arithmetic of q and r."""
    one = q / q
    b, L = q * m, m + K
    A = [[one] * (n + 1), [b + j / r for j in range(n + 1)]]
    for i in range(1, L + 1):
        A.append([((b + j / r + min(i, m)) * A[i][j] - b * A[i - 1][j]) / min(i + 1, m) for j in range(n + 1)])
    h = [one]
    for j in range(n, 0, -1):
        h.insert(0, h[0] * (A[L + 1][j] / (q * A[L][j]) - 1) + math.comb(n, j - 1))
    rho = q / (1 + n / (m * r))
    p1 = b**m / math.factorial(m) / sum(b**s / math.factorial(s) for s in range(m))
    C1, S1 = sum(q**s for s in range(K + 1)), sum(rho**s for s in range(1, M + 1))
    S2 = sum(s * rho**s for s in range(1, M + 1))
    P = q**K * p1 / (h[0] * (1 + p1 * C1) + q**K * p1 * S1)
    level, p2 = h[0] * P / q**K, p1 / (1 - q + p1)
    share = [sum(A[i][s] for i in range(L + 1)) / A[L][s] for s in range(n + 1)]
    terms = [(-1)**s * P * h[s] / A[L][s] for s in range(n + 1)]
    first = h[1] * share[1]
    gap = 1 - q
    bracket = (K + m * gap - p2 * q / gap) * (h[0] * q / gap - S1) - first + h[0] * q / gap**2 - S1 * n - S2
    return {
        "terms": terms,
        "A_L0": A[L][0],
        "p_empty": sum(terms),
        "p_stuck": -sum(terms[1:]),
        "p_slow": 1 - P * sum((-1)**s * h[s] * share[s] for s in range(n + 1)),
        "p_fast": 1 - level / (b**m / math.factorial(m)),
        "p_stalling": 1 - level * (1 + p1) / p1,
        "mean_number": q * m + p2 * q / gap - P * bracket,
    }


def exact(q, r, K, M, m, n, digits=400):
    """The same to ``digits`` digits."""
    with mpmath.workdps(digits):
        return paper(mpmath.mpf(q), mpmath.mpf(r), K, M, m, n)


def error(value, true):
    """Relative error of a float against a number of many digits, at least 1e-17."""
    with mpmath.workdps(50):
        return float(max(abs((mpmath.mpf(float(value)) - true) / true), mpmath.mpf("1e-17")))


# %% [markdown]
# First, is the truth true? The 400-digit values beside those of hetjax, which works in float64 and differently (below).
# (`stalling.published_p_empty` and its siblings are the library's own copy of the formulas above.)

# %%
m, K, M = 3, 5, 10
LOAD = 1.2  # the fast servers alone are overloaded: the slow ones are needed
names = ("p_empty", "p_stuck", "p_slow", "p_fast", "p_stalling", "mean_number")
sizes = np.array([1, 3, 6, 10, 14, 20] if SMALL else [*range(1, 13), 14, 16, 18, 20])
ratios = np.array([5.0, 25.0, 125.0, 625.0])
ours = hetjax.evaluate("stalling", q=LOAD, r=ratios, K=K, M=M, m=m, n=sizes[:, None], metrics=names)
row = int(np.flatnonzero(sizes == 3)[0])
true, rounded = exact(LOAD, 5.0, K, M, m, 3), paper(LOAD, 5.0, K, M, m, 3)
print(f"q = {LOAD}, r = 5, K = {K}, M = {M}, m = {m}, n = 3: true value, and errors in float64")
for name in names:
    here = float(ours[name][row, 0])
    print(f"{name:>12} = {mpmath.nstr(true[name], 20):>24}   paper {error(rounded[name], true[name]):.0e},"
          f" hetjax {error(here, true[name]):.0e}")
    assert error(here, true[name]) < 2e-15 and error(rounded[name], true[name]) < 1e-12

# %% [markdown]
# ## The terms of an alternating sum
#
# At $n = 3$, $r = 5$ all is well. With 20 slow servers, 625 times slower than the fast ones, the terms of $P_{0,0,0}$
# exceed their sum by a factor that no double can bridge: a float64 has 16 digits, and the sum is what is left after the
# leading digits of its terms cancelled. It lies far below the rounding of the largest term, and what is computed for it
# is noise.

# %%
figure, panels = plt.subplots(1, 2, figsize=(9.4, 3.3), sharey=True)
for panel, (n, r) in zip(panels, ((3, 5.0), (20, 625.0)), strict=True):
    true, rounded = exact(LOAD, r, K, M, m, n), paper(LOAD, r, K, M, m, n)
    size = np.array([float(abs(term)) for term in true["terms"]])
    s = np.arange(n + 1)
    for odd, marker, label in ((0, "o", "positive term"), (1, "s", "negative term")):
        panel.semilogy(s[odd::2], size[odd::2], marker, color=CATEGORIES[odd], label=label,
                       markerfacecolor="white" if odd else None)
    panel.axhline(float(true["p_empty"]), color="black", linewidth=1.2, label="their sum $P_{0,0,0}$")
    panel.axhline(size.max() * 2.0**-53, color="black", linewidth=1.2, linestyle=":",
                  label="half a unit in the last\nplace of the largest term")
    panel.set(title=f"$n = {n}$, $r = {r:g}$", xlabel="Term $s$", xticks=s[::max(1, n // 5)])
    print(f"n = {n:2d}, r = {r:3g}: largest term {size.max():.1e}, sum {float(true['p_empty']):.3e},"
          f" computed in float64 {rounded['p_empty']:.3e}")
panels[0].set_ylabel("Size of $P\\,h_s/A_{L,s}$")
figure.legend(*panel.get_legend_handles_labels(), loc="outside right center")
assert size.max() * 2.0**-53 > float(true["p_empty"]) and error(rounded["p_empty"], true["p_empty"]) > 1
show(figure, "03_terms")

# %% [markdown]
# ## The error over $n$ and $r$
#
# The condition number of a sum, $\sum|t_s|\,/\,|\sum t_s|$, times the unit roundoff $2^{-53}$ is the error to be
# expected. It grows exponentially in $n$, the faster the larger $r$ is: slow servers that are hardly ever idle. Lines:
# relative error of the paper's $P_{0,0,0}$ in float64; thin dots: that prediction; at the bottom, hetjax. At an error
# of 1 no digit is left.

# %%
figure, axes = plt.subplots(figsize=(6.8, 3.8))
worst = 0.0
for k, r in enumerate(ratios):
    lost, predicted, kept = [], [], []
    for i, n in enumerate(sizes.tolist()):
        true, rounded = exact(LOAD, r, K, M, m, n), paper(LOAD, float(r), K, M, m, n)
        lost.append(error(rounded["p_empty"], true["p_empty"]))
        predicted.append(float(sum(abs(t) for t in true["terms"]) / true["p_empty"]) * 2.0**-53)
        kept += [error(ours[name][i, k], true[name]) for name in ("p_empty", "p_stuck", "p_slow")]
    worst = max(worst, *kept)
    axes.semilogy(sizes, lost, color=CATEGORIES[k], linestyle=DASHES[k], label=f"paper, $r = {r:g}$")
    axes.semilogy(sizes, predicted, color=CATEGORIES[k], linestyle=":", linewidth=0.8)
    axes.semilogy(sizes, kept[::3], color="0.35", marker=".", linestyle="none",
                  label="hetjax, all $r$" if k == len(ratios) - 1 else None)
    print(f"r = {r:5g}, n = {sizes[-1]}: error of the paper's P_000 {lost[-1]:.0e}, expected {predicted[-1]:.0e}")
axes.axhline(1, color="0.4", linewidth=0.8)
axes.set(xlabel="Slow servers $n$", ylabel="Relative error of $P_{0,0,0}$", ylim=(1e-18, None),
         xticks=range(0, 21, 4))
figure.legend(loc="outside right center")
print(f"hetjax: largest error of P_000, P_stuck and P_slow over all these points: {worst:.1e}")
assert worst < 1e-13 and lost[-1] > 1
show(figure, "03_error_over_n")

# %% [markdown]
# ## Three more ways to lose digits
#
# *One minus almost one.* $P_{fast}$, $P_{stalling}$ and $P_{slow}$ are $1 - \ldots$ in Table 1; where they are small,
# their digits are gone: the error is at least about $2^{-53}/P$.
#
# *A recursion that subtracts.* For $j = 0$ the solution of Lemma A1 is $A_{i,0} = b^i/i!$ up to level $m$ and falls by
# the factor $q$ a level above it. The recursion has another solution, above level $m$ a constant, and every rounding
# starts it: at low load it takes over, and with it goes whatever is computed from $A_{L,0}$. Most of the error of
# $P_{slow}$ below is of this kind.
#
# *Poles that cancel.* $\overline N$ contains terms with $1/(1-q)^2$ whose sum is finite; close to $q = 1$ they cancel
# and the error grows up to about $2^{-53}/(1-q)^2$.

# %%
points = sizes.size * ratios.size // 2  # as many points as above in all: the compiled program serves again
loads, gaps = np.geomspace(1e-4, 0.9, points), np.geomspace(1e-8, 0.5, points)
n, r = 2, 10.0
ours = hetjax.evaluate("stalling", q=np.concatenate([loads, 1 - gaps]), r=r, K=K, M=M, m=m, n=n, max_n=sizes[-1],
                       metrics=names)
at_low, at_one = ({name: x[part] for name, x in ours.items()} for part in (slice(points), slice(points, None)))
figure, (small, near) = plt.subplots(1, 2, figsize=(9.6, 3.5))
labels = {"p_fast": "$P_{fast}$", "p_stalling": "$P_{stalling}$", "p_slow": "$P_{slow}$"}
for k, (name, label) in enumerate(labels.items()):
    true = [exact(q, r, K, M, m, n)[name] for q in loads]
    lost = [error(paper(q, r, K, M, m, n)[name], t) for q, t in zip(loads, true, strict=True)]
    kept = [error(value, t) for value, t in zip(at_low[name], true, strict=True)]
    small.loglog(loads, lost, color=CATEGORIES[k], linestyle=DASHES[k], label=f"{label}, paper")
    small.loglog(loads, kept, color=CATEGORIES[k], marker=".", linestyle="none", label=f"{label}, hetjax")
    print(f"{name:>10} = {float(true[0]):.1e} at q = {loads[0]:g}: error of the paper's form {lost[0]:.0e},"
          f" hetjax {kept[0]:.0e}")
    assert max(kept) < 1e-14
for q in loads[::points // 4]:
    true, rounded = exact(q, r, K, M, m, n), paper(q, r, K, M, m, n)
    print(f"A_L0 at q = {q:.1e}: true {float(true['A_L0']):.2e}, by the recursion {rounded['A_L0']:.2e}")
small.axhline(1, color="0.4", linewidth=0.8)
small.set(xlabel="Load $q$", ylabel="Relative error", ylim=(1e-18, 1e12))
small.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
true = [exact(1 - gap, r, K, M, m, n)["mean_number"] for gap in gaps]
lost = [error(paper(1 - gap, r, K, M, m, n)["mean_number"], t) for gap, t in zip(gaps, true, strict=True)]
kept = [error(value, t) for value, t in zip(at_one["mean_number"], true, strict=True)]
near.loglog(gaps, lost, color=CATEGORIES[0], label="$\\overline{N}$, paper")
near.loglog(gaps, 2.0**-53 / gaps**2, color="black", linestyle=":", label="$2^{-53}/(1-q)^2$")
near.loglog(gaps, kept, color=CATEGORIES[1], marker=".", linestyle="none", label="$\\overline{N}$, hetjax")
near.set(xlabel="Distance to saturation of the fast servers $1 - q$", ylabel="Relative error", ylim=(1e-18, 1e2))
near.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
print(f"mean_number at 1 - q = {gaps[0]:g}: error of the paper's form {lost[0]:.0e}, hetjax {kept[0]:.0e}")
assert max(kept) < 2e-15
show(figure, "03_one_minus_and_poles")

# %% [markdown]
# ## The subtraction-free form
#
# Put $u_l = A_{l+1,j}/A_{l,j}$ and $v_l = c_{l+1} u_l - b$ with $c_l = \min(l, m)$. The recursion of Lemma A1, which
# subtracts, becomes
#
# $$v_0 = \frac jr,\qquad v_l = \frac jr + \frac{c_l\, v_{l-1}}{v_{l-1} + b},\qquad
# h_n = 1,\qquad h_{j-1} = h_j\,\frac{v_{L,j}}{b} + \binom{n}{j-1},$$
#
# and Table 1's bracket in $\overline N$ disappears with
# $\sum_{i\le L} A_{i,1}/A_{L,1} = r\,v_{L,1}$, so that $\overline N_{slow} = P\,(qmr\,(h_0 - 1) + n S_1)$ with
# $h_0 - 1 = h_1 v_{L,1}/b$ kept as a number of its own. Sums, products and quotients of non-negative numbers
# lose at most a rounding or two each.
#
# The probabilities of single states need no alternating sum either. Let $G_l$ be the law of the number of busy slow
# servers when level $l + 1$ (fast plus stalled) is first reached from level $l$; row $j$ by conditioning on the next
# event:
#
# $$G_l[j, \cdot] = \frac{b\,e_j + \frac jr\, G_l[j-1, \cdot] + c_l \sum_{j'<j} G_{l-1}[j, j']\, G_l[j', \cdot]}
# {b + \frac jr + c_l \sum_{j'<j} G_{l-1}[j, j']},$$
#
# all terms non-negative. The chain watched on level $L$ only goes up by one slow server at a time and down by such
# jumps, and the levels below follow by $P_l = P_{l+1}\,c_{l+1} G_l/b$. The function below is the complete solution;
# hetjax does the same with scaling against overflow, all $j$ at once, and powers of the one Möbius map
# $v \mapsto a + mv/(v + b)$ for the buffer, so that the cost of the means does not depend on $K$.

# %%
def without_subtraction(q, r, K, M, m, n):
    """P_empty, P_stuck and P_slow of the stalling queue, adding, multiplying and dividing non-negative numbers only."""
    b, L, rho = q * m, m + K, q / (1 + n / (m * r))
    passages, G = [], np.eye(n + 1)
    for l in range(L):
        c, old, G = min(l, m), G, np.zeros((n + 1, n + 1))
        for j in range(n + 1):
            down = c * old[j, :j] if l else np.zeros(j)
            row = down @ G[:j] + (j / r * G[j - 1] if j else 0)
            row[j] += b
            G[j] = row / (b + j / r + down.sum())
        passages.append(G)
    # level L alone: from j up to j + 1 at rate b; down to j - 1 at rate j/r, and to any j' < j by an excursion below L.
    # Phases are eliminated from the top (Grassmann, Taksar and Heyman); phase j is entered from j - 1 only
    rates = m * np.tril(G, -1) + np.diag(np.arange(1, n + 1) / r, -1)
    for j in range(n, 0, -1):
        rates[j - 1, :j - 1] += b * rates[j, :j - 1] / rates[j, :j].sum()
    weight = np.cumprod([1.0, *(b / rates[j, :j].sum() for j in range(1, n + 1))])
    levels = [weight]
    for l in range(L - 1, -1, -1):
        levels.insert(0, levels[0] @ passages[l] * min(l + 1, m) / b)
    line = weight[n] * sum(rho**s for s in range(1, M + 1))
    P = np.array(levels)
    total = P.sum() + line
    return {"p_empty": P[0, 0] / total, "p_stuck": P[0, 1:].sum() / total, "p_slow": (P[:, 1:].sum() + line) / total}


point = (LOAD, 625.0, K, M, m, 20)
true, found, rounded = exact(*point), without_subtraction(*point), paper(*point)
print("q = {}, r = {:g}, K = {}, M = {}, m = {}, n = {}:".format(*point))
for name in found:
    print(f"{name:>8} = {float(true[name]):.16e}; without subtraction: error {error(found[name], true[name]):.0e};"
          f" paper in float64: {rounded[name]:.3e}, error {error(rounded[name], true[name]):.0e}")
    assert error(found[name], true[name]) < 1e-14

# %% [markdown]
# ## What to try next
#
# * Run `paper` in float32 (`np.float32(1.2)`, ...): at which $n$ is the last digit gone now? The library in float32
#   keeps every metric of its reference table to 1e-5.
# * Put $r = 1$: all servers are equal, and with $K = 0$ the system is the plain queue M/M/($m+n$). Do the alternating
#   sums behave better there?
# * How many digits must `exact` be given at $n = 40$? Lower `digits` until the "truth" breaks.
# * The buffer's best length needs differences of neighbouring $\overline N$ far below their rounding: see
#   `stalling.optimal_buffer` and notebook 01.
