"""Long batches in blocks: the same bits as the plain function, however it is mapped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.numerics import in_blocks


def function(x, y):
    return jnp.sqrt(x) * y + 1


BLOCKED = in_blocks(function, 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 29])
def test_every_length_gives_the_bits_of_the_function(size, dtype):
    x, y = np.linspace(0, 3, size, dtype=dtype), np.linspace(-1, 1, size, dtype=dtype)
    found = jax.jit(jax.vmap(BLOCKED))(x, y)
    assert found.dtype == dtype and found.shape == (size,)
    np.testing.assert_array_equal(found, jax.jit(jax.vmap(function))(x, y))


def test_nested_maps_and_arguments_that_are_not_mapped():
    x, y = np.linspace(0, 3, 5), np.linspace(-1, 1, 7)
    expected = np.sqrt(x)[:, None] * y[None] + 1
    for mapped in (jax.vmap(jax.vmap(BLOCKED, (None, 0)), (0, None)),
                   lambda x, y: jax.vmap(jax.vmap(BLOCKED, (0, None)), (None, 0))(x, y).T,
                   lambda x, y: jax.vmap(lambda a: jax.vmap(lambda b: BLOCKED(a, b))(y))(x)):
        np.testing.assert_allclose(jax.jit(mapped)(x, y), expected, atol=1e-15, rtol=0)  # of terms up to 2
    assert float(BLOCKED(jnp.asarray(4.0), jnp.asarray(1.0))) == 3


def test_lengths_do_not_change_the_program():
    """A long batch is a loop over blocks, not one wide program."""
    text = jax.jit(jax.vmap(BLOCKED)).lower(np.ones(80), np.ones(80)).as_text()
    assert "while" in text and "tensor<10x8xf64>" in text
    assert "while" not in jax.jit(jax.vmap(BLOCKED)).lower(np.ones(8), np.ones(8)).as_text()
