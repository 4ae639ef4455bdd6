"""The commands that this distribution adds to ``kirsch`` with entry points in the group ``kirsch.commands``.

The server imports this module. Without the server, ``python -m kirsch_web`` runs the same commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kirsch.commands import Command

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Explains(Command):
    """A command that :mod:`kirsch_web.explain` implements under the name ``word``."""

    __slots__ = ("word",)

    def __init__(self, word: str, summary: str) -> None:
        super().__init__(summary, "kirsch_web.explain")
        self.word = word

    def main(self, argv: Sequence[str]) -> int:
        """Run the command and return its exit status."""
        from kirsch_web.explain import main

        return main(argv, self.word)


ROUTES = _Explains("routes", "List what an application of kirsch_web publishes, and what it does not.")
EXPLAIN = _Explains(
    "explain", "Show what a request would do in an application of kirsch_web: handler, settings, hooks."
)
