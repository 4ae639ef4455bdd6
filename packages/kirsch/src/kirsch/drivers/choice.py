"""The driver that the settings name. It alone is imported."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.drivers import Driver


def make(name: str, threads: int) -> Driver:
    """Return the driver ``name``. Raises ImportError, with one line on how to fix it, where its package is missing."""
    if name == "gevent":
        from kirsch.drivers import gevent

        return gevent.GeventDriver()
    from kirsch.drivers.threads import ThreadsDriver

    return ThreadsDriver(threads)


def prepare(name: str) -> None:
    """Prepare this process for a driver, before the application is imported. Raises ImportError as :func:`make`
    does."""
    if name == "gevent":
        from kirsch.drivers import gevent

        gevent.patch()
