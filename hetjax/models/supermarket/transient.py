"""How the mean field gets to its fixed point: trajectories, the speed in the end, the time it takes.

The paper proves exponential convergence for its own system. Here it is measured for the mean field: near the fixed
point distances shrink like e^(-gap t), where -gap is the largest real part of an eigenvalue of the drift's Jacobian
there.
Trajectories need the extra ``ode`` (diffrax), which is imported when they are asked for.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hetjax.models.supermarket.fixed_point import fixed_point
from hetjax.models.supermarket.mean_field import Join, drift, shortest_of_d
from hetjax.models.supermarket.params import Params
from hetjax.result import Solution, Status

Array = jax.Array


def transient(params: Params, s0: Any, t: Any, *, join: Join = shortest_of_d, rtol: float | None = None,
              atol: float | None = None, max_steps: int = 20_000) -> Solution:
    """The mean field from a given start, ds/dt = drift(s), at the times asked for.

    Args:
      params: one system; the load may be 1 or more here.
      s0: (levels, phases), the share of queues with at least k customers by service phase; zeros for an empty system.
        It sets the levels kept: give as many as the queues will reach.
      t: (times,) increasing, from 0 on.
      rtol, atol: of the steps, 1e-9 and 1e-12 by default (1e-5, 1e-7 in float32).

    Returns:
      Solution with s of shape (times, levels, phases); not_converged if ``max_steps`` did not suffice (NaN from there
      on). ``iterations``: steps. Differentiable in the parameters and the start. Kvaerno's implicit method of order 5
      with an adaptive step: O(steps (levels phases)^3).

    >>> import jax.numpy as jnp
    >>> from hetjax.models.supermarket import Params
    >>> from hetjax.models.supermarket.transient import transient
    >>> found = transient(Params(0.5, 2, [1.0], [[-1.0]]), jnp.zeros((8, 1)), jnp.array([0.0, 1.0, 100.0]))
    >>> [round(float(u), 6) for u in found.value[2, :3, 0]]
    [0.5, 0.125, 0.007812]
    """
    try:
        import diffrax
    except ImportError as error:
        raise ImportError("transient needs diffrax; install the extra: pip install 'hetjax[ode]'") from error
    s0 = jnp.asarray(s0, params.T.dtype)
    t = jnp.asarray(t, params.T.dtype)
    if s0.ndim != 2 or s0.shape[1] != params.phases:
        raise ValueError(f"s0 has shape {s0.shape}: must be (levels, {params.phases})")
    wide = jnp.finfo(params.T.dtype).bits == 64
    rtol = rtol if rtol is not None else 1e-9 if wide else 1e-5
    atol = atol if atol is not None else 1e-12 if wide else 1e-7
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, s, p: drift(p, s, join)), diffrax.Kvaerno5(), t0=t[0] * 0, t1=t[-1], dt0=None, y0=s0,
        args=params, saveat=diffrax.SaveAt(ts=t), max_steps=max_steps, throw=False,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol, pcoeff=0.3, icoeff=0.4))
    value = jnp.where(jnp.isfinite(found.ys), found.ys, jnp.nan)
    code = jnp.where(jnp.all(jnp.isfinite(value)), int(Status.OK), int(Status.NOT_CONVERGED)).astype(jnp.uint8)
    return Solution(value, code, 0.0, found.stats["num_steps"])


class Relaxation(NamedTuple):
    """``gap`` per unit time, and the ``eigenvalues`` (levels phases,) of the Jacobian, the slowest first (host)."""

    gap: float
    eigenvalues: np.ndarray


def spectral_gap(params: Params, levels: int | None = None, join: Join = shortest_of_d) -> Relaxation:
    """The rate of the final exponential approach to the fixed point, on the host.

    From the Jacobian, by automatic differentiation, of the drift in the shares of queues of exactly k customers. d = 1:
    the gap of the truncated single queue tends to (1 - sqrt(rho))^2 for M/M/1 as levels grow. O((levels phases)^3).

    >>> from hetjax.models.supermarket import Params
    >>> from hetjax.models.supermarket.transient import spectral_gap
    >>> round(spectral_gap(Params(0.9, 2, [1.0], [[-1.0]])).gap, 6) > 0
    True
    """
    if levels is None:
        value = fixed_point(params).value
        depth = np.asarray(-value.log_tails) * min(1.0, max(float(params.d) - 1, 0.1))
        levels = min(int(np.searchsorted(depth, 36.0)) + 1, 400)
    x = fixed_point(params, levels=max(levels, 8)).value.exactly[:levels]
    p = params.phases

    def field(x: Array) -> Array:
        s = lax.cumsum(x.reshape(levels, p), axis=0, reverse=True)
        change = drift(params, s, join)
        return (change - jnp.concatenate([change[1:], jnp.zeros((1, p), change.dtype)])).reshape(-1)

    found = np.linalg.eigvals(np.asarray(jax.jacfwd(field)(x.reshape(-1)), float))
    found = found[np.argsort(-found.real)]
    return Relaxation(float(-found[0].real), found)


def relaxation_time(times: Any, trajectory: Any, params: Params, epsilon: float) -> float:
    """The first of ``times`` from which on the trajectory (times, levels, phases) stays within ``epsilon`` of the fixed
    point in the number of customers per queue, sum_k |u_k - u_k*|; inf if it does not. On the host.

    >>> import jax.numpy as jnp
    >>> from hetjax.models.supermarket import Params
    >>> from hetjax.models.supermarket.transient import relaxation_time, transient
    >>> params, t = Params(0.5, 2, [1.0], [[-1.0]]), jnp.linspace(0.0, 40.0, 401)
    >>> path = transient(params, jnp.zeros((8, 1)), t).value
    >>> 1 < relaxation_time(t, path, params, 1e-3) < 20
    True
    """
    trajectory = np.asarray(trajectory)
    levels = trajectory.shape[1]
    goal = np.asarray(fixed_point(params, levels=max(levels, 8)).value.at_least[:levels])
    distance = np.abs(trajectory.sum(2) - goal.sum(1)).sum(1)
    late = np.flatnonzero(~(distance <= epsilon))
    first = 0 if late.size == 0 else late[-1] + 1
    return float(np.asarray(times)[first]) if first < len(distance) else float("inf")
