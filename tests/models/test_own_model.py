"""The README's user model: its code as printed, swept to disk, against the balance equations and differences."""

import re
from pathlib import Path

import numpy as np

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PLACES = 60


def by_balance(arrival, service, patience, failure, repair):
    """Mean number and abandonment rate from a plain solve of the balance equations, states (customers, broken)."""
    Q = np.zeros((2 * PLACES + 2, 2 * PLACES + 2))
    for l in range(PLACES + 1):
        for broken in (0, 1):
            here = 2 * l + broken
            if l < PLACES:
                Q[here, here + 2] += arrival
            if l > 0:
                waiting = l - (1 - broken)
                Q[here, here - 2] += waiting / patience + (1 - broken) * service
            Q[here, 2 * l + 1 - broken] += repair if broken else failure
    Q -= np.diag(Q.sum(1))
    law = np.linalg.lstsq(np.vstack([Q.T, np.ones(len(Q))]), np.append(np.zeros(len(Q)), 1), rcond=None)[0]
    l, broken = np.divmod(np.arange(len(Q)), 2)
    return np.array([law @ l, law @ (np.maximum(l - (1 - broken), 0) / patience)])


def test_model_and_sweep_as_printed(tmp_path, monkeypatch, capsys):
    code = re.search(r"<!-- model: breakdowns.py -->\n```python\n(.*?)```.*?```python\n(.*?)```", README, re.DOTALL)
    model, use = code.groups()
    assert len(model.splitlines()) <= 25
    (tmp_path / "breakdowns.py").write_text(model)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(use, "README", "exec"), {})
    assert "d_mean_number__d_failure_rate" in capsys.readouterr().out

    from breakdowns import MODEL

    from hetjax import Status, evaluate, open_sweep

    found = open_sweep("breakdowns.zarr")
    assert dict(found.sizes) == {"arrival_rate": 40, "repair_rate": 31}
    assert found.mean_number.attrs["units"] == "customers"
    for i, k in ((0, 0), (17, 15), (39, 30), (39, 0)):
        at = found.isel(arrival_rate=i, repair_rate=k)
        arrival, repair = float(at.arrival_rate), float(at.repair_rate)
        exact = by_balance(arrival, 1.0, 10.0, 0.1, repair)
        np.testing.assert_allclose([at.mean_number, at.abandonment_rate], exact, rtol=1e-11)  # lstsq: 1e-16 cond(Q)
        h = 1e-4
        slopes = (by_balance(arrival, 1, 10, .1 + h, repair) - by_balance(arrival, 1, 10, .1 - h, repair)) / (2 * h)
        got = [at.d_mean_number__d_failure_rate, at.d_abandonment_rate__d_failure_rate]
        np.testing.assert_allclose(got, slopes, rtol=1e-5)  # h^2 of the differences
    rates = {"service_rate": 1.0, "failure_rate": 0.1, "repair_rate": 1.0, "patience": 10.0}
    one = evaluate(MODEL, arrival_rate=[0.8, -0.8, np.nan], **rates)
    assert one.status.tolist() == [Status.OK, Status.OUT_OF_DOMAIN, Status.OUT_OF_DOMAIN]  # the axes' domains
    np.testing.assert_allclose(one.mean_number[0], by_balance(0.8, 1.0, 10.0, 0.1, 1.0)[0], rtol=1e-11)
    assert np.isnan(one.mean_number[1:]).all()
