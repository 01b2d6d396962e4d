"""Two parallel nodes, search for the best word: ``python tests/benchmarks/parallel_queues.py [--json FILE]``.

Protocol. One process, float64, compilation excluded, contenders alternating, best of ``--repeats``; wall and CPU
seconds a point, since CPU seconds hardly depend on what else the machine does. Random pairs of
nodes (mu1 from .5 to 3, mu1/mu2 from 1 to 6, loads .1 to .95):

descent    best word to length 40 with the best constant thresholds 1..8, ``--points`` points in one batch;
full       every density to length 40 with all thresholds 1..8, on ``--sample`` of the points: the check of the descent;
split      the best Bernoulli split with the best thresholds, all points in one batch;
word       one node, one word of 40 letters, threshold bound 8, in blocks of 16;
levels     the same node by the chain with levels (``threshold_queue.mean_numbers``, all 8 thresholds at once), a word
           of ``--letters`` letters (more take minutes to compile), and ``word`` for that word.

One round on two cores shared with other work, CPU time a point: descent .15 s (search to length 40), full 1.6 s, split
30 ms, word of 40 letters .33 ms.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from timing import over, save, take_turns

from hetjax import parallel_queues as pq
from hetjax import threshold_queue


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--sample", type=int, default=4)
    parser.add_argument("--letters", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    n, letters = options.points, options.letters
    mu1 = rng.uniform(0.5, 3, (n, 2))
    mu2 = mu1 / rng.uniform(1, 6, (n, 2))
    rate = rng.uniform(0.1, 0.95, n) * (mu1 + mu2).sum(1)
    many = [jnp.asarray(x) for x in (rate, mu1, mu2)]
    few = [x[:options.sample] for x in many]
    descent = jax.jit(jax.vmap(lambda *z: pq.best_word(pq.Params(*z), 40, 8)))
    full = jax.jit(jax.vmap(lambda *z: pq.full_search(pq.Params(*z), 40, 8)))
    split = jax.jit(jax.vmap(lambda *z: pq.best_split(pq.Params(*z))))

    def node(length):
        word = jnp.asarray(pq.mechanical_word(length * 2 // 3 + 1, length), jnp.int32)
        share, places = float(word.sum()) / length, jnp.asarray(length, jnp.int32)
        load = jnp.asarray(rng.uniform(0.1, 0.9, 256))

        def mean(load):
            one = jnp.ones(())
            return pq.node_means(load * 1.25 / share, word, places, one, one / 4, 2 * one, 8).number

        return jax.jit(lambda x: jax.lax.map(mean, x, batch_size=16)), load

    def by_levels(length):
        word = pq.mechanical_word(length * 2 // 3 + 1, length)
        share = sum(word) / length

        def mean(load):
            p = threshold_queue.Params.from_word(load * 1.25 / share, word, 1.0, 0.25, 2, max_threshold=2)
            return threshold_queue.mean_numbers(p, 8)[1]

        return jax.jit(jax.vmap(mean))

    (long, loads), (short, same) = node(40), node(letters)
    levels = by_levels(letters)
    contenders = {"descent": (lambda: descent(*many), n), "full": (lambda: full(*few), options.sample),
                  "split": (lambda: split(*many), n), "word": (lambda: long(loads), 256),
                  f"word {letters}": (lambda: short(same), 256), f"levels {letters}": (lambda: levels(same), 256)}
    found = take_turns({name: call for name, (call, _) in contenders.items()}, options.repeats)
    seconds = {name: {"wall": found[name].wall / count, "cpu": found[name].cpu / count}
               for name, (_, count) in contenders.items()}
    quick, slow = found["descent"].answer, found["full"].answer
    excess = float(jnp.max(quick.mean_number[:options.sample] / slow.mean_number - 1))
    two = float(jnp.max(jnp.abs(found[f"word {letters}"].answer / found[f"levels {letters}"].answer - 1)))
    for name, value in seconds.items():
        print(f"{name}: {1e3 * value['wall']:.3f} ms a point, {1e3 * value['cpu']:.3f} ms of CPU")
    print(f"descent over full search, largest excess of the mean number: {excess:.1e}")
    print(f"round the word and by levels, largest difference: {two:.1e}")
    wall = {name: value["wall"] for name, value in seconds.items()}
    save(__doc__, over(wall, "descent") | {"levels over word": wall[f"levels {letters}"] / wall[f"word {letters}"]},
         {"seconds_per_point": seconds, "descent_excess": excess, "difference": two}, options.json)


if __name__ == "__main__":
    main()
