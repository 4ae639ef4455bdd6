"""Applications of WSGI frameworks with WebSockets, all with the same paths."""

from __future__ import annotations

from typing import Any

import cherrypy as _cherrypy
from django.conf import settings as _settings

from kirsch.websocket import accept as _accept


class _Upper:
    def __init__(self, name: str) -> None:
        self._name = name

    def open(self, ws: Any) -> None:
        ws.send(f"hello, {self._name}")

    def message(self, ws: Any, data: str) -> None:
        ws.send(data.upper())

    def close(self, ws: Any, code: int) -> None:
        print(f"/handled closed with {code}", flush=True)


def _take(ws: Any, name: str) -> None:
    ws.send(f"hello, {name}")
    for message in ws:
        ws.send(message.upper())
    print(f"/taken closed with {ws.close_code}", flush=True)


def _make_flask() -> Any:
    from flask import Flask, request

    app = Flask(__name__)

    @app.route("/handled", websocket=True)
    def handled() -> Any:
        return _accept(request.environ, _Upper(request.args["name"]))

    @app.route("/taken", websocket=True)
    def taken() -> str:
        _take(request.environ["wsgi.websocket"], request.args["name"])
        return ""

    @app.route("/fails", websocket=True)
    def fails() -> str:
        request.environ["wsgi.websocket"].accept()
        raise ValueError("in a view")

    @app.get("/page")
    def page() -> str:
        return "a page"

    return app


def _make_django() -> Any:
    import django
    from django.core.handlers.wsgi import WSGIHandler

    _settings.configure(ROOT_URLCONF="websocket_wsgi_urls", ALLOWED_HOSTS=["*"], SECRET_KEY="a test", DEBUG=False)
    django.setup()
    return WSGIHandler()


class _Root:
    @_cherrypy.expose
    def handled(self, name: str) -> str:
        _accept(_cherrypy.request.wsgi_environ, _Upper(name))
        return ""

    @_cherrypy.expose
    def taken(self, name: str) -> str:
        _take(_cherrypy.request.wsgi_environ["wsgi.websocket"], name)
        return ""

    @_cherrypy.expose
    def fails(self) -> str:
        _cherrypy.request.wsgi_environ["wsgi.websocket"].accept()
        raise ValueError("in a view")

    @_cherrypy.expose
    def page(self) -> str:
        return "a page"


def __getattr__(name: str) -> Any:
    if name == "flask":
        return _make_flask()
    if name == "django":
        return _make_django()
    if name == "cherrypy":
        _cherrypy.config.update({"environment": "embedded", "log.screen": False})
        return _cherrypy.Application(_Root())
    raise AttributeError(name)
