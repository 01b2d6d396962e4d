"""A specification bound to its model: where every parameter comes from, and which array shapes are compiled.

Parameters that give array shapes (m, n) are Python integers while a kernel is traced. A grid with few different
combinations of them (``signatures``), or many points for each, compiles a kernel for each; others run one kernel with
the parameters traced below their largest values.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hetjax.models.registry import Axis, Model, get_model
from hetjax.sweep.checks import MAX_AXIS
from hetjax.sweep.errors import SpecError, nearest, show
from hetjax.sweep.spec import Spec

MAX_STATIC = 8  # signatures compiled one by one, however few points they have
# points a signature from which compiling each pays: of the stalling queue's mean number (m = 1..8, n = 4, two cores)
# one compilation takes 1.5 s, and with traced shapes, compiled in 3.8 s, a point takes 3 times as long
POINTS_PER_COMPILATION = 1 << 24
MAX_SIGNATURES = 100_000
LISTED = 4096  # values of an axis that the store's attributes list; of a longer one they hold the hash
Signature = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """A bound specification.

    ``shapes``: "static" or "masked". ``signatures``: the value of each shape parameter over the dimensions
    ``shape_dims`` (their indices). ``const``: constants and the model's defaults.
    """

    spec: Spec
    model: Model
    shapes: Literal["static", "masked"]
    shape_dims: tuple[int, ...]
    signatures: Mapping[str, np.ndarray]
    const: Mapping[str, int | float]

    @property
    def static_dims(self) -> tuple[int, ...]:
        """The dimensions along which a block is one point wide."""
        return self.shape_dims if self.shapes == "static" else ()

    @property
    def bounds(self) -> dict[str, int]:
        """The largest value of each traced shape parameter."""
        return {} if self.shapes == "static" else {name: int(v.max()) for name, v in self.signatures.items()}

    def signature(self, position: tuple[int, ...]) -> Signature:
        """The shape parameters compiled in at grid index ``position``; empty if they are traced."""
        if self.shapes == "masked":
            return ()
        at = tuple(position[d] for d in self.shape_dims)
        return tuple((name, int(v[at])) for name, v in self.signatures.items())

    def distinct_signatures(self) -> list[Signature]:
        """Every signature that the grid holds: one compilation each."""
        if self.shapes == "masked" or not self.signatures:
            return [()]
        columns = np.stack([v.reshape(-1) for v in self.signatures.values()], axis=1)
        return [tuple(zip(self.signatures, map(int, row), strict=True)) for row in np.unique(columns, axis=0)]

    @property
    def gradients(self) -> tuple[tuple[str, str], ...]:
        """The (metric, parameter) pairs to differentiate."""
        return tuple((of, wrt) for of in self.spec.grad_of for wrt in self.spec.grad_wrt)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of all result arrays but ``status``: metrics, then gradients."""
        return self.spec.metrics + tuple(gradient_name(of, wrt) for of, wrt in self.gradients)

    @property
    def itemsize(self) -> int:
        """Bytes of one result."""
        return np.dtype(self.spec.dtype).itemsize

    def canonical(self) -> dict[str, Any]:
        """Everything that decides the results, as JSON values; floats as hexadecimal text, so that no digit is lost."""
        spec = self.spec
        return {
            "model": spec.model, "model_version": self.model.version, "dtype": spec.dtype,
            "metrics": list(spec.metrics), "grad_of": list(spec.grad_of), "grad_wrt": list(spec.grad_wrt),
            "dims": {dim.name: list(dim.axes) for dim in spec.dims}, "dims_order": [dim.name for dim in spec.dims],
            "axes": {a.name: {"values": exact_values(a.values), "static": a.static,
                              "where": a.where.text if a.where else None} for a in spec.axes},
            "derived": {name: e.text for name, e in spec.derived.items()},
            "const": {name: _exact(v) for name, v in self.const.items()},
            **({"design": dict(spec.design)} if spec.design is not None else {}),
            **({"optimize": spec.optimize.canonical()} if spec.optimize is not None else {})}

    @property
    def spec_hash(self) -> str:
        """sha256 of the canonical JSON text."""
        return hashlib.sha256(canonical_text(self.canonical()).encode()).hexdigest()


def gradient_name(metric: str, parameter: str) -> str:
    """The array that holds the derivative of ``metric`` with respect to ``parameter``."""
    return f"d_{metric}__d_{parameter}"


def canonical_text(canonical: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def exact_values(values: np.ndarray) -> list[int | str] | dict[str, Any]:
    """The values of an axis for :meth:`Problem.canonical`: each of them, or their number, type and sha256."""
    if values.size <= LISTED:
        return [_exact(v) for v in values.tolist()]
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return {"count": values.size, "dtype": values.dtype.name, "sha256": hashlib.sha256(little.tobytes()).hexdigest()}


def _exact(value: int | float) -> int | str:
    return value if isinstance(value, int) else float(value).hex()


def _readable(value: Any) -> str:
    """A canonical value for people: hexadecimal floats back in decimal."""
    if isinstance(value, list):
        shown = ", ".join(_readable(v) for v in value[:4])
        return f"[{shown}, ... {len(value)} values]" if len(value) > 4 else f"[{shown}]"
    if isinstance(value, str) and value.lstrip("-").startswith(("0x", "inf")):
        with suppress(ValueError, OverflowError):  # a damaged store
            return repr(float.fromhex(value))
    return show(value)


def differences(old: Any, new: Any, field: str = "") -> list[str]:
    """The fields in which two canonical specifications differ, one text each: ``const.rho: 0.9 -> 0.8``."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in sorted(old.keys() | new.keys()):
            name = f"{field}.{key}" if field else key
            if key not in new:
                found.append(f"{name}: removed")
            elif key not in old:
                found.append(f"{name}: added")
            else:
                found += differences(old[key], new[key], name)
        return found
    return [] if old == new else [f"{field}: {_readable(old)} -> {_readable(new)}"]


def bind(spec: Spec, model: Model | None = None) -> Problem:
    """Checks ``spec`` against its model (looked up by name unless given) and returns the bound problem.

    With a table [optimize] the problem's model is that of the optimum (:mod:`hetjax.sweep.optimum`).
    """
    if model is None:
        try:
            model = get_model(spec.model)
        except ValueError as error:
            raise SpecError(f"[sweep] model: {error}".replace("\n", " ")) from None
    if spec.optimize is not None:
        from hetjax.sweep.optimum import optimum_model

        model = optimum_model(model, spec.optimize)
    if spec.version is not None and spec.version != model.version:
        raise SpecError(f"[sweep] version = {spec.version}, but model {spec.model!r} is at version {model.version} and"
                        " its results differ; update the key or install the matching hetjax")
    metrics = spec.metrics or tuple(m.name for m in model.metrics if not m.expensive)
    spec = replace(spec, metrics=metrics, grad_of=spec.grad_of or (metrics if spec.grad_wrt else ()))
    _check_metrics(spec, model)
    const = dict(spec.const)
    given = spec.names
    for axis in model.axes:
        if axis.name not in given:
            if axis.default is None:
                raise SpecError(f"parameter {axis.name!r} of model {spec.model!r} is missing ({axis.meaning}); give it"
                                f" in [axes], [const] or [derived]; its domain is {axis.describe_domain()}")
            const[axis.name] = axis.default
        if axis.name in const:
            try:
                axis.check(const[axis.name])
            except ValueError as error:
                raise SpecError(f"[const] {error}") from None
    _check_range(spec, const)
    _check_used(spec, model)
    _check_gradients(spec, model)
    shape_dims, signatures = _signatures(spec, model, const)
    count = len(np.unique(np.stack([v.reshape(-1) for v in signatures.values()], 1), axis=0)) if signatures else 1
    shaping = sorted(set(spec.design_columns) & {n for d in shape_dims for n in spec.dims[d].axes})
    forced = [axis.name for axis in spec.axes if axis.static]
    if shaping and forced:
        raise SpecError(f"[axes] {forced[0]} static = true cannot be combined with a [design] that gives array shapes"
                        f" ({', '.join(shaping)}); leave static out")
    few = count <= MAX_STATIC or spec.points >= count * POINTS_PER_COMPILATION
    static = not shaping and (few or bool(forced))  # a block of one point for each row would be slow
    return Problem(spec, model, "static" if static else "masked", shape_dims, signatures, const)


def _check_metrics(spec: Spec, model: Model) -> None:
    known = [m.name for m in model.metrics]
    for name in spec.metrics:
        if name not in known:
            raise SpecError(f"[sweep] metrics: {name!r} is no metric of model {spec.model!r}{nearest(name, known)}")
        if name in spec.names or name in [dim.name for dim in spec.dims]:
            raise SpecError(f"{name!r} is both a metric and an input of the sweep; rename the input")
    for name in spec.grad_of:
        if name not in spec.metrics:
            raise SpecError(f"[sweep] grad of = {name!r} is not among the metrics{nearest(name, spec.metrics)}")
        if not model.metric(name).differentiable:
            raise SpecError(f"[sweep] grad of = {name!r} has no derivatives; leave it out of grad")


def _check_range(spec: Spec, const: Mapping[str, int | float]) -> None:
    given = {f"[axes] {axis.name}": axis.values for axis in spec.axes}
    given |= {f"[const] {name}": np.asarray(value) for name, value in const.items()}
    for name, values in given.items():
        with np.errstate(over="ignore"):
            beyond = values[np.isinf(values.astype(spec.dtype)) != np.isinf(values)]
        if beyond.size:
            raise SpecError(f"{name} = {beyond[0]:g} is beyond the range of {spec.dtype}; use dtype = 'float64' or a"
                            " value nearer to 0")


def _check_used(spec: Spec, model: Model) -> None:
    used = {axis.name for axis in model.axes}
    for expression in [*spec.derived.values(), *(a.where for a in spec.axes if a.where)]:
        used |= expression.names
    for name in sorted(spec.names - used):
        table = ("design" if name in spec.design_columns else "axes" if name in [a.name for a in spec.axes]
                 else "const" if name in spec.const else "derived")
        if spec.optimize is not None and name in spec.optimize.over:
            raise SpecError(f"[{table}] {name!r} is chosen by [optimize] over as well; leave one of them out")
        raise SpecError(f"[{table}] {name!r} is no parameter of model {spec.model!r} and nothing is derived from it"
                        f"{nearest(name, [a.name for a in model.axes])}")


def _check_gradients(spec: Spec, model: Model) -> None:
    shapes = [axis.name for axis in model.axes if axis.shape]
    inputs = [name for name in sorted(spec.names - spec.derived.keys()) if name not in shapes]
    for name in spec.grad_wrt:
        if name not in inputs:
            why = "gives array shapes" if name in shapes else "is derived" if name in spec.derived else "is no input"
            raise SpecError(f"[sweep] grad wrt = {name!r} {why}; choose from the inputs {', '.join(inputs)}")
        if name in {n for d in (e for k, e in spec.derived.items() if k in shapes) for n in _roots(spec, d.names)}:
            raise SpecError(f"[sweep] grad wrt = {name!r} decides array shapes through [derived]; leave it out")


def _roots(spec: Spec, names: frozenset[str]) -> frozenset[str]:
    """The axes and constants that ``names`` depend on."""
    found = frozenset(name for name in names if name not in spec.derived)
    for name in names & spec.derived.keys():
        found |= _roots(spec, spec.derived[name].names)
    return found


def _signatures(spec: Spec, model: Model, const: Mapping[str, int | float],
                ) -> tuple[tuple[int, ...], dict[str, np.ndarray]]:
    """The dimensions that shape parameters vary along, and the parameters' values over those dimensions."""
    parameters = [axis for axis in model.axes if axis.shape]
    grid = {axis.name: axis for axis in spec.axes}
    roots = {axis.name: _roots(spec, frozenset([axis.name])) & grid.keys() for axis in parameters}
    shaping = set().union(*roots.values()) | {axis.name for axis in spec.axes if axis.static}
    for parameter, names in roots.items():
        for name in sorted(names - {parameter}):
            scattered = name in spec.design_columns
            if not grid[name].static and not scattered and not any(axis.name == name for axis in parameters):
                raise SpecError(f"[derived] {parameter} gives array shapes and depends on axis {name!r};"
                                f" add static = true to [axes] {name}")
    dims = tuple(d for d, dim in enumerate(spec.dims) if shaping & set(dim.axes))
    size = math.prod(spec.dims[d].size for d in dims)
    if size > (MAX_AXIS if dims and spec.design_columns == spec.dims[dims[0]].axes else MAX_SIGNATURES):
        raise SpecError(f"the static axes have {size} combinations, more than {MAX_SIGNATURES}; make them fewer")
    box = tuple(spec.dims[d].size for d in dims)
    values: dict[str, np.ndarray] = {name: np.float64(value) for name, value in const.items()}  # type: ignore[misc]
    for place, d in enumerate(dims):
        for name in spec.dims[d].axes:
            values[name] = np.broadcast_to(
                grid[name].values.astype(np.float64).reshape([-1 if p == place else 1 for p in range(len(dims))]), box)
    for name, expression in spec.derived.items():
        if expression.names <= values.keys():
            values[name] = expression(np, values)
    return dims, {axis.name: _whole(axis, np.broadcast_to(values[axis.name], box)) for axis in parameters}


def _whole(axis: Axis, values: np.ndarray) -> np.ndarray:
    for value in np.unique(values):
        if not axis.contains(value) or value != math.floor(value):
            raise SpecError(f"{axis.name} = {value:g} gives array shapes ({axis.meaning}) and must be in"
                            f" {axis.describe_domain()}; correct [axes], [const] or [derived]")
    return values.astype(np.int64)
