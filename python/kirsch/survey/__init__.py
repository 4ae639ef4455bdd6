"""``kirsch survey``: HTTP servers measured side by side such that the result can be believed.

    spec.py         the survey's file: servers, scenarios, interpreters, rounds
    adapters/       how each server is installed and started, or why it cannot be
    runner.py       rounds in turn, each with a fresh process
    records.py      what is measured, one line of JSON for each round: an interrupted survey goes on from there
    statistics.py   intervals and ranks
    report.py       the tables and the page

Nothing of the server imports this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``kirsch survey`` with ``argv`` (default: the process's) and return its exit status."""
    from kirsch.survey import command

    return command.main(argv)
