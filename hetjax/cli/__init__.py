"""The command line: ``hetjax COMMAND ...``; ``hetjax --help`` lists the commands.

Errors are one line on stderr and an exit code. Only the commands that compute load jax.
"""

import os
import sys
from collections.abc import Sequence

from hetjax.cli.parser import make_parser
from hetjax.sweep.errors import SpecError, SweepError, one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    options = make_parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except SweepError as error:
        print(f"hetjax: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except ValueError as error:  # refused options of figures and models
        print(f"hetjax: {one_line(error)}", file=sys.stderr)
        return SpecError.exit_code
    except KeyboardInterrupt:
        print("hetjax: stopped", file=sys.stderr)
        return 75
    except BrokenPipeError:  # the reader of our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"hetjax: {one_line(error)}", file=sys.stderr)
        return 1
