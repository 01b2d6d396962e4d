"""The studies in sweeps/: each is run in small, and the numbers in its figures are compared with balance equations
solved here, with exact rationals, or with differences of such solutions."""

import math
import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hetjax import Sweep
from hetjax.plot import check_figures, draw

SWEEPS = Path(__file__).parent.parent / "sweeps"
STUDIES = sorted(path.stem for path in SWEEPS.glob("*.toml"))


def small(name, **axes):
    """The sweep file ``name`` with some axes replaced by the values given; its Dataset and its figures."""
    raw = tomllib.loads((SWEEPS / f"{name}.toml").read_text())
    spec = raw["sweep"]
    sweep = Sweep(spec["model"], {k: list(axes[k]) if k in axes else v for k, v in raw["axes"].items()},
                  metrics=spec["metrics"], grad=spec.get("grad"), const=raw.get("const"), derived=raw.get("derived"),
                  zip=raw.get("zip"), title=spec["title"], plot=raw["plot"], optimize=raw.get("optimize"))
    return sweep.run_in_memory(), raw["plot"]


def stationary(q, r, K, M, m, n):
    """The stalling queue's balance equations (mu1 = 1), solved densely: {(fast + stalled, slow busy, in line): p}."""
    top = m + K
    states = [(level, j, 0) for level in range(top + 1) for j in range(n + 1)] + [(top, n, w) for w in range(1, M + 1)]
    index = {state: i for i, state in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for level, j, w in states:
        here = index[level, j, w]

        def flow(rate, *to, here=here):
            if rate and to in index:
                rates[here, index[to]] += rate

        if w or (level == top and j == n):
            flow(q * m, top, n, w + 1)
        elif level == top:
            flow(q * m, top, j + 1, 0)
        else:
            flow(q * m, level + 1, j, 0)
        if w:
            flow(m + n / r, top, n, w - 1)
        else:
            flow(min(level, m), level - 1, j, 0)
            flow(j / r, level, j - 1, 0)
    balance = rates.T - np.diag(rates.sum(axis=1))
    balance[0] = 1.0
    p = np.linalg.solve(balance, np.eye(len(states))[0])
    return dict(zip(states, p, strict=True))


def mean_number(*point):
    """By :func:`stationary`."""
    return sum(p * sum(state) for state, p in stationary(*point).items())


def endless(q, r, m, n):
    """A waiting line so long that rho^M < 1e-16: M = inf for the balance equations."""
    return math.ceil(-37 / math.log(q / (1 + n / (m * r))))


def panels(figure):
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def lines_of(axes, gid="line"):
    return [line for line in axes.lines if (line.get_gid() or "").startswith(gid)]


def mesh_of(axes):
    return next(c for c in axes.collections if type(c).__name__ == "QuadMesh").get_array()


def test_quickstart_is_large_and_its_figure_shows_the_excess_over_the_best_buffer():
    plan = Sweep.from_toml(SWEEPS / "quickstart.toml").plan(calibrate=False)
    assert plan.points >= 2e7 and plan.blocks >= 20
    q, K = [0.3, 0.75, 0.9, 1.1], range(20)
    dataset, figures = small("quickstart", q=q, K=K, r=[10.0, 20.0], m=[1, 5], n=[1, 2])
    figures[0]["sel"]["K"] = "0:60"
    axes = panels(draw(dataset, figures[0]))
    assert [ax.get_title() for ax in axes] == ["m = 1, n = 1", "m = 5, n = 2"]
    for ax, (m, n) in zip(axes, ((1, 1), (5, 2)), strict=True):
        # at q = 1.1 there is no steady state with r = 20
        means = np.array([[mean_number(load, 20.0, k, endless(load, 20.0, m, n), m, n) for load in q[:3]] for k in K])
        expected = 100 * (means / means.min(axis=0) - 1)
        shown = mesh_of(ax)
        assert np.ma.getmaskarray(shown)[:, 3].all() and not np.ma.getmaskarray(shown)[:, :3].any()
        above = expected > 0.001  # below, the colour scale ends
        np.testing.assert_allclose(shown[:, :3][above], expected[above], rtol=1e-7)  # 1e-12 of N, as excess of 1e-5
        assert (shown[:, :3][~above] <= 0.001 * (1 + 1e-6)).all()
        best = np.asarray(lines_of(ax, "optimum")[0].get_ydata(), float)
        inner = means.argmin(axis=0) < K[-1]
        np.testing.assert_array_equal(best[:3][inner], means.argmin(axis=0)[inner])
        assert inner.any() and np.isnan(best[3])


def test_families_show_the_mean_number_and_its_minimum():
    K = range(16)
    dataset, figures = small("families", K=K, q=[0.5, 0.8], r=[2.0, 5.0])
    axes = panels(draw(dataset, figures[0]))
    assert len(axes) == 2
    for ax, q in zip(axes, (0.5, 0.8), strict=True):
        for line, mark, r in zip(lines_of(ax), lines_of(ax, "optimum"), (2.0, 5.0), strict=True):
            expected = [mean_number(q, r, k, endless(q, r, 5, 2), 5, 2) for k in K]
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-11)  # the dense solve's own error
            assert mark.get_xdata()[0] == np.argmin(expected)


def test_stuck_maps():
    q, r, K = [0.2, 0.5, 0.9], [2.0, 20.0, 500.0], [0, 5]
    dataset, figures = small("stuck", q=q, r=r, K=K)
    axes = panels(draw(dataset, figures[0]))
    assert len(axes) == 4
    for i, k in enumerate(K):
        for a, load in enumerate(q):
            for b, ratio in enumerate(r):
                law = stationary(load, ratio, k, 20, 5, 2)
                stuck = [law[0, j, 0] for j in (1, 2)]
                # 1e-16 is the dense solve's absolute error
                np.testing.assert_allclose(mesh_of(axes[i])[b, a], sum(stuck), rtol=1e-10, atol=1e-15)
                np.testing.assert_allclose(mesh_of(axes[2 + i])[b, a], stuck[0] + 2 * stuck[1], rtol=1e-10, atol=1e-15)


def test_gradient_maps():
    q, r = [0.5, 0.65, 0.8], [2.0, 8.0, 30.0]
    dataset, figures = small("gradients", q=q, r=r)
    axes = panels(draw(dataset, figures[0]))
    assert len(axes) == 3
    for a, load in enumerate(q):
        for b, ratio in enumerate(r):
            line = endless(load, ratio, 5, 2)

            def mean(step, which, point=(load, ratio, 10), line=line):
                changed = [x + step if i == which else x for i, x in enumerate(point)]
                return mean_number(*changed, line, 5, 2)

            for which, h in ((0, 1e-3), (1, 1e-2 * ratio)):
                slope = (8 * (mean(h, which) - mean(-h, which)) - mean(2 * h, which) + mean(-2 * h, which)) / (12 * h)
                # fourth-order differences: error h^4 of the fifth derivative, 1e-12 / h of rounding
                np.testing.assert_allclose(mesh_of(axes[which])[b, a], slope, rtol=2e-5, atol=1e-9)
            # N(K) is known here for whole K only: the derivative of the polynomial through 21 of them around K = 10
            # (which is off by 2e-5 at q = .5, r = 30)
            weights = [0.0 if s == 0 else (-1) ** (s + 1) / s * math.factorial(10) ** 2
                       / (math.factorial(10 - s) * math.factorial(10 + s)) for s in range(-10, 11)]
            slope = sum(w * mean(s, 2) for s, w in zip(range(-10, 11), weights, strict=True))
            np.testing.assert_allclose(mesh_of(axes[2])[b, a], slope, rtol=1e-4, atol=1e-9)


def test_cluster_table_and_lines(reference):
    published = reference("published")["stalling_table_2"]
    dataset, figures = small("cluster")
    texts = [text.get_text() for text in draw(dataset, figures[0]).axes[0].texts]
    rows = {texts[i]: texts[i + 1:i + 4] for i in range(0, len(texts), 4)}
    assert rows[""] == ["λ, µ as printed", "q, r as printed", "printed"]
    columns = []
    for q, r in ((0.58 / (5 * 0.146), 0.146 / 0.045), (0.75124, 6.959)):  # the printed rates, the consistent inputs
        law = stationary(q, r, 100, 10, 5, 2)
        columns.append({
            "mean_number": sum(p * sum(s) for s, p in law.items()), "p_empty": law[0, 0, 0],
            "mean_fast": sum(p * min(s[0], 5) for s, p in law.items()),
            "p_fast": sum(p for s, p in law.items() if s[0]), "mean_slow": sum(p * s[1] for s, p in law.items()),
            "p_stalling": sum(p for s, p in law.items() if s[0] > 5),
            "mean_stalled": sum(p * max(s[0] - 5, 0) for s, p in law.items())})
    order = figures[0]["y"]
    entries = dict(zip(order, list(rows.values())[1:], strict=True))
    for name in columns[0]:
        for shown, column in zip(entries[name], columns, strict=False):
            assert math.isclose(float(shown), column[name], rel_tol=6e-3, abs_tol=6e-5)  # 4 decimals, or 3 digits
        if name in published:
            assert float(entries[name][2]) == published[name]
            # the paper's rows agree to 2e-4: mean_fast = 5 q asks for q = .75122, mean_stalled for q = .75126
            assert abs(float(entries[name][1]) - published[name]) < 2.5e-4
    assert abs(float(entries["mean_number"][0]) - published["mean_number"]) > 0.9  # the printed rates do not give them
    axes = panels(draw(dataset, figures[1]))
    for ax, name in zip(axes, figures[1]["y"], strict=True):
        for line, column in zip(lines_of(ax), columns, strict=True):
            np.testing.assert_allclose(line.get_ydata()[-1], column[name], rtol=1e-9, atol=1e-13)
        if name in published:
            assert lines_of(ax, "reference")[0].get_ydata()[0] == published[name]


def test_forest_counts_chainsaws_exactly():
    load = [0.55, 30.05, 47.05, 50.05, 75.55, 100.05, 120.05]
    dataset, figures = small("forest", load=load)
    figure = draw(dataset, figures[0])
    raw = tomllib.loads((SWEEPS / "forest.toml").read_text())
    for ax, m in zip(panels(figure), (1, 2), strict=True):
        lines = lines_of(ax)
        assert len(lines) == 10
        for line, mu1, mu2 in zip(lines, raw["axes"]["mu1"]["values"], raw["axes"]["mu2"]["values"], strict=True):
            missing = [(Fraction(str(x)) - m * Fraction(str(mu1))) / Fraction(str(mu2)) for x in load]
            exact = [max(0, math.floor(servers) + 1) for servers in missing]
            np.testing.assert_array_equal(line.get_ydata(), [k if k <= 60 else np.nan for k in exact])
        # the two stated points lie on the line of trees of .4 cubic metres
        (point,) = lines_of(ax, "reference")
        assert (point.get_xdata()[0], point.get_ydata()[0]) == (50 * m, 10 * m)
        assert lines[3].get_ydata()[load.index({1: 50.05, 2: 100.05}[m])] == 10 * m
    # no load of the file is a sum of service rates: rounding cannot decide the status of a point
    first, last, count = raw["axes"]["load"]["linspace"]
    step = (Fraction(str(last)) - Fraction(str(first))) / (count - 1)
    loads = [Fraction(str(first)) + k * step for k in range(count)]
    assert all((x * 10) % 1 == Fraction(1, 2) for x in loads)


def test_best_buffers_and_the_errors_of_the_asymptotes():
    """Theorem A2 (i) and (ii) have an oracle of their own in test_stalling_buffer.py; here the optimum is."""
    q, r = [0.7, 0.9], [3.0, 20.0]
    dataset, figures = small("optimal_buffer", q=q, r=r)
    (best,), errors = (panels(draw(dataset, figure)) for figure in figures)
    for a, load in enumerate(q):
        for b, ratio in enumerate(r):
            line = endless(load, ratio, 5, 2)
            means = [mean_number(load, ratio, K, line, 5, 2) for K in range(60)]
            K = int(np.argmin(means))
            assert mesh_of(best)[b, a] == max(K, 1)  # the logarithmic scale begins at 1
            if load < 0.8:  # 59 places: q^59 = 7e-10 of never using the slow servers
                np.testing.assert_allclose(dataset.gain[a, b], 1 - means[K] / means[-1], rtol=1e-6, atol=2e-9)
            # the real optimum: nearly where the polynomial through the seven values around K has its minimum
            near = np.arange(max(K - 3, 0), max(K - 3, 0) + 7)
            slope = np.polyder(np.polyfit(near - K, np.array(means)[near], 6))
            roots = np.roots(slope)
            real = K + min(roots[np.abs(roots.imag) < 1e-9].real, key=abs)
            assert abs(float(dataset.optimal_buffer_real[a, b]) - real) < 0.02
            for axes, name in zip(errors, figures[1]["z"], strict=True):
                assert mesh_of(axes)[b, a] == dataset[name][a, b]
    shown = np.array([mesh_of(axes)[1, 0] for axes in errors])
    assert shown[0] < shown[2] < shown[1]  # (i) is best, the correction helps


@pytest.mark.slow
def test_best_designs_of_the_optimum_map_by_brute_force():
    q, wage = [0.7, 0.9, 1.15], [0.02, 0.5, 4.0]
    dataset, figures = small("optimum_map", q=q, wage=wage)
    best_n, best_K, without, eager = (mesh_of(axes) for axes in panels(draw(dataset, figures[0])))
    for a, load in enumerate(q):
        base = np.empty((21, 13))
        for K in range(21):
            for n in range(13):
                p = stationary(load, 8.0, K, 20 - K, 4, n)
                lost = p[(4 + K, n, 20 - K)]
                base[K, n] = sum(x * sum(state) for state, x in p.items()) + 20 * lost * load * 4
        for b, price in enumerate(wage):
            cost = base + price * np.arange(13)
            K, n = np.unravel_index(cost.argmin(), cost.shape)
            assert best_n[b, a] == n and (n == 0 or best_K[b, a] == K)
            np.testing.assert_allclose(dataset.objective[a, b], cost.min(), rtol=1e-11)
            np.testing.assert_allclose(without[b, a], 1 - cost.min() / cost[0, 0], atol=1e-11)
            np.testing.assert_allclose(eager[b, a], 1 - cost.min() / cost[0, n], atol=1e-11)
            assert dataset.d_objective__d_wage[a, b] == n
    assert {*best_n.flat} > {0.0} and best_K.max() > 3


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_listed_with_its_figure(name):
    raw = tomllib.loads((SWEEPS / f"{name}.toml").read_text())
    sweep = Sweep.from_toml(SWEEPS / f"{name}.toml")
    axes = [a.name for a in sweep.spec.axes] + [d.name for d in sweep.spec.dims]
    check_figures(raw["plot"], list(dict.fromkeys(axes)), sweep.problem.arrays)
    index = (SWEEPS / "README.md").read_text()
    assert f"`{name}.toml`" in index
    for figure in raw["plot"]:
        image = SWEEPS / "images" / f"{figure['file']}.png"
        assert f"images/{image.name}" in index
        assert 5_000 < image.stat().st_size < 400_000
