"""Threads beside an event loop, for WSGI applications that are mounted together with ASGI applications. The loop polls
the engine, and hands the exchanges of WSGI applications over to these threads, so that it never waits for them. A
thread is started when a call needs it, as with the driver ``threads``. If a client reads slowly, its response is
suspended in the engine, and later continues in the same thread.
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

# The seconds to wait for threads at the end. Idle threads exit at once; interrupted calls have time to unwind.
_JOIN_SECONDS = 1.0


class Wait:
    """A lock on which a call waits in its thread for the engine. :meth:`set` ends the wait."""

    def __init__(self) -> None:
        self._lock = original("allocate_lock")()
        self._lock.acquire()

    def set(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # the lock is released already

    def wait(self) -> None:
        self._lock.acquire()


class WsgiThreads:
    """A pool of ``most`` threads that runs exchanges. At most ``queue`` more exchanges wait, each for at most
    ``queue_timeout`` seconds (0: without limit). All others are answered with 503."""

    def __init__(self, most: int, queue: int, queue_timeout: float) -> None:
        self._most = most
        self._queue = queue
        self._queue_timeout = queue_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lock = original("allocate_lock")()
        self._threads: list[threading.Thread] = []
        # By thread index: the exchanges that must run in this thread, and the lock that wakes it.
        self._own: list[deque[Exchange]] = []
        self._wakes: list[Any] = []
        self._idle: list[int] = []
        # The waiting exchanges, as (latest time to start, exchange), the oldest first.
        self._waiting: deque[tuple[float, Exchange]] = deque()
        self._has_ended = False
        self._interval = SwitchInterval()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remember the loop that hands exchanges over, and set the switch interval."""
        import threading  # noqa: F401 - up to 3.12 the first thread that imports it is taken for the main one

        self._loop = loop
        self._interval.set()

    def hand_over(self, exchange: Exchange) -> None:
        """Run ``exchange`` in a thread of the pool, or queue it. Called in the loop's thread."""
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
        # A daemon thread, so that a call that never returns cannot keep the process from exiting.
        thread = threading.Thread(target=self._work, args=(index,), name=f"kirsch-{index}", daemon=True)
        with self._lock:
            self._own.append(deque())
            self._wakes.append(original("allocate_lock")())
            self._wakes[index].acquire()
        try:
            thread.start()
        except RuntimeError:
            # The system refuses another thread.
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
                pass  # meant for a call that has just ended
            del exchange

    def _refuse_late(self) -> None:
        """Respond with 503 to the requests that have waited for too long. Called in the loop's thread."""
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
        """Refuse the waiting exchanges, and end the threads. Wait for the idle ones, and a moment for the others."""
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

    # Methods for any thread

    def is_inside(self, ident: int) -> bool:
        """Return whether ``ident`` is a thread of the pool."""
        return any(thread.ident == ident for thread in self._threads)

    def interrupt(self, native: NativeServer, calls: Iterable[Call]) -> None:
        """Raise RequestTimeout in ``calls``."""
        for call in calls:
            if native.interrupt(call.number) and isinstance(call.waiter, Wait):
                call.waiter.set()

    def location(self, call: Call) -> str:
        return "no thread" if call.thread is None else thread_name(call.thread)
