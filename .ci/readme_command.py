"""Prints the README's set-up-and-go command named on the command line ("sweep" or "test")."""

import re
import sys
from pathlib import Path

readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
found = re.search(rf"<!-- command: {re.escape(sys.argv[1])} -->\s*```bash\n(.*?)```", readme, re.DOTALL)
if found is None:
    sys.exit(f"README.md has no command named {sys.argv[1]!r}")
print(found.group(1).strip())
