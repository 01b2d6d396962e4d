"""Periodic words of 0s and 1s that route a stream: customer i goes to node 1 if letter i is 1, else to node 2.

The mechanical (Sturmian, Christoffel) word of density k/b spreads its 1s as evenly as whole numbers allow,

    letter i = floor((i + 1) k/b) - floor(i k/b).

Among all words of a density it is best for queues whose cost is multimodular (B. Hajek, Math. Oper. Res. 10, 1985;
E. Altman, B. Gaujal, A. Hordijk, Discrete-Event Control of Stochastic Networks, 2003). Its complement is the mechanical
word of density (b - k)/b, up to rotation, which changes nothing in a queue's long run.
"""

from fractions import Fraction
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hetjax.processes import MAP
from hetjax.processes.checks import require

Array = jax.Array


def letters(ones: Array, length: Array, size: int) -> Array:
    """The mechanical word of density ``ones``/``length`` (whole, traced or not) as (size,) int32; 0 after ``length``.

    >>> import jax.numpy as jnp
    >>> letters(jnp.asarray(3), jnp.asarray(5), 8).tolist()
    [0, 1, 0, 1, 1, 0, 0, 0]
    """
    i = jnp.arange(size, dtype=jnp.int32)
    k, b = (jnp.broadcast_to(jnp.asarray(x, jnp.int32), (size,)) for x in (ones, length))
    word = (i + 1) * k // b - i * k // b
    return jnp.where(i < b, word, jnp.zeros_like(word))


def mechanical_word(ones: int, length: int) -> tuple[int, ...]:
    """The same as a tuple.

    >>> mechanical_word(5, 7)
    (0, 1, 1, 0, 1, 1, 1)
    """
    require(1 <= length and 0 <= ones <= length, "ones, length", (ones, length),
            "whole numbers with 0 <= ones <= length and length >= 1")
    return tuple((i + 1) * ones // length - i * ones // length for i in range(length))


def checked_word(word: Any) -> np.ndarray:
    """``word`` as an int array; ValueError unless it holds 0s and 1s, both of them.

    >>> checked_word([1, 0, 1]).tolist()
    [1, 0, 1]
    """
    found = np.asarray(word)
    require(found.ndim == 1 and found.size > 0 and set(found.tolist()) <= {0, 1}, "word", word,
            "a list of 0s and 1s: to node 1 go the customers at 1s, to node 2 those at 0s")
    require(0 < int(found.sum()) < found.size, "word", list(map(int, found)),
            "a word with at least one 0 and one 1, or a node gets nobody; take a threshold queue for a single node")
    return found.astype(int)


def densities(max_length: int) -> list[Fraction]:
    """All fractions strictly between 0 and 1 with denominators up to ``max_length``, rising (Farey).

    >>> [str(d) for d in densities(4)]
    ['1/4', '1/3', '1/2', '2/3', '3/4']
    """
    return sorted({Fraction(k, b) for b in range(2, max_length + 1) for k in range(1, b)})


def necklaces(length: int) -> list[tuple[int, ...]]:
    """The words of ``length`` letters up to rotation, without powers of shorter ones; the least rotation stands for
    all.

    >>> necklaces(4)
    [(0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 1, 1)]
    """
    found = []
    for word in product((0, 1), repeat=length):
        turned = [word[i:] + word[:i] for i in range(1, length)]
        if all(word < other for other in turned):
            found.append(word)
    return found


def is_mechanical(word: Any) -> bool:
    """Whether ``word`` is a rotation of the mechanical word of its density.

    >>> is_mechanical([1, 1, 0, 1, 0]), is_mechanical([1, 1, 1, 0, 0])
    (True, False)
    """
    given = tuple(int(x) for x in word)
    best = mechanical_word(sum(given), len(given))
    return any(given[i:] + given[:i] == best for i in range(len(given)))


def routed(arrivals: MAP, word: Any) -> MAP:
    """The stream of those customers of ``arrivals`` that the 1s of ``word`` choose, a MAP.

    State i p + f: position i of the next customer in the word, phase f of the p phases of ``arrivals``. Take
    1 - ``word`` for the other node. For :class:`hetjax.threshold_queue.Params`, whatever the arrival process.

    >>> from hetjax.processes import mmpp
    >>> stream = mmpp([[0.0, 1.0], [1.0, 0.0]], [1.0, 3.0])
    >>> round(float(routed(stream, [1, 1, 0]).rate()), 12)
    1.333333333333
    """
    found = checked_word(word)
    dtype = arrivals.D0.dtype
    turn = np.roll(np.eye(found.size), 1, axis=1)
    ones, zeros, stay = (jnp.asarray(x, dtype) for x in (np.diag(found) @ turn, np.diag(1 - found) @ turn,
                                                         np.eye(found.size)))
    return MAP(jnp.kron(stay, arrivals.D0) + jnp.kron(zeros, arrivals.D1), jnp.kron(ones, arrivals.D1))
