"""``hetjax demo``: every built-in model once, in a small sweep, with a line of result and a picture each.

Nothing is stored but the pictures. The sweeps are small versions of those in sweeps/ of the repository; compiling
takes nearly all of the time, and two are compiled at once.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

AT_ONCE = 2


@dataclass(frozen=True)
class Study:
    """A small sweep of one model: the arguments of :class:`hetjax.Sweep`, its figure, and what its result says."""

    model: str
    sweep: dict[str, Any]
    plot: dict[str, Any]
    says: Callable[[Any], str] = field(repr=False)


class Shown(NamedTuple):
    """What one study gave: the model, the line that says it, the points computed, the picture."""

    model: str
    line: str
    points: int
    picture: Path


def show(folder: Path, models: Collection[str] | None = None) -> Iterator[Shown]:
    """Computes the studies (those of ``models`` only, if given) and writes a picture of each to ``folder``.

    Needs 64-bit floats (:func:`hetjax.enable_x64`) and no extra.
    """
    from hetjax.plot import plot_sweep
    from hetjax.sweep import Sweep

    folder.mkdir(parents=True, exist_ok=True)
    chosen = [study for study in STUDIES if models is None or study.model in models]
    sweeps = [Sweep(study.model, **study.sweep) for study in chosen]  # imports the models, here and not in two threads
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        computed = pool.map(lambda sweep: sweep.run_in_memory(devices=1), sweeps)
        for study, data in zip(chosen, computed, strict=True):
            picture, = plot_sweep(data, study.plot, folder / f"{study.model}.png")
            yield Shown(study.model, study.says(data), data.status.size, picture)
    finally:
        pool.shutdown(cancel_futures=True)


def _least(data: Any, metric: str, axis: str) -> Any:
    """The value of ``axis`` at which ``metric`` is least."""
    return data[metric].idxmin(axis).values


_NODES = {"mu1_node1": 2.0, "mu2_node1": 0.5, "mu1_node2": 1.0, "mu2_node2": 0.2}
_BURSTS = {"mu1": 1.0, "mu2": 0.2, "burst_ratio": 4.0, "burst_share": 0.2, "burst_length": 10.0}
_RULES = ["fastest_first", "simple", "constant"]
_RULE_NAMES = ["slow server at once", "usual heuristic", "best constant threshold"]
_LOAD = {"load": {"linspace": [0.1, 0.9, 17]}}

STUDIES = (
    Study("stalling",
          {"axes": {"q": [0.5, 0.7, 0.8, 0.9], "K": range(60)}, "metrics": ["mean_number"], "grad": ["K"],
           "const": {"r": 20.0, "M": 50, "m": 5, "n": 2}},
          {"x": "K", "y": "mean_number", "hue": "q", "optimum": True, "title": "Stalling queue"},
          lambda data: "5 fast servers and 2 that are 20 times slower at load 0.8: customers should wait for a fast one"
                       f" until {_least(data, 'mean_number', 'K')[2]:g} of them do"),
    Study("stalling_buffer",
          {"axes": {"q": {"linspace": [0.3, 0.95, 27]}, "r": {"geom": [2.0, 100.0, 25]}},
           "metrics": ["optimal_buffer", "log10_gain"], "const": {"M": float("inf"), "m": 5, "n": 2}},
          {"x": "q", "y": "r", "z": "optimal_buffer", "log": ["y", "z"], "title": "The best stalling buffer"},
          lambda data: f"the best such buffer everywhere, from {data.optimal_buffer.min():g} to"
                       f" {data.optimal_buffer.max():g} places; the gain falls to 1e{data.log10_gain.min():.0f} of the"
                       " mean"),
    Study("stalling_pays",
          {"axes": {"r": {"geom": [1.0, 300.0, 31]}, "K": [0, 5, 30]}, "metrics": ["pays_load"],
           "const": {"m": 5, "n": 2}},
          {"x": "r", "y": "pays_load", "hue": "K", "log": ["x"], "title": "When slow servers pay"},
          lambda data: "without stalling, servers"
                       f" {float(data.r[np.isfinite(data.pays_load.sel(K=0))].max()):.0f} times slower pay above a load"
                       f" of {float(data.pays_load.sel(K=0).max()):.2f} only"),
    Study("stalling_worth",
          {"axes": {"q": {"linspace": [0.4, 0.95, 23]}, "n": [1, 2, 5]}, "metrics": ["worth"],
           "const": {"r": 10.0, "m": 5, "price": 0.01}},
          {"x": "q", "y": "worth", "hue": "n", "log": ["y"], "title": "Worth of the n-th slow server"},
          lambda data: f"the first slow server takes {float(data.worth.sel(n=1)[-1]):.1f} customers out of the system"
                       f" at load 0.95, the fifth another {float(data.worth.sel(n=5)[-1]):.2f}"),
    Study("overflow",
          {"axes": {"rho1": {"geom": [0.01, 100.0, 61]}, "rho2": {"geom": [0.01, 100.0, 61]}},
           "metrics": ["loss_reduction_1", "loss_reduction_2", "absolute_loss_reduction"],
           "derived": {"lambda1": "rho1", "lambda2": "rho2"}, "const": {"mu1": 1.0, "mu2": 1.0}},
          {"x": "rho1", "y": "rho2", "z": ["loss_reduction_1", "loss_reduction_2"], "log": ["x", "y"],
           "contours": {"levels": [0.0], "label": "no gain"}, "title": "What overflow gains",
           "labels": {"x": "Offered load of type 1", "y": "Offered load of type 2"}},
          lambda data: f"at {float(data.absolute_loss_reduction.mean()):.0%} of these loads both types lose fewer"
                       " customers where each may overflow to the other's server"),
    Study("overflow_general",
          {"axes": {"load": {"linspace": [0.1, 3.0, 30]}, "speed": [0.25, 0.5, 1.0]}, "metrics": ["loss_reduction_1"],
           "derived": {"lambda1": "2 * load", "lambda2": "2 * load", "mu12": "speed", "mu21": "speed"},
           "const": {"mu11": 1.0, "mu22": 1.0, "servers1": 2, "servers2": 2}},
          {"x": "load", "y": "loss_reduction_1", "hue": "speed",
           "title": "Overflow between two sides of two servers",
           "labels": {"x": "Load of each side", "hue": "Speed at the\nother side"}},
          lambda data: "two servers a side that serve the other's type at a quarter of the speed: overflow pays up to"
                       f" load {float(data["load"][data.loss_reduction_1.sel(speed=0.25) > 0].max()):.1f}"),
    Study("supermarket",
          {"axes": {"arrival_rate": {"linspace": [0.05, 0.95, 37]}, "d": [1.0, 1.5, 2.0, 5.0]},
           "metrics": ["mean_response_time", "gain"], "const": {"scv": 1.0}},
          {"x": "arrival_rate", "y": "mean_response_time", "hue": "d", "log": ["y"],
           "title": "The shortest of d queues"},
          lambda data: "joining the shorter of two random queues at load 0.95 is"
                       f" {float(data.gain.sel(d=2.0)[-1]):.1f} times as fast as joining one"),
    Study("supermarket_tails",
          {"axes": {"level": range(1, 13), "d": [1.0, 2.0, 3.0, 5.0]}, "metrics": ["tail", "minus_log_tail"],
           "const": {"arrival_rate": 0.9}},
          {"x": "level", "y": "minus_log_tail", "hue": "d", "log": ["y"], "title": "Doubly exponential tails",
           "labels": {"y": "-log of the share of queues that long"}},
          lambda data: f"one queue in {1 / float(data['tail'].sel(level=6, d=2.0)):,.0f} holds 6 customers or more with"
                       f" two choices, one in {1 / float(data['tail'].sel(level=6, d=1.0)):.1f} with one"),
    Study("supermarket_probing",
          {"axes": {"arrival_rate": {"linspace": [0.1, 0.95, 18]}, "price": {"geom": [0.01, 1.0, 9]}},
           "metrics": ["best_d", "saving_over_two"], "const": {"scv": 1.0}},
          {"x": "arrival_rate", "y": "price", "z": "best_d", "log": ["y", "z"], "title": "How many queues to look at"},
          lambda data: f"at a price of 0.01 for each look, {float(data.best_d[:, 0].max()):.0f} are best at load 0.95,"
                       f" {float(data.best_d[0, 0]):.0f} at load 0.1"),
    Study("supermarket_finite",
          {"axes": {"N": [10, 30, 100, 300, 1000], "arrival_rate": [0.7, 0.9]},
           "metrics": ["relative_excess"], "const": {"method": 1, "d": 2.0}, "inner_batch": 1},
          {"x": "N", "y": "relative_excess", "hue": "arrival_rate", "log": ["x", "y"],
           "title": "How many queues are many?", "labels": {
               "x": "Number of queues", "y": "Relative excess of the mean queue length"}},
          lambda data: "ten queues at load 0.9 are"
                       f" {float(data.relative_excess.sel(N=10, arrival_rate=0.9)):.0%} longer than infinitely many"),
    Study("threshold_queue",
          {"axes": {"load": {"linspace": [0.05, 0.95, 46]}, "r": {"geom": [1.0, 100.0, 41]}},
           "metrics": ["optimal_threshold", "simple_excess", "explicit_excess"],
           "derived": {"arrival_rate": "load * (1 + 1 / r)", "mu2": "1 / r"}, "const": {"mu1": 1.0, "threshold": 1.0}},
          {"x": "load", "y": "r", "z": "optimal_threshold", "log": ["y", "z"], "title": "The best threshold",
           "labels": {"x": "Load", "y": "Fast over slow service rate"}},
          lambda data: "when should a slow server start? The usual heuristic costs up to"
                       f" {float(data.simple_excess.max()):.1%}, the explicit rule"
                       f" {float(data.explicit_excess.max()):.2%}"),
    Study("threshold_queue_map",
          {"axes": {**_LOAD, "threshold": [1, 2, 4, 8]}, "metrics": ["mean_number", "best_threshold"],
           "derived": {"arrival_rate": "1.2 * load", "threshold_quiet": "threshold", "threshold_burst": "threshold"},
           "const": _BURSTS},
          {"x": "load", "y": "mean_number", "hue": "threshold", "relative": {"over": "threshold"},
           "title": "Constant thresholds under bursty arrivals", "labels": {"x": "Load", "hue": "Threshold"}},
          lambda data: "with arrivals in bursts the best constant threshold falls from"
                       f" {data.best_threshold[0, 0]:g} at load 0.1 to {data.best_threshold[-1, 0]:g} at load 0.9"),
    Study("allocation",
          {"axes": {"usage_slow": {"linspace": [0.0, 5.0, 26]}, "load": [0.3, 0.6, 0.8]},
           "metrics": ["threshold_quiet", "threshold_burst", "utilization_slow", "cost_gap"],
           "derived": {"arrival_rate": "1.2 * load"}, "const": {**_BURSTS, "levels": 64}},
          {"x": "usage_slow", "y": ["threshold_quiet", "threshold_burst"], "hue": "load",
           "title": "Optimal thresholds over the price of the slow server", "labels": {"hue": "Load"}},
          lambda data: "the optimal policy for each price of the slow server's energy, proved optimal up to"
                       f" {max(float(data.cost_gap.max()), 1e-15):.0e} of its cost"),
    Study("allocation_gap",
          {"axes": _LOAD, "metrics": [f"{rule}_gap" for rule in _RULES],
           "derived": {"arrival_rate": "1.2 * load"}, "const": {**_BURSTS, "levels": 64}},
          {"x": "load", "y": [f"{rule}_gap" for rule in _RULES], "title": "What threshold rules lose",
           "labels": {"x": "Load"}},
          lambda data: "against the optimal policy, under bursts: " + _losses(data, "{}_gap")),
    Study("allocation_gap_renewal",
          {"axes": _LOAD, "metrics": [f"{rule}_gap" for rule in _RULES],
           "derived": {"arrival_rate": "1.2 * load"}, "const": {"mu1": 1.0, "mu2": 0.2, "scv": 10.0, "levels": 64}},
          {"x": "load", "y": [f"{rule}_gap" for rule in _RULES], "title": "What threshold rules lose",
           "labels": {"x": "Load"}},
          lambda data: "the same with independent interarrival times of SCV 10: " + _losses(data, "{}_gap")),
    Study("allocation_gap_law",
          {"axes": {"burst_length": {"geom": [0.1, 100.0, 7]}}, "metrics": [f"{rule}_max" for rule in _RULES],
           "const": {"burst_ratio": 4.0, "burst_share": 0.2, "side": 6, "load_high": 0.9, "ratio_high": 50.0,
                     "levels": 64}, "inner_batch": 1},
          {"x": "burst_length", "y": [f"{rule}_max" for rule in _RULES], "log": ["x", "y"],
           "limits": {"y": [1e-4, 10.0]}, "title": "What threshold rules lose at worst"},
          lambda data: "the worst of 36 pairs of load and speed ratio, over all lengths of bursts: "
                       + _losses(data, "{}_max")),
    Study("allocation_gap_law_renewal",
          {"axes": {"scv": {"geom": [0.25, 64.0, 7]}}, "metrics": [f"{rule}_max" for rule in _RULES],
           "const": {"side": 6, "load_high": 0.9, "ratio_high": 50.0, "levels": 64}, "inner_batch": 1},
          {"x": "scv", "y": [f"{rule}_max" for rule in _RULES], "log": ["x", "y"],
           "limits": {"y": [1e-4, 10.0]}, "title": "What threshold rules lose at worst"},
          lambda data: "the same over the SCV of interarrival times: " + _losses(data, "{}_max")),
    Study("parallel_queues",
          {"axes": {"split": {"linspace": [0.3, 0.95, 66]}, "arrival_rate": [0.5, 1.0, 2.0]},
           "metrics": ["mean_number"], "const": {**_NODES, "threshold_node1": 3.0, "threshold_node2": 3.0}},
          {"x": "split", "y": "mean_number", "hue": "arrival_rate", "optimum": True, "log": ["y"],
           "title": "Two nodes behind a coin", "labels": {"x": "Share sent to node 1"}},
          lambda data: "a router that sees nothing and tosses a coin sends"
                       f" {_least(data, 'mean_number', 'split')[2]:.0%} to the faster of two nodes at arrival rate 2"),
    Study("parallel_queues_split",
          {"axes": {"load": {"linspace": [0.1, 0.9, 33]}},
           "metrics": ["split", "proportional_excess"], "const": _NODES, "derived": {"arrival_rate": "3.7 * load"}},
          {"x": "load", "y": ["split", "proportional_excess"], "title": "The best coin and thresholds"},
          lambda data: "the best coin and thresholds together: a coin in proportion to the capacities would cost"
                       f" {float(data.proportional_excess[0]):.0%} more at load 0.1,"
                       f" {float(data.proportional_excess[-1]):.1%} at 0.9"),
    Study("parallel_queues_word",
          {"axes": {"ones": range(5, 12), "threshold": [1.0, 3.0]}, "metrics": ["mean_number"],
           "derived": {"threshold_node1": "threshold", "threshold_node2": "threshold"},
           "const": {**_NODES, "arrival_rate": 2.0, "length": 12}},
          {"x": "ones", "y": "mean_number", "hue": "threshold", "optimum": True,
           "title": "Two nodes served in turn",
           "labels": {"x": "Customers of 12 sent to node 1", "hue": "Threshold"}},
          lambda data: "a router that sends customers in turn gives the faster node"
                       f" {_least(data, 'mean_number', 'ones')[1]:g} of 12 and has"
                       f" {float(data.mean_number.min()):.2f} customers in the system"),
    Study("parallel_queues_best",
          {"axes": {"load": {"linspace": [0.2, 0.8, 4]}},
           "metrics": ["mean_number", "bernoulli_mean_number", "bernoulli_over_word", "density"],
           "derived": {"arrival_rate": "3.7 * load"}, "const": {**_NODES, "max_length": 8}, "inner_batch": 1},
          {"x": "load", "y": ["mean_number", "bernoulli_mean_number"], "own_scale": False,
           "title": "The best word and the best coin", "labels": {"x": "Load"}},
          lambda data: f"at load 0.8 the best coin has {float(data.bernoulli_over_word[-1]):.0%} more customers in the"
                       " system than the best turns"),
)


def _losses(data: Any, name: str) -> str:
    return ", ".join(f"{words} costs up to {float(np.nanmax(data[name.format(rule)])):.1%}"
                     for rule, words in zip(_RULES, _RULE_NAMES, strict=True))
