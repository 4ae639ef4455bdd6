"""The names of the drivers, and the names of equivalent drivers in other servers."""

from __future__ import annotations

NAMES = ("threads", "gevent", "asyncio")

_THREADS = "write threads"
_GEVENT = "write gevent"
_ASYNC = "write asyncio, or leave it out: an ASGI application is always served by asyncio"

# Other servers' names of equivalent drivers.
_SAME = {"gthread": "threads", "thread": "threads", "gevent_wsgi": "gevent", "gevent_pywsgi": "gevent"}

# Names of other servers' drivers that have no equivalent here, and what to use instead.
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
    "async": _ASYNC,
    "uvloop": "write --loop uvloop; the driver of an ASGI application is asyncio with any loop",
    "trio": "write asyncio; there is no driver for trio",
    "uvicorn": _ASYNC,
    "uvicorn.workers.uvicornworker": _ASYNC,
    "uvicorn_worker.uvicornworker": _ASYNC,
}


def canonical_name(name: str) -> str:
    """Return the driver that ``name`` means: its own name, or the name of an equivalent in another server.

    Raises ValueError, with advice, if there is no such driver. The message continues after the name.
    """
    canonical = _SAME.get(name.lower(), name)
    if canonical not in NAMES:
        from kirsch.suggest import did_you_mean

        instead = _INSTEAD.get(name.lower())
        raise ValueError(
            f"is not one of {', '.join(NAMES)}{f'; {instead}' if instead else did_you_mean(name.lower(), NAMES)}"
        )
    return canonical
