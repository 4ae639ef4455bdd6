"""How a child leaves the stack of its parent.

A child that went on in the middle of its parent's calls would keep all of their objects alive, would run their cleanup,
and would show them in every traceback. So it raises :class:`Forked`, which nothing catches but :func:`run`, at the
bottom of the stack, and which must meet no ``finally`` clause on its way. What the child is there for then begins on a
clean stack, and ends as a program does: with atexit functions, and by returning its exit status.
"""

from __future__ import annotations

import os
import signal
import sys

from kirsch import reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Main = Callable[[], int]


class Forked(BaseException):
    """Raised in a child; ``main`` is what it does from now on, and returns its exit status."""

    def __init__(self, main: Main) -> None:
        super().__init__()
        self.main = main


def run(main: Main) -> int:
    """Do ``main``, and in each child that is forked on the way, the child's."""
    while True:
        try:
            return main()
        except Forked as forked:
            main = forked.main
        # Only here, behind the except clause, has the stack of the parent been let go of.


def fork(main: Main, leave: Callable[[], None]) -> int:
    """Fork; returns the child's pid. In the child it calls ``leave``, to close what is the parent's and to set signals,
    and raises :class:`Forked`. Raises OSError.

    No signal is handled meanwhile: in the child it would be taken for one to the parent.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()  # else what is buffered would be written by both
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
