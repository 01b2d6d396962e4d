"""What the README says runs, and what it points to exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hetjax.models.registry import _BUILTIN as BUILTIN

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_example_prints_what_it_says():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = [float(x) for x in re.findall(r"#\s+(-?\d+\.?\d*)", code)]
    printed = [float(line) for line in done.stdout.splitlines() if not line.startswith("(")]
    assert len(said) == len(printed) == 3
    for number, expected in zip(printed, said, strict=True):
        assert abs(number - expected) <= 0.011 * abs(expected)  # the README cuts the digits off
    assert "(2, 40) (2, 40)" in done.stdout


def test_the_optimum_is_what_it_says():
    code = re.search(r"<!-- optimum -->\n```python\n(.*?)```", README, re.DOTALL).group(1)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {words[0]: words[1] for words in map(str.split, done.stdout.splitlines())}
    said = re.search(r"# K (\d+), n (\d+) \(on its bound\), objective (\S+),", code).groups()
    assert (found["K"], found["n"], found["objective"][:6]) == said and "lies on a bound" in done.stdout


@pytest.mark.parametrize("page", ["README.md", "sweeps/README.md"])
def test_links_and_images_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    assert targets
    for target in targets:
        assert ((ROOT / page).parent / target).exists(), target


def test_exactly_two_commands_in_one_line_each():
    names = re.findall(r"<!-- command: (\w+) -->", README)
    assert names == ["sweep", "test"]
    script = str(ROOT / ".ci/readme_command.py")
    for name in names:
        done = subprocess.run([sys.executable, script, name], capture_output=True, text=True)
        assert done.returncode == 0 and len(done.stdout.strip().splitlines()) == 1


def test_every_sweep_is_listed_with_its_figure():
    index = (ROOT / "sweeps/README.md").read_text(encoding="utf-8")
    for spec in (ROOT / "sweeps").glob("*.toml"):
        assert f"`{spec.name}`" in index, f"sweeps/README.md does not list {spec.name}"
    for image in (ROOT / "sweeps/images").iterdir():
        assert f"images/{image.name}" in index, f"sweeps/README.md does not show {image.name}"


def test_every_model_has_a_row():
    rows = "".join(line for line in README.splitlines() if line.startswith("| `"))
    assert [name for name in BUILTIN if f"`{name}`" not in rows] == []


def test_command_line_text_names_existing_commands():
    done = subprocess.run([sys.executable, "-m", "hetjax.cli", "--help"], capture_output=True, text=True, check=True)
    named = set(re.findall(r"^\| `hetjax (\w+)", README, re.MULTILINE))
    assert {"run", "status", "verify"} <= named
    for command in named:
        assert re.search(rf"^\s+{command}\s", done.stdout, re.MULTILINE), command
