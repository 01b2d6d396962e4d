"""Real optima: boxes, simplices and constraints against exact solutions, kinds of optimum, derivatives, refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import rosen

import hetjax
from hetjax import OptimumStatus, Status
from hetjax.optimize import Certificate, Options, Space, differentiable, minimize, solve, variable
from hetjax.optimize.loops import descend
from hetjax.optimize.transforms import constrained, unconstrained

RANDOM = np.random.default_rng(7)


def quadratic(v, theta):
    A, b = theta
    return v["x"] @ (A @ v["x"]) / 2 - b @ v["x"]


def test_150_quadratics_in_a_box_against_every_active_set():
    """Convex: the one point that meets the optimality conditions, found among the 27 sets of active bounds."""
    n, count = 3, 150
    root = RANDOM.normal(size=(count, n, n))
    A, b = root @ root.transpose(0, 2, 1) + 0.05 * np.eye(n), RANDOM.normal(size=(count, n)) * 3
    space = Space((variable("x", (-1.0, 2.0), (n,)),))

    def one(theta):
        return solve(lambda v: (quadratic(v, theta), jnp.zeros(0)), space, Options(starts=3),
                     *space.centre(jnp.float64))

    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))((A, b)))
    edges = 0
    for p in range(count):
        for sides in itertools.product((None, -1.0, 2.0), repeat=n):
            free = [i for i, side in enumerate(sides) if side is None]
            x = np.array([0.0 if side is None else side for side in sides])
            if free:
                x[free] = np.linalg.solve(A[p][np.ix_(free, free)], (b[p] - A[p] @ x)[free])
            slope = A[p] @ x - b[p]
            if all(side is None or slope[i] * (1 if side == -1 else -1) >= 0 for i, side in enumerate(sides)) \
                    and (x >= -1).all() and (x <= 2).all():
                break
        else:
            raise AssertionError("no active set")
        np.testing.assert_allclose(found.x[p], x, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(found.gradient[p], slope, atol=1e-10)
        assert found.optimum_status[p] == (OptimumStatus.EDGE if any(s is not None for s in sides)
                                           else OptimumStatus.INTERIOR)
        edges += any(s is not None for s in sides)
    assert 30 < edges < 150 and (found.minima == 1).all()
    assert (found.status == Status.OK).all() and (found.gradient_norm < 1e-12).all()


def test_40_points_projected_onto_the_simplex():
    """min |p - y|^2 on the simplex: p = max(y - t, 0), t by sorting. Its derivative in y: the projector onto the shares
    that are positive, with a sum of zero."""
    space = Space((variable("p", "simplex", (4,)),))
    y = RANDOM.normal(size=(40, 4)) * 0.6

    def one(y):
        def function(v, y):
            return jnp.sum((v["p"] - y) ** 2), jnp.zeros(0)

        still = jax.lax.stop_gradient(y)
        found = solve(lambda v: function(v, still), space, Options(starts=2), *space.centre(y.dtype))
        return differentiable(function, space, found, y), (found, y)

    slopes, (found, _) = jax.jit(jax.vmap(jax.jacfwd(one, has_aux=True)))(y)
    for p in range(40):
        falling = np.sort(y[p])[::-1]
        shifts = (np.cumsum(falling) - 1) / np.arange(1, 5)
        exact = np.maximum(y[p] - shifts[np.flatnonzero(falling > shifts)[-1]], 0)
        np.testing.assert_allclose(found.x[p], exact, atol=1e-14)
        positive = (exact > 0).astype(float)
        np.testing.assert_allclose(slopes[p], np.diag(positive) - np.outer(positive, positive) / positive.sum(),
                                   atol=1e-13)
    assert (np.asarray(found.status) == Status.OK).all()


def test_multipliers_and_slack_of_60_constrained_problems():
    """The nearest point to the origin with a x >= b: x = a max(b, 0) / |a|^2, multiplier 2 max(b, 0) / |a|^2."""
    space = Space((variable("x", (-9.0, 9.0), (2,)),))
    a, b = RANDOM.normal(size=(60, 2)), RANDOM.uniform(-1, 1.2, 60)

    def function(v, theta):
        return jnp.sum(v["x"] ** 2), jnp.stack([theta[1] - theta[0] @ v["x"], v["x"][0] - 8])

    def one(theta):
        still = jax.lax.stop_gradient(theta)
        found = solve(lambda v: function(v, still), space, Options(starts=2), *space.centre(jnp.float64))
        x = differentiable(function, space, found, theta)
        return function({"x": x}, theta)[0], (found, x)

    slopes, (found, x) = jax.jit(jax.vmap(jax.grad(one, has_aux=True)))((a, b))
    size = (a * a).sum(axis=1)
    price = 2 * np.maximum(b, 0) / size
    # a constraint is kept to 1e-11 of what it is at the starts, up to 20 here
    np.testing.assert_allclose(x, a * (price / 2)[:, None], atol=1e-9)
    np.testing.assert_allclose(found.multipliers[:, 0], price, atol=1e-7)
    np.testing.assert_allclose(-found.constraints[:, 0], np.maximum(-b, 0), atol=1e-9)
    assert (np.asarray(found.multipliers)[:, 1] == 0).all() and (np.asarray(found.status) == Status.OK).all()
    np.testing.assert_allclose(slopes[1], price, atol=1e-7)  # b more to keep costs the multiplier
    np.testing.assert_allclose(slopes[0], -(price ** 2)[:, None] / 2 * a, atol=1e-7)


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
def test_loops_come_near_an_optimum_inside_and_on_a_bound(method):
    """By themselves, without Newton steps; a bound lies at infinity for them, and Adam approaches it slowly."""
    space = Space((variable("x", (-2.0, 2.0)), variable("y", (-2.0, 0.5))))
    start = jnp.asarray([-1.0, 0.0])
    x, steps = jax.jit(lambda x: descend(lambda x: (x[0] - 0.3) ** 2 + 4 * (x[1] - x[0] - 1) ** 2, x, space, method,
                                         1000, jnp.asarray(1e-9)))(start)
    # y <= 0.5 binds: x minimises (x - .3)^2 + 4 (x + .5)^2
    np.testing.assert_allclose(x, [(0.3 - 4 * 0.5) / 5, 0.5], atol=5e-3)
    assert 3 < steps <= 1000


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lbfgs", "adam", "newton"])
def test_the_banana_valley_by_every_method(method):
    best = minimize(lambda p: 100 * (p["y"] - p["x"] ** 2) ** 2 + (p["scale"] - p["x"]) ** 2,
                    {"x": -1.2, "y": 1.0, "scale": 1.0}, over=["x", "y"], bounds={"x": (-2, 0.8), "y": (-np.inf, 3)},
                    method=method, starts=3)
    np.testing.assert_allclose([best.design["x"], best.design["y"]], [0.8, 0.64], rtol=1e-13)
    assert best.value == pytest.approx(rosen([0.8, 0.64]), rel=1e-14)
    assert best.optimum_status == OptimumStatus.EDGE and best.gradient["x"] == pytest.approx(-0.4, rel=1e-12)
    assert best.sensitivities["scale"] == pytest.approx(0.4, rel=1e-12)
    assert best.certificate == Certificate.LOCAL and best.gradient_norm < 1e-12


def ripples(p):
    return p["tilt"] * p["x"] + jnp.cos(3 * p["x"]) + 0.05 * p["x"] ** 2


def test_several_minima_the_best_one_is_found_and_they_are_counted():
    def again(tilt):
        return minimize(ripples, {"x": 4.9, "tilt": tilt}, over=["x"], bounds={"x": (-4, 5)}, starts=16)

    best = again(0.03)
    x = np.linspace(-4, 5, 900_001)
    values = 0.03 * x + np.cos(3 * x) + 0.05 * x ** 2
    inner = (values[1:-1] < values[:-2]) & (values[1:-1] < values[2:])
    assert best.value == pytest.approx(values.min(), rel=1e-9)
    assert abs(best.design["x"] - x[values.argmin()]) < 1e-5
    # each dent is seen, and the right end, towards which the function falls
    assert values[-1] < values[-2] and values[0] > values[1]
    assert best.minima == inner.sum() + 1 and best.optimum_status == OptimumStatus.MULTIMODAL and not best.tied
    assert again(0.0).tied  # the two dents beside 0 are equally deep
    first, second = again(0.03), again(0.03)
    for a, b in zip(jax.tree.leaves(first.__dict__), jax.tree.leaves(second.__dict__), strict=True):
        assert a == b  # bit for bit


def test_flat_valleys_and_nothing_finite():
    flat = minimize(lambda p: (p["x"] + p["y"] - 1) ** 2, {"x": 0.2, "y": 0.3}, bounds={"x": (-4, 5), "y": (-4, 5)})
    assert flat.optimum_status == OptimumStatus.FLAT and flat.value < 1e-28 and flat.status == Status.OK
    none = minimize(lambda p: jnp.nan * p["x"], {"x": 0.2}, bounds={"x": (-4, 5)})
    assert none.optimum_status == OptimumStatus.FAILED and none.status == Status.NONFINITE
    assert "NaN or infinity" in str(none) and none.certificate == Certificate.NONE
    with pytest.raises(hetjax.result.SolverError):
        hetjax.raise_if_failed(none)


@pytest.mark.parametrize("high", [3.9, 4.1, 1e6])
def test_lines_end_on_a_bound(high):
    """No curvature at all, and slopes of any size."""
    best = minimize(lambda p: p["x"] - 2 * p["y"], {"x": 1.0, "y": 1.0}, bounds={"x": (0, high), "y": (0, 5.0)})
    assert (float(best.value), best.status, best.optimum_status) == (-10.0, Status.OK, OptimumStatus.EDGE)
    shares = minimize(lambda p: jnp.asarray([1.0, 4.0, 9.0]) * high @ p["s"], {"s": np.ones(3) / 3},
                      bounds={"s": "simplex"})
    assert float(shares.value) == high and shares.design["s"].tolist() == [1, 0, 0]


def test_what_cannot_be_kept_is_said_so():
    best = minimize(lambda p: (p["x"] - 1) ** 2, {"x": 1.0}, bounds={"x": (0, 3.0)},
                    constraints={"little": lambda p: p["x"] + 1})
    assert best.optimum_status == OptimumStatus.FAILED
    assert "no design that was looked at keeps the constraints (best: little is broken by 1" in str(best)


@pytest.mark.parametrize(("objective", "words"), [
    (lambda p: "a", "does not give a number"), (lambda p: np.sin(p["x"]), "hands traced numbers to numpy"),
    (lambda p: float(p["x"]), "no pure JAX function"), (lambda p: 1.0 if p["x"] > 0 else 2.0, "no pure JAX function"),
    (lambda p: jax.lax.complex(p["x"], p["x"]), "is complex")])
def test_objectives_that_are_none(objective, words):
    with pytest.raises(ValueError, match=words) as error:
        minimize(objective, {"x": 1.0})
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"constraints = .* is no mapping"):
        minimize(lambda p: p["x"], {"x": 1.0}, constraints=[objective])


def test_float32_and_trees():
    """Ten digits less in, ten digits less out: rounding 6e-8, tolerance its square root."""
    params = {"rate": jnp.float32(3.0), "costs": [jnp.float32(0.25), jnp.float32(1.0)], "place": jnp.float32(4.0)}
    best = minimize(lambda p: p["costs"][0] * p["place"] + p["costs"][1] * p["rate"] / (p["place"] - p["rate"]),
                    params, over=["place"], bounds={"place": (3.1, 400.0)})
    exact = 3 + np.sqrt(3 / 0.25)
    assert best.design["place"].dtype == np.float32 and best.status == Status.OK
    assert best.optimum_status == OptimumStatus.INTERIOR
    assert best.design["place"] == pytest.approx(exact, rel=1e-4)  # the value is flat to 1e-7 over this
    assert best.value == pytest.approx(0.25 * exact + 3 / (exact - 3), rel=1e-6)
    assert best.sensitivities["costs.0"] == pytest.approx(exact, rel=1e-4)
    assert best.params["costs"] == params["costs"] and best.params["place"] == best.design["place"]


def test_maps_and_their_inverses():
    bounds = [(-1, 3), (1e-3, 1e4), (2, np.inf), (-np.inf, 5), None]
    space = Space((*(variable(f"v{i}", b) for i, b in enumerate(bounds)), variable("p", "simplex", (3,))))
    x = jnp.asarray([2.5, 40.0, 7.0, -3.0, 12.0, 0.2, 0.5, 0.3])
    there_and_back = jax.jit(lambda x: constrained(space, unconstrained(space, x)))
    np.testing.assert_allclose(there_and_back(x), x, rtol=1e-12)
    onto = jax.jit(lambda u: constrained(space, u))
    for u in (-50.0, 0.3, 50.0):
        there = onto(jnp.full(8, u))
        assert (there >= space.low).all() and (there <= space.high).all() and abs(there[5:].sum() - 1) < 1e-15


@pytest.mark.parametrize(("message", "change"), [
    ("'z' is no parameter; choose from k, x", {"over": ["z"]}),
    ("bounds of 'k' are given, but over names only x", {"over": ["x"], "bounds": {"k": range(3)}}),
    ("over = 'x' is a text", {"over": "x"}),
    ("names nothing, or something twice", {"over": ["x", "x"]}),
    ("x starts at 0.5, outside [1, 2]; give a start inside", {"bounds": {"x": (1, 2)}}),
    ("the bounds of x are [2.0, 1.0]; give low <= high", {"bounds": {"x": (2, 1)}}),
    ("the bounds of x are 'wide'; give (low, high), range", {"bounds": {"x": "wide"}}),
    ("the bounds of k are range(0, 9, 2); give range(first, last + 1) without steps",
     {"bounds": {"k": range(0, 9, 2)}}),
    ("x starts at 0.5, no whole number", {"bounds": {"x": range(3)}}),
    ("x has 1 entries; shares that sum to one are at least two", {"bounds": {"x": "simplex"}}),
    ("method = 'magic' is unknown; choose from auto, newton, lbfgs, adam", {"method": "magic"}),
    ("starts = 0 is no whole number >= 1", {"starts": 0}),
    ("objective = 3 is no function of the parameters", {"objective": 3}),
    ("the objective has the shape (2,); return one number", {"objective": lambda p: jnp.ones(2) * p["x"]}),
    ("bounds = 3 is no mapping", {"bounds": 3}),
])
def test_refusals_in_one_line(message, change):
    given = {"objective": lambda p: p["x"] ** 2 + p["k"], "params": {"x": 0.5, "k": 1.0}} | change
    with pytest.raises(ValueError) as caught:
        minimize(**given)
    assert message in str(caught.value) and "\n" not in str(caught.value)
