"""``hetjax.Sweep``: a sweep described, planned and run from Python."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hetjax.models.registry import Model
from hetjax.sweep.errors import SpecError, show
from hetjax.sweep.kernel import Kernel, choose_devices, choose_inner_batch
from hetjax.sweep.plan import Plan, block_shape_for, make_plan, target_points
from hetjax.sweep.problem import Problem, bind
from hetjax.sweep.progress import Callback
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.spec import AXIS_FORMS, Spec, parse_spec, read_text
from hetjax.sweep.state import all_blocks, block_region
from hetjax.sweep.stored import with_stored_points

if TYPE_CHECKING:
    import xarray

MEMORY_BYTES = 2 << 30  # larger results belong on disk


class Sweep:
    """A model evaluated on a grid or table of parameters: describe it, :meth:`plan` it, :meth:`run` it to disk.

    ``model``: a name, ``"package.module:ATTRIBUTE"`` or a Model. ``axes``: name -> numbers (list, range, array), or a
    mapping as in the TOML form (``{"linspace": [0, 1, 5], "where": "q < r"}``). ``metrics``: names (default: all
    inexpensive ones of the model). ``grad``: ``{"of": [...], "wrt": [...]}``, or a list of parameters to differentiate
    all metrics with respect to. ``const``, ``derived``, ``zip``, ``design`` (a table of points beside or instead of
    axes), ``optimize`` (what to minimise at every point): as in the TOML form. Results have the dtype ``dtype``.

    Errors are SpecError, a ValueError: key, value, domain and remedy in one line.

    >>> import hetjax
    >>> hetjax.enable_x64()
    >>> sweep = hetjax.Sweep("stalling", axes={"q": [0.5, 0.7], "K": range(4)}, metrics=["mean_number"],
    ...                      const={"r": 10.0, "M": 5, "m": 2, "n": 1})
    >>> sweep.run_in_memory().mean_number.shape
    (2, 4)
    """

    def __init__(self, model: str | Model, axes: Mapping[str, Any] | None = None, *, metrics: Sequence[str] = (),
                 grad: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
                 const: Mapping[str, float] | None = None, derived: Mapping[str, str] | None = None,
                 zip: Mapping[str, Sequence[str]] | None = None, design: Mapping[str, Any] | None = None,
                 dtype: str = "float64", title: str = "", plot: Any = None,
                 run: Mapping[str, int | str] | None = None, optimize: Mapping[str, Any] | None = None,
                 inner_batch: int | None = None, block_points: int | None = None) -> None:
        axes = {} if axes is None else axes
        for what, table in (("axes", axes), ("const", const or {}), ("derived", derived or {}), ("zip", zip or {}),
                            ("design", design or {}), ("optimize", optimize or {})):
            if not isinstance(table, Mapping):
                raise SpecError(f"{what} = {show(table)} is no mapping; give one of names, like {what}={{'q': ...}}")
        for what, names in (("metrics", metrics), ("grad", grad if grad is not None else ())):
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise SpecError(f"{what} = {show(names)} is no list of names; write {what}=[...]")
        name = model.name if isinstance(model, Model) else model
        sweep: dict[str, Any] = {"model": name, "metrics": list(metrics), "dtype": dtype, "title": title}
        if grad is not None:
            asked = grad if isinstance(grad, Mapping) else {"wrt": grad}
            sweep["grad"] = {key: _listed(names) for key, names in asked.items()}
        sweep |= {key: value for key, value in
                  (("inner_batch", _scalar(inner_batch)), ("block_points", _scalar(block_points))) if value is not None}
        raw = {"sweep": sweep, "axes": {name: _axis_table(name, value) for name, value in axes.items()},
               "const": {k: _scalar(v) for k, v in (const or {}).items()}, "derived": dict(derived or {}),
               "zip": {k: _listed(v) for k, v in (zip or {}).items()}, "plot": plot or {}, "run": run or {}}
        if design is not None:
            raw["design"] = {key: _design_entry(value) for key, value in design.items()}
        if optimize is not None:
            raw["optimize"] = dict(optimize)
        self._set(bind(Spec.from_dict(raw), model if isinstance(model, Model) else None), None)

    def _set(self, problem: Problem, text: str | None) -> None:
        self.problem = problem
        self.text = text

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], model: Model | None = None) -> "Sweep":
        """The sweep that a TOML file describes (``model`` replaces a look-up of its name)."""
        return cls.from_text(read_text(path), str(path), model)

    @classmethod
    def from_text(cls, text: str, source: str = "spec", model: Model | None = None) -> "Sweep":
        """The sweep that TOML ``text`` describes; messages begin with ``source``."""
        sweep = cls.__new__(cls)
        spec = parse_spec(text, source)
        try:
            sweep._set(bind(spec, model), text)
        except SpecError as error:
            raise SpecError(f"{source}: {error}") from None
        return sweep

    @property
    def spec(self) -> Spec:
        """The checked specification, with the model's defaults filled in."""
        return self.problem.spec

    @property
    def spec_hash(self) -> str:
        """sha256 over everything that decides the results."""
        return self.problem.spec_hash

    def plan(self, *, devices: int | None = None, block_points: int | None = None, inner_batch: int | None = None,
             calibrate: bool = True) -> Plan:
        """Points, blocks, bytes, compilations and (``calibrate``) expected time; writes nothing."""
        return make_plan(self.problem, devices, block_points, inner_batch, calibrate)

    def run(self, path: str | os.PathLike[str], *, resume: Literal["auto", "must"] | None = None,
            overwrite: bool = False, progress: bool | Callback = False, devices: int | None = None,
            inner_batch: int | None = None, block_points: int | None = None, allow_drift: bool = False,
            verify: Literal["fast", "full"] = "fast", shard: tuple[int, int] | None = None,
            executor: str | None = None) -> "xarray.Dataset":
        """Computes the sweep to a store at ``path`` (memory use does not grow with it) and opens it.

        ``resume``: "auto" continues a store or starts one, "must" only continues. ``progress``: True for a bar, or a
        function of a :class:`hetjax.sweep.progress.Report`. Ctrl-C finishes the block being written and raises
        SweepInterrupted; a second one stops at once. Either way ``resume="auto"`` continues. ``verify``, ``shard`` and
        ``executor`` as in :class:`hetjax.sweep.RunOptions`; the store of a shard is opened as far as it is.
        """
        from hetjax.sweep.reader import open_sweep

        if resume is not None:
            self.problem = with_stored_points(self.problem, path)
        run_sweep(self.problem, path, RunOptions(resume, overwrite, devices, inner_batch, block_points, allow_drift,
                                                 progress, self.text, verify=verify, shard=shard, executor=executor))
        return open_sweep(path, allow_incomplete=shard is not None)

    def run_in_memory(self, *, devices: int | None = None, inner_batch: int | None = None,
                      mask: bool = True) -> "xarray.Dataset":
        """The whole sweep as a Dataset in memory, like :meth:`run` and ``open_sweep`` without the disk (up to 2 GB)."""
        from hetjax.sweep.reader import to_dataset

        problem = self.problem
        size = problem.spec.points * (problem.itemsize * len(problem.arrays) + 1)
        if size > MEMORY_BYTES:
            raise SpecError(f"{problem.spec.points} points need {size / 1e9:.1f} GB; write them to disk: .run(path)")
        chosen = choose_devices(devices)
        batch = choose_inner_batch(problem, inner_batch, chosen[0].platform)
        shape = block_shape_for(problem, target_points(problem, None))
        kernel = Kernel(problem, shape, batch, chosen)
        arrays = {name: np.empty(problem.spec.shape, np.uint8 if name == "status" else problem.spec.dtype)
                  for name in (*problem.arrays, "status")}
        for block in all_blocks(problem.spec.shape, shape):
            found = kernel.fetch(block, kernel.dispatch(block))
            region = block_region(block, problem.spec.shape, shape)
            for name, array in arrays.items():
                array[region] = found[name]
        return to_dataset(problem, arrays, mask)


def _axis_table(name: str, value: Any) -> Any:
    """One axis in the TOML form."""
    if isinstance(value, Mapping):
        return {key: _numbers(v) if key in AXIS_FORMS else v for key, v in value.items()}
    if getattr(value, "ndim", 0) == 1:  # of numpy, JAX, pandas, xarray
        value = np.asarray(value)
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise SpecError(f"axis {name!r} = {show(value)} is no list of numbers; a single value belongs in const")
    return {"values": _numbers(value)}


def _design_entry(value: Any) -> Any:
    """One entry of ``design`` in the TOML form: columns of numbers, bounds, names, a number."""
    if isinstance(value, Mapping) or hasattr(value, "columns"):  # also a table of pandas
        return {name: _numbers(np.asarray(column) if getattr(column, "ndim", 0) == 1 else column)
                for name, column in value.items()}
    return _scalar(value)


def _numbers(values: Any) -> Any:
    """Plain Python numbers of a list, range or 1-D array; whole numbers stay whole."""
    if isinstance(values, np.ndarray):
        return values.tolist()
    return [_scalar(v) for v in values] if isinstance(values, Sequence) and not isinstance(values, str) else values


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) or getattr(value, "ndim", None) == 0 else value


def _listed(value: Any) -> Any:
    """A list of names as TOML would give it; anything else is left for the check of the specification to refuse."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
