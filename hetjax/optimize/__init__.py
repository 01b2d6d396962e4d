"""Optimisation of any objective: real and whole variables, bounds, simplices, constraints, certificates.

:func:`minimize` works on the host. :func:`solve` is the same as a pure function, for optima over a grid.
The functions here take functions and know no model; :func:`hetjax.objective` makes one of a registered model's metrics.
"""

from hetjax.optimize.implicit import differentiable
from hetjax.optimize.minimize import Bound, Optimum, minimize
from hetjax.optimize.solve import Certificate, Found, Options, solve
from hetjax.optimize.space import Space, Variable, variable

__all__ = ["Bound", "Certificate", "Found", "Optimum", "Options", "Space", "Variable", "differentiable", "minimize",
           "solve", "variable"]
