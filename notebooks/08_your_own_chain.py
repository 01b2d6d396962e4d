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
# # 08 Your own chain, swept
#
# **Question: a server sleeps when nobody is there, needs time to wake up, and its customers lose patience. How many of
# them should wait before it is woken, and what would a faster start be worth?**
#
# No built-in model covers that. We write the Markov chain ourselves, in one file, and get everything else from hetjax:
# batches, derivatives, statuses, a store on disk, figures. The file brings its own second route, so that every sweep
# checks itself.
#
# The system: customers arrive in a Poisson stream of rate $\lambda$. The server serves at rate $\mu$ and goes to sleep
# when nobody is left. It is woken by an arrival that makes $T$ customers wait; waking takes an exponential time of
# mean $1/\theta$. Each waiting customer leaves after an exponential time of mean $1/\gamma$.

# %%
import os
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax import ctmc
from hetjax.plot import draw
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES, MARKERS

hetjax.enable_x64()
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # small grids
set_up()
folder = tempfile.TemporaryDirectory()
here = Path(folder.name)


# %% [markdown]
# ## The model file
#
# A chain that moves by one customer at a time is a chain with *levels* (customers present) and *phases* (what the
# server does). `ctmc.Levels` takes the rates up, within and down; `ctmc.expectation_levels` gives stationary means of
# any rewards without a single subtraction, so they keep their digits.
#
# `point` is a pure function of one parameter point. The domains of the axes, units and meanings are for messages,
# stores and labels. `second_route` computes the same means in another way: the states are found by walking from the
# empty system (`ctmc.explore`), and plain numpy solves the balance equations. `golden` is left out: the second route is
# enough here.

# %%
MODEL_FILE = '''"""A server that sleeps when nobody is there, wakes up slowly, and serves impatient customers."""
import jax.numpy as jnp
import numpy as np

from hetjax import Axis, Metric, Model, ctmc

PLACES = 50  # levels: customers present. Phases: 0 asleep, 1 waking, 2 awake
AXES = (Axis("arrival_rate", 0.01, 10, "1/time", "arrivals per unit time"),
        Axis("wake_rate", 0.01, 100, "1/time", "1 / mean time that waking takes"),
        Axis("threshold", 1, PLACES - 1, "customers", "customers waiting that wake the server", integer=True),
        Axis("service_rate", 0.01, 100, "1/time", "services per unit time", default=1.0),
        Axis("patience", 0.1, 1000, "time", "mean time that a waiting customer stays", default=10.0))
METRICS = (Metric("mean_number", "customers", "mean number in the system"),
           Metric("p_abandon", "1", "share of customers who leave unserved"),
           Metric("p_powered", "1", "share of the time in which the server draws power (awake or waking)"),
           Metric("wake_ups", "1/time", "wake-ups per unit time"),
           Metric("p_full", "1", "all places taken: what the chain cuts off"))


def point(values, metrics, bounds):
    arrival, wake, threshold, service, patience = (values[axis.name] for axis in AXES)
    one = jnp.ones_like(arrival)
    level = jnp.arange(PLACES + 1, dtype=arrival.dtype)
    waiting = jnp.stack([level, level, jnp.maximum(level - 1, 0)], axis=1)  # (levels, phases)
    leaving = waiting / patience
    wakes = level + 1 >= threshold
    up = jnp.zeros((PLACES + 1, 3, 3), arrival.dtype)
    up = up.at[:, 0, 0].set(jnp.where(wakes, 0, arrival)).at[:, 0, 1].set(jnp.where(wakes, arrival, 0))
    up = up.at[:, 1, 1].set(arrival).at[:, 2, 2].set(arrival)
    local = jnp.zeros_like(up).at[1:, 1, 2].set(wake)
    local = local.at[0, 1, 0].set(wake)  # nobody left when it is awake: back to sleep
    down = leaving[:, :, None] * jnp.eye(3, dtype=arrival.dtype)
    down = down.at[2:, 2, 2].add(service).at[1, 2, 0].add(service + leaving[1, 2]).at[1, 2, 2].set(0)
    exists = jnp.ones((PLACES + 1, 3), bool).at[0, 2].set(False)  # awake without customers: no such state
    none = jnp.zeros_like(waiting)
    rewards = jnp.stack([none + level[:, None], leaving / arrival, none.at[:, 1:].set(one),
                         none.at[:, 0].set(jnp.where(wakes, arrival, 0)), none.at[PLACES].set(one)])
    found = ctmc.expectation_levels(ctmc.Levels(up, local, down, exists), rewards)
    results = dict(zip((metric.name for metric in METRICS), found.value))
    return {name: results[name] for name in metrics}, found.status


def second_route(values, metrics):
    """The same on the host: a walk over the states, and the balance equations in numpy."""
    arrival, wake, threshold, service, patience = (float(values[axis.name]) for axis in AXES)

    def moves(state):
        customers, server = state
        if customers < PLACES:
            woken = server == "asleep" and customers + 1 >= threshold
            yield (customers + 1, "waking" if woken else server), "arrival", 1
        if server == "waking":
            yield (customers, "awake" if customers else "asleep"), "wake", 1
        if server == "awake":
            yield (customers - 1, "awake" if customers > 1 else "asleep"), "service", 1
        patient = customers - (server == "awake")
        if patient:
            yield (customers - 1, server), "leave", patient

    space = ctmc.explore((0, "asleep"), moves)
    rate = {"arrival": arrival, "wake": wake, "service": service, "leave": 1 / patience}
    Q = np.zeros((len(space.states),) * 2)
    for i, j, name, factor in zip(space.source, space.target, space.name, space.factor):
        Q[i, j] += rate[name] * factor
    Q -= np.diag(Q.sum(1))
    law = np.linalg.lstsq(np.vstack([Q.T, np.ones(len(Q))]), np.append(np.zeros(len(Q)), 1), rcond=None)[0]
    customers = np.array([c for c, _ in space.states])
    server = np.array([s for _, s in space.states])
    means = {"mean_number": law @ customers,
             "p_abandon": law @ (customers - (server == "awake")) / patience / arrival,
             "p_powered": law @ (server != "asleep"),
             "wake_ups": arrival * law @ ((server == "asleep") & (customers + 1 >= threshold)),
             "p_full": law @ (customers == PLACES)}
    return {name: float(means[name]) for name in metrics if name != "p_full"}  # too small for lstsq


MODEL = Model("wake_up", 1, "A sleeping server with impatient customers", AXES, METRICS, point, second_route)
'''
(here / "wake_up.py").write_text(MODEL_FILE)
sys.path.insert(0, str(here))  # the command line finds it in the current folder
from wake_up import MODEL, PLACES, second_route  # noqa: E402

print(len(MODEL_FILE.splitlines()), "lines")

# %% [markdown]
# ## Swept to disk, with derivatives
#
# From here on our model is like any other: by the name `"wake_up:MODEL"`, from Python or in a file for `hetjax run`.
# While the run goes on, random points are computed again by the second route; it would stop at the first that differs.
# The chain is differentiable in all its rates, through the elimination itself; we ask for derivatives in $\theta$.

# %%
sweep = hetjax.Sweep(
    "wake_up:MODEL",
    {"arrival_rate": {"linspace": [0.05, 0.95, 10 if SMALL else 91]},
     "wake_rate": [0.1, 0.3, 1.0, 3.0], "threshold": {"range": [1, 12]}},
    metrics=[metric.name for metric in MODEL.metrics], grad={"of": ["p_abandon"], "wrt": ["wake_rate"]},
    title="A sleeping server with impatient customers")
sweep.run(here / "wake_up.zarr")
data = hetjax.open_sweep(here / "wake_up.zarr").load()
print(data)
assert int((data.status == 1).sum()) == data.p_abandon.size
print(f"P(all {PLACES} places taken) at most {float(data.p_full.max()):.1e}: the cut does not matter")
assert data.p_full.max() < 1e-14

# %% [markdown]
# ## Four ways to the same numbers
#
# At one system ($\lambda = 0.65$, $\theta = 0.3$) we compare all thresholds with the second route, with central
# differences of it for the derivative, with `ctmc.stationary`, the dense solver of hetjax, and with a simulation, in
# which the model is written once more, as rates and moves and without any limit to the places.

# %%
system = {"arrival_rate": 0.65, "wake_rate": 0.3, "service_rate": 1.0, "patience": 10.0}
exact = data.sel(arrival_rate=0.65, wake_rate=0.3, method="nearest")
thresholds = exact.threshold.values
names = ("mean_number", "p_abandon", "p_powered", "wake_ups")
worst = worst_slope = 0.0
for T in thresholds:
    at = exact.sel(threshold=T)
    other = second_route({**system, "threshold": T}, names)
    worst = max(worst, max(abs(float(at[name]) / other[name] - 1) for name in names))
    ends = [second_route(system | {"threshold": T, "wake_rate": 0.3 + h}, names)["p_abandon"] for h in (1e-4, -1e-4)]
    worst_slope = max(worst_slope, abs(float(at.d_p_abandon__d_wake_rate) / ((ends[0] - ends[1]) / 2e-4) - 1))
print(f"levels against balance equations: {worst:.1e}; derivatives against differences: {worst_slope:.1e} (relative)")
assert worst < 1e-9 and worst_slope < 1e-5  # lstsq loses digits of small numbers, differences of it more


def dense(T):
    """Generator and states (customers, server) of the same chain, numbered by hand, for the dense solver."""
    number, triples = {}, []

    def state(customers, server):
        return number.setdefault((customers, server), len(number))

    for customers in range(PLACES + 1):
        for server in (0, 1, 2):
            if (server == 0 and customers >= T) or (server == 2 and customers == 0):
                continue
            i = state(customers, server)
            if customers < PLACES:
                triples.append((i, state(customers + 1, int(customers + 1 >= T) if server == 0 else server), 0.65))
            if server == 1:
                triples.append((i, state(customers, 2 if customers else 0), 0.3))
            if customers:
                triples.append((i, state(customers - 1, server if customers > 1 or server < 2 else 0),
                                (1.0 if server == 2 else 0.0) + (customers - (server == 2)) / 10.0))
    return ctmc.generator(triples, len(number)), np.array(list(number))


Q, states = dense(3)
solved = ctmc.stationary(Q)
mean = float(solved.value @ states[:, 0])
levels = float(exact.mean_number.sel(threshold=3))
print(f"T = 3: mean number {mean:.13f} by the dense solver ({len(states)} states), {levels:.13f} by levels")
assert solved.status == hetjax.Status.OK and abs(mean / levels - 1) < 1e-12


# %%
def rates(state):
    customers, server = state[0], state[1]
    waiting = jnp.maximum(customers - (server == 2), 0)
    return 0.65, jnp.where(server == 1, 0.3, 0.0), jnp.where(server == 2, 1.0, 0.0), waiting / 10.0


def move(state, event):
    customers, server, T = state
    after = customers + (event == 0) - (event >= 2)
    server = jnp.where((event == 0) & (server == 0) & (after >= T), 1, server)
    server = jnp.where(event == 1, 2, server)
    server = jnp.where((server == 2) & (after == 0), 0, server)
    return after, server, T


def rewards(state):
    customers, server, _ = state
    waiting = jnp.maximum(customers - (server == 2), 0)
    return {"mean_number": customers, "p_abandon": waiting / 10.0 / 0.65, "p_powered": jnp.where(server > 0, 1.0, 0.0)}


often = thresholds[:7]  # higher ones are hardly ever reached
simulated = jax.jit(jax.vmap(lambda T, key: ctmc.simulate(
    ctmc.transition_chain(rates, move), (0, 0, T), key, rewards=rewards, events=1000 if SMALL else 8000, warmup=1000,
    replications=128 if SMALL else 512)))(jnp.asarray(often, jnp.int32),
                                          jax.random.split(jax.random.key(1), len(often)))
assert (simulated.status == hetjax.Status.OK).all()
away = {name: np.asarray((found - exact[name].values[:len(often)]) / simulated.half_width[name])
        for name, found in simulated.mean.items()}
for name, z in away.items():
    print(f"{name:>12}: {int((abs(z) <= 1).sum())} of {len(z)} inside the 95 % interval,"
          f" farthest {abs(z).max():.2f} half-widths")
assert max(abs(z).max() for z in away.values()) < 2.2  # 2.2 half-widths: once in 2,000 sets of 21

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3.0))
labels = {"mean_number": r"Mean number $\overline{N}$ (customers)", "p_abandon": "Customers who give up (%)",
          "p_powered": "Time under power (%)"}
for panel, (name, label) in zip(panels, labels.items(), strict=True):
    scale = 1 if name == "mean_number" else 100
    panel.plot(thresholds, scale * exact[name], color=CATEGORIES[0], label="solved")
    panel.errorbar(often, scale * simulated.mean[name], 2 * scale * simulated.half_width[name], color="black",
                   fmt="o", markersize=3, linewidth=1, capsize=2,
                   label="simulated, ± 2\nhalf-widths of the\n95 % interval")
    panel.set(xlabel="Threshold $T$ (customers)", ylabel=label, xticks=thresholds[::2])
handles, texts = panels[0].get_legend_handles_labels()
figure.legend(handles, texts, loc="outside right center")
show(figure, "08_solved_and_simulated")

# %% [markdown]
# A high threshold saves power and sends customers away.
#
# ## The trade
#
# The choice of $T$ is a trade: power against customers. Each curve below is one speed of waking, each mark one
# threshold; below and to the left is better. At every threshold a faster start saves both.

# %%
one = data.sel(arrival_rate=0.65, method="nearest")
for name in ("p_powered", "p_abandon"):
    assert (one[name].diff("wake_rate") < 0).all()
figure, axes = plt.subplots(figsize=(6.4, 3.8))
for i, wake in enumerate(data.wake_rate.values):
    curve = one.sel(wake_rate=wake)
    axes.plot(100 * curve.p_powered, 100 * curve.p_abandon, color=CATEGORIES[i], linestyle=DASHES[i], marker=MARKERS[i],
              markersize=4, label=f"{wake:g}")
    for T in (1, 4) if i != 2 else (1,):
        at = curve.sel(threshold=T)
        axes.annotate(f"$T = {T}$", (100 * float(at.p_powered), 100 * float(at.p_abandon)),
                      xytext=(7, 3) if i < 3 else (-32, -9), textcoords="offset points", fontsize=7.5)
axes.set(xlabel="Time under power (%)", ylabel="Customers who give up (%)", ylim=(0, None),
         title=f"$\\lambda = {float(one.arrival_rate):.2g}$, $\\mu = 1$, mean patience 10")
figure.legend(title="Wake rate $\\theta$ (1/time)", loc="outside right center")
show(figure, "08_power_against_customers")

# %% [markdown]
# Give everything a price per unit time: 1 for power, 2 for each wake-up, 5 for each customer who gives up,
#
# $$C = P_{power} + 2\,w + 5\,\lambda P_{abandon}.$$
#
# The best threshold follows for every load, and the derivative says how many customers a faster start would keep.

# %%
data["cost"] = data.p_powered + 2 * data.wake_ups + 5 * data.arrival_rate * data.p_abandon
data.cost.attrs = {"units": "1/time", "long_name": "cost per unit time"}
best = data.threshold[data.cost.argmin("threshold")]
assert best.max() < data.threshold[-1]  # inside the sweep
saved = (-data.arrival_rate * data.d_p_abandon__d_wake_rate).sel(threshold=best)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.3))
for i, wake in enumerate(data.wake_rate.values):
    look = {"color": CATEGORIES[i], "linestyle": DASHES[i], "label": f"{wake:g}"}
    left.step(data.arrival_rate, best.sel(wake_rate=wake), where="mid", **look)
    right.plot(data.arrival_rate, saved.sel(wake_rate=wake), **look)
    row = best.sel(wake_rate=wake).values
    print(f"wake rate {wake:g}: best threshold {row[0]} at the lowest arrival rate, {row[-1]} at the highest")
left.set(ylabel="Best threshold $T^*$ (customers)", ylim=(0, 8))
right.set(ylabel=r"$-\lambda\,\partial P_{abandon}/\partial\theta$ at $T^*$ (customers)", yscale="log", ylim=(1e-4, 3))
for panel in (left, right):
    panel.set(xlabel=r"Arrival rate $\lambda$ (1/time)", xlim=(0, 1))
figure.legend(*left.get_legend_handles_labels(), title="Wake rate $\\theta$ (1/time)", loc="outside right center")
show(figure, "08_best_threshold")

# %% [markdown]
# How much does a wrong threshold cost? `hetjax.plot.draw` maps the excess over the best one, in percent.

# %%
figure = draw(data, {"x": "arrival_rate", "y": "threshold", "z": "cost", "facets": "wake_rate", "optimum": True,
                     "relative": {"over": "threshold", "to": "min"}, "limits": {"z": [0, 40]},
                     "labels": {"x": "Arrival rate $\\lambda$ (1/time)", "y": "Threshold $T$ (customers)"},
                     "title": "Excess of the cost over that with the best threshold"})
folder.cleanup()
show(figure, "08_excess_map")

# %% [markdown]
# ## What to try next
#
# * Let the server stay awake for a while before it sleeps: a fourth phase, or the state "awake without customers" that
#   the mask leaves out, with a rate to fall asleep. Is it ever worth it?
# * Minimise `hetjax.objective("wake_up:MODEL", "p_powered + price * p_abandon")` with `hetjax.optimize.minimize`, or
#   put a table `optimize` into the sweep, as in notebook 07.
# * Chains without levels: `ctmc.explore` finds the states, `ctmc.generator` builds the matrix, `ctmc.stationary` solves
#   it, and `ctmc.sensitivity` differentiates it.
# * Send the sweep to a cluster: notebook 09.
