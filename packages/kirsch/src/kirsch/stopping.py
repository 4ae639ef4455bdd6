"""Lets an application know that the server stops, so that it can end responses that are endless.

A stop lets requests finish for ``--graceful-timeout``. An endless response, such as a stream of server-sent events,
would use all of that time and then be cut off. With these functions it can end at once, and its client reconnects.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Protocol

    class Stoppable(Protocol):
        """The attributes of a server that this module uses."""

        @property
        def is_stopping(self) -> bool: ...


# The servers that run in this process. A worker has one.
_servers: list[Stoppable] = []

# True if all servers have ended and no other has started since: responses that still run should end too.
_have_ended = False

_waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []


def is_stopping() -> bool:
    """Return whether a server of this process is stopping, or the last one has ended. May be called in any thread."""
    return _have_ended or any(server.is_stopping for server in _servers)


async def wait_for_stop() -> None:
    """Wait until a server of this process begins to stop; return at once if one has begun. Works in any event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    waiting = (loop, loop.create_future())
    _waiting.append(waiting)
    try:
        # Checked after the append: either this check sees a server that begins to stop in another thread, or that
        # thread sees this entry.
        if not is_stopping():
            await waiting[1]
    finally:
        _waiting.remove(waiting)


def add(server: Stoppable) -> None:
    """Register a server that begins to run."""
    global _have_ended
    _have_ended = False
    _servers.append(server)


def discard(server: Stoppable) -> None:
    """Unregister a server that has ended. May be called again."""
    global _have_ended
    if server in _servers:
        _servers.remove(server)
        _have_ended = not _servers


def announce() -> None:
    """Wake all tasks in :func:`wait_for_stop`. May be called in any thread and in signal handlers."""
    for loop, future in _waiting.copy():
        try:
            loop.call_soon_threadsafe(_wake, future)
        except RuntimeError:
            pass  # the loop has been closed


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
