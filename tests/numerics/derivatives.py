"""Values, first and second derivatives: by automatic differentiation of a function of two reals, and in many digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

DIGITS, STEP = 170, mpmath.mpf(10) ** -26
ORDERS = ("value", "x", "y", "xx", "xy", "yy")


def automatic(function):
    """points (n, 2) -> (n, 6) in the order of ORDERS: reverse mode, and forward over reverse."""
    def all_orders(x, y):
        gradient = jax.grad(function, (0, 1))
        (xx, yx), (xy, yy) = jax.jacfwd(lambda x, y: jnp.stack(gradient(x, y)), (0, 1))(x, y)
        return jnp.stack([function(x, y), *gradient(x, y), xx, (xy + yx) / 2, yy])

    compiled = jax.jit(jax.vmap(all_orders))

    def run(points, dtype):
        columns = np.asarray(points, dtype).T
        return np.asarray(compiled(*(jnp.asarray(c) for c in columns)), float)

    return run


def exact(function, x, y, relative_step=(True, True)):
    """The same six by central differences at 170 digits; a step relative to the variable, or absolute."""
    with mpmath.workdps(DIGITS):
        x, y = mpmath.mpf(float(x)), mpmath.mpf(float(y))
        h = [STEP * (abs(v) if relative and v else 1) for v, relative in zip((x, y), relative_step, strict=True)]
        f = {(i, j): function(x + i * h[0], y + j * h[1]) for i in (-1, 0, 1) for j in (-1, 0, 1)}
        values = [f[0, 0], (f[1, 0] - f[-1, 0]) / (2 * h[0]), (f[0, 1] - f[0, -1]) / (2 * h[1]),
                  (f[1, 0] - 2 * f[0, 0] + f[-1, 0]) / h[0]**2,
                  (f[1, 1] - f[1, -1] - f[-1, 1] + f[-1, -1]) / (4 * h[0] * h[1]),
                  (f[0, 1] - 2 * f[0, 0] + f[0, -1]) / h[1]**2]
        return [float(v) for v in values]
