"""Small models for the tests of the sweep engine: every status, two shape axes, known derivatives."""

import jax.numpy as jnp

from hetjax import Axis, Metric, Model, Status

AXES = (
    Axis("x", 1e-3, 10.0, meaning="a positive number", open_high=True),
    Axis("y", -5.0, 5.0, meaning="any number"),
    Axis("K", 0, 1e6, meaning="a count", integer=True, infinite=True),
    Axis("m", 1, 40, meaning="number of terms", integer=True, shape=True),
    Axis("n", 0, 40, meaning="number of further terms", integer=True, shape=True, default=0),
    Axis("scale", 0, 100, unit="s", meaning="a factor", default=1.0),
)
METRICS = (
    Metric("total", "s", "scale (sum_{i=1}^m x^i / i + n y^2) + 1 / (K + 1)"),
    Metric("root", "1", "sqrt(x y)", undefined_where="y < 0"),
    Metric("bump", "1", "x exp(-y^2)"),
)


def point(values, metrics, bounds):
    """total is infinite at x = 9 (nonfinite), its slope in y at y = 2.5 too (grad_nonfinite); x + y > 12: unstable."""
    x, y, K, scale = (values[name] for name in ("x", "y", "K", "scale"))
    m, n = values["m"], values["n"]
    dtype = x.dtype

    def real(value):
        return jnp.asarray(value, dtype)

    results = {}
    if "total" in metrics:
        total, power = real(0.0), real(1.0)
        for i in range(1, bounds.get("m", m) + 1):
            power = power * x
            term = power / i
            total = total + (jnp.where(i <= m, term, real(0.0)) if "m" in bounds else term)
        steep = jnp.sqrt(jnp.abs(y - 2.5)) * real(1e-8)
        results["total"] = scale * (total + real(n) * y * y) + 1 / (K + 1) + 1 / jnp.abs(x - 9.0) * real(1e-9) + steep
    if "root" in metrics:
        results["root"] = jnp.where(y < 0, jnp.asarray(jnp.nan, dtype), jnp.sqrt(x * jnp.where(y < 0, real(1.0), y)))
    if "bump" in metrics:
        results["bump"] = x * jnp.exp(-y * y)
    status = jnp.where(x + y > 12, jnp.uint8(Status.UNSTABLE), jnp.uint8(Status.OK))
    return results, status


TOY = Model("toy", 3, "a toy", AXES, METRICS, point)
NOT_A_MODEL = 3
