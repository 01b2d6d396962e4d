"""The registry's second route and golden points of the stalling queue."""

import math

import numpy as np
import pytest

import hetjax
from hetjax.models.stalling import MODEL, Metrics
from hetjax.result import Status

WHOLE = [pair for pair in MODEL.golden if pair[0]["K"] + pair[0]["M"] < 100 and pair[0]["K"] % 1 == 0]


@pytest.mark.parametrize("dtype,tolerance", [(np.float64, 1e-12), (np.float32, 2e-3)])
def test_golden_points(dtype, tolerance):
    """In float32 the inputs' own rounding is part of the difference: up to |d ln value/d ln input| eps."""
    assert len(MODEL.golden) >= 8
    names = tuple(dict.fromkeys(name for _, results in MODEL.golden for name in results))
    columns = {a: np.asarray([values[a] for values, _ in MODEL.golden]) for a in ("q", "r", "K", "M", "m", "n")}
    columns |= {a: columns[a].astype(dtype) for a in "qrKM"}
    out = hetjax.evaluate("stalling", **columns, metrics=names)
    assert set(np.asarray(out.status)) == {int(Status.OK)}
    for i, (_, results) in enumerate(MODEL.golden):
        for name, exact in results.items():
            if exact > (1e-290 if dtype == np.float64 else 1e-30) or exact == 0:
                assert abs(float(out[name][i]) - exact) <= tolerance * exact, (name, i)


def test_golden_points_are_those_of_the_reference_table(reference):
    rows = reference("stalling")["rows"]
    for values, results in MODEL.golden:
        row = next(row for row in rows if all(row[a] == values[a] for a in values))
        assert all(float(row[name]) == exact for name, exact in results.items())


@pytest.mark.parametrize("point", [pytest.param(i, marks=[pytest.mark.slow] * (i > 1)) for i in range(len(WHOLE))])
def test_second_route_agrees_with_the_golden_points(point):
    """Each point is a chain of another size, and so compiles."""
    assert len(WHOLE) >= 4
    values, results = WHOLE[point]
    found = MODEL.second_route(values, tuple(results))
    assert set(found) == set(results)
    for name, exact in results.items():
        assert abs(found[name] - exact) <= 2e-13 * exact, name


def test_second_route_uses_the_time_unit_and_leaves_out_percentiles():
    values = {"q": .75, "r": 4.0, "K": 2, "M": 3, "m": 2, "n": 2, "mu1": 5.0}
    names = (*Metrics._fields, "response_time_p95")
    found, closed = MODEL.second_route(values, names), hetjax.evaluate("stalling", **values, metrics=Metrics._fields)
    assert set(found) == set(Metrics._fields)
    for name in found:
        assert math.isclose(found[name], float(closed[name]), rel_tol=1e-13), name


def test_second_route_is_empty_where_the_chain_does_not_reach():
    values = {"q": .75, "r": 4.0, "K": 2, "M": 3, "m": 2, "n": 2}
    for change in ({"K": 2.5}, {"M": 3.5}, {"M": math.inf, "K": math.inf}, {"M": math.inf, "q": 1 - 1e-9, "n": 0},
                   {"K": 1e7}, {"n": 512, "m": 100}):
        assert MODEL.second_route({**values, **change}, ("mean_number",)) == {}
    assert MODEL.second_route(values, ("response_time_p95",)) == {}
    with pytest.raises(ValueError, match="q = -1"):
        MODEL.second_route({**values, "q": -1.0}, ("mean_number",))


def test_second_route_reaches_an_endless_waiting_line():
    """Where it is cut does not show."""
    names = ("mean_number", "p_wait", "mean_stuck")
    for q, K in ((0.8, 100), (1.05, 7)):
        values = {"q": q, "r": 4.0, "K": K, "M": math.inf, "m": 2, "n": 2}
        found = MODEL.second_route(values, (*names, "p_loss"))
        closed = hetjax.evaluate("stalling", **values, metrics=names)
        assert set(found) == set(names)
        for name in names:
            assert math.isclose(found[name], float(closed[name]), rel_tol=1e-12), (name, values)
