"""Continuous-time Markov chains: built from rates, solved, differentiated and vectorised as pure JAX functions."""

from hetjax.ctmc.by_level import expectation_by_level
from hetjax.ctmc.generator import (
    Classes,
    Levels,
    StateSpace,
    check_generator,
    check_levels,
    classes,
    dense_to_levels,
    explore,
    generator,
    levels_to_dense,
)
from hetjax.ctmc.iterative import stationary_iterative
from hetjax.ctmc.levels import expectation_levels, stationary_levels
from hetjax.ctmc.matrix_geometric import MatrixGeometric, logarithmic_reduction, matrix_geometric
from hetjax.ctmc.queues import Queue, map_map_1, map_ph_1, ph_ph_1
from hetjax.ctmc.sensitivity import Sensitivity, sensitivity, stationary_reward
from hetjax.ctmc.simulate import Estimate, generator_chain, sample_paths, simulate, transition_chain
from hetjax.ctmc.stationary import stationary
from hetjax.ctmc.transient import accumulated_reward, first_passage_moments, transient

__all__ = [
    "Classes",
    "Estimate",
    "Levels",
    "MatrixGeometric",
    "Queue",
    "Sensitivity",
    "StateSpace",
    "accumulated_reward",
    "check_generator",
    "check_levels",
    "classes",
    "dense_to_levels",
    "expectation_by_level",
    "expectation_levels",
    "explore",
    "first_passage_moments",
    "generator",
    "generator_chain",
    "levels_to_dense",
    "logarithmic_reduction",
    "map_map_1",
    "map_ph_1",
    "matrix_geometric",
    "ph_ph_1",
    "sample_paths",
    "sensitivity",
    "simulate",
    "stationary",
    "stationary_iterative",
    "stationary_levels",
    "stationary_reward",
    "transient",
    "transition_chain",
]
