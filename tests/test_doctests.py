"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import pytest

import hetjax

LONG = {f"hetjax.models.{name}" for name in (  # compile for many seconds each
    "parallel_queues.bernoulli", "parallel_queues.by_phase", "parallel_queues.model", "parallel_queues.open_loop",
    "stalling.buffer", "stalling.response_time", "stalling.worth", "supermarket.transient", "threshold_queue.by_phase",
    "threshold_queue.law")}
MODULES = sorted(info.name for info in pkgutil.walk_packages(hetjax.__path__, "hetjax."))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
                                  for name in ["hetjax", *MODULES]])
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0
