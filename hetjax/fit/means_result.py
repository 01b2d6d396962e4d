"""The answer of a fit of means: estimates, and the judgement of what the data identify."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_NOTHING_KNOWN = 1 / math.sqrt(12)  # the standard deviation of a place of which only the bounds are known


@dataclass(frozen=True)
class Parameter:
    """``value``, its ``standard_error`` (None for a whole number; infinite where the data do not say), the 95 %
    ``interval`` (of a whole number the ends of its confidence set), ``identified``: the data say more than the bounds
    do, ``at_bound``: the estimate lies on one, and its error means nothing."""

    value: float
    standard_error: float | None
    interval: tuple[float, float]
    identified: bool
    at_bound: bool


@dataclass(frozen=True, eq=False)
class MeansFit:
    """What :func:`hetjax.fit.fit_means` found; ``fit["r"]`` is the :class:`Parameter` of an axis.

    ``chi_square`` with ``degrees`` of freedom and its ``p_value`` (NaN without any); ``covariance`` of the real
    parameters ``names``, at the best whole ones; ``residuals`` (.., metrics) in standard errors; ``singular_values`` of
    the scaled Jacobian; ``confidence_set`` of the whole parameters; ``others``: solutions far away that fit as well;
    ``remarks``: what the data do not tell.
    """

    model: str
    parameters: dict[str, Parameter]
    chi_square: float
    degrees: int
    p_value: float
    names: tuple[str, ...]
    covariance: np.ndarray
    residuals: np.ndarray
    singular_values: np.ndarray
    confidence_set: tuple[tuple[int, ...], ...]
    others: tuple[dict[str, float], ...]
    remarks: tuple[str, ...]

    def __getitem__(self, name: str) -> Parameter:
        return self.parameters[name]

    def text(self) -> str:
        """A readable table and the remarks."""
        width = max(9, *map(len, self.parameters))
        lines = [f"{'parameter':<{width}} {'value':>12} {'std. error':>10}  95 % interval"]
        for name, found in self.parameters.items():
            error = "" if found.standard_error is None else f"{found.standard_error:.2g}"
            low, high = found.interval
            doubt = "" if found.identified and not found.at_bound else "  (at its bound)" if found.at_bound else (
                "  (not identified)")
            lines.append(f"{name:<{width}} {found.value:>12.6g} {error:>10}  {low:.6g} .. {high:.6g}{doubt}")
        lines.append(f"chi-square {self.chi_square:.4g}, {self.degrees} degrees of freedom"
                     + ("" if math.isnan(self.p_value) else f", p = {self.p_value:.2g}"))
        return "\n".join([*lines, *(f"note: {remark}" for remark in self.remarks)])


class Judgement(NamedTuple):
    """``of``: (standard error, interval, identified, at bound) by name; ``place_errors`` of z."""

    of: dict[str, tuple[float, tuple[float, float], bool, bool]]
    covariance: np.ndarray
    singular_values: np.ndarray
    place_errors: np.ndarray
    remarks: list[str]


def judge(J: np.ndarray, z: np.ndarray, bounds: Mapping[str, tuple[float, float]],
          logarithmic: Callable[[float, float], bool]) -> Judgement:
    """What the Jacobian ``J`` (N, p) of the residuals in the places ``z`` (p,) identifies."""
    names, p = list(bounds), len(bounds)
    if p == 0:
        return Judgement({}, np.zeros((0, 0)), np.zeros(0), np.zeros(0), [])
    _, s, directions = np.linalg.svd(J, full_matrices=True)
    s = np.concatenate([s, np.zeros(p - len(s))])
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = directions**2 / (s**2)[:, None]  # (k, j)
    numerically_zero = s <= max(J.shape) * np.finfo(float).eps * s[0]
    squares = np.where(directions**2 < 1e-16, 0, np.where(numerically_zero[:, None], np.inf, squares))
    errors = np.sqrt(squares.sum(axis=0))
    scale = np.array([_stretch(low, high, logarithmic(low, high), place)
                      for (low, high), place in zip(bounds.values(), z, strict=True)])
    safe = np.where(numerically_zero, np.inf, s)
    covariance = (directions.T / safe**2) @ directions * np.outer(scale, scale)
    known = np.isfinite(errors)
    covariance[~known, :] = covariance[:, ~known] = np.inf
    of, remarks = {}, []
    for i, (name, (low, high)) in enumerate(bounds.items()):
        at_bound = bool(z[i] < 1e-6 or z[i] > 1 - 1e-6)
        identified = bool(errors[i] <= _NOTHING_KNOWN) and not at_bound
        ends = np.clip(np.array([z[i] - 1.959964 * errors[i], z[i] + 1.959964 * errors[i]]), 0, 1)
        first, last = (low * (high / low) ** ends if logarithmic(low, high) else low + (high - low) * ends).tolist()
        of[name] = (float(errors[i] * scale[i]), (first, last), identified, at_bound)
        if at_bound:
            remarks.append(f"{name} lies on its {'lower' if z[i] < 0.5 else 'upper'} bound: the data ask for a value"
                           " outside, or do not identify it")
    for k in np.flatnonzero(s * _NOTHING_KNOWN < 1):
        directions[k] *= np.sign(directions[k, np.argmax(np.abs(directions[k]))])
        parts = [(abs(directions[k, j]), j) for j in range(p) if abs(directions[k, j]) > 0.1]
        words = ", ".join(f"{'' if x > 0 else '-'}{abs(x):.2f} {names[j]}"
                          for _, j in sorted(parts, reverse=True) for x in [directions[k, j]])
        if len(parts) == 1:
            remarks.append(f"{names[parts[0][1]]} is not identified: within its bounds the data say less than they do")
        else:
            alone = ", ".join(names[j] for _, j in sorted(parts, reverse=True))
            remarks.append(f"{alone} are not identified together: the data are nearly the same along the direction"
                           f" ({words}) of places between the bounds; fix one of them, or observe more")
    return Judgement(of, covariance, s, errors, remarks)


def _stretch(low: float, high: float, logarithmic: bool, z: float) -> float:
    """d parameter / dz."""
    return low * (high / low) ** z * math.log(high / low) if logarithmic else high - low
