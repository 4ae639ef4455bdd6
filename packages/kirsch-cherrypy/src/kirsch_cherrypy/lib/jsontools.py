"""The tools ``json_in`` and ``json_out``."""

from __future__ import annotations

from typing import Any

from kirsch_cherrypy import _json as json
from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import serving


def json_processor(entity: Any) -> None:
    """Parse a JSON body into ``request.json``. Raises 411 without Content-Length, and 400 if it is not JSON."""
    if not entity.headers.get("Content-Length", ""):
        raise HTTPError(411)
    with HTTPError.handle((ValueError, RecursionError), 400, "Invalid JSON document"):
        serving.request.json = json.decode(entity.fp.read().decode("utf-8"))


def json_in(
    content_type: Any = ("application/json", "text/javascript"), force: bool = True, debug: bool = False,
    processor: Any = json_processor,
) -> None:  # fmt: skip
    """Parse JSON bodies into ``request.json``. With ``force``, respond to other media types with 415."""
    request = serving.request
    names = [content_type] if isinstance(content_type, str) else content_type
    if force:
        request.body.processors.clear()

        def unsupported(_entity: Any = None) -> None:
            raise HTTPError(415, f"The body has to be {' or '.join(names)}.")

        request.body.default_proc = unsupported
    for name in names:
        request.body.processors[name] = processor


def json_handler(*args: Any, **kwargs: Any) -> Any:
    """Call the handler, and return its result as JSON."""
    value = serving.request._json_inner_handler(*args, **kwargs)
    return json.encode(value)


def json_out(content_type: str = "application/json", debug: bool = False, handler: Any = json_handler) -> None:
    """Convert the result of the handler to JSON."""
    request = serving.request
    if request.handler is not None:  # None if a tool has already responded
        request._json_inner_handler, request.handler = request.handler, handler
        if content_type is not None:
            serving.response.headers["Content-Type"] = content_type
