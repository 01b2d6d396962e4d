"""Parallel nodes of a fast and a slow server behind a router that sees nothing of them.

:func:`best_split` (Bernoulli routing), :func:`best_word` (periodic words) with thresholds, :func:`full_information`
(what a router that sees everything could reach), and the means under any of these policies.
"""

from hetjax.models.parallel_queues.bernoulli import (
    Split,
    best_split,
    best_split_by_gradient,
    node_numbers,
    square_root_rule,
)
from hetjax.models.parallel_queues.by_phase import (
    ByPhase,
    GeneralWord,
    best_general_word,
    best_thresholds_of_word,
    best_word_by_phase,
)
from hetjax.models.parallel_queues.full_information import FullInformation, full_information, joint_process
from hetjax.models.parallel_queues.model import BEST_MODEL, MODEL, WORD_MODEL
from hetjax.models.parallel_queues.node import NodeMeans, node_means
from hetjax.models.parallel_queues.open_loop import (
    OpenLoop,
    best_density,
    best_word,
    density_means,
    full_search,
    word_means,
)
from hetjax.models.parallel_queues.params import Params, status
from hetjax.models.parallel_queues.words import densities, is_mechanical, mechanical_word, necklaces, routed

__all__ = [
    "BEST_MODEL", "MODEL", "WORD_MODEL", "ByPhase",
    "FullInformation", "GeneralWord", "NodeMeans", "OpenLoop", "Params", "Split", "best_density",
    "best_general_word", "best_split", "best_split_by_gradient", "best_thresholds_of_word", "best_word",
    "best_word_by_phase", "densities", "density_means", "full_information", "full_search", "is_mechanical",
    "joint_process", "mechanical_word", "necklaces", "node_means", "node_numbers", "routed", "square_root_rule",
    "status", "word_means",
]
