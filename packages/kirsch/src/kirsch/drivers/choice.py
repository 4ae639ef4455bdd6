"""Choice and creation of the driver that the settings name. Only this driver is imported."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kirsch.apps.mounted import Application
    from kirsch.drivers import Driver
    from kirsch.reports import Report


def choose_driver(name: str, interface: str) -> str:
    """Return the driver that serves an application of ``interface`` if ``name`` is set: for ASGI the default
    ``threads`` becomes asyncio. Raises ValueError if the driver cannot serve that interface."""
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
    """Return the driver ``name`` for WSGI applications. Raises ImportError, with advice in one line, if its package
    is missing."""
    if name == "gevent":
        from kirsch.drivers import gevent

        return gevent.GeventDriver()
    from kirsch.drivers.threads import ThreadsDriver

    return ThreadsDriver(threads)


def make_asyncio(app: Application, options: Mapping[str, Any], report: Report) -> tuple[Driver, Application]:
    """Return the driver for an ASGI application or mounted applications, and the application in the form that the
    driver calls. Raises ImportError, as :func:`make` does, if the package of the loop is missing."""
    from kirsch.apps.mounted import Mounted
    from kirsch.drivers import loops
    from kirsch.drivers.asyncio import AsyncioDriver, application
    from kirsch.drivers.lifespan import Lifespan, Lifespans

    loops.check(options["loop"])
    if not isinstance(app, Mounted):
        app = application(app)
        lifespans = Lifespans([Lifespan(app, options["lifespan"], report)])
        return AsyncioDriver(lifespans, options["loop"], None), app
    mounted = app.wrapped(lambda each, interface: application(each) if interface == "asgi" else each)
    of_asgi = [each for each in mounted.applications if each.interface == "asgi"]
    found: dict[int, Lifespan] = {}
    for each in of_asgi:
        if id(each.app) not in found:
            # The fallback application, which responds with 404, has no name and no lifespan.
            found[id(each.app)] = Lifespan(each.app, options["lifespan"] if each.name else "off", report)
    lifespans = Lifespans([found[id(each.app)] for each in of_asgi], [str(each) for each in of_asgi])
    threads = None
    if len(of_asgi) < len(mounted.applications):
        from kirsch.drivers.wsgi_threads import WsgiThreads

        threads = WsgiThreads(options["threads"], options["queue"], options["queue_timeout"])
    return AsyncioDriver(lifespans, options["loop"], threads), mounted


def prepare(name: str) -> None:
    """Prepare this process for a driver, before the application is imported. Raises ImportError like :func:`make`."""
    if name == "gevent":
        from kirsch.drivers import gevent

        gevent.patch()
