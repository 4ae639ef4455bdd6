"""``kirsch profile``: where the time of one request goes, in the server and in the application.

Nothing of the server imports this. ``tracer`` follows calls, ``stats`` keeps them in files, ``wsgi`` follows an
application; the command and ``kirsch.middleware.profiler`` are made of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run ``kirsch profile`` with what follows its name, and return its exit status.

    Raises UsageError and StartupError, for :func:`kirsch.cli.main` to tell.
    """
    from kirsch.profile import command

    return command.main(argv)
