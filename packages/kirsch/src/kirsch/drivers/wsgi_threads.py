"""Threads beside an event loop, for WSGI applications that are mounted in one process with ASGI applications.

The loop polls the engine. What it gets for a WSGI application it hands over, so that it never waits for one. A thread
is started when a call needs it, as with the driver ``threads``. A response whose client reads slowly is given back to
the engine meanwhile, and goes on in the thread where it began.
"""

from __future__ import annotations

from collections import deque
from time import monotonic

from kirsch.drivers import RequestTimeout
from kirsch.drivers.threads import SwitchInterval, thread_name
from kirsch.process.real_threads import original
from kirsch.process.stacks import entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import threading
    from collections.abc import Iterable
    from typing import Any

    from kirsch._native import Call, Exchange, NativeServer

# Threads that are in no call exit at once; those in calls that were cut have a moment to notice it.
_JOIN_SECONDS = 1.0


class Wait:
    """A lock on which a call waits in its thread for the engine. The wait may end early."""

    def __init__(self) -> None:
        self._lock = original("allocate_lock")()
        self._lock.acquire()

    def set(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it is over already

    def wait(self) -> None:
        self._lock.acquire()


class WsgiThreads:
    """Runs exchanges in ``most`` threads at a time. Further ones wait: at most ``queue`` of them, each for at most
    ``queue_timeout`` seconds (0: without limit). The others are answered with 503."""

    def __init__(self, most: int, queue: int, queue_timeout: float) -> None:
        self._most = most
        self._queue = queue
        self._queue_timeout = queue_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lock = original("allocate_lock")()
        self._threads: list[threading.Thread] = []
        # By index: exchanges that have to be run in this thread, and what wakes it.
        self._own: list[deque[Exchange]] = []
        self._wakes: list[Any] = []
        self._idle: list[int] = []
        # (Until when it may wait, exchange), the first one first.
        self._waiting: deque[tuple[float, Exchange]] = deque()
        self._has_ended = False
        self._interval = SwitchInterval()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that this loop hands over."""
        import threading  # noqa: F401 - up to 3.12 the first thread that imports it is taken for the main one

        self._loop = loop
        self._interval.set()

    def hand_over(self, exchange: Exchange) -> None:
        """Have a thread run it. In the loop's thread."""
        with self._lock:
            if exchange.worker is not None:
                self._own[exchange.worker].append(exchange)
                if exchange.worker in self._idle:
                    self._idle.remove(exchange.worker)
                    self._wakes[exchange.worker].release()
                return
            if self._idle:
                index = self._idle.pop()
                self._own[index].append(exchange)
                self._wakes[index].release()
                return
            may_start = len(self._threads) < self._most
            is_full = not may_start and len(self._waiting) >= self._queue
            if not is_full:
                due = monotonic() + self._queue_timeout if self._queue_timeout else float("inf")
                self._waiting.append((due, exchange))
        if is_full:
            exchange.refuse()
        elif not (may_start and self._start_thread()) and self._queue_timeout and self._timer is None:
            self._refuse_late()

    def _start_thread(self) -> bool:
        import threading

        index = len(self._threads)
        # A daemon thread, because a call that never returns must not keep the process from exiting.
        thread = threading.Thread(target=self._work, args=(index,), name=f"kirsch-{index}", daemon=True)
        with self._lock:
            self._own.append(deque())
            self._wakes.append(original("allocate_lock")())
            self._wakes[index].acquire()
        try:
            thread.start()
        except RuntimeError:
            # The system allows no more.
            self._most = max(index, 1)
            with self._lock:
                self._own.pop()
                self._wakes.pop()
            return False
        self._threads.append(thread)
        return True

    @entry
    def _work(self, index: int) -> None:
        from kirsch._native import name_thread

        name_thread(f"kirsch-{index}")
        wake, own = self._wakes[index], self._own[index]
        while True:
            with self._lock:
                if own:
                    exchange = own.popleft()
                elif self._waiting:
                    exchange = self._waiting.popleft()[1]
                elif self._has_ended:
                    return
                else:
                    exchange = None
                    self._idle.append(index)
            if exchange is None:
                wake.acquire()
                continue
            try:
                exchange.work(index)
            except (RequestTimeout, SystemExit):
                pass  # it was for a call that ended just before
            del exchange

    def _refuse_late(self) -> None:
        """Answer requests that have waited for too long with 503. In the loop's thread."""
        late = []
        self._timer = None
        now = monotonic()
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                late.append(self._waiting.popleft()[1])
            due = self._waiting[0][0] if self._waiting else None
        for exchange in late:
            exchange.refuse()
        if due is not None and self._loop is not None and not self._loop.is_closed():
            self._timer = self._loop.call_later(max(due - now, 0.0), self._refuse_late)

    def end(self) -> None:
        """No call comes any more. Wait for the threads that are in no call, and a moment for those that are."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._has_ended = True
            left = [exchange for _, exchange in self._waiting]
            self._waiting.clear()
            for index in self._idle:
                self._wakes[index].release()
            self._idle.clear()
        for exchange in left:
            exchange.refuse()
        patience = monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(patience - monotonic(), 0.0))
        self._interval.reset()

    # From any thread

    def is_inside(self, ident: int) -> bool:
        """Return whether this is one of the threads."""
        return any(thread.ident == ident for thread in self._threads)

    def interrupt(self, native: NativeServer, calls: Iterable[Call]) -> None:
        """Raise RequestTimeout in these calls."""
        for call in calls:
            if native.interrupt(call.number) and isinstance(call.waiter, Wait):
                call.waiter.set()

    def location(self, call: Call) -> str:
        return "no thread" if call.thread is None else thread_name(call.thread)
