"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import pytest

import hetjax

MODULES = sorted(info.name for info in pkgutil.walk_packages(hetjax.__path__, "hetjax."))


@pytest.mark.parametrize("name", ["hetjax", *MODULES])
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0
