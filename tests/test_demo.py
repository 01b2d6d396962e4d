"""The demo computes every model, says a number about each that is right, and draws it."""

import re

import pytest

from hetjax.cli import main
from hetjax.demo import STUDIES
from hetjax.models.registry import _BUILTIN as BUILTIN


def run(folder, capsys, *models):
    assert main(["demo", "--out", str(folder), *(word for model in models for word in ("--model", model))]) == 0
    return " ".join(capsys.readouterr().out.split())


def check_pictures(folder, models):
    pictures = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(pictures) == {f"{model}.png" for model in models}
    assert all(data.startswith(b"\x89PNG") and len(data) > 10_000 for data in pictures.values())


def test_every_model_is_shown_once():
    assert sorted(study.model for study in STUDIES) == sorted(BUILTIN)


def test_some_models(tmp_path, capsys):
    out = run(tmp_path, capsys, "overflow", "threshold_queue")
    # of a regular grid of 61 x 61 loads, where the larger is below sqrt(rho^2 + 2 rho) of the smaller: 18 %
    loads = [10 ** (-2 + 4 * i / 60) for i in range(61)]
    both = sum(max(a, b) ** 2 < min(a, b) ** 2 + 2 * min(a, b) for a in loads for b in loads) / 61**2
    assert f"at {both:.0%} of these loads" in out
    assert re.search(r"usual heuristic costs up to 5\.\d%, the explicit rule 0\.\d\d%", out)
    assert "5,607 points" in out
    check_pictures(tmp_path, ["overflow", "threshold_queue"])


def test_an_unknown_model_is_one_line(tmp_path, capsys):
    assert main(["demo", "--model", "overflw", "--out", str(tmp_path / "none")]) == 2
    assert "did you mean 'overflow'?" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_all_models(tmp_path, capsys):
    out = run(tmp_path, capsys)
    assert "until 20 of them do" in out  # the best buffer at load 0.8, as in the README
    assert "nan" not in out
    check_pictures(tmp_path, BUILTIN)
