"""Drivers: each defines which thread polls the engine, and where the application runs.

A driver is one module here, imported only when it is chosen (``choice.py``): ``threads`` calls the application in
threads, ``gevent`` in greenlets of a hub that polls the engine, and ``asyncio`` calls an ASGI application in tasks of
an event loop. All implement :class:`Driver`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from kirsch._native import Call, NativeServer
    from kirsch.config.native import NativeConfig
    from kirsch.process.stacks import Stack

    class Driver(Protocol):
        """The interface of a driver, as the server uses it. A driver object serves once."""

        def configure(self, config: NativeConfig) -> None:
            """Set the attributes of ``config`` that depend on the driver."""

        def begin(self) -> None:
            """Remember the calling thread or greenlet: it is going to serve."""

        def start_up(self) -> None:
            """Start what must run before serving, such as a lifespan. Raises if serving is impossible."""

        def begin_stop(self, timeout: float) -> None:
            """Begin to stop: calls may run for ``timeout`` more seconds. In any thread or signal handler."""

        def run(self, native: NativeServer) -> None:
            """Serve until the native server has stopped."""

        def shut_down(self) -> None:
            """Shut down what :meth:`start_up` has started, even if the server has not served."""

        def leave_in_child(self) -> None:
            """In a forked child: arrange that it exits when the application's code returns."""

        def is_inside(self) -> bool:
            """Return whether the caller runs inside the server, so that waiting for its end would block for ever."""

        def wait(self, seconds: float) -> bool | None:
            """Wait for :meth:`end`, at most ``seconds``; return whether it was called. None: the caller must wait on
            a lock."""

        def end(self) -> None:
            """Wake the callers of :meth:`wait`: the server has ended and released everything."""

        def stacks(self, calls: Iterable[Call]) -> dict[int, Stack]:
            """Return the application's stack of each call, by number; empty if it has none. In any thread."""

        def interrupt(self, calls: Iterable[Call]) -> None:
            """Raise RequestTimeout in each of ``calls`` that has not ended. Called in a thread outside of the
            server."""

        def location(self, call: Call) -> str:
            """Return a text for the place where a call runs: the name of its thread."""

        def warnings(self) -> list[str]:
            """Return warnings about this process that concern the driver, one line for each."""


class RequestTimeout(BaseException):
    """Raised in an application call that has missed its deadline (``--timeout``), at any point of its code. The client
    has already received 504, or the connection was aborted if the response had begun. Later output of the application
    is dropped. RequestTimeout is not an Exception, so that ``except Exception`` does not catch it. An application may
    catch it to clean up, and should raise it again, so that the thread is free for other requests.
    """

    __module__ = "kirsch"


class NotStartedError(Exception):
    """Raised if the application cannot start. ``cause`` is the exception of the application, if it raised one."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class ClientDisconnected(ConnectionError):
    """Raised by ``send`` of an ASGI application if the client has disconnected, or the response was ended at the
    deadline.

    It is an OSError, as the specification says (ASGI, HTTP, version 2.4). An application need not catch it.
    """

    __module__ = "kirsch"


# The modules that an application with greenlets usually patches; some applications patch only a few of them.
_WAITING = ("socket", "time", "threading", "select")


def patched_by() -> list[str]:
    """Return the libraries that have replaced the blocking functions of the standard library."""
    found = []
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and any(monkey.is_module_patched(module) for module in _WAITING):
        found.append("gevent")
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(patcher.is_monkey_patched(module) for module in ("socket", "time", "thread")):
        found.append("eventlet")
    return found


def patching_warnings(driver: str) -> list[str]:
    """Return a warning for each library that has patched this process although ``driver`` does not use it."""
    flag = "--driver gevent (in a program: driver='gevent')"
    lines = []
    for library in patched_by():
        if library == "eventlet":
            lines.append(
                f"eventlet has patched this process, which gains nothing under the driver {driver}; there is no driver "
                f"for eventlet, whose own maintainers advise to migrate: patch with gevent and use {flag}"
            )
        elif library != driver:
            lines.append(
                f"{library} has patched this process, which gains nothing under the driver {driver}; use {flag}"
            )
    return lines
