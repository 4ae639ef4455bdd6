"""Imports a module with the layer as ``cherrypy``, sends it the requests of a recording, and prints the responses.

The command runs this in a new process for each version of the module, because a process imports a module only once.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import os
import sys
from typing import Any
from urllib.parse import urljoin

HARMLESS = frozenset(("json_out", "log_headers", "log_tracebacks", "trailing_slash", "encode"))
"""Tools that a typed handler does not need. Handlers with others are not rewritten: a tool may protect the page."""


def requests_of(path: str) -> list[dict[str, Any]]:
    """Read the requests of a recording: lines such as ``GET /books?page=2``, or JSON written by ``recorded``."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in map(str.strip, file):
            if line.startswith("{"):
                found.append(json.loads(line))
            elif line and not line.startswith("#"):
                method, _, url = line.partition(" ")
                path_info, _, query = url.partition("?")
                found.append({"method": method, "path": path_info, "query": query, "fields": {}, "body": ""})
    return found


def load(path: str) -> Any:
    """Import the module in the file ``path``, with the layer as ``cherrypy``."""
    import kirsch_cherrypy

    kirsch_cherrypy.install_as_cherrypy()
    kirsch_cherrypy.config.update({"log.screen": False})
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path).partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return kirsch_cherrypy


def ask(app: Any, request: dict[str, Any], cookies: dict[str, str]) -> dict[str, Any]:
    """Send a request to a WSGI callable. Return the response in a form that can be compared."""
    body = base64.b64decode(request["body"])
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request["method"], "SCRIPT_NAME": "", "PATH_INFO": request["path"],
        "QUERY_STRING": request["query"], "SERVER_NAME": "localhost", "SERVER_PORT": "80", "HTTP_HOST": "localhost",
        "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1", "wsgi.version": (1, 0), "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr, "wsgi.multithread": False,
        "wsgi.multiprocess": False, "wsgi.run_once": False, **request["fields"],
    }  # fmt: skip
    if request["method"] not in ("GET", "HEAD") or body:
        environ["CONTENT_LENGTH"] = str(len(body))
    if cookies:  # the cookies of this run, because session IDs differ from the recorded ones
        environ["HTTP_COOKIE"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    head: list[Any] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> None:
        head[:] = [status, headers]

    result = app(environ, start_response)
    try:
        content = b"".join(result)
    finally:
        if hasattr(result, "close"):
            result.close()
    status, fields = int(head[0][:3]), {name.lower(): value for name, value in head[1]}
    for name, value in head[1]:
        if name.lower() == "set-cookie":
            key, _, rest = value.partition("=")
            cookies[key] = rest.partition(";")[0]
    kind = fields.get("content-type", "").replace(" ", "").lower() if content else ""
    text = content.decode("utf-8", "backslashreplace")
    if kind.partition(";")[0] == "application/json":
        text, kind = json.dumps(json.loads(text), sort_keys=True), "application/json"
    if status >= 300:  # the frameworks word errors and redirects differently
        text = kind = ""
    location = urljoin(f"http://localhost{request['path']}", fields["location"]) if "location" in fields else ""
    return {"status": status, "type": kind, "location": location, "cookies": sorted(cookies), "body": text}


def main() -> None:
    module, recording, kind = sys.argv[1:]
    cherrypy = load(module)
    from kirsch_cherrypy import _local
    from kirsch_cherrypy.migrate import typed

    handlers: list[Any] = []

    def note() -> None:
        """Record the handler of the request, and its tools that are not harmless."""
        request = _local.current().request
        function = getattr(request.handler, "callable", None)
        function = getattr(function, "__func__", function)
        config = request.config or {}
        tools = {
            key.split(".")[1]
            for key, value in config.items()
            if key.startswith("tools.") and key.endswith(".on") and value
        }
        others = {key for key in config if key.partition(".")[0] in ("hooks", "error_page", "request", "response")}
        handlers[-1] = [getattr(function, "__qualname__", ""), sorted((tools - HARMLESS) | others)]

    if kind == "typed":
        app = typed(cherrypy.tree)
    else:
        app = cherrypy.tree
        cherrypy.request.hooks.attach("on_start_resource", note)
    cookies: dict[str, str] = {}
    responses = []
    for request in requests_of(recording):
        handlers.append(["", []])
        responses.append(ask(app, request, cookies))
    sys.stdout.write("\n" + json.dumps({"responses": responses, "handlers": handlers}) + "\n")


if __name__ == "__main__":
    main()
