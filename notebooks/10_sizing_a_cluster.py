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
# # 10 Sizing a real cluster
#
# **Question: all there is is a log of arrivals and services. How long should customers stall for a fast server, how
# should a stream be split over two nodes, how many queues should a dispatcher look at; and how sure are these answers,
# given that the log is finite?**
#
# Three systems, three logs. We make the logs ourselves, so that the truth is known, and then forget it: everything
# below the first section reads the CSV files only. Each time: rates with standard errors and a test whether a Poisson
# and exponential model fits at all, a recommendation, and its uncertainty by two routes side by side, the delta method
# (derivatives of the optimum times the covariance of the estimates) and parametric resampling (the whole way again from
# estimates drawn anew).

# %%
import csv
import math
import os
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import hetjax
from hetjax.fit import Log, fit_log
from hetjax.models import parallel_queues as pq
from hetjax.models.supermarket.probing import best_choices
from hetjax.plot.notebook import set_up, show
from hetjax.plot.style import CATEGORIES, DASHES

hetjax.enable_x64()
stalling = hetjax.stalling
SMALL = bool(os.environ.get("HETJAX_SMALL"))  # few resamples
set_up()
folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
random = np.random.default_rng(7)

# %% [markdown]
# ## The logs
#
# `park.csv`: a park of 5 fast and 2 slow servers as it runs today. Whoever finds the fast servers busy goes to a slow
# one at once; if all are busy, customers wait in order. `nodes.csv`: two sites with a fast and a slow server each; the
# log has durations only. `farm.csv`: 50 equal servers behind a dispatcher. Times are in minutes.

# %%
TRUTH = {"park": {"arrival": 4.5, "fast": 1.0, "slow": 0.1},
         "nodes": {"arrival": 2.0, "A fast": 2.0, "A slow": 0.5, "B fast": 1.0, "B slow": 0.2},
         "farm": {"arrival": 42.5, "all": 1.0}}
CUSTOMERS = 6000


def park_rows():
    """The events of the park, customer by customer in order of arrival."""
    rates = TRUTH["park"]
    free = np.zeros(7)  # when each server is free; the first five are fast
    for arrival in np.cumsum(random.exponential(1 / rates["arrival"], CUSTOMERS)):
        idle = np.flatnonzero(free <= arrival)
        server = idle[0] if idle.size else int(np.argmin(free))
        start = max(arrival, free[server])
        kind = "fast" if server < 5 else "slow"
        free[server] = start + random.exponential(1 / rates[kind])
        yield f"{arrival:.6f}", f"{start:.6f}", f"{free[server]:.6f}", kind


def durations(name):
    """Arrivals and durations only, classes drawn at random."""
    rates = dict(TRUTH[name])
    arrivals = np.cumsum(random.exponential(1 / rates.pop("arrival"), CUSTOMERS))
    for arrival, kind in zip(arrivals, random.choice(list(rates), CUSTOMERS), strict=True):
        yield f"{arrival:.6f}", f"{random.exponential(1 / rates[kind]):.6f}", kind


for name, header, rows in (("park", ("arrival", "start", "departure", "server"), park_rows()),
                           ("nodes", ("arrival", "service", "server"), durations("nodes")),
                           ("farm", ("arrival", "service", "server"), durations("farm"))):
    with open(here / f"{name}.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
print((here / "park.csv").read_text()[:150], "...")

# %% [markdown]
# ## What the logs say
#
# `fit_log` (on the command line `hetjax fit park.csv --fast-servers 5`) estimates rates by maximum likelihood, with
# exact intervals, and tests what the models below assume: squared coefficient of variation (SCV) 1, the exponential
# shape, and no correlation of neighbours. From the starts in the park's log it also reads the stalling buffer that is
# in use today.

# %%
fits = {"park": fit_log(here / "park.csv", fast_servers=5, slow_servers=2), "nodes": fit_log(here / "nodes.csv"),
        "farm": fit_log(here / "farm.csv")}
for name, found in fits.items():
    print(f"--- {name}.csv\n{found.text()}\n")
    for what, rate in TRUTH[name].items():
        sample = found.interarrival if what == "arrival" else found.services[what]
        assert abs(sample.rate - rate) < 3.5 * sample.standard_error and sample.exponential and sample.independent
    assert found.remarks == ()
assert fits["park"].buffer.K == 0

# %% [markdown]
# Nothing speaks against the model, and the buffer in use is read as 0. Would a wrong model be noticed? The same park
# with arrivals in bursts (short and long gaps at random):

# %%
gaps = random.exponential(np.where(random.random(CUSTOMERS) < 0.5, 0.02, 0.42))
bursty = fit_log(Log.from_arrays(np.cumsum(gaps), service=random.exponential(1.0, CUSTOMERS)))
print("note:", *bursty.remarks)
assert not bursty.interarrival.exponential

park = fits["park"]
log = Log.read(here / "park.csv")
figure, axes = plt.subplots(figsize=(6.6, 3.4))
samples = {"gaps between arrivals": np.diff(log.arrival), "fast services": log.service[log.server == "fast"],
           "slow services": log.service[log.server == "slow"], "gaps, bursty": gaps}
for i, (name, times) in enumerate(samples.items()):
    times = np.sort(times) / np.mean(times)
    left = 1 - (np.arange(times.size) + 0.5) / times.size
    axes.plot(times, left, color=CATEGORIES[i], linestyle=DASHES[i], drawstyle="steps-post", label=name)
x = np.linspace(0, 8, 50)
axes.plot(x, np.exp(-x), color="0.6", linewidth=4, alpha=0.6, zorder=0, label="exponential law")
axes.set(yscale="log", xlim=(0, 8), ylim=(2e-4, 1.2), xlabel="Time over its mean (1)",
         ylabel="Share of the times that are longer (1)")
figure.legend(loc="outside right center")
show(figure, "10_exponential_or_not")

# %% [markdown]
# ## Two routes to the uncertainty of an answer
#
# The estimates of independent exponential rates are independent, and $\ln\hat\lambda$ has variance $1/n$ for $n$ times.
# *Delta method*: an answer $g(\ln\theta)$ has variance $\sum_i (\partial g/\partial\ln\theta_i)^2/n_i$. *Resampling*:
# if $\hat\theta$ were the truth, another log of $n$ times would give the estimate $\hat\theta\,n/\Gamma(n)$ with a
# gamma variable of shape $n$; we draw it and answer again.

# %%
DRAWS = 60 if SMALL else 2000


def estimates(name):
    """Rates of a log and how many times each rests on."""
    samples = [fits[name].interarrival, *(fits[name].services[k] for k in TRUTH[name] if k != "arrival")]
    return np.array([s.rate for s in samples]), np.array([s.count for s in samples])


def resampled(name, draws):
    """(draws, rates) of what other logs of the same length might have given."""
    rates, counts = estimates(name)
    return rates * counts / random.gamma(np.broadcast_to(counts, (draws, len(counts))))


def delta_error(slopes, counts):
    """Standard error from derivatives in the logarithms of the rates."""
    return float(np.sqrt(np.sum(np.asarray(slopes) ** 2 / counts)))


# %% [markdown]
# ## The park: how long to stall
#
# The stalling queue has an optimal buffer, in whole places and as a real number $K_0$ that is differentiable in the
# rates (implicit function theorem). One batch: the estimates, the resampled ones, and a line of loads for later.

# %%
def buffer(logs):
    best = stalling.optimal_buffer(stalling.from_rates(*jnp.exp(logs), K=0.0, M=math.inf, m=5, n=2),
                                   enumerate_up_to=0)
    return best.K_real, (best.K_real, best.K, best.gain_never, best.gain_zero, best.mean_number)


rates, counts = estimates("park")
drawn = resampled("park", DRAWS)
drawn = drawn[drawn[:, 0] < 5 * drawn[:, 1] + 2 * drawn[:, 2]]  # those with a steady state
loads = 1 - np.geomspace(0.7, 0.01, 60)
line = np.column_stack([loads * 5 * rates[1], np.full(60, rates[1]), np.full(60, rates[2])])
truth = np.array([list(TRUTH["park"].values())])  # to compare with
slopes, (K_real, K, never, at_once, number) = (jax.tree.map(np.asarray, x) for x in jax.jit(jax.vmap(
    jax.jacfwd(buffer, has_aux=True)))(jnp.log(np.concatenate([rates[None], truth, drawn, line]))))
mine, true, others, by_load = 0, 1, slice(2, 2 + len(drawn)), slice(2 + len(drawn), None)
park_error = delta_error(slopes[mine], counts)
print(f"q = {park.q.value:.3f}, r = {park.r.value:.2f}: best buffer K = {K[mine]} (real {K_real[mine]:.2f})")
print(f"standard error of the real one: delta method {park_error:.2f}, resampling {K_real[others].std():.2f}")
low, high = np.quantile(K[others], [0.05, 0.95])
print(f"90 % of the resampled logs recommend {low:g} to {high:g} places")
print(f"the truth: {K[true]}")
assert len(drawn) > 0.99 * DRAWS and abs(park_error / K_real[others].std() - 1) < (0.4 if SMALL else 0.1)
assert abs(K_real[mine] - K_real[true]) < 4 * park_error

# %% [markdown]
# Does it matter that the buffer is uncertain? We use the recommended $K$ in every resampled system and compare with the
# best one there.

# %%
q, r = drawn[:, 0] / (5 * drawn[:, 1]), drawn[:, 1] / drawn[:, 2]
ours = hetjax.evaluate("stalling", q=q, r=r, K=K[mine], M=math.inf, m=5, n=2, metrics=["mean_number"]).mean_number
regret = 100 * (np.asarray(ours) / number[others] - 1)
print(f"regret of K = {K[mine]}: mean {regret.mean():.3f} %, in 95 % of the systems below"
      f" {np.quantile(regret, 0.95):.3f} %")
print(f"stalling saves {100 * at_once[mine]:.1f} % of the customers in the system over today's K = 0")
assert (regret > -1e-9).all() and np.quantile(regret, 0.95) < 0.2 * 100 * at_once[mine]

# %% [markdown]
# The buffer is uncertain by a place, its cost hardly: near the optimum $\overline N$ is flat.
#
# ## Where slow servers do not pay
#
# The same batch holds the gains at 60 loads with the estimated $r$. With the best buffer slow servers never harm, but
# at low load they save next to nothing; used at once ($K = 0$), as today, they do harm up to a certain load.

# %%
best_saves, today_saves = 100 * never[by_load], 100 * (1 - (1 - never[by_load]) / (1 - at_once[by_load]))
assert best_saves.min() >= 0 > today_saves.min()
tail = loads > 0.8
assert today_saves[tail][0] < 0 < today_saves[-1] and (np.diff(today_saves[tail]) > 0).all()
crossing = float(np.interp(0.0, today_saves[tail], loads[tail]))
print(f"slow servers used at once pay from q = {crossing:.3f} on; the park has q = {park.q.value:.3f}"
      f" ± {park.q.standard_error:.3f}")
worth = float(np.interp(1.0, best_saves, loads))
print(f"with the best buffer they save 1 % from q = {worth:.3f} on")
if not SMALL:
    exact = float(stalling.load_where_slow_servers_pay(park.r.value, 5, 2))
    print(f"solved for exactly: {exact:.5f}")
    assert abs(exact - crossing) < 2e-3  # the crossing is read off a line over 60 loads

figure, axes = plt.subplots(figsize=(7.4, 3.4))
half = 1.96 * park.q.standard_error
axes.axvspan(park.q.value - half, park.q.value + half, color="0.88", label="load of the park,\n95 % interval")
axes.axhline(0, color="0.5", linewidth=0.8)
axes.plot(loads, best_saves, color=CATEGORIES[0], linestyle=DASHES[0], label="best buffer")
axes.plot(loads, today_saves, color=CATEGORIES[1], linestyle=DASHES[1], label="no buffer ($K = 0$)")
axes.plot(crossing, 0, "o", color="black", markerfacecolor="white", label="pays from here on")
axes.set(xlabel=r"Load of the fast servers $q = \lambda/(m\mu_1)$", xlim=(0.3, 1),
         ylabel="Saved by two slow servers,\nshare of $\\overline{N}$ without them (%)", ylim=(-35, 60))
figure.legend(loc="outside right center")
show(figure, "10_where_slow_servers_pay")

# %% [markdown]
# ## The nodes: how to split the stream
#
# Each customer goes to site A with probability $p$, whatever happens there. `best_split` finds $p$ and the thresholds
# at which the slow servers start. Its derivative comes from the optimality condition: with $N(p, \ln\theta)$ the mean
# number at fixed thresholds, $\partial p^*/\partial\ln\theta = -N_{p\theta}/N_{pp}$.


# %%
def sites(rates):
    return pq.Params(rates[0], jnp.stack([rates[1], rates[3]]), jnp.stack([rates[2], rates[4]]))


def total(p, logs, thresholds):
    return jnp.sum(pq.node_numbers(sites(jnp.exp(logs)), jnp.stack([p, 1 - p]), thresholds))


rates, counts = estimates("nodes")
drawn = np.concatenate([rates[None], [list(TRUTH["nodes"].values())], resampled("nodes", 12 if SMALL else 250)])
splits = jax.jit(jax.vmap(lambda v: pq.best_split(sites(v))))(jnp.asarray(drawn))
assert (splits.status == hetjax.Status.OK).all()
p, thresholds = np.asarray(splits.probabilities[:, 0]), splits.thresholds[0]
curvature, cross = jax.jit(jax.grad(jax.grad(total), (0, 1)))(jnp.asarray(p[0]), jnp.log(rates), thresholds)
split_error = delta_error(-np.asarray(cross) / float(curvature), counts)
print(f"best split: {100 * p[0]:.1f} % to site A, slow servers start at {thresholds[0]:.0f} and {thresholds[1]:.0f}"
      f" waiting; mean number {float(splits.mean_number[0]):.3f}")
print(f"standard error: delta method {100 * split_error:.2f} %, resampling {100 * p[2:].std():.2f} %")
print(f"the truth: {100 * p[1]:.1f} %, thresholds {splits.thresholds[1].tolist()}")
assert abs(p[0] - p[1]) < 4 * split_error
assert abs(split_error / p[2:].std() - 1) < (0.8 if SMALL else 0.25)  # 12 and 250 draws; thresholds may jump

# %% [markdown]
# ## The farm: how many queues to look at
#
# Each arrival looks at $d$ of the 50 queues and joins the shortest. Looking at one costs as much as 0.05 minutes of a
# customer's time. In a large farm (the mean-field limit; Poisson arrivals, exponential services) the mean response time
# is $T(d) = \mu^{-1}\sum_{i \ge 1} \rho^{(d^i - d)/(d - 1)}$; we write it down for its derivatives in $d$ and rates.
# `best_choices` finds the best whole $d$ from the fixed point of the general model and proves that no other is better.

# %%
PRICE = 0.05


def response(d, logs):
    arrival, service = jnp.exp(logs)
    i = jnp.arange(1, 60)
    return jnp.sum((arrival / 50 / service) ** ((d ** jnp.minimum(i, 300 / jnp.log(d)) - d) / (d - 1))) / service


def looks(logs):
    """The real d with T'(d) + price = 0, by bisection; the whole one, among 1..40; and the price up to which 2 pays."""
    def halve(_, ends):
        middle = (ends[0] + ends[1]) / 2
        low = jax.grad(response)(middle, logs) + PRICE < 0
        return jnp.where(low, middle, ends[0]), jnp.where(low, ends[1], middle)

    real = jax.lax.fori_loop(0, 60, halve, (jnp.asarray(1.01), jnp.asarray(40.0)))[0]
    alone = 1 / (jnp.exp(logs[1]) - jnp.exp(logs[0]) / 50)  # d = 1: M/M/1
    means = jnp.concatenate([alone[None], jax.vmap(lambda d: response(d, logs))(jnp.arange(2.0, 41.0))])
    cost = means + PRICE * jnp.arange(1.0, 41.0)
    slopes = jax.grad(jax.grad(response), (0, 1))(real, logs)
    return real, 1 + jnp.argmin(cost), 1 - jnp.min(cost) / cost[0], alone - means[1], slopes


rates, counts = estimates("farm")
drawn = np.concatenate([rates[None], [list(TRUTH["farm"].values())], resampled("farm", DRAWS)])
d_real, d, saving, limit, (curvature, cross) = (jax.tree.map(np.asarray, x) for x in jax.jit(jax.vmap(looks))(
    jnp.log(drawn)))
farm_error = delta_error(-cross[0] / curvature[0], counts)
proved = best_choices(hetjax.supermarket.Params(rates[0] / 50, 2, [1.0], [[-rates[1]]]), PRICE)
print(f"best d = {d[0]} (real {d_real[0]:.2f}), saves {100 * saving[0]:.1f} % of the cost of d = 1;"
      f" proved for the general model: {proved}")
print(f"standard error of the real one: delta method {farm_error:.3f}, resampling {d_real[2:].std():.3f}")
chosen, times = np.unique(d[2:], return_counts=True)
print("recommended by the resampled logs:", ", ".join(f"d = {a}: {b}" for a, b in zip(chosen, times, strict=True)))
print(f"the truth: d = {d[1]} (real {d_real[1]:.2f})")
assert proved == d[0] and abs(farm_error / d_real[2:].std() - 1) < (0.4 if SMALL else 0.1)
assert abs(d_real[0] - d_real[1]) < 4 * farm_error
if not SMALL:
    probing = hetjax.evaluate("supermarket_probing", arrival_rate=drawn[:50, 0] / 50, service_rate=drawn[:50, 1],
                              scv=1.0, phases=2, price=PRICE, metrics=["best_d", "best_d_real"])
    apart = float(np.abs(np.asarray(probing.best_d_real) - d_real[:50]).max())
    print(f"the model supermarket_probing on 50 of them: real d differs by at most {apart:.1e}")
    assert (probing.status == hetjax.Status.OK).all() and (np.asarray(probing.best_d) == d[:50]).all() and apart < 1e-6
print(f"looking at two queues pays up to a price of {limit[0]:.3f} min a look; above that send customers at random")

# %% [markdown]
# ## The recommendation, with its uncertainty
#
# Bars: the resampled answers. Curve: the normal law of the delta method. Line: the answer itself; dotted: the truth.
# The delta method holds the thresholds of the two sites fixed; resampling lets them jump, which the bars show.

# %%
answers = [("Real buffer $K_0$ (places)", K_real[mine], park_error, K_real[others], K_real[true]),
           ("Share sent to site A $p$ (%)", 100 * p[0], 100 * split_error, 100 * p[2:], 100 * p[1]),
           ("Real number of looks $d$ (queues)", d_real[0], farm_error, d_real[2:], d_real[1])]
figure, panels = plt.subplots(1, 3, figsize=(10.4, 3.2))
for panel, (label, value, error, resample, correct) in zip(panels, answers, strict=True):
    panel.hist(resample, bins=min(30, round(math.sqrt(len(resample)))), density=True, color="0.8", edgecolor="0.55",
               linewidth=0.5, label="resampling")
    x = np.linspace(value - 4 * error, value + 4 * error, 200)
    panel.plot(x, np.exp(-0.5 * ((x - value) / error) ** 2) / (error * math.sqrt(2 * math.pi)), color=CATEGORIES[0],
               label="delta method")
    panel.axvline(value, color="black", label="answer")
    panel.axvline(correct, color="black", linestyle=DASHES[2], label="truth")
    panel.set(xlabel=label, yticks=[], xlim=(value - 4.5 * error, value + 4.5 * error))
panels[0].set_ylabel("Density")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
print(f"recommended: K = {K[mine]} places, {100 * p[0]:.0f} % to site A, d = {d[0]} looks")
print(f"truth:       K = {K[true]} places, {100 * p[1]:.0f} % to site A,"
      f" d = {d[1]} looks")
folder.cleanup()
show(figure, "10_recommendation")

# %% [markdown]
# ## What to try next
#
# * Put your own log in the place of `park.csv`: columns `arrival`, `start`, `departure`, `server`, or durations as
#   `service`. Read the notes of `fit_log` first.
# * Make the log ten times longer, or shorter: the standard errors go with the root. How long must it be for the whole
#   numbers to be certain?
# * If arrivals are bursty, `fits["park"].interarrival.law()` gives a phase-type law with the same SCV, for
#   `hetjax.supermarket` and `hetjax.threshold_queue`.
# * Only means were observed? `hetjax.fit.fit_means` fits any model to them and says what they cannot identify.
