"""The start and the stop of an application: callbacks that run once in a process."""

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

    Invariant: ``0 <= _started <= len(_on_start)``. A start callback that raises is called again by the next attempt,
    and those before it are not.
    """

    def __init__(self, app: Application) -> None:
        self.pending = False
        """True until the start callbacks have run, if the application has callbacks."""
        self._app = app
        self._on_start: list[Callback] = []
        self._on_stop: list[Callback] = []
        self._started = 0
        self._has_ended = False
        self._lock = threading.RLock()

    def add(self, callback: Callback, *, stops: bool) -> None:
        """Add a start callback, or a stop callback. Raises RuntimeError after the start."""
        if self._has_ended or ((self._on_start or self._on_stop) and not self.pending):
            raise RuntimeError(f"{_name(callback)}: the application has started already")
        (self._on_stop if stops else self._on_start).append(callback)
        self.pending = True

    def start(self) -> None:
        """Run the start callbacks that have not run. Other threads wait meanwhile."""
        with self._lock:
            for callback in self._remaining():
                if is_asynchronous(callback):
                    raise TypeError(f"{_name(callback)} is asynchronous and needs ASGI: serve web.ASGI(app)")
                callback(self._app)

    async def start_in_loop(self, thread: Callable[..., Awaitable[object]]) -> None:
        """Run the start callbacks that have not run: coroutine functions here, others by ``thread``."""
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
        """Run the stop callbacks, the last one first, if the application has started; those that are asynchronous are
        left out. All are called although one raises; the first exception is raised at the end."""
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
        """Run the stop callbacks as :meth:`stop` does: coroutine functions here, others by ``thread``."""
        failures: list[Exception] = []
        for callback in self._stopping():
            try:
                await _called(callback, self._app, thread)
            except Exception as failure:  # noqa: BLE001 - it is raised below
                failures.append(failure)
        if failures:
            raise failures[0]

    def _stopping(self) -> list[Callback]:
        """End the application; return the callbacks to call: none if it has not started, or has ended before."""
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
