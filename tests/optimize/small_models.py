"""A small queue for the tests of optimisation: the M/M/1/M queue, with a whole number that only costs something."""

import jax.numpy as jnp

from hetjax import Axis, Metric, Model, Status

AXES = (
    Axis("arrival_rate", 1e-6, 1e6, "1/time"),
    Axis("service_rate", 1e-6, 1e6, "1/time"),
    Axis("M", 0, 1e6, "customers", "places to wait", infinite=True, default=jnp.inf),
    Axis("team", 1, 64, "servers", "people who share the work", integer=True, shape=True, default=1),
)
METRICS = (
    Metric("mean_number", "customers"), Metric("mean_response_time", "time"), Metric("p_loss", "1"),
    Metric("rough", "1", "no derivative", differentiable=False),
)


def point(values, metrics, bounds):
    """Everything at the rate team * service_rate; M finite: the truncated geometric law, summed."""
    arrival, rate, M = (values[name] for name in ("arrival_rate", "service_rate", "M"))
    rho = arrival / (rate * jnp.asarray(values["team"], rate.dtype))
    endless = jnp.isinf(M)
    safe = jnp.where(endless & (rho >= 1), 0.5, rho)
    places = jnp.where(endless, 1.0, M + 1).astype(rate.dtype)
    power = safe ** (places + 1)
    finite = safe / (1 - safe) - (places + 1) * power / (1 - power)
    number = jnp.where(endless, safe / (1 - safe), finite)
    loss = jnp.where(endless, 0, (1 - safe) * safe ** places / (1 - power))
    found = {"mean_number": number, "mean_response_time": number / (arrival * (1 - loss)), "p_loss": loss,
             "rough": jnp.floor(rate)}
    unstable = endless & (rho >= 1)
    status = jnp.where(unstable, int(Status.UNSTABLE), int(Status.OK)).astype(jnp.uint8)
    return {name: jnp.where(unstable, jnp.nan, found[name]) for name in metrics}, status


QUEUE = Model("small_queue", 1, "one queue", AXES, METRICS, point)
