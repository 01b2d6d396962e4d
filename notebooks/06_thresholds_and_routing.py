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
# # 06 When to start the slow server, and where to send a customer unseen
#
# **Question: a node has a fast and a slow server behind one queue. How many customers should wait before the slow one
# starts? And how should a router share customers between two such nodes if it cannot see them?**
#
# These are the questions of *Optimal open-loop routing and threshold-based allocation in two parallel queueing systems
# with heterogeneous servers* (D. Efrosinin, N. Stepanova, Mathematics 9, 2021, 2766). Only its abstract is at hand; the
# model below is our reading of it. The fast server (rate $\mu_1$) always works; the slow one ($\mu_2$) takes the head
# of the queue as soon as $T$ customers wait, the newcomer included. $L(T)$: mean number in the node, $\lambda$: arrival
# rate, $r = \mu_1/\mu_2$, load $\rho = \lambda/(\mu_1 + \mu_2)$.

# %%
import os
from fractions import Fraction

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES, MARKERS

hetjax.enable_x64()
threshold_queue, parallel_queues = hetjax.threshold_queue, hetjax.parallel_queues
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()

# %% [markdown]
# ## One node, Poisson arrivals: $L(T)$
#
# `poisson_means` has $L(T)$ in closed form. First we check it against the balance equations, solved directly on a long
# finite buffer.

# %%
def node_by_balance(rate, mu1, mu2, T, places=400):
    """Mean number from the balance equations; state (x, s): x in fast server and queue, s = 1 if the slow one works."""
    chain = np.zeros((2 * places, 2 * places))
    for x in range(places):
        for s in (0, 1):
            here = 2 * x + s
            if s == 0 and x > T:
                chain[here, here + 1] = 1.0  # never entered
                continue
            if x + 1 < places:  # with x = T, T wait when the newcomer is there, and one goes to the slow server
                chain[here, here + 1 if s == 0 and x == T else here + 2] += rate
            if x:
                chain[here, here - 2] += mu1
            if s:  # with x > T, T or more wait, and the slow server goes on with one of them
                chain[here, here - 2 if x > T else here - 1] += mu2
    equations = (chain - np.diag(chain.sum(axis=1))).T
    equations[0] = 1
    p = np.linalg.solve(equations, np.eye(2 * places)[0])
    return float(p @ (np.repeat(np.arange(places), 2) + np.tile([0, 1], places)))


def in_pieces(function, *arrays, size=1024):
    """``function`` of arrays that broadcast, in pieces of one length, so that it is compiled once."""
    arrays = np.broadcast_arrays(*(np.asarray(x, float) for x in arrays))
    count = arrays[0].size
    padded = [np.resize(x, -(-count // size) * size) for x in arrays]
    pieces = [function(*(x[i:i + size] for x in padded)) for i in range(0, padded[0].size, size)]
    joined = np.concatenate(pieces, axis=-1)[..., :count]
    return joined.reshape(joined.shape[:-1] + arrays[0].shape)


means = jax.jit(lambda rate, mu1, mu2, T: threshold_queue.poisson_means(rate, mu1, mu2, T).number)


def mean_number(rate, mu1, mu2, T):
    """L(T), elementwise in arrays that broadcast."""
    return in_pieces(means, rate, mu1, mu2, T)


thresholds = np.arange(1.0, 13.0)
ratios = np.array([2.0, 5.0, 10.0, 20.0])
load = 0.6
L = mean_number(load * (1 + 1 / ratios[:, None]), 1.0, 1 / ratios[:, None], thresholds)
for r, T in ((5.0, 3), (20.0, 8)):
    direct = node_by_balance(load * (1 + 1 / r), 1.0, 1 / r, T)
    closed = L[list(ratios).index(r), T - 1]
    print(f"rho = {load}, r = {r:g}, T = {T}: L = {closed:.12f}, balance equations {direct:.12f}")
    assert abs(closed / direct - 1) < 1e-9
figure, axes = plt.subplots(figsize=(6.2, 3.3))
for i, (r, row) in enumerate(zip(ratios, L, strict=True)):
    best = int(row.argmin())
    axes.plot(thresholds, row / row[best], color=CATEGORIES[i], linestyle=DASHES[i], marker=MARKERS[i],
              label=f"{r:g}")
    axes.plot(thresholds[best], 1, "o", markersize=9, markerfacecolor="none", markeredgecolor="black")
    print(f"rho = {load}, r = {r:4g}: best threshold {thresholds[best]:g},"
          f" T = 1 costs {100 * (row[0] / row[best] - 1):.1f} %")
axes.set(xlabel="Threshold $T$ (customers waiting)", ylabel="$L(T)\\,/\\,\\min L$",
         title=rf"$\rho = {load}$; circles: best $T$", xticks=thresholds[::2], ylim=(0.98, 1.6))
figure.legend(title=r"$r = \mu_1/\mu_2$", loc="outside right center")
show(figure, "06_mean_over_threshold")

# %% [markdown]
# ## The best threshold, without search
#
# $L(T+1) - L(T)$ has the sign of an explicit expression $G(T)$ (`threshold_sign`), which turns from negative to
# positive once; `optimal_threshold` uses it, as values of $L$ cannot be compared where they tie in float64. The usual
# heuristic, $\max(1, \lfloor(\mu_1 - \lambda)(1/\mu_2 - 1/\mu_1)\rfloor + 1)$, starts the slow server when waiting for
# the fast one would take longer, and so ignores later arrivals. `explicit_threshold` is a formula of the same cost.

# %%
@jax.jit
def rules(rate, mu1, mu2):
    """Best, usual and explicit threshold, stacked."""
    return jnp.stack([rule(rate, mu1, mu2) for rule in (
        threshold_queue.optimal_threshold, threshold_queue.simple_threshold, threshold_queue.explicit_threshold)])


side = 25 if SMALL else 141
loads, ratios = np.linspace(0.05, 0.99, side), np.geomspace(1.0, 200.0, side)
slow = 1 / ratios[:, None]
rate = loads * (1 + slow)
best, usual, explicit = in_pieces(rules, rate, 1.0, slow)
under = mean_number(rate, 1.0, slow, np.stack([best, usual, explicit, best + 1, np.maximum(best - 1, 1)]))
excess = {"usual heuristic": under[1] / under[0] - 1, "explicit formula": under[2] / under[0] - 1}
assert (under[3:] >= under[0] * (1 - 1e-12)).all()  # no neighbour is better
for name, lost in excess.items():
    print(f"{name}: best at {100 * np.mean(lost < 1e-12):.0f} % of the grid, at worst {100 * lost.max():.2f} % off")
assert excess["usual heuristic"].max() < 0.06 and excess["explicit formula"].max() < 0.0014

tie_T = np.array([99.0, 100.0, 101.0])
tie = mean_number(0.5, 1.0, 1 / 200, tie_T)
exact = float(in_pieces(rules, [0.5], 1.0, 1 / 200)[0, 0])
print(f"lambda = 0.5, mu1 = 1, r = 200: L(99..101) - 1 = {tie - 1}, best T by its sign: {exact:g}")
assert exact == 100

figure, panels = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True)
image = panels[0].pcolormesh(loads, ratios, best, norm="log", cmap="viridis", rasterized=True)
panels[0].contour(loads, ratios, best, levels=[1.5, 2.5, 5.5, 10.5, 20.5, 50.5], colors="white", linewidths=0.8)
panels[0].set(title="best threshold $T^*$", ylabel=r"Speed ratio $r = \mu_1/\mu_2$")
figure.colorbar(image, ax=panels[0], label="$T^*$ (customers waiting)")
for panel, (name, lost) in zip(panels[1:], excess.items(), strict=True):
    image = panel.pcolormesh(loads, ratios, np.where(lost > 1e-6, 100 * lost, np.nan), norm="log", cmap="cividis_r",
                             rasterized=True, vmin=1e-3, vmax=6)
    panel.set_title(f"{name}: excess")
figure.colorbar(image, ax=panels[2], label=r"$L/L(T^*) - 1$ (%; white: none)")
for panel in panels:
    panel.set(yscale="log", xlabel=r"Load $\rho$")
show(figure, "06_best_threshold")

# %% [markdown]
# ## Bursts: a threshold for each phase of the arrivals
#
# In a burst more customers are about to come. Here bursts bring four times as many customers, fill a fifth of the time
# and last 30 fast services on average; the slow server is ten times slower. The map shows the mean number under one
# threshold in bursts and another between them, exactly, on the infinite buffer. How much does knowing the phase gain
# over the best constant threshold (the diagonal)?

# %%
top = 8
D0, D1 = threshold_queue.bursty(*(jnp.asarray(x) for x in (0.55, 4.0, 0.2, 30.0)))
pairs = np.array([(quiet, burst) for quiet in range(1, top + 1) for burst in range(1, top + 1)], float)
by_phase = jax.jit(jax.vmap(lambda pair: threshold_queue.mean_number(
    threshold_queue.Params(D0, D1, 1.0, 0.1, pair, max_threshold=top))))
number = np.asarray(by_phase(jnp.asarray(pairs))).reshape(top, top)
quiet, burst = (int(x) + 1 for x in np.unravel_index(number.argmin(), number.shape))
constant = int(np.diag(number).argmin()) + 1
gain = number[constant - 1, constant - 1] / number.min() - 1
print(f"best pair: {quiet} between bursts, {burst} in bursts, L = {number.min():.6f};"
      f" best constant threshold {constant}, {100 * gain:.2f} % more")
assert burst < constant <= quiet and 0 < gain < 0.02
formula = threshold_queue.explicit_thresholds(D0, D1, jnp.asarray(1.0), jnp.asarray(0.1))
print(f"the formula explicit_thresholds: {float(formula[0]):g} between bursts, {float(formula[1]):g} in bursts")
figure, axes = plt.subplots(figsize=(5.4, 3.7))
image = axes.pcolormesh(range(1, top + 1), range(1, top + 1), 100 * (number / number.min() - 1), cmap="cividis_r",
                        shading="nearest")
axes.plot(burst, quiet, "*", color="black", markersize=13, label="best pair")
axes.plot(constant, constant, "o", markerfacecolor="none", markeredgecolor="black", markersize=9,
          label="best constant")
axes.plot([1, top], [1, top], color="black", linewidth=0.8, linestyle=":", label="constant")
axes.set(xlabel="Threshold in bursts", ylabel="Threshold between bursts", xticks=range(1, top + 1))
figure.colorbar(image, label="Excess of $L$ over the least (%)")
figure.legend(loc="outside upper center", ncols=3)
show(figure, "06_by_phase")

# %% [markdown]
# ## Two nodes and a router that sees nothing
#
# Node 1 has rates 2 and 0.5, node 2 has 1 and 0.2. Three policies, each with its best thresholds:
#
# * **Bernoulli**: a coin with probability $p$ for node 1.
# * **Open loop**: a periodic word of 0s and 1s, the 1s as evenly spread as whole numbers allow (a mechanical word).
#   Each node then sees a Markovian arrival process with more regular arrivals.
# * **Full information**: router and servers see everything; the least possible, a bound for the others.

# %%
fast, slow = np.array([2.0, 1.0]), np.array([0.5, 0.2])
capacity = fast + slow
length = 6 if SMALL else 16
shares = sorted({Fraction(k, b) for b in range(2, length + 1) for k in range(1, b)})
ones, letters = (np.array([getattr(x, part) for x in shares]) for part in ("numerator", "denominator"))
rates = np.array([1.0, 2.0, 2.5]) if SMALL else np.linspace(0.4, 3.4, 61)
tried = np.arange(1.0, 5.0 if SMALL else 9.0)


def bernoulli(rate, p):
    """Mean number in both nodes under a coin with share p for node 1, best thresholds; inf where a node is unstable."""
    flow = np.asarray(rate)[..., None] * np.stack([p, 1 - np.asarray(p)], axis=-1)
    stable = flow < capacity
    tame = np.where(stable, np.maximum(flow, 1e-9), capacity / 2)
    cost = mean_number(tame, fast, slow, in_pieces(rules, tame, fast, slow)[0])
    return np.where(stable, cost, np.inf).sum(axis=-1)


found = hetjax.evaluate(
    "parallel_queues_word", arrival_rate=rates[:, None, None], mu1_node1=fast[0], mu1_node2=fast[1],
    mu2_node1=slow[0], mu2_node2=slow[1], ones=ones[:, None].astype(float), length=letters[:, None],
    threshold_node1=tried, threshold_node2=tried, metrics=["mean_number_node1", "mean_number_node2"])
by_node = [np.asarray(found[f"mean_number_node{i}"]) for i in (1, 2)]  # the costs of the nodes are separate
words = sum(np.where(np.isnan(x), np.inf, x).min(axis=2) for x in by_node)  # (rates, shares)
words = np.column_stack([words, bernoulli(rates, 1.0)])  # and nobody to node 2
shares.append(Fraction(1))
split = np.linspace(0.005, 1, 100 if SMALL else 399)
coins = bernoulli(rates[:, None], split)
seeing = jax.jit(jax.vmap(lambda rate: parallel_queues.full_information(
    parallel_queues.Params(rate, fast, slow), 40 if SMALL else 50, 1e-6)))
some = rates[rates < 2.9][:: 1 if SMALL else 4]
bound = seeing(jnp.asarray(some))
assert (np.asarray(bound.status) == hetjax.Status.OK).all()
least = np.asarray(bound.mean_number)

here = int(np.argmin(abs(rates - 2.0)))
best_share, best_coin = shares[int(words[here].argmin())], split[int(coins[here].argmin())]
lower = least[np.argmin(abs(some - 2.0))]
print(f"lambda = {rates[here]:g}: coin with p = {best_coin:.3f}: {coins[here].min():.5f},"
      f" word of density {best_share}: {words[here].min():.5f}, full information: {lower:.5f}")
assert lower < words[here].min() < coins[here].min()
figure, axes = plt.subplots(figsize=(6.8, 3.5))
shown = np.isfinite(coins[here])
axes.plot(split[shown], coins[here][shown], color=CATEGORIES[0], label="Bernoulli")
finite = np.isfinite(words[here])
x = np.array([float(s) for s in shares])
axes.plot(x[finite], words[here][finite], "s", color=CATEGORIES[1], markeredgecolor="black", markersize=4,
          label=f"words of up to\n{length} letters")
axes.axhline(lower, color="black", linestyle=DASHES[2], label="full information")
axes.set(xlabel="Share of the customers sent to node 1, $p$", ylabel="Mean number in both nodes (customers)",
         title=rf"$\lambda = {rates[here]:g}$", ylim=(0.9 * lower, 3 * lower))
figure.legend(loc="outside right center")
show(figure, "06_coin_and_word")

# %% [markdown]
# At the same share a word is better than a coin, as its arrivals are more regular. Over all arrival rates (share 1:
# nobody is sent to node 2):

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5))
word_share = x[words.argmin(axis=1)]
word_best, coin_best = words.min(axis=1), coins.min(axis=1)
left.plot(rates, word_share, color=CATEGORIES[1], linestyle=DASHES[1], marker=".", label="best word")
left.plot(rates, split[coins.argmin(axis=1)], color=CATEGORIES[0], label="best coin")
left.set(xlabel=r"Arrival rate $\lambda$ (1/time)", ylabel="Share sent to node 1", ylim=(0.6, 1.02))
at = np.isin(rates, some)
for i, (name, values) in enumerate((("best coin", coin_best), ("best word", word_best))):
    over = 100 * (values[at] / least - 1)
    right.plot(some, over, color=CATEGORIES[i], linestyle=DASHES[i], marker=MARKERS[i])
    print(f"{name} over full information: " + ", ".join(f"{o:.1f} % at {r:g}" for r, o in zip(some, over, strict=True)))
    assert (over > 0).all()
assert (word_best <= coin_best * (1 + 1e-12)).all()
right.set(xlabel=r"Arrival rate $\lambda$ (1/time)", ylabel="Excess over full information (%)", ylim=(0, None))
figure.legend(*left.get_legend_handles_labels(), loc="outside right center")
show(figure, "06_over_arrival_rate")

# %% [markdown]
# ## What to try next
#
# * `parallel_queues.best_word(params, 40)` searches words of up to 40 letters along the Stern-Brocot tree with about 50
#   evaluations. How much do long words gain over those of 6 or 16 letters?
# * Up to which arrival rate is node 2 left out? At its first customer, what is the price of a customer more in node 1?
#   (`jax.grad` of `poisson_means` in the rate.)
# * Give the slow server a price: `hetjax.control.optimal_allocation` weighs waiting against its use
#   (`sweeps/threshold_energy.toml`).
# * Replace the bursts by renewal arrivals (`hetjax.processes.renewal`): does it still pay to know the phase?
