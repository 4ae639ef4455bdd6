"""Output of the commands: printing to a standard output that may be closed early, and tables."""

from __future__ import annotations

import os
import sys

from kirsch.bootstrap import EXIT_FAILED, StartupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def print_output(text: str) -> None:
    """Write ``text`` to stdout. A reader may close it early (``kirsch --help | head -1``), which is no error."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        # Otherwise the interpreter would write the rest of the buffer at its exit, and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise StartupError(EXIT_FAILED, f"cannot write to standard output: {error.strerror}") from None


def table(rows: Iterable[tuple[str, ...]], indent: str = "") -> str:
    """Return ``rows`` as lines with aligned columns."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        indent + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
