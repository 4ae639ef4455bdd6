"""The lifespan of ASGI applications (ASGI, Lifespan Protocol 2.0): startup before the first request, shutdown after
the last one, and the state and the context in which requests are called."""

from __future__ import annotations

import asyncio
import contextvars
from time import monotonic

from kirsch.drivers import NotStartedError
from kirsch.reports import ERROR, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from kirsch.reports import Report

    AsgiMessage = dict[str, Any]


# _UNDO_SECONDS: the time for shutting down the applications that had started when another one failed to start.
# _LEAST_SECONDS: the minimum for each application, even if the ones before it have used up the time.
_UNDO_SECONDS = 5.0
_LEAST_SECONDS = 0.5


class Lifespan:
    """The lifespan of one application, which runs in a separate task.

    ``mode`` is ``auto`` (an application without a lifespan is served), ``on`` (it is an error) or ``off`` (the scope is
    not used). ``context`` is the context of the application at the end of its startup; requests run in copies of it.
    ``state`` is the application's ``scope["state"]``; None if it has no lifespan.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], mode: str, report: Report) -> None:
        self._app = app
        self._mode = mode
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._expected: tuple[str, ...] = ("lifespan.startup.complete", "lifespan.startup.failed")
        self._received = 0
        self._failure: str | None = None
        self.context = contextvars.copy_context()
        self.state: dict[str, Any] | None = None

    async def start_up(self) -> None:
        """Send ``lifespan.startup`` and wait for the reply of the application. Raises NotStartedError."""
        if self._mode == "off":
            return
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = loop.create_future()
        self._stopping: asyncio.Future[None] = loop.create_future()
        self._stopped: asyncio.Future[None] = loop.create_future()
        state: dict[str, Any] = {}
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": state,
        }
        self._task = task = loop.create_task(self._run(scope), name="kirsch-lifespan")
        try:
            await asyncio.wait({task, self._started}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cancel()
            raise
        if self._task is not task:
            return  # the application has raised an exception that ends the program, and was shut down meanwhile
        if self._failure is not None:
            await self._cancel()
            raise NotStartedError(self._failure or "lifespan.startup.failed, without a message")
        if self._started.done():
            self.state = state
            task.add_done_callback(self._note_end)
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._task = None
        self._note_absence(error)

    def _note_absence(self, error: BaseException | None) -> None:
        """Handle an application that has returned or raised before its startup was complete."""
        if self._mode == "on":
            if error is None:
                raise NotStartedError("it returned before it sent lifespan.startup.complete, and --lifespan is on")
            raise NotStartedError(
                f"it raised {type(error).__name__} on the lifespan scope, and --lifespan is on", error
            )
        # An application that raises before it receives the event does not support the scope, as Django's.
        if error is not None and self._received:
            text = f"the application raised {type(error).__name__} in its lifespan, and is served without one"
            self._report(WARNING, f"{text}; with --lifespan on it would not be served", error)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Handle the end of the lifespan task. If ``_task`` still refers to it, it has ended before the shutdown."""
        if task is self._task and not task.cancelled() and (error := task.exception()) is not None:
            self._task = None
            text = "the application raised an exception in its lifespan, after its start-up; it is served on"
            self._report(ERROR, text, error)

    async def shut_down(self, seconds: float) -> None:
        """Send ``lifespan.shutdown`` and wait for the reply, at most ``seconds``."""
        task, self._task = self._task, None
        if task is None:
            return
        if not task.done():
            self._expected = ("lifespan.shutdown.complete", "lifespan.shutdown.failed")
            self._stopping.set_result(None)
            await asyncio.wait({task, self._stopped}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.done():
                # The application may continue after its last message: wait until it returns.
                await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            self._report(
                WARNING, f"the application's lifespan did not end within {seconds:.1f} s, and is cancelled", None
            )
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
        if self._failure is not None:
            self._report(
                ERROR, f"the application's shutdown has failed: {self._failure or 'it has not said why'}", None
            )
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            self._report(ERROR, "the application raised an exception in its lifespan", error)

    async def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
        if task is not None and task.done() and not task.cancelled():
            task.exception()  # mark the exception as retrieved; it is reported elsewhere

    async def _run(self, scope: dict[str, Any]) -> None:
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> AsgiMessage:
        if self._received == 0:
            self._received = 1
            return {"type": "lifespan.startup"}
        # Shielded: if this wait is cancelled, the application has received no event.
        await asyncio.shield(self._stopping)
        if self._received == 1:
            self._received = 2
            return {"type": "lifespan.shutdown"}
        await asyncio.get_running_loop().create_future()  # no other event follows: wait for ever
        raise AssertionError

    async def _send(self, message: AsgiMessage) -> None:
        if not isinstance(message, dict):
            raise TypeError(
                "a message must be a dict such as {'type': 'lifespan.startup.complete'}, "
                f"not {type(message).__name__}: {message!r:.80}"
            )
        kind = message.get("type")
        if kind not in self._expected:
            expected = " or ".join(self._expected) or "nothing more"
            raise RuntimeError(f"the application sent {kind!r} on the lifespan scope, which expects {expected} now")
        self._expected = ()
        failed = kind.endswith(".failed")
        if failed:
            self._failure = str(message.get("message", ""))
        if kind.startswith("lifespan.startup"):
            self.context = contextvars.copy_context()
            self._started.set_result(None)
        else:
            self._stopped.set_result(None)


class Lifespans:
    """The lifespans of all applications of a process, in the order in which they start.

    ``each`` has one lifespan for each mount; mounts of the same application share it. ``names`` are the names of the
    mounted applications, for messages; empty if the application is not mounted.
    """

    def __init__(self, each: Sequence[Lifespan], names: Sequence[str] = ()) -> None:
        self.each = tuple(each)
        self._different = tuple(dict.fromkeys(self.each))
        self._names = dict(zip(reversed(self.each), reversed(names), strict=False))  # the first one of several names

    async def start_up(self) -> None:
        """Start all lifespans, one after the other. If one fails, shut down those that have started. Raises
        NotStartedError."""
        for index, lifespan in enumerate(self._different):
            try:
                await lifespan.start_up()
            except BaseException as error:
                await self._shut_down(self._different[:index], _UNDO_SECONDS)
                if isinstance(error, NotStartedError) and lifespan in self._names:
                    raise NotStartedError(f"{self._names[lifespan]}: {error}", error.cause) from None
                raise

    async def shut_down(self, seconds: float) -> None:
        """Shut down all lifespans, the last one first, within ``seconds`` in total."""
        await self._shut_down(self._different, seconds)

    async def _shut_down(self, lifespans: Sequence[Lifespan], seconds: float) -> None:
        due = monotonic() + seconds
        for lifespan in reversed(lifespans):
            await lifespan.shut_down(max(due - monotonic(), _LEAST_SECONDS))
