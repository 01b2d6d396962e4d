"""Figures: the numbers in the artists, the choices made without options, the refusals."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from hetjax.plot import check_figures, draw, plot_all, plot_sweep
from hetjax.plot.maps import cell_edges, colour_scale
from hetjax.plot.style import DASHES, hue_colours
from hetjax.plot.text import axis_label
from hetjax.plot.view import best_index

Q, R, K = np.linspace(0.1, 0.9, 17), np.array([2.0, 5.0, 20.0]), np.arange(15)
GOOD = Q < 0.84  # elsewhere the points are flagged


def cost(q, r, k):
    """A bowl over k whose bottom lies at r q."""
    return 1.0 + q + (k - r * q) ** 2


@pytest.fixture
def dataset():
    values = cost(Q[:, None, None], R[None, :, None], K[None, None, :])
    status = np.ones(values.shape, np.uint8)
    status[~GOOD] = 3
    ds = xr.Dataset(
        {"mean_number": (("q", "r", "K"), values), "loss": (("q", "r", "K"), values / 100),
         "d_mean_number__d_K": (("q", "r", "K"), 2 * (K - R[None, :, None] * Q[:, None, None])),
         "status": (("q", "r", "K"), status)},
        {"q": Q, "r": R, "K": K}, {"title": "A bowl"})
    ds["q"].attrs = {"long_name": "load offered to the fast servers, arrival rate / (m mu1)", "units": "1"}
    ds["K"].attrs = {"long_name": "places in the stalling buffer", "units": "customers"}
    ds["mean_number"].attrs = {"long_name": "mean number in the system", "units": "customers"}
    return ds


def lines_of(figure, panel=0, gid="line"):
    return [line for line in figure.axes[panel].lines if (line.get_gid() or "").startswith(gid)]


def legend_texts(figure):
    return [text.get_text() for legend in figure.legends for text in (legend.get_title(), *legend.get_texts())]


def mesh_of(figure, panel=0):
    return next(c for c in figure.axes[panel].collections if type(c).__name__ == "QuadMesh")


def test_lines_hold_the_selected_numbers(dataset):
    figure = draw(dataset, {"x": "K", "y": "mean_number", "hue": "r", "sel": {"q": 0.5}})
    lines = lines_of(figure)
    assert len(lines) == 3
    for line, r in zip(lines, R, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), K)
        np.testing.assert_array_equal(line.get_ydata(), cost(0.5, r, K))
    axes = figure.axes[0]
    assert axes.get_xlabel() == "Places in the stalling buffer, $K$ (customers)"
    assert axes.get_ylabel() == "Mean number in the system (customers)"
    assert legend_texts(figure) == ["$r$", "2", "5", "20"]
    assert "$q$ = 0.5" in figure.get_supxlabel()


def test_hue_is_told_apart_in_grey_and_without_colour(dataset):
    lines = lines_of(draw(dataset, {"x": "K", "y": "mean_number", "hue": "r", "sel": {"q": 0.5}}))
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines}) == 3
    grey = [np.dot(line.get_color()[:3], (0.299, 0.587, 0.114)) for line in lines]
    assert np.all(np.diff(grey) > 0.1)
    assert len(DASHES) >= 4 and len(hue_colours(7, ordered=False)) == len(set(hue_colours(7, ordered=False)))


def test_hue_and_style_together(dataset):
    figure = draw(dataset, {"x": "q", "y": "mean_number", "hue": "r", "style": "K", "sel": {"K": [0, 7]}})
    lines = lines_of(figure)
    assert [line.get_gid() for line in lines] == [f"line {i} {j}" for i in range(3) for j in range(2)]
    np.testing.assert_array_equal(lines[3].get_ydata()[GOOD], cost(Q[GOOD], 5.0, 7))
    colours = [tuple(line.get_color()) for line in lines]
    assert colours[0] == colours[1] != colours[2]
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert legend_texts(figure) == ["$r$", "2", "5", "20", "$K$", "0", "7", "gaps: unstable"]


def test_flagged_points_are_gaps_in_lines(dataset):
    line = lines_of(draw(dataset, {"x": "q", "y": "mean_number", "sel": {"K": 3, "r": 5}}))[0]
    np.testing.assert_array_equal(np.isnan(line.get_ydata()), ~GOOD)


def test_flagged_points_are_hatched_on_maps(dataset):
    dataset["status"][0, :, :] = 6  # a gradient that is not finite spoils gradients only
    for metric, bad in (("mean_number", ~GOOD), ("d_mean_number__d_K", ~GOOD | (Q == Q[0]))):
        figure = draw(dataset, {"x": "q", "y": "K", "z": metric, "sel": {"r": 5}})
        shown = mesh_of(figure).get_array()
        np.testing.assert_array_equal(np.ma.getmaskarray(shown), np.broadcast_to(bad, (K.size, Q.size)))
        assert figure.axes[0].patch.get_hatch()
        assert "unstable" in legend_texts(figure)[-1]


def test_map_cells_and_values(dataset):
    figure = draw(dataset, {"x": "q", "y": "K", "z": "mean_number", "sel": {"r": 20}})
    mesh = mesh_of(figure)
    expected = cost(Q[None, :], 20.0, K[:, None])
    np.testing.assert_array_equal(mesh.get_array()[:, GOOD].data, expected[:, GOOD])
    corners = mesh.get_coordinates()
    np.testing.assert_allclose(corners[0, :, 0], np.linspace(0.075, 0.925, 18), rtol=1e-14)
    np.testing.assert_array_equal(corners[:, 0, 1], np.arange(-0.5, 15))
    assert figure.axes[-1].get_ylabel().replace("\n", " ") == "Mean number in the system (customers)"


def test_cell_edges_on_a_log_axis():
    np.testing.assert_allclose(cell_edges(np.array([1.0, 10.0, 100.0]), True), 10 ** np.array([-0.5, 0.5, 1.5, 2.5]),
                               rtol=1e-14)


def test_contours_of_one_metric_over_the_map_of_another(dataset):
    figure = draw(dataset, {"x": "q", "y": "K", "z": "mean_number", "sel": {"r": 5},
                            "contours": {"of": "d_mean_number__d_K", "levels": [0.0], "label": "slope 0"}})
    contour = next(c for c in figure.axes[0].collections if type(c).__name__ == "QuadContourSet")
    vertices = np.concatenate([path.vertices for path in contour.get_paths()])
    # the slope is linear in q and K, so that the interpolated contour is exact up to rounding
    np.testing.assert_allclose(vertices[:, 1], 5 * vertices[:, 0], atol=1e-12)
    assert "contours: slope 0" in legend_texts(figure)


def test_optimum_on_lines_and_maps_and_as_a_curve(dataset):
    expected = {r: np.argmin(cost(Q[:, None], r, K), axis=1).astype(float) for r in R}
    figure = draw(dataset, {"x": "K", "y": "mean_number", "hue": "r", "sel": {"q": 0.5}, "optimum": True})
    marks = lines_of(figure, gid="optimum")
    assert [(*m.get_xdata(), *m.get_ydata()) for m in marks] == [(1, cost(0.5, 2, 1)), (2, cost(0.5, 5, 2)), (10,
                                                                                                              cost(0.5,
                                                                                                                   20,
    10))]
    curve = lines_of(draw(dataset, {"x": "q", "y": "K", "z": "loss", "sel": {"r": 5}, "optimum": True}),
                     gid="optimum")[0]
    for r, y in ((5.0, curve.get_ydata()),
                 *zip(R, (line.get_ydata() for line in lines_of(draw(dataset, {
                     "kind": "optimum", "over": "K", "of": "mean_number", "x": "q", "hue": "r"}))), strict=True)):
        told = GOOD & (expected[r] < K[-1])  # the last K of the sweep is no interior minimum
        np.testing.assert_array_equal(np.asarray(y)[told], expected[r][told])
        assert np.isnan(np.asarray(y, float)[~told]).all()


def test_optimum_as_a_map(dataset):
    figure = draw(dataset, {"kind": "optimum", "over": "K", "of": "mean_number", "x": "q", "y": "r", "log": ["y"]})
    shown = mesh_of(figure).get_array()
    assert shown[1, 8] == np.argmin(cost(Q[8], 5.0, K))


@pytest.mark.parametrize("values, axis, expected", [
    ([3.0, 1.0, 2.0], np.arange(3), 1),
    ([1.0, 2.0, 3.0], np.arange(3), 0),  # nothing lies below 0 places
    ([1.0, 2.0, 3.0], np.arange(3) + 1, -1),
    ([1.0, 2.0, 3.0], np.arange(3.0), -1),
    ([3.0, 2.0, 1.0], np.arange(3), -1),
    ([2.0, 1.0, 1.0, 1.0 + 2**-52, 1.0, 2.0], np.arange(6), -1),  # flat
    ([2.0, 1.0, 1.0, 2.0], np.arange(4), 1),  # two neighbours tie: the first
    ([np.nan, 2.0, 1.0, 2.0], np.arange(4), 2),
    ([np.nan, np.nan], np.arange(2), -1),
])
def test_best_index_tells_only_what_the_sweep_shows(values, axis, expected):
    assert best_index(np.array(values), axis) == expected


def test_least_value_of_an_axis(dataset):
    figure = draw(dataset, {"kind": "least", "over": "K", "of": "d_mean_number__d_K", "below": -1.0, "x": "q",
                            "hue": "r"})
    assert np.nanmax(lines_of(figure)[0].get_ydata()) == 0
    figure = draw(dataset, {"kind": "least", "over": "r", "of": "mean_number", "below": 5.0, "x": "q", "sel": {"K": 4}})
    y = lines_of(figure)[0].get_ydata()
    expected = [next((r for r in R if cost(q, r, 4) < 5.0), np.nan) if q < 0.84 else np.nan for q in Q]
    np.testing.assert_array_equal(y, expected)


def test_relative_to_the_least_along_an_axis(dataset):
    figure = draw(dataset, {"x": "K", "y": "mean_number", "hue": "r", "sel": {"q": 0.5}, "relative": {"over": "K",
                                                                                                      "to": "min"}})
    for line, r in zip(lines_of(figure), R, strict=True):
        whole = cost(0.5, r, K)
        np.testing.assert_allclose(line.get_ydata(), 100 * (whole / whole.min() - 1), rtol=1e-12, atol=1e-12)
    # the axis compared along may be held fixed
    figure = draw(dataset, {"x": "q", "y": "mean_number", "sel": {"K": 4, "r": 5}, "relative": {"over": "K",
                                                                                                "to": "first"}})
    np.testing.assert_allclose(lines_of(figure)[0].get_ydata()[GOOD],
                               100 * (cost(Q, 5.0, 4) / cost(Q, 5.0, 0) - 1)[GOOD], rtol=1e-12, atol=1e-11)
    assert figure.axes[0].get_ylabel().replace("\n", " ").endswith("over K = 0 (%)")


def test_facets_share_scales_and_are_titled(dataset):
    figure = draw(dataset, {"x": "q", "y": "K", "z": "mean_number", "facets": "r"})
    assert [ax.get_title() for ax in figure.axes[:3]] == ["$r$ = 2", "$r$ = 5", "$r$ = 20"]
    assert len({(mesh_of(figure, i).norm.vmin, mesh_of(figure, i).norm.vmax) for i in range(3)}) == 1
    figure = draw(dataset, {"x": "K", "y": "mean_number", "facets": ["r", "q"], "sel": {"q": [0.2, 0.7]}})
    assert len(figure.axes) == 6
    np.testing.assert_allclose(lines_of(figure, 3)[0].get_ydata(), cost(0.7, 5.0, K), rtol=1e-14)


def test_a_panel_for_each_metric(dataset):
    figure = draw(dataset, {"x": "K", "y": ["mean_number", "loss"], "sel": {"q": 0.5, "r": 5},
                            "reference": [{"y": 0.02, "label": "allowed", "panel": "loss"}, {"x": 2.0, "y": 1.5,
                                                                                             "panel": 1}]})
    np.testing.assert_array_equal(lines_of(figure, 1)[0].get_ydata(), cost(0.5, 5.0, K) / 100)
    assert not lines_of(figure, 0, "reference")[0].get_ydata()[0] == 0.02
    np.testing.assert_array_equal(lines_of(figure, 1, "reference")[0].get_ydata(), [0.02, 0.02])
    assert "allowed" in legend_texts(figure)


def test_zipped_axes_are_told_by_their_coordinates():
    ds = xr.Dataset({"mean_number": (("tree", "load"), np.outer([1.0, 2.0], [1.0, 2.0, 3.0]))},
                    {"volume": ("tree", [0.1, 0.4]), "rate": ("tree", [9.0, 33.4]), "load": [10.0, 20.0, 30.0]})
    assert legend_texts(draw(ds, {"x": "load", "hue": "tree"}))[1:] == ["volume = 0.1, rate = 9",
                                                                        "volume = 0.4, rate = 33.4"]
    assert legend_texts(draw(ds, {"x": "load", "hue": "tree", "names": ["thin", "thick"]}))[1:] == ["thin", "thick"]
    assert legend_texts(draw(ds, {"x": "load", "hue": "volume", "labels": {"hue": "Volume"}})) == ["Volume", "0.1",
                                                                                                   "0.4"]
    with pytest.raises(ValueError, match="along the same dimension 'tree'"):
        draw(ds, {"x": "volume", "hue": "rate"})


def test_scattered_points_are_not_joined():
    ds = xr.Dataset({"mean_number": ("point", [1.0, 3.0, 2.0])}, {"q": ("point", [0.5, 0.1, 0.9])})
    line = lines_of(draw(ds, {"x": "q"}))[0]
    assert line.get_linestyle() == "None" and line.get_marker() == "o"


def test_infinite_axis_values_are_left_out_and_said(dataset):
    ds = xr.Dataset({"mean_number": ("K", [3.0, 2.0, 1.0])}, {"K": [0.0, 1.0, np.inf]})
    figure = draw(ds)
    np.testing.assert_array_equal(lines_of(figure)[0].get_xdata(), [0, 1])
    assert "K = inf left out" in figure.get_supxlabel()


def test_table_of_computed_and_printed_values(dataset):
    figure = draw(dataset, {"kind": "table", "y": ["mean_number", "loss"], "hue": "K", "sel": {"K": [0, 2], "q": 0.5,
                                                                                               "r": 5},
                            "printed": {"loss": "0.0776"}})
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["", "0", "2", "printed", "Mean number in the system", "7.7500", "1.7500", "–", "Loss", "0.0775",
                     "0.0175",
                     "0.0776"]


def test_defaults_map_for_two_long_axes_lines_for_one(dataset):
    figure = draw(dataset)
    shown = mesh_of(figure).get_array()
    assert shown.shape == (K.size, Q.size) and len([ax for ax in figure.axes if ax.get_title()]) == 3
    figure = draw(dataset.isel(K=[0, 3, 5]))
    assert figure.axes[0].get_xlabel().endswith("$q$") and len(lines_of(figure)) == 3 * 3
    figure = draw(dataset, {"x": "q", "hue": "r"})
    assert figure.get_supxlabel().startswith("$K$ = 7")
    assert figure.get_suptitle() == "A bowl"


def test_long_hue_axes_are_thinned_and_it_is_said(dataset):
    figure = draw(dataset, {"x": "q", "y": "mean_number", "hue": "K", "sel": {"r": 5}})
    assert len(lines_of(figure)) == 10 and "10 of 15 values of K drawn" in figure.get_supxlabel()


def test_log_scales_and_limits(dataset):
    figure = draw(dataset, {"x": "q", "y": "mean_number", "sel": {"K": 3, "r": 5}, "log": ["x", "y"],
                            "limits": {"x": [0.1, 0.7]}})
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_xlim()) == ("log", "log", (0.1, 0.7))
    figure = draw(dataset, {"x": "q", "y": "K", "z": "mean_number", "sel": {"r": 5}, "log": "z", "limits": {"z": [1,
                                                                                                                  10]}})
    assert (mesh_of(figure).norm.vmin, mesh_of(figure).norm.vmax) == (1, 10)


def test_metrics_that_span_thousands_are_drawn_logarithmic_by_default(dataset):
    figure = draw(dataset, {"x": "K", "y": "mean_number", "sel": {"q": 0.5, "r": 5}})
    assert figure.axes[0].get_yscale() == "linear"
    dataset["mean_number"][:, :, 0] *= 1e6
    assert draw(dataset, {"x": "K", "sel": {"q": 0.5, "r": 5}}).axes[0].get_yscale() == "log"
    assert draw(dataset, {"x": "K", "sel": {"q": 0.5, "r": 5}, "log": []}).axes[0].get_yscale() == "linear"
    assert type(mesh_of(draw(dataset, {"x": "K", "y": "q", "z": "mean_number"})).norm).__name__ == "LogNorm"


def test_colour_scales_by_sign():
    norm, name = colour_scale(np.array([-1.0, 3.0, np.nan]), False, ())
    assert (norm.vmin, norm.vmax, name) == (-3, 3, "RdBu_r")
    norm, name = colour_scale(np.array([1e-6, 3.0]), True, ())
    assert type(norm).__name__ == "LogNorm" and name == "viridis"
    norm, _ = colour_scale(np.array([-3.0, 1e-6, 3.0]), True, ())
    assert norm(0.0) == 0.5
    norm, _ = colour_scale(np.array([0.0, 1.0, 3.0]), True, ())
    assert norm(0.0) == 0 and norm(3.0) == 1


@pytest.mark.parametrize("options, words", [
    ({"kind": "pie"}, "kind = 'pie' is not known; choose from lines, map, optimum, least, table"),
    ({"colour": "red"}, "colour = 'red' is no option of a figure; choose from kind, x, y"),
    ({"x": "p"}, "x = 'p' is no axis of the store; choose from q, r, K"),
    ({"y": "mean"},
     "y = 'mean' is neither metric nor axis of the store; choose from mean_number, loss, d_mean_number__d_K, q, r"),
    ({"y": 3}, "y = 3 is no text or list of texts"),
    ({"x": ["q"]}, r"x = \['q'\] is no axis"),
    ({"z": "q"}, "z = 'q' is no metric of the store"),
    ({"y": ["K", "r"]}, "a map has one axis y"),
    ({"x": "q", "hue": "q"}, "hue = 'q' is already taken by x"),
    ({"x": "q", "sel": {"q": 0.5}}, "sel.q = 0.5 holds fixed what x needs"),
    ({"x": "q", "sel": {"q": "0.5"}, "hue": "r"}, "x = 'q' is held fixed by sel"),
    ({"sel": {"K": 99}}, "sel.K = 99 is no value of the axis; the nearest is 14"),
    ({"sel": {"K": 1.5}}, "sel.K = 1.5 is no value of the axis"),
    ({"sel": {"q": 2.0}}, "sel.q = 2.0 is no value of the axis"),
    ({"sel": {"q": "5:7"}}, "sel.q = '5:7' selects nothing; the axis goes from 0.1 to 0.9"),
    ({"sel": {"q": "a,b"}}, "sel.q = 'a,b' is neither a number"),
    ({"sel": {"q": True}}, "sel.q = True is no number"),
    ({"sel": {"p": 1}}, "sel.p = 1 has an unknown name; choose from q, r, K"),
    ({"facets": ["q", "r", "K"]}, "names more than two axes"),
    ({"facets": "q"}, "facets = 'q' has 17 values, more than the 12 that can be told apart"),
    ({"y": "mean_number", "x": "r", "style": "q"}, "style = 'q' has 17 values, more than the 4"),
    ({"x": "q", "y": "K", "hue": "r"}, "hue = 'r' has no place in a map; use facets"),
    ({"kind": "optimum"}, "over = None is needed by kind = 'optimum'"),
    ({"kind": "optimum", "over": "K"}, "of = None is needed"),
    ({"kind": "least", "over": "K", "below": 3}, "below = 3.0 needs of"),
    ({"below": "x"}, "below = 'x' is no number"),
    ({"relative": {"over": "K", "to": "mean"}}, "relative.to = 'mean' is not known; choose from first, last, min, max"),
    ({"relative": {"to": "min"}}, "relative.over = None is no axis"),
    ({"contours": {"of": "q"}}, "contours.of = 'q' is no metric"),
    ({"contours": {"levels": "all"}}, "contours.levels = 'all' is no list of numbers"),
    ({"contours": 3}, "contours = 3 is no table or list of tables"),
    ({"reference": {"label": "a"}}, "has neither x nor y"),
    ({"reference": {"x": 1, "panel": 9}}, "reference.panel = 9 is no panel; choose from mean_number, 1 to 3"),
    ({"optimum": 1}, "optimum = 1 is neither true nor false"),
    ({"log": ["w"]}, "log = 'w' is no direction; choose from x, y, z"),
    ({"limits": {"x": [1]}}, r"limits.x = \[1\] is no list of 2 numbers"),
    ({"size": "big"}, "size = 'big' is no list of 2 numbers"),
    ({"labels": {"w": "a"}}, "labels.w = 'a' has an unknown name; choose from x, y, z, hue, style"),
    ({"x": "K", "hue": "r", "names": ["a"]}, "must hold one text for each of the 3 hue values"),
    ({"title": 3}, "title = 3 is no text"),
    ({"file": ""}, "file = '' is no file name"),
    ("line", "figure = 'line' is no table of options"),
])
def test_bad_options_are_refused_in_one_line(dataset, options, words, tmp_path):
    with pytest.raises(ValueError, match=words) as refused:
        plot_sweep(dataset, options, tmp_path / "a.png")
    assert str(refused.value).startswith("plot: ") and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_plot_table_is_checked_before_the_sweep_runs():
    check_figures([{"x": "q", "y": "mean_number"}, {}], ["q", "r"], ["mean_number"])
    check_figures({"x": "q", "z": "mean_number"}, ["q", "r"], ["mean_number"])
    with pytest.raises(ValueError, match="hue = 'K' is no axis"):
        check_figures([{}, {"hue": "K"}], ["q", "r"], ["mean_number"])
    with pytest.raises(ValueError, match="plot = 'x' is no table or list of tables"):
        check_figures("x", ["q"], [])


def test_files_and_their_names(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [p.name for p in plot_sweep(dataset)] == ["sweep.png", "sweep.pdf"]
    assert plot_sweep(dataset, {"file": "one"}, tmp_path) == [tmp_path / "one.png", tmp_path / "one.pdf"]
    assert plot_sweep(dataset, {"file": "one.svg"}, tmp_path) == [tmp_path / "one.svg"]
    assert plot_sweep(dataset, None, "new/b.pdf")[0].read_bytes().startswith(b"%PDF")
    written = plot_all(dataset, [{}, {"x": "q"}, {"file": "c"}], tmp_path / "all")
    assert [p.name for p in written] == ["sweep.png", "sweep.pdf", "sweep-2.png", "sweep-2.pdf", "c.png", "c.pdf"]
    assert all(p.stat().st_size > 3000 for p in written)
    for out in ("x.jpg", tmp_path / "x.eps"):
        with pytest.raises(ValueError, match=r"ends in .(jpg|eps); choose from .png, .pdf, .svg"):
            plot_sweep(dataset, None, out)
    assert [p.name for p in plot_sweep(dataset, None, tmp_path / "load=0.5")] == ["load=0.5.png", "load=0.5.pdf"]
    with pytest.raises(ValueError, match="x = 'p'"):
        plot_all(dataset, [{"file": "early"}, {"x": "p"}], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_store_is_read_by_its_path(tmp_path):
    import hetjax

    sweep = hetjax.Sweep("stalling", {"q": [0.2, 0.4, 0.6, 0.8], "K": range(6)}, metrics=["mean_number"], title="Small",
                         const={"r": 10.0, "M": 5, "m": 2, "n": 1})
    sweep.run(tmp_path / "small.zarr")
    written = plot_sweep(tmp_path / "small.zarr")
    assert written == [tmp_path / "small.png", tmp_path / "small.pdf"]
    expected = hetjax.evaluate("stalling", q=0.2, r=10.0, K=np.arange(6), M=5, m=2, n=1, metrics=["mean_number"])
    line = lines_of(draw(tmp_path / "small.zarr", {"x": "K", "hue": "q"}))[0]
    np.testing.assert_allclose(line.get_ydata(), expected["mean_number"], rtol=1e-13)


def test_matplotlib_is_left_as_it_was(dataset, tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    first = plot_sweep(dataset, None, tmp_path / "a.png")[0].read_bytes()
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert plot_sweep(dataset, None, tmp_path / "b.png")[0].read_bytes() == first


def test_pyplot_and_heavy_packages_stay_unloaded():
    script = ("import sys, hetjax.plot\nbefore = set(sys.modules)\nimport xarray, numpy\n"
              "hetjax.plot.draw(xarray.Dataset({'a': ('x', [1., 2.])}, {'x': [0., 1.]}))\n"
              "print('matplotlib' in before, 'jax' in before, 'matplotlib.pyplot' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]


def test_units_of_gradients_are_reduced():
    def label(name, unit):
        return axis_label(xr.DataArray(0.0, name=name, attrs={"units": unit}), None, 9.0)

    assert label("d_p_loss__d_lambda1", "(1) / (1/time)") == r"$\partial$(p loss) / $\partial \lambda_{1}$ (time)"
    assert label("d_cost__d_q", "(money) / (1)").endswith(" (money)")
    assert label("d_mean_number__d_K", "(customers) / (customers)").endswith("K$")
    assert label("d_mean_number__d_t", "(customers) / (time)").endswith(" (customers / time)")


def test_labels_are_wrapped_between_words_only():
    def label(name, attrs, inches):
        return axis_label(xr.DataArray(np.zeros(1), name=name, attrs=attrs), inches=inches)

    places = {"long_name": "places in the stalling buffer", "units": "customers"}
    assert label("K", places, 1.2) == "Places in the\nstalling\nbuffer, $K$\n(customers)"
    assert label("K", places, 4.0) == "Places in the stalling buffer, $K$ (customers)"
    assert label("d_mean_number__d_q", {"units": "1"}, 1.9) == r"$\partial$(mean number) / $\partial q$"
    assert label("mu1", {"long_name": "rate (of one)", "units": "1/h"}, 4.0) == r"Rate, $\mu_{1}$ (1/h)"
