"""Threads and locks of the operating system, even if gevent or eventlet has replaced those of Python."""

from __future__ import annotations

import _thread
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def start_thread(name: str, target: Callable[..., object], arguments: tuple[object, ...] = ()) -> None:
    """Start a real thread, even if gevent has replaced threads by greenlets. ``name`` is what ``ps -T`` shows.

    Returns when the thread runs. When CPython exits it frees the state of every thread, and a thread that has not begun
    by then would use freed memory (SIGSEGV). So a thread that may outlive the server is started before anything that
    can end the process.
    """
    from kirsch._native import name_thread  # imported here, because profiles need only the locks

    runs = original("allocate_lock")()
    runs.acquire()

    def run() -> None:
        runs.release()
        name_thread(name)
        target(*arguments)

    original("start_new_thread")(run, ())
    runs.acquire()


def has_gil() -> bool:
    """Return whether the interpreter uses a GIL: false only in a free-threaded build that has not enabled it."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return True if is_enabled is None else bool(is_enabled())


def original(name: str) -> Any:
    """Return the original ``_thread.<name>``, from before gevent or eventlet replaced it."""
    if (monkey := sys.modules.get("gevent.monkey")) is not None:
        return monkey.get_original("_thread", name)
    if (patcher := sys.modules.get("eventlet.patcher")) is not None:
        return getattr(patcher.original("_thread"), name)
    return getattr(_thread, name)


# The seconds after which a loop that does not respond is considered blocked by a call.
_LOOP_SECONDS = 0.5


def run_in_loop(schedule: Callable[[Callable[[], None]], object], function: Callable[[], None]) -> bool:
    """Call ``function`` in the thread of a loop, by ``schedule``, and wait until it has returned. Called in another
    thread. Returns False if the loop does not call it in time; it will still call it when it runs again.
    """
    done = original("allocate_lock")()
    done.acquire()

    def call() -> None:
        try:
            function()
        finally:
            done.release()

    schedule(call)
    return bool(done.acquire(timeout=_LOOP_SECONDS))


def thread_starter(driver: str) -> Any:
    """Return a function that starts a thread in which Python libraries work; None if the driver has patched these
    libraries, so that they work only in its hub."""
    return original("start_new_thread") if driver == "threads" else None
