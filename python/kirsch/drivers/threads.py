"""The driver ``threads``: the application runs in a few threads, of which whichever holds the baton turns the engine.

With one thread that is the thread which serves, and no other is made. With more, that thread only waits and runs
signal handlers; the native side asks for the others one by one, as calls need them.

Where the interpreter has no lock, one engine would be what all threads meet at, so each processor has its own, with its
share of the threads.
"""

from __future__ import annotations

import os
import sys
import time

from kirsch.drivers import has_gil, original, patched_by, patching_warnings
from kirsch.stacks import capture, capture_detached, entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable
    from typing import Any

    from kirsch._native import Call
    from kirsch._native import Server as NativeServer
    from kirsch.stacks import Stack

# How long a thread keeps the interpreter while others want it, in seconds: CPython's default, and ours. One that comes
# back from waiting waits that long again where another has fast calls to run one after the other, and a peer sees it.
_DEFAULT_SWITCH_INTERVAL = 0.005
_SWITCH_INTERVAL = 0.001

# Threads that are in no call leave at once; this is for a machine that has better things to do.
_JOIN_SECONDS = 2.0


def engines(threads: int) -> int:
    """How many engines serve in this process: with a lock around the interpreter one, whose threads take turns anyway.

    Each has four threads at least: a connection stays with its engine, and waits when all of its threads are in calls,
    though other engines have nothing to do.
    """
    if has_gil():
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(processors, threads // 4), 1)


class ThreadsDriver:
    def __init__(self, threads: int) -> None:
        self._count = threads
        self._native: NativeServer | None = None
        # By index. For threads that threading has not started, a lock that is released at their end.
        self._threads: dict[int, threading.Thread] = {}
        self._ended: dict[int, Any] = {}
        self._serving: int | None = None
        self._idents: set[int] = set()
        self._get_ident = original("get_ident")

    def options(self) -> dict[str, Any]:
        spawn = self._spawn if self._count > 1 else None
        return {"threads": self._count, "spawn": spawn, "engines": engines(self._count)}

    def begin(self) -> None:
        self._serving = self._get_ident()

    def run(self, native: NativeServer) -> None:
        self._native = native
        if self._count > 1:
            # Here and not in a thread: up to 3.12 the thread that imports it first is taken for the main one.
            import threading  # noqa: F401

            if "gevent" in patched_by():
                # The first hub imports what all of them need. Several threads that do so at the same time wait for each
                # other's import locks, which gevent has patched: to wait takes a hub.
                from gevent import get_hub

                get_hub()
        interval = sys.getswitchinterval()
        if self._count > 1 and interval == _DEFAULT_SWITCH_INTERVAL:  # else somebody knows better
            sys.setswitchinterval(_SWITCH_INTERVAL)
        try:
            _run(native)
        finally:
            if sys.getswitchinterval() == _SWITCH_INTERVAL:
                sys.setswitchinterval(interval)
            self._join(native)
            self._native = None  # which has a reference to us

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
        if native is not None:  # else the server has ended meanwhile
            for call in calls:
                native.interrupt(call.number)

    def location(self, call: Call) -> str:
        return "no thread" if call.thread is None else thread_name(call.thread)

    def warnings(self) -> list[str]:
        return patching_warnings("threads")

    def _spawn(self, index: int) -> None:
        """Start the thread ``index``. Raises RuntimeError where the system lets us have no more.

        Lets go of the interpreter until the thread runs: to be called without any lock.
        """
        import threading

        if patched_by():
            # A patched Thread would be a greenlet of this thread, which waits for the others to serve.
            self._ended[index] = original("allocate_lock")()
            self._ended[index].acquire()
            original("start_new_thread")(self._work_unnamed, (index,))
        else:
            # A daemon, because a call that never returns must not keep the process from ending.
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
            if self._native is not None:  # else the server has ended while this thread was being started
                self._native.work(index)
        finally:
            self._idents.discard(ident)

    def _join(self, native: NativeServer) -> None:
        """Wait for the threads that are in no call: those end. Another ends with its call, or with the process."""
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
    """As ``threading`` has it; where nobody has imported that, there is one thread to speak of."""
    threading = sys.modules.get("threading")
    if threading is None:
        return "MainThread"
    for thread in threading.enumerate():
        if thread.ident == ident:
            return str(thread.name)
    return f"thread {ident}"
