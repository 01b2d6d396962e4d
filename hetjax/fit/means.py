"""Parameters of a registered model from observed means: weighted least squares, and what the data cannot tell.

The residuals are (model - observed) / standard error. Each free parameter has bounds and a place z in [0, 1] between
them, on a logarithmic scale where the bounds are positive and a factor of 10 apart or more. With J = d residuals / dz
and its singular values s_k and directions v_k, the data fix the place along v_k with the standard error 1 / s_k. Where
that exceeds 1 / sqrt(12), the spread of a place about which nothing is known but the bounds, the data say less than the
bounds do: the direction, and the parameters in it, are called not identified.

Whole parameters (places, servers) are not relaxed: every combination in their box is fitted, and all whose chi-square
is within the 95 % point of the least belong to the confidence set.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.fit.least_squares import minimize_residuals
from hetjax.fit.means_result import MeansFit, Parameter, judge
from hetjax.models.registry import Model, evaluate, get_model
from hetjax.result import Status

_MOST_WHOLE = 4096
_NOWHERE = 25.0  # chi-square of an observation five standard errors away


def fit_means(model: str | Model, observed: Mapping[str, tuple[Any, Any]], free: Mapping[str, tuple[float, float]],
              known: Mapping[str, Any] | None = None, *, whole: Sequence[str] = (), starts: int = 8,
              seed: int = 0) -> MeansFit:
    """Fits ``free`` parameters of a model so that its metrics agree with observed means.

    Args:
      model: a registered model.
      observed: {metric: (value, standard error)}, numbers, or arrays over several points of observation.
      free: {axis: (low, high)}, bounds inside the axis's domain.
      known: {axis: value} of the others, numbers or arrays over the points; defaults of the model may be left out.
      whole: the free parameters that are whole numbers; axes that give array shapes always are.
      starts: how many places the search starts from, spread over the bounds; deterministic for a ``seed``.

    Returns:
      :class:`MeansFit`: estimates with standard errors, chi-square, the confidence set of whole parameters, other
      solutions found, and remarks that name what the data do not identify. ``text()`` is readable.

    ValueError in one line for names, bounds or observations that do not fit, and where the model has no values at any
    start. Cost: combinations of whole parameters times starts, each some ten evaluations with all gradients.

    >>> import hetjax
    >>> found = hetjax.fit.fit_means("overflow", {"p_loss": (0.31034483, 0.001)}, {"lambda2": (0.1, 2.0)},
    ...                              {"lambda1": 1.0, "mu1": 1.0, "mu2": 1.0}, starts=2)
    >>> round(found["lambda2"].value, 6), round(found["lambda2"].standard_error, 5), found["lambda2"].identified
    (0.5, 0.00501, True)
    """
    problem = _Problem(get_model(model), observed, free, known or {}, whole)
    if not isinstance(starts, int) or starts < 1:
        raise ValueError(f"starts = {starts!r} is no whole number from 1 on; give how many searches to begin")
    return problem.solve(starts, seed)


class _Problem:
    def __init__(self, model: Model, observed: Mapping[str, tuple[Any, Any]], free: Mapping[str, tuple[float, float]],
                 known: Mapping[str, Any], whole: Sequence[str]) -> None:
        self.model, self.metrics, self.known = model, tuple(observed), dict(known)
        if not observed or not free:
            raise ValueError("observed and free must not be empty; give {metric: (value, standard error)} and"
                             " {parameter: (low, high)}")
        for name in self.metrics:
            model.metric(name)
        pairs = [_observation(name, pair) for name, pair in observed.items()]
        shapes = [np.shape(x) for pair in pairs for x in pair] + [np.shape(v) for v in self.known.values()]
        try:
            self.shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(f"observed and known have the shapes {shapes}, which do not broadcast") from None
        self.value, self.error = (np.stack([np.broadcast_to(pair[i], self.shape).ravel() for pair in pairs], axis=-1)
                                  for i in (0, 1))
        self.known = {name: np.broadcast_to(value, self.shape) if np.ndim(value) else value
                      for name, value in self.known.items()}
        for name in whole:
            if name not in free:
                raise ValueError(f"whole names {name!r}, which is not free; choose from {', '.join(free)}")
        bounds = {name: _bounds(model, name, pair) for name, pair in free.items()}
        if both := sorted(set(bounds) & set(known)):
            raise ValueError(f"{both[0]!r} is both free and known; give it once")
        counts = [name for name in bounds if name in whole or model.axis(name).integer]
        self.real = {name: pair for name, pair in bounds.items() if name not in counts}
        self.counts = {name: range(math.ceil(bounds[name][0]), math.floor(bounds[name][1]) + 1) for name in counts}
        if (size := math.prod(len(values) for values in self.counts.values())) > _MOST_WHOLE or size == 0:
            raise ValueError(f"the bounds of {', '.join(counts)} hold {size} combinations of whole numbers; each"
                             f" is fitted, give bounds with 1 to {_MOST_WHOLE}")
        for metric in map(model.metric, self.metrics):
            if self.real and not metric.differentiable:
                raise ValueError(f"metric {metric.name!r} has no derivatives; it can only help to fit whole parameters")

    def parameters(self, z: Any, lib: Any = jnp) -> dict[str, Any]:
        """The real parameters at the places ``z``."""
        return {name: low * (high / low) ** z[i] if _logarithmic(low, high) else low + (high - low) * z[i]
                for i, (name, (low, high)) in enumerate(self.real.items())}

    def residuals(self, z: jax.Array, counts: Sequence[Any]) -> jax.Array:
        """(model - observed) / standard error, flat; NaN where the model has no value."""
        given = dict(self.known) | self.parameters(z)
        for (name, values), count in zip(self.counts.items(), counts, strict=True):
            if self.model.axis(name).shape:
                given |= {name: count.astype(jnp.int32), f"max_{name}": max(values)}
            else:
                given[name] = count
        found = evaluate(self.model, metrics=self.metrics, **given)
        means = jnp.stack([jnp.broadcast_to(found[name], self.shape).reshape(-1) for name in self.metrics], axis=-1)
        good = jnp.broadcast_to(found["status"], self.shape).reshape(-1, 1) == int(Status.OK)
        residuals = (means - self.value.astype(means.dtype)) / self.error.astype(means.dtype)
        return jnp.where(good, residuals, jnp.nan).reshape(-1)

    def solve(self, starts: int, seed: int) -> MeansFit:
        """All searches at once, then the judgement of the best."""
        from scipy.special import chdtrc, gammaincinv

        dtype = jnp.result_type(float)
        p = len(self.real)
        combos = np.asarray(list(itertools.product(*self.counts.values())), float).reshape(
            math.prod(map(len, self.counts.values())), len(self.counts))
        rng = np.random.default_rng(seed)
        strata = np.stack([(rng.permutation(starts) + 0.5) / starts for _ in range(p)], axis=-1).reshape(starts, p) \
            if p else np.zeros((1, 0))
        if starts == 1:
            strata = np.full((1, p), 0.5)

        def search(z: jax.Array, counts: jax.Array) -> Any:
            def of_place(z: jax.Array) -> jax.Array:
                return self.residuals(z, list(counts))

            if p == 0:
                r = of_place(z)
                return z, jnp.sum(r * r), jnp.isfinite(jnp.sum(r))
            found = minimize_residuals(of_place, z)
            return found.z, found.chi_square, found.settled

        every = jax.jit(jax.vmap(jax.vmap(search, in_axes=(0, None)), in_axes=(None, 0)))
        z, chi, settled = map(np.asarray, every(jnp.asarray(strata, dtype), jnp.asarray(combos, dtype)))
        chi = np.where(np.isfinite(chi), chi, np.inf)
        if not np.isfinite(chi).any():
            raise ValueError(f"model {self.model.name!r} has no values at any start inside the bounds of"
                             f" {', '.join([*self.real, *self.counts])} (unstable, or out of its domain); change them")
        profile = chi.min(axis=1)
        best = int(np.argmin(profile))
        start = int(np.argmin(chi[best]))
        place, counts = jnp.asarray(z[best, start]), jnp.asarray(combos[best], dtype)

        def twice(z: jax.Array) -> tuple[jax.Array, jax.Array]:
            r = self.residuals(z, list(counts))
            return r, r

        J, residuals = (np.asarray(x, float) for x in jax.jit(jax.jacfwd(twice, has_aux=True))(place))
        J = J.reshape(residuals.size, p)
        limit = profile[best] + 2 * float(gammaincinv(max(len(self.counts), 1) / 2, 0.95))
        members = [tuple(int(x) for x in combos[i]) for i in np.flatnonzero(profile <= limit)] if self.counts else []
        verdict = judge(J, np.asarray(z[best, start], float), self.real, _logarithmic)
        parameters = {name: Parameter(float(self.parameters(z[best, start], np)[name]), *verdict.of[name])
                      for name in self.real}
        sets = {name: sorted({member[i] for member in members}) for i, name in enumerate(self.counts)}
        for i, name in enumerate(self.counts):
            low, high = sets[name][0], sets[name][-1]
            inside = (low > self.counts[name][0] and high < self.counts[name][-1]) or len(sets[name]) == 1
            parameters[name] = Parameter(float(combos[best, i]), None, (float(low), float(high)), inside, False)
        degrees = residuals.size - p - len(self.counts)
        chi_square = float(chi[best, start])
        remarks = list(verdict.remarks) + self._about_counts(sets)
        others = self._others(z[best], chi[best], place, chi_square, verdict.place_errors)
        for other in others:
            remarks.append("another solution agrees with the data as well: "
                           + ", ".join(f"{name} = {value:.5g}" for name, value in other.items()))
        p_value = float(chdtrc(degrees, chi_square)) if degrees > 0 else math.nan
        if degrees <= 0:
            remarks.append("no more observations than parameters: " + (
                "the model comes nowhere near them within the bounds" if chi_square > _NOWHERE else
                "the fit says nothing about whether the model is right"))
        elif p_value < 0.01:
            remarks.append(f"the model does not fit: chi-square {chi_square:.4g} with {degrees} degrees of freedom"
                           f" (p = {p_value:.1g}); its standard errors mean nothing then")
        if not settled[best, start]:
            remarks.append("the search had not settled when it was stopped; give other bounds or more starts")
        return MeansFit(self.model.name, parameters, chi_square, degrees, p_value, tuple(self.real),
                        verdict.covariance, residuals.reshape(*self.shape, len(self.metrics)), verdict.singular_values,
                        tuple(members), tuple(others), tuple(remarks))

    def _about_counts(self, sets: dict[str, list[int]]) -> list[str]:
        found = []
        for name, tried in self.counts.items():
            low, high = sets[name][0], sets[name][-1]
            if len(sets[name]) == len(tried) > 1:
                found.append(f"{name} is not identified: all values tried, {low} to {high}, agree with the data")
            elif len(sets[name]) > 1 and (low == tried[0] or high == tried[-1]):
                end = "below" if low == tried[0] else "above"
                found.append(f"{name} is not bounded {end}: values up to the end of its bounds agree with the data"
                             f" ({low} to {high})")
        return found

    def _others(self, z: np.ndarray, chi: np.ndarray, best: Any, least: float,
                errors: np.ndarray) -> list[dict[str, float]]:
        """Minima of other starts that the data cannot tell from the best one, far from it and from each other."""
        found: list[np.ndarray] = [np.asarray(best, float)]
        room = np.maximum(4 * np.where(np.isfinite(errors), errors, 1), 0.02)
        for i in np.argsort(chi):
            if chi[i] <= least + 3.84 and all(np.any(np.abs(z[i] - other) > room) for other in found):
                found.append(np.asarray(z[i], float))
        return [{name: float(value) for name, value in self.parameters(place, np).items()} for place in found[1:]]


def _logarithmic(low: float, high: float) -> bool:
    return low > 0 and high >= 10 * low


def _observation(name: str, pair: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        value, error = (np.asarray(x, float) for x in pair)
    except (TypeError, ValueError):
        raise ValueError(f"observed[{name!r}] = {str(pair)[:60]} is no pair of numbers (value, standard error)"
                         ) from None
    if not np.all(np.isfinite(value)):
        raise ValueError(f"observed[{name!r}]: a value is not finite; leave such points out")
    if not np.all((error > 0) & np.isfinite(error)):
        raise ValueError(f"observed[{name!r}]: standard errors must be positive and finite")
    return value, error


def _bounds(model: Model, name: str, pair: Any) -> tuple[float, float]:
    axis = model.axis(name)
    try:
        low, high = (float(x) for x in pair)
    except (TypeError, ValueError):
        raise ValueError(f"free[{name!r}] = {str(pair)[:60]} is no pair (low, high) of numbers") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"free[{name!r}] = ({low:g}, {high:g}) are no bounds low < high; give two finite numbers")
    if low < axis.low or high > axis.high:
        raise ValueError(f"free[{name!r}] = ({low:g}, {high:g}) leaves the domain {axis.describe_domain()};"
                         " give bounds inside it")
    return low, high
