"""Sample paths of Markov chains in continuous time, many side by side, with confidence intervals.

The tool for what no formula covers. All replications (lanes) advance one event at a time together; each event of each
lane draws two 32-bit words from a counter-based generator: a pure function of (key, lane, event number), so that
results are reproducible by key and do not depend on how the work is cut.

**Estimates.** With N_i the reward that lane (or batch) i has collected and T_i its time, the estimate is
R = sum N / sum T, with standard error sqrt(sum_i (N_i - R T_i)^2 / (n (n-1))) / mean(T) and Student's t with n - 1
degrees of freedom. Lanes run for a number of *events*; the ratio of sums is then right because long-run time averages
are E[reward per event] / E[time per event].

**Holding times.** By default a state counts with its mean holding time 1/(exit rate) instead of a sampled one: the same
expectation given the visited states, less variance, no logarithm. ``times="sampled"`` draws them.

Source: the generator is Threefry-2x32 of Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3
(2011), with the 13 rounds they found to pass every test; discrete-time conversion: Hordijk, Iglehart and Schassberger
(1976).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from hetjax.result import Status

State = Any  # a pytree of scalars (one lane)


class Jump(NamedTuple):
    """What one uniform number makes of a state: the exit rate there, which event, the state after it."""

    exit_rate: jax.Array
    event: jax.Array
    state: State


Chain = Callable[[State, jax.Array], Jump]


class Estimate(NamedTuple):
    """``mean`` and ``half_width`` of the confidence interval by name, ``status`` (uint8), ``samples`` of the interval.

    ``status``: out_of_domain where a lane met an absorbing state or a negative rate, nonfinite for NaN.
    """

    mean: dict[str, jax.Array]
    half_width: dict[str, jax.Array]
    status: jax.Array
    samples: int


class Paths(NamedTuple):
    """``times`` (lanes, events + 1) of the jumps, from 0; ``states`` after each (leaves of that shape); ``events``."""

    times: jax.Array
    states: State
    events: jax.Array


def transition_chain(rates: Callable[[State], Sequence[ArrayLike]], move: Callable[[State, jax.Array], State]) -> Chain:
    """A chain given by a function: ``rates(state)`` lists the rates of the possible events, ``move(state, event)`` is
    the state after event number ``event`` (int32). Both see one lane (scalars); an event that cannot happen has rate 0.

    >>> import jax.numpy as jnp
    >>> from hetjax.ctmc.simulate import transition_chain
    >>> queue = transition_chain(lambda n: (0.8, jnp.minimum(n, 2) * 0.5), lambda n, event: n + 1 - 2 * event)
    >>> int(queue(jnp.asarray(0), jnp.asarray(0.3)).state)
    1
    """
    def jump(state: State, uniform: jax.Array) -> Jump:
        found = [jnp.asarray(rate).astype(uniform.dtype) for rate in rates(state)]
        sums = [found[0]]
        for rate in found[1:]:
            sums.append(sums[-1] + rate)
        level = uniform * sums[-1]
        event = functools.reduce(jnp.add, [(level >= s).astype(jnp.int32) for s in sums[:-1]], jnp.zeros((), jnp.int32))
        negative = functools.reduce(jnp.logical_or, [rate < 0 for rate in found])
        return Jump(jnp.where(negative, -jnp.ones_like(level), sums[-1]), event, move(state, event))

    return jump


def generator_chain(Q: ArrayLike) -> Chain:
    """The chain with the rates ``Q`` (n, n); the state is an int32 number, the event is the next state. The diagonal
    is not read. O(log n) an event.

    >>> import jax.numpy as jnp
    >>> from hetjax.ctmc.simulate import generator_chain
    >>> chain = generator_chain(jnp.array([[-2.0, 2.0, 0.0], [1.0, -2.0, 1.0], [0.0, 3.0, -3.0]]))
    >>> [int(chain(jnp.asarray(1), jnp.asarray(u)).state) for u in (0.2, 0.8)]
    [0, 2]
    """
    Q = jnp.asarray(Q)
    if Q.ndim != 2 or Q.shape[0] != Q.shape[1] or Q.shape[0] == 0:
        raise ValueError(f"Q has shape {Q.shape}; give a square matrix (n, n) of rates")
    n = Q.shape[0]
    off = jnp.where(jnp.eye(n, dtype=bool), 0, Q)
    sums = jnp.cumsum(off, axis=1)
    negative = (off < 0).any(1)

    def jump(state: State, uniform: jax.Array) -> Jump:
        exit_rate = sums[state, n - 1].astype(uniform.dtype)
        level = uniform * exit_rate
        low = jnp.zeros_like(state)  # the number of partial sums <= level, by bisection
        for bit in reversed(range((n - 1).bit_length())):
            probe = low + (1 << bit)
            inside = probe <= n - 1
            below = sums[state, jnp.minimum(probe, n - 1) - 1].astype(uniform.dtype) <= level
            low = jnp.where(inside & below, probe, low)
        return Jump(jnp.where(negative[state], -jnp.ones_like(exit_rate), exit_rate), low, low)

    return jump


def random_words(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array],
                 rounds: int = 13) -> tuple[jax.Array, jax.Array]:
    """Two uint32 words for each counter (two uint32 words): Threefry-2x32, elementwise.

    >>> import jax.numpy as jnp
    >>> from hetjax.ctmc.simulate import random_words
    >>> zero = jnp.zeros((), jnp.uint32)
    >>> [hex(int(word)) for word in random_words((zero, zero), (zero, zero), rounds=20)]
    ['0x6b200159', '0x99ba4efe']
    """
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    keys = (*key, key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for r in range(rounds):
        x = x + y
        y = (y << rotations[r % 8] | y >> (32 - rotations[r % 8])) ^ x
        if r % 4 == 3:
            injection = r // 4 + 1
            x = x + keys[injection % 3]
            y = y + keys[(injection + 1) % 3] + jnp.uint32(injection)
    return x, y


def _uniform(word: jax.Array, dtype: Any) -> jax.Array:
    """[0, 1) with the 32 bits of the word in float64, its upper 24 in float32 (exact in both)."""
    if jnp.finfo(dtype).nmant >= 32:
        return word.astype(dtype) * dtype.type(2.0**-32)
    return (word >> 8).astype(dtype) * dtype.type(2.0**-24)


def _advance(chain: Chain, keys: tuple[jax.Array, jax.Array], lanes: jax.Array, states: State, number: jax.Array,
             sampled: bool, dtype: Any) -> tuple[Jump, jax.Array]:
    """One event of every lane: the jumps and the holding times before them."""
    first, second = random_words(keys, (lanes, jnp.broadcast_to(number, lanes.shape)))
    jumps = jax.vmap(chain)(states, _uniform(first, dtype))
    jumps = jumps._replace(state=jax.tree.map(lambda new, old: new.astype(old.dtype), jumps.state, states))
    if sampled:  # the logarithm in float32: fast, and its rounding far below any statistical error
        exponential = -jnp.log((second.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-32))
        return jumps, jnp.maximum(exponential, 0).astype(dtype) / jumps.exit_rate
    return jumps, 1 / jumps.exit_rate


def _start(initial: State, replications: int, key: jax.Array) -> tuple[State, jax.Array, tuple[jax.Array, jax.Array]]:
    def spread(x: ArrayLike) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(x, jnp.int32 if isinstance(x, int) else None), (replications,))

    states = jax.tree.map(spread, initial)
    words = jax.random.bits(key, (2,), jnp.uint32)
    return states, jnp.arange(replications, dtype=jnp.uint32), (words[0], words[1])


def simulate(chain: Chain, initial: State, key: jax.Array, *, rewards: Callable[[State], Mapping[str, ArrayLike]],
             impulses: Callable[[State, jax.Array], Mapping[str, ArrayLike]] | None = None, events: int,
             warmup: int = 0, replications: int = 4096, batches: int = 1, interval: str = "replications",
             times: str = "mean", confidence: float = 0.95) -> Estimate:
    """Long-run averages with confidence intervals, from ``replications`` independent paths.

    Args:
      chain: from :func:`transition_chain` or :func:`generator_chain`, or a function (state, uniform) -> :class:`Jump`.
      initial: the state every path starts from: a pytree of scalars (Python integers become int32).
      key: a key of ``jax.random``; equal keys give equal results.
      rewards: state -> {name: rate per unit time while in the state}.
      impulses: (state before, event) -> {name: reward paid at the event}; averaged per unit time too.
      events: events of each path that count, a multiple of ``batches``. Static, as all that follow.
      warmup: events of each path before that.
      batches: batches each path is cut into.
      interval: ``"replications"`` compares whole paths; ``"batches"`` all batches of all paths, for few and long paths.
      times: ``"mean"`` or ``"sampled"`` holding times, see the module docstring.
      confidence: of the interval, in (0, 1).

    Returns:
      :class:`Estimate`. Map it over parameters or keys with :func:`jax.vmap`. Not differentiable in the rates.

    An event is picked with a resolution of 2^-32 in 64-bit mode, else 2^-24: rarer ones are misjudged.
    Cost O(replications (warmup + events)); memory O(replications batches). A chain that is not ergodic from ``initial``
    gives averages of what was seen.

    >>> import jax, jax.numpy as jnp
    >>> from hetjax.ctmc.simulate import simulate, transition_chain
    >>> queue = transition_chain(lambda n: (0.5, jnp.where(n > 0, 1.0, 0.0)), lambda n, event: n + 1 - 2 * event)
    >>> found = simulate(queue, 0, jax.random.key(1), rewards=lambda n: {"number": n}, events=500, warmup=200)
    >>> bool(abs(found.mean["number"] - 1.0) < 0.05)
    True
    """
    _check(events=events, warmup=warmup, replications=replications, batches=batches, interval=interval, times=times,
           confidence=confidence)
    dtype = jnp.dtype(jnp.result_type(float))
    states, lanes, keys = _start(initial, replications, key)

    def collect(states: State, jumps: Jump, held: jax.Array) -> dict[str, jax.Array]:
        paid = {name: held * _column(value, lanes, dtype) for name, value in jax.vmap(rewards)(states).items()}
        if impulses is not None:
            for name, value in jax.vmap(impulses)(states, jumps.event).items():
                if name in paid:
                    raise ValueError(f"{name!r} names a reward and an impulse; rename one of them")
                paid[name] = _column(value, lanes, dtype)
        return paid

    def step(carry: Any, number: jax.Array) -> tuple[Any, None]:
        states, time, total, bad = carry
        jumps, held = _advance(chain, keys, lanes, states, number, times == "sampled", dtype)
        paid = collect(states, jumps, held)
        total = {name: total[name] + paid[name] for name in paid}
        return (jumps.state, time + held, total, bad | ~(jumps.exit_rate > 0)), None

    def warm(carry: Any, number: jax.Array) -> tuple[Any, None]:
        states, bad = carry
        jumps, _ = _advance(chain, keys, lanes, states, number, False, dtype)
        return (jumps.state, bad | ~(jumps.exit_rate > 0)), None

    (states, bad), _ = lax.scan(warm, (states, jnp.zeros(replications, bool)), jnp.arange(warmup, dtype=jnp.uint32))
    names = jax.eval_shape(lambda s: collect(s, *_advance(chain, keys, lanes, s, jnp.uint32(0), False, dtype)), states)
    nothing = {name: jnp.zeros(replications, dtype) for name in names}

    def batch(carry: Any, first: jax.Array) -> tuple[Any, Any]:
        states, bad = carry
        numbers = first + jnp.arange(events // batches, dtype=jnp.uint32)
        (states, time, total, bad), _ = lax.scan(step, (states, jnp.zeros(replications, dtype), nothing, bad), numbers)
        return (states, bad), (time, total)

    firsts = warmup + (events // batches) * jnp.arange(batches, dtype=jnp.uint32)
    (_, bad), (time, total) = lax.scan(batch, (states, bad), firsts)
    if interval == "replications":
        time, total = jax.tree.map(lambda x: x.sum(0), (time, total))
    time, total = jax.tree.map(lambda x: x.reshape(-1), (time, total))
    n = time.shape[0]
    quantile = student_quantile(0.5 + confidence / 2, n - 1)
    mean = {name: reward.sum() / time.sum() for name, reward in total.items()}
    half = {name: quantile * jnp.sqrt(((reward - mean[name] * time) ** 2).sum() / (float(n) * (n - 1))) / time.mean()
            for name, reward in total.items()}
    finite = jnp.isfinite(jnp.stack([*mean.values(), *half.values()])).all()
    code = jnp.where(bad.any(), int(Status.OUT_OF_DOMAIN), jnp.where(finite, int(Status.OK), int(Status.NONFINITE)))
    return Estimate(mean, half, code.astype(jnp.uint8), n)


def sample_paths(chain: Chain, initial: State, key: jax.Array, *, events: int, replications: int = 1) -> Paths:
    """Whole paths with sampled holding times: where each of ``replications`` lanes is after each of ``events`` jumps.

    Reproducible by key, and lane i's path does not depend on how many lanes run beside it. From an absorbing state on
    times are infinite. Memory O(replications events).

    >>> import jax, jax.numpy as jnp
    >>> from hetjax.ctmc.simulate import generator_chain, sample_paths
    >>> chain = generator_chain(jnp.array([[0.0, 1.0], [2.0, 0.0]]))
    >>> paths = sample_paths(chain, 0, jax.random.key(0), events=4, replications=3)
    >>> paths.times.shape, paths.states[0].tolist()
    ((3, 5), [0, 1, 0, 1, 0])
    """
    _check(events=events, replications=replications)
    dtype = jnp.dtype(jnp.result_type(float))
    states, lanes, keys = _start(initial, replications, key)

    def step(carry: Any, number: jax.Array) -> tuple[Any, Any]:
        states, clock = carry
        jumps, held = _advance(chain, keys, lanes, states, number, True, dtype)
        stuck = ~(jumps.exit_rate > 0)
        after = jax.tree.map(lambda new, old: jnp.where(stuck, old, new), jumps.state, states)
        clock = jnp.where(stuck, jnp.inf, clock + held)
        return (after, clock), (after, clock, jumps.event)

    clock = jnp.zeros(replications, dtype)
    _, (after, clocks, found) = lax.scan(step, (states, clock), jnp.arange(events, dtype=jnp.uint32))
    join = functools.partial(jax.tree.map, lambda first, rest: jnp.concatenate([first[None], rest]).T)
    return Paths(join(clock, clocks), join(states, after), found.T)


def student_quantile(probability: float, degrees: int) -> jax.Array:
    """The quantile of Student's t for probability in [0.5, 1) by bisection of its distribution function.

    >>> from hetjax.ctmc.simulate import student_quantile
    >>> round(float(student_quantile(0.975, 10)), 3)
    2.228
    """
    dtype = jnp.result_type(float)
    half = jnp.asarray(degrees / 2, dtype)
    upper = jnp.asarray(2 * (1 - probability), dtype)

    def bisect(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        x = (low + high) / 2  # x = degrees / (degrees + t^2); its law is Beta(degrees/2, 1/2)
        below = jax.scipy.special.betainc(half, jnp.asarray(0.5, dtype), x) < upper
        return jnp.where(below, x, low), jnp.where(below, high, x)

    low, high = lax.fori_loop(0, 60, bisect, (jnp.zeros((), dtype), jnp.ones((), dtype)))
    x = (low + high) / 2
    return jnp.sqrt(degrees * (1 - x) / x)


def _column(value: ArrayLike, lanes: jax.Array, dtype: Any) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(value).astype(dtype), lanes.shape)


def _check(**given: Any) -> None:
    lowest = {"events": 1, "warmup": 0, "replications": 1, "batches": 1}
    for name, value in given.items():
        if name in lowest and (not isinstance(value, int) or value < lowest[name]):
            raise ValueError(f"{name} = {value!r} must be a whole number from {lowest[name]}")
    choices = {"interval": ("replications", "batches"), "times": ("mean", "sampled")}
    for name, legal in choices.items():
        if name in given and given[name] not in legal:
            raise ValueError(f"{name} = {given[name]!r} is unknown; choose from {', '.join(legal)}")
    if not 0 < given.get("confidence", 0.5) < 1:
        raise ValueError(f"confidence = {given['confidence']!r} is outside (0, 1); give for example 0.95")
    if given["events"] % given.get("batches", 1):
        raise ValueError(f"events = {given['events']} is no multiple of batches = {given['batches']}")
    if "interval" in given:
        n = given["replications"] * (given["batches"] if given["interval"] == "batches" else 1)
        if n < 2:
            raise ValueError(f"replications = {given['replications']} gives one sample; an interval needs two or more")
