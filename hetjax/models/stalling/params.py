"""The parameters of the stalling queue, their domain and the status of a point.

    lambda -->  m fast servers, rate mu1    <-- stalling buffer of K places (feeds fast servers only)
                n slow servers, rate mu2    <-- waiting line of M places (all servers busy and the buffer full)

q = lambda / (m mu1) is the load offered to the fast servers, r = mu1 / mu2 how much slower the slow ones are,
rho = lambda / (m mu1 + n mu2) the load offered to all. K and M count places for customers *waiting*, never customers
in service.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hetjax.models.registry import Axis, real_array
from hetjax.models.stalling.load import log_rho
from hetjax.numerics.geometric import endless
from hetjax.result import Status

AXES = (
    Axis("q", 1e-8, 1e4, "1", "load offered to the fast servers, arrival rate / (m mu1)"),
    Axis("r", 1e-3, 1e9, "1", "rate of a fast server over the rate of a slow one, mu1 / mu2"),
    Axis("K", 0.0, 1e7, "customers", "places in the stalling buffer (infinite only where q < 1)", infinite=True),
    Axis("M", 0.0, 1e7, "customers", "places in the waiting line (infinite only where rho < 1)", infinite=True),
    Axis("m", 1, 512, "servers", "number of fast servers", integer=True, shape=True),
    Axis("n", 0, 512, "servers", "number of slow servers", integer=True, shape=True),
    Axis("mu1", 1e-12, 1e12, "1/time", "service rate of a fast server; sets the time unit", default=1.0),
)
_AXIS = {axis.name: axis for axis in AXES}
_REAL = ("q", "r", "K", "M", "mu1")


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, eq=False)
class Params:
    """One stalling queue, or a batch of them that differ in the real parameters.

    ``q, r, K, M, mu1`` are leaves of a pytree (scalars, or arrays of one shape to be mapped over); K and M may be any
    real number or infinity. ``m, n`` are static whole numbers: they give shapes. Python numbers become arrays of the
    leaves' common floating dtype (the default real dtype where there is no array). Concrete values outside the domain
    of :data:`AXES` raise ValueError; traced values are not checked, see :func:`status`.

    >>> from hetjax.models.stalling import Params
    >>> p = Params(q=0.5, r=8.0, K=3, M=5, m=4, n=2)
    >>> float(p.arrival_rate), float(p.mu2)
    (2.0, 0.125)
    """

    q: jax.Array
    r: jax.Array
    K: jax.Array
    M: jax.Array
    m: int
    n: int
    mu1: jax.Array

    def __init__(self, q: ArrayLike, r: ArrayLike, K: ArrayLike, M: ArrayLike, m: int, n: int,
                 mu1: ArrayLike = 1.0) -> None:
        given = dict(zip(_REAL, (q, r, K, M, mu1), strict=True))
        dtype = common_dtype(*given.values())
        for name, value in given.items():
            value = real_array(name, value)
            if isinstance(value, jax.core.Tracer):
                leaf = value.astype(dtype)
            else:
                with jax.ensure_compile_time_eval(), np.errstate(over="ignore"):  # a number stays known inside jit
                    leaf = jnp.asarray(value.astype(dtype))
                _check_leaf(_AXIS[name], np.asarray(leaf))
            object.__setattr__(self, name, leaf)
        for name, count in (("m", m), ("n", n)):
            if isinstance(count, jax.core.Tracer):
                raise ValueError(f"{name} is traced, but it gives shapes; use stalling.evaluate(..., max_{name}=...)")
            if np.ndim(count):
                raise ValueError(f"{name} = {count!r} is an array, but it gives shapes; use stalling.evaluate")
            number = float(real_array(name, count))
            _AXIS[name].check(number)
            object.__setattr__(self, name, int(number))

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[int, int]]:
        """The real leaves with their names, and (m, n)."""
        return tuple((jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in _REAL), (self.m, self.n)

    @classmethod
    def tree_unflatten(cls, counts: tuple[int, int], leaves: tuple[Any, ...]) -> "Params":
        """Rebuilds without checks, as transformations pass placeholders."""
        self = object.__new__(cls)
        for name, leaf in zip((*_REAL, "m", "n"), (*leaves, *counts), strict=True):
            object.__setattr__(self, name, leaf)
        return self

    @property
    def arrival_rate(self) -> jax.Array:
        """lambda = q m mu1, customers per unit time."""
        return self.q * self.m * self.mu1

    @property
    def mu2(self) -> jax.Array:
        """Service rate of a slow server, mu1 / r."""
        return self.mu1 / self.r

    @property
    def rho(self) -> jax.Array:
        """lambda / (m mu1 + n mu2), the load offered to all servers."""
        return self.q * (self.m * self.r) / (self.m * self.r + self.n)


def common_dtype(*values: Any) -> Any:
    """The widest floating dtype among the arrays in ``values``; the default real dtype if there is none."""
    found = [np.dtype(v.dtype) for v in values if hasattr(v, "dtype") and not isinstance(v, float)
             and jnp.issubdtype(v.dtype, jnp.floating)]
    return jax.dtypes.canonicalize_dtype(np.result_type(*found)) if found else jnp.result_type(float)


def from_rates(arrival_rate: ArrayLike, mu1: ArrayLike, mu2: ArrayLike, K: ArrayLike, M: ArrayLike,
               m: int, n: int) -> Params:
    """The queue with Poisson arrivals of rate ``arrival_rate`` and service rates ``mu1``, ``mu2``, all per unit time.

    Differentiable in the rates. ValueError where q = arrival_rate / (m mu1) or r = mu1 / mu2 leaves its domain.

    >>> from hetjax.models.stalling import from_rates
    >>> p = from_rates(arrival_rate=3.0, mu1=2.0, mu2=0.5, K=4, M=10, m=2, n=1)
    >>> float(p.q), float(p.r)
    (0.75, 4.0)
    """
    dtype = common_dtype(arrival_rate, mu1, mu2, K, M)
    rates = {}
    for name, value in (("arrival_rate", arrival_rate), ("mu1", mu1), ("mu2", mu2)):
        rates[name] = jnp.asarray(real_array(name, value)).astype(dtype)
        if not isinstance(rates[name], jax.core.Tracer) and not np.all(np.asarray(rates[name]) > 0):
            raise ValueError(f"{name} = {value!r} is outside its domain (0, inf); give a positive rate")
    fast, slow = rates["mu1"], rates["mu2"]
    if not isinstance(m, jax.core.Tracer) and not np.ndim(m):
        _AXIS["m"].check(float(real_array("m", m)))  # before it divides
    return Params(rates["arrival_rate"] / (fast * m), fast / slow, K, M, m, n, fast)


def _check_leaf(axis: Axis, values: np.ndarray) -> None:
    low, high = (values.dtype.type(end) for end in (axis.low, axis.high))
    legal = (values >= low) & (values <= high)
    if axis.infinite:
        legal |= np.isposinf(values)
    if not np.all(legal):
        axis.check(float(values[~legal].flat[0]))


def status(params: Params) -> jax.Array:
    """The uint8 code of :class:`hetjax.result.Status` of each point: OK, OUT_OF_DOMAIN or UNSTABLE.

    UNSTABLE: an infinite stalling buffer with q >= 1, or an infinite waiting line with rho >= 1 (in float32:
    rho > 1 - 5e-8, nearer to 1 than the last float below it); means are NaN there.

    >>> from hetjax.models.stalling import Params, status
    >>> import math
    >>> int(status(Params(q=0.5, r=10.0, K=3, M=math.inf, m=4, n=2))), int(status(Params(1.5, 10.0, 3, math.inf, 4, 2)))
    (1, 3)
    """
    return point_status(params.q, params.r, params.K, params.M, params.m, params.n, params.mu1)


def point_status(q: jax.Array, r: jax.Array, K: jax.Array, M: jax.Array, m: Any, n: Any, mu1: jax.Array) -> jax.Array:
    """:func:`status` of loose values; ``m`` and ``n`` may be traced."""
    inside = jnp.ones((), bool)
    for axis, value in zip(AXES, (q, r, K, M, m, n, mu1), strict=True):
        value = jnp.asarray(value)
        kind = value.dtype.type
        legal = (value >= kind(axis.low)) & (value <= kind(axis.high))
        inside = inside & (legal | jnp.isposinf(value) if axis.infinite else legal)
    # an endless line is as good as endless only where ln rho has the right sign and rho^ENDLESS is nothing
    slack = -log_rho(q, r, _as_real(m, q), _as_real(n, q)) * endless(q.dtype)
    overloaded = ~(slack > (50 if q.dtype == jnp.float32 else 500))
    unstable = (jnp.isposinf(K) & (q >= 1)) | (jnp.isposinf(M) & ~jnp.isposinf(K) & overloaded)
    code = jnp.where(inside, jnp.where(unstable, int(Status.UNSTABLE), int(Status.OK)), int(Status.OUT_OF_DOMAIN))
    return code.astype(jnp.uint8)


def _as_real(count: Any, like: jax.Array) -> jax.Array:
    return jnp.asarray(count).astype(like.dtype)
