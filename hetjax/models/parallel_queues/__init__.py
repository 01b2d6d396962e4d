"""Parallel nodes."""
from hetjax.models.parallel_queues.open_loop import *
from hetjax.models.parallel_queues.params import Params, status
