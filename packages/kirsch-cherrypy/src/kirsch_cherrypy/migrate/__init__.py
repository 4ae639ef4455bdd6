"""From CherryPy's handlers to typed ones of kirsch-web, one handler after the other.

:func:`typed` serves a tree whose handlers are of both kinds, and :func:`recorded` writes down the requests of a
program. The command ``kirsch migrate cherrypy MODULE`` rewrites a module by such a recording: see :mod:`.command`.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

from kirsch_cherrypy._cptree import Application
from kirsch_web.publishing import MARK

HEADERS = ("HTTP_ACCEPT", "HTTP_COOKIE", "HTTP_REFERER", "HTTP_X_REQUESTED_WITH", "CONTENT_TYPE")
"""The fields of a request that a recording keeps. Cookies and bodies may have secrets: keep recordings as such."""
LIMIT = 64 * 1024
"""Bytes of a body beyond which a request is not recorded."""


def typed(tree: Any) -> Any:
    """Return the WSGI callable of ``cherrypy.tree`` with typed handlers.

    A handler is typed if a decorator of kirsch-web is on it, such as ``@web.get``, and not CherryPy's ``@expose``.
    kirsch-web answers those, and the layer answers all others, by the same objects. Other methods are not published.
    """
    apps = {name: _Both(app) if isinstance(app, Application) else app for name, app in tree.apps.items()}

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        name = tree._mount(path)
        app = apps.get(name)
        if isinstance(app, _Both) and app.answers(environ["REQUEST_METHOD"], path[len(name) :] or "/"):
            below = {**environ, "SCRIPT_NAME": name, "PATH_INFO": path[len(name) :] or "/"}
            return app.web(below, start_response)
        return tree(environ, start_response)

    return serve


class _Both:
    """An application of the layer, and the typed handlers of its objects."""

    def __init__(self, app: Any) -> None:
        import kirsch_web

        self.web = kirsch_web.App(app.root)

    def answers(self, method: str, path: str) -> bool:
        """Return whether a typed handler is for the path."""
        try:
            _, plan = self.web.find(method, path)
        except Exception:  # noqa: BLE001 - of an object of the program that is asked for a name; the layer answers then
            return False
        function = plan.function
        if function is None:  # another method than those of the typed handler of the path
            found = [self.web.find(each, path)[1].function for each in ("GET", "POST", "PUT", "DELETE", "PATCH")]
            function = next((each for each in found if hasattr(each, MARK)), None)
        # Public methods that nothing exposes are handlers in kirsch-web, and are none here.
        return hasattr(function, MARK) and not getattr(function, "exposed", False)


def recorded(app: Any, path: str) -> Any:
    """Return a WSGI callable that appends each request that it passes on to the file ``path``."""
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Any:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length <= LIMIT and not environ.get("HTTP_TRANSFER_ENCODING"):
            import io

            body = environ["wsgi.input"].read(length) if length else b""
            environ = {**environ, "wsgi.input": io.BytesIO(body)}
            line = {
                "method": environ["REQUEST_METHOD"],
                "path": environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""),
                "query": environ.get("QUERY_STRING", ""),
                "fields": {name: environ[name] for name in HEADERS if environ.get(name)},
                "body": base64.b64encode(body).decode(),
            }
            with lock, open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return app(environ, start_response)

    return serve
