"""The site: ``python -m sphinx -W notebooks/guide site`` builds it into the folder site/, which git ignores.

Everything that is made on the way (pictures, the list of models, pages of notebooks) goes to ``made/`` beside this
file, which git ignores too. Notebooks are shown as they stand; ``-D nb_execution_mode=force`` runs them.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import hetjax  # noqa: E402

project = "hetjax"
release = version = hetjax.__version__
author = "the hetjax contributors"
project_copyright = "the hetjax contributors, Apache-2.0"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "myst_nb"]
napoleon_numpy_docstring = False
napoleon_use_param = napoleon_use_rtype = False
napoleon_use_ivar = True
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
exclude_patterns = ["_build"]

html_theme = "furo"
html_static_path, html_css_files = ["style"], ["guide.css"]
html_math_renderer = "mathml"
html_title = f"hetjax {release}"
html_show_sphinx = False
pygments_style = "default"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"


def plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: an indented paragraph is a formula or a picture, and a bar is a bar."""
    found: list[str] = []
    blank, literal, markup = True, False, False
    for line in lines:
        if line.strip() and not line.startswith(" "):
            literal = False
            markup = bool(re.match(r"\.\. |[-*] |\d+\. |:\w+", line)) or line.endswith("::")
        elif line.strip() and blank and not literal and not markup:
            found += ["::", ""]
            literal = True
        if not literal and not line.startswith(">>>"):
            line = "".join(part if part.startswith("``") else part.replace("|", r"\|")
                           for part in re.split(r"(``.*?``)", line))
        found.append(line)
        blank = not line.strip()
    lines[:] = found


def make_sources(app: Any) -> None:
    """Pictures, the list of models and the notebooks, before the pages are read."""
    import jupytext
    import pictures
    import reference

    made = HERE / "made"
    shutil.rmtree(made, ignore_errors=True)
    (made / "notebooks").mkdir(parents=True)
    pictures.draw_all(made)
    (made / "list_of_models.md").write_text(reference.list_of_models(), encoding="utf-8")
    (made / "command_line.md").write_text(reference.command_line(), encoding="utf-8")
    notebooks = sorted(HERE.parent.glob("[0-9]*.py"))
    for source in notebooks:
        notebook = jupytext.read(source)
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.metadata.setdefault("kernelspec", kernel)
        notebook.metadata.setdefault("language_info", {"name": "python"})
        jupytext.write(notebook, made / "notebooks" / f"{source.stem}.ipynb")
    (made / "notebooks.md").write_text(reference.list_of_notebooks([path.stem for path in notebooks]), encoding="utf-8")


def skip_fields(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Fields of named tuples stand in their signature and are explained in the text of their class."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def visit_math(writer: Any, node: Any) -> None:
    """Formulas as MathML, which browsers draw themselves: no script from elsewhere."""
    block = node.tagname == "math_block"
    writer.body.append(f"<p>{tex2mathml(node.astext(), as_block=True)}</p>" if block else tex2mathml(node.astext()))
    raise SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("builder-inited", make_sources)
    app.connect("autodoc-process-docstring", plain_text)
