"""The driver ``threads``: the application runs in a thread pool, whose leader polls the engine (leader/followers). With
one thread, the thread that calls ``run()`` serves, and no other is started. With more, that thread only waits and runs
signal handlers; the native server starts the others one by one, when calls need them. Without a GIL, threads would
contend for a single engine, so there is one engine for each processor, with its share of the threads.
"""

from __future__ import annotations

import os
import sys
import time

from kirsch.drivers import patched_by, patching_warnings
from kirsch.process.real_threads import has_gil, original
from kirsch.process.stacks import capture, capture_detached, entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable
    from typing import Any

    from kirsch._native import Call, NativeServer
    from kirsch.config.native import NativeConfig
    from kirsch.process.stacks import Stack

# The seconds for which a thread keeps the GIL while others wait for it: CPython's default, and ours. After a wait, a
# thread may have to wait for the GIL as long again while another runs fast calls in a row, which its client notices.
_DEFAULT_SWITCH_INTERVAL = 0.005
_SWITCH_INTERVAL = 0.001

# The seconds to wait for threads at the end. Idle threads exit at once; the limit is for an overloaded machine.
_JOIN_SECONDS = 2.0


def engines(threads: int) -> int:
    """Return the number of engines in this process: one with a GIL, because threads then run one at a time. Each engine
    has at least four threads: a connection stays with its engine, so while all threads of this engine are in calls it
    waits, even if other engines are idle.
    """
    if has_gil():
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(processors, threads // 4), 1)


class SwitchInterval:
    """The interval at which threads release the GIL: a shorter one while a server of this process runs."""

    def __init__(self) -> None:
        self._previous: float | None = None

    def set(self) -> None:
        interval = sys.getswitchinterval()
        if interval == _DEFAULT_SWITCH_INTERVAL:  # otherwise the user has set an interval
            self._previous = interval
            sys.setswitchinterval(_SWITCH_INTERVAL)

    def reset(self) -> None:
        if self._previous is not None and sys.getswitchinterval() == _SWITCH_INTERVAL:
            sys.setswitchinterval(self._previous)
        self._previous = None


class ThreadsDriver:
    def __init__(self, threads: int) -> None:
        self._count = threads
        self._native: NativeServer | None = None
        # By index. A thread that was not started by threading has a lock in `_ended` instead, which is released at its
        # exit.
        self._threads: dict[int, threading.Thread] = {}
        self._ended: dict[int, Any] = {}
        self._serving: int | None = None
        self._idents: set[int] = set()
        self._get_ident = original("get_ident")

    def configure(self, config: NativeConfig) -> None:
        config.threads = self._count
        config.spawn = self._spawn if self._count > 1 else None
        config.engines = engines(self._count)

    def begin(self) -> None:
        self._serving = self._get_ident()

    def start_up(self) -> None:
        """Do nothing: this driver needs no preparation."""

    def begin_stop(self, timeout: float) -> None:
        """Do nothing: the native server ends the calls."""

    def shut_down(self) -> None:
        """Do nothing: :meth:`start_up` has started nothing."""

    def run(self, native: NativeServer) -> None:
        self._native = native
        if self._count > 1:
            # Import it here: until Python 3.12, threading regards the thread that imports it first as the main thread.
            import threading  # noqa: F401

            if "gevent" in patched_by():
                # The first hub imports modules that every hub needs. If several threads imported them at once, they
                # would wait for each other's import locks, which gevent has patched, and such a wait needs a hub.
                from gevent import get_hub

                get_hub()
        interval = SwitchInterval()
        if self._count > 1:
            interval.set()
        try:
            _run(native)
        finally:
            interval.reset()
            self._join(native)
            self._native = None  # breaks a reference cycle

    def leave_in_child(self) -> None:
        """Do nothing: the native server ends the child when the call returns. The other threads do not exist in the
        child."""

    def is_inside(self) -> bool:
        ident = self._get_ident()
        return ident == self._serving or ident in self._idents

    def wait(self, seconds: float) -> bool | None:  # noqa: ARG002
        return None

    def end(self) -> None:
        self._serving = None

    def stacks(self, calls: Iterable[Call]) -> dict[int, Stack]:
        frames = sys._current_frames()
        look = capture if has_gil() else capture_detached
        return {call.number: look(frames.get(call.thread or 0)) for call in calls}

    def interrupt(self, calls: Iterable[Call]) -> None:
        native = self._native
        if native is not None:  # None: the server has ended meanwhile
            for call in calls:
                native.interrupt(call.number)

    def location(self, call: Call) -> str:
        return "no thread" if call.thread is None else thread_name(call.thread)

    def warnings(self) -> list[str]:
        return patching_warnings("threads")

    def _spawn(self, index: int) -> None:
        """Start the thread ``index``. Raises RuntimeError if the system refuses another thread.

        Releases the GIL until the thread runs, so the caller must hold no lock.
        """
        import threading

        if patched_by():
            # A patched Thread would be a greenlet in this thread, which is blocked in run().
            self._ended[index] = original("allocate_lock")()
            self._ended[index].acquire()
            original("start_new_thread")(self._work_unnamed, (index,))
        else:
            # A daemon thread, so that a call that never returns cannot keep the process from exiting.
            thread = threading.Thread(target=self._work, args=(index,), name=f"kirsch-{index}", daemon=True)
            thread.start()
            self._threads[index] = thread

    def _work_unnamed(self, index: int) -> None:
        import threading

        try:
            threading.current_thread().name = f"kirsch-{index}"
            self._work(index)
        finally:
            self._ended[index].release()

    @entry
    def _work(self, index: int) -> None:
        ident = self._get_ident()
        self._idents.add(ident)
        try:
            if self._native is not None:  # None: the server has ended while this thread was starting
                self._native.work(index)
        finally:
            self._idents.discard(ident)

    def _join(self, native: NativeServer) -> None:
        """Wait for the idle threads. The others end with their call, or with the process."""
        busy = {call.worker for call in native.calls()}
        patience = time.monotonic() + _JOIN_SECONDS
        for index, thread in self._threads.copy().items():
            if index not in busy:
                thread.join(max(patience - time.monotonic(), 0.0))
        for index, ended in self._ended.copy().items():
            if index not in busy:
                ended.acquire(timeout=max(patience - time.monotonic(), 0.0))


@entry
def _run(native: NativeServer) -> None:
    native.run()


def thread_name(ident: int) -> str:
    """Return the name of a thread in ``threading``; if that was never imported, there is only the main thread."""
    threading = sys.modules.get("threading")
    if threading is None:
        return "MainThread"
    for thread in threading.enumerate():
        if thread.ident == ident:
            return str(thread.name)
    return f"thread {ident}"
