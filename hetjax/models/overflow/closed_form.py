"""The stationary law of the overflow system and everything that follows from it, in closed form.

Source: Overflow in systems with two servers: the negative consequences (balance equations of its appendix A). Solving
the nine balance equations gives, with S = rho1 + rho2 and D = S^2 + 2 (S + 1),

    pi(0,0) = 2/D,  pi(1,1) = rho1^2/D,  pi(2,2) = rho2^2/D,

and the other six over Delta = (S+1)(1 + rho1 + alpha + alpha rho2) D, for example

    pi(2,1) = rho1 rho2 [alpha (rho1 rho2 + rho1 + rho2^2) + rho1^2 + rho1 rho2 + rho2] / Delta.

Form used here. Rates may lie anywhere in [1e-6, 1e6], so S runs over 24 decades and powers of S leave float32. Put

    e = 1/(S+1),  h = S e,  g = 1/(1+e^2),  so that D = (1+e^2)/e^2 and h + e = 1,
    x_t = rho_t e,  c_t = 1/(1+rho_t),  b_t = rho_t c_t   (b_t: the loss probability of type t without overflow),
    w = (mu2+lambda2)/(mu1+lambda1+mu2+lambda2) = alpha (1+rho2) / (1 + rho1 + alpha + alpha rho2),  v = 1 - w.

Dividing the brackets by 1+rho2 (terms with alpha) and 1+rho1 (the others) leaves sums of products of numbers in [0, 1]:

    pi(0,0) = 2 e^2 g                                      pi(1,1) = x1^2 g,  pi(2,2) = x2^2 g
    pi(0,1) = x1 e g [w (x1 + x2 b2) + v b1]               pi(2,0) = x2 e g [w b2 + v (x2 + x1 b1)]
    pi(1,0) = x1 e g [w (1 + e (1 + b2)) + v (1 + c1)]     pi(0,2) = x2 e g [w (1 + c2) + v (1 + e (1 + b1))]
    pi(1,2) = x1 x2 g [1 + e (1 + w b2 + v b1)]            pi(2,1) = x1 x2 g [w (x1 + x2 b2) + v (x2 + x1 b1)]

Nothing is subtracted, so every probability is right to a few units in the last place, in either precision.

    P_loss = S^2/D = h^2 g           (Erlang B with two servers: only S matters)
    o_t = lambda_t (pi(t's server busy, other idle)) = lambda_t e g (h^2 + 2 e x_t)       overflow rate
    r_t = o_t / (lambda_t (1 - P_loss)) = (h^2 + 2 e x_t)/2                               wrong-assignment ratio

Does overflow reduce losses? With t' the other type,

    b_t - P_loss = (rho_t^2 + 2 rho_t - rho_t'^2) / ((1+rho_t) D) = c_t g [(rho_t - rho_t') e h + 2 e x_t],
    sum_t k_t lambda_t (b_t - P_loss) = 2 e^2 g (k1 lambda1 b1 + k2 lambda2 b2)
        + (rho1 - rho2) e h g [(k1 lambda1 - k2 lambda2) c1 c2 + (k1 mu1 - k2 mu2) b1 b2].

The second identity (k_t = 1) shows corollary 1 at a glance: at rho1 = rho2 the last line vanishes, at mu1 = mu2 it has
the sign of (rho1 - rho2)(lambda1 - lambda2) >= 0, so the sum is positive, and it is so in floating point too.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hetjax.models.overflow.params import Costs, Params
from hetjax.processes.checks import as_reals


class Metrics(NamedTuple):
    """All characteristics of one overflow system; units and meanings in :data:`hetjax.models.overflow.MODEL`."""

    pi00: jax.Array
    pi01: jax.Array
    pi02: jax.Array
    pi10: jax.Array
    pi11: jax.Array
    pi12: jax.Array
    pi20: jax.Array
    pi21: jax.Array
    pi22: jax.Array
    p_loss: jax.Array
    p_loss_without_overflow_1: jax.Array
    p_loss_without_overflow_2: jax.Array
    overflow_rate_1: jax.Array
    overflow_rate_2: jax.Array
    overflow_rate_total: jax.Array
    wrong_assignment_ratio_1: jax.Array
    wrong_assignment_ratio_2: jax.Array
    wrong_assignment_ratio_total: jax.Array
    malposition_serious: jax.Array
    malposition_light: jax.Array
    malposition_middle: jax.Array
    malposition_total: jax.Array
    loss_reduction_1: jax.Array
    loss_reduction_2: jax.Array
    absolute_loss_reduction_margin: jax.Array
    relative_loss_reduction_margin: jax.Array
    absolute_loss_reduction: jax.Array
    relative_loss_reduction: jax.Array
    throughput_1: jax.Array
    throughput_2: jax.Array
    throughput_total: jax.Array
    throughput_without_overflow_1: jax.Array
    throughput_without_overflow_2: jax.Array
    mean_number_1: jax.Array
    mean_number_2: jax.Array
    utilization_server_1_type_1: jax.Array
    utilization_server_1_type_2: jax.Array
    utilization_server_2_type_1: jax.Array
    utilization_server_2_type_2: jax.Array
    utilization_server_1: jax.Array
    utilization_server_2: jax.Array
    cost_rate: jax.Array
    cost_rate_without_overflow: jax.Array
    cost_saving: jax.Array
    break_even_overflow_cost: jax.Array


class _Parts(NamedTuple):
    """The bounded numbers of the module docstring."""

    rho1: jax.Array
    rho2: jax.Array
    e: jax.Array
    h: jax.Array
    g: jax.Array
    x1: jax.Array
    x2: jax.Array
    c1: jax.Array
    c2: jax.Array
    b1: jax.Array
    b2: jax.Array


def _parts(params: Params) -> _Parts:
    rho1, rho2 = params.rho1, params.rho2
    e = 1 / (rho1 + rho2 + 1)
    c1, c2 = 1 / (1 + rho1), 1 / (1 + rho2)
    return _Parts(rho1, rho2, e, (rho1 + rho2) * e, 1 / (1 + e * e), rho1 * e, rho2 * e, c1, c2, rho1 * c1, rho2 * c2)


def probabilities(params: Params) -> jax.Array:
    """The nine stationary probabilities, shape (..., 3, 3): entry [i, j] is pi(i, j), i at server 1, j at server 2.

    ``params``: leaves of shape (...). Relative error of each entry a few units in the last place over the whole domain;
    O(1). Source: equations (1)-(9) of the paper, in the form of the module docstring.

    >>> from hetjax.models.overflow import Params, probabilities
    >>> p = probabilities(Params(1.0, 1.0, 1.0, 1.0))
    >>> round(float(p[0, 0]), 6), round(float(p.sum()), 6)
    (0.2, 1.0)
    """
    _, _, e, _, g, x1, x2, c1, c2, b1, b2 = _parts(params)
    both = params.mu1 + params.lambda1 + params.mu2 + params.lambda2
    w, v = (params.mu2 + params.lambda2) / both, (params.mu1 + params.lambda1) / both
    p00 = 2 * e * e * g
    p01 = x1 * e * g * (w * (x1 + x2 * b2) + v * b1)
    p20 = x2 * e * g * (w * b2 + v * (x2 + x1 * b1))
    p10 = x1 * e * g * (w * (1 + e * (1 + b2)) + v * (1 + c1))
    p02 = x2 * e * g * (w * (1 + c2) + v * (1 + e * (1 + b1)))
    p12 = x1 * x2 * g * (1 + e * (1 + w * b2 + v * b1))
    p21 = x1 * x2 * g * (w * (x1 + x2 * b2) + v * (x2 + x1 * b1))
    rows = ((p00, p01, p02), (p10, x1 * x1 * g, p12), (p20, p21, x2 * x2 * g))
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def loss_rate_reduction(params: Params, weight_1: jax.Array, weight_2: jax.Array) -> jax.Array:
    """sum_t weight_t lambda_t (loss probability without overflow - with overflow), positive where overflow helps.

    The error is a few units in the last place of the larger side, the weighted loss rate with or without overflow.

    >>> from hetjax.models.overflow import Params, loss_rate_reduction
    >>> import jax.numpy as jnp
    >>> round(float(loss_rate_reduction(Params(1.0, 1.0, 1.0, 1.0), jnp.array(1.0), jnp.array(1.0))), 6)
    0.2
    """
    rho1, rho2, e, h, g, _, _, c1, c2, b1, b2 = _parts(params)
    loss1, loss2 = weight_1 * params.lambda1, weight_2 * params.lambda2
    slope = (loss1 - loss2) * (c1 * c2) + (weight_1 * params.mu1 - weight_2 * params.mu2) * (b1 * b2)
    return g * (2 * e * e * (loss1 * b1 + loss2 * b2) + (rho1 - rho2) * e * h * slope)


def metrics(params: Params, costs: Costs | None = None) -> Metrics:
    """All characteristics, each of the leaves' shape; O(1).

    Losses. ``loss_reduction_t`` = rho_t/(1+rho_t) - P_loss. Absolute loss reduction (proposition 1: both types lose
    less) holds iff its margin, the smaller of the two, is positive, which is rho_max^2 < rho_min^2 + 2 rho_min.
    Relative loss reduction (fewer losses altogether) holds iff its margin sum_t lambda_t loss_reduction_t (customers
    per unit time) is positive. ``absolute_loss_reduction``, ``relative_loss_reduction``: 1 where they hold, else 0.

    Costs. The definition is this project's own, the paper's may differ: with loss costs cl_t and overflow costs co_t
    per customer,

        cost_rate                   = sum_t cl_t lambda_t P_loss + co_t o_t
        cost_rate_without_overflow  = sum_t cl_t lambda_t rho_t/(1+rho_t)
        cost_saving                 = the second minus the first: overflow pays iff it is positive
        break_even_overflow_cost    = (sum_t cl_t lambda_t loss_reduction_t) / (o_1 + o_2),

    the last being the overflow cost, the same for both types, at which overflow just pays (negative: it never does).
    Differences are formed from the factored expressions of the module docstring: their error is a few units in the
    last place of the larger of the two sides compared.

    >>> from hetjax.models.overflow import Params, metrics
    >>> m = metrics(Params(lambda1=1.0, lambda2=1.0, mu1=1.0, mu2=1.0))
    >>> round(float(m.p_loss), 6), round(float(m.wrong_assignment_ratio_1), 6), float(m.absolute_loss_reduction)
    (0.4, 0.333333, 1.0)
    """
    parts = _parts(params)
    rho1, rho2, e, h, g, x1, x2, c1, c2, b1, b2 = parts
    lambda1, lambda2 = params.lambda1, params.lambda2
    pi = probabilities(params)
    p00, p01, p02, p10, p11, p12, p20, p21, p22 = (pi[..., i, j] for i in range(3) for j in range(3))

    p_loss, served = h * h * g, 2 * e * g
    r1, r2 = (h * h + 2 * e * x1) / 2, (h * h + 2 * e * x2) / 2
    o1, o2 = lambda1 * served * r1, lambda2 * served * r2
    r = (lambda1 * r1 + lambda2 * r2) / (lambda1 + lambda2)

    reduction1 = c1 * e * g * ((rho1 - rho2) * h + 2 * x1)
    reduction2 = c2 * e * g * ((rho2 - rho1) * h + 2 * x2)
    one = jnp.ones_like(e)
    absolute = jnp.minimum(reduction1, reduction2)
    relative = loss_rate_reduction(params, one, one)

    given = costs or Costs()
    cl1, cl2, co1, co2 = (jnp.asarray(c).astype(e.dtype)
                          for c in (given.loss_1, given.loss_2, given.overflow_1, given.overflow_2))
    saved = loss_rate_reduction(params, cl1, cl2)
    return Metrics(
        p00, p01, p02, p10, p11, p12, p20, p21, p22,
        p_loss, b1, b2, o1, o2, o1 + o2, r1, r2, r,
        p21, p01 + p20, p11 + p22, (p01 + p20) + (p11 + p22) + p21,
        reduction1, reduction2, absolute, relative,
        (absolute > 0).astype(e.dtype), (relative > 0).astype(e.dtype),
        lambda1 * served, lambda2 * served, (lambda1 + lambda2) * served, lambda1 * c1, lambda2 * c2,
        rho1 * served, rho2 * served,
        p10 + p11 + p12, p20 + p21 + p22, p01 + p11 + p21, p02 + p12 + p22,
        (p10 + p11 + p12) + (p20 + p21 + p22), (p01 + p11 + p21) + (p02 + p12 + p22),
        (cl1 * lambda1 + cl2 * lambda2) * p_loss + co1 * o1 + co2 * o2,
        cl1 * lambda1 * b1 + cl2 * lambda2 * b2,
        saved - (co1 * o1 + co2 * o2),
        saved / (o1 + o2),
    )


def generator(params: Params) -> jax.Array:
    """The generator of the nine-state chain, shape (..., 9, 9); state (i, j) has index 3 i + j.

    The independent route to every stationary quantity of :func:`metrics`.

    >>> from hetjax.models.overflow import Params, generator
    >>> q = generator(Params(1.0, 2.0, 3.0, 4.0))
    >>> q.shape, float(q[0, 0])
    ((9, 9), -3.0)
    """
    lambda1, lambda2, mu1, mu2 = as_reals(params.lambda1, params.lambda2, params.mu1, params.mu2)
    q = jnp.zeros((*lambda1.shape, 9, 9), lambda1.dtype)
    arrivals, services = (lambda1, lambda2), (mu1, mu2)
    for state in itertools.product(range(3), repeat=2):
        moves = [(_replace(state, server, 0), services[state[server] - 1]) for server in (0, 1) if state[server]]
        for t in (1, 2):
            free = [server for server in (t - 1, 2 - t) if state[server] == 0]  # the own server first
            if free:
                moves.append((_replace(state, free[0], t), arrivals[t - 1]))
        source = _index(state)
        for target, rate in moves:
            q = q.at[..., source, _index(target)].add(rate).at[..., source, source].add(-rate)
    return q


def _replace(state: tuple[int, ...], server: int, content: int) -> tuple[int, ...]:
    return (*state[:server], content, *state[server + 1:])


def _index(state: tuple[int, ...]) -> int:
    return 3 * state[0] + state[1]
