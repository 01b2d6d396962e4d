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
# # 01 A first sweep and its figure
#
# **Question: fast servers are busy and slow ones are free. How many customers should wait for a fast server before the
# next one is sent to a slow server?**
#
# The stalling queue has $m$ fast servers (rate $\mu_1$), $n$ slow ones (rate $\mu_2 = \mu_1/r$), a stalling buffer of
# $K$ places and a waiting line of $M$ places; customers arrive in a Poisson stream of rate $\lambda$.
# An arrival takes a free fast server; else a place in the buffer, which feeds fast servers only; if the buffer is full,
# a free slow server; if there is none, a place in the waiting line; if that is full too, it is lost.
#
# Everything depends on $q = \lambda/(m\mu_1)$, the load offered to the fast servers, on the speed ratio
# $r = \mu_1/\mu_2$, and on $K, M, m, n$. We compute $\overline N$, the mean number of customers in the system: at one
# point, with its derivatives, on a grid, and as a labelled sweep on disk; and we end with the figure that answers the
# question.

# %%
import math
import os
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.plot import draw
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES

hetjax.enable_x64()  # importing hetjax changes no setting of JAX; this asks for float64
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()

# %% [markdown]
# ## One point
#
# `Params` holds one queue. Real parameters may be differentiated, and $K$ is one of them: $\overline N$ has a closed
# form in real $K \ge 0$, so `jax.grad` gives $\partial\overline N/\partial K$ as it gives $\partial\overline N/\partial
# q$. The counts $m$ and $n$ are whole numbers. We check one derivative against a central difference.

# %%
stalling = hetjax.stalling
queue = stalling.Params(q=0.8, r=20.0, K=10, M=50, m=5, n=2)
value_and_gradient = jax.jit(jax.value_and_grad(stalling.mean_number))
value, gradient = value_and_gradient(queue)
print(f"mean number in the system N = {value:.6f} customers")
for name in ("q", "r", "K", "M"):
    print(f"  dN/d{name} = {getattr(gradient, name):+.6e}")

h = 1e-4
above, below = (value_and_gradient(stalling.Params(0.8, 20.0, K, 50, 5, 2))[0] for K in (10 + h, 10 - h))
difference = (above - below) / (2 * h)
print(f"  central difference in K: {difference:+.6e}")
assert abs(difference - gradient.K) < 1e-7

# %% [markdown]
# The derivative in $K$ is negative: at load 0.8 and with slow servers 20 times slower, an eleventh place would lower
# $\overline N$.
#
# ## A grid
#
# `hetjax.evaluate` takes arrays that broadcast against each other. `status` says for every point whether it has an
# answer (1: ok); a point outside the domain or without a steady state raises nothing and is marked. With an endless
# waiting line there is no steady state from $\rho = \lambda/(m\mu_1 + n\mu_2) = 1$ on.

# %%
loads = np.array([0.5, 0.8, 0.9, 1.1])
grid = hetjax.evaluate("stalling", q=loads[:, None], r=20.0, K=np.arange(41), M=math.inf, m=5, n=2,
                       metrics=["mean_number"])
for q, row, code in zip(loads, grid.mean_number, grid.status[:, 0], strict=True):
    rho = q / (1 + 2 / (5 * 20.0))
    print(f"q = {q}: rho = {rho:.4f}, {hetjax.Status(int(code)).name:>8}, N from {row[0]:.4f} (K = 0) to {row[-1]:.4f}")
assert hetjax.Status(int(grid.status[-1, 0])) == hetjax.Status.UNSTABLE

# %% [markdown]
# ## A sweep
#
# A `Sweep` names the axes, the constants and the metrics. It runs in memory for small ones, or block by block into a
# store on disk that survives being killed; both give a labelled `xarray.Dataset` with units. The command
# `hetjax run spec.toml --out store.zarr` does the same from a file.

# %%
sweep = hetjax.Sweep(
    "stalling",
    {"q": {"linspace": [0.05, 0.95, 13 if SMALL else 181]},
     "r": [5.0, 20.0] if SMALL else [2.0, 5.0, 10.0, 20.0, 50.0],
     "K": {"range": [0, 60]}},
    const={"m": 5, "n": 2, "M": math.inf}, metrics=["mean_number"], title="Mean number over the stalling buffer")

with tempfile.TemporaryDirectory() as folder:
    data = sweep.run(Path(folder) / "buffer.zarr").load()
print(data.mean_number)
assert int((data.status == 1).sum()) == data.mean_number.size  # every point has a steady state

# %% [markdown]
# ## The figure
#
# First $\overline N$ over $K$ at a few loads, drawn by `hetjax.plot.draw` straight from the dataset; any other view is
# a change of names (`x`, `y`, `hue`, `facets`, `sel`, ...). The minimum of each curve is marked.

# %%
nearest = [float(data.q.sel(q=value, method="nearest")) for value in (0.5, 0.8, 0.95)]
figure = draw(data.sel(q=nearest), {"x": "K", "y": "mean_number", "hue": "r", "facets": "q", "optimum": True,
                                    "own_scale": True, "title": "Five fast and two slow servers"})
show(figure, "01_families")

# %% [markdown]
# A short buffer sends customers to slow servers too early, a long one leaves those idle. The best length is the further
# right the slower the slow servers are.
#
# Now the answer over all loads: the best buffer, and what no buffer and a buffer of ten places cost. $K^*$ is the first
# $K$ at which one more place does not help. The differences $\overline N(K+1) - \overline N(K)$ die out like $q^K$, far
# below the rounding of $\overline N$ itself, so they are not formed from two values of $\overline N$:
# `buffer_difference_scaled` gives them over $q^K$, right to rounding, for any $K$. (`stalling.optimal_buffer` does the
# search, with a certificate.) Wherever $K^*$ lies on the grid of the sweep, nothing on the grid may be better.

# %%
ratios = [5.0, 20.0] if SMALL else [2.0, 5.0, 20.0, 50.0]
mean = data.mean_number
r, q, K = np.meshgrid(ratios, mean.q, np.arange(300.0), indexing="ij")
one_more = jax.jit(stalling.buffer_difference_scaled)(stalling.Params(q, r, K, math.inf, 5, 2))
best_buffer = np.argmax(np.asarray(one_more) > 0, axis=2)

figure, panels = plt.subplots(1, 3, figsize=(10, 3.2))
for i, r in enumerate(ratios):
    here, K = mean.sel(r=r), best_buffer[i]
    on_grid = K <= 60
    at_best = here.values[on_grid, K[on_grid]]
    assert (at_best <= here.min("K").values[on_grid] * (1 + 1e-13)).all()
    print(f"r = {r:4g}: K* from {K[0]} at q = {mean.q.values[0]:.2f} to {K[-1]} at q = {mean.q.values[-1]:.2f};"
          f" on the grid at {on_grid.sum()} of {K.size} loads, and best there")
    style = {"color": CATEGORIES[i], "linestyle": DASHES[i]}
    panels[0].step(mean.q, K, where="mid", label=f"{r:g}", **style)
    for panel, places in zip(panels[1:], (0, 10), strict=True):
        panel.plot(mean.q, 100 * (here.sel(K=places) / here.min("K") - 1), **style)
panels[0].set(ylabel="Best stalling buffer $K^*$ (places)", yscale="log")
for panel, places in zip(panels[1:], (0, 10), strict=True):
    panel.set(title=f"$K = {places}$", ylabel=r"Excess $\overline{N}(K)\,/\,\min_K \overline{N} - 1$ (%)", ylim=(0, 75))
for panel in panels:
    panel.set_xlabel(r"Load of the fast servers $q = \lambda/(m\mu_1)$")
figure.legend(title=r"$r = \mu_1/\mu_2$", loc="outside right center")
show(figure, "01_best_buffer")

# %% [markdown]
# With slow servers 20 times slower, having no buffer ($K = 0$) raises $\overline N$ by up to 45 %; ten places take
# nearly all of that away (at most 2.2 % is left). Where the slow servers are only 5 times slower, ten are too many
# close to saturation: there the buffer should be short.

# %%
excess = 100 * (mean / mean.min("K") - 1)  # over the best K of the grid
for r in ratios:
    print(f"r = {r:4g}: over all loads K = 0 costs up to {float(excess.sel(r=r, K=0).max()):.1f} %,"
          f" K = 10 up to {float(excess.sel(r=r, K=10).max()):.1f} %")
assert 44 < excess.sel(r=20.0, K=0).max() < 45.1 and 2.1 < excess.sel(r=20.0, K=10).max() < 2.3

# %% [markdown]
# ## What to try next
#
# * Change `metrics` to `["p_loss", "mean_response_time"]` with a short waiting line such as `"M": 5`: what does the
#   best buffer for $\overline N$ do to those who are lost? (`hetjax models stalling` lists all metrics.)
# * Ask for derivatives in the sweep, `grad=["q", "r", "K"]`, and draw `d_mean_number__d_K` as a map over `q` and `r`;
#   its zero contour is the answer of this notebook again.
# * Write the sweep as a file and run it from the command line: `sweeps/quickstart.toml` is this study with 21 million
#   points.
# * Notebook 02 follows the paper that introduced the model, notebook 03 asks why its formulas lose digits.
