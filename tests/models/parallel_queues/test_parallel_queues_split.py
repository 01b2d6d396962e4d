"""The best split with the best thresholds, by enumeration of thresholds and a grid of splits."""

import itertools

import jax
import numpy as np
import pytest

import hetjax

RATES = {"mu1_node1": 1.0, "mu2_node1": 0.1, "mu1_node2": 0.4, "mu2_node2": 0.04}


@pytest.mark.slow  # compiles the search twice, half a minute each
def test_best_split_and_thresholds_by_enumeration():
    rates = np.array([0.1, 0.5, 0.9, 1.3])
    names = ["split", "threshold_node1", "threshold_node2", "mean_number", "marginal_cost", "proportional_excess",
             "fastest_first_excess"]
    found = hetjax.evaluate("parallel_queues_split", arrival_rate=rates, **RATES, metrics=names)
    assert found.status.tolist() == [1, 1, 1, 1]
    p = np.linspace(0.0025, 0.9975, 400)
    T = np.arange(1.0, 13.0)
    table = hetjax.evaluate("parallel_queues", arrival_rate=rates[:, None, None, None], split=p[:, None, None],
                            threshold_node1=T[:, None], threshold_node2=T, **RATES, metrics=["mean_number"])
    numbers = np.where(np.asarray(table.status) == 1, np.asarray(table.mean_number), np.inf)
    for i in range(4):
        at = np.unravel_index(np.argmin(numbers[i]), numbers[i].shape)
        if found.split[i] == 1:  # nobody is sent to node 2: beyond the grid of splits
            assert found.mean_number[i] <= numbers[i].min() and p[at[0]] == p[-1]
            assert np.isnan(found.threshold_node2[i])
            continue
        assert 0 <= numbers[i].min() / found.mean_number[i] - 1 < 1e-4  # the grid's coarseness, squared
        assert abs(found.split[i] - p[at[0]]) < 0.0051
        assert (found.threshold_node1[i], found.threshold_node2[i]) == (T[at[1]], T[at[2]])
    assert (np.asarray(found.proportional_excess) > 0).all() and (np.asarray(found.fastest_first_excess) > 0).all()

    def mean(rate):
        return hetjax.evaluate("parallel_queues_split", arrival_rate=rate, **RATES, metrics=["mean_number"]).mean_number

    slope = [float(jax.grad(mean)(rate)) for rate in rates.tolist()[1:3]]
    np.testing.assert_allclose(slope, found.marginal_cost[1:3], rtol=1e-6)  # the envelope theorem; both halve to 1e-6


def test_domain_of_the_axes_is_that_of_the_other_models():
    best, split = (hetjax.get_model(f"parallel_queues_{name}") for name in ("best", "split"))
    assert split.axes == best.axes[:-1] and not list(itertools.filterfalse(lambda m: m.meaning, split.metrics))
