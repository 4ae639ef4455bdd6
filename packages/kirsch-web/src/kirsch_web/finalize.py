"""The end of a request: the response in the form that the server takes, and the hooks after its last byte."""

from __future__ import annotations

from kirsch_web.errors import status_line
from kirsch_web.request import NOTHING, reset_current, set_current
from kirsch_web.response import HTML, NO_CONTENT, FileBody, Response, close, encode_json
from kirsch_web.streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kirsch_web.request import Request

    Parts = tuple[str, list[tuple[str, str]], Iterable[bytes]]
    """Status line, header fields and body of a response."""

VARY = ("Vary", "Cookie")
"""The header field that a plain result gets if its handler has read the session."""


def accept(request: Request, result: Any) -> None:
    """Set the request's response from the result of its handler."""
    if isinstance(result, Response):
        earlier = request._response
        if result is not earlier:
            for name, value in request.response.headers:
                if name.lower() == "set-cookie" or name not in result.headers:
                    result.headers.add(name, value)
            request._response = result
        return
    response = request.response
    if result is not None:
        response.set_body(result)
    elif response.body == b"" and response.status == 200:
        response.status = 204


def finalize(request: Request) -> Parts:
    """Return status, header fields and body of the response. A complete body is a list, a streamed one an iterable."""
    if request._response is None and request._result is not NOTHING:
        return _plain(request)
    response = request.response
    status, headers, body = response.status, response.headers, response.body
    line = status_line(status)
    no_content = status in NO_CONTENT or status < 200
    is_async = hasattr(body, "__aiter__")
    if is_async and "asgi.scope" not in request.environ:
        raise TypeError("an asynchronous handler needs ASGI: serve web.ASGI(app)")
    if not (isinstance(body, bytes) or no_content or is_async or request.plan.streams):
        body = response.collapse()
    if no_content:
        headers.remove("Content-Length")
        if status != 205:  # a response 205 may state the type of its empty content
            headers.remove("Content-Type")
    if isinstance(body, bytes):
        if not no_content:
            headers["Content-Length"] = str(len(body))
            if body and "Content-Type" not in headers:
                headers.add("Content-Type", HTML)
        is_sent = body and not no_content and request.method != "HEAD"
        return line, headers.pairs(), [body] if is_sent else []
    if no_content or request.method == "HEAD":
        close(body)
        return line, headers.pairs(), []
    return line, headers.pairs(), body if is_async else _streamed(request, body)  # type: ignore[return-value]


def _streamed(request: Request, body: Any) -> Iterable[bytes]:
    """Return a streamed body: a whole file in the server's ``wsgi.file_wrapper``, if it has one, else a Stream."""
    wrapper = request.environ.get("wsgi.file_wrapper")
    if type(body) is FileBody and body.length is None and wrapper is not None:
        return wrapper(body.file, FileBody.BLOCK)  # type: ignore[no-any-return]
    return Stream(request, body)


def _plain(request: Request) -> Parts:
    """Return the response for a plain result, if no hook has read ``request.response``."""
    plan, result = request.plan, request._result
    if type(result) is str:
        body, fields = result.encode(), plan.html_fields
    else:
        body, fields = encode_json(result), plan.json_fields
    fields = [*fields, ("Content-Length", str(len(body)))]
    if request._varies:
        fields.append(VARY)
    return plan.line, fields, [] if request.method == "HEAD" else [body]


def with_earlier_cookies(request: Request, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return ``fields`` with the cookies of the previous requests, which ended in an internal redirect."""
    if not request.earlier_cookies:
        return fields
    from kirsch_web.internal_redirect import with_cookies

    return with_cookies(fields, request.earlier_cookies)


def ending(request: Request, body: Iterable[bytes]) -> Iterable[bytes]:
    """Return the body. If the request has hooks or files for its end, return a Stream that calls :func:`end`."""
    if request.plan.points.on_end_request is None and request._form is None:
        return body
    stream = body if type(body) is Stream else Stream(request, body)
    stream.at_end = end
    return stream


def end(request: Request) -> None:
    """Run the hooks of ``on_end_request``, after the response was sent or aborted, and remove temporary files."""
    try:
        if request.plan.points.on_end_request is not None:
            token = set_current(request)
            try:
                request.plan.points.on_end_request(request)
            except Exception as error:  # noqa: BLE001 - the response is sent: only log it
                from kirsch_web import pages

                pages.report(request, error)
            finally:
                reset_current(token)
    finally:
        request.close()
