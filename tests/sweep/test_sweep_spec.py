"""Specifications: what a TOML file means, what is refused and how, and what the hash covers."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_models import TOY

from hetjax.sweep.errors import SpecError
from hetjax.sweep.problem import bind, differences
from hetjax.sweep.spec import Spec, parse_spec, read_spec

GOOD = """
[sweep]
model   = "toy_models:TOY"
version = 3
title   = "an example"
metrics = ["total", "bump"]
grad    = { of = ["total"], wrt = ["rho", "scale"] }
dtype   = "float64"
[axes]
rho = { linspace = [0.0, 1.0, 5] }
y = { values = [-1, 0.5, inf] }
K = { range = [1, 4], where = "K <= 2 * m" }
m = { values = [1, 2, 4], static = true }
n = { values = [0, 1, 1] }
[zip]
size = ["m", "n"]
[derived]
x = "lam + rho"
lam = "rho * m"
[const]
scale = 2
[plot]
x = "K"
"""

SCATTERED = {
    "sweep": {"model": "toy_models:TOY", "metrics": ["total"], "grad": {"of": ["total"], "wrt": ["x"]}},
    "design": {"kind": "sobol", "n": 8, "seed": 3, "unbalanced": False, "where": "x > y",
               "bounds": {"x": [0.5, 8.0], "y": [-1.0, 1.0], "m": [1, 3]}},
    "axes": {"K": {"values": [1, 2]}}, "const": {"scale": 2}}


def raw():
    import tomllib
    return tomllib.loads(GOOD)


def test_a_file_becomes_a_grid(tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text(GOOD)
    spec = read_spec(file)
    assert [dim.name for dim in spec.dims] == ["rho", "y", "K", "size"]
    assert spec.shape == (5, 3, 4, 3) and spec.points == 180
    assert spec.axis("K").values.dtype == np.int64 and spec.axis("K").values.tolist() == [1, 2, 3, 4]
    assert spec.axis("y").values.dtype == np.float64 and spec.axis("y").values[2] == math.inf
    assert list(spec.derived) == ["lam", "x"], "derived names come in the order of evaluation"
    assert spec.const == {"scale": 2} and isinstance(spec.const["scale"], int)
    problem = bind(spec)
    assert problem.shapes == "static" and problem.shape_dims == (3,)
    assert problem.signature((0, 0, 0, 1)) == (("m", 2), ("n", 1))
    assert len(problem.distinct_signatures()) == 3


def test_geometric_axes_are_correctly_rounded():
    values = parse_spec(GOOD.replace("linspace = [0.0, 1.0, 5]", "geom = [1e-3, 1e3, 7]")).axis("rho").values
    # powers of ten are what correct rounding gives; pow() is an ulp off at some of them
    assert values.tolist() == [1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0]


def test_shape_parameters_may_be_derived_and_many_are_traced():
    text = GOOD.replace('[zip]\nsize = ["m", "n"]\n', "").replace("n = { values = [0, 1, 1] }\n", "")
    problem = bind(parse_spec(text.replace('lam = "rho', 'n = "2 * m - 1"\nlam = "rho')))
    assert problem.distinct_signatures() == [(("m", 1), ("n", 1)), (("m", 2), ("n", 3)), (("m", 4), ("n", 7))]
    many = bind(parse_spec(text.replace("values = [1, 2, 4], static = true", "range = [1, 9]")))
    assert many.shapes == "masked" and many.bounds == {"m": 9, "n": 0} and many.distinct_signatures() == [()]
    forced = bind(parse_spec(text.replace("values = [1, 2, 4]", "range = [1, 9]")))
    assert forced.shapes == "static" and len(forced.distinct_signatures()) == 9


@pytest.mark.parametrize(("old", "new", "parts"), [
    ("[sweep]", "[sweeep]", ["'sweeep' is no table", "did you mean 'sweep'"]),
    ("title", "titel", ["'titel'", "did you mean 'title'"]),
    ('metrics = ["total", "bump"]', 'metrics = ["totl", "bump"]', ["grad of = 'total' is not among", "'totl'"]),
    ('metrics = ["total", "bump"]', 'metrics = ["total", "bumb"]', ["'bumb' is no metric", "did you mean 'bump'"]),
    ('metrics = ["total", "bump"]', 'metrics = "total"', ["metrics = 'total'", "list of names"]),
    ('metrics = ["total", "bump"]', 'metrics = ["total", "total"]', ["twice"]),
    ('toy_models:TOY"', 'toy_models:NOT_A_MODEL"', ["is a int, not a hetjax Model"]),
    ('toy_models:TOY"', 'no_such_module:TOY"', ["cannot be loaded"]),
    ("version = 3", "version = 2", ["version = 2", "at version 3"]),
    ('dtype   = "float64"', 'dtype   = "float16"', ["dtype = 'float16'", "float64, float32"]),
    ("linspace = [0.0, 1.0, 5]", "linspac = [0.0, 1.0, 5]", ["'linspac'", "did you mean 'linspace'"]),
    ("linspace = [0.0, 1.0, 5]", "linspace = [0.0, 1.0]", ["[axes] rho linspace = [0.0, 1.0]", "number of points"]),
    ("linspace = [0.0, 1.0, 5]", "linspace = [0.0, 1.0, 5.0]", ["number of points"]),
    ("linspace = [0.0, 1.0, 5]", "linspace = [0.0, inf, 5]", ["finite"]),
    ("linspace = [0.0, 1.0, 5]", "linspace = [0.0, 1.0, 999999999]", ["999999999 values"]),
    ("linspace = [0.0, 1.0, 5]", "geom = [0.0, 1.0, 5]", ["positive"]),
    ("linspace = [0.0, 1.0, 5]", "values = []", ["[axes] rho values = []"]),
    ("linspace = [0.0, 1.0, 5]", "values = [0.1, 0.1]", ["repeats"]),
    ("linspace = [0.0, 1.0, 5]", "values = [nan]", ["nan"]),
    ("linspace = [0.0, 1.0, 5]", "values = [true]", ["True is no number"]),
    ("linspace = [0.0, 1.0, 5]", 'values = ["a"]', ["'a' is no number"]),
    ("linspace = [0.0, 1.0, 5]", "values = [9007199254740993]", ["2^53"]),
    ("rho = { linspace = [0.0, 1.0, 5] }", "rho = 0.5", ["[axes] rho = 0.5", "[const]"]),
    ("range = [1, 4]", "range = [4, 1]", ["first <= last"]),
    ("range = [1, 4]", "range = [1.0, 4]", ["whole numbers"]),
    ("static = true", 'static = "yes"', ["static = 'yes'"]),
    ("K <= 2 * m", "K <= 2 * mm", ["[axes] K where", "'mm'", "did you mean 'm'"]),
    ("K <= 2 * m", "K", ["[axes] K where", "give a condition"]),
    ('size = ["m", "n"]', 'size = ["m", "K"]', ["m has 3", "K has 4"]),
    ('size = ["m", "n"]', 'size = ["m"]', ["at least two"]),
    ('size = ["m", "n"]', 'size = ["m", "z"]', ["'z' is no axis"]),
    ('size = ["m", "n"]', 'K = ["m", "n"]', ["name of an axis"]),
    ('lam = "rho * m"', 'lam = "x * m"', ["circle"]),
    ('lam = "rho * m"', 'lam = "rho * unknown"', ["[derived] lam", "'unknown'"]),
    ('lam = "rho * m"', 'lam = "rho * m"\nspare = "rho"', ["'spare'", "nothing is derived"]),
    ("scale = 2", "scale = 2\nscal = 3", ["[const] 'scal'", "did you mean 'scale'"]),
    ("scale = 2", "scale = 200", ["scale = 200", "[0, 100]"]),
    ("scale = 2", "scale = 2\nrho = 2", ["'rho' is given twice"]),
    ("scale = 2", "scale = 2\nlog = 2", ["'log'"]),
    ("K = { range = [1, 4], where = \"K <= 2 * m\" }\n", "", ["parameter 'K'", "is missing", "[0, 1e+06] or inf"]),
    ("m = { values = [1, 2, 4]", "m = { values = [1, 2, 99]", ["m = 99", "[1, 40]"]),
    ("m = { values = [1, 2, 4]", "m = { values = [1, 2, 2.5]", ["m = 2.5"]),
    ('wrt = ["rho", "scale"]', 'wrt = ["rho", "m"]', ["wrt = 'm' gives array shapes"]),
    ('wrt = ["rho", "scale"]', 'wrt = ["x"]', ["wrt = 'x' is derived"]),
    ('wrt = ["rho", "scale"]', "wrt = []", ["wrt is missing"]),
    ('wrt = ["rho", "scale"]', 'with = ["rho"]', ["'with'"]),
    ("[const]", "[const", ["not valid TOML"]),
])
def test_refusals_name_key_value_and_remedy(old, new, parts):
    assert old in GOOD
    with pytest.raises(SpecError) as caught:
        bind(parse_spec(GOOD.replace(old, new, 1)))
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    for part in parts:
        assert part in message


def test_the_hash_covers_results_and_nothing_else():
    base = bind(parse_spec(GOOD))
    for old, new in [('x = "K"', 'x = "rho"'), ("an example", "another"), ("version = 3", ""),
                     ("[axes]", "inner_batch = 64\nblock_points = 99\n[axes]")]:
        assert bind(parse_spec(GOOD.replace(old, new, 1))).spec_hash == base.spec_hash, new
    mutations = {
        "axes.rho.values": ("[0.0, 1.0, 5]", "[0.0, 1.1, 5]"), "axes.y.values": ("0.5, inf", "0.5, 2.0"),
        "axes.K.where": ("K <= 2 * m", "K <= 3 * m"), "axes.m.values": ("[1, 2, 4]", "[1, 2, 5]"),
        "axes.m.static": (", static = true", ""), "derived.lam": ("rho * m", "rho * m * 2"),
        "const.scale": ("scale = 2", "scale = 3"), "dtype": ('"float64"', '"float32"'),
        "metrics": ('"total", "bump"', '"total"'), "grad_wrt": ('"rho", "scale"', '"rho"'),
        "dims.size": ('size = ["m", "n"]', 'sizes = ["m", "n"]')}
    for field, (old, new) in mutations.items():
        assert old in GOOD
        other = bind(parse_spec(GOOD.replace(old, new, 1)))
        assert other.spec_hash != base.spec_hash, field
        assert any(text.startswith(field) for text in differences(base.canonical(), other.canonical())), field
    from dataclasses import replace
    newer = bind(parse_spec(GOOD.replace("version = 3", "")), replace(TOY, version=4))
    assert differences(base.canonical(), newer.canonical()) == ["model_version: 3 -> 4"]


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-10**20, 10**20), st.floats(), st.text(max_size=5),
                   st.lists(st.integers(0, 3), max_size=3),
                   st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))


@settings(max_examples=300)
@given(data=st.data())
def test_any_damage_is_refused_in_one_line_or_harmless(data):
    """Replace, delete or add one entry anywhere in a good specification: SpecError with one line, or still good."""
    tree = copy.deepcopy(data.draw(st.sampled_from([raw(), SCATTERED])))
    node, path = tree, []
    while isinstance(node, dict) and node and data.draw(st.integers(0, 3)):
        path.append(data.draw(st.sampled_from(sorted(node))))
        parent, node = node, node[path[-1]]
    if not path:
        tree[data.draw(st.text(max_size=6))] = data.draw(LEAVES)
    elif data.draw(st.booleans()):
        parent[path[-1]] = data.draw(LEAVES)
    else:
        del parent[path[-1]]
    try:
        bind(Spec.from_dict(tree))
    except SpecError as error:
        assert "\n" not in str(error) and str(error)
