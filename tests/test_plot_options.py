"""Figures: which values are selected, what is drawn when nothing is said, the options of the command line."""

from dataclasses import fields

import numpy as np
import pytest
import xarray as xr

from hetjax.cli.figure import figure_options
from hetjax.cli.parser import make_parser
from hetjax.plot import FigureOptions, check_figures, draw
from hetjax.plot.select import indices

Q, R, K = np.linspace(0.1, 0.9, 17), np.array([2.0, 5.0, 20.0]), np.arange(15)


@pytest.fixture
def dataset():
    values = 1.0 + Q[:, None, None] + (K - R[None, :, None] * Q[:, None, None]) ** 2
    return xr.Dataset({"mean_number": (("q", "r", "K"), values)}, {"q": Q, "r": R, "K": K})


def first_line(figure):
    return next(line for line in figure.axes[0].lines if (line.get_gid() or "").startswith("line"))


def shown(figure):
    return next(c for c in figure.axes[0].collections if type(c).__name__ == "QuadMesh").get_array()


def test_selection_takes_close_values_and_names_the_nearest_otherwise():
    fine = np.linspace(0.001, 1.196, 240)
    assert indices("q", fine, 0.5) == 100
    np.testing.assert_array_equal(indices("q", np.array([1.0, np.inf]), [1.0, np.inf]), [0, 1])
    for values, wanted, nearest in ((R, 4.0, 5), (np.array([0.1, 0.5, 0.9]), 0.7, 0.5), (K, 99, 14), (K, 2.4, 2),
                                    (np.array([1.0, np.inf]), 3.0, 1), (np.array([1.0, 2.0]), np.inf, 2),
                                    (np.array([4.0]), 5.0, 4)):
        with pytest.raises(ValueError, match=rf"is no value of the axis; the nearest is {nearest}$"):
            indices("q", values, wanted)


def test_sel_is_checked_before_the_sweep_runs():
    check_figures({"sel": {"q": 0.5, "K": "2:4"}}, {"q": Q, "K": K}, ["mean_number"])
    with pytest.raises(ValueError, match=r"sel.K = 99 is no value of the axis; the nearest is 14"):
        check_figures([{}, {"sel": {"K": 99}}], {"q": Q, "K": K}, ["mean_number"])
    with pytest.raises(ValueError, match=r"file = 'a.jpg' ends in .jpg; choose from .png, .pdf, .svg"):
        check_figures({"file": "a.jpg"}, ["q"], ["mean_number"])


def test_designs_are_scattered_over_their_first_variable():
    q = np.array([0.5, 0.1, 0.9, 0.3])
    ds = xr.Dataset({"mean_number": ("point", 2 * q)}, {"m": ("point", [2, 2, 2, 2]), "q": ("point", q)})
    line = first_line(draw(ds))
    np.testing.assert_array_equal(line.get_xdata(), q)
    assert line.get_linestyle() == "None"


def test_defaults_for_a_single_point_and_for_axes_without_order(dataset):
    figure = draw(dataset.isel(q=[8], r=[1], K=[3]))
    assert [t.get_text() for t in figure.axes[0].texts][:4] == ["", "value", "Mean number", "1.7500"]
    shuffled = dataset.isel(q=np.argsort(np.cos(7 * Q)), K=slice(None, None, -1))
    np.testing.assert_array_equal(shown(draw(shuffled)), shown(draw(dataset)))


def test_geometric_axes_are_logarithmic_by_default(dataset):
    rates = np.geomspace(0.1, 100, 7)
    ds = xr.Dataset({"mean_number": ("rate", np.ones(7))}, {"rate": rates})
    assert draw(ds).axes[0].get_xscale() == "log" and draw(ds, {"log": []}).axes[0].get_xscale() == "linear"
    figure = draw(dataset, {"x": "K", "sel": {"q": 0.5, "r": 5}, "log": "x"})
    np.testing.assert_array_equal(first_line(figure).get_xdata(), K[1:])
    assert "K ≤ 0 left out" in figure.get_supxlabel()


def test_the_command_line_has_every_option_of_a_figure():
    text = """plot s.zarr -x q -y K -z loss --facets r --optimum --relative K=first --contours --contours loss
        --contours 1,10 --contours loss=0.5 --reference x=1,y=2.5,panel=2,label=a,b --log x --log z --limits z=0:9
        --size 5x4 --label x=Load --no-note --sel K=1:4 --own-scale --no-markers --title T --names A
        --printed loss=3 --below 2 --of loss --over q --kind map --hue m --style n"""
    given = figure_options(make_parser().parse_args(text.split()))
    assert given == {
        "x": "q", "y": ["K"], "z": ["loss"], "facets": ["r"], "optimum": True, "relative": {"over": "K", "to": "first"},
        "contours": [{}, {"of": "loss"}, {"levels": [1, 10]}, {"of": "loss", "levels": [0.5]}],
        "reference": [{"x": 1, "y": 2.5, "panel": 2, "label": "a,b"}], "log": ["x", "z"], "limits": {"z": [0, 9]},
        "size": [5, 4], "labels": {"x": "Load"}, "note": False, "sel": {"K": "1:4"}, "own_scale": True,
        "markers": False, "title": "T", "names": ["A"], "printed": {"loss": 3}, "below": 2, "of": "loss", "over": "q",
        "kind": "map", "hue": "m", "style": "n"}
    assert given.keys() == {f.name for f in fields(FigureOptions)} - {"file"}
    assert figure_options(make_parser().parse_args(["plot", "s.zarr"])) == {}
    assert figure_options(make_parser().parse_args(["plot", "s.zarr", "--log", "none"])) == {"log": []}
    for words in (["--limits", "x=1"], ["--size", "big"], ["--reference", "x"], ["--contours", "1,b"]):
        with pytest.raises(ValueError, match=r"x=0:1|'big'|NAME=VALUE|'b' is no number"):
            figure_options(make_parser().parse_args(["plot", "s.zarr", *words]))
