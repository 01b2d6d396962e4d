"""Every metric at every point of the reference table, by ``hetjax.evaluate``: float64, float32 and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_distribution import alternating_sums
from stalling_oracle import Oracle

import hetjax
from hetjax.models.stalling import Metrics
from hetjax.models.stalling.metrics import FROM_STATE_LAW
from hetjax.result import Status

# Asked for: max(1e-12, 16 eps (1 + condition)) in float64; in float32 max(2e-5, 16 eps (1 + condition)) for means and
# times, 1e-4 for probabilities. What holds is closer, for all of them and without the condition.
TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}
SMALLEST = {np.float64: 1e-290, np.float32: 1e-30}
AXES = ("q", "r", "K", "M")
SIZE = 300  # of m and n in the table: one compilation serves all rows


@pytest.fixture(scope="module")
def rows(reference):
    return reference("stalling")["rows"]


@functools.lru_cache
def evaluated(dtype, rows):
    """One dict of results a row, in the order of ``rows`` = tuple of (q, r, K, M, m, n)."""
    columns = {a: np.asarray([row[k] for row in rows], dtype if k < 4 else np.int64)
               for k, a in enumerate((*AXES, "m", "n"))}
    out = hetjax.evaluate("stalling", **columns, metrics=Metrics._fields, max_m=SIZE, max_n=SIZE)
    assert set(np.asarray(out.status)) == {int(Status.OK)} and out.mean_number.dtype == dtype
    return [{name: float(out[name][i]) for name in Metrics._fields} for i in range(len(rows))]


def check(name, got, exact, dtype):
    if exact > SMALLEST[dtype]:
        assert abs(got - float(exact)) <= TOLERANCE[dtype] * float(exact), (name, got, float(exact))
    else:
        assert 0 <= got <= 1.01 * SMALLEST[dtype], (name, got)


def points(rows):
    return tuple(tuple(row[a] for a in (*AXES, "m", "n")) for row in rows)


def test_every_column(rows):
    found = evaluated(np.float64, points(rows))
    columns = [name for name in Metrics._fields if any(name in row for row in rows)]
    assert {"p_empty", "p_stuck", "p_slow", "mean_stuck", "p_slow_only", "p_loss"} <= set(columns)
    for name in columns:
        assert sum(name in row for row in rows) >= 50, name
        for row, got in zip(rows, found, strict=True):
            if name in row:
                check(name, got[name], float(row[name]), np.float64)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_metric_against_many_digits(rows, dtype):
    """At the inputs as rounded to the precision, with the response times and rates that the table does not hold."""
    for point, got in zip(points(rows), evaluated(dtype, points(rows)), strict=True):
        q, r, K, M = (float(dtype(x)) for x in point[:4])
        m, n = point[4:]
        oracle = Oracle(q, r, K, M, m, n)
        exact = {name: oracle.value(name) for name in Metrics._fields
                 if name not in FROM_STATE_LAW and (n > 0 or name != "mean_response_time_slow")}
        if K == int(K):
            sums = alternating_sums(q, r, int(K), M, m, n, 200 + 6 * n)
            exact |= {name: sums[name] for name in FROM_STATE_LAW}
        for name in Metrics._fields:
            if name in exact:
                check(name, got[name], exact[name], dtype)
            else:  # undefined there
                assert np.isnan(got[name]), name


def test_gradient_columns(rows):
    columns = [jnp.asarray([row[a] for row in rows], float) for a in AXES]
    counts = {a: np.asarray([row[a] for row in rows]) for a in "mn"}

    def total(*x):
        return hetjax.evaluate("stalling", **dict(zip(AXES, x, strict=True)), **counts, metrics=["mean_number"],
                               max_m=SIZE, max_n=SIZE).mean_number.sum()

    gradients = jax.jit(jax.grad(total, (0, 1, 2, 3)))(*columns)
    for axis, gradient in zip(AXES, gradients, strict=True):
        for row, got in zip(rows, np.asarray(gradient), strict=True):
            exact, scale = float(row[f"d_mean_number__d_{axis}"]), max(row[axis], 1) if axis in "KM" else row[axis]
            assert abs(got - exact) <= 1e-9 * max(abs(exact), 1e-3 * float(row["mean_number"]) / scale), (axis, row)
