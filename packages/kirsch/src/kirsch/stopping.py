"""Reports that the server stops, to applications whose responses do not end by themselves.

A stop lets requests finish for ``--graceful-timeout``. An endless response, such as a stream of server-sent events,
would use up all of that time and then be cut. It can end at once instead, and its client connects again.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Protocol

    class Stoppable(Protocol):
        """The interface of a server, as this module uses it."""

        @property
        def is_stopping(self) -> bool: ...


# The servers that run in this process. A worker has one.
_servers: list[Stoppable] = []

# True if the servers that ran have ended and none has begun since: what they have left behind is to end too.
_have_ended = False

_waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []


def is_stopping() -> bool:
    """Return whether a server of this process has begun to stop, or the last one has ended. From any thread."""
    return _have_ended or any(server.is_stopping for server in _servers)


async def wait_for_stop() -> None:
    """Return when a server of this process begins to stop, or at once where one has begun. In any event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    waiting = (loop, loop.create_future())
    _waiting.append(waiting)
    try:
        # Behind the append: a server that begins to stop in another thread sees it, or is seen here.
        if not is_stopping():
            await waiting[1]
    finally:
        _waiting.remove(waiting)


def add(server: Stoppable) -> None:
    """Add a server that runs from now on."""
    global _have_ended
    _have_ended = False
    _servers.append(server)


def discard(server: Stoppable) -> None:
    """Remove a server that has ended. May be called again."""
    global _have_ended
    if server in _servers:
        _servers.remove(server)
        _have_ended = not _servers


def announce() -> None:
    """Wake those that wait for a stop. From any thread, and from signal handlers."""
    for loop, future in _waiting.copy():
        try:
            loop.call_soon_threadsafe(_wake, future)
        except RuntimeError:
            pass  # the loop has been closed


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
