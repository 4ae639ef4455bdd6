"""Calls of kirsch_cherrypy for its tests."""

# mypy: disable-error-code="untyped-decorator, no-any-return, unused-ignore"

from __future__ import annotations

import io
from typing import Any
from wsgiref.validate import validator

import pytest

import kirsch_cherrypy as cherrypy
from kirsch_cherrypy import _globals
from kirsch_cherrypy.lib import httputil


@pytest.fixture(autouse=True)
def fresh() -> Any:
    """Each test has a tree and a configuration of its own."""
    cherrypy.tree.apps.clear()
    cherrypy.config.reset()
    cherrypy.config.update({"environment": "test_suite"})
    _globals.cache = None
    yield
    cherrypy.config.reset()
    cherrypy.config.update({"log.screen": False})


class Answer:
    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = int(status.split()[0])
        self.headers = httputil.HeaderMap(headers)
        self.body = body
        self.text = body.decode()


def environ_of(path: str = "/", method: str = "GET", body: bytes = b"", **fields: Any) -> dict[str, Any]:
    path, _, query = path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": query,
        "SERVER_NAME": "shop.example", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "shop.example",
        "REMOTE_ADDR": "192.0.2.1", "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(), "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
    }  # fmt: skip
    if body or method == "POST":
        environ["CONTENT_LENGTH"] = str(len(body))
    return {**environ, **fields}


def ask(path: str = "/", method: str = "GET", body: bytes = b"", **fields: Any) -> Answer:
    """Call the tree once. Other keywords are keys of the environ."""
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started[:] = [status, headers]
        return lambda data: None

    chunks = validator(cherrypy.tree)(environ_of(path, method, body, **fields), start_response)
    try:
        content = b"".join(chunks)
    finally:
        chunks.close()  # type: ignore[attr-defined]
    return Answer(started[0], started[1], content)


FORM = {"CONTENT_TYPE": "application/x-www-form-urlencoded"}


class Echo:
    @cherrypy.expose
    def index(self, **params: Any) -> str:
        shown = []
        for name, value in sorted(params.items()):
            if isinstance(value, str):
                shown.append(f"{name}={value}")
            else:
                with value.file:
                    shown.append(f"{name}={value.filename}:{len(value.file.read())}")
        return " ".join(shown)
