"""The load above which slow servers pay, with and without stalling; endless waiting line, so that nobody is lost and
the mean number and the mean response time agree.

Three loads q = lambda / (m mu1) of one park of servers (r, m, n) and one buffer of K places, each a root in q:

- *pays*: N(K) = N(never use the slow servers), an M/M/m queue. Above it the slow servers pay with this buffer; K = 0 is
  the queue without stalling. In light traffic a customer who finds the buffer full is better off at a slow server if
  r < 1 + (K + 1) / m, as K + 1 customers go before him to m servers: where m r <= m + K + 1 the load is 0, slow
  servers always pay.
- *best*: dN/dK = 0 at K, the load whose best real buffer is K. Above it the buffer is too long. There is none for short
  buffers of very slow servers: they are too short up to saturation.
- *gain*: with the best whole buffer at every load, the load at which the slow servers save a given share of N(never).

Theorem A2 turned round: (i) and (ii) are straight lines' roots minus 1/ln q (see :mod:`.asymptotics`). The best load
has K0(q) = K, the load that pays has N(inf) - N(K) = 0, the root itself: K0(q) + 1/ln q = K.

That each equation has at most one root is not proved; it had one in every case tried (the tests repeat some). Sought on
a grid of logits of the load; the first root is given where there are several.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hetjax.models.registry import Axis, Metric, Model, evaluate
from hetjax.models.stalling.asymptotics import point_asymptotes
from hetjax.models.stalling.buffer import LARGEST, point_optimum
from hetjax.models.stalling.buffer_model import Fixed, fixed_parts
from hetjax.models.stalling.buffer_slope import never_bracket, slope_bracket, state
from hetjax.models.stalling.params import AXES as STALLING_AXES
from hetjax.models.stalling.params import point_status
from hetjax.numerics import close_in, first_rise, follow, log_near_one
from hetjax.numerics.counting import Count
from hetjax.result import Status

Array = jax.Array
_LOWEST, _HIGHEST = -18, 15  # logits of the loads searched: 1.5e-8 to 1 - 3e-7
_STEPS = 14
_FORMS = ("i", "ii_printed", "ii_corrected")
_PAIRS = tuple((kind, form) for kind in ("pays", "best") for form in _FORMS)
_KINDS = {"pays": "load that pays", "best": "load whose best buffer is K"}
_WORDS = {"i": "A2 i", "ii_printed": "A2 ii as printed", "ii_corrected": "A2 ii as corrected"}


def _first_root(function: Callable[[Array], Array], dtype: Any) -> Array:
    """The logit at which ``function`` of a logit first turns from negative to positive; -inf where it starts
    positive, NaN where it never does. Differentiable in what ``function`` closes over."""
    def still(x: Array) -> Array:
        return lax.stop_gradient(function(x))

    found = first_rise(still, jnp.arange(_LOWEST, _HIGHEST + 1, dtype=dtype))
    *_, root = close_in(still, found.low, found.high, found.f_low, found.f_high, _STEPS)
    none = found.rises == 0
    safe = jnp.where(none, 0, root)
    root = follow(lambda x: jnp.where(none, x, function(x)), safe)
    return jnp.where(none, jnp.where(found.first >= 0, -jnp.inf, jnp.nan), root)


def _load(logit: Array) -> Array:
    """The load of a logit, 0 for -inf, with derivatives."""
    always = jnp.isneginf(logit)
    return jnp.where(always, 0, jax.nn.sigmoid(jnp.where(always, 0, logit)))


def _fixed(load: Array, r: Array, m: Count, n: Count) -> Fixed:
    return fixed_parts(load, r, jnp.full_like(load, jnp.inf), m, n)


def pays_load(r: Array, K: Array, m: Count, n: Count) -> Array:
    """The load at which N(K) = N(never), a scalar; 0 where slow servers always pay. Differentiable in r and K; about
    50 O(m n)."""
    def excess(logit: Array) -> Array:
        f = _fixed(jax.nn.sigmoid(logit), r, m, n)
        return never_bracket(f, state(f, K))[0] / f.q

    return _load(_first_root(excess, r.dtype))


def best_load(r: Array, K: Array, m: Count, n: Count) -> Array:
    """The load whose best real buffer is K, a scalar, up to 1 + n/(m r); NaN where K is too short at any load."""
    largest = 1 + n.real(r) / (m.real(r) * r)

    def slope(logit: Array) -> Array:
        f = _fixed(largest * jax.nn.sigmoid(logit), r, m, n)
        return slope_bracket(f, state(f, K)).value / jnp.minimum(f.q, 1)

    return largest * _load(_first_root(slope, r.dtype))


def gain_load(r: Array, gain: Array, m: Count, n: Count) -> Array:
    """The load at which the best whole buffer saves the share ``gain`` of N(never), a scalar. About 50 searches of the
    best buffer. Differentiable in r and gain, with the buffer held fixed (envelope theorem)."""
    wanted = jnp.log10(gain)
    endless, largest = jnp.full_like(r, jnp.inf), jnp.full_like(r, LARGEST)

    def missing(logit: Array) -> Array:
        found = point_optimum(jax.nn.sigmoid(logit), r, endless, largest, m, n, enumerate_up_to=0)
        return jnp.maximum(found.log10_gain_never, -1000) - wanted

    return _load(_first_root(missing, r.dtype))


def asymptotic_loads(r: Array, K: Array, m: Count, n: Count) -> dict[str, Array]:
    """The loads below 1 at which Theorem A2 has the buffer K, by names like ``pays_load_i``; NaN where it never has."""
    def load(which: Array) -> Array:
        def too_long(logit: Array) -> Array:
            q = jax.nn.sigmoid(logit)
            best = jnp.stack(point_asymptotes(_fixed(q, r, m, n), r))
            pays = best + 1 / log_near_one(q, -jax.nn.sigmoid(-logit))
            return K - jnp.concatenate([pays, best])[which]

        return _load(_first_root(too_long, r.dtype))

    found = jax.vmap(load)(jnp.arange(2 * len(_FORMS)))
    return {f"{kind}_load_{form}": found[i] for i, (kind, form) in enumerate(_PAIRS)}


AXES = (
    next(axis for axis in STALLING_AXES if axis.name == "r"),
    Axis("K", 0.0, LARGEST, "customers", "places in the stalling buffer; 0: no stalling", default=0.0),
    Axis("gain", 0.0, 1.0, "1", "share of the mean number that slow servers are to save", default=0.01, open_low=True,
         open_high=True),
    next(axis for axis in STALLING_AXES if axis.name == "m"),
    Axis("n", 1, 512, "servers", "number of slow servers", integer=True, shape=True),
)
_NO_ROOT = "no load below saturation has it"
METRICS = (
    Metric("pays_load", "1", "load above which slow servers pay with K places: N(K) = N(never)", _NO_ROOT),
    Metric("best_load", "1", "load whose best real buffer is K", _NO_ROOT),
    Metric("gain_load", "1", "load above which slow servers with the best buffer save the share gain", _NO_ROOT,
           expensive=True),
    *(Metric(f"{kind}_load_{form}", "1", f"{_KINDS[kind]} by {_WORDS[form]}", _NO_ROOT)
      for kind, form in _PAIRS),
    *(Metric(f"error_{kind}_{form}", "1", f"error of the {_KINDS[kind]} by {_WORDS[form]}", _NO_ROOT)
      for kind, form in _PAIRS),
)


def point(values: Mapping[str, Any], metrics: tuple[str, ...],
          bounds: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """The asked metrics at one point, for the sweep engine."""
    r, K, gain = values["r"], values["K"], values["gain"]
    m, n = Count.of(values["m"], bounds.get("m")), Count.of(values["n"], bounds.get("n"))
    code = point_status(jnp.full_like(r, 0.5), r, K, jnp.full_like(r, jnp.inf), m.value, n.value, jnp.ones_like(r))
    beyond = jnp.asarray(m.value > m.bound) | jnp.asarray(n.value > n.bound) | jnp.asarray(n.value < 1)
    code = jnp.where(beyond | ~((gain > 0) & (gain < 1)), int(Status.OUT_OF_DOMAIN), code).astype(jnp.uint8)
    legal = code == int(Status.OK)
    r, K, gain = (jnp.where(legal, value, 0.5) for value in (r, K, gain))
    found: dict[str, Array] = {}
    if "gain_load" in metrics:
        found["gain_load"] = gain_load(r, gain, m, n)
    for kind, load in (("pays", pays_load), ("best", best_load)):
        if any(name == f"{kind}_load" or name.startswith(f"error_{kind}") for name in metrics):
            found[f"{kind}_load"] = load(r, K, m, n)
    if any(name.endswith(_FORMS) for name in metrics):
        found |= asymptotic_loads(r, K, m, n)
        found |= {f"error_{kind}_{form}": jnp.abs(found[f"{kind}_load_{form}"] - found[f"{kind}_load"])
                  for kind, form in _PAIRS if f"{kind}_load" in found}
    return {name: jnp.where(legal, found[name], jnp.nan) for name in metrics}, code


MODEL = Model(name="stalling_pays", version=2, title="Stalling queue: the load above which slow servers pay", axes=AXES,
              metrics=METRICS, point=point,
              golden=(({"r": 20.0, "K": 0.0, "gain": 0.01, "m": 5, "n": 2}, {"pays_load": 0.9090054352651622}),))


def load_where_slow_servers_pay(r: Any, m: Any, n: Any, *, K: Any = 0.0, gain: float | None = None) -> Array:
    """The load lambda/(m mu1) above which n slow servers, r times slower than m fast ones, pay; endless waiting line.

    Without ``gain``: with a buffer of K places (K = 0: no stalling, everybody who finds the fast servers busy goes to a
    slow one) the mean number in system is below that without slow servers. With ``gain``: with the best buffer at each
    load they save that share of it; K then plays no part. 0: they pay at any load. Arrays broadcast; r in [1e-3, 1e9],
    n >= 1; NaN outside the domain. Differentiable in r, K and gain. Costs 50 closed forms, or 50 searches of the best
    buffer. For asymptotes and errors sweep the model ``stalling_pays``.

    >>> from hetjax.models.stalling.pays import load_where_slow_servers_pay
    >>> [round(float(load_where_slow_servers_pay(r, 5, 2)), 4) for r in (1.2, 2.0, 20.0)]
    [0.0, 0.5693, 0.909]
    """
    name = "pays_load" if gain is None else "gain_load"
    return evaluate(MODEL, r=r, m=m, n=n, K=K, gain=0.01 if gain is None else gain, metrics=[name])[name]


