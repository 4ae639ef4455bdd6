"""Forking of children that leave the stack of their parent. A child that continued inside its parent's calls would keep
their objects alive, run their cleanup, and show them in every traceback. So it raises :class:`Forked`, which only
:func:`run` catches, at the bottom of the stack; there must be no ``finally`` clause in between. The child's main
function then begins on an empty stack, and ends like a program: it returns the exit status, and atexit functions run.
"""

from __future__ import annotations

import os
import signal
import sys

from kirsch import reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kirsch.supervisor.control import Channel

    Main = Callable[[], int]

    class Forker(Protocol):
        """The interface of the supervisor for the managers that start helper processes."""

        def fork(self, main: Main, *channels: Channel) -> int: ...


class Forked(BaseException):
    """Raised in a forked child. ``main`` is the child's main function, which returns its exit status."""

    def __init__(self, main: Main) -> None:
        super().__init__()
        self.main = main


def run(main: Main) -> int:
    """Call ``main``; in each child that it forks, call the child's main function instead."""
    while True:
        try:
            return main()
        except Forked as forked:
            main = forked.main
        # The parent's stack is freed here, after the except clause.


def fork(main: Main, leave: Callable[[], None]) -> int:
    """Fork; return the child's pid. In the child, call ``leave``, which closes the parent's resources and sets signal
    handlers, and raise :class:`Forked`. Raises OSError. Signals are blocked meanwhile: the child must not handle a
    signal that was sent to the parent.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()  # otherwise both processes would write the buffered text
            except (OSError, ValueError):
                pass
    reports.prepare_fork()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            leave()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if pid == 0:
        raise Forked(main)
    return pid
