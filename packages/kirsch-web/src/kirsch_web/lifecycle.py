"""The start and stop callbacks of an application, each of which runs once per process."""

from __future__ import annotations

import threading

from kirsch_web.hooks import is_asynchronous

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any

    from kirsch_web.interfaces import Application

    Callback = Callable[[Any], object]


class Lifecycle:
    """The callbacks of one application, and which of them have run.

    Invariant: ``0 <= _started <= len(_on_start)``. After a start callback raised, the next attempt to start continues
    with that callback.
    """

    def __init__(self, app: Application) -> None:
        self.pending = False
        """True if the application has callbacks and its start callbacks have not all run."""
        self._app = app
        self._on_start: list[Callback] = []
        self._on_stop: list[Callback] = []
        self._started = 0
        self._has_ended = False
        self._lock = threading.RLock()

    def add(self, callback: Callback, *, stops: bool) -> None:
        """Add a start callback, or a stop callback if ``stops``. Raises RuntimeError after the application started."""
        if self._has_ended or ((self._on_start or self._on_stop) and not self.pending):
            raise RuntimeError(f"{_name(callback)}: the application has started already")
        (self._on_stop if stops else self._on_start).append(callback)
        self.pending = True

    def start(self) -> None:
        """Run the remaining start callbacks. Threads that call this meanwhile block until they have run."""
        with self._lock:
            for callback in self._remaining():
                if is_asynchronous(callback):
                    raise TypeError(f"{_name(callback)} is asynchronous and needs ASGI: serve web.ASGI(app)")
                callback(self._app)

    async def start_in_loop(self, thread: Callable[..., Awaitable[object]]) -> None:
        """Run the remaining start callbacks: await coroutine functions, and run others in a thread with ``thread``."""
        for callback in self._remaining():
            await _called(callback, self._app, thread)

    def _remaining(self) -> Iterator[Callback]:
        if not self.pending:
            return
        while self._started < len(self._on_start):
            yield self._on_start[self._started]
            self._started += 1
        import atexit

        atexit.register(self.stop)
        self.pending = False

    def stop(self) -> None:
        """Run the stop callbacks that are not asynchronous, in reverse order, if the application has started. If some
        raise, run the others, and raise the first exception at the end."""
        with self._lock:
            failures: list[Exception] = []
            for callback in self._stopping():
                if not is_asynchronous(callback):
                    try:
                        callback(self._app)
                    except Exception as failure:  # noqa: BLE001 - it is raised below
                        failures.append(failure)
            if failures:
                raise failures[0]

    async def stop_in_loop(self, thread: Callable[..., Awaitable[object]]) -> None:
        """Run all stop callbacks like :meth:`stop`: await coroutine functions, and run others with ``thread``."""
        failures: list[Exception] = []
        for callback in self._stopping():
            try:
                await _called(callback, self._app, thread)
            except Exception as failure:  # noqa: BLE001 - it is raised below
                failures.append(failure)
        if failures:
            raise failures[0]

    def _stopping(self) -> list[Callback]:
        """Mark the application as ended, and return its stop callbacks: none if it was not running."""
        if self.pending or self._has_ended:
            return []
        self._has_ended = True
        return self._on_stop[::-1]


async def _called(callback: Callback, app: Application, thread: Callable[..., Awaitable[object]]) -> None:
    if is_asynchronous(callback):
        await callback(app)  # type: ignore[misc]
    else:
        await thread(callback, app)


def _name(callback: Callback) -> str:
    return getattr(callback, "__qualname__", "") or repr(callback)
