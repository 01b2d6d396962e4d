"""The registry: how the sweep engine, the command line and :func:`evaluate` reach a model.

A model is a pure function of one parameter point. It declares its axes (name, domain, unit,
meaning) and its metrics (name, unit, meaning); everything else (broadcasting, batching,
compiling, masking, storing) is written once, for all models.

A user's own model is registered the same way, or named ``"package.module:ATTRIBUTE"``.
"""

import functools
import importlib
import math
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.config import common_dtype
from hetjax.result import Status

PointFunction = Callable[[Mapping[str, Any], tuple[str, ...], Mapping[str, int]],
                         tuple[dict[str, jax.Array], jax.Array]]


@dataclass(frozen=True)
class Axis:
    """One parameter of a model: its domain [low, high], unit and meaning.

    ``shape``: an integer that gives array shapes (a number of servers): a Python int at trace time, or traced below a
    static bound. ``integer``: only whole numbers are meaningful. ``default=None``: the axis must be given.
    ``open_low``/``open_high``: the end itself is excluded. ``infinite``: infinity is legal too.
    """

    name: str
    low: float
    high: float
    unit: str = "1"
    meaning: str = ""
    integer: bool = False
    shape: bool = False
    default: float | None = None
    open_low: bool = False
    open_high: bool = False
    infinite: bool = False

    def describe_domain(self) -> str:
        """The domain as text, like ``[0, 1e7] or inf``."""
        kind = "whole numbers in " if self.integer else ""
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"{kind}{left}{self.low:g}, {self.high:g}{right}" + (" or inf" if self.infinite else "")

    def contains(self, value: float) -> bool:
        """True if ``value`` lies in the domain."""
        return bool(self.holds(float(value)))

    def holds(self, value: Any) -> Any:
        """:meth:`contains` of real numbers or arrays, traced or not, elementwise."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        inside = above & below
        if self.integer:
            inside &= value % 1 == 0
        if self.infinite:
            inside |= value == math.inf
        return inside

    def check(self, value: float) -> None:
        """Raises ValueError that names the axis, the value, the domain and the remedy."""
        if not self.contains(value):
            raise ValueError(f"{self.name} = {value!r} is outside its domain {self.describe_domain()}"
                             f" ({self.meaning}); give a value inside it")


def inside(axes: Iterable[Axis], values: Mapping[str, jax.Array]) -> jax.Array:
    """Whether every real axis of ``axes`` holds its entry of ``values``; pure."""
    return functools.reduce(operator.and_, (axis.holds(values[axis.name]) for axis in axes if not axis.shape),
                            jnp.asarray(True))


@dataclass(frozen=True)
class Metric:
    """One result of a model. ``undefined_where``: in words, the legal points where it is NaN with status ok.

    ``expensive``: not part of the default selection of a sweep. ``differentiable``: has gradients in the real axes.
    """

    name: str
    unit: str = "1"
    meaning: str = ""
    undefined_where: str = ""
    expensive: bool = False
    differentiable: bool = True


@dataclass(frozen=True, eq=False)
class Model:
    """A model as the registry knows it.

    ``point(values, metrics, bounds) -> (results, status)`` is pure and scalar: ``values`` maps every axis name to a
    scalar (real axes: arrays of one floating dtype; shape axes: Python ints, or traced int32 scalars with their static
    upper bound in ``bounds``), ``results`` maps each name in ``metrics`` to a scalar of that dtype, ``status`` is a
    uint8 code of :class:`hetjax.result.Status`. It never raises for values and never gives NaN with status OK, except
    where the metric says ``undefined_where``.

    ``second_route(values, metrics) -> results``: the same by an independent method, on the host, for spot checks
    (or None); it may leave out metrics, or at some points all of them, that it cannot reach. ``golden``: a few points
    with known results, checked on the device before a sweep starts:
    ``({"q": .5, ...}, {"mean_number": ..., ...})`` pairs. ``version`` changes whenever results change. ``inner_batch``:
    points of a vectorised batch on a CPU, unless a specification says otherwise; 1 where a point is a batch itself, few
    where a point needs much memory.
    """

    name: str
    version: int
    title: str
    axes: tuple[Axis, ...]
    metrics: tuple[Metric, ...]
    point: PointFunction
    second_route: Callable[[Mapping[str, float], tuple[str, ...]], dict[str, float]] | None = None
    golden: tuple[tuple[dict[str, float], dict[str, float]], ...] = field(default=(), hash=False)
    inner_batch: int | None = None

    def axis(self, name: str) -> Axis:
        """The axis ``name``; ValueError lists the known ones."""
        return _find(self.axes, name, f"axis of model {self.name!r}")

    def metric(self, name: str) -> Metric:
        """The metric ``name``; ValueError lists the known ones."""
        return _find(self.metrics, name, f"metric of model {self.name!r}")


def _find(items: Sequence[Any], name: str, what: str) -> Any:
    for item in items:
        if item.name == name:
            return item
    raise ValueError(f"{name!r} is no {what}; choose from {', '.join(item.name for item in items)}")


_BUILTIN: dict[str, str] = {  # name -> module:attribute, imported when asked for
    "allocation": "hetjax.control.model:MODEL",
    "allocation_gap": "hetjax.control.rules:GAP_MODEL",
    "allocation_gap_law": "hetjax.control.rules:GAP_LAW_MODEL",
    "allocation_gap_law_renewal": "hetjax.control.rules:RENEWAL_GAP_LAW_MODEL",
    "allocation_gap_renewal": "hetjax.control.rules:RENEWAL_GAP_MODEL",
    "overflow": "hetjax.models.overflow:MODEL",
    "overflow_general": "hetjax.models.overflow:GENERAL_MODEL",
    "parallel_queues": "hetjax.models.parallel_queues:MODEL",
    "parallel_queues_best": "hetjax.models.parallel_queues:BEST_MODEL",
    "parallel_queues_split": "hetjax.models.parallel_queues.split_model:MODEL",
    "parallel_queues_word": "hetjax.models.parallel_queues:WORD_MODEL",
    "stalling": "hetjax.models.stalling:MODEL",
    "stalling_buffer": "hetjax.models.stalling.buffer:MODEL",
    "stalling_pays": "hetjax.models.stalling.pays:MODEL",
    "stalling_worth": "hetjax.models.stalling.worth:MODEL",
    "supermarket": "hetjax.models.supermarket:MODEL",
    "supermarket_finite": "hetjax.models.supermarket.finite_model:MODEL",
    "supermarket_probing": "hetjax.models.supermarket.probing:MODEL",
    "supermarket_tails": "hetjax.models.supermarket.tails_model:MODEL",
    "threshold_queue": "hetjax.models.threshold_queue:MODEL",
    "threshold_queue_map": "hetjax.models.threshold_queue:MAP_MODEL",
}
_SHORT = reprlib.Repr(maxstring=60, maxother=60)
_REGISTERED: dict[str, Model] = {}


def register(model: Model) -> Model:
    """Makes ``model`` known by its name in this process; returns it."""
    if model.name in _BUILTIN:
        raise ValueError(f"model name {model.name!r} is taken by a built-in model; choose another name")
    _REGISTERED[model.name] = model
    return model


def model_names() -> tuple[str, ...]:
    """The names of all built-in and registered models."""
    return tuple(_BUILTIN) + tuple(_REGISTERED)


def get_model(name: str | Model) -> Model:
    """The model called ``name``: a built-in, a registered one, or ``"package.module:ATTRIBUTE"``."""
    if isinstance(name, Model):
        return name
    if not isinstance(name, str):
        raise ValueError(f"model = {name!r} is neither a name nor a Model; choose from {', '.join(model_names())}")
    if name in _REGISTERED:
        return _REGISTERED[name]
    target = _BUILTIN.get(name, name)
    module_name, colon, attribute = target.partition(":")
    if not (colon and module_name and attribute) or module_name.startswith("."):
        raise ValueError(f"model {name!r} is unknown; choose from {', '.join(model_names())}"
                         " or give 'package.module:ATTRIBUTE'")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # whatever running the user's module may raise
        raise ValueError(f"model {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Model):
        raise ValueError(f"model {name!r} is a {type(found).__name__}, not a hetjax Model")
    return found


class Evaluation(dict[str, Any]):
    """The arrays of one evaluation by metric name, as items or attributes; ``status`` holds the codes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no result named {name!r}; there are {', '.join(self)}") from None


def _rebuild(names: Any, leaves: Any) -> Evaluation:
    return Evaluation(zip(names, leaves, strict=True))


jax.tree_util.register_pytree_node(Evaluation, lambda e: (tuple(e.values()), tuple(e)), _rebuild)

# points of a batch, which fits a CPU's cache; fixed, so that results do not depend on the grid around a point
BATCH, BATCH_ELSEWHERE = 256, 1 << 14


def evaluate(model: str | Model, /, *, metrics: Sequence[str] | None = None, **arrays: Any) -> Evaluation:
    """Evaluates a model on numpy-like arrays that broadcast against each other.

    ``arrays`` name the model's axes; axes with a default may be left out. Shape axes (like m, n) may be arrays as
    well: equal values are compiled for, different ones run below a common bound, the largest value present or
    ``max_<axis>=``; traced shape axes need that bound. Results have the broadcast shape, in float64 if 64-bit is on
    (float32 arrays stay float32). Values outside the domain raise nothing: see ``status``.

    >>> import hetjax
    >>> out = hetjax.evaluate("stalling", q=[0.5, 0.7], r=10.0, K=3, M=5, m=2, n=2, metrics=["mean_number"])
    >>> out["mean_number"].shape
    (2,)
    """
    found = get_model(model)
    bounds = {a.name: _bound(f"max_{a.name}", arrays.pop(f"max_{a.name}"))
              for a in found.axes if a.shape and f"max_{a.name}" in arrays}
    for name in arrays:
        found.axis(name)
    for axis in found.axes:
        if axis.name not in arrays:
            if axis.default is None:
                raise ValueError(f"axis {axis.name!r} of model {found.name!r} is missing ({axis.meaning});"
                                 f" give {axis.name}=...")
            arrays[axis.name] = axis.default
    if isinstance(metrics, str) or not isinstance(metrics, Iterable | None):
        raise ValueError(f"metrics = {metrics!r} is no list of names; write metrics=[{found.metrics[0].name!r}]")
    chosen = tuple(metrics) if metrics is not None else tuple(m.name for m in found.metrics if not m.expensive)
    for name in chosen:
        found.metric(name)
    dtype = common_dtype(arrays.values())
    arrays = {axis.name: real_array(axis.name, arrays[axis.name]) for axis in found.axes}
    static: dict[str, int] = {}
    traced: dict[str, Any] = {}
    for axis in found.axes:
        value = arrays[axis.name]
        if not axis.shape:
            with np.errstate(over="ignore"):  # beyond float32's range: infinite, and so outside the domain
                traced[axis.name] = jnp.asarray(value.astype(dtype))
        elif isinstance(value, jax.core.Tracer):
            if axis.name not in bounds:
                raise ValueError(f"axis {axis.name!r} is traced and gives array shapes;"
                                 f" say how large it can be with max_{axis.name}=...")
            traced[axis.name] = value.astype(jnp.int32)
        else:
            whole = np.asarray(value)
            with np.errstate(invalid="ignore"):  # the remainder of infinity
                fractions = whole[np.mod(whole.astype(float), 1) != 0]
            if fractions.size:
                raise ValueError(f"{axis.name} = {fractions[0]} ({axis.meaning}) gives array shapes;"
                                 f" give {axis.describe_domain()}")
            whole = np.clip(whole.astype(float), -1, 2**31 - 1)  # int32 must hold what lies outside the domain
            if axis.name not in bounds and whole.size and np.all(whole == whole.flat[0]):
                static[axis.name] = int(whole.flat[0])
                traced[axis.name] = jnp.zeros(whole.shape, jnp.int32)  # keeps its share in the broadcast shape
            else:
                largest = int(whole.max(initial=0))
                if largest > bounds.setdefault(axis.name, largest):
                    raise ValueError(f"{axis.name} = {largest} exceeds max_{axis.name} = {bounds[axis.name]};"
                                     " raise the bound")
                traced[axis.name] = jnp.asarray(whole.astype(np.int32))
    try:
        shape = jnp.broadcast_shapes(*(v.shape for v in traced.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {v.shape}" for name, v in traced.items() if v.shape)
        raise ValueError(f"the shapes of {shapes} do not broadcast; give arrays of equal or of length 1 in each"
                         " dimension") from None
    flat = {name: jnp.broadcast_to(v, shape).reshape(-1) for name, v in traced.items() if name not in static}
    run = _batched(found, chosen, tuple(sorted(static.items())), tuple(sorted(bounds.items())))
    results, status = run(flat)
    out = Evaluation({name: results[name].reshape(shape) for name in chosen})
    out["status"] = status.reshape(shape)
    return out


def real_array(name: str, value: Any) -> Any:
    """``value`` as an array of real numbers (of numpy, unless it is traced or on a device); ValueError for others."""
    try:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError
        array = value if isinstance(value, jax.Array) else np.asarray(value)
    except jax.errors.TracerArrayConversionError:  # a list that holds traced numbers
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        array = np.empty((), object)
    if not (array.dtype == bool or jnp.issubdtype(array.dtype, jnp.integer)
            or jnp.issubdtype(array.dtype, jnp.floating)):
        shown = " ".join(_SHORT.repr(value).split())
        raise ValueError(f"{name} = {shown} is no array of real numbers; give a number, or a list or array of int or"
                         " float")
    return array


def _bound(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value!r} is no whole number; give the largest value there can be") from None


@functools.lru_cache(maxsize=256)
def _batched(model: Model, metrics: tuple[str, ...], static: tuple[tuple[str, int], ...],
             bounds: tuple[tuple[str, int], ...]) -> Callable[..., Any]:
    def point(values: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], jax.Array]:
        results, status = model.point({**values, **dict(static)}, metrics, dict(bounds))
        legal = inside(model.axes, values)
        return ({name: jnp.where(legal, results[name], jnp.nan) for name in metrics},
                jnp.where(legal, status, jnp.uint8(Status.OUT_OF_DOMAIN)))

    def run(flat: dict[str, jax.Array]) -> Any:
        batch = BATCH if jax.default_backend() == "cpu" else BATCH_ELSEWHERE
        if next(iter(flat.values())).shape[0] <= batch:
            return jax.vmap(point)(flat)
        return jax.lax.map(point, flat, batch_size=batch)

    return jax.jit(run)
