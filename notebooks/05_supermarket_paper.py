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
# # 05 The supermarket paper: a published closed form against the truth
#
# **Question: each customer joins the shortest of $d$ queues chosen at random. How long are the queues when services are
# not exponential, and does the closed form published for that case give the answer?**
#
# *Doubly exponential solution for randomized load balancing models with Markovian arrival processes and PH service
# times* (Q.-L. Li, J. C. S. Lui, arXiv:1009.4970, 2010) gives the share of queues with at least $k$ customers, by phase
# of the arrival process (stationary law $\gamma$) and of the service (PH($\alpha, T$)), as its equation (41):
#
# $$\pi_k = \theta^{d^k}\,(\theta\omega\rho)^{\frac{d^k-1}{d-1}}\;\gamma^{\odot 1/d} \otimes \alpha^{\odot 1/d},\qquad
# \theta = \frac{1}{\gamma^{\odot 1/d} e},\quad \omega = \frac{1}{\alpha^{\odot 1/d} e},$$
#
# with powers taken entry by entry ($\odot$), $\rho$ the load. We compare it with three things: its own equations, the
# mean field of infinitely many queues, and a simulation of many. Time unit: a mean service; $u_k$: share of queues with
# $k$ customers or more.

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax import processes
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES

hetjax.enable_x64()
supermarket = hetjax.supermarket
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids, short simulations
set_up()

# %% [markdown]
# ## Four systems, load 0.7, two choices
#
# Exponential service, Erlang-2 service (E2, squared coefficient of variation 1/2), hyperexponential service (H2, SCV
# 10), and exponential service with Markov-modulated arrivals: rates 0.2 and 1.2, switched at rate 1/2 (mean rate 0.7).
# The paper lets the phase of the arrivals move $N$ times faster than a queue (descriptor $(NC, ND)$), so in the limit
# it averages out, and the truth is that of Poisson arrivals of rate 0.7.
#
# * **Residual**: by how much (41) fails the paper's equations (10) to (13), over the arrival rate. 0 would be right.
# * **$u_1$**: the share of busy servers. In any such system it is the load, 0.7.
# * **Mean**: $\sum_k u_k$, customers per queue.

# %%
LOAD, LEVELS, d = 0.7, 24, 2.0
poisson, single = processes.poisson(LOAD), processes.exponential(1.0)
modulated = processes.mmpp([[0.0, 0.5], [0.5, 0.0]], [0.2, 1.2])
two_equal = processes.hyperexponential([0.5, 0.5], [1.0, 1.0])  # exponential, written with two phases
systems = {"exponential": (poisson, single), "E2": (poisson, processes.erlang(2, 2.0)),
           "H2, SCV 10": (poisson, processes.hyperexponential_balanced(1.0, 10.0)),
           "MMPP arrivals": (modulated, single)}


@jax.jit
def by_formula(D0, D1, alpha, T):
    """u_1, u_2, ... by (41), and its residual in (10) to (13)."""
    found = supermarket.published_fixed_point(D0, D1, alpha, T, d, levels=LEVELS)
    return found.value.pi.sum(axis=(1, 2)), found.residual


@jax.jit
def by_mean_field(rate, alpha, T):
    """u_1, u_2, ... of infinitely many queues, and the residual of their equations."""
    found = supermarket.fixed_point(supermarket.Params(rate, d, alpha, T), levels=96)
    return found.value.tails, found.residual


print(f"{'':>14} {'residual of (41)':>17} {'u_1 by (41)':>12} {'mean by (41)':>13} {'true mean':>10}")
published, truth = {}, {}
for name, (arrivals, service) in systems.items():
    published[name], residual = by_formula(arrivals.D0, arrivals.D1, service.alpha, service.T)
    law = service if service.alpha.size == 2 else two_equal
    truth[name], own = by_mean_field(LOAD, law.alpha, law.T)
    print(f"{name:>14} {float(residual):17.1e} {float(published[name][0]):12.4f} {float(published[name].sum()):13.4f}"
          f" {float(truth[name].sum()):10.4f}")
    assert own < 1e-12 and abs(truth[name][0] - LOAD) < 1e-12
    assert (residual < 1e-14) == (name == "exponential")
k = np.arange(1, 7)
assert np.allclose(truth["exponential"][:6], LOAD ** (2.0**k - 1), rtol=1e-10)  # the classical u_k = rho^(2^k - 1)
assert np.allclose(published["exponential"], published["E2"])  # alpha = (1, 0): the formula does not see T

# %% [markdown]
# For exponential service and Poisson arrivals everything agrees with the classical $u_k = \rho^{(d^k-1)/(d-1)}$. For E2
# the formula gives the same numbers, as $\alpha = (1, 0)$ hides $T$ from it. For H2 the mean is less than half of the
# true one. With modulated arrivals the formula says that half as many servers are busy as there must be to carry the
# load.
#
# The formula even depends on how one and the same system is written:

# %%
again, _ = by_formula(poisson.D0, poisson.D1, two_equal.alpha, two_equal.T)
print("u_2, u_3 by (41) for exponential service written with")
for how, tails in (("one phase", published["exponential"]), ("two equal phases", again)):
    print(f"{how:>20}: {float(tails[1]):.6f}, {float(tails[2]):.6f}")
assert abs(again[1] / published["exponential"][1] - 1) > 0.1

# %% [markdown]
# ## Tails: formula, mean field, simulation
#
# The simulation is exact: many queues side by side, in equilibrium, with 95 % confidence intervals. It uses nothing of
# the mean field but its starting point, and it runs the modulated arrivals with their phase moving $N$ times faster
# than a queue, as the paper has it.

# %%
N, events = (200, 8_000) if SMALL else (1000, 200_000)
steady = processes.mmpp([[0.0, 0.5], [0.5, 0.0]], [LOAD, LOAD])  # Poisson, in the shape of the modulated stream
figure, panels = plt.subplots(1, 3, figsize=(10, 3.5), sharey=True)
for panel, name in zip(panels, ("E2", "H2, SCV 10", "MMPP arrivals"), strict=True):
    arrivals, service = systems[name]
    law = service if service.alpha.size == 2 else two_equal
    params = supermarket.Params.from_service(LOAD, d, law)
    seen = supermarket.simulate(params, N, jax.random.key(0), events=events, levels=64, lanes=16,
                                arrivals=arrivals if arrivals is modulated else steady)
    share, half_width = (np.asarray(x) for x in seen.tails)
    levels = np.arange(1, LEVELS + 1)
    panel.semilogy(levels, published[name], color=CATEGORIES[1], linestyle=DASHES[1], marker="s", markersize=4,
                   label="formula (41)")
    panel.semilogy(levels, truth[name][:LEVELS], color=CATEGORIES[0], label="mean field")
    often = share[:LEVELS] > 2 * half_width[:LEVELS]
    panel.errorbar(levels[often], share[:LEVELS][often], yerr=half_width[:LEVELS][often], fmt="o", color="black",
                   markersize=4, markerfacecolor="none", label=f"simulation, {N} queues")
    panel.set(title=name, xlabel="Customers $k$", xlim=(0.5, 12.5), ylim=(1e-8, 1.5),
              xticks=range(1, 13, 2))
    mean, width = (float(x) for x in seen.mean_queue_length)
    print(f"{name:>14}: customers per queue: simulation {mean:.4f} +- {width:.4f},"
          f" mean field {float(truth[name].sum()):.4f}, formula {float(published[name].sum()):.4f}")
    assert abs(mean - truth[name].sum()) < abs(mean - published[name].sum())
panels[0].set_ylabel("Share of queues with $k$ or more $u_k$")
figure.legend(*panel.get_legend_handles_labels(), loc="outside right center")
show(figure, "05_tails")

# %% [markdown]
# The simulation lies on the mean field (up to $O(1/N)$). For E2 the tail of (41) is too thick, for H2 far too thin: by
# the formula it falls doubly exponentially from the first customer on, in truth only after some eight customers.
#
# ## Where does the formula solve its own equations?
#
# Its derivation drops two sums that vanish only if $\alpha(-T)^{-1}$ is proportional to $\alpha^{\odot 1/d}$ and
# $\gamma D$ to $\gamma^{\odot 1/d}$. For hyperexponential service with probabilities $p_i$ and rates $\mu_i$ that means
# $\mu_i \propto p_i^{1-1/d}$. The figure varies the exponent $a$ in $\mu_i \propto p_i^{a}$, mean 1, $p = (0.9, 0.1)$.

# %%
@jax.jit
def residuals(exponents, choices):
    """Residual of (41) and its u_2, and the mean field's, over exponents a."""
    def one(a):
        p = jnp.array([0.9, 0.1])
        rates = p**a
        rates = rates * jnp.sum(p / rates)
        T = -jnp.diag(rates)
        printed = supermarket.published_fixed_point(poisson.D0, poisson.D1, p, T, choices, levels=LEVELS)
        real = supermarket.fixed_point(supermarket.Params(LOAD, choices, p, T), levels=96)
        return printed.residual, printed.value.pi.sum(axis=(1, 2))[1], real.value.tails[1]

    return jax.vmap(one)(exponents)


exponents = np.linspace(0, 1, 25 if SMALL else 241)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4))
for i, choices in enumerate((2.0, 3.0)):
    own, printed, real = (np.asarray(x) for x in residuals(jnp.append(exponents, 1 - 1 / choices), choices))
    exact, printed_u2, real_u2 = own[-1], printed[-1], real[-1]
    own, printed, real = own[:-1], printed[:-1], real[:-1]
    left.semilogy(exponents, np.maximum(own, 1e-17), color=CATEGORIES[i], linestyle=DASHES[i],
                  label=f"$d = {choices:g}$")
    left.axvline(1 - 1 / choices, color=CATEGORIES[i], linewidth=0.8, linestyle=":")
    right.plot(exponents, printed / real, color=CATEGORIES[i], linestyle=DASHES[i])
    right.axvline(1 - 1 / choices, color=CATEGORIES[i], linewidth=0.8, linestyle=":")
    print(f"d = {choices:g}, a = 1 - 1/d = {1 - 1 / choices:.3f}: residual {exact:.0e}, but u_2 is {printed_u2:.5f} by"
          f" (41) and {real_u2:.5f} in truth")
    assert exact < 1e-14 and abs(printed_u2 / real_u2 - 1) > 0.05
left.set(xlabel=r"Exponent $a$ in $\mu_i \propto p_i^a$", ylabel="Residual of (41) in (10) to (13)")
right.axhline(1, color="0.4", linewidth=0.8)
right.set(xlabel=r"Exponent $a$ in $\mu_i \propto p_i^a$", ylabel="$u_2$ by (41) over the true $u_2$")
figure.legend(*left.get_legend_handles_labels(), loc="outside right center")
show(figure, "05_residual")

# %% [markdown]
# So there is a curve of systems on which the formula solves its equations to the last digit, and there it is wrong as
# well: the equations themselves are not those of the model.
#
# ## What is wrong with the equations?
#
# An arrival joins a queue with at least $k - 1$ customers if all $d$ queues it looks at have that many: probability
# $u_{k-1}^d$, with $u_{k-1} = \sum_i s_{k-1,i}$ the sum over the phases. The paper writes $\sum_i s_{k-1,i}^d$, a power
# for each phase: all $d$ queues would have to be in the *same* phase. With two equal phases that is the fraction
# $2^{1-d}$ of the arrivals. The phase of a queue is a mark on it, not a reason to choose it.
#
# There is a second trouble: adding up the differential equations (7) to (9) shows that $\sum_{k\ge0} S_k e$ never
# changes, whereas (6) demands $S_0 e = 1$. We integrate them for exponential service from the empty system by Runge and
# Kutta's method.

# %%
def published_drift(S):
    """(7) to (9) for exponential service, S = (S_0, S_1, ...)."""
    up, above = LOAD * S**2, np.append(S[1:], 0)
    return np.concatenate([[-up[0] + S[1]], up[:-1] - up[1:] - S[1:] + above[1:]])


def model_drift(S):
    """The same for the model: S_0 = 1 stays."""
    change = published_drift(S)
    change[0] = 0
    return change


def integrate(drift, S, step, count):
    path = [S]
    for _ in range(count):
        a = drift(S)
        b = drift(S + step / 2 * a)
        c = drift(S + step / 2 * b)
        S = S + step / 6 * (a + 2 * b + 2 * c + drift(S + step * c))
        path.append(S)
    return np.array(path)


empty = np.zeros(24)
empty[0] = 1
step, count = 0.05, 1200
paths = {"as printed": integrate(published_drift, empty, step, count),
         "model": integrate(model_drift, empty, step, count)}
time = step * np.arange(count + 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.3), sharex=True)
for i, (name, path) in enumerate(paths.items()):
    left.plot(time, path[:, 0], color=CATEGORIES[i], linestyle=DASHES[i], label=name)
    right.plot(time, path.sum(axis=1), color=CATEGORIES[i], linestyle=DASHES[i])
    print(f"{name:>10}: S_0 = {path[-1, 0]:.6f}, S_1 = {path[-1, 1]:.6f}, sum of all S_k = {path[-1].sum():.6f}"
          f" after {time[-1]:g} mean services")
left.set(xlabel="Time (mean services)", ylabel="Share of all queues $S_0$", ylim=(0, 1.05))
right.set(xlabel="Time (mean services)", ylabel=r"$\sum_{k \geq 0} S_k$", ylim=(0, 2.3))
figure.legend(*left.get_legend_handles_labels(), title="Equations", loc="outside right center")
assert abs(paths["as printed"].sum(axis=1) - 1).max() < 1e-12 and abs(paths["as printed"][-1, 0] - 0.645845) < 1e-5
assert abs(paths["model"][-1, 1] - LOAD) < 1e-4
show(figure, "05_conserved_sum")

# %% [markdown]
# As printed, the share of all queues (which is 1) drifts to 0.646. The fixed points of (7) to (9) form a continuum, one
# for each value of the sum; (41) picks one by $S_0 e = 1$, which no trajectory from another sum reaches.
#
# ## What to try next
#
# * `hetjax.supermarket.Params(rate, d, alpha, T)` takes any phase-type service and any real $d$: at which load does
#   $d = 2$ with SCV 10 wait longer than $d = 1$ with exponential service?
# * An environment as slow as a queue does not average out: `simulate(..., environment="slow")` and
#   `supermarket.slow_environment`. How far is it from the fast one?
# * `supermarket.published_roots` looks for all solutions of (10) to (13): with $S_0 e = 1$ imposed one root is left in
#   each case tried. Compare its $u_1$ with the load.
# * `sweeps/supermarket_tails.toml`: from which $k$ on is the tail with SCV 10 doubly exponential?
