"""The studies of tails and of N queues, in small: plotted numbers against formulas and chains written out here."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from models.supermarket.supermarket_oracle import levels as oracle_levels

from hetjax import Sweep
from hetjax.models.supermarket import finite_model
from hetjax.plot import draw

SWEEPS = Path(__file__).parents[3] / "sweeps"


def figure_of(name, **axes):
    raw = tomllib.loads((SWEEPS / f"{name}.toml").read_text())
    spec = raw["sweep"]
    sweep = Sweep(spec["model"], {k: list(axes[k]) if k in axes else v for k, v in raw["axes"].items()},
                  metrics=spec["metrics"], const=raw["const"], zip=raw.get("zip"), title=spec["title"],
                  inner_batch=spec.get("inner_batch"))
    panels = [ax for ax in draw(sweep.run_in_memory(), raw["plot"][0]).axes if ax.get_label() != "<colorbar>"]
    return [[np.asarray(line.get_ydata(), float) for line in ax.lines if (line.get_gid() or "").startswith("line")]
            for ax in panels]


def test_published_and_correct_tails():
    """Mean field: the recursion in many digits. Formula (41), written out: E2 gives the exponential tail, H2 and MMPP
    the powers of theta and omega."""
    E2, H2, mmpp = figure_of("supermarket_published", level=[1, 2, 3, 4])
    k, rho = np.arange(1, 5), 0.7
    small = 0.5 * (1 - np.sqrt(1 / 3))
    laws = (([1.0, 0.0], [[-2.0, 2.0], [0.0, -2.0]]), ([small, 1 - small], np.diag([-2 * small, -2 * (1 - small)])),
            ([1.0], [[-1.0]]))
    grown, exponent = 2.0**k, 2.0**k - 1
    omega = 1 / (np.sqrt(small) + np.sqrt(1 - small))
    theta = 1 / np.sqrt(2.0)
    printed = (rho**exponent, (omega * rho) ** exponent / omega, theta ** grown * (theta * rho) ** exponent / theta)
    for (shown, formula), (alpha, T), known in zip((E2, H2, mmpp), laws, printed, strict=True):
        exact = [sum(float(x) for x in s) for s in oracle_levels(rho, 2, alpha, np.asarray(T).tolist(), digits=25,
                                                                small="1e-20", most=4)]
        np.testing.assert_allclose(shown, exact, rtol=1e-11)
        # pi_0 is theta and 1, and one factor theta of each level belongs to gamma^(1/d) e = 1/theta
        np.testing.assert_allclose(formula, known, rtol=1e-11)


def test_doubly_exponential_tails():
    """Exponential service: -log u_k = -log(rho) (d^k - 1)/(d - 1), or -k log(rho) with one choice."""
    k = np.arange(1, 9)
    ((*lines,),) = figure_of("supermarket_tails", level=k, scv=[1.0])
    for line, d in zip(lines, (1, 2, 3, 5), strict=True):
        np.testing.assert_allclose(line, -np.log(0.9) * (k if d == 1 else (d**k - 1) / (d - 1)), rtol=1e-11)


@pytest.mark.slow
def test_finitely_many_queues(reference, monkeypatch):
    """Against the published refinement, to its digits, and the published simulations."""
    monkeypatch.setattr(finite_model, "EVENTS", 20_000)
    monkeypatch.setattr(finite_model, "WARMUP", 5_000)
    rows = {(r["rho"], r["N"]): r for r in reference("published")["supermarket_finite_N"]["rows"] if r["d"] == 2}
    panels = figure_of("supermarket_finite", N=[10, 20], arrival_rate=[0.7, 0.9])
    for rho, i, N in ((0.7, 0, 10), (0.9, 0, 10), (0.9, 1, 20)):
        row = rows[rho, N]
        refined, simulated = (row["mean_field"] * (1 + line[i]) for line in panels[0 if rho == 0.7 else 1])
        assert abs(refined - row["refined"]) < 1.2e-4  # the mean field is printed to four places too
        # four standard errors of 640,000 events, published ones included
        assert abs(simulated - row["simulation"]) < (0.0075 if rho == 0.7 else 0.09)
