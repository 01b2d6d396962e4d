"""The kernel: values, derivatives, statuses, masks, compilations, and bits that do not depend on the cutting."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from in_blocks import compute
from toy_models import TOY

import hetjax
from hetjax import Status, Sweep
from hetjax.sweep.kernel import choose_devices
from hetjax.sweep.plan import block_shape_for, lay_out

AXES = {"m": [1, 3], "x": {"linspace": [0.5, 10.5, 21]}, "y": {"linspace": [-5.5, 5.0, 22]}, "K": [0, 1, math.inf]}


def one_by_one(sweep):
    """Values and statuses of every point by plain, un-batched evaluation."""
    spec = sweep.spec
    metrics = {name: np.zeros(spec.shape) for name in spec.metrics}
    status = np.zeros(spec.shape, np.uint8)
    step = jax.jit(lambda m, x, y, K: TOY.point(
        {"m": m, "n": 0, "x": x, "y": y, "K": K, "scale": jnp.float64(1)}, spec.metrics, {"m": 3}))
    for index in np.ndindex(spec.shape):
        values = [axis.values[i] for axis, i in zip(spec.axes, index, strict=True)]
        found, code = step(jnp.int32(values[0]), *map(jnp.float64, values[1:]))
        for name in metrics:
            metrics[name][index] = found[name]
        status[index] = code
    return metrics, status


def test_values_and_statuses_agree_with_single_points():
    sweep = Sweep(TOY, AXES, metrics=["total", "root"])
    arrays, _ = compute(sweep, 500)
    metrics, status = one_by_one(sweep)
    _, x, y, _ = np.meshgrid(*(axis.values for axis in sweep.spec.axes), indexing="ij")
    outside = (x >= 10) | (y < -5)
    expected = np.where(x == 9.0, Status.NONFINITE, status)
    expected = np.where(outside, Status.OUT_OF_DOMAIN, np.where(x + y > 12, Status.UNSTABLE, expected))
    assert np.array_equal(arrays["status"], expected)
    assert {int(code) for code in np.unique(expected)} == {1, 3, 5, 8}, "the example shows every case"
    for name in metrics:
        assert np.all(np.isnan(arrays[name][outside]))
        # other batch sizes round the sum of a few terms differently
        np.testing.assert_allclose(arrays[name][~outside], metrics[name][~outside], rtol=1e-14)
    undefined = (y < 0) & ~outside & (x != 9.0)
    assert np.all(np.isnan(arrays["root"][undefined])) and np.all(arrays["status"][undefined] == Status.OK)


@pytest.mark.parametrize(("of", "wrt"), [(["total"], ["x", "y", "scale"]), (["total", "root"], ["x"]),
                                         (["total", "root"], ["x", "y"]), (["total"], ["scale"])])
def test_derivatives_in_both_modes(of, wrt):
    axes = {"m": [1, 3], "x": {"linspace": [0.5, 9.5, 10]}, "y": {"linspace": [-5.0, 5.0, 21]}}
    sweep = Sweep(TOY, axes, metrics=["total", "root", "bump"], grad={"of": of, "wrt": wrt},
                  const={"K": 2, "scale": 1.5})
    arrays, _ = compute(sweep, 100)
    m, x, y = np.meshgrid(*(axis.values for axis in sweep.spec.axes), indexing="ij")
    geometric = np.where(m == 1, 1.0, 1 + x + x * x)
    terms = np.where(m == 1, x, x + x * x / 2 + x**3 / 3)
    # the toy's small extra terms: 1e-9 / |x - 9| and 1e-8 sqrt|y - 2.5|
    exact = {"d_total__d_x": 1.5 * geometric - 1e-9 * np.sign(x - 9) / (x - 9) ** 2,
             "d_total__d_scale": terms}
    with np.errstate(divide="ignore", invalid="ignore"):
        exact |= {"d_total__d_y": 0.5e-8 * np.sign(y - 2.5) / np.sqrt(np.abs(y - 2.5)),
                  "d_root__d_x": 0.5 * np.sqrt(y / x), "d_root__d_y": 0.5 * np.sqrt(x / y)}
    ok = arrays["status"] == Status.OK
    for metric in of:
        for parameter in wrt:
            name = f"d_{metric}__d_{parameter}"
            compared = ok & (y > 0) if metric == "root" else ok
            np.testing.assert_allclose(arrays[name][compared], exact[name][compared], rtol=2e-14)
    if "y" in wrt:
        assert np.all(arrays["status"][(y == 2.5) & (x != 9.0) & (x + y <= 12)] == Status.GRAD_NONFINITE)
        assert np.all(np.isfinite(arrays["total"][arrays["status"] == Status.GRAD_NONFINITE]))


def test_derived_parameters_differentiate_through():
    sweep = Sweep(TOY, {"rho": [0.5, 0.8], "y": [1.0, 2.0]}, metrics=["bump"], grad=["rho", "y"],
                  derived={"lam": "rho * m * mu", "x": "lam ** 2"}, const={"K": 0, "m": 2, "mu": 1.5})
    found = sweep.run_in_memory()
    slope = 2 * found.rho * (2 * 1.5) ** 2 * np.exp(-found.y**2)
    np.testing.assert_allclose(found["d_bump__d_rho"], slope, rtol=1e-14)


def test_where_masks_are_evaluated_with_all_names():
    sweep = Sweep(TOY, {"x": [1.0, 2.0, 3.0], "K": {"range": [0, 5], "where": "K <= 2 * lam and not K == 1"}},
                  metrics=["bump"], derived={"lam": "x - 1"}, const={"y": 0, "m": 1})
    found = sweep.run_in_memory(mask=False)
    kept = (found.K <= 2 * (found.x - 1)) & (found.K != 1)
    assert np.array_equal(found.status == Status.OK, kept.transpose("x", "K"))
    assert np.array_equal(found.status == Status.MASKED, ~kept.transpose("x", "K"))
    assert np.array_equal(np.isnan(found.bump), ~kept.transpose("x", "K"))


@pytest.mark.parametrize("grad", [None, {"of": ["total"], "wrt": ["x", "y"]}])
def test_bits_do_not_depend_on_the_block_shape(grad):
    sweep = Sweep(TOY, {name: AXES[name] for name in "xyK"}, metrics=["total", "root"], grad=grad, const={"m": 3})
    reference, _ = compute(sweep, 10**9)
    for block_points in (5, 66, 1000):
        arrays, _ = compute(sweep, block_points)
        for name, values in reference.items():
            assert values.tobytes() == arrays[name].tobytes(), (name, block_points)


def test_one_compilation_for_each_signature():
    traces = []

    def counted(values, metrics, bounds):
        traces.append((values["m"], values["n"]))
        return TOY.point(values, metrics, bounds)

    from dataclasses import replace
    model = replace(TOY, point=counted)
    sweep = Sweep(model, AXES | {"n": [0, 1]}, metrics=["total"])
    _, kernel = compute(sweep, 100)
    assert kernel.compilations == 4
    assert sorted(traces) == [(1, 0), (1, 1), (3, 0), (3, 1)]
    traces.clear()
    _, kernel = compute(Sweep(model, AXES | {"m": range(1, 10)}, metrics=["total"]), 100)
    assert kernel.compilations == 1 and len(traces) == 1


def test_masked_shapes_agree_with_static_ones():
    axes = AXES | {"m": range(1, 10)}
    masked = Sweep(TOY, axes, metrics=["total"], grad=["x"], const={"n": 2})
    static = Sweep(TOY, axes | {"m": {"range": [1, 9], "static": True}}, metrics=["total"], grad=["x"], const={"n": 2})
    assert masked.problem.shapes == "masked" and static.problem.shapes == "static"
    a, b = masked.run_in_memory(mask=False), static.run_in_memory(mask=False)
    assert np.array_equal(a.status, b.status)
    for name in ("total", "d_total__d_x"):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-13)  # sums in another order


def test_many_shapes_are_compiled_for_where_points_are_many():
    axes = {"m": range(1, 10), "x": {"linspace": [1, 2, 4096]}, "y": {"linspace": [0, 1, 4096]}}
    assert Sweep(TOY, axes, metrics=["total"], const={"K": 0}).problem.shapes == "static"
    axes["y"] = {"linspace": [0, 1, 4095]}
    problem = Sweep(TOY, axes, metrics=["total"], const={"K": 0}).problem
    assert problem.shapes == "masked" and len(problem.distinct_signatures()) == 1


def test_float32_in_a_64_bit_process():
    double = Sweep(TOY, AXES, metrics=["total"], grad=["x"]).run_in_memory(mask=False)
    single = Sweep(TOY, AXES, metrics=["total"], grad=["x"], dtype="float32").run_in_memory(mask=False)
    assert single.total.dtype == np.float32 and single["d_total__d_x"].dtype == np.float32
    good = (double.status == 1) & (single.status == 1)
    np.testing.assert_allclose(single.total.where(good), double.total.where(good), rtol=1e-6)
    with pytest.raises(ValueError, match="range of float32"):
        Sweep(TOY, {"x": [1.0, 1e300]}, metrics=["bump"], const={"y": 0, "m": 1, "K": 0},
              dtype="float32").run_in_memory()


def test_float64_without_x64_is_refused_with_the_remedy():
    sweep = Sweep(TOY, AXES, metrics=["total"])
    hetjax.enable_x64(False)
    try:
        with pytest.raises(ValueError, match=r"hetjax\.enable_x64\(\)"):
            sweep.run_in_memory()
        with pytest.raises(ValueError, match=r"hetjax\.enable_x64\(\)"):
            sweep.plan()
    finally:
        hetjax.enable_x64()


def test_blocks_follow_the_rule():
    wide = Sweep(TOY, {"m": [1, 2], "x": {"linspace": [1, 2, 1000]}, "K": {"range": [0, 999]},
                       "y": {"linspace": [0, 1, 100]}}, metrics=["total"]).problem
    shape = block_shape_for(wide, 1 << 20)
    assert shape == (1, 10, 1000, 100), "whole trailing dimensions, equal parts of the next, one static value"
    from hetjax.sweep.plan import BLOCK_BYTES, CHUNK_BYTES, target_points
    assert target_points(wide, None) == CHUNK_BYTES // 8
    assert target_points(wide, 1e5) == 1 << 17, "a second of computing, rounded up to a power of two"
    many = Sweep(TOY, AXES, metrics=["total", "root", "bump"], grad=["x", "y", "K"]).problem
    assert target_points(many, None) == BLOCK_BYTES // (12 * 8 + 1)
    with pytest.raises(ValueError, match="give a larger block_points"):
        lay_out(wide, 64, choose_devices(), block_points=1)


def test_plan_counts_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    axes = AXES | {"K": {"range": [0, 9], "where": "K < x"}}
    plan = Sweep(TOY, axes, metrics=["total"], grad=["x"]).plan(block_points=500)
    assert plan.points == 2 * 21 * 22 * 10 and plan.compilations == 2
    assert plan.block_shape == (1, 2, 22, 10) and plan.blocks == 2 * 11
    assert plan.bytes == plan.points * (2 * 8 + 1)
    assert plan.seconds > 0 and plan.points_per_second > 0
    x = np.linspace(0.5, 10.5, 21)
    assert plan.wanted_fraction == pytest.approx(np.mean(np.arange(10)[None] < x[:, None]), abs=1e-12)
    assert "inner_batch" in str(plan) or "inner batch" in str(plan)
    assert list(tmp_path.iterdir()) == []
