"""Thousands of wrong specifications, each refused in one line that names key and value; every hashed field changed."""

import copy
import json
import random

import pytest
from test_sweep_spec import raw

from hetjax import Sweep
from hetjax.sweep.errors import SpecError, SweepError, show
from hetjax.sweep.problem import bind, differences
from hetjax.sweep.run import RunOptions, run_sweep
from hetjax.sweep.spec import Spec

# the value is legal in itself, and what it does to the rest is wrong: the message is about that
CONSEQUENCES = ("repeats a value", "nothing is derived from it", "of equal length", "is missing", "is no input")


def leaves(tree, path=()):
    """The path of every entry that holds no further entries."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if not entries:
        yield path
    for key, value in entries:
        yield from leaves(value, (*path, key))


def put(tree, path, value):
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def wrong_value(chance):
    return chance.choice([
        None, True, False, chance.randint(-10**20, 10**20), chance.randint(-3, 9), chance.uniform(-1e3, 1e3),
        float("inf"), float("-inf"), float("nan"), "rho", "m", "1e400", "", "x" * 100, "\n", "\0", "__import__('os')",
        "".join(chance.choice("abKm<=+*(é\n 1.") for _ in range(chance.randint(0, 9)))])


def shown(value, message):
    """Whether the message has the value, shortened or with few digits as it may be."""
    texts = [show(value)[:12], value if isinstance(value, str) else repr(value)]
    if isinstance(value, int | float):
        texts += [f"{value:g}", f"{float(value):g}", repr(float(value))]
    return any(text in message for text in texts)


def fuzz(count, seed):
    chance = random.Random(seed)
    good = raw()
    paths = [path for path in leaves(good) if path[0] != "plot"]
    refused = 0
    for _ in range(count):
        tree, path, value = copy.deepcopy(good), chance.choice(paths), wrong_value(chance)
        put(tree, path, value)
        try:
            bind(Spec.from_dict(tree))
            continue
        except SpecError as error:
            message = str(error)
        refused += 1
        assert "\n" not in message and len(message) < 500, message
        assert any(str(key) in message for key in path if isinstance(key, str)), (path, value, message)
        assert shown(value, message) or any(text in message for text in CONSEQUENCES), (path, value, message)
    return refused


def test_300_wrong_specifications():
    assert fuzz(300, seed=1) > 200


@pytest.mark.slow
def test_10000_wrong_specifications():
    assert fuzz(12_000, seed=2) > 10_000


@pytest.fixture(scope="module")
def designed(tmp_path_factory):
    """A store with every kind of field: dims, zip, design, where, derived, constants, derivatives."""
    path = tmp_path_factory.mktemp("hashed") / "s.zarr"
    sweep = Sweep("toy_models:TOY", {"K": {"values": [0, 3], "where": "K < 5"}, "a": [1.0, 2.0], "b": [2.0, 3.0]},
                  zip={"pair": ["a", "b"]}, design={"kind": "sobol", "n": 4, "seed": 1, "bounds": {"s": [0.1, 0.9]}},
                  derived={"x": "a + s", "y": "b"}, const={"m": 1}, metrics=["total"], grad=["a"])
    run_sweep(sweep.problem, path)
    return path, sweep


def test_every_hashed_field_changed_is_refused_by_name(designed):
    path, sweep = designed
    file = path / "zarr.json"
    text = file.read_text()
    stored = json.loads(text)["attributes"]["spec"]
    changes = {str: lambda v: v + "x", int: lambda v: v + 1, bool: lambda v: not v, type(None): lambda v: "x < 1",
               float: lambda v: v + 1, list: lambda v: ["x"], dict: lambda v: {"x": 1}}
    try:
        for where in leaves(stored):
            other = copy.deepcopy(stored)
            value = other
            for key in where:
                value = value[key]
            put(other, where, changes[type(value)](value))
            found = differences(other, stored)
            name = ".".join(key for key in where if isinstance(key, str))
            assert found and any(difference.startswith(name.rsplit(".", 1)[0]) for difference in found), (where, found)
            metadata = json.loads(text)
            metadata["attributes"] |= {"spec": other, "spec_hash": "0" * 64}
            file.write_text(json.dumps(metadata))
            with pytest.raises(SweepError) as error:
                run_sweep(sweep.problem, path, RunOptions(resume="auto"))
            message = str(error.value)
            assert "\n" not in message and (
                ("another specification" in message and where[0] in message) or "is damaged" in message), message
    finally:
        file.write_text(text)
    assert run_sweep(sweep.problem, path, RunOptions(resume="auto", allow_drift=True)).computed == 0
    covered = {where[0] for where in leaves(stored)}
    assert covered == sweep.problem.canonical().keys(), "every field of the hash is in the store"
