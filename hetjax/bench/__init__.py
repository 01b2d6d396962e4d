"""How fast the models are on this machine: ``hetjax bench``, or from Python:

>>> import hetjax
>>> hetjax.enable_x64()
>>> from hetjax.bench import bench_models
>>> report = bench_models(["overflow"], points=4096, gradients=False, seconds=20.0)
>>> sorted({(row.model, row.dtype, row.what) for row in report.rows})
[('overflow', 'float32', 'value'), ('overflow', 'float64', 'value')]
"""

from hetjax.bench.models import bench_models
from hetjax.bench.report import Report, Row
from hetjax.bench.specification import bench_spec

__all__ = ["Report", "Row", "bench_models", "bench_spec"]
