"""The command that estimates: fit."""

import argparse
import json
import math
from typing import Any


def fit(options: argparse.Namespace) -> int:
    """``hetjax fit``."""
    from hetjax.fit import fit_log

    try:
        found = fit_log(options.log, slow=options.slow, fast_servers=options.fast_servers,
                        slow_servers=options.slow_servers)
    except OSError as error:
        raise ValueError(f"{options.log} cannot be read ({error.strerror}); give a CSV file") from None
    print(json.dumps(_finite(found.to_dict()), indent=2) if options.json else found.text())
    return 0


def _finite(value: Any) -> Any:
    """``value`` with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def add_fit(sub: argparse.ArgumentParser, positive: Any) -> None:
    """Declares its options."""
    sub.add_argument("log", metavar="LOG", help="a CSV file, one customer a line; its header names columns out of"
                                                " arrival, start, departure, service, server")
    sub.add_argument("--slow", metavar="CLASS", help="the class (column server) of the slow servers (default: the"
                                                     " slower of two)")
    sub.add_argument("--fast-servers", type=positive, metavar="M", help="number of fast servers: gives the load q")
    sub.add_argument("--slow-servers", type=positive, metavar="N",
                     help="number of slow servers (default: as many as were busy at once)")
    sub.add_argument("--json", action="store_true", help="as JSON")
