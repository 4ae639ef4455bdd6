"""The exit of a process within a time limit, even if threads, exit functions or blocked output of the application
delay it."""

from __future__ import annotations

import os
import sys

from kirsch import reports
from kirsch.process.real_threads import original, start_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.server import Server


# The least number of seconds for an exit: for threads of the application, and again for its exit functions.
_LEAST_SECONDS = 0.5

# The process exits by itself this many seconds before the supervisor would kill it.
_BEFORE_KILL_SECONDS = 1.0


def limit_exit(server: Server, status: int, shutdown_timeout: float) -> None:
    """Make sure that this process exits in time, with ``status`` if it has to be forced; return at once. Called after
    the server has ended. The interpreter would wait without limit for non-daemon threads, for threads of executors, and
    for exit functions. Threads may run until the end of the graceful timeout, and exit functions until shortly before
    the end of ``shutdown_timeout`` (seconds). The log names those that still run.
    """
    import atexit
    import time

    # If the application has stopped or broken the server, no stop has set a time.
    stop_due = min(server.stop_due, time.monotonic() + server.graceful_timeout)
    # Locks are used to sleep, because gevent may have patched time.sleep().
    never, reported, has_run = (original("allocate_lock")() for _ in range(3))
    for lock in (never, reported, has_run):
        lock.acquire()
    is_flushing = True

    def watch() -> None:
        never.acquire(timeout=max(stop_due - time.monotonic(), _LEAST_SECONDS))
        exit_seconds = max(stop_due + shutdown_timeout - _BEFORE_KILL_SECONDS - time.monotonic(), _LEAST_SECONDS)
        left = _threads_left()
        if left or is_flushing:
            explain(f"threads of the application do not end: {left}" if left else _NO_FLUSH)
            start_thread("kirsch-exit", run_exit_functions)
            has_run.acquire(timeout=exit_seconds)
        else:
            never.acquire(timeout=exit_seconds)
            explain(f"exit functions of the application (atexit) do not end{_place(_main_ident())}")
        reports.flush()
        os._exit(status)

    def explain(text: str) -> None:
        text = f"{text}; the process ends without waiting longer"
        start_thread("kirsch-exit", report, (text,))
        if not reported.acquire(timeout=3 * reports.PATIENCE):
            reports.write_stderr(text, reports.WARNING)  # logging is blocked by a lock

    def report(text: str) -> None:
        server.report(reports.WARNING, text)
        reported.release()

    def run_exit_functions() -> None:
        atexit._run_exitfuncs()
        has_run.release()

    start_thread("kirsch-exit", watch)
    # Flush here: when the interpreter flushes, no other thread runs, and it may wait for a lock for ever.
    reports.flush_streams()
    is_flushing = False


_NO_FLUSH = "sys.stdout or sys.stderr of the application cannot be flushed"


def _threads_left() -> str:
    """Return the threads for which the interpreter waits at its exit, with the line that each executes; empty if
    none."""
    threading, futures = sys.modules.get("threading"), sys.modules.get("concurrent.futures.thread")
    if threading is None:
        return ""
    of_executors = () if futures is None else tuple(futures._threads_queues)
    left = []
    for thread in list(threading._active.values()):  # enumerate() would take a lock
        is_awaited = thread in of_executors or not thread.daemon
        if is_awaited and thread is not threading.main_thread() and thread.is_alive():
            left.append(f"{thread.name!r}{_place(thread.ident)}")
    return ", ".join(left)


def _place(ident: int | None) -> str:
    """Return in parentheses the last line of a thread outside of the standard library; empty if unknown."""
    last = frame = sys._current_frames().get(ident or 0)
    library = os.path.dirname(os.__file__)
    while frame is not None and os.path.dirname(frame.f_code.co_filename).startswith(library):
        frame = frame.f_back
    if (frame := frame or last) is None:
        return ""
    return f" ({reports.short_path(frame.f_code.co_filename)}, line {frame.f_lineno})"


def _main_ident() -> int | None:
    threading = sys.modules.get("threading")
    return None if threading is None else threading.main_thread().ident


# The seconds that exit functions of an application may take, and that standard output may block, before the process
# exits without them.
_EXIT_SECONDS = 2.5
_OUTPUT_SECONDS = 0.5


def end_if_output_is_stuck(status: int) -> None:
    """End this process with ``status`` here if standard output or standard error is blocked.

    The interpreter flushes both at its exit, and would wait forever if an application has printed to a full pipe. The
    application's exit functions are run first.
    """
    if all(map(_is_writable, (1, 2))):
        return
    import atexit
    import time

    def end() -> None:
        time.sleep(_EXIT_SECONDS)
        os._exit(status)

    start_thread("kirsch-exit", end)
    atexit._run_exitfuncs()  # the interpreter calls this too
    os._exit(status)


def _is_writable(fd: int) -> bool:
    import select

    try:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return bool(poll.poll(_OUTPUT_SECONDS * 1000))  # a closed descriptor or pipe gives an event too
    except (AttributeError, OSError):
        return True
