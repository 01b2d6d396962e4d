"""Unusable arguments of Params and from_rates: one line that names the parameter and what it takes."""

import re

import numpy as np
import pytest

import hetjax

GOOD = {"q": 0.5, "r": 10.0, "K": 3, "M": 5, "m": 2, "n": 2}
RATES = {"arrival_rate": 1.0, "mu1": 1.0, "mu2": 0.5, "K": 3, "M": 5, "m": 2, "n": 2}


@pytest.mark.parametrize("bad", [
    {"q": "a"}, {"q": None}, {"q": 1j}, {"q": np.nan}, {"q": [0.5, 2e5]}, {"K": 2**70}, {"K": -1}, {"M": np.nan},
    {"m": None}, {"m": "2"}, {"m": 2.5}, {"m": np.nan}, {"m": 0}, {"m": 513}, {"n": -1}, {"n": [1, 2]}, {"r": 0.0}],
    ids=str)
def test_params(bad):
    with pytest.raises(ValueError) as error:
        hetjax.stalling.Params(**{**GOOD, **bad})
    assert next(iter(bad)) in str(error.value) and re.search("give|use", str(error.value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bad", [{"arrival_rate": "x"}, {"mu1": 0.0}, {"mu2": None}, {"m": 0}, {"m": None}], ids=str)
def test_from_rates(bad):
    with pytest.raises(ValueError) as error:
        hetjax.stalling.from_rates(**{**RATES, **bad})
    assert next(iter(bad)) in str(error.value) and "\n" not in str(error.value)


def test_numbers_of_any_kind_keep_their_precision():
    assert hetjax.stalling.Params(**{**GOOD, "q": np.float32(0.5)}).r.dtype == np.float32
    assert hetjax.stalling.Params(**{**GOOD, "m": np.int64(2), "K": np.int32(3)}).q.dtype == np.float64
    assert hetjax.stalling.Params(**{**GOOD, "m": 2.0}).m == 2
