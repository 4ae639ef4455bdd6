"""Kirsch: a WSGI and ASGI application server with a native engine.

The names in ``__all__`` are the whole public interface. Each name is imported at its first use (PEP 562), so that
``import kirsch`` is fast and loads neither the engine nor the tools around the server.
"""

from __future__ import annotations

import sys

# pip refuses to install on older versions, but a copied folder on the import path can still be imported by them.
if sys.version_info < (3, 10):  # noqa: UP036
    _line = f"Kirsch needs Python 3.10 or newer, and this is {sys.version.split()[0]} ({sys.executable})"
    # `sys.argv[0]` is "-m" while `python -m kirsch` looks for the module.
    raise SystemExit(f"kirsch: {_line}") if sys.argv[:1] == ["-m"] else ImportError(_line)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch._native import FileWrapper, __version__
    from kirsch.drivers import ClientDisconnected, RequestTimeout
    from kirsch.groups import Group
    from kirsch.launching import run
    from kirsch.monitor.scoreboard import worker_number, worker_numbers
    from kirsch.server import Server
    from kirsch.serving import listen, serve
    from kirsch.stopping import is_stopping, wait_for_stop

__all__ = [
    "ClientDisconnected",
    "FileWrapper",
    "Group",
    "RequestTimeout",
    "Server",
    "__version__",
    "is_stopping",
    "listen",
    "run",
    "serve",
    "wait_for_stop",
    "worker_number",
    "worker_numbers",
]

_HOMES = {
    "ClientDisconnected": "drivers",
    "FileWrapper": "_native",
    "Group": "groups",
    "RequestTimeout": "drivers",
    "Server": "server",
    "__version__": "_native",
    "is_stopping": "stopping",
    "listen": "serving",
    "run": "launching",
    "serve": "serving",
    "wait_for_stop": "stopping",
    "worker_number": "monitor.scoreboard",
    "worker_numbers": "monitor.scoreboard",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kirsch' has no attribute {name!r}")
    try:
        value: object = getattr(__import__(f"kirsch.{home}", fromlist=[name]), name)
    except ImportError as error:
        from kirsch import installation

        problem = installation.problem_of(error)
        if problem is None:
            raise
        raise ImportError(problem) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
