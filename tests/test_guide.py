"""The pages of the site in notebooks/guide: their examples run, their commands parse, what they point to exists."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hetjax.cli.parser import make_parser

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "notebooks" / "guide"
PAGES = sorted(GUIDE.rglob("*.md"))
PAGES = [page for page in PAGES if "made" not in page.relative_to(GUIDE).parts]
OTHERS = [ROOT / "README.md", ROOT / "sweeps/README.md", ROOT / "tests/benchmarks/README.md"]
MADE = {"list_of_models.md", "command_line.md", "notebooks.md"}
LONG = {"supermarket.md", "parallel_queues.md", "recipes.md"}  # compile for ten seconds and more
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


def name(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def pictures():
    sys.path.insert(0, str(GUIDE))
    try:
        import pictures
    finally:
        sys.path.remove(str(GUIDE))
    return pictures


@pytest.mark.parametrize("page", [
    pytest.param(page, id=name(page), marks=[pytest.mark.slow] if page.name in LONG else []) for page in WITH_CODE])
def test_examples_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in blocks(page, "python"):
        said = re.findall(r"^print\(.*\) {2,}# (.*)$", code, re.MULTILINE)
        assert len(said) == len(re.findall(r"^print\(", code, re.MULTILINE)) > 0, code
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, name(page), "exec"), {})
        printed = out.getvalue().splitlines()
        assert len(printed) == len(said)
        for got, expected in zip(printed, said, strict=True):
            assert got.startswith(expected), (got, expected)  # the page may cut digits off


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_commands_have_such_options(page):
    for block in blocks(page, "bash"):
        for line in block.splitlines():
            if line.startswith("hetjax "):
                words = shlex.split(line.replace("$SLURM_ARRAY_TASK_ID", "0"))[1:]
                assert make_parser().parse_args(words).command, line


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_what_a_page_points_to_exists(page):
    text = page.read_text(encoding="utf-8")
    drawn = {f"{picture.__name__}.svg" for picture in pictures().PICTURES}
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    targets += re.findall(r"```\{(?:image|include)\} (\S+)", text)
    targets += [f"{target}.md" for target in re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", text)]
    for block in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
        targets += [f"{line}.md" for line in block.splitlines() if line and line[0] not in ":" and "*" not in line]
    for target in targets:
        parts = Path(target).parts
        if "made" in parts:
            assert parts[parts.index("made") + 1] in drawn | MADE, target
        else:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_named_tests_exist(page):
    text = page.read_text(encoding="utf-8")
    files = set(re.findall(r"tests/[\w/]+\.py", text))
    assert all((ROOT / file).exists() for file in files), files
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for function in re.findall(r"[`:](test_\w+)`", text):
        assert f"def {function}(" in source, function


def test_every_page_is_in_the_index():
    index = (GUIDE / "index.md").read_text(encoding="utf-8")
    for page in PAGES:
        here = str(page.relative_to(GUIDE).with_suffix(""))
        assert here == "index" or re.search(rf"^{here}$", index, re.MULTILINE), here


def test_the_pictures_are_drawn(tmp_path):
    module = pictures()
    cheap = [picture for picture in module.PICTURES if picture is not module.lost_digits]
    files = module.draw_all(tmp_path, cheap)
    assert len(files) == len(cheap) > 3 and all(file.stat().st_size > 2000 for file in files)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="the site needs the dependency group docs")
    pytest.importorskip("myst_nb", reason="the site needs the dependency group docs")
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "-d", str(tmp_path / "trees"), str(GUIDE),
                           str(tmp_path / "site")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in ("index", "errata", "api/stalling", "models/stalling", "made/list_of_models"):
        assert (tmp_path / "site" / f"{page}.html").exists(), page
