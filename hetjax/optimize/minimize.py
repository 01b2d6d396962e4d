"""``minimize``: the optimum of any objective, on the host, with everything that is known of it."""

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.config import common_dtype
from hetjax.optimize.loops import Method
from hetjax.optimize.solve import Certificate, Found, Options, reach, solve
from hetjax.optimize.space import Space, variable
from hetjax.result import OPTIMUM_STATUS_MEANINGS, STATUS_MEANINGS, OptimumStatus, Status

Array = jax.Array
FORWARD_UP_TO = 16  # parameters whose derivatives are taken forwards


class Bound(NamedTuple):
    """An objective tied to its parameters: what :func:`minimize` runs.

    ``function(variables by name, theta) -> (value, constraints (C,))`` is pure and hashable (equal functions share a
    compilation); ``theta``: name -> real array, the parameters that are not optimised; ``rebuild(variables)``: the
    caller's parameters with the optimum in place. ``notes``: what the caller should be warned of.
    """

    function: Callable[[dict[str, Array], dict[str, Array]], tuple[Array, Array]]
    space: Space
    theta: dict[str, Array]
    x: Array
    k: Array
    constraints: tuple[str, ...]
    rebuild: Callable[[dict[str, Any]], Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Optimum:
    """What :func:`minimize` found, in numpy; ``str(optimum)`` is a short table.

    ``gradient``: of the objective (with constraints: of the Lagrangian) in the real variables; ``gradient_norm``: its
    largest entry that is not held by a bound, times the variable's interval, relative to the value. ``gaps``: for whole
    variables, by how much one less and one more is worse (infinite where not allowed); taken from the derivative where
    there is one, so they keep their digits where the values themselves are equal in floating point. ``slack``: what is
    left of each constraint (negative: violated), ``multipliers``: what one unit more of it would save.
    ``sensitivities``: derivative of the optimal value in every other parameter (envelope theorem).
    """

    params: Any
    design: dict[str, Any]
    value: float
    gradient: dict[str, Any]
    gradient_norm: float
    optimum_status: OptimumStatus
    status: Status
    certificate: Certificate
    steps: int
    minima: int
    tied: bool
    gaps: dict[str, Any] = field(default_factory=dict)
    slack: dict[str, float] = field(default_factory=dict)
    multipliers: dict[str, float] = field(default_factory=dict)
    sensitivities: dict[str, Any] = field(default_factory=dict)
    within: int = 0  # of a neighbourhood certificate: no better whole point within +- this

    def __str__(self) -> str:
        """A table of a few lines."""
        rows = [(name, _shown(value) + self._beside(name)) for name, value in self.design.items()]
        rows.append(("objective", _shown(self.value)))
        rows += [(f"{name}", f"slack {_shown(slack)}, multiplier {_shown(self.multipliers[name])}")
                 for name, slack in self.slack.items()]
        rows += [(f"d/d{name}", _shown(value)) for name, value in self.sensitivities.items()]
        rows.append(("kind", self._kind()))
        rows.append(("certificate", self._certified()))
        if self.status != Status.OK and min(self.slack.values(), default=0.0) >= 0:
            rows.append(("status", STATUS_MEANINGS[self.status]))
        width = max(len(name) for name, _ in rows) + 2
        return "\n".join(f"{name:<{width}}{text}" for name, text in rows)

    def _beside(self, name: str) -> str:
        if name in self.gaps:
            below, above = self.gaps[name]
            return f"   (one less: {_signed(below)}, one more: {_signed(above)})"
        return f"   (slope {_shown(self.gradient[name])})"

    def _kind(self) -> str:
        if (worst := min(self.slack, key=self.slack.__getitem__, default=None)) is not None and (
                self.optimum_status == OptimumStatus.FAILED and self.slack[worst] < 0):
            return f"no design that was looked at keeps the constraints (best: {worst} is broken by" \
                   f" {_shown(-self.slack[worst])})"
        text = OPTIMUM_STATUS_MEANINGS[self.optimum_status]
        if self.optimum_status == OptimumStatus.MULTIMODAL:
            text += f" ({self.minima} seen)" if self.minima > 1 else ""
        return text + ("; another design is as good within rounding" if self.tied else "")

    def _certified(self) -> str:
        return {Certificate.NONE: "none",
                Certificate.LOCAL: f"largest free slope {self.gradient_norm:.1e} of the value, over a whole interval",
                Certificate.NEIGHBOURHOOD: f"no better whole point within +-{self.within};"
                                           " beyond that one minimum is assumed",
                Certificate.ENUMERATED: "all whole points were compared"}[self.certificate]


def _shown(value: Any) -> str:
    array = np.asarray(value)
    return f"{array:.10g}" if array.ndim == 0 else " ".join(f"{v:.6g}" for v in array.reshape(-1))


def _signed(value: Any) -> str:
    array = np.asarray(value)
    texts = ["not allowed" if np.isposinf(v) else f"{v:+.3g}" for v in array.reshape(-1)]
    return " ".join(texts)


def minimize(objective: Any, params: Any, over: Iterable[str] | None = None,
             bounds: Mapping[str, Any] | None = None, method: Method = "auto", *,
             constraints: Mapping[str, Callable[[Any], Any]] | None = None, starts: int = 8, steps: int = 200,
             enumerate_up_to: int = 4096) -> Optimum:
    """The ``params`` that minimise ``objective(params)``.

    ``params``: any pytree; its leaves are called by their path ("q", "weights", "node.rate"). ``over``: the leaves to
    choose (all if left out), or a mapping from them to their bounds; ``bounds``: for each of them (low, high) for real
    numbers (either may be infinite), ``range(first, last + 1)`` for whole ones, "simplex" for shares of an array that
    sum to one; unbounded if left out.
    ``objective``: pure JAX, or :func:`hetjax.objective` for the metrics of a registered model. Whole variables reach it
    as real numbers. NaN and infinity mean that a design is impossible. ``constraints``: name -> function of the params
    that is at most 0. Leaves that are Python integers are compiled in, unless they are optimised.

    ``method``: "newton", "lbfgs" or "adam" (both optax, in unbounded variables, then Newton steps as well up to 64
    entries), or "auto": Newton alone up to 8. Real variables start at ``params`` and at ``starts`` - 1 more places;
    each loop takes at most ``steps`` evaluations. Whole points are all compared up to ``enumerate_up_to`` of them;
    beyond that the real optimum is found first and a search among whole points follows. Nothing is random. The
    result is never a rounded real optimum.

    ValueError (one line) for bounds, names or starts that do not fit. What goes wrong later is in ``status``,
    ``optimum_status`` and ``certificate`` of the result; :func:`hetjax.raise_if_failed` raises.

    >>> import hetjax
    >>> hetjax.enable_x64()
    >>> best = hetjax.optimize.minimize(lambda p: (p["x"] - 2) ** 2 + p["a"] * p["x"], {"x": 0.5, "a": 1.0}, over=["x"],
    ...                                 bounds={"x": (0, 3)})
    >>> float(best.design["x"]), float(best.value), float(best.sensitivities["a"]), best.optimum_status.name
    (1.5, 1.75, 1.5, 'INTERIOR')
    """
    options = Options(method, starts, steps, enumerate_up_to)
    if bounds is not None and not isinstance(bounds, Mapping):
        raise ValueError(f"bounds = {bounds!r} is no mapping; give a domain by name, like {{'K': range(0, 61)}}")
    if isinstance(over, Mapping):
        bounds = {**over, **(bounds or {})}
        over = list(over)
    if constraints is not None and not isinstance(constraints, Mapping):
        raise ValueError(f"constraints = {constraints!r} is no mapping; name each, like"
                         " {'loss': lambda p: p['loss'] - 0.01}")
    if isinstance(over, str):
        raise ValueError(f"over = {over!r} is a text; give a list of names, like [{over!r}]")
    bind = getattr(objective, "bind", None)
    if bind is not None:
        if constraints is not None:
            raise ValueError("constraints are part of this objective; give them to hetjax.objective")
        bound: Bound = bind(params, over, bounds or {})
    else:
        bound = _bind(objective, params, over, bounds or {}, constraints or {})
    for note in bound.notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    found, slopes = _runner(bound.function, bound.space, options)(bound.theta, bound.x, bound.k)
    return _optimum(bound, jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, slopes))


@functools.lru_cache(maxsize=64)
def _runner(function: Callable[..., Any], space: Space, options: Options) -> Callable[..., Any]:
    def run(theta: dict[str, Array], x: Array, k: Array) -> tuple[Found, dict[str, Array]]:
        found = solve(lambda variables: function(variables, theta), space, options, x, k)

        def lagrangian(theta: dict[str, Array]) -> Array:
            value, constraints = function(space.values(found.x, found.k), theta)
            return value + jnp.sum(constraints * found.multipliers)

        count = sum(leaf.size for leaf in theta.values())
        return found, (jax.jacfwd if count <= FORWARD_UP_TO else jax.grad)(lagrangian)(theta) if count else {}

    return jax.jit(run)


def _optimum(bound: Bound, found: Found, slopes: Mapping[str, Any]) -> Optimum:
    space = bound.space
    design = {name: np.asarray(value) for name, value in space.values(*map(jnp.asarray, (found.x, found.k))).items()}
    loose = Space(space.reals)
    tight = Space(space.wholes)

    def by_name(part: Space, vector: Any) -> dict[str, np.ndarray]:
        cuts = np.cumsum([v.size for v in part.variables])[:-1]
        return {v.name: piece.reshape(v.shape) for v, piece in
                zip(part.variables, np.split(vector, cuts), strict=True)} if part.variables else {}

    below, above = by_name(tight, found.gap_below), by_name(tight, found.gap_above)
    return Optimum(
        params=bound.rebuild(design), design=design, value=float(found.value), gradient=by_name(loose, found.gradient),
        gradient_norm=float(found.gradient_norm), optimum_status=OptimumStatus(int(found.optimum_status)),
        status=Status(int(found.status)), certificate=Certificate(int(found.certificate)), steps=int(found.steps),
        minima=int(found.minima), tied=bool(found.tied), gaps={name: (below[name], above[name]) for name in below},
        slack={name: -float(c) for name, c in zip(bound.constraints, found.constraints, strict=True)},
        multipliers={name: float(c) for name, c in zip(bound.constraints, found.multipliers, strict=True)},
        sensitivities=dict(slopes), within=reach(space) if len(space.first) else 0)


@dataclass(frozen=True)
class _UserFunction:
    """A user's functions of a pytree as a function of its named leaves."""

    objective: Callable[[Any], Any]
    constraints: tuple[Callable[[Any], Any], ...]
    names: tuple[str, ...]
    treedef: Any
    static: tuple[tuple[str, Any], ...]
    dtype: str

    def __call__(self, variables: dict[str, Array], theta: dict[str, Array]) -> tuple[Array, Array]:
        leaves = dict(self.static) | theta | variables
        params = jax.tree.unflatten(self.treedef, [leaves[name] for name in self.names])
        values = []
        for what, function in (("objective", self.objective), *(("constraint", c) for c in self.constraints)):
            try:
                value = jnp.asarray(function(params))
            except jax.errors.ConcretizationTypeError as error:  # float(x), np.sin(x), if x > 0: ...
                raise ValueError(f"the {what} is no pure JAX function of traced numbers"
                                 f" ({type(error).__name__}); write it with jax.numpy, without float() and if"
                                 ) from error
            except jax.errors.TracerArrayConversionError as error:
                raise ValueError(f"the {what} hands traced numbers to numpy; write it with jax.numpy") from error
            except TypeError as error:
                words = " ".join(str(error).split())[:120]
                raise ValueError(f"the {what} does not give a number ({words})") from error
            if value.shape not in ((), (1,)):
                raise ValueError(f"the {what} has the shape {value.shape}; return one number")
            if jnp.issubdtype(value.dtype, jnp.complexfloating):
                raise ValueError(f"the {what} is complex; return a real number, like jnp.abs(value)")
            values.append(value.astype(self.dtype))
        joined = jnp.stack([value.reshape(()) for value in values])
        return joined[0], joined[1:]


def chosen_names(over: Iterable[str] | None, bounds: Mapping[str, Any], known: Iterable[str]) -> tuple[str, ...]:
    """``over`` as names of ``known``; ValueError for others, for doubles, and for bounds of what is not optimised."""
    known = tuple(known)
    names = tuple(over) if over is not None else known
    for name in (*names, *bounds):
        if name not in known:
            raise ValueError(f"{name!r} is no parameter; choose from {', '.join(known)}")
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"over = {list(names)!r} names nothing, or something twice; name each variable once")
    for name in bounds:
        if name not in names:
            raise ValueError(f"bounds of {name!r} are given, but over names only {', '.join(names)}; add it or leave"
                             " its bounds out")
    return names


def check_start(name: str, value: Any, of: Any) -> None:
    """ValueError if the start ``value`` of the variable ``of`` is outside its bounds."""
    array = np.asarray(value, float)
    bad = (array < of.low) | (array > of.high) | np.isnan(array)
    if bad.any():
        first = array[bad].reshape(-1)[0]
        raise ValueError(f"{name} starts at {first:g}, outside {of.describe()}; give a start inside")
    if of.kind == "whole" and (array % 1).any():
        raise ValueError(f"{name} starts at {array}, no whole number; give a start in {of.describe()}")
    if of.kind == "simplex" and not abs(float(array.sum()) - 1) <= 1e-3:
        raise ValueError(f"{name} starts with a sum of {array.sum():g}; give {of.describe()}")


def _bind(objective: Callable[[Any], Any], params: Any, over: Iterable[str] | None, bounds: Mapping[str, Any],
          constraints: Mapping[str, Callable[[Any], Any]]) -> Bound:
    for what, given in [("objective", objective), *constraints.items()]:
        if not callable(given):
            raise ValueError(f"{what} = {given!r} is no function of the parameters; give one, or use"
                             " hetjax.objective(model, text)")
    paths, treedef = jax.tree.flatten_with_path(params)
    leaves = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in paths}
    names = chosen_names(over, bounds, leaves)
    dtype = common_dtype(leaves.values())
    variables = []
    for name in names:
        try:
            shape = np.shape(np.asarray(leaves[name], float))
        except (TypeError, ValueError):
            raise ValueError(f"{name} = {leaves[name]!r} is no number or array of numbers; leave it out of over"
                             ) from None
        chosen = variable(name, bounds.get(name), shape)
        check_start(name, leaves[name], chosen)
        variables.append(chosen)
    space = Space(tuple(variables))
    fixed = {name: leaf for name, leaf in leaves.items() if name not in names}
    theta = {name: jnp.asarray(leaf, dtype) for name, leaf in fixed.items()
             if isinstance(leaf, float) or jnp.issubdtype(getattr(leaf, "dtype", int), jnp.floating)}
    static = tuple((name, leaf) for name, leaf in fixed.items() if name not in theta)
    function = _UserFunction(objective, tuple(constraints.values()), tuple(leaves), treedef, static, str(dtype))
    try:
        hash(function)
    except TypeError:
        arrays = next(name for name, leaf in static if not getattr(type(leaf), "__hash__", None))
        raise ValueError(f"{arrays} is an array of whole numbers beside the variables; close over it in the objective"
                         ) from None
    x, k = space.vectors({name: np.asarray(leaves[name], float) for name in names}, dtype)

    def rebuild(design: dict[str, Any]) -> Any:
        return jax.tree.unflatten(treedef, [design.get(name, leaf) for name, leaf in leaves.items()])

    return Bound(function, space, theta, x, k, tuple(constraints), rebuild)
