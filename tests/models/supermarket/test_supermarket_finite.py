"""Finitely many queues: refinement against printed values, simulation against exact chains and published simulations,
MAP arrivals in both scalings, trajectories and their speed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetjax.models.supermarket import (
    JOIN_IDLE_QUEUE,
    SHORTEST_OF_D,
    Params,
    drift,
    fixed_point,
    generator,
    newton_fixed_point,
    one_plus_beta,
    refined,
    simulate,
    slow_environment,
    without_replacement,
)
from hetjax.models.supermarket.refined import lyapunov
from hetjax.models.supermarket.transient import relaxation_time, spectral_gap, transient
from hetjax.processes import erlang, exponential, hyperexponential_balanced, mmpp
from hetjax.result import Status


@pytest.mark.parametrize(("law", "known"), [
    (exponential(1.0), 3.986426987176), (erlang(2, 2.0), 2.949930728),
    (hyperexponential_balanced(1.0, 2.0), 6.081172143), (hyperexponential_balanced(1.0, 10.0), 21.692484076),
], ids=["exp", "E2", "H2 2", "H2 10"])
def test_correction(law, known):
    found = refined(Params.from_service(0.9, 2, law), 10)
    assert found.status == Status.OK and found.residual < 1e-14
    assert float(found.value.correction) == pytest.approx(known, rel=1e-10)  # printed to ten digits


def test_refined_against_published_digits(reference):
    """V/N to the digits printed. Where it is off by up to 0.05, V2/N^2 brings the mean to 2e-3 of the published
    simulations (one standard error, or two), except for 10 queues at rho = .9, where the next term counts."""
    def both(rho, d, N):
        found = refined(Params(rho, d, [1.0], [[-1.0]]), N, levels=12, order=2)
        return found.value, found.status

    rows = reference("published")["supermarket_finite_N"]["rows"]
    columns = (jnp.array([float(row[name]) for row in rows]) for name in ("rho", "d", "N"))
    found, status = jax.jit(jax.vmap(both))(*columns)
    assert np.all(status == Status.OK)
    for i, row in enumerate(rows):
        mean = float(found.mean_queue_length[i])
        assert abs(float(found.limit[i]) - row["mean_field"]) < 6e-5
        assert abs(float(found.limit[i] + found.correction[i] / row["N"]) - row["refined"]) < 6e-5
        assert abs(mean - row["simulation"]) < (6e-3 if (row["N"], row["rho"]) == (10, 0.9) else 3e-3)
        # tails may not sum to less than the mean says
        assert float(found.tails[i].sum()) == pytest.approx(mean, rel=1e-12)


def exact_mean(params, N, levels, policy):
    system = generator(params, N, levels, policy)
    balance = np.array(system.Q).T
    balance[0] = 1  # numpy's solver: no compilation for each size
    pi = np.linalg.solve(balance, np.eye(len(balance))[0])
    return float(pi @ system.queue_lengths) / N, system, pi


def test_generator_of_one_queue():
    """N = 1 is M/PH/1 with a bounded queue: its tail is cut at 60 of 1e-9."""
    law = hyperexponential_balanced(1.0, 2.0)
    mean, _, _ = exact_mean(Params.from_service(0.5, 1, law), 1, 80, SHORTEST_OF_D)
    assert mean == pytest.approx(0.5 + 0.25 * 3 / (2 * 0.5), rel=1e-9)


@pytest.mark.slow
def test_refinement_is_right_to_second_order():
    """N^2 times the error against exact chains stays bounded, and is what the next term says; with it N^3 times."""
    params = Params(0.3, 2, [1.0], [[-1.0]])
    for policy, replacement in ((SHORTEST_OF_D, True), (without_replacement(2), False)):
        found = refined(params, 6, replacement=replacement, order=2 if replacement else 1).value
        exact = np.array([exact_mean(params, N, levels, policy)[0] for N, levels in ((3, 10), (6, 7))])
        N = np.array([3.0, 6.0])
        first = exact - float(found.limit) - float(found.correction) / N
        assert abs(first[0]) < 0.01 and 3 < first[0] / first[1] < 6
        if replacement:
            second = first - float(found.second) / N**2
            assert np.all(np.abs(second) < 0.1 * np.abs(first)) and 5 < second[0] / second[1] < 10


@pytest.mark.slow
@pytest.mark.parametrize(("law", "rho", "levels"), [(hyperexponential_balanced(1.0, 2.0), 0.2, (12, 7)),
                                                    (erlang(2, 2.0), 0.3, (12, 7))], ids=["H2", "E2"])
def test_second_order_of_phase_type_service(law, rho, levels):
    """Against exact chains of 2 and 4 queues: what is left falls faster than 1/N^2, and is a few percent of V2/N^2."""
    params = Params.from_service(rho, 2, law)
    found = refined(params, 1, levels=8, order=2).value
    N = np.array([2.0, 4.0])
    exact = np.array([exact_mean(params, int(n), level, SHORTEST_OF_D)[0] for n, level in zip(N, levels, strict=True)])
    left = N**2 * (exact - float(found.limit) - float(found.correction) / N) - float(found.second)
    assert np.all(np.abs(left) < 0.04 * float(found.second)) and abs(left[1]) < abs(left[0])


@pytest.mark.parametrize(("law", "N", "d", "policy", "control"), [
    (exponential(1.0), 3, 2, without_replacement(2), True),
    (hyperexponential_balanced(1.0, 2.0), 2, 2, SHORTEST_OF_D, True),
    (erlang(2, 2.0), 2, 2, one_plus_beta(0.5), True),
    (exponential(1.0), 3, 2, JOIN_IDLE_QUEUE, False),
    (exponential(1.0), 3, 1.5, SHORTEST_OF_D, False),
], ids=["different", "H2", "E2 beta", "idle", "mixture"])
def test_simulation_against_exact_chains(law, N, d, policy, control):
    params = Params.from_service(0.5, d, law)
    mean, system, pi = exact_mean(params, N, 14, policy)
    found = simulate(params, N, jax.random.key(N), events=20_000, policy=policy, control=control)
    assert found.status == Status.OK
    # 95 % half widths; four standard errors; the chain's cut at 14 moves the mean by less than a tenth of that
    assert abs(float(found.mean_queue_length[0]) - mean) < 2 * float(found.mean_queue_length[1])
    counts = np.flip(np.cumsum(np.flip(system.counts.sum(2), 1), 1), 1)
    tails = counts.T @ np.asarray(pi) / N
    for k in range(3):
        assert abs(float(found.tails[0][k]) - tails[k]) < 2 * float(found.tails[1][k])
    assert float(found.mean_response_time[0]) * 0.5 == pytest.approx(float(found.mean_queue_length[0]), rel=1e-12)


@pytest.mark.slow
def test_control_variate_shortens_the_interval():
    """N = 200: the mean stays, its interval is an order of magnitude shorter."""
    params = Params(0.7, 2, [1.0], [[-1.0]])
    better = float(refined(params, 200, levels=12).value.mean_queue_length)
    plain, controlled = (simulate(params, 200, jax.random.key(2), events=8_000, levels=12, control=control)
                         for control in (False, True))
    mean, width = map(float, controlled.mean_queue_length)
    assert abs(mean - better) < 2 * width and 10 * width < float(plain.mean_queue_length[1])
    assert float(controlled.tails[0].sum()) == pytest.approx(mean, abs=2 * float(plain.mean_queue_length[1]))


@pytest.mark.slow
def test_simulation_against_published_simulations(reference):
    for row in reference("published")["supermarket_finite_N"]["rows"]:
        params = Params(row["rho"], row["d"], [1.0], [[-1.0]])
        found = simulate(params, row["N"], jax.random.key(row["N"]), events=400_000, warmup=50_000)
        own = float(found.mean_queue_length[1]) / 2
        published = 2e-3 if row["rho"] == 0.95 else 1e-3
        assert abs(float(found.mean_queue_length[0]) - row["simulation"]) < 3 * np.hypot(own, published)


@pytest.mark.slow
def test_fast_arrival_phases_average_out():
    """N = 1000 and (N D0, N D1): Poisson limit 2.3527, with the stream's own fluctuations 2.3582 at speed 1."""
    arrivals = mmpp([[0.0, 1.0], [1.0, 0.0]], [0.2, 1.6])
    params = Params.from_map(arrivals, 2, exponential(1.0))
    better = float(refined(params, 1000, arrivals=arrivals).value.mean_queue_length)
    assert better == pytest.approx(2.3582, abs=6e-5)
    found = simulate(params, 1000, jax.random.key(1), events=400_000, warmup=200_000, lanes=32, arrivals=arrivals)
    assert abs(float(found.mean_queue_length[0]) - better) < 2 * float(found.mean_queue_length[1])
    assert float(found.mean_queue_length[1]) < 0.03


def test_slow_environment_without_modulation_is_the_fixed_point():
    stream = mmpp([[0.0, 1.0], [1.0, 0.0]], [0.8, 0.8])
    law = hyperexponential_balanced(1.0, 4.0)
    found = slow_environment(stream, 2, law, jax.random.key(0), time=20.0, warmup=10.0, lanes=2, levels=24)
    exact = fixed_point(Params.from_service(0.8, 2, law)).value
    assert float(found.mean_queue_length[0]) == pytest.approx(float(exact.mean_queue_length), rel=1e-10)
    assert float(found.p_wait[0]) == pytest.approx(float(exact.p_wait), rel=1e-10)
    assert float(found.mean_queue_length[1]) < 1e-10


@pytest.mark.slow
def test_a_slow_environment_has_a_limit_of_its_own():
    """N = 1000 with the descriptor (D0 off the diagonal, N D1) against the random-environment equation; neither is near
    the Poisson limit 2.3527, although the mean rate is the same."""
    stream = mmpp([[0.0, 1.0], [1.0, 0.0]], [0.2, 1.6])
    limit = slow_environment(stream, 2, exponential(1.0), jax.random.key(0), time=6000.0, lanes=32)
    params = Params.from_map(stream, 2, exponential(1.0))
    found = simulate(params, 1000, jax.random.key(1), events=2_000_000, levels=48, arrivals=stream, environment="slow",
                     lanes=16)
    assert limit.status == found.status == Status.OK
    for quantity in ("mean_queue_length", "p_wait"):
        (a, da), (b, db) = getattr(limit, quantity), getattr(found, quantity)
        assert abs(float(a - b)) < 1.5 * np.hypot(float(da), float(db))
    assert float(limit.mean_queue_length[0]) > 3


def test_reproducible_and_levels_missing():
    params = Params(0.9, 2, [1.0], [[-1.0]])
    one, two = (simulate(params, 10, jax.random.key(5), events=400) for _ in range(2))
    assert float(one.mean_queue_length[0]) == float(two.mean_queue_length[0])
    assert simulate(params, 10, jax.random.key(5), events=4000, levels=3).status == Status.NOT_CONVERGED


def test_lyapunov():
    A = jax.random.normal(jax.random.key(0), (6, 6)) - 5 * jnp.eye(6)
    Q = A @ A.T
    W = lyapunov(A, Q, jnp.asarray(4.0))
    np.testing.assert_allclose(A @ W + W @ A.T, -Q, atol=1e-12 * float(jnp.abs(Q).max()))


def test_policies_in_the_mean_field():
    """(1 + beta) between d = 1 and d; join-idle-queue leaves nobody waiting; the drift vanishes at each."""
    params = Params(0.8, 2, [1.0], [[-1.0]])
    means = []
    for beta in (0.0, 0.5, 1.0):
        join = one_plus_beta(beta).join
        found = newton_fixed_point(params, 160, field=beta_field(join))
        assert found.status == Status.OK
        means.append(float(found.value.sum()))
    assert means[0] == pytest.approx(4, rel=1e-10)
    assert means[2] == pytest.approx(float(fixed_point(params).value.mean_queue_length), rel=1e-12)
    assert means[2] < means[1] < means[0]
    idle = jnp.zeros((4, 1)).at[0].set(0.8)
    np.testing.assert_allclose(drift(params, idle, JOIN_IDLE_QUEUE.join), 0, atol=1e-15)


def beta_field(join):
    return lambda params, s: drift(params, s, join)


@pytest.mark.slow
def test_transient_reaches_the_fixed_point_at_the_speed_of_the_gap():
    params = Params(0.8, 2, [1.0], [[-1.0]])
    t = jnp.linspace(0.0, 80.0, 81)
    found = transient(params, jnp.zeros((10, 1)), t)
    assert found.status == Status.OK
    goal = fixed_point(params, levels=10).value.at_least
    distance = np.abs(found.value - goal[None]).sum((1, 2))
    assert distance[-1] < 1e-5
    measured = np.log(distance[40] / distance[50]) / 10
    assert measured == pytest.approx(spectral_gap(params).gap, rel=1e-3)  # the next mode has died out to 1e-4 there
    reached = relaxation_time(t, found.value, params, 1e-2)
    assert distance[int(reached)] <= 1e-2 < distance[int(reached) - 1]
    assert relaxation_time(t, found.value, params, 0.0) == np.inf


def test_spectral_gap_of_the_single_queue():
    """M/M/1: (1 - sqrt(rho))^2, from above as levels grow."""
    gap = spectral_gap(Params(0.5, 1, [1.0], [[-1.0]]), levels=100).gap
    assert gap == pytest.approx((1 - np.sqrt(0.5)) ** 2, rel=3e-2)
    assert gap > (1 - np.sqrt(0.5)) ** 2


@pytest.mark.parametrize(("make", "words"), [
    (lambda p: simulate(p, 0, jax.random.key(0)), "N = 0"),
    (lambda p: simulate(p, 2, jax.random.key(0), environment="odd"), "environment"),
    (lambda p: simulate(p, 2, jax.random.key(0), events=10, batches=3), "events"),
    (lambda p: refined(p, 1, replacement=False), "without replacement"),
    (lambda p: refined(p, 4, replacement=False, order=2), "order"),
    (lambda p: refined(Params(0.5, 1.5, [1.0], [[-1.0]]), 4, order=2), "d"),
    (lambda p: generator(p, 9, 9), "states"),
    (lambda p: transient(p, jnp.zeros((4, 2)), jnp.array([0.0, 1.0])), "s0"),
    (lambda p: one_plus_beta(1.5), "beta"),
    (lambda p: without_replacement(0), "choices"),
])
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make(Params(0.5, 2, [1.0], [[-1.0]]))
