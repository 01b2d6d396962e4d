"""Derivatives of survival and percentiles: forward against reverse mode, and both against eighth-order differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.models.stalling.response_law import make_law, tail_and_density
from hetjax.models.stalling.response_percentile import solve_percentile
from hetjax.numerics.counting import Count

# q, r, K, M, m, n, t: places where a formulation has failed (kinks at 1 - q = 1/m and q = 1/m, poles at a branch point,
# huge exponents that cancel, less than one place), and ordinary ones
POINTS = [
    (1.0, 10.0, 36.0, 0.0, 16, 6, 0.05),
    (0.5, 3.0, 4.0, 6.0, 2, 1, 1.0),
    (0.3, 1e6, 0.0, 1e5, 1, 1, 2.0),
    (0.4, 10.0, 154.0, 10.0, 1, 1, 21.4),
    (0.75, 3.0, 1e7, 1000.0, 16, 6, 2.0),
    (0.9, 3.0, 0.4, 0.3, 2, 2, 1.5),
    (1.5, 1.0, 12.0, 30.0, 2, 1, 14.0),  # rho = 1
    (1.2, 2.0, 40.0, 25.0, 5, 2, 11.0),
    (0.8, 5.0, 3.3, 8.7, 5, 2, 6.0),
    (2.0, 0.1, 6.0, 50.0, 4, 2, 3.0),
    (1.1, 7.0, 20.0, 15.0, 3, 0, 9.0),
    (0.2, 1.0, 2.0, 3.0, 5, 3, 20.0),  # deep in the tail
]
STENCIL = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])


def counts(m, n):
    return Count(m, 16), Count(n, 6)


def survival(x, m, n, t, kind):
    m, n = counts(m, n)
    return tail_and_density(make_law(*x, m, n, "any"), t, kind, "any", n)[0]


def percentile(x, m, n, p, kind):
    m, n = counts(m, n)
    return solve_percentile(make_law(*x, m, n, "any"), p, kind, "any", n).value


@functools.partial(jax.jit, static_argnums=(0, 1, 6))
def mapped(function, transform, x, m, n, t, kind):
    return jax.vmap(lambda x, m, n, t: transform(lambda x: function(x, m, n, t, kind))(x))(x, m, n, t)


def identity(function):
    return function


def differences(function, x, m, n, t, kind):
    """(values, partial derivatives by differences, those that can be formed: not at K or M = 0)."""
    steps = np.stack([1e-3 * np.minimum(x[:, 0], 1), 1e-2 * x[:, 1], 2e-2 * x[:, 2], 2e-2 * x[:, 3]], 1)
    moved = np.repeat(x[:, None, None], 4, 1).repeat(9, 2)
    for axis in range(4):
        moved[:, axis, :, axis] += steps[:, axis, None] * np.arange(-4, 5)
    reps = 36
    repeated = (jnp.repeat(v, reps) for v in (m, n, t))
    flat = mapped(function, identity, jnp.asarray(moved.reshape(-1, 4)), *repeated, kind)
    values = np.asarray(flat).reshape(-1, 4, 9)
    usable = steps > 0
    return values[:, 0, 4], values @ STENCIL / np.where(usable, steps, 1), usable


def setting(function):
    table = np.array(POINTS)
    x, t = table[:, :4], jnp.asarray(table[:, 6])
    m, n = (jnp.asarray(table[:, i].astype(np.int32)) for i in (4, 5))
    return x, m, n, (t if function is survival else jnp.asarray(np.resize([0.5, 0.9, 0.99, 0.999], len(table))))


@pytest.mark.parametrize("function, kind, mode",
                         [(survival, "response", jax.grad),
                          pytest.param(survival, "waiting", jax.jacfwd, marks=pytest.mark.slow),
                          pytest.param(percentile, "response", jax.jacfwd, marks=pytest.mark.slow)])
def test_gradients(function, kind, mode):
    x, m, n, t = setting(function)
    found = np.asarray(mapped(function, mode, jnp.asarray(x), m, n, t, kind))
    values, slopes, usable = differences(function, x, m, n, t, kind)
    assert np.all(np.isfinite(found))
    scale = np.maximum(x, [1e-300, 1e-300, 1, 1])
    bound = 1e-9 * np.maximum(np.abs(slopes), 0.01 * np.abs(values)[:, None] / scale)
    error = np.where(usable, np.abs(found - slopes), 0)
    assert np.all(error <= bound), (np.argwhere(error > bound), error / bound)
    assert usable.sum() >= 45
    if (function, kind) == (survival, "response"):
        assert abs(found[0, 0] - 0.11) < 0.01  # 37 with a kink at q = 1


@pytest.mark.slow
def test_reverse_mode_agrees():
    x, m, n, t = setting(survival)
    forward = np.asarray(mapped(survival, jax.jacfwd, jnp.asarray(x), m, n, t, "response"))
    reverse = np.asarray(mapped(survival, jax.grad, jnp.asarray(x), m, n, t, "response"))
    np.testing.assert_allclose(reverse, forward, rtol=1e-11, atol=1e-15)


@pytest.mark.slow
def test_reverse_mode_of_a_percentile():
    x, m, n, p = setting(percentile)
    forward = np.asarray(mapped(percentile, jax.jacfwd, jnp.asarray(x), m, n, p, "response"))
    reverse = np.asarray(mapped(percentile, jax.grad, jnp.asarray(x), m, n, p, "response"))
    np.testing.assert_allclose(reverse, forward, rtol=1e-11, atol=1e-14)
