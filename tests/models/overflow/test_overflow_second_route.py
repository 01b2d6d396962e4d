"""The registry's second route and golden points of the overflow system."""

import numpy as np
import pytest
from models.overflow.overflow_oracle import exact_metrics

import hetjax
from hetjax.models.overflow import MODEL
from hetjax.result import Status

NAMES = tuple(metric.name for metric in MODEL.metrics)
POINTS = [(1.0, 1.0, 1.0, 1.0), (1.5, 6.5, 8.8, .01), (1e-6, 1e6, 3.0, 2.0), (100.0, 3.0, 1e-3, 50.0),
          (.1, .2, 9.0, 7.0)]
COSTS = (2.0, .5, .25, 3.0)


@pytest.mark.parametrize("point", POINTS)
def test_second_route_gives_every_metric(point):
    values = dict(zip((axis.name for axis in MODEL.axes), (*point, *COSTS), strict=True))
    found = MODEL.second_route(values, NAMES)
    closed = hetjax.evaluate("overflow", **values)
    exact = exact_metrics(*point, *COSTS)
    assert set(found) == set(NAMES)
    for name, value in found.items():
        if name in exact:
            reference, scale = exact[name]
            scale = float(abs(reference) if scale is None else scale)
            assert abs(value - float(reference)) <= 2e-14 * scale, name
            assert abs(value - float(closed[name])) <= 2e-14 * scale, name
        else:  # the two flags
            assert value == float(closed[name])


def test_second_route_takes_default_costs_and_refuses_bad_rates():
    values = dict(zip(("lambda1", "lambda2", "mu1", "mu2"), POINTS[1], strict=True))
    assert MODEL.second_route(values, ("cost_rate",)) == MODEL.second_route(
        {**values, "loss_cost_1": 1.0, "loss_cost_2": 1.0, "overflow_cost_1": 0.0, "overflow_cost_2": 0.0},
        ("cost_rate",))
    with pytest.raises(ValueError, match="lambda1 = -1"):
        MODEL.second_route({**values, "lambda1": -1.0}, ("p_loss",))


@pytest.mark.parametrize("dtype,tolerance", [(np.float64, 1e-14), (np.float32, 2e-6)])
def test_golden_points(dtype, tolerance):
    """In float32 the inputs' own rounding is part of the difference."""
    assert len(MODEL.golden) >= 8
    for values, results in MODEL.golden:
        out = hetjax.evaluate("overflow", **{k: np.asarray(v, dtype) for k, v in values.items()})
        assert out.status == Status.OK
        for name, exact in results.items():
            assert abs(float(out[name]) - exact) <= tolerance * exact, name
