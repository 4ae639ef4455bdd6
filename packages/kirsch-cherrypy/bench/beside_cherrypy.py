"""Measure a request in kirsch_cherrypy and in CherryPy, called directly, in turns in one process.

    .venvs/web-cherrypy/bin/python packages/kirsch-cherrypy/bench/beside_cherrypy.py

Prints microseconds of processor time for each, the least of many short turns, and their ratio. The page has nine
header fields of a browser; no log is written.
"""

# mypy: disable-error-code="untyped-decorator, import-untyped, import-not-found"

from __future__ import annotations

import io
import sys
import time
from typing import Any

import cherrypy as original

import kirsch_cherrypy as layer

HEADERS = {
    "HTTP_HOST": "localhost:8000", "HTTP_USER_AGENT": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101",
    "HTTP_ACCEPT": "text/html,application/xhtml+xml,*/*;q=0.8", "HTTP_ACCEPT_LANGUAGE": "en-US,en;q=0.5",
    "HTTP_ACCEPT_ENCODING": "gzip, deflate, br", "HTTP_CONNECTION": "keep-alive", "HTTP_DNT": "1",
    "HTTP_UPGRADE_INSECURE_REQUESTS": "1", "HTTP_CACHE_CONTROL": "max-age=0",
}  # fmt: skip


def make(cherrypy: Any) -> Any:
    class Root:
        @cherrypy.expose
        def index(self) -> str:
            return "Hello, world!"

        @cherrypy.expose
        def user(self, id: str) -> str:
            return f"user {id}"

    cherrypy.config.update({"log.screen": False, "engine.autoreload.on": False})
    cherrypy.tree.mount(Root())
    return cherrypy.tree


def call(app: Any, path: str) -> bytes:
    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        assert status == "200 OK"

    environ = {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "localhost",
        "SERVER_PORT": "8000", "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1", "REMOTE_PORT": "40000",
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.errors": sys.stderr, "wsgi.multithread": True,
        "wsgi.multiprocess": False, "wsgi.run_once": False, "wsgi.input": io.BytesIO(), **HEADERS,
    }  # fmt: skip
    response = app(environ, start_response)
    body = b"".join(response)
    response.close()
    return body


def turn(app: Any, path: str, calls: int = 100) -> float:
    begin = time.process_time()
    for _ in range(calls):
        call(app, path)
    return (time.process_time() - begin) / calls * 1e6


def main() -> None:
    apps = {"layer": make(layer), "CherryPy": make(original)}
    for path in ("/", "/user/7"):
        least = dict.fromkeys(apps, float("inf"))
        for _ in range(60):
            for name, app in apps.items():
                least[name] = min(least[name], turn(app, path))
        ratio = least["layer"] / least["CherryPy"]
        print(f"{path:8} layer {least['layer']:.1f} us, CherryPy {least['CherryPy']:.1f} us, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
