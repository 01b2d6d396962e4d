"""For sweeps: the tail of the queue length by level, correct and as published, for service and arrivals of any SCV."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hetjax.models.registry import Axis, Metric, Model
from hetjax.models.supermarket.fixed_point import fixed_point
from hetjax.models.supermarket.model import AXES as SERVICE_AXES
from hetjax.models.supermarket.model import service_params
from hetjax.models.supermarket.params import legal_or_harmless
from hetjax.models.supermarket.published import PublishedFixedPoint, published_fixed_point
from hetjax.result import Status

Array = jax.Array
LEVELS = 64
AXES = (
    *SERVICE_AXES,
    Axis("level", 1, LEVELS, "customers", "length of a queue", integer=True),
    Axis("published", 0, 1, "1", "0: the mean field; 1: the paper's formula (41)", integer=True, default=0),
    Axis("modulation", 0.0, 1.0, "1", "of the arrivals: an MMPP of rates (1 -+ modulation) arrival_rate; 0: Poisson,"
         " written with one phase (the formula depends on that)", default=0.0, open_high=True),
    Axis("switching", 0.0, 1e6, "1/time", "rate of leaving either state of the MMPP", default=1.0, open_low=True),
)
METRICS = (
    Metric("tail", "1", "share of queues with at least `level` customers"),
    Metric("minus_log_tail", "1", "-log of it: doubly exponential tails are straight lines on a logarithmic axis"),
    Metric("residual", "1", "largest error of the answer in its own equations, over the arrival rate: the mean field's"
           " in the mean field, the formula's in the paper's (10) to (13)", differentiable=False),
)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One level of one system; the arrival process moves fast against a queue (the limit the paper means)."""
    params, fits = service_params(values, bounds)
    sound, code = legal_or_harmless(params)
    code = jnp.where(fits, code, int(Status.OUT_OF_DOMAIN))
    at = jnp.asarray(values["level"]).astype(jnp.int32) - 1
    found = fixed_point(sound, levels=LEVELS)
    depth, residual = -found.value.log_tails[at], found.residual
    one = jnp.ones_like(sound.arrival_rate)
    swing = jnp.asarray(values["modulation"]) * one
    speed = jnp.asarray(values["switching"]) * one
    D1 = sound.arrival_rate * jnp.diag(jnp.stack([one - swing, one + swing]))
    D0 = speed * jnp.array([[-1, 1], [1, -1]], one.dtype) - D1
    single = sound.arrival_rate[None, None]
    service = (sound.alpha, sound.T, jnp.where(sound.d > 1, sound.d, 2), LEVELS)
    formulas = published_fixed_point(D0, D1, *service), published_fixed_point(-single, single, *service)
    depths, errors = zip(*((_depth(f.value, at), f.residual) for f in formulas), strict=True)
    printed, error = (jnp.where(swing > 0, two, one) for two, one in (depths, errors))
    asked = jnp.asarray(values["published"]) > 0
    code = jnp.where((code == int(Status.OK)) & asked & (sound.d == 1), int(Status.OUT_OF_DOMAIN), code)
    depth = jnp.where(asked, printed, depth)
    # mean field: a queue of 64 may still have successors, the levels up to it are right all the same
    results = {"tail": jnp.exp(-depth), "minus_log_tail": depth,
               "residual": jnp.where(asked, error, residual)}
    code = code.astype(jnp.uint8)
    return {name: jnp.where(code == int(Status.OK), results[name], jnp.nan) for name in metrics}, code


def _depth(found: PublishedFixedPoint, at: Array) -> Array:
    factors = found.log_arrival_factor[at], found.log_service_factor[at]
    return -jax.scipy.special.logsumexp(factors[0]) - jax.scipy.special.logsumexp(factors[1])


MODEL = Model(name="supermarket_tails", version=2, title="Supermarket model: tails, correct and as published",
              axes=AXES, metrics=METRICS, point=point,
              golden=(({"arrival_rate": 0.9, "d": 2.0, "scv": 1.0, "service_rate": 1.0, "phases": 2, "level": 3,
                        "published": 0, "modulation": 0.0, "switching": 1.0}, {"tail": 0.9**7}),))
