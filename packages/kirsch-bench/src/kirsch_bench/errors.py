"""The errors that end the command with one line on stderr, and the exit statuses.

Failure(Exception)      any of them; ``status`` is what the command ends with
├── UsageError          2: the command line, a file that it names, or a target that is not the caller's
└── UnreachableError    3: nothing was measured, because the server is not there
"""

from __future__ import annotations

OK = 0
ERRORS_SEEN = 1
"""Something was measured, and not all of it went well; also a report that could not be written."""
USAGE = 2
UNREACHABLE = 3
THRESHOLD_CROSSED = 4
"""A condition of --fail-if became true."""
INTERRUPTED = 130
"""128 + SIGINT, as the shell has it; what had been measured by then was reported."""


class Failure(Exception):
    """An error that ends the command: one line for stderr and an exit status."""

    status = ERRORS_SEEN


class UsageError(Failure):
    """An error that the caller can correct."""

    status = USAGE


class UnreachableError(Failure):
    """Raised if there is no server, or it does not respond."""

    status = UNREACHABLE
