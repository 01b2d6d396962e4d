"""The stationary law of a chain with levels, in NumPy alone: nothing is compiled, so that single points cost little.

Grassmann, Taksar and Heyman (1985): states are eliminated one by one from the last to the first, each by adding, for
every pair of the others, the rate of going there through it. Nothing is subtracted, so no digit is lost.
"""

import numpy as np

from hetjax.ctmc import Levels


def host_law(levels: Levels) -> np.ndarray | None:
    """The law (levels L, phases S), float64, of one chain whose level changes keep the phase; None beyond its range.

    State (0, 0) must be reachable from all others. Cost L S^3, mostly L S small steps of about 10 microseconds.

    >>> import jax.numpy as jnp
    >>> from hetjax import ctmc
    >>> chain = ctmc.Levels(up=jnp.ones((3, 1)), local=jnp.zeros((3, 1, 1)), down=jnp.full((3, 1), 2.0))
    >>> host_law(chain).ravel().round(6).tolist()
    [0.571429, 0.285714, 0.142857]
    """
    up, local, down = (np.asarray(x, np.float64) for x in levels[:3])
    L, S = up.shape
    into = np.zeros((L, S, 2 * S))  # rates into a state, when it is eliminated, over its rate of leaving
    block = local[-1]
    for l in reversed(range(L)):
        below = S if l else 0  # states of level l - 1 come first
        rates = np.zeros((below + S, below + S))
        rates[below:, below:] = block
        if l:
            rates[:S, :S], rates[:S, S:], rates[S:, :S] = local[l - 1], np.diag(up[l - 1]), np.diag(down[l])
        for k in range(below + S - 1, max(below, 1) - 1, -1):
            leaving = rates[k, :k].sum()
            if leaving > 0:  # else it is no state of this level
                into[l, k - below, :k] = rates[:k, k] / leaving
                rates[:k, :k] += np.outer(into[l, k - below, :k], rates[k, :k])
        block = rates[:below, :below]
    law = np.zeros((L, S))
    law[0, 0] = 1.0
    for l in range(L):
        window = np.concatenate([law[l - 1], law[l]]) if l else law[0].copy()
        below = window.size - S
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(max(below, 1), window.size):
                window[k] = into[l, k - below, :k] @ window[:k]
        law[l] = window[below:]
    total = law.sum()
    return law / total if np.isfinite(total) else None
