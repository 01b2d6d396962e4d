"""The linter, the type checker and the shape of the repository are part of the test suite."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("command", [["ruff", "check", "."], ["mypy"]], ids=["ruff", "mypy"])
def test_checker_is_clean(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_stay_small():
    files = [path for folder in ("hetjax", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 10
    assert not {str(path): n for path in files if (n := len(path.read_text().splitlines())) > 450}


def test_top_level_holds_nothing_else():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known")
    allowed = {"pyproject.toml", "README.md", "hetjax", "sweeps", "notebooks", "tests", ".ci", ".python-version",
               ".gitignore", "constraints.txt", "LICENSE"}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name.split("/")[0] for name in listed.splitlines()} <= allowed
