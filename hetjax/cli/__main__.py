"""``python -m hetjax.cli``."""

import sys

from hetjax.cli import main

if __name__ == "__main__":
    sys.exit(main())
