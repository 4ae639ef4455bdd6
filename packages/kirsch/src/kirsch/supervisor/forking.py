"""Lets a child leave the stack of its parent.

A child that continued in the middle of its parent's calls would keep their objects alive, run their cleanup, and show
them in every traceback. So it raises :class:`Forked`, which only :func:`run` catches, at the bottom of the stack, and
which must pass no ``finally`` clause on its way. The main function of the child then begins on an empty stack, and ends
as a program does: with its atexit functions, and by returning its exit status.
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
        """The interface of the supervisor for those that start other processes than workers."""

        def fork(self, main: Main, *channels: Channel) -> int: ...


class Forked(BaseException):
    """Raised in a child; ``main`` is the child's main function, which returns its exit status."""

    def __init__(self, main: Main) -> None:
        super().__init__()
        self.main = main


def run(main: Main) -> int:
    """Call ``main``, and in each child that it forks, the child's main function."""
    while True:
        try:
            return main()
        except Forked as forked:
            main = forked.main
        # The stack of the parent is freed here, behind the except clause, and no sooner.


def fork(main: Main, leave: Callable[[], None]) -> int:
    """Fork; return the child's pid. In the child, call ``leave``, which closes what belongs to the parent and sets
    signals, and raise :class:`Forked`. Raises OSError.

    Signals are blocked meanwhile: the child must not handle a signal that was sent to the parent.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()  # otherwise both processes would write what is buffered
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
