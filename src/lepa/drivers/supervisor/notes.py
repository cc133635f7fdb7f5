"""The supervisor's own log: what an operator may have to know, on standard error, within a bound."""

import os
import sys

LOG_BYTES_MAX = 1024 * 1024
"""A log larger than this begins anew: it holds the unexpected only, and lately is what matters."""


def note(text: str) -> None:
    """Write a line. A full disk costs the line."""
    try:
        if os.fstat(2).st_size > LOG_BYTES_MAX:
            os.ftruncate(2, 0)
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return
