"""How fast the models are on this machine: ``hetjax bench``, or from Python:

>>> import hetjax
>>> hetjax.enable_x64()
>>> from hetjax.bench import bench_models
>>> report = bench_models(["overflow"], points=4096, gradients=False, dtypes=["float64"])
>>> [(row.model, row.what, row.dtype, row.points_per_second > 0) for row in report.rows]
[('overflow', 'value', 'float64', True)]
"""

from hetjax.bench.models import bench_models
from hetjax.bench.report import Report, Row
from hetjax.bench.specification import bench_spec

__all__ = ["Report", "Row", "bench_models", "bench_spec"]
