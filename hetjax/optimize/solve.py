"""One optimisation as a pure function: any mix of real and whole variables, with constraints; maps over points.

Whole points are compared by the value that the best real variables give them. What kind of optimum it is, is decided
here as well: see :func:`solve`.
"""

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hetjax.optimize.constrained import Local, Scale, local_minimum, scale_of, violated
from hetjax.optimize.lattice import (
    Whole,
    best_of,
    enumerate_box,
    noise,
    reach,
    refine,
    search_box,
)
from hetjax.optimize.loops import METHODS, Method
from hetjax.optimize.newton import Point, held, move, projection, spectrum
from hetjax.optimize.space import Space
from hetjax.result import OptimumStatus, Status

Array = jax.Array
Function = Callable[[dict[str, Array]], tuple[Array, Array]]  # variables by name -> value, constraints (C,) <= 0
NEAR = 1e-3  # of a width: ends of several starts this near are one minimum
BETWEEN = 7  # points looked at between two of them


class Certificate(enum.IntEnum):
    """How an optimum was established."""

    NONE = 0  # there is none
    LOCAL = 1  # no slope left within tolerance; the best of the starts (real variables only)
    NEIGHBOURHOOD = 2  # no better whole point within +-w; nothing hides beyond (assumed: values fall towards it)
    ENUMERATED = 3  # all whole points were compared


@dataclass(frozen=True)
class Options:
    """How to search. ``method``: see :func:`hetjax.optimize.constrained.local_minimum`. ``starts``: of the real
    variables, and of a search among whole points. ``steps``: at most, of each loop. ``enumerate_up_to``: whole points
    that are all compared. ``batch``: how many of them at a time.
    """

    method: Method = "auto"
    starts: int = 8
    steps: int = 200
    enumerate_up_to: int = 4096
    batch: int = 64

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method = {self.method!r} is unknown; choose from {', '.join(METHODS)}")
        for name in ("starts", "steps", "enumerate_up_to", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < (name != "enumerate_up_to"):
                raise ValueError(f"{name} = {value!r} is no whole number >= {int(name != 'enumerate_up_to')}")


class Found(NamedTuple):
    """What :func:`solve` found; n real and d whole entries, C constraints."""

    x: Array  # (n,)
    k: Array  # (d,) int32
    value: Array
    constraints: Array  # (C,)
    multipliers: Array  # (C,) 0 without real variables
    gradient: Array  # (n,) of the Lagrangian
    hessian: Array  # (n, n)
    gradient_norm: Array  # the largest free slope over a variable's width, relative to the value
    gap_below: Array  # (d,) value one below minus the value; infinite on a bound
    gap_above: Array  # (d,) value one above minus the value
    minima: Array  # int32, local minima seen
    tied: Array  # whether another design is as good within rounding
    steps: Array  # int32: evaluations of all starts, or of whole points
    certificate: Array  # uint8 code of Certificate
    optimum_status: Array  # uint8 code of OptimumStatus
    status: Array  # uint8 code of Status


class Judged(NamedTuple):
    """The best of several local minima and what the others say of it."""

    best: Local
    minima: Array
    tied: Array
    flat: Array
    edge: Array


def solve(function: Function, space: Space, options: Options, x: Array, k: Array) -> Found:
    """Minimises ``function`` over ``space``, with (x, k) among the starts. Pure and deterministic; vmap for many.

    ``function``: NaN or infinite where a design is impossible. Status OK, NOT_CONVERGED (also: no design keeps the
    constraints) or NONFINITE (no design has a finite value). ``optimum_status``, the first that holds: FAILED;
    MULTIMODAL (several local minima were seen, or several tied designs apart from each other); FLAT (a neighbour within
    rounding); EDGE; INTERIOR. Cost: starts times steps evaluations with second derivatives, for each whole point that
    is looked at; without real variables one evaluation for each.
    """
    def at(x: Array, k: Array) -> tuple[Array, Array]:
        value, constraints = function(space.values(x, k))
        return jnp.where(jnp.isnan(value), jnp.inf, value), constraints

    starts = space.starts(x, options.starts)
    n, d = x.shape[0], k.shape[0]
    wholes = space.whole_starts(k, options.starts) if d else jnp.zeros((options.starts, 0), k.dtype)
    count = jax.eval_shape(at, x, k)[1].shape[0]
    if n or count:
        scale = scale_of(*jax.vmap(at)(starts if n else jnp.zeros((options.starts, 0), x.dtype), wholes))
    else:
        scale = Scale(jnp.ones((), x.dtype), jnp.zeros(0, x.dtype))

    def minima_at(k: Array) -> Local:
        """(S,) from every start."""
        return _all_minima(lambda x: at(x, k), starts, space, options, scale)

    if not d:
        found = minima_at(k)
        judged = _judge(lambda x: at(x, k), found, space, scale)
        return _reported(judged, k, None, jnp.sum(found.steps), Certificate.LOCAL)

    def worth(k: Array) -> tuple[Array, Array, Local]:
        found = minima_at(k)
        best = _best(found)
        return found.value[best], found.violation[best], found

    everything = space.box <= options.enumerate_up_to
    if everything:
        table = enumerate_box(worth, space, options.batch)
        whole, gaps, found = table.best, (table.gap_below, table.gap_above), table.more
    else:
        whole = _search(at, lambda k: worth(k)[:2], space, options, x, k)
    if not n and space.relaxable:
        end = refine(lambda real: at(x, real), lambda c: violated(c, scale), whole, space)
        whole, gaps = whole._replace(k=end.k), (end.gap_below, end.gap_above)
        found = jax.tree.map(lambda leaf: leaf[None], _fixed(x, end.value, end.constraints, scale))
    elif not everything:
        found, gaps = _beside(minima_at, whole, space)
    judged = _judge(lambda x: at(x, whole.k), found, space, scale)
    close = jnp.any(jnp.abs(jnp.concatenate(gaps)) <= noise(judged.best.value))
    certificate = Certificate.ENUMERATED if everything else Certificate.NEIGHBOURHOOD
    first, last = (jnp.asarray(b, jnp.int32) for b in (space.first, space.last))
    judged = judged._replace(minima=jnp.maximum(judged.minima, whole.minima), tied=judged.tied | whole.tied,
                             flat=judged.flat | close | whole.tied,
                             edge=judged.edge | jnp.any((whole.k <= first) | (whole.k >= last)))
    return _reported(judged, whole.k, gaps, whole.evaluations, certificate)


def _beside(minima_at: Callable[[Array], Local], whole: Whole, space: Space) -> tuple[Local, tuple[Array, Array]]:
    """The minima of the reals at a whole point, and its gaps to the neighbours' values."""
    d = whole.k.shape[0]
    unit = jnp.eye(d, dtype=jnp.int32)
    first, last = (jnp.asarray(b, jnp.int32) for b in (space.first, space.last))
    # a neighbour outside the box is replaced by the point itself, and counts as infinite
    points = jnp.concatenate([whole.k[None], jnp.maximum(whole.k[None] - unit, first[None]),
                              jnp.minimum(whole.k[None] + unit, last[None])])
    found = jax.vmap(minima_at)(points)
    values, violations = jax.vmap(lambda found: (found.value[_best(found)], found.violation[_best(found)]))(found)
    allowed = ~jnp.concatenate([whole.k <= first, whole.k >= last]) & (violations[1:] <= violations[0])
    gaps = jnp.where(allowed, values[1:] - values[0], jnp.inf)
    return jax.tree.map(lambda leaf: leaf[0], found), (gaps[:d], gaps[d:])


def _fixed(x: Array, value: Array, constraints: Array, scale: Scale) -> Local:
    """Without real variables there is nothing to improve."""
    violation = violated(constraints, scale)
    return Local(x, value, constraints, jnp.zeros_like(constraints), x, jnp.zeros((0, 0), value.dtype),
                 jnp.zeros_like(value), violation, jnp.isfinite(value) & (violation <= 0), jnp.ones((), jnp.int32))


def _search(at: Callable[[Array, Array], tuple[Array, Array]], worth: Callable[[Array], tuple[Array, Array]],
            space: Space, options: Options, x: Array, k: Array) -> Whole:
    """The best whole point of a box too large to compare all: first the real optimum, then whole points from there."""
    starts = space.whole_starts(k, options.starts)
    if space.relaxable:  # the real optimum, rounded, is one more start
        loose = Space(tuple(replace(v, kind="real") if v.kind == "whole" else v for v in space.variables))
        begin = loose.starts(loose.vectors(space.values(x, k), x.dtype)[0], options.starts)

        def relaxed(joint: Array) -> tuple[Array, Array]:
            values = loose.values(joint, k[:0])
            parts = [jnp.concatenate([values[v.name].reshape(-1) for v in chosen]) if chosen else joint[:0]
                     for chosen in (space.reals, space.wholes)]
            return at(parts[0], parts[1])

        found = _all_minima(relaxed, begin, loose, options, scale_of(*jax.vmap(relaxed)(begin)))
        values = loose.values(found.x[_best(found)], k[:0])
        near = jnp.concatenate([values[v.name].reshape(-1) for v in space.wholes])
        starts = jnp.concatenate([jnp.round(near).astype(jnp.int32)[None], starts])
    ends = jax.vmap(functools.partial(search_box, worth, space))(starts)
    return best_of(ends, space)


def _all_minima(function: Callable[[Array], tuple[Array, Array]], starts: Array, space: Space, options: Options,
                scale: Scale) -> Local:
    """(S,) local minima; without real variables the one value."""
    if not starts.shape[1]:
        return jax.tree.map(lambda leaf: leaf[None], _fixed(starts[0], *function(starts[0]), scale))
    return jax.vmap(lambda x: local_minimum(function, x, space, options.method, options.steps, scale))(starts)


def _best(found: Local) -> Array:
    """The index of the start that ended best."""
    least = jnp.min(found.violation)
    value = jnp.where(jnp.isnan(found.value) | (found.violation > least), jnp.inf, found.value)
    # of ends that rounding cannot tell apart one that converged
    tie = (value <= jnp.min(value) + noise(jnp.min(value))) & jnp.isfinite(value)
    return jnp.where(jnp.any(tie & found.converged), jnp.argmax(tie & found.converged), jnp.argmin(value))


def _judge(function: Callable[[Array], tuple[Array, Array]], found: Local, space: Space, scale: Scale) -> Judged:
    """Chooses among (S,) local minima, counts the others and looks around the best one."""
    index = _best(found)
    best: Local = jax.tree.map(lambda leaf: leaf[index], found)
    none = jnp.zeros((), bool)
    if not found.x.shape[1]:
        return Judged(best, jnp.ones((), jnp.int32), none, none, none)
    widths = space.widths(best.x)
    projector = projection(held(best.x, best.gradient, space), space, best.x.dtype)
    point = Point(best.x, best.value, None, best.gradient, best.hessian, best.residual)
    w, V = spectrum(point, projector, space)
    free = jnp.sum((projector @ V) ** 2, axis=0) > 0.5
    softest = V[:, jnp.argmin(jnp.where(free, jnp.abs(w), jnp.inf))] * widths * float(jnp.finfo(w.dtype).eps) ** 0.2
    nearby = jnp.stack([move(best.x, softest, space), move(best.x, -softest, space)])
    shares = jnp.arange(1, BETWEEN + 1, dtype=w.dtype) / (BETWEEN + 1)
    between = best.x[None, None] + shares[None, :, None] * (found.x - best.x[None])[:, None]
    values, constraints = jax.vmap(function)(jnp.concatenate([nearby, between.reshape(-1, best.x.shape[0])]))
    room = 4 * noise(jnp.maximum(jnp.abs(best.value), scale.value))
    around = values[:2]
    if constraints.shape[1]:  # a step along a constraint's gradient breaks it or gains nothing: the multipliers' price
        around = around + constraints[:2] @ best.multipliers
    flat = jnp.any(free) & jnp.all(jnp.abs(around - best.value) <= room)
    path = values[2:].reshape(-1, BETWEEN)
    apart = jnp.max(jnp.abs(found.x - best.x[None]) / widths[None], axis=1) > NEAR
    level = jnp.maximum(found.value, best.value)
    known = found.converged & best.converged & apart
    separate = known & jnp.any(~(path <= (level + room)[:, None]), axis=1)
    level_with_best = jnp.abs(found.value - best.value) <= room
    distance = jnp.max(jnp.abs(found.x[:, None] - found.x[None]) / widths[None, None], axis=2)
    earlier = jnp.tril(jnp.ones(distance.shape, bool), -1) & separate[None]
    counted = separate & ~jnp.any(earlier & (distance <= NEAR), axis=1)
    bound = jnp.asarray(space.low, w.dtype) < jnp.asarray(space.high, w.dtype)
    edge = jnp.any(held(best.x, best.gradient, space) & bound)
    return Judged(best, 1 + jnp.sum(counted, dtype=jnp.int32), jnp.any(separate & level_with_best),
                  flat | jnp.any(known & ~separate & level_with_best), edge)


def _reported(judged: Judged, k: Array, gaps: tuple[Array, Array] | None, steps: Array,
              certificate: Certificate) -> Found:
    best = judged.best
    finite = jnp.isfinite(best.value)
    possible = finite & (best.violation <= 0)
    kind = jnp.where(judged.minima > 1, int(OptimumStatus.MULTIMODAL),
                     jnp.where(judged.flat, int(OptimumStatus.FLAT),
                               jnp.where(judged.edge, int(OptimumStatus.EDGE), int(OptimumStatus.INTERIOR))))
    kind = jnp.where(possible, kind, int(OptimumStatus.FAILED)).astype(jnp.uint8)
    code = jnp.where(best.converged, int(Status.OK), int(Status.NOT_CONVERGED))
    code = jnp.where(finite, code, int(Status.NONFINITE)).astype(jnp.uint8)
    proved = jnp.where(possible & best.converged, int(certificate), int(Certificate.NONE)).astype(jnp.uint8)
    below, above = gaps if gaps is not None else (jnp.zeros(0, best.value.dtype),) * 2
    return Found(best.x, k, best.value, best.constraints, best.multipliers, best.gradient, best.hessian, best.residual,
                 below, above, judged.minima, judged.tied, steps.astype(jnp.int32), proved, kind, code)


__all__ = ["Certificate", "Found", "Function", "Options", "reach", "solve"]
