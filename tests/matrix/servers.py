"""The servers that the matrix is tried under, and how each is started with two workers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent

_KIRSCH = "{python} -m kirsch {target} --bind 127.0.0.1:0 --workers 2 --timeout 4s --graceful-timeout 2s"
_GUNICORN = (
    "{python} -m gunicorn {target} --bind 127.0.0.1:0 --workers 2 --timeout 4 --graceful-timeout 2 --log-level info"
)
_UVICORN = "{python} -m uvicorn {target} --port 0 --workers 2 --timeout-graceful-shutdown 2 --no-access-log"
_GRANIAN = (
    "{python} -m granian {target} --port {port} --workers 2 --respawn-failed-workers --workers-kill-timeout 4 "
    "--interface"
)


@dataclass(frozen=True)
class Server:
    """A server with one driver. ``interface`` is the one of the applications that it serves."""

    name: str
    interface: str
    command: str

    @property
    def is_kirsch(self) -> bool:
        return self.name.startswith("kirsch")

    def line(self, python: str, target: str, port: int) -> list[str]:
        """Return the command that serves ``target``."""
        return [word.format(python=python, target=target, port=port) for word in self.command.split()]


SERVERS = {
    server.name: server
    for server in (
        Server("kirsch threads", "wsgi", f"{_KIRSCH} --threads 4"),
        Server("kirsch one thread", "wsgi", f"{_KIRSCH} --threads 1"),
        Server("kirsch gevent", "wsgi", f"{_KIRSCH} --driver gevent"),
        Server("kirsch asyncio", "asgi", _KIRSCH),
        Server("gunicorn sync", "wsgi", _GUNICORN),
        Server("gunicorn gthread", "wsgi", f"{_GUNICORN} --worker-class gthread --threads 4"),
        Server("gunicorn gevent", "wsgi", f"{_GUNICORN} --worker-class gevent"),
        Server("granian wsgi", "wsgi", f"{_GRANIAN} wsgi --blocking-threads 4"),
        Server("uvicorn", "asgi", _UVICORN),
        Server("granian asgi", "asgi", f"{_GRANIAN} asgi"),
    )
}


def python_for(server: Server, peers: str) -> str:
    """Return the interpreter that has ``server``: this one for Kirsch, else that of the environment ``peers``."""
    return sys.executable if server.is_kirsch else os.path.join(peers, "bin", "python")
