"""The driver that the settings name. It alone is imported."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.drivers import Driver
    from kirsch.reports import Report


def fitting(name: str, interface: str) -> str:
    """Return the driver that serves an application of ``interface``, where ``name`` is set: ``threads``, the default,
    gives way to asyncio. Raises ValueError for a driver that cannot serve it."""
    if interface == "asgi":
        if name == "gevent":
            raise ValueError(
                "the driver gevent serves WSGI applications, and this is an ASGI application; leave --driver out, or "
                "write --driver asyncio"
            )
        return "asyncio"
    if name == "asyncio":
        raise ValueError(
            "the driver asyncio serves ASGI applications, and this is a WSGI application; leave --driver out, or write "
            "--interface asgi if it is one"
        )
    return name


def make(name: str, threads: int) -> Driver:
    """Return the driver ``name`` of a WSGI application. Raises ImportError, with one line on how to fix it, where its
    package is missing."""
    if name == "gevent":
        from kirsch.drivers import gevent

        return gevent.GeventDriver()
    from kirsch.drivers.threads import ThreadsDriver

    return ThreadsDriver(threads)


def make_asyncio(
    app: Callable[..., Any], lifespan: str, loop: str, report: Report
) -> tuple[Driver, Callable[..., Any]]:
    """Return the driver of an ASGI application, and the application as it calls it. Raises ImportError as :func:`make`
    does, where the package of ``loop`` is missing."""
    from kirsch.drivers import loops
    from kirsch.drivers.asyncio import AsyncioDriver, application

    loops.check(loop)
    app = application(app)
    return AsyncioDriver(app, lifespan, loop, report), app


def prepare(name: str) -> None:
    """Prepare this process for a driver, before the application is imported. Raises ImportError as :func:`make`
    does."""
    if name == "gevent":
        from kirsch.drivers import gevent

        gevent.patch()
