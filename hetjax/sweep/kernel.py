"""The jitted kernel: a block of the grid from its corner, on all devices of one host.

No grid array exists: inside the kernel a point's number within its block becomes grid indices (a mixed-radix split with
the block shape as compile-time radices) and each parameter is one gather from its 1-D axis. Points go through the
model in batches of one fixed size (``inner_batch``), each vectorised, so that a point's result does not depend on the
block or the device it was computed in. Blocks are padded with their last points to a whole number of batches.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from hetjax.config import x64_enabled
from hetjax.models.registry import inside
from hetjax.result import Status
from hetjax.sweep.errors import SpecError, SweepError, show
from hetjax.sweep.problem import Problem, Signature, gradient_name

MAX_POINTS = 1 << 27  # of a block or a batch: a chunk of float64 is 1 GB then, and compressors end at 2 GB
Results = dict[str, jax.Array]
_started_in: list[int] = []  # the process in which the devices were first used


def default_inner_batch(problem: Problem, platform: str) -> int:
    """Points of one vectorised batch: on a CPU their work arrays fit its first-level cache; a GPU wants many."""
    if problem.spec.optimize is not None:
        return 64 if platform == "cpu" else 1 << 12  # points wait for the slowest of their batch
    if platform == "cpu":
        if problem.model.inner_batch is not None:
            return problem.model.inner_batch
        return 64 if problem.spec.dtype == "float64" else 128 if problem.gradients else 512
    return 1 << 14 if problem.gradients else 1 << 17


def choose_inner_batch(problem: Problem, asked: int | None, platform: str) -> int:
    """The inner batch as asked for, else that of the specification, else the default; SpecError for a bad one."""
    batch = problem.spec.inner_batch if asked is None else asked
    batch = default_inner_batch(problem, platform) if batch is None else batch
    check_size("inner_batch", batch)
    return batch


def require_grid(problem: Problem) -> None:
    """Raises SpecError for a specification without axes, which describes one point."""
    if not problem.spec.dims:
        raise SpecError("there are no axes: one point needs no store; give it to hetjax optimize without --out, or add"
                        " an axis")


def require_precision(dtype: str) -> None:
    """Raises SpecError if this process cannot make arrays of ``dtype``."""
    if dtype == "float64" and not x64_enabled():
        raise SpecError("dtype = 'float64' needs 64-bit floats, which are off in this process; call hetjax.enable_x64()"
                        " first or ask for dtype = 'float32'")


def choose_devices(count: int | None = None) -> list[jax.Device]:
    """The first ``count`` devices of this host (all by default)."""
    if _started_in and _started_in != [os.getpid()]:
        raise SweepError("this process was forked from one that had started JAX, and would hang; start workers with"
                         " multiprocessing.get_context('spawn')")
    devices = jax.local_devices()
    _started_in[:] = [os.getpid()]
    if count is None:
        return devices
    if not isinstance(count, int) or not 1 <= count <= len(devices):
        raise SpecError(f"{show(count)} devices were asked for, but this process has {len(devices)}; on a CPU their"
                        " number is fixed when JAX starts (jax_num_cpu_devices)")
    return devices[:count]


def vector_width(platform: str) -> int | None:
    """512 on a CPU with AVX-512, where XLA by default uses half of it; None elsewhere."""
    try:
        return 512 if platform == "cpu" and " avx512f " in Path("/proc/cpuinfo").read_text() else None
    except OSError:
        return None


def check_size(name: str, value: Any) -> None:
    """Raises SpecError unless ``value`` points can be computed, and stored in one chunk, at a time."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_POINTS:
        raise SpecError(f"{name} = {show(value)} must be a whole number in [1, {MAX_POINTS}]; give a smaller one")


class Kernel:
    """Computes blocks of a problem; one compilation for each signature (and block shape)."""

    def __init__(self, problem: Problem, block_shape: Sequence[int], inner_batch: int,
                 devices: Sequence[jax.Device]) -> None:
        require_grid(problem)
        require_precision(problem.spec.dtype)
        self.problem = problem
        self.block_shape = tuple(block_shape)
        self.inner_batch = inner_batch
        self.devices = list(devices)
        self.block_points = math.prod(self.block_shape)
        per_round = inner_batch * len(self.devices)
        self.rounds = -(-self.block_points // per_round)  # batches that each device computes for a block
        if self.rounds * per_round >= 2**31:
            raise SpecError(f"a block of {self.block_points} points is too large; give a smaller block_points")
        self._compiled: dict[Signature, Callable[..., Results]] = {}
        with np.errstate(over="ignore"):
            self._axes = {a.name: np.asarray(a.values, problem.spec.dtype) for a in problem.spec.axes}
        self._shapes = {} if problem.shapes == "static" else {
            name: v.astype(np.int32) for name, v in problem.signatures.items()}

    @property
    def compilations(self) -> int:
        """How many kernels were built."""
        return len(self._compiled)

    def dispatch(self, block: Sequence[int], rounds: int | None = None) -> Results:
        """Starts the block with the given chunk indices; returns arrays (flat, padded) that may not be ready yet.

        ``rounds``: so many of its batches on each device, at most all; other points stay pending.
        """
        corner = tuple(i * b for i, b in zip(block, self.block_shape, strict=True))
        signature = self.problem.signature(corner)
        if signature not in self._compiled:
            self._compiled[signature] = self._build(signature)
        rounds = self.rounds if rounds is None else min(rounds, self.rounds)
        return self._compiled[signature](np.asarray(corner, np.int32), np.int32(rounds), self._axes, self._shapes)

    def fetch(self, block: Sequence[int], results: Results) -> dict[str, np.ndarray]:
        """The finished arrays of a block in its box shape (edge blocks are cut to the grid)."""
        box = tuple(slice(0, min(b, s - i * b)) for i, b, s in
                    zip(block, self.block_shape, self.problem.spec.shape, strict=True))
        return {name: np.asarray(array)[:self.block_points].reshape(self.block_shape)[box]
                for name, array in results.items()}

    def _build(self, signature: Signature) -> Callable[..., Results]:
        evaluate = point_function(self.problem, dict(signature))
        shape, sizes, batch = self.block_shape, self.problem.spec.shape, self.inner_batch

        def locate(number: jax.Array, corner: jax.Array) -> list[jax.Array]:
            index: list[jax.Array] = []
            for d in reversed(range(len(shape))):  # static radices: the compiler turns these divisions into products
                within = number % shape[d] if shape[d] > 1 else jnp.zeros_like(number)
                number = number // shape[d] if shape[d] > 1 else number
                index.append(jnp.minimum(corner[d] + within, sizes[d] - 1))
            return index[::-1]

        def device_part(corner: jax.Array, rounds: jax.Array, axes: dict[str, jax.Array],
                        shapes: dict[str, jax.Array]) -> Results:
            first = jax.lax.axis_index("points") * (self.rounds * batch)

            def one_batch(start: jax.Array) -> Results:
                number = jnp.minimum(start + jnp.arange(batch, dtype=jnp.int32), self.block_points - 1)
                # without the barrier a parameter that is constant in the block would be computed with as a scalar,
                # and that may round differently
                index = jax.lax.optimization_barrier(locate(number, corner))
                return jax.vmap(lambda at: evaluate(at, axes, shapes))(index)

            def step(i: jax.Array, out: Results) -> Results:
                found = one_batch(first + i * batch)
                check_results(self.problem, found)
                return {name: jax.lax.dynamic_update_slice(out[name], found[name], (i * batch,)) for name in out}

            empty = {name: jnp.zeros(self.rounds * batch, self.problem.spec.dtype) for name in self.problem.arrays}
            empty["status"] = jnp.zeros(self.rounds * batch, jnp.uint8)
            # the number of rounds is traced: the compiler would dissolve a loop of one, and round differently
            return jax.lax.fori_loop(0, rounds, step, empty)

        mesh = Mesh(np.array(self.devices), ("points",))
        whole = jax.shard_map(device_part, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec("points"),
                              check_vma=False)
        width = vector_width(self.devices[0].platform)
        options = {"xla_cpu_prefer_vector_width": width} if width else None
        return jax.jit(whole, compiler_options=options)


def point_function(problem: Problem, static: Mapping[str, int]) -> Callable[..., Results]:
    """``evaluate(index, axes, shapes) -> {array name: scalar, "status": uint8}`` for one point at grid ``index``."""
    spec, model = problem.spec, problem.model
    dtype = jnp.dtype(spec.dtype)
    bounds = problem.bounds
    place = {name: d for d, dim in enumerate(spec.dims) for name in dim.axes}
    metrics = {name: model.metric(name) for name in spec.metrics}
    conditions = [axis.where for axis in spec.axes if axis.where]
    others = tuple(name for name in spec.metrics if name not in spec.grad_of)

    def evaluate(index: list[jax.Array], axes: dict[str, jax.Array], shapes: dict[str, jax.Array]) -> Results:
        inputs = {name: jnp.asarray(value, dtype) for name, value in problem.const.items()}
        inputs |= {name: _gather(values, (index[place[name]],)) for name, values in axes.items()}
        traced = {name: _gather(v, tuple(index[d] for d in problem.shape_dims)) for name, v in shapes.items()}

        def derive(wrt: dict[str, jax.Array]) -> dict[str, jax.Array]:
            values = inputs | wrt
            for name, expression in spec.derived.items():
                values[name] = jnp.asarray(expression(jnp, values, dtype), dtype)
            return values

        def run(wrt: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], tuple[dict[str, jax.Array], jax.Array]]:
            values = derive(wrt)
            point = {axis.name: values[axis.name] for axis in model.axes if not axis.shape} | traced | dict(static)
            results, status = model.point(point, spec.metrics, bounds)
            return {n: results[n] for n in spec.grad_of}, ({n: results[n] for n in others}, status)

        wrt = {name: inputs[name] for name in spec.grad_wrt}
        asked, (rest, status), slopes = _differentiate(run, wrt, spec.grad_of)
        found = {name: (asked | rest)[name] for name in spec.metrics}
        values = derive({})
        wanted = jnp.asarray(True)
        for condition in conditions:
            wanted &= condition(jnp, values, dtype)
        legal = inside(model.axes, values)
        return _with_status(found, slopes, status, legal, wanted, {n for n, m in metrics.items() if m.undefined_where})

    return evaluate


def _gather(array: jax.Array, index: tuple[jax.Array, ...]) -> jax.Array:
    return array.at[index].get(mode="promise_in_bounds") if index else array


def _differentiate(run: Callable[..., Any], wrt: dict[str, jax.Array], of: tuple[str, ...],
                   ) -> tuple[dict[str, jax.Array], Any, dict[str, jax.Array]]:
    """Values, the rest, all derivatives: a reverse pass a metric or a forward pass a parameter, whichever is fewer."""
    if not of:
        asked, rest = run(wrt)
        return asked, rest, {}
    if len(of) < len(wrt):
        asked, pullback, rest = jax.vjp(run, wrt, has_aux=True)
        rows = {name: pullback({n: jnp.ones_like(v) if n == name else jnp.zeros_like(v) for n, v in asked.items()})[0]
                for name in of}
        return asked, rest, {gradient_name(m, p): rows[m][p] for m in of for p in wrt}
    names = tuple(wrt)

    def forward(direction: jax.Array) -> Any:
        tangent = {name: direction[i] for i, name in enumerate(names)}
        return jax.jvp(run, (wrt,), (tangent,), has_aux=True)

    basis = jnp.eye(len(names), dtype=wrt[names[0]].dtype)
    asked, tangents, rest = jax.vmap(forward, out_axes=(None, 0, None))(basis)
    return asked, rest, {gradient_name(m, p): tangents[m][i] for m in of for i, p in enumerate(names)}


def _with_status(found: Results, slopes: Results, status: jax.Array, inside: jax.Array, wanted: jax.Array,
                 may_be_nan: set[str]) -> Results:
    """The results with one bit pattern for NaN, none where nothing is wanted or defined, and the point's code."""
    good = jnp.asarray(True)
    good_slopes = jnp.asarray(True)
    for name, value in found.items():
        undefined = jnp.isnan(value) if name in may_be_nan else jnp.asarray(False)
        good &= jnp.isfinite(value) | undefined
        for slope in (v for k, v in slopes.items() if k.startswith(gradient_name(name, ""))):
            good_slopes &= jnp.isfinite(slope) | undefined

    def code(which: Status) -> jax.Array:
        return jnp.asarray(which, jnp.uint8)

    ok = status == code(Status.OK)
    status = jnp.where(ok & ~good_slopes, code(Status.GRAD_NONFINITE), status)
    status = jnp.where(ok & ~good, code(Status.NONFINITE), status)
    status = jnp.where(inside, status, code(Status.OUT_OF_DOMAIN))
    status = jnp.where(wanted, status, code(Status.MASKED))
    # 0 means "not computed" in a store, so no model may return it
    status = jnp.where(status == code(Status.PENDING), code(Status.ERROR), status)
    keep = inside & wanted
    results = {name: jnp.where(keep & ~jnp.isnan(value), value, jnp.asarray(jnp.nan, value.dtype))
               for name, value in (found | slopes).items()}
    return results | {"status": status}


def check_results(problem: Problem, arrays: Mapping[str, Any]) -> None:
    """Raises SweepError if a model returned other names or types than it declares."""
    for name in problem.arrays:
        if name not in arrays or arrays[name].dtype != np.dtype(problem.spec.dtype):
            found = arrays[name].dtype if name in arrays else "nothing"
            raise SweepError(f"model {problem.spec.model!r} returned {found} for {name!r}, not {problem.spec.dtype}")
    if arrays["status"].dtype != np.uint8:
        raise SweepError(f"model {problem.spec.model!r} returned a status of type {arrays['status'].dtype}, not uint8")
