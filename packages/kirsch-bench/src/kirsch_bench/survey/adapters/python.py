"""Servers in Python, or for it, that stand alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kirsch_bench.survey.adapters.base import Adapter, launched

if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch_bench.survey.adapters.base import Launch

_CPYTHON = frozenset({"cpython"})
_C_EXTENSION = "it is written against CPython's C interface"


def _gunicorn(kind: str) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        threads = ["--threads", str(launch.threads)] if launch.threads else []
        start = [launch.python, "-m", "gunicorn", "-w", str(launch.workers), "-k", kind, *threads]
        return [*start, "-b", launch.address, *launch.extra, launch.target]

    return command


def _granian(interface: str) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        threads = ["--blocking-threads", str(launch.threads)] if interface == "wsgi" else []
        start = [launch.script("granian"), "--interface", interface, "--workers", str(launch.workers), *threads]
        serving = ["--http", "1", "--no-ws", "--no-access-log", "--log-level", "warning"]
        return [*start, *serving, "--host", launch.host, "--port", str(launch.port), *launch.extra, launch.target]

    return command


def _uwsgi(socket: str) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        threads = ["--threads", str(launch.threads)] if launch.threads else []
        start = [
            launch.script("uwsgi"),
            socket,
            launch.address,
            "--master",
            "--processes",
            str(launch.workers),
            *threads,
        ]
        return [
            *start,
            "--listen",
            "100",
            "--disable-logging",
            "--die-on-term",
            "--module",
            launch.target,
            *launch.extra,
        ]

    return command


def _waitress(launch: Launch) -> list[str]:
    start = [launch.python, "-m", "waitress", "--host", launch.host, "--port", str(launch.port)]
    return [*start, "--threads", str(launch.threads), *launch.extra, launch.target]


def _uvicorn(interface: str) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        start = [launch.python, "-m", "uvicorn", "--host", launch.host, "--port", str(launch.port)]
        serving = ["--workers", str(launch.workers), "--interface", interface, "--no-access-log"]
        return [*start, *serving, "--log-level", "warning", *launch.extra, launch.target]

    return command


def _hypercorn(prefix: str) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        start = [launch.python, "-m", "hypercorn", "--bind", launch.address, "--workers", str(launch.workers)]
        return [*start, "--log-level", "WARNING", *launch.extra, f"{prefix}{launch.target}"]

    return command


def _launch(server: str) -> Callable[[Launch], list[str]]:
    return lambda launch: launched(launch, server)


ADAPTERS = (
    Adapter(
        "gunicorn", "sync: one call after the other, no keep-alive", _gunicorn("sync"), ("gunicorn",), workers=True
    ),
    Adapter("gunicorn-gthread", "a pool of threads", _gunicorn("gthread"), ("gunicorn",), threads=10, workers=True),
    Adapter(
        "gunicorn-gevent",
        "a greenlet for each connection",
        _gunicorn("gevent"),
        # Its worker imports packaging, which gunicorn itself no longer asks for.
        ("gunicorn", "gevent", "packaging"),
        workers=True,
    ),
    Adapter(
        "uwsgi",
        "C, one call after the other, no keep-alive",
        _uwsgi("--http-socket"),
        ("uwsgi",),
        _CPYTHON,
        _C_EXTENSION,
        workers=True,
    ),
    Adapter(
        "uwsgi-http11",
        "C, with keep-alive: one connection after the other",
        _uwsgi("--http11-socket"),
        ("uwsgi",),
        _CPYTHON,
        _C_EXTENSION,
        workers=True,
    ),
    Adapter(
        "granian",
        "Rust on tokio, calls in threads",
        _granian("wsgi"),
        ("granian",),
        threads=1,
        workers=True,
    ),
    Adapter("granian-asgi", "Rust on tokio, ASGI", _granian("asgi"), ("granian",), workers=True, speaks="asgi"),
    Adapter(
        "bjoern",
        "C on libev, one thread",
        _launch("bjoern"),
        ("bjoern",),
        _CPYTHON,
        _C_EXTENSION,
        headers=("ev.h libev-dev",),
    ),
    Adapter("fastpysgi", "C on libuv, one thread", _launch("fastpysgi"), ("fastpysgi",), _CPYTHON, _C_EXTENSION),
    Adapter("cheroot", "CherryPy's server: a pool of threads", _launch("cheroot"), ("cheroot",), threads=10),
    Adapter(
        "cherrypy",
        "the framework with its own pages, on cheroot",
        _launch("cherrypy"),
        ("cherrypy",),
        threads=10,
        speaks="own",
        pages=("hello", "large", "sizer", "echo"),
    ),
    Adapter("waitress", "one thread reads and writes, a pool calls", _waitress, ("waitress",), threads=4),
    Adapter("gevent", "gevent.pywsgi, a greenlet for each connection", _launch("gevent"), ("gevent",)),
    Adapter("eventlet", "eventlet.wsgi, a green thread for each connection", _launch("eventlet"), ("eventlet",)),
    Adapter("twisted", "twisted.web's bridge to WSGI: a pool of threads", _launch("twisted"), ("twisted",), threads=10),
    Adapter(
        "twisted-resource",
        "twisted.web with its own kind of page",
        _launch("twisted_resource"),
        ("twisted",),
        speaks="own",
        pages=("hello", "large"),
    ),
    Adapter("tornado", "its bridge to WSGI: one call after the other", _launch("tornado"), ("tornado",)),
    Adapter(
        "tornado-handler",
        "Tornado with its own kind of page",
        _launch("tornado_handler"),
        ("tornado",),
        speaks="own",
        pages=("hello", "large"),
    ),
    Adapter("wsgiref", "the standard library's, one connection after the other, HTTP/1.0", _launch("wsgiref")),
    Adapter("uvicorn", "asyncio (uvloop, httptools), ASGI", _uvicorn("asgi3"), ("uvicorn[standard]",), speaks="asgi"),
    Adapter("uvicorn-wsgi", "the same, WSGI by its bridge", _uvicorn("wsgi"), ("uvicorn[standard]",)),
    Adapter("hypercorn", "asyncio and h11, ASGI", _hypercorn("asgi:"), ("hypercorn",), speaks="asgi"),
    Adapter("hypercorn-wsgi", "the same, WSGI by its bridge", _hypercorn("wsgi:"), ("hypercorn",)),
)
