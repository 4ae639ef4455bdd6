"""The driver ``threads``: the application runs in a thread pool, whose leader polls the engine (leader/followers).

With one thread, that is the thread that calls ``run()``, and no other is started. With more, that thread only waits and
runs signal handlers; the native side has the others started one by one, as calls need them.

Without a GIL, threads would contend for a single engine, so there is one engine for each processor, with its share of
the threads.
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

# How long a thread keeps the GIL while others wait for it, in seconds: CPython's default, and ours. A thread that has
# waited may wait that long again, while another runs fast calls one after the other, and its client notices.
_DEFAULT_SWITCH_INTERVAL = 0.005
_SWITCH_INTERVAL = 0.001

# Threads that are in no call exit at once; the limit is for an overloaded machine.
_JOIN_SECONDS = 2.0


def engines(threads: int) -> int:
    """Return the number of engines in this process: one with a GIL, because its threads run one at a time anyway.

    Each engine has at least four threads: a connection stays with its engine, and waits while all threads of that are
    in calls, even if other engines are idle.
    """
    if has_gil():
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(processors, threads // 4), 1)


class SwitchInterval:
    """The interval at which threads give up the GIL, while threads of ours serve."""

    def __init__(self) -> None:
        self._previous: float | None = None

    def set(self) -> None:
        interval = sys.getswitchinterval()
        if interval == _DEFAULT_SWITCH_INTERVAL:  # otherwise the user has set it
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
        # By index. A thread that threading has not started has a lock instead, which is released when it exits.
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
        """Do nothing: nothing runs before the server serves."""

    def begin_stop(self, timeout: float) -> None:
        """Do nothing: the native server ends the calls."""

    def shut_down(self) -> None:
        """Do nothing: nothing was started."""

    def run(self, native: NativeServer) -> None:
        self._native = native
        if self._count > 1:
            # Not imported in a thread: up to 3.12 the first thread that imports it is taken for the main one.
            import threading  # noqa: F401

            if "gevent" in patched_by():
                # The first hub imports what all of them need. Several threads importing at once would wait for each
                # other's import locks, which gevent has patched; and waiting for those needs a hub.
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
        """Do nothing: the native server ends the child when the call returns. Other threads are not in the child."""

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
        if native is not None:  # otherwise the server has ended meanwhile
            for call in calls:
                native.interrupt(call.number)

    def location(self, call: Call) -> str:
        return "no thread" if call.thread is None else thread_name(call.thread)

    def warnings(self) -> list[str]:
        return patching_warnings("threads")

    def _spawn(self, index: int) -> None:
        """Start the thread ``index``. Raises RuntimeError if the system allows no more.

        Releases the GIL until the thread runs, so the caller must hold no lock.
        """
        import threading

        if patched_by():
            # A patched Thread would be a greenlet of this thread, which is blocked in run().
            self._ended[index] = original("allocate_lock")()
            self._ended[index].acquire()
            original("start_new_thread")(self._work_unnamed, (index,))
        else:
            # A daemon thread, because a call that never returns must not keep the process from exiting.
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
            if self._native is not None:  # otherwise the server has ended while this thread was being started
                self._native.work(index)
        finally:
            self._idents.discard(ident)

    def _join(self, native: NativeServer) -> None:
        """Wait for the threads that are in no call. The others end with their call, or with the process."""
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
