"""The built-in models through the whole engine: stores against direct evaluation, derivatives against differences."""

import numpy as np
import pytest

import hetjax
from hetjax import Status, Sweep, open_sweep


def test_stalling_through_the_store(tmp_path):
    axes = {"m": [1, 2, 5], "n": [1, 2, 3], "q": {"linspace": [0.1, 1.3, 13]}, "r": {"geom": [1.5, 100.0, 7]},
            "K": {"range": [1, 12]}, "M": {"values": [0, 5, np.inf]}}
    sweep = Sweep("stalling", axes, metrics=["mean_number"], grad=["q", "K"], zip={"size": ["m", "n"]},
                  block_points=1200, inner_batch=64)
    path = tmp_path / "grid.zarr"
    found = sweep.run(path)
    raw = open_sweep(path, mask=False)
    q, r, K, M = np.meshgrid(*(raw[name].values.astype(float) for name in ("q", "r", "K", "M")), indexing="ij")
    for i, (m, n) in enumerate([(1, 1), (2, 2), (5, 3)]):
        def direct(q, K, m=m, n=n):
            return hetjax.evaluate("stalling", q=q, r=r, K=K, M=M, m=m, n=n, metrics=["mean_number"])

        here, plain = found.isel(size=i), direct(q, K)
        status = np.asarray(plain["status"])
        assert np.array_equal(raw.status.isel(size=i), status)
        assert set(np.unique(status)) == {Status.OK, Status.UNSTABLE}, "an infinite line overflows at high load"
        ok = status == Status.OK
        # another batch size and other compiler options: a few roundings
        np.testing.assert_allclose(here.mean_number.values[ok], np.asarray(plain["mean_number"])[ok], rtol=1e-13)
        for name in ("mean_number", "d_mean_number__d_q", "d_mean_number__d_K"):
            assert np.all(np.isnan(here[name].values[~ok]))
        step = 1e-5  # truncation and rounding of the central difference: about 1e-9 of values up to 100
        for name, low, high in (("q", direct(q - step, K), direct(q + step, K)),
                                ("K", direct(q, K - step), direct(q, K + step))):
            slope = (np.asarray(high["mean_number"]) - np.asarray(low["mean_number"])) / (2 * step)
            compared = ok & (np.asarray(high["status"]) == Status.OK)
            stored = here[f"d_mean_number__d_{name}"].values[compared]
            np.testing.assert_allclose(stored, slope[compared], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("count", [3, 10])
def test_overflow_in_memory(count):
    sweep = Sweep("overflow", {"lambda1": np.linspace(0.1, 2.0, count), "lambda2": [0.5, 1.0]},
                  const={"mu1": 1.0, "mu2": 2.0}, metrics=["p_loss"], grad=["lambda1"])
    found = sweep.run_in_memory()
    assert np.all(found.status == Status.OK) and np.all(np.diff(found.p_loss, axis=0) > 0)
    assert np.all(found["d_p_loss__d_lambda1"] > 0)
