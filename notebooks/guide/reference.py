"""Pages that are made when the site is built: the list of models, the command line, the notebooks."""

import contextlib
import io
import re
from collections.abc import Sequence

from hetjax.cli.parser import make_parser
from hetjax.models.registry import get_model, model_names


def list_of_models() -> str:
    """Every registered model with its parameters and metrics, as Markdown."""
    lines = ["# All models", "", "Made from the registry; `hetjax models` prints the same.", ""]
    for name in model_names():
        model = get_model(name)
        lines += [f"## {name}", "", f"{model.title}. Version {model.version}.", "",
                  "| parameter | domain | unit | meaning | default |", "|---|---|---|---|---|"]
        lines += [f"| `{a.name}` | {a.describe_domain()} | {a.unit} | {_cell(a.meaning)} |"
                  f" {'' if a.default is None else format(a.default, 'g')} |" for a in model.axes]
        lines += ["", "| metric | unit | meaning | |", "|---|---|---|---|"]
        for metric in model.metrics:
            notes = [f"undefined where {metric.undefined_where}"] if metric.undefined_where else []
            notes += ["expensive: on request only"] if metric.expensive else []
            lines.append(f"| `{metric.name}` | {metric.unit} | {_cell(metric.meaning)} | {_cell('; '.join(notes))} |")
        lines.append("")
    return "\n".join(lines)


def list_of_notebooks(names: Sequence[str]) -> str:
    """The page of the notebooks called ``names``."""
    return "\n".join(["# Notebooks", "", "Text files in the folder notebooks/ of the repository.", "",
                      "```{toctree}", ":maxdepth: 1", "", *(f"notebooks/{name}" for name in names), "```", ""])


def command_line() -> str:
    """The help text of every command, as Markdown."""
    lines = ["# The command line", "", "```text", _help(), "```", ""]
    for name in re.findall(r"^    (\w+) ", _help(), re.MULTILINE):
        lines += [f"## hetjax {name}", "", "```text", _help(name).split("exit codes:")[0].rstrip(), "```", ""]
    return "\n".join(lines)


def _help(*command: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        make_parser().parse_args([*command, "--help"])
    return text.getvalue().rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
