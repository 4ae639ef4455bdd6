"""A call of an ASGI application under the tracer, which records each step of its coroutine between two waits."""

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
    """Call ``app``, a coroutine function; ``done`` is called once, when the call has ended. The task is traced between
    its waits; the waits are not part of any time. Other tasks and threads are not traced. Raises the application's
    exception, and BusyError if :func:`kirsch.profile.tracer.is_free` is false.
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
    """An awaitable that runs a coroutine and traces its steps."""

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
