"""The notebooks run as scripts, in small and with warnings as errors, draw figures, and are built as they should be."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))
HEADER = "# ---\n# jupyter:\n"


def cells(path):
    """[(is Markdown, text)] of a file in jupytext's percent format, its header left out."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(kind.strip() == "[markdown]", text) for kind, text in zip(parts[1::2], parts[2::2], strict=True)]


def markdown(text):
    assert all(line.startswith("#") for line in text.splitlines() if line), text
    return "\n".join(line[2:] for line in text.splitlines())


def test_there_are_notebooks_and_the_index_lists_each():
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) >= 6
    assert re.findall(r"\]\((\w+\.py)\)", index) == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_in_small_and_draws(path, tmp_path):
    # Of the packages below hetjax, only what they deprecate is let through. Compiling is nearly all of the time, so the
    # compiler does not optimise.
    environment = os.environ | {
        "HETJAX_SMALL": "1", "HETJAX_FIGURES": str(tmp_path), "MPLBACKEND": "Agg",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()}
    filters = ["-W", "error", "-W", "ignore::DeprecationWarning:jax", "-W", "ignore::DeprecationWarning:matplotlib"]
    done = subprocess.run([sys.executable, *filters, str(path)], env=environment, capture_output=True, text=True,
                          cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    figures = list(tmp_path.glob("*.png"))
    assert figures and all(figure.name.startswith(path.stem[:2]) for figure in figures)
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)
    assert {entry.suffix for entry in tmp_path.iterdir()} == {".png"}  # nothing else is left behind
    assert len(figures) == path.read_text(encoding="utf-8").count("\nshow(")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_opens_with_its_question_and_ends_with_what_to_try(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith(HEADER) and "name: python3" in text.split("# %%")[0]
    found = cells(path)
    (first_is_text, first), (last_is_text, last) = found[0], found[-1]
    assert first_is_text and re.match(rf"# {path.stem[:2]} \S", markdown(first))
    assert re.search(r"^\*\*Question: .+\?.*\*\*$", markdown(first), re.MULTILINE | re.DOTALL)
    assert last_is_text and re.search(r"^## What to try next$", markdown(last), re.MULTILINE)
    assert markdown(last).count("\n* ") >= 3
    assert all(markdown(body).strip() for is_text, body in found if is_text)
    for is_text, body in found:  # a notebook shows the last expression of a cell
        if not is_text and re.search(r"^show\(", body, re.MULTILINE):
            assert body.count("\nshow(") == 1 and body.strip().splitlines()[-1].startswith("show(")
    assert not re.search(r"image/png|\"outputs\"|execution_count", text)
