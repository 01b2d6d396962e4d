"""Elasticities against those of closed forms, and where there are none."""

import jax.numpy as jnp
import numpy as np
import pytest

from hetjax import Axis, Metric, Model, elasticities
from hetjax.result import Status

AXES = (Axis("x", 0.0, 10.0, "time"), Axis("y", -5.0, 5.0, default=2.0), Axis("n", 1, 9, integer=True, shape=True))


def _point(values, metrics, bounds):
    x, y = values["x"], values["y"]
    found = {"power": x**3 * y, "sum": x + y, "steps": jnp.floor(x)}
    code = jnp.where(x > 8, int(Status.UNSTABLE), int(Status.OK)).astype(jnp.uint8)
    return {name: jnp.where(x > 8, jnp.nan, found[name]) for name in metrics}, code


TOY = Model("toy", 1, "powers", AXES, (Metric("power"), Metric("sum"), Metric("steps", differentiable=False)), _point)


def test_powers_have_their_exponents():
    found = elasticities(TOY, x=[1.5, 4.0, 0.0, 9.0], n=2)
    assert found.metrics == ("power", "sum") and found.axes == ("x", "y") and found.values.shape == (4, 2, 2)
    np.testing.assert_allclose(found.values[:2, 0], [[3, 1], [3, 1]], rtol=1e-15)
    np.testing.assert_allclose(found.values[:2, 1, 0], [1.5 / 3.5, 4 / 6], rtol=1e-15)
    assert np.isnan(found.values[2, 0]).all() and np.isnan(found.values[2, :, 0]).all()  # x = 0 and power = 0
    assert found.values[2, 1, 1] == 1 and np.isnan(found.values[3]).all()
    assert found.status.tolist() == [Status.OK] * 3 + [Status.UNSTABLE]
    with pytest.raises(ValueError, match="a table in text is of one point"):
        found.text()
    zero = elasticities(TOY, ["sum"], x=1.0, y=-1.0, n=2)
    assert np.isnan(zero.values).all() and zero.text().splitlines()[1].split() == ["sum", "0", "·", "·"]
    narrow = elasticities(TOY, x=np.float32(1.5), n=2)
    assert narrow.values.dtype == np.float32 and abs(narrow.values[0, 0] - 3) < 1e-6
    assert elasticities(TOY, x=9.0, n=2).text() == "toy: infeasible: the system has no steady state here"


def test_a_queueing_model_scales_as_it_must():
    """Rates times c leave numbers as they are and divide times by c: elasticities in all rates sum to 0 and -1; and the
    loss by hand: S^2/(S^2 + 2S + 2)."""
    found = elasticities("overflow", ["p_loss"], ["lambda1", "lambda2", "mu1", "mu2"],
                         lambda1=1.0, lambda2=0.5, mu1=1.0, mu2=2.0)
    np.testing.assert_allclose(found.values.sum(axis=-1), 0, atol=1e-14)
    S = 1.25
    total = 2 - S * (2 * S + 2) / (S * S + 2 * S + 2)
    np.testing.assert_allclose(found.values[0], total * np.array([0.8, 0.2, -0.8, -0.2]), rtol=1e-13)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"metrics": ["steps"]}, "metric 'steps' has no derivatives"),
    ({"metrics": "sum"}, "metrics = 'sum' is no list of names"),
    ({"axes": ["n"]}, "axis 'n' holds whole numbers only"),
    ({"axes": ["z"]}, "'z' is no axis of model 'toy'"),
    ({"metrics": ["nothing"]}, "'nothing' is no metric of model 'toy'"),
    ({"x": None}, "axis 'x' of model 'toy' is missing"),
])
def test_refusals(arguments, message):
    given = {"x": 1.0, "n": 2} | arguments
    if given["x"] is None:
        del given["x"]
    with pytest.raises(ValueError, match=message):
        elasticities(TOY, **given)
