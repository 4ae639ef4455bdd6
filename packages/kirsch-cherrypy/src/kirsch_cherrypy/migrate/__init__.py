"""Gradual migration from CherryPy's handlers to the typed handlers of kirsch-web.

:func:`typed` serves a tree with handlers of both kinds, and :func:`recorded` records the requests of a program. The
command ``kirsch migrate cherrypy MODULE`` rewrites a module with the help of such a recording: see :mod:`.command`.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

from kirsch_cherrypy._cptree import Application
from kirsch_web.publishing import MARK

HEADERS = ("HTTP_ACCEPT", "HTTP_COOKIE", "HTTP_REFERER", "HTTP_X_REQUESTED_WITH", "CONTENT_TYPE")
"""The request fields that a recording contains. Keep recordings secret: cookies and bodies may contain secrets."""
LIMIT = 64 * 1024
"""The largest body of a recorded request, in bytes."""


def typed(tree: Any) -> Any:
    """Return a WSGI callable for ``cherrypy.tree`` in which some handlers are typed.

    A handler is typed if it has a decorator of kirsch-web such as ``@web.get``, and not CherryPy's ``@expose``.
    kirsch-web calls the typed handlers, and the CherryPy layer calls those with ``@expose``, on the same objects.
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
    """An application of the CherryPy layer, combined with the typed handlers of its objects."""

    def __init__(self, app: Any) -> None:
        import kirsch_web

        self.web = kirsch_web.App(app.root)

    def answers(self, method: str, path: str) -> bool:
        """Return whether the path belongs to a typed handler."""
        try:
            _, plan = self.web.find(method, path)
        except Exception:  # noqa: BLE001 - raised by the program's objects; the layer answers then
            return False
        function = plan.function
        if function is None:  # the path may have a typed handler for other methods
            found = [self.web.find(each, path)[1].function for each in ("GET", "POST", "PUT", "DELETE", "PATCH")]
            function = next((each for each in found if hasattr(each, MARK)), None)
        # kirsch-web publishes public methods without a decorator; here they are not published.
        return hasattr(function, MARK) and not getattr(function, "exposed", False)


def recorded(app: Any, path: str) -> Any:
    """Return a WSGI callable that appends each request to the file ``path``, and passes it to ``app``."""
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
