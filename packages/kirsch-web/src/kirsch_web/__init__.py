"""kirsch_web: Python objects published over HTTP.

Public methods of objects are handlers. Their signatures declare the values that a request must have; their results
become the responses. An application is a WSGI callable.

    import kirsch_web as web

    class Root:
        def index(self) -> str:
            return "Hello"

    app = web.App(Root())
"""

from __future__ import annotations

import sys

# pip refuses older Pythons; an import from a folder on sys.path does not.
if sys.version_info < (3, 10):  # noqa: UP036
    raise ImportError(f"kirsch-web needs Python 3.10 or newer, and this is {sys.version.split()[0]} ({sys.executable})")

from kirsch_web.app import App, url
from kirsch_web.errors import (
    ConfigError,
    Finished,
    HTTPError,
    HTTPRedirect,
    InternalRedirect,
    NotFound,
    Stop,
)
from kirsch_web.hooks import Hook, Tool, tool
from kirsch_web.mounts import Mounts
from kirsch_web.publishing import config, delete, get, hide, patch, popargs, post, publish, put, query
from kirsch_web.request import Request, current
from kirsch_web.response import Response, created, json, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch_web.asgi import ASGI
    from kirsch_web.conditions import Validators, check_conditions
    from kirsch_web.cors import cors
    from kirsch_web.dispatch import Objects, Resources, Routes, page
    from kirsch_web.files import StaticFiles, file
    from kirsch_web.forms import Upload
    from kirsch_web.internal_redirect import redirector
    from kirsch_web.openapi import OpenAPI
    from kirsch_web.protect import basic_auth, csrf, csrf_token, security_headers
    from kirsch_web.rates import rate_limit
    from kirsch_web.sessions import Session, Store, session
    from kirsch_web.shape import FromCookie, FromHeader
    from kirsch_web.sse import Event, events
    from kirsch_web.stores import RedisStore, SQLAlchemyStore, SQLiteStore
    from kirsch_web.templates import Templates
    from kirsch_web.websocket import Closed, WebSocket

__version__ = "0.1.0"

# The modules of names that are imported at their first use, because most applications use few of them.
_LATER = {
    "ASGI": "asgi",
    "Closed": "websocket",
    "Event": "sse",
    "FromCookie": "shape",
    "FromHeader": "shape",
    "Objects": "dispatch",
    "OpenAPI": "openapi",
    "RedisStore": "stores",
    "Resources": "dispatch",
    "Routes": "dispatch",
    "SQLAlchemyStore": "stores",
    "SQLiteStore": "stores",
    "Session": "sessions",
    "StaticFiles": "files",
    "Store": "sessions",
    "Templates": "templates",
    "Upload": "forms",
    "Validators": "conditions",
    "WebSocket": "websocket",
    "basic_auth": "protect",
    "check_conditions": "conditions",
    "cors": "cors",
    "csrf": "protect",
    "csrf_token": "protect",
    "events": "sse",
    "file": "files",
    "page": "dispatch",
    "rate_limit": "rates",
    "redirector": "internal_redirect",
    "security_headers": "protect",
    "session": "sessions",
}

__all__ = [
    "ASGI",
    "App",
    "Closed",
    "ConfigError",
    "Event",
    "Finished",
    "FromCookie",
    "FromHeader",
    "HTTPError",
    "HTTPRedirect",
    "Hook",
    "InternalRedirect",
    "Mounts",
    "NotFound",
    "Objects",
    "OpenAPI",
    "RedisStore",
    "Request",
    "Resources",
    "Response",
    "Routes",
    "SQLAlchemyStore",
    "SQLiteStore",
    "Session",
    "StaticFiles",
    "Stop",
    "Store",
    "Templates",
    "Tool",
    "Upload",
    "Validators",
    "WebSocket",
    "basic_auth",
    "check_conditions",
    "config",
    "cors",
    "created",
    "csrf",
    "csrf_token",
    "current",
    "delete",
    "events",
    "file",
    "get",
    "hide",
    "json",
    "page",
    "patch",
    "popargs",
    "post",
    "publish",
    "put",
    "query",
    "rate_limit",
    "redirector",
    "security_headers",
    "session",
    "text",
    "tool",
    "url",
]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'kirsch_web' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"kirsch_web.{module}"), name)
    globals()[name] = value
    return value
