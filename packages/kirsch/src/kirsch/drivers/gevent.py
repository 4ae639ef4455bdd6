"""The driver ``gevent``: the hub polls the engine, and each request runs in a greenlet.

The hub watches the engine's poller and keeps one timer for the engine's deadlines. A poll returns the requests that can
start, and the driver switches to the greenlet of each at once, without the loop's queue. When that greenlet waits, the
hub continues with the next.

A greenlet costs more than everything else that a fast request needs: on CPython 3.13 6.5 us, and 9.7 as a
``gevent.Greenlet``, while switching to an existing one costs 0.5. So a greenlet is reused for the next request if its
request did not wait, and nothing can refer to the greenlet (no reference, link, local value or context variable).

gevent needs the GIL, so a free-threaded interpreter that imports it turns the GIL on.
"""

from __future__ import annotations

import logging  # noqa: F401 - for the reports of other threads: see begin()
import sys
from time import monotonic
from weakref import getweakrefcount

from kirsch.drivers import RequestTimeout, patched_by, patching_warnings
from kirsch.process import forks
from kirsch.process.real_threads import has_gil, original, run_in_loop
from kirsch.process.stacks import capture, capture_detached, entry, lines

_HAD_GIL = has_gil()
if not _HAD_GIL:
    import warnings

    # The interpreter warns that it enables the GIL; warnings() of the driver explains it once, so ignore this warning.
    warnings.filterwarnings("ignore", r"The global interpreter lock \(GIL\).*gevent", RuntimeWarning)

try:
    from gevent import Greenlet, get_hub, getcurrent
    from gevent.event import Event
    from gevent.hub import Waiter
except ModuleNotFoundError as error:
    if error.name != "gevent":
        raise
    raise ImportError("the driver gevent needs the package gevent: pip install 'kirsch[gevent]'") from None

if not has_gil() and getattr(sys.flags, "gil", None) == 0:
    raise ImportError(
        "the driver gevent needs the GIL, which PYTHON_GIL=0 (or -X gil=0) has ruled out; leave that out, "
        "or use --driver threads"
    )

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch._native import Call, Exchange, NativeServer
    from kirsch.config.native import NativeConfig
    from kirsch.process.stacks import Stack

    _Greenlet = Greenlet[[], None]
else:
    _Greenlet = Greenlet

# None on PyPy, which has no reference counts.
_count_references = getattr(sys, "getrefcount", None)

# Seconds by which a timer may fire too early. That costs one poll; setting another timer each time would cost more.
_TIMER_SLACK = 0.001


def patch() -> None:
    """Patch the standard library. Called before the application is imported."""
    from gevent import monkey

    monkey.patch_all()


class GeventDriver:
    def __init__(self) -> None:
        self._native: NativeServer | None = None
        self._hub: Any = None
        self._thread = 0
        self._get_ident = original("get_ident")
        self._serving: Any = None  # the greenlet that called run()
        self._done: Any = None  # the waiter of that greenlet
        self._ended: Any = None  # the event on which other callers wait
        self._has_stopped = False
        self._is_in_child = False
        self._failure: BaseException | None = None
        self._watcher: Any = None
        self._timer: Any = None
        self._timer_due = float("inf")
        self._poll_scheduled = False
        # `_requests`: the greenlets that run requests. `_waits`: for each greenlet that waits for the engine, its
        # waiters.
        self._requests: set[Any] = set()
        self._waits: dict[Any, list[Any]] = {}
        self._next: Exchange | None = None
        self._starting: _Request | None = None
        self._spare: _Request | None = None

    def configure(self, config: NativeConfig) -> None:
        config.waiter = getcurrent
        config.wait = self._wait

    def begin(self) -> None:
        self._thread = self._get_ident()
        self._serving = getcurrent()
        self._hub = get_hub()
        self._done = Waiter(self._hub)
        self._ended = Event()
        # Import now the modules that another thread needs to capture stacks. An import there could have to wait, which
        # under gevent needs a hub in that thread, whose creation imports modules too.
        lines([(sys._getframe(), 1)])

    def start_up(self) -> None:
        """Do nothing: this driver needs no preparation."""

    def begin_stop(self, timeout: float) -> None:
        """Do nothing: the native server ends the calls."""

    def shut_down(self) -> None:
        """Do nothing: :meth:`start_up` has started nothing."""

    def run(self, native: NativeServer) -> None:
        self._native = native
        self._watcher = watcher = self._hub.loop.io(native.fileno(), 1)
        watcher.start(self._poll)
        try:
            self._schedule_poll()
            self._done.get()
        finally:
            self._has_stopped = True
            watcher.stop()
            watcher.close()
            self._set_timer(None)
            native.finish()
            self._native = None  # breaks a reference cycle
        if self._failure is not None:
            raise self._failure

    def leave_in_child(self) -> None:
        """Stop polling the engine. The copied greenlets of other requests end with the child."""
        if self._get_ident() != self._thread:
            return  # another thread has forked: the hub does not run in the child
        self._is_in_child = self._has_stopped = True
        if self._watcher is not None:
            self._watcher.stop()
        self._set_timer(None)
        forker = getcurrent()
        # For a request the native server ends the child when the call returns; for another greenlet this does.
        if isinstance(forker, Greenlet) and forker not in self._requests:
            forker.rawlink(lambda greenlet: forks.end(greenlet.exception))

    def is_inside(self) -> bool:
        if self._serving is None or self._get_ident() != self._thread:
            return False
        current = getcurrent()
        return current is self._serving or current is self._hub or current in self._requests

    def wait(self, seconds: float) -> bool | None:
        if self._ended is None or self._get_ident() != self._thread or getcurrent() is self._hub:
            return None
        return bool(self._ended.wait(seconds))

    def end(self) -> None:
        self._serving = None
        if self._ended is not None:
            self._ended.set()

    def stacks(self, calls: Iterable[Call]) -> dict[int, Stack]:
        calls = list(calls)
        taken: dict[int, Stack] = {}
        here = self._get_ident() == self._thread
        if here or not run_in_loop(self._hub.loop.run_callback_threadsafe, lambda: self._take(calls, taken)):
            # The hub does not respond, so it executes one greenlet and switches to no other: it is safe to read them
            # here.
            self._take(calls, taken)
        return taken

    def interrupt(self, calls: Iterable[Call]) -> None:
        native = self._native
        if native is None:
            return  # the server has ended meanwhile
        left = {call.number: call.waiter for call in calls}

        def throw() -> None:
            while left:
                _, greenlet = left.popitem()
                if greenlet in self._requests:
                    greenlet.throw(RequestTimeout)

        if run_in_loop(self._hub.loop.run_callback_threadsafe, throw):
            return
        # A greenlet blocks the hub. If it is one of these, only an asynchronous exception ends it. The hub throws the
        # exception into the other greenlets when it runs again.
        for number, greenlet in list(left.items()):
            # The greenlet may end after this check, so that another greenlet or the hub gets the exception. That is
            # unlikely, and _poll handles it.
            if self._is_running(greenlet) and native.interrupt(number):
                left.pop(number, None)

    def location(self, call: Call) -> str:
        return "no greenlet" if call.thread is None else "a greenlet"

    def warnings(self) -> list[str]:
        found = patching_warnings("gevent")
        if "gevent" not in patched_by():
            found.append(
                "gevent has not patched this process, so a call that blocks in the standard library holds up all "
                "requests; begin the program with: from gevent import monkey; monkey.patch_all()"
            )
        if not _HAD_GIL and has_gil():
            found.append(
                "gevent has turned on the GIL of this free-threaded interpreter, because it needs it: each process "
                "uses one processor, as elsewhere; to use more of them, raise --workers, or use --driver threads"
            )
        return found

    # Methods that run in the hub

    def _poll(self) -> None:
        """Poll the engine. Called by the loop when the engine has something to do; in the hub, so it must not wait."""
        self._poll_scheduled = False
        native = self._native
        if self._has_stopped or native is None:
            return
        try:
            exchanges, waiters = native.poll()
            for exchange in exchanges:
                self._start(exchange)
                if self._is_in_child:
                    return  # this request has forked; the parent runs the others
            for waiter in waiters:
                for wait in self._waits.pop(waiter, ()):
                    wait.switch(None)
                    if self._is_in_child:
                        return
            if native.is_stopped():
                self._end_requests()
            else:
                self._rearm()
        except RequestTimeout:
            self._schedule_poll()  # meant for a call that has just ended: see interrupt()
        except BaseException as error:  # noqa: BLE001 - run() raises it, as that of a driver without a hub does
            self._failure = error
            self._end_requests()

    def _start(self, exchange: Exchange) -> None:
        greenlet, self._spare = self._spare, None
        if greenlet is None or greenlet.dead:
            greenlet = _Request(self)
        self._next = exchange
        self._starting = greenlet
        self._requests.add(greenlet)
        greenlet.switch()
        # The request has ended, or its greenlet waits.
        self._starting = None

    def _end_requests(self) -> None:
        """End the greenlets of the remaining requests. The engine has stopped, so their clients are disconnected."""
        self._has_stopped = True
        for greenlet in [*self._requests, self._spare]:
            if greenlet is not None:
                greenlet.throw()
        self._done.switch(None)

    def _rearm(self) -> None:
        """Schedule the next poll for the engine's next deadline, or at once if the engine has stopped."""
        native = self._native
        if self._has_stopped or native is None:
            return
        if native.is_stopped():
            self._schedule_poll()
        elif (seconds := native.timeout()) is not None:
            if seconds <= 0:
                self._schedule_poll()
            elif monotonic() + seconds < self._timer_due - _TIMER_SLACK:
                self._set_timer(seconds)

    def _schedule_poll(self) -> None:
        if not self._poll_scheduled:
            self._poll_scheduled = True
            self._hub.loop.run_callback(self._poll)

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer, self._timer_due = None, float("inf")
        if seconds is not None:
            self._timer = self._hub.loop.timer(seconds)
            self._timer_due = monotonic() + seconds
            self._timer.start(self._on_timer, update=True)

    def _on_timer(self) -> None:
        self._set_timer(None)
        self._poll()

    # Methods that run in the greenlets of requests

    def _wait(self, greenlet: Any) -> None:
        """Run other greenlets until a poll returns ``greenlet``, the greenlet of this request."""
        wait: Any = Waiter(self._hub)
        waits = self._waits.setdefault(greenlet, [])
        waits.append(wait)
        # The engine may have an earlier deadline now, and no poll may have set a timer for it.
        self._rearm()
        try:
            wait.get()
        except BaseException:
            waits.remove(wait)
            if not waits:
                self._waits.pop(greenlet, None)
            raise

    # Methods that run in other threads

    def _take(self, calls: list[Call], taken: dict[int, Stack]) -> None:
        running = sys._current_frames().get(self._thread)
        look = capture if has_gil() else capture_detached
        for call in calls:
            greenlet: Any = call.waiter
            if greenlet in self._requests:
                taken[call.number] = look(running if self._is_running(greenlet) else greenlet.gr_frame)

    def _is_running(self, greenlet: Any) -> bool:
        """Return whether the hub's thread executes ``greenlet`` now. May be called in any thread."""
        return greenlet in self._requests and greenlet.gr_frame is None


class _Request(_Greenlet):
    """The greenlet of a request. It is reused for the next request if nothing can refer to it."""

    __slots__ = ("_driver",)

    def __init__(self, driver: GeventDriver) -> None:
        super().__init__()
        self._driver = driver

    @entry
    def _run(self) -> None:
        driver = self._driver
        hub = driver._hub
        while True:
            exchange, driver._next = driver._next, None
            assert exchange is not None
            references = 0 if _count_references is None else _count_references(self) - 1  # without that in _requests
            try:
                exchange.run()
            finally:
                del exchange
                driver._requests.discard(self)
            if driver._starting is not self:
                # The request has waited, so _poll is no longer in its switch here, and the engine may have a new
                # deadline.
                driver._rearm()
                return
            if (
                _count_references is None
                or _count_references(self) != references
                or getweakrefcount(self)
                or self.has_links()
                or self.__dict__
                or self.gr_context is not None
            ):
                return
            driver._spare = self
            hub.switch()
