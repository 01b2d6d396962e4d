"""The studies of the overflow system, in small: what their figures show against exact rational balance equations."""

from fractions import Fraction

import numpy as np
import pytest
from models.overflow.overflow_oracle import exact_metrics
from test_sweeps_studies import lines_of, mesh_of, panels, small

from hetjax.plot import draw

RATES = {  # study -> the rates (lambda1, lambda2, mu1, mu2) of a point of its axes
    "overflow_gain": lambda rho1, rho2, alpha: (rho1, alpha * rho2, Fraction(1), alpha),
    "overflow_malposition": lambda rho1, rho2: (rho1, rho2, Fraction(1), Fraction(1)),
    "overflow_sensitivity": lambda lambda1, lambda2: (lambda1, lambda2, Fraction(1), Fraction(1)),
    "overflow_propositions": lambda S, alpha, x: (S * (1 - x) / 2, alpha * S * (1 + x) / 2, Fraction(1), alpha),
    "overflow_heavy": lambda rho: (rho, rho, Fraction(1), Fraction(1)),
}
STEP = Fraction(1, 10**6)


def exact(study, point, name):
    """A metric, or a derivative ``d_metric__d_axis`` by a central difference (relative error about 1e-10)."""
    point = {axis: Fraction(value) for axis, value in point.items()}
    if name == "relative_loss_reduction":
        return float(exact(study, point, "relative_loss_reduction_margin") > 0)
    metric, _, axis = name.removeprefix("d_").partition("__d_")

    def at(shift):
        moved = point | ({axis: point[axis] + shift} if axis else {})
        return Fraction(exact_metrics(*RATES[study](**moved), 1, 1, 0, 0)[metric][0])

    return float((at(STEP) - at(-STEP)) / (2 * STEP) if axis else at(Fraction(0)))


@pytest.mark.parametrize("study, axes", [
    ("overflow_gain", {"rho1": [0.125, 2.0], "rho2": [0.25, 8.0], "alpha": [0.5, 1.0, 4.0]}),
    ("overflow_malposition", {"rho1": [0.125, 64.0], "rho2": [0.25, 8.0]}),
    ("overflow_sensitivity", {"lambda1": [0.125, 2.0], "lambda2": [0.25, 8.0]}),
    ("overflow_propositions", {"S": [0.5, 8.0], "alpha": [0.0625, 8.0], "x": [0.01, 0.25]}),
])
def test_maps(study, axes):
    dataset, figures = small(study, **axes)
    for figure in figures:
        chosen = {axis: axes[axis] for axis in axes if axis not in (figure["x"], figure["y"])}
        chosen |= {axis: [value] for axis, value in figure.get("sel", {}).items()}
        names = figure["z"] if isinstance(figure["z"], list) else [figure["z"]]
        third, values = next(iter(chosen.items()), (None, [None]))
        shown = iter(panels(draw(dataset, figure)))
        for name in names:
            for value in values:
                map_ = mesh_of(next(shown))
                for i, x in enumerate(axes[figure["x"]]):
                    for j, y in enumerate(axes[figure["y"]]):
                        point = {figure["x"]: x, figure["y"]: y} | ({third: value} if third else {})
                        assert abs(map_[j, i] - exact(study, point, name)) < 1e-9, (name, point)
        assert next(shown, None) is None


def test_equal_loads_tend_to_the_limits():
    rho = [0.125, 4.0, 4096.0]
    dataset, figures = small("overflow_heavy", rho=rho)
    for axes, name, limit in zip(panels(draw(dataset, figures[0])), figures[0]["y"], (0.5, 0.25, 0.75), strict=True):
        (line,), (reference,) = lines_of(axes), lines_of(axes, "reference")
        expected = [exact("overflow_heavy", {"rho": x}, name) for x in rho]
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-13)
        assert reference.get_ydata()[0] == limit and abs(line.get_ydata()[-1] - limit) < 1e-3
