"""XML-RPC: bodies, results and faults. Bodies come from anybody, so document types are refused."""

from __future__ import annotations

import sys
from typing import Any

from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import serving


def process_body() -> tuple[Any, str]:
    """Parameters and method of the request's body; a method that does not exist if it is no XML-RPC."""
    import xmlrpc.client

    data = serving.request.body.read()
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise HTTPError(400, "An XML-RPC body has no document type.")
    try:
        params, method = xmlrpc.client.loads(data)
    except Exception:  # noqa: BLE001 - the parser raises many kinds
        return ("ERROR PARAMS",), "ERRORMETHOD"
    return params, method or ""


def patched_path(path: str) -> str:
    """Return the path without the /RPC2 that clients may put before it."""
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
    """Make a result, or a Fault, the response."""
    from xmlrpc.client import Fault, dumps

    result = body if isinstance(body, Fault) else (body,)
    _set_response(dumps(result, methodresponse=True, encoding=encoding, allow_none=bool(allow_none)))


def on_error(*args: Any, **kwargs: Any) -> None:
    """Make the current exception a Fault."""
    from xmlrpc.client import Fault, dumps

    _set_response(dumps(Fault(1, str(sys.exc_info()[1]))))
