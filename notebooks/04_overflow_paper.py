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
# # 04 The overflow paper
#
# **Question: two servers, each dedicated to one type of customers. Does it help to let customers overflow to the other
# server when their own is busy, whom does it help, and what does it do to who serves whom?**
#
# The system of *Overflow in systems with two servers: the negative consequences* (Y. Chen, J. Xie, T. Zhu, 2023): type
# $t$ arrives at rate $\lambda_t$ and is served at rate $\mu_t$ by whichever server it gets; it takes its own server,
# else the other one, else it is lost. State $(i, j)$: the type at server 1 and at server 2, 0 for idle. With
# $\rho_t = \lambda_t/\mu_t$, $\alpha = \mu_2/\mu_1$, $S = \rho_1 + \rho_2$.
#
# We check the balance equations and every formula in the paper's proofs, the derivatives by automatic differentiation,
# draw the conditions, and find where three of the statements need $\alpha = 1$.

# %%
import itertools
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES

hetjax.enable_x64()
overflow = hetjax.overflow
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()

# %% [markdown]
# ## Theorem 1: nine probabilities
#
# Below the model in words becomes nine balance equations, solved by Gaussian elimination; the closed form of
# `overflow.metrics` must agree. In particular $P_{loss} = S^2/(S^2 + 2(S + 1))$, Erlang's formula for two servers: only
# the sum of the loads matters.

# %%
def stationary_law(lambda1, lambda2, mu1, mu2):
    """pi[i, j] from the balance equations of the paper's appendix A."""
    rate = np.zeros((9, 9))
    for i, j in itertools.product(range(3), repeat=2):
        for server, busy in ((0, i), (1, j)):
            if busy:
                rate[3 * i + j, (j if server == 0 else 3 * i)] += (mu1, mu2)[busy - 1]
        for kind, arrivals in ((1, lambda1), (2, lambda2)):
            own_first = (0, 1) if kind == 1 else (1, 0)
            free = [server for server in own_first if (i, j)[server] == 0]
            if free:
                rate[3 * i + j, 3 * i + j + (3 * kind if free[0] == 0 else kind)] += arrivals
    balance = (rate - np.diag(rate.sum(axis=1))).T
    balance[0] = 1
    return np.linalg.solve(balance, np.eye(9)[0]).reshape(3, 3)


at = {"lambda1": 0.8, "lambda2": 0.9, "mu1": 1.0, "mu2": 0.5}
found = overflow.evaluate(**at)
law = stationary_law(**at)
S = at["lambda1"] / at["mu1"] + at["lambda2"] / at["mu2"]
print("pi(i, j), i down, j across, from the balance equations:")
print(law)
closed = np.array([[float(found[f"pi{i}{j}"]) for j in range(3)] for i in range(3)])
print(f"largest difference from the closed form: {abs(closed - law).max():.1e}")
print(f"P_loss = {float(found.p_loss):.10f} = S^2/(S^2 + 2(S + 1)) = {S**2 / (S**2 + 2 * (S + 1)):.10f}")
assert abs(closed - law).max() < 1e-15 and abs(found.p_loss - S**2 / (S**2 + 2 * (S + 1))) < 1e-15

# %% [markdown]
# ## Every formula in the proofs
#
# The appendix states expressions and derivatives of them. We compare each with the closed form, and derivatives with
# those of `jax.jacfwd`, at random loads. Some hold for any $\alpha$, some need $\alpha = 1$, some equal loads or equal
# arrival rates.

# %%
def quantities(rho1, rho2, alpha):
    """What the propositions speak of, mu1 = 1."""
    m = overflow.metrics(overflow.Params(rho1, alpha * rho2, jnp.ones_like(rho1), alpha))
    return {"r1": m.wrong_assignment_ratio_1, "r2": m.wrong_assignment_ratio_2, "r": m.wrong_assignment_ratio_total,
            "serious": m.malposition_serious, "light": m.malposition_light, "middle": m.malposition_middle,
            "total": m.malposition_total}


many = jax.jit(jax.vmap(lambda x, y, a: (quantities(x, y, a), jax.jacfwd(quantities, argnums=(0, 1))(x, y, a))))
rng = np.random.default_rng(1)
x, y, a = np.exp(rng.uniform(-3, 3, (3, 64)))
D, T = (x + y)**2 + 2 * (x + y + 1), x + y
any_alpha, slope = many(x, y, a)
one_alpha, one_slope = many(x, y, np.ones_like(x))
equal, equal_slope = many(x, x, a)
same_rate, _ = many(x, y, x / y)  # lambda1 = lambda2
along = {name: both[0] + both[1] for name, both in equal_slope.items()}  # d/d rho along rho1 = rho2
q = 2 * x**2 + 2 * x + 1
claims = [
    ("prop. 3: dr1/drho1", slope["r1"][0], (2 * y + 1) / (T + 1)**3),
    ("prop. 3: dr1/drho2", slope["r1"][1], (y - x) / (T + 1)**3),
    ("prop. 3: dr2/drho1", slope["r2"][0], (x - y) / (T + 1)**3),
    ("prop. 3: dr2/drho2", slope["r2"][1], (2 * x + 1) / (T + 1)**3),
    ("prop. 3: r at lambda1 = lambda2", same_rate["r"], 0.5 - 1 / (2 * (T + 1))),
    ("prop. 4: pi21", any_alpha["serious"], x * y / ((T + 1) * D) * (T - (x + a * y) / (x + a * y + a + 1))),
    ("prop. 4: pi21 at equal loads", equal["serious"], x**3 / (2 * (x + 1) * q)),
    ("prop. 4: its derivative", along["serious"], x**2 * (4 * x**2 + 6 * x + 3) / (2 * (x + 1)**2 * q**2)),
    ("prop. 4: dpi21/drho1, alpha = 1", one_slope["serious"][0],
     (y * T**2 * (y**2 - x**2 + 4 * y + 6) + 4 * y * (2 * x + y)) / ((T + 2)**2 * D**2)),
    ("prop. 5: light at equal loads", equal["light"], x**2 / ((x + 1) * q)),
    ("prop. 6: middle at equal loads", equal["middle"], x**2 / q),
    ("prop. 6: its derivative", along["middle"], 2 * x * (x + 1) / q**2),
    ("prop. 6: d middle/drho1", slope["middle"][0], 2 * (y + 1) * (x**2 + 2 * x - y**2) / D**2),
    ("prop. 7: total at equal loads", equal["total"], (3 * x**3 + 4 * x**2) / (2 * (x + 1) * q)),
    ("prop. 7: its derivative", along["total"],
     (4 * x**4 + 18 * x**3 + 21 * x**2 + 8 * x) / (2 * (x + 1)**2 * q**2)),
    ("prop. 7: total, alpha = 1", one_alpha["total"],
     (T**3 * (T + 3) + (x**2 + y**2) * (T**2 + 5 * T + 8)) / (2 * (T + 1) * (T + 2) * D)),
]
for name, ours, printed in claims:
    off = float(np.abs(np.asarray(ours) - printed).max())
    print(f"{name:34} largest difference {off:.0e}")
    assert off < 1e-14
at_one_only = (y * T**2 * (y**2 - x**2 + 4 * y + 6) + 4 * y * (2 * x + y)) / ((T + 2)**2 * D**2)
other = float(np.abs(np.asarray(slope["serious"][0]) / at_one_only - 1).max())
print(f"prop. 4: dpi21/drho1 at random alpha: off by a factor of up to {1 + other:.3g}")
assert other > 0.1

# %% [markdown]
# All of them hold. Proposition 4's derivative in $\rho_1$ holds at $\alpha = 1$ only, which its proof assumes in the
# paragraph before, and so does the last formula of proposition 7.
#
# ## Proposition 1 and corollary 1: whom does overflow help?
#
# Without overflow type $t$ loses the share $\rho_t/(1 + \rho_t)$. Both types lose less with overflow if and only if
# $\rho_{max} < \sqrt{\rho_{min}^2 + 2\rho_{min}}$. Otherwise the less loaded type pays for the other. Fewer customers
# are lost *altogether* always if $\mu_1 = \mu_2$ (corollary 1); with unequal rates there is a region, hatched below,
# where overflow loses more: the slow type crowds out the fast one.

# %%
points = 61 if SMALL else 401
loads = np.geomspace(0.01, 100, points)
alphas = [0.1, 1.0, 10.0]
grid = overflow.evaluate(
    lambda1=loads[None, None, :], lambda2=np.array(alphas)[:, None, None] * loads[None, :, None], mu1=1.0,
    mu2=np.array(alphas)[:, None, None], metrics=["loss_reduction_1", "loss_reduction_2",
                                                  "relative_loss_reduction_margin", "break_even_overflow_cost"])
gains = (np.asarray(grid.loss_reduction_1[0]) > 0) + 2 * (np.asarray(grid.loss_reduction_2[0]) > 0)
low, high = np.minimum.outer(loads, loads), np.maximum.outer(loads, loads)
margin = low**2 + 2 * low - high**2  # proposition 1
clear = np.abs(margin) > 1e-12 * high**2
assert ((gains == 3) == (margin > 0))[clear].all() and (gains > 0).all()

figure, panels = plt.subplots(1, 3, figsize=(10, 3.5), sharey=True)
shades = {3: "#cfe3f1", 1: "white", 2: "0.85"}
for panel, alpha, fewer in zip(panels, alphas, np.asarray(grid.relative_loss_reduction_margin), strict=True):
    panel.contourf(loads, loads, gains, levels=[0.5, 1.5, 2.5, 3.5], colors=[shades[1], shades[2], shades[3]])
    for reduction in (grid.loss_reduction_1[0], grid.loss_reduction_2[0]):
        panel.contour(loads, loads, reduction, levels=[0.0], colors="black", linewidths=1)
    worse = fewer < 0
    if worse.any():
        panel.contourf(loads, loads, worse.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"])
        panel.contour(loads, loads, np.sign(fewer) * np.abs(fewer) ** 0.2, levels=[0.0], colors=CATEGORIES[1])
    panel.set(xscale="log", yscale="log", title=rf"$\alpha = \mu_2/\mu_1 = {alpha:g}$",
              xlabel=r"Load of type 1 $\rho_1$")
    print(f"alpha = {alpha:4g}: overflow loses more customers altogether at {100 * worse.mean():.1f} % of the grid")
    assert worse.any() == (alpha != 1)
panels[0].set_ylabel(r"Load of type 2 $\rho_2$")
keys = [plt.Rectangle((0, 0), 1, 1, facecolor=shades[3], edgecolor="black", label="both types gain"),
        plt.Rectangle((0, 0), 1, 1, facecolor=shades[1], edgecolor="black", label="type 1 only"),
        plt.Rectangle((0, 0), 1, 1, facecolor=shades[2], edgecolor="black", label="type 2 only"),
        plt.Rectangle((0, 0), 1, 1, facecolor="white", edgecolor=CATEGORIES[1], hatch="////",
                      label="more lost\naltogether")]
figure.legend(handles=keys, loc="outside right center")
show(figure, "04_who_gains")

# %% [markdown]
# ## Propositions 3 to 7 in heavy traffic: 1/2, 1/4, 3/4
#
# At equal loads $\rho$ the share of served customers who are with the wrong server tends to 1/2, the probability that
# *both* servers serve the other's type to 1/4, and that some server does to 3/4. Light malpositioning (one server
# wrong, the other idle) has a maximum in between. None of these depends on $\alpha$. Marks at the right: the limits.

# %%
rho = np.geomspace(0.01, 1e4, 61 if SMALL else 401)
heavy = overflow.evaluate(lambda1=rho, lambda2=rho, mu1=1.0, mu2=1.0,
                          metrics=["wrong_assignment_ratio_1", "malposition_serious", "malposition_light",
                                   "malposition_middle", "malposition_total", "p_loss"])
labels = {"wrong_assignment_ratio_1": ("wrong server, of those served", 0.5),
          "malposition_total": ("some server wrong", 0.75),
          "malposition_middle": ("both serve one type", 0.5), "malposition_serious": ("both wrong", 0.25),
          "malposition_light": ("one wrong, one idle", 0.0)}
figure, axes = plt.subplots(figsize=(7.2, 3.6))
for i, (name, (label, limit)) in enumerate(labels.items()):
    axes.semilogx(rho, heavy[name], color=CATEGORIES[i], linestyle=DASHES[i], label=label)
    axes.plot(rho[-1] * 2, limit, marker="<", color=CATEGORIES[i], clip_on=False)
    print(f"{label:>30}: {float(heavy[name][-1]):.5f} at rho = {rho[-1]:g}, limit {limit:g}")
    assert abs(heavy[name][-1] - limit) < 2e-4
peak = int(np.argmax(heavy.malposition_light))
print(f"light malpositioning is largest, {float(heavy.malposition_light[peak]):.4f}, at rho = {rho[peak]:.2f}")
axes.set(xlabel=r"Offered load of each type $\rho_1 = \rho_2 = \rho$", ylabel="Probability", ylim=(0, 0.8))
figure.legend(loc="outside right center")
show(figure, "04_heavy_traffic")

# %% [markdown]
# ## Where three statements need $\alpha = 1$
#
# With the sum $S$ of the loads fixed, the paper states that serious malpositioning falls (proposition 4(iii)), and
# light and total malpositioning rise (5(i), 7), as $|\rho_2 - \rho_1|$ grows. Its proofs of 4(iii) and 7 put
# $\alpha = 1$. With $\alpha \ne 1$ none of the three holds as it stands: the extreme value (dots) is not at
# $\rho_1 = \rho_2$, so that the quantity
# goes the wrong way on one side of it. For serious malpositioning one sees it in the formula checked above,
#
# $$\pi(2,1) \propto \rho_1\rho_2\left(S - \frac{\rho_1 + \alpha\rho_2}{\rho_1 + \alpha\rho_2 + \alpha + 1}\right):$$
#
# at $\rho_1 = \rho_2$ the first factor has slope 0, the second has not unless $\alpha = 1$.

# %%
total_load = 3.0
skew = np.linspace(-0.4, 0.4, 81 if SMALL else 801)  # (rho2 - rho1)/S
three = [0.1, 1.0, 10.0]
curves = overflow.evaluate(
    lambda1=total_load * (1 - skew) / 2, lambda2=np.array(three)[:, None] * total_load * (1 + skew) / 2, mu1=1.0,
    mu2=np.array(three)[:, None], metrics=["malposition_serious", "malposition_light", "malposition_total"])
figure, panels = plt.subplots(1, 3, figsize=(10, 3.3))
titles = {"malposition_serious": ("serious, 4(iii)", np.argmax), "malposition_light": ("light, 5(i)", np.argmin),
          "malposition_total": ("total, 7", np.argmin)}
for panel, (name, (title, extreme)) in zip(panels, titles.items(), strict=True):
    for i, alpha in enumerate(three):
        values = np.asarray(curves[name][i])
        best = int(extreme(values))
        panel.plot(skew, values, color=CATEGORIES[i], linestyle=DASHES[i], label=rf"{alpha:g}")
        panel.plot(skew[best], values[best], "o", color=CATEGORIES[i])
        print(f"{title:>16}, alpha = {alpha:4g}: extreme at (rho2 - rho1)/S = {skew[best]:+.2f}")
        assert (abs(skew[best]) < 1e-9) == (alpha == 1)
    panel.axvline(0, color="0.6", linewidth=0.8)
    panel.set(title=title, xlabel=r"$(\rho_2 - \rho_1)/S$")
panels[0].set_ylabel(f"Probability at $S = {total_load:g}$")
figure.legend(*panel.get_legend_handles_labels(), title=r"$\alpha = \mu_2/\mu_1$", loc="outside right center")
show(figure, "04_propositions")

# %%
for name, (title, _) in titles.items():
    for alpha in (0.1, 10.0):
        x = np.array([total_load / 2])
        _, slope = many(x, x, np.array([alpha]))
        key = name.removeprefix("malposition_")
        print(f"{title:>16}, alpha = {alpha:4g}: slope in (rho2 - rho1)/S at equal loads"
              f" {float(total_load / 2 * (slope[key][1] - slope[key][0])[0]):+.5f}")
        assert abs(slope[key][1] - slope[key][0])[0] > 1e-4

# %% [markdown]
# ## When does overflow pay?
#
# The paper's section on costs is not in the text at hand; this definition is our own. A lost customer costs 1, a
# customer served by the wrong server costs $c$ extra. Overflow pays if and only if $c$ is below the break-even cost,
# the losses saved per overflow. It is below 1, and negative where overflow loses more customers altogether.

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True)
for panel, alpha, cost in zip(panels, alphas, np.asarray(grid.break_even_overflow_cost), strict=True):
    image = panel.pcolormesh(loads, loads, np.where(cost > 0, cost, np.nan), cmap="viridis", vmin=0, vmax=1,
                             rasterized=True)
    lines = panel.contour(loads, loads, cost, levels=[0.1, 0.25, 0.5, 0.75], colors="black", linewidths=0.8)
    panel.clabel(lines, fontsize=7)
    panel.set(xscale="log", yscale="log", title=rf"$\alpha = {alpha:g}$", xlabel=r"Load of type 1 $\rho_1$")
    print(f"alpha = {alpha:4g}: break-even cost from {cost.min():.3f} to {cost.max():.3f} of a loss")
    assert cost.max() < 1
panels[0].set_ylabel(r"Load of type 2 $\rho_2$")
figure.colorbar(image, ax=panels, label="Break-even cost of an overflow\n(cost of a loss = 1; white: never pays)")
show(figure, "04_break_even")

# %% [markdown]
# ## What to try next
#
# * Give type 1 a loss cost of 5 (`loss_cost_1=5.0`): where does overflow pay now?
# * Two or three servers a side, or rates that depend on the server as well: `hetjax.evaluate("overflow_general", ...)`
#   solves the Markov chain. Does the limit 1/4 survive with two servers a side?
# * For which $S$ is the extreme value of proposition 4(iii) furthest from $\rho_1 = \rho_2$?
#   `sweeps/overflow_propositions.toml` has the map of the slopes over $S$ and $\alpha$.
