"""Cleanup in children that the application forks, by os.fork, multiprocessing or pty. A child has a copy of the server,
which only the parent may use. So after each fork, before the child continues:

* the signal handlers of the server are removed, and the wake-up descriptor (signal.set_wakeup_fd), which wakes the
  *parent*. No signal is lost: signals are blocked during the fork.
* the sockets of the engines and the channel to the supervisor are closed.
* the server of the child is unusable: its methods raise RuntimeError.

If the application's code returns in the child, the child exits (:func:`leave`); otherwise it would serve as a worker
that nothing stops. A new program (subprocess, os.posix_spawn) is not affected.
"""

from __future__ import annotations

import os
import signal
import sys

# Bound here, because an application may have replaced them in os.
from os import _exit, getpid

from kirsch import _native, reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Result = TypeVar("Result")

AWAITS = "a forked process cannot await in the event loop of its parent: use asyncio.run() there, and os._exit()"
"""The message of the exception with which a child ends that awaits where its parent's event loop would run."""

_RETURNED = (
    "kirsch: process {}, which the application has forked, has returned from the application, and ends, because only a "
    "worker serves; end such a process with os._exit()"
)
_FAILED = "kirsch: process {}, which the application has forked, ends with this exception"

_in_child: list[Callable[[], None]] = []

# The greenlet that called fork. Other greenlets were copied, and must not end the child.
_forker: Any = None


def add(function: Callable[[], None]) -> None:
    """Register a ``function`` that is called in each child that this process forks."""
    _in_child.append(function)


def discard(function: Callable[[], None]) -> None:
    """Unregister a function of :func:`add`. May be called again."""
    if function in _in_child:
        _in_child.remove(function)


def call(function: Callable[..., Result], *arguments: object) -> Result:
    """Call ``function``, which runs code of the application. A forked child that returns from it exits here."""
    process = getpid()
    try:
        result = function(*arguments)
    except BaseException as error:
        if getpid() != process:
            end(error)
        raise
    if getpid() != process:
        end(None)
    return result


def leave(error: BaseException | None = None) -> None:
    """Exit this child, in which the application has returned or raised ``error``. In the copy of a greenlet that has
    not forked, wait forever instead: its work is done in the parent.
    """
    if _forker is not None:
        from gevent import get_hub, getcurrent

        while getcurrent() is not _forker:
            get_hub().switch()
    end(error)


def leave_awaiting() -> None:
    """Exit this child, which has awaited in the event loop of its parent."""
    leave(RuntimeError(AWAITS))


def end(error: BaseException | None) -> None:
    """Exit this process: with status 0, or the status of a SystemExit, or with 1 and a traceback. The atexit functions
    are not run, because they are the parent's. A child that has registered its own has to run them itself.
    """
    status = 1
    if error is None:
        status = 0
        reports.write_stderr(_RETURNED.format(getpid()), reports.WARNING)
    elif _is_greenlet_exit(error):
        status = 0
    elif isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = 0 if error.code is None else error.code & 0xFF
    else:
        text = str(error.code) if isinstance(error, SystemExit) else reports.traceback_text(error)
        reports.write_stderr(f"{text}\n{_FAILED.format(getpid())}", reports.ERROR)
    reports.flush_streams()
    reports.flush(reports.PATIENCE)
    _exit(status)


def _is_greenlet_exit(error: BaseException) -> bool:
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and isinstance(error, greenlet.GreenletExit)


def restore_signals(handlers: dict[int, Any], previous: dict[int, Any]) -> None:
    """Restore the ``previous`` signal handlers, except where the application has replaced the server's. Called in a
    child."""
    for number, handler in handlers.items():
        if signal.getsignal(number) is handler:
            before = previous.get(number)
            # The previous handler is None if it was not installed from Python; it cannot be restored.
            signal.signal(number, signal.SIG_DFL if before is None else before)


def _after_fork_in_child() -> None:
    global _forker
    try:
        hub = sys.modules.get("gevent.hub")
        _forker = None if hub is None or hub._get_hub() is None else hub.getcurrent()
        if not _in_child:
            return
        signal.set_wakeup_fd(-1)
        _native.leave_engines()
        functions = _in_child[::-1]
        _in_child.clear()
        for function in functions:
            function()
    finally:
        _native.restore_signals()


os.register_at_fork(
    before=_native.block_signals,
    after_in_parent=_native.restore_signals,
    after_in_child=_after_fork_in_child,
)
