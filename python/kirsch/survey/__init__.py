"""``kirsch survey``: HTTP servers measured side by side such that the result can be believed.

    command.py        what was said on the command line, and what is done about it
    spec.py           the survey's file: servers, scenarios, interpreters, rounds
    adapters/         how each server is installed and started, or why it cannot be
    within/           what runs inside other interpreters: applications, and a launcher of servers
    subjects.py       each server under each interpreter (interpreters.py), in its environment (venvs.py)
    rounds.py         whose turn it is
    runner.py         one turn: a fresh process (processes.py) on processors of its own (processors.py), under load
    null.py           the bare loop that the generator is judged by
    records.py        what is measured, one line of JSON for each round
    store.py          those lines: an interrupted survey goes on from there
    statistics.py     intervals and ranks
    figures.py, tables.py, founding.py, page.py, report.py        what is told of it

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
