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
# # 07 Gradients and optimum maps
#
# **Question: which knob of a park of fast and slow servers is worth turning, and which design is best when customers,
# servers and lost customers all have a price?**
#
# The stalling queue: $m$ fast servers of rate $\mu_1$, $n$ slow ones of rate $\mu_2 = \mu_1/r$, $K$ places in which
# customers stall for a fast server, $M$ places in the waiting line; $q = \lambda/(m\mu_1)$ is the load offered to the
# fast servers. Its mean number in the system $\overline N$ is a closed form in real $q$, $r$, $K$ and $M$, so JAX
# differentiates it exactly. We use the derivatives three times: to read them, to optimise with them, and to know what
# an optimum is worth without searching again.

# %%
import math
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.plot import draw
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES

hetjax.enable_x64()
stalling = hetjax.stalling
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()

# %% [markdown]
# ## Three derivatives
#
# One function gives value and gradient, for one queue or, by `vmap`, for a whole grid. Each derivative is checked
# against a central difference, whose own error is about $10^{-9}$ here.

# %%
NAMES = ("q", "r", "K")


def mean_number(values):
    q, r, K = values
    return stalling.mean_number(stalling.Params(q=q, r=r, K=K, M=math.inf, m=5, n=2))


gradients = jax.jit(jax.vmap(jax.value_and_grad(mean_number)))
loads = np.linspace(0.02, 1.0, 21 if SMALL else 197)
buffers = np.array([0.0, 5.0, 10.0, 20.0])
points = np.stack(np.broadcast_arrays(loads[:, None], 20.0, buffers), axis=-1)  # (loads, buffers, 3)
here = np.array([0.8, 20.0, 10.0])
steps = 1e-5 * here[:, None] * np.eye(3)
batch = np.concatenate([points.reshape(-1, 3), here[None], here + steps, here - steps])
values, slopes = (np.asarray(x) for x in gradients(batch))
N, at_here = values[points[..., 0].size], slopes[points[..., 0].size]
above, below = values[-6:-3], values[-3:]
for name, slope, difference in zip(NAMES, at_here, (above - below) / (2 * np.diag(steps)), strict=True):
    print(f"q = 0.8, r = 20, K = 10: dN/d{name} = {slope:+.9f}, central difference {difference:+.9f}")
    assert abs(slope - difference) < 1e-7
elasticity = at_here * here / N
print("one percent more of q, r, K changes N by", ", ".join(f"{e:+.3f} %" for e in elasticity))
assert elasticity[0] > 10 * abs(elasticity[1:]).max()

# %% [markdown]
# One percent of load matters more than ten times as much as one percent of speed or of buffer. The three derivatives
# over all loads, with $M = \infty$ (stable for $q < 1 + n/(mr) = 1.02$):

# %%
by_load = slopes[:points[..., 0].size].reshape(*points.shape)
changes = [int(np.count_nonzero(np.diff(np.sign(by_load[:, j, 2])))) for j in range(len(buffers))]
print("changes of sign of dN/dK:", ", ".join(f"{n} for K = {K:g}" for n, K in zip(changes, buffers, strict=True)))
assert changes == [0, 0, 1, 1] and (by_load[:, :2, 2] < 0).all() and (by_load[0, :, 2] < 0).all()
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2))
labels = (r"$\partial\overline{N}/\partial q$ (customers)", r"$\partial\overline{N}/\partial r$ (customers)",
          r"$\partial\overline{N}/\partial K$ (customers per place)")
for panel, k, label in zip(panels, range(3), labels, strict=True):
    for j, K in enumerate(buffers):
        panel.plot(loads, by_load[:, j, k], color=CATEGORIES[j], linestyle=DASHES[j], label=f"{K:g}")
    panel.axhline(0, color="0.6", linewidth=0.8)
    panel.set(xlabel=r"Load of the fast servers $q = \lambda/(m\mu_1)$", ylabel=label, xlim=(0, 1.02))
panels[0].set(yscale="log", ylim=(1, 1e4))
panels[1].set(ylim=(-0.02, 0.25))
panels[2].set(ylim=(-0.5, 0.25))
figure.legend(*panels[0].get_legend_handles_labels(), title="Buffer $K$ (places)", loc="outside right center")
show(figure, "07_derivatives")

# %% [markdown]
# With 10 and 20 places $\partial\overline N/\partial K$ changes its sign once: below that load the buffer is too short,
# above it too long. With none and with 5 it is negative all the way: too short at every load shown.
#
# ## Never minimise a mean number where customers can be lost
#
# With a finite waiting line, an arrival that finds everything full is lost, and whoever is lost is not counted. So
# $\overline N$ falls when the system turns customers away, and its least value may belong to the design that turns most
# of them away. `hetjax.optimize.minimize` warns of that; here is its warning, and what happens if it is ignored. The
# cure is to charge for each lost customer, $C = \overline N + \ell\lambda P_{loss}$ with $\lambda = q\,m\,\mu_1$.

# %%
fixed = {"q": 1.1, "r": 20.0, "M": 5.0, "m": 5, "n": 2}
naive = hetjax.objective("stalling", "mean_number").bind(fixed, ["K"], {"K": range(41)})
print("warning:", *naive.notes)
K = np.arange(41)
short = hetjax.evaluate("stalling", **fixed | {"K": K}, metrics=["mean_number", "p_loss"])
cost = short.mean_number + 100 * 1.1 * 5 * short.p_loss
chosen = {"N": int(np.argmin(short.mean_number)), "C": int(np.argmin(cost))}
for words, k in chosen.items():
    print(f"least {words}: K = {k:2d}, N = {short.mean_number[k]:6.3f}, lost {100 * short.p_loss[k]:5.2f} %")
assert chosen["N"] == 0 == K[np.argmax(short.p_loss)] < chosen["C"]

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.0))
left.plot(K, short.mean_number, color=CATEGORIES[0], label=r"$\overline{N}$")
left.plot(K, cost, color=CATEGORIES[1], linestyle=DASHES[1], label=r"$C = \overline{N} + 100\,\lambda P_{loss}$")
right.plot(K, 100 * short.p_loss, color=CATEGORIES[2], linestyle=DASHES[2], label=r"$P_{loss}$")
for (words, k), mark in zip(chosen.items(), "os", strict=True):
    look = {"marker": mark, "color": "black", "markerfacecolor": "white", "linestyle": "none", "zorder": 3}
    left.plot(k, (short.mean_number if mark == "o" else cost)[k], **look,
              label=f"least ${'\\overline{N}' if words == 'N' else 'C'}$")
    right.plot(k, 100 * short.p_loss[k], **look)
left.set(xlabel="Stalling buffer $K$ (places)", ylabel="customers, or cost per unit time", ylim=(0, None))
right.set(xlabel="Stalling buffer $K$ (places)", ylabel="Customers lost $P_{loss}$ (%)", ylim=(0, None))
handles = [*left.get_legend_handles_labels()[0][:2], right.lines[0], *left.get_legend_handles_labels()[0][2:]]
figure.legend(handles=handles, loc="outside right center")
show(figure, "07_never_minimise_n")

# %% [markdown]
# The least mean number belongs to no buffer at all, which loses more customers than any other $K$.
#
# ## A cost, its optimum, and its derivatives for nothing
#
# Now a design problem. A hall has room for 20 waiting customers; $K$ of the places feed fast servers only, the other
# $M = 20 - K$ are the waiting line. The cost per unit time (the mean service time at a fast server is the unit) is
#
# $$C = \overline N + c\,n\,(1 + 600/r^2) + 20\,\lambda P_{loss}:$$
#
# 1 for each customer in the system, $c$ for each slow server and more the faster it is, 20 for each lost customer. We
# choose $K$ and $n$, whole numbers, and the speed ratio $r$, a real one, together. (In the small version $r = 10$.)
# Whole points are all compared; for each the best $r$ is found by Newton's method with exact derivatives.

# %%
COST = "mean_number + price * n * (1 + 600 / r ** 2) + lost * q * m * mu1 * p_loss"
cost = hetjax.objective("stalling", COST, derived={"M": "20 - K"})
fixed = {"q": 1.05, "m": 5, "price": 0.05, "lost": 20.0}
over = {"K": range(21), "n": range(5 if SMALL else 9)}
if SMALL:
    fixed["r"] = 10.0
else:
    over["r"] = (2.0, 60.0)
best = hetjax.optimize.minimize(cost, fixed, over=over, starts=2)
print(best)
assert best.status == hetjax.Status.OK and best.certificate == hetjax.optimize.Certificate.ENUMERATED

# %% [markdown]
# Beside $K$ and $n$ stands what one less and one more would cost. The rows `d/d...` are the envelope theorem: the
# derivative of the *optimal* cost in a parameter equals that of the cost with the design held fixed, so one gradient
# gives them all. In the price it is known in closed form, $\partial C^*/\partial c = n(1 + 600/r^2)$; in $q$ we
# optimise again at both sides.

# %%
r = float(best.params["r"])
by_price = float(best.design["n"]) * (1 + 600 / r**2)
step = 1e-4
near = [hetjax.optimize.minimize(cost, fixed | {"q": 1.05 + x}, over=over, starts=2) for x in (step, -step)]
again = (near[0].value - near[1].value) / (2 * step)
for name, slope, check in (("price", best.sensitivities["price"], by_price), ("q", best.sensitivities["q"], again)):
    print(f"dC*/d{name}: envelope {float(slope):.7f}, check {check:.7f}")
    assert abs(slope / check - 1) < 1e-5  # the difference quotient has an error of order step^2

# %% [markdown]
# ## An optimum map
#
# The same problem (with $r = 10$) at every point of a grid of loads and prices: the table `optimize` of a sweep. Its
# metrics are `best_K`, `best_n`, the least cost `objective`, and for each named baseline what the optimum saves over
# it: `never` has no slow servers, `at_once` has no stalling ($K = 0$). The command line does the same from a file,
# `hetjax optimize spec.toml --out store.zarr`.

# %%
sweep = hetjax.Sweep(
    "stalling",
    {"q": {"linspace": [0.75, 1.3, 12 if SMALL else 166]}, "price": {"geom": [0.01, 1.0, 5 if SMALL else 101]}},
    const={"m": 5, "r": 10.0, "lost": 20.0},
    optimize={"objective": COST, "derived": {"M": "20 - K"}, "over": {"K": [0, 20], "n": [0, 4 if SMALL else 8]},
              "baselines": {"never": {"n": 0}, "at_once": {"K": 0}}},
    metrics=["best_K", "best_n", "objective", "gain_never", "gain_at_once"], title="Cheapest park of slow servers")
data = sweep.run_in_memory()  # sweep.run("optimum.zarr") writes a store, for any size
assert int((data.status == 1).sum()) == data.objective.size
print(data)

# %% [markdown]
# Two checks that need no second optimiser. $C^*$ is the least of functions that are straight lines in the price $c$, so
# it is concave in $c$, and each of its difference quotients lies between the slopes $n(1 + 600/r^2) = 7n$ at both ends.
# And where no slow server is worth its price, nothing is saved over `never`.

# %%
change = np.diff(data.objective.values, axis=1) / np.diff(data.price.values)
slopes = 7 * data.best_n.values
assert (change <= slopes[:, :-1] + 1e-9).all() and (change >= slopes[:, 1:] - 1e-9).all()
pays = data.best_n > 0
assert float(abs(data.gain_never.where(~pays)).max()) == 0 and float(data.gain_never.min()) >= 0
print(f"slow servers pay at {float(pays.mean()):.0%} of the points; they save up to {float(data.gain_never.max()):.0%}"
      f" of the cost, stalling up to {float(data.gain_at_once.max()):.0%}")

# %% [markdown]
# The figure comes from the labelled dataset; $K$ is left blank where there is no slow server for it to protect.

# %%
shown = data.assign(best_K=data.best_K.where(pays), gain_never=100 * data.gain_never)
shown.best_K.attrs = {"long_name": "best stalling buffer K", "units": "places"}
shown.best_n.attrs = {"long_name": "best number of slow servers n", "units": "servers"}
shown.gain_never.attrs = {"long_name": "saved over no slow servers", "units": "%"}
figure = draw(shown[["best_n", "best_K", "gain_never"]], {
    "x": "q", "y": "price", "z": ["best_n", "best_K", "gain_never"], "log": ["y"], "size": [11, 3.6], "note": False,
    "labels": {"x": "Load of the fast servers $q$", "y": "Price $c$ (per slow server\nand unit time)"},
    "title": "Cheapest park: five fast servers, r = 10, room for 20 waiting customers"})
show(figure, "07_optimum_map")

# %% [markdown]
# Read from left to right: up to a load that depends on the price no slow server is worth having; beyond it soon all are
# (the grid ends at 8), and the buffer gets *shorter* as the load grows. How many to have is a matter of price; how long
# to stall nearly is not: at a fixed load the best $K$ hardly changes. Above a price of about 0.2 none pays at any load.

# %%
spread = (shown.best_K.max("price") - shown.best_K.min("price")).dropna("q")
print("largest change of the best K over all prices at one load:", int(spread.max()))
highest = float(data.price.where(pays).max())
print(f"highest price of the grid at which a slow server pays: {highest:.3f}")
assert spread.max() <= 1 and highest < 0.22

# %% [markdown]
# ## What to try next
#
# * Add a constraint, `constraints={"loss": "p_loss <= 0.01"}`: the metrics then hold its slack and its multiplier, the
#   price of one unit of it.
# * Ask the map for derivatives, `grad={"of": ["objective"], "wrt": ["q"]}`: what one more percent of load costs an
#   optimally designed park.
# * Put your own model in the place of `stalling` (notebook 08): any metric may be part of an objective.
# * `sweeps/` holds larger optimum studies with their figures.
