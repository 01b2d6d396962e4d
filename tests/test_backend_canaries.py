"""Canaries: faults that some JAX releases had on the CPU; a failure here means that this JAX must not be used.

jit(vmap(reduce(M @ row))) silently wrong above 16,384 rows; scans with stacked scalar outputs quadratic in length;
shifted in-place updates; the fixed-batch evaluation that sweeps rest on.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROWS = 33_000


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 13, 16])
@pytest.mark.parametrize("reduce", ["sum_of_squares", "max", "l1"])
def test_reductions_of_products_over_many_rows(size, reduce):
    random = np.random.default_rng(size)
    matrix, rows = random.normal(size=(size, size)), random.normal(size=(ROWS, size))
    functions = {"sum_of_squares": (lambda v: jnp.sum(v * v), lambda v: np.sum(v * v, axis=1)),
                 "max": (jnp.max, lambda v: np.max(v, axis=1)),
                 "l1": (lambda v: jnp.sum(jnp.abs(v)), lambda v: np.sum(np.abs(v), axis=1))}
    ours, theirs = functions[reduce]
    found = jax.jit(jax.vmap(lambda row: ours(jnp.asarray(matrix) @ row)))(rows)
    # sums of up to 16 products in another order
    np.testing.assert_allclose(found, theirs(rows @ matrix.T), rtol=1e-12, atol=1e-13)


def test_scan_time_grows_linearly_with_its_length():
    """Per step, 16 times the length costs about the same; the fault made it 16 times dearer."""
    def run(length):
        @jax.jit
        def f(x):
            def step(carry, _):
                carry = carry * 0.999 + 1e-3
                return carry, (carry, carry * 2)
            return jax.lax.scan(step, x, None, length=length)
        f(jnp.float64(1.0))[0].block_until_ready()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready(f(jnp.float64(1.0)))
            times.append(time.perf_counter() - start)
        return min(times) / length

    short, long = run(4_000), run(64_000)
    assert long < 8 * short, "a complexity, not a wall time: 16 would be quadratic, 1 is linear"


def test_shifted_in_place_updates():
    @jax.jit
    def shift(a):
        def step(i, a):
            return a.at[i + 1].set(a[i] + a[i + 1])
        return jax.lax.fori_loop(0, a.shape[0] - 1, step, a)

    values = np.arange(1.0, 5001.0)
    assert np.array_equal(shift(values), np.cumsum(values))
    assert np.array_equal(jax.jit(lambda a: a.at[1:].set(a[:-1]))(values), np.concatenate([values[:1], values[:-1]]))


def test_batches_of_one_size_do_not_depend_on_their_neighbours():
    """The same point gives the same bits wherever it lies in a batch, in every batch."""
    @jax.jit
    def f(x):
        return jax.lax.map(lambda v: jnp.log1p(v) * jnp.exp(-v) / (1 + v * v) ** 0.3, x, batch_size=256)

    x = np.random.default_rng(0).uniform(0, 5, 256 * 24)
    order = np.random.default_rng(1).permutation(x.size)
    assert np.asarray(f(x))[order].tobytes() == np.asarray(f(x[order])).tobytes()
