"""Drivers: who turns the engine, and where the application runs.

A driver is one module here, imported when it is chosen and not before: ``threads`` calls the application in threads,
``gevent`` in greenlets of a hub that hosts the engine. What both offer is :class:`Driver`.
"""

from __future__ import annotations

import _thread
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from kirsch._native import Call
    from kirsch._native import Server as NativeServer
    from kirsch.stacks import Stack

    class Driver(Protocol):
        """What the server asks of a driver. It serves once."""

        def options(self) -> dict[str, Any]:
            """Its arguments for the constructor of the native server."""

        def begin(self) -> None:
            """This thread, and where there are greenlets this one, is going to serve."""

        def run(self, native: NativeServer) -> None:
            """Serve until the native server has stopped."""

        def is_inside(self) -> bool:
            """Whether the caller runs in the server: to wait here for its end would be to wait for ever."""

        def wait(self, seconds: float) -> bool | None:
            """Wait for :meth:`end` and tell whether it came; None: wait as a thread does, on a lock."""

        def end(self) -> None:
            """All is over and tidied away; let those go who :meth:`wait`."""

        def stacks(self, calls: Iterable[Call]) -> dict[int, Stack]:
            """The application's stack of each call by its number; empty where it has none now. From any thread."""

        def interrupt(self, calls: Iterable[Call]) -> None:
            """Raise RequestTimeout in each call that is not over. From a thread that is none of the server's."""

        def location(self, call: Call) -> str:
            """Where a call runs, in words: the name of a thread."""

        def warnings(self) -> list[str]:
            """What is wrong with the process for this driver, one line each."""


NAMES = ("threads", "gevent")

_THREADS = "write threads"
_GEVENT = "write gevent"
_ASYNC = "ASGI is not there yet; a WSGI application is served by threads or gevent"

# Other servers' names for the same thing.
_SAME = {"gthread": "threads", "thread": "threads", "gevent_wsgi": "gevent", "gevent_pywsgi": "gevent"}

# Names that fingers know from other servers, and what to use instead.
_INSTEAD = {
    "sync": "write threads, and for one request at a time --threads 1",
    "threaded": _THREADS,
    "threading": _THREADS,
    "tornado": _THREADS,
    "eventlet": "use gevent; eventlet's own maintainers advise to migrate from it",
    "greenlet": "use gevent, which runs each request in a greenlet and knows how to wait in it",
    "greenlets": _GEVENT,
    "green": _GEVENT,
    "egg:gunicorn#gevent": _GEVENT,
    "asgi": _ASYNC,
    "asyncio": _ASYNC,
    "async": _ASYNC,
    "uvloop": _ASYNC,
    "trio": _ASYNC,
    "uvicorn": _ASYNC,
    "uvicorn.workers.uvicornworker": _ASYNC,
    "uvicorn_worker.uvicornworker": _ASYNC,
}


def start_thread(name: str, target: Callable[..., object], arguments: tuple[object, ...] = ()) -> None:
    """Start a real thread, also where gevent makes threads greenlets. ``name`` is what ``ps -T`` shows."""
    from kirsch._native import name_thread  # which whoever only wants RequestTimeout does not need

    def run() -> None:
        name_thread(name)
        target(*arguments)

    original("start_new_thread")(run, ())


class RequestTimeout(BaseException):
    """Raised in an application call that has missed its deadline (``--timeout``), wherever it is at that moment.

    The client has been sent 504 before, or, if the response had begun, the connection was cut. What the application
    still responds is dropped. RequestTimeout is not an Exception, so that ``except Exception`` does not swallow it. An
    application may catch it to tidy up, and should raise it again, so that the thread is free for other requests.
    """

    __module__ = "kirsch"


def canonical_name(name: str) -> str:
    """The driver that ``name`` means: its own name, or gunicorn's for the same thing.

    Raises ValueError, with what to use instead, where there is no such driver. The message goes behind the name.
    """
    canonical = _SAME.get(name.lower(), name)
    if canonical not in NAMES:
        from kirsch.suggest import did_you_mean

        instead = _INSTEAD.get(name.lower())
        raise ValueError(
            f"is not one of {', '.join(NAMES)}{f'; {instead}' if instead else did_you_mean(name.lower(), NAMES)}"
        )
    return canonical


def make(name: str, threads: int) -> Driver:
    """The driver ``name``. Raises ImportError, with one line on how to mend it, where what it needs is missing."""
    if name == "gevent":
        from kirsch.drivers import gevent

        return gevent.GeventDriver()
    from kirsch.drivers.threads import ThreadsDriver

    return ThreadsDriver(threads)


def prepare(name: str) -> None:
    """Make this process fit for a driver, before the application is imported. Raises ImportError as :func:`make`."""
    if name == "gevent":
        from kirsch.drivers import gevent

        gevent.patch()


def has_gil() -> bool:
    """Whether the interpreter runs one thread at a time: all do but a free-threaded one that was not made to."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return True if is_enabled is None else bool(is_enabled())


def original(name: str) -> Any:
    """``_thread.<name>`` as it was before gevent or eventlet put something else in its place."""
    if (monkey := sys.modules.get("gevent.monkey")) is not None:
        return monkey.get_original("_thread", name)
    if (patcher := sys.modules.get("eventlet.patcher")) is not None:
        return getattr(patcher.original("_thread"), name)
    return getattr(_thread, name)


def thread_starter(driver: str) -> Any:
    """What starts a thread for the server's own use of Python libraries; None where the driver has patched these, so
    that they are of no use outside of its hub."""
    return original("start_new_thread") if driver == "threads" else None


# What an application that waits in greenlets has patched. Some patch less than all of it.
_WAITING = ("socket", "time", "threading", "select")


def patched_by() -> list[str]:
    """Which libraries have replaced the waiting functions of Python's own."""
    found = []
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and any(monkey.is_module_patched(module) for module in _WAITING):
        found.append("gevent")
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(patcher.is_monkey_patched(module) for module in ("socket", "time", "thread")):
        found.append("eventlet")
    return found


def patching_warnings(driver: str) -> list[str]:
    """One line for each library that has patched this process though ``driver`` serves."""
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
