"""An ASGI application's call under the tracer: each step of its coroutine, from one wait to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kirsch.profile.wsgi import Run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from kirsch.profile.tracer import Tracer


async def traced(
    app: Callable[..., Awaitable[None]],
    scope: dict[str, Any],
    receive: Any,
    send: Any,
    done: Callable[[Run], None],
) -> None:
    """Call ``app``, a coroutine function; ``done`` is called once, when the call is over.

    What its task does between two waits is followed, and the waits are in no time. What it has other tasks and threads
    do is not followed. Raises what the application raises, and BusyError where
    :func:`kirsch.profile.tracer.is_free` does not hold.
    """
    run = Run(scope.get("method", "GET"), scope["path"])
    try:
        await _Steps(app(scope, receive, send), run.tracer)
    except BaseException as error:
        run.raised = type(error).__name__
        raise
    finally:
        done(run)


class _Steps:
    """Awaits a coroutine whose steps are followed."""

    def __init__(self, coroutine: Any, tracer: Tracer) -> None:
        self._coroutine = coroutine
        self._tracer = tracer

    def __await__(self) -> Generator[Any, Any, None]:
        step, value = self._coroutine.send, None
        while True:
            self._tracer.start()
            try:
                awaited = step(value)
            except StopIteration:
                return
            finally:
                self._tracer.stop()
            try:
                value = yield awaited
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - the coroutine is what it is for
                step, value = self._coroutine.throw, error
