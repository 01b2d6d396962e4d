"""The study of buffers for percentiles, in small, against the absorbing chain of a tagged customer."""

import numpy as np
import pytest
from scipy.linalg import expm
from test_sweeps_studies import lines_of, mesh_of, panels, small, stationary

from hetjax.plot import draw


def tail(q, r, K, M, m, n, t):
    """P(response time > t) of an accepted customer: first what he finds, then the chain that he runs through."""
    fast, slow, stage, line = 0, 1, 2, 2 + K
    start, T = np.zeros(2 + K + M), np.zeros((2 + K + M, 2 + K + M))
    for (level, j, waiting), p in stationary(q, r, K, M, m, n).items():
        if level < m:
            start[fast] += p
        elif level < m + K:
            start[stage + level - m] += p
        elif j < n:
            start[slow] += p
        elif waiting < M:
            start[line + waiting] += p
    T[fast, fast], T[slow, slow] = -1, -1 / r
    ahead = stage + K - 1 if K else fast
    for k in range(K):
        T[stage + k, stage + k - 1 if k else fast], T[stage + k, stage + k] = m, -m
    for k in range(M):
        T[line + k, line + k] = -m - n / r
        if k:
            T[line + k, line + k - 1] = m + n / r
        else:
            T[line, ahead], T[line, slow] = m, n / r
    return (start / start.sum() @ expm(T * t)).sum()


@pytest.mark.slow
def test_best_buffers_for_the_mean_and_for_percentiles():
    q, K = [0.6, 0.9], [0, 4, 8, 12, 16, 20]
    dataset, figures = small("response_time_buffer", q=q, K=K)
    for load, k in ((0.6, 0), (0.6, 12), (0.9, 4), (0.9, 16)):
        at = dataset.sel(q=load, K=k)
        for name, rest in (("response_time_p95", 0.05), ("response_time_p99", 0.01)):
            # absolute error 1e-15 of the matrix exponential, times its squarings
            np.testing.assert_allclose(tail(load, 20.0, k, 200, 5, 2, float(at[name])), rest, rtol=1e-10)
    for panel, name in zip(panels(draw(dataset, figures[0])), figures[0]["z"], strict=True):
        values = dataset[name].transpose("K", "q").values
        excess = 100 * (values / values.min(axis=0) - 1)
        shown = mesh_of(panel)
        above = excess > 0.01  # below, the colour scale ends
        np.testing.assert_allclose(shown[above], excess[above], rtol=1e-9)  # a ratio near 1, minus 1
        best = np.asarray(lines_of(panel, "optimum")[0].get_ydata(), float)
        inner = values.argmin(axis=0) < len(K) - 1  # at the end of the axis no best K is claimed
        assert inner.any()
        np.testing.assert_array_equal(best[inner], np.asarray(K)[values.argmin(axis=0)][inner])
