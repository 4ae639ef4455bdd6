"""XML-RPC bodies, results and faults. Document types in bodies are refused, because clients are not trusted."""

from __future__ import annotations

import sys
from typing import Any

from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import serving


def process_body() -> tuple[Any, str]:
    """Return the parameters and the method in the request's body; a nonexistent method if it is not XML-RPC."""
    import xmlrpc.client

    data = serving.request.body.read()
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise HTTPError(400, "An XML-RPC body has no document type.")
    try:
        params, method = xmlrpc.client.loads(data)
    except Exception:  # noqa: BLE001 - the parser raises many types
        return ("ERROR PARAMS",), "ERRORMETHOD"
    return params, method or ""


def patched_path(path: str) -> str:
    """Return the path with a trailing slash, without the prefix /RPC2 that some clients send."""
    if not path.endswith("/"):
        path += "/"
    return path[5:] if path.startswith("/RPC2/") else path


def _set_response(body: str) -> None:
    response = serving.response
    response.status = "200 OK"
    response.body = data = body.encode("utf-8")
    response.headers["Content-Type"] = "text/xml"
    response.headers["Content-Length"] = len(data)


def respond(body: Any, encoding: str = "utf-8", allow_none: Any = 0) -> None:
    """Set the response to a result or a Fault."""
    from xmlrpc.client import Fault, dumps

    result = body if isinstance(body, Fault) else (body,)
    _set_response(dumps(result, methodresponse=True, encoding=encoding, allow_none=bool(allow_none)))


def on_error(*args: Any, **kwargs: Any) -> None:
    """Set the response to a Fault for the current exception."""
    from xmlrpc.client import Fault, dumps

    _set_response(dumps(Fault(1, str(sys.exc_info()[1]))))
