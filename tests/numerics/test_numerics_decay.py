"""e^-s with 1 - e^-s, and the first two moments together: values and derivatives against many digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from hetjax.numerics import decay_and_rest, exponential_moment, first_moments

DTYPES = [np.float64, np.float32]


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_parts(dtype):
    most = 699 if dtype == np.float64 else 79
    rng = np.random.default_rng(3)
    s = np.concatenate([np.exp(rng.uniform(np.log(1e-30), np.log(most), 400)), rng.uniform(0, 3, 300),
                        np.arange(1, 40) * np.log(2) / 2]).astype(dtype)
    kept, lost = jax.jit(decay_and_rest)(jnp.asarray(s))
    assert kept.dtype == lost.dtype == dtype
    for x, one, two in zip(s, kept, lost, strict=True):
        x = mpmath.mpf(float(x))
        for got, want in ((one, mpmath.exp(-x)), (two, -mpmath.expm1(-x))):
            assert abs(float(got) - want) <= 2 * np.finfo(dtype).eps * want, float(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ends(dtype):
    kept, lost = decay_and_rest(jnp.asarray([0, np.inf, 1e30], dtype))
    assert kept.tolist() == [1, 0, 0] and lost.tolist() == [0, 1, 1]


def test_derivatives():
    def part(i):
        return lambda x: decay_and_rest(x)[i]

    for s in (0.0, 1e-9, .3, .4, 5.0):
        kept, lost = (jax.grad(part(i))(s) for i in (0, 1))
        assert abs(kept + np.exp(-s)) <= 4e-16 and abs(lost - np.exp(-s)) <= 4e-16
        assert abs(jax.grad(jax.grad(part(0)))(s) - np.exp(-s)) <= 4e-16


@pytest.mark.parametrize("x,length", [(0.0, 3.0), (-1e-9, 3.0), (-.1, 4.9), (-.1, 5.1), (-2.0, 100.0), (-1e-6, 1e6)])
def test_first_moments(x, length):
    """Against the moments one by one, which are tested against integrals, in value and derivatives of both orders."""
    def pair(x, length):
        return jnp.stack(first_moments(x, length, jnp.exp(x * length)))

    def single(x, length):
        return jnp.stack([exponential_moment(order, x, length, jnp.exp(x * length)) for order in (0, 1)])

    x, length = jnp.asarray(x), jnp.asarray(length)
    for make in (lambda f: f, lambda f: jax.jacfwd(f, (0, 1)), lambda f: jax.jacrev(jax.jacfwd(f, (0, 1)), (0, 1))):
        for got, want in zip(jax.tree.leaves(make(pair)(x, length)), jax.tree.leaves(make(single)(x, length)),
                             strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-13)
