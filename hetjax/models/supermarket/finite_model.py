"""For sweeps: N queues by their limit, by the refined mean field, and by simulation."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap

from hetjax.models.registry import Axis, Metric, Model
from hetjax.models.supermarket.fixed_point import fixed_point
from hetjax.models.supermarket.model import AXES as SERVICE_AXES
from hetjax.models.supermarket.model import service_params
from hetjax.models.supermarket.params import Params, legal_or_harmless
from hetjax.models.supermarket.policies import SHORTEST_OF_D
from hetjax.models.supermarket.refined import refined
from hetjax.models.supermarket.simulate import run
from hetjax.result import Status, has_value

Array = jax.Array
LEVELS = 20  # of the refinement: enough for d >= 2 unless the load or the SCV is extreme; the status says so then
LIMIT_LEVELS, SIMULATED_LEVELS = 64, 40
LIMIT, REFINED, SIMULATION = range(3)
EVENTS, WARMUP, LANES = 80_000, 40_000, 32  # 4 million events a point; 1000 queues relax within 24,000
AXES = (
    *SERVICE_AXES,
    Axis("N", 1, 1e9, "queues", "how many queues there are", integer=True),
    Axis("method", 0, 2, "1", "0: infinitely many queues; 1: with V/N; 2: simulation, whole d only", integer=True,
         default=REFINED),
    Axis("seed", 0, 2**31 - 1, "1", "of the simulation", integer=True, default=0),
)
METRICS = (
    Metric("mean_queue_length", "customers", "mean number at a server, the one in service included",
           differentiable=False),
    Metric("mean_response_time", "time", "mean time from arrival to departure", differentiable=False),
    Metric("relative_excess", "1", "mean_queue_length over that of infinitely many queues, less 1",
           differentiable=False),
    Metric("half_width", "1", "of the 95 % interval of relative_excess; 0 without simulation", differentiable=False),
)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """One system, d >= 2, by one method.

    Points are computed one after the other, so that a simulation is paid for only where it is asked for: a sweep
    should set ``inner_batch = 1``, for batches are filled up.
    """
    params, fits = service_params(values, bounds)
    sound, code = legal_or_harmless(params)
    many, method, seed = (jnp.asarray(values[name]) for name in ("N", "method", "seed"))
    known = (many >= 1) & (many == jnp.floor(many)) & ((method == LIMIT) | (method == REFINED) | (method == SIMULATION))
    whole = (method != SIMULATION) | (sound.d == jnp.floor(sound.d))
    code = jnp.where(fits & known & whole & (sound.d >= 2), code, int(Status.OUT_OF_DOMAIN))
    legal = code == int(Status.OK)
    branch = jnp.where(legal, method, LIMIT).astype(jnp.int32)
    many = jnp.where(legal, many, 1).astype(sound.T.dtype)
    limit = fixed_point(sound, levels=LIMIT_LEVELS)
    deep = jnp.where(branch == REFINED, limit.value.tails[LEVELS], 0)
    mean, width, status = sequential_vmap(_by_method)(branch, sound, many, seed, limit.value.mean_queue_length)
    code = jnp.where(legal & (limit.status != int(Status.OK)), limit.status, code)
    # V_k is of the order of sqrt(u_k): what is beyond the last level must not reach the digits given
    short = deep > float(jnp.finfo(many.dtype).eps) * limit.value.mean_queue_length
    status = jnp.where((status == int(Status.OK)) & short, int(Status.NOT_CONVERGED), status)
    code = jnp.where(code == int(Status.OK), status, code).astype(jnp.uint8)
    alone = limit.value.mean_queue_length
    results = {"mean_queue_length": mean, "mean_response_time": mean / sound.arrival_rate,
               "relative_excess": (mean - alone) / alone, "half_width": width / alone}
    kept = has_value(code)
    return {name: jnp.where(kept, results[name], jnp.nan) for name in metrics}, code


def _by_method(branch: Array, params: Params, many: Array, seed: Array, limit: Array) -> tuple[Array, Array, Array]:
    """Mean queue length, half width, status."""
    return lax.switch(branch, (_limit, _refined, _simulated), params, many, seed, limit)


def _limit(params: Params, many: Array, seed: Array, limit: Array) -> tuple[Array, Array, Array]:
    return limit, jnp.zeros_like(many), jnp.uint8(Status.OK)


def _refined(params: Params, many: Array, seed: Array, limit: Array) -> tuple[Array, Array, Array]:
    found = refined(params, many, levels=LEVELS)
    return found.value.mean_queue_length, jnp.zeros_like(many), found.status


def _simulated(params: Params, many: Array, seed: Array, limit: Array) -> tuple[Array, Array, Array]:
    key = functools.reduce(jax.random.fold_in, (x.astype(jnp.uint32) for x in (seed, many)), jax.random.key(0))
    moves = jnp.stack([many * params.arrival_rate, jnp.zeros_like(many)])[None]
    # one batch a lane: parts of a lane would be correlated where N is large
    found = run(params, moves, many, key, (EVENTS, WARMUP, LANES, 1, SIMULATED_LEVELS, 0.95), SHORTEST_OF_D, True)
    return *found.mean_queue_length, found.status


MODEL = Model(name="supermarket_finite", version=2, title="Supermarket model: N queues", axes=AXES, metrics=METRICS,
              point=point,
              golden=(({"arrival_rate": 0.9, "d": 2.0, "scv": 1.0, "service_rate": 1.0, "phases": 2, "N": 10,
                        "method": REFINED, "seed": 0}, {"mean_queue_length": 2.7512943383090454}),), inner_batch=1)
