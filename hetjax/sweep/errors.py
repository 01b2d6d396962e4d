"""What can go wrong in a sweep, each with the exit code that the command line gives it."""

import difflib
import reprlib
from collections.abc import Iterable

_SHORT = reprlib.Repr(maxstring=60, maxother=60, maxlong=40, maxlist=6, maxdict=4)
show = _SHORT.repr  # a value in a message: always one short line


class SweepError(Exception):
    """Any failure of a sweep that the user can act on; its text is one line."""

    exit_code = 1


class SpecError(SweepError, ValueError):
    """The specification is wrong, or does not fit the store it should continue."""

    exit_code = 2


class LockedError(SweepError):
    """Another run is writing to this store."""

    exit_code = 6


class SweepInterrupted(SweepError):
    """The run was asked to stop; everything committed is kept and the run can be resumed."""

    exit_code = 75


class IncompleteSweepError(SweepError):
    """The store has blocks that were not computed yet."""

    exit_code = 75


def nearest(name: str, known: Iterable[str]) -> str:
    """The remedy for a misspelt name: ``; did you mean 'q'?`` or the list of what is known."""
    choices = list(known)
    close = difflib.get_close_matches(str(name), choices, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(c if c.isprintable() else show(c) for c in choices)}" if choices else ""


def one_line(error: BaseException, longest: int | None = None) -> str:
    """The text of an error without line breaks, cut after ``longest`` characters."""
    return " ".join(str(error).split())[:longest]
