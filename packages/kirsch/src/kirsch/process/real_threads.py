"""Threads and locks of the operating system, also in a process in which gevent or eventlet has replaced them."""

from __future__ import annotations

import _thread
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def start_thread(name: str, target: Callable[..., object], arguments: tuple[object, ...] = ()) -> None:
    """Start a real thread, even if gevent has replaced threads by greenlets. ``name`` is what ``ps -T`` shows.

    Returns when it runs. CPython's exit frees the state of every thread, and one that has not begun by then would begin
    with freed memory (SIGSEGV). So a thread that may outlive the server is started before what lets the process end.
    """
    from kirsch._native import name_thread  # here, because profiles need the locks alone

    runs = original("allocate_lock")()
    runs.acquire()

    def run() -> None:
        runs.release()
        name_thread(name)
        target(*arguments)

    original("start_new_thread")(run, ())
    runs.acquire()


def has_gil() -> bool:
    """Return whether the interpreter has a GIL: all have but a free-threaded one in which it was not turned on."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return True if is_enabled is None else bool(is_enabled())


def original(name: str) -> Any:
    """Return ``_thread.<name>`` as it was before gevent or eventlet replaced it."""
    if (monkey := sys.modules.get("gevent.monkey")) is not None:
        return monkey.get_original("_thread", name)
    if (patcher := sys.modules.get("eventlet.patcher")) is not None:
        return getattr(patcher.original("_thread"), name)
    return getattr(_thread, name)


# A loop that does not answer another thread for this long is held up by a call that does not wait.
_LOOP_SECONDS = 0.5


def run_in_loop(schedule: Callable[[Callable[[], None]], object], function: Callable[[], None]) -> bool:
    """Have the thread of a loop call ``function``, which ``schedule`` arranges, and wait for it. From another thread.

    False if the loop has not done so in time; it still will when it runs again.
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
    """Return a function that starts a thread in which the server may use Python libraries; None if the driver has
    patched these, because they then work in its hub only."""
    return original("start_new_thread") if driver == "threads" else None
