"""Calibration: parameters from observed means or from a log of arrivals and services, and what the data do not say.

:func:`fit_means` fits any registered model to means; :func:`fit_log` estimates rates, laws and the stalling buffer from
a log. Both name in words what cannot be identified.
"""

from hetjax.fit.log_file import Log
from hetjax.fit.log_fit import Estimate, LogFit, fit_log
from hetjax.fit.means import fit_means
from hetjax.fit.means_result import MeansFit, Parameter
from hetjax.fit.sample import SampleFit, fit_sample
from hetjax.fit.stalling_log import BufferFit, fit_buffer

__all__ = ["BufferFit", "Estimate", "Log", "LogFit", "MeansFit", "Parameter", "SampleFit", "fit_buffer", "fit_log",
           "fit_means", "fit_sample"]
