"""Responses of errors and redirects. Errors are problem documents (RFC 9457) or HTML, as the client accepts."""

from __future__ import annotations

import re

from kirsch_web.errors import REASONS, HTTPError, status_line
from kirsch_web.response import HTML, encode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kirsch_web.errors import HTTPRedirect
    from kirsch_web.request import Request

PROBLEM = "application/problem+json"

_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}


def escape(text: str) -> str:
    """Escape ``text`` for HTML content and attribute values."""
    return text.translate(_ESCAPES)


def error(request: Request, stop: HTTPError, traceback: str = "") -> None:
    """Set the response to that of the HTTPError ``stop``, with the page of the configuration if there is one."""
    response = request.response
    response.status = stop.status
    response.headers.setdefault("Cache-Control", "no-store")
    for name, value in stop.headers:
        response.headers[name] = value
    page = request.config.get(f"error_page.{stop.status}", request.config.get("error_page.default"))
    if page is not None:
        try:
            response.set_body(_custom(page, request, stop, traceback))
            return
        except Exception as failure:  # noqa: BLE001 - the client still gets the original error
            report(request, failure)
    response.headers.vary("Accept")
    document = _document(stop, traceback)
    accepted = request.accepts(PROBLEM, "application/json", "text/html", "application/xhtml+xml")
    if accepted in ("text/html", "application/xhtml+xml"):
        response.headers["Content-Type"] = HTML
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        response.set_body(_html(document))
    else:
        response.headers["Content-Type"] = PROBLEM
        response.body = encode_json(document)


def _document(stop: HTTPError, traceback: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": stop.extra.get("type", "about:blank"),
        "title": REASONS.get(stop.status, "Unknown"),
        "status": stop.status,
    }
    if stop.detail:
        document["detail"] = stop.detail
    if stop.errors:
        document["errors"] = stop.errors
    document.update(stop.extra)
    if traceback:
        document["traceback"] = traceback
    return document


def _html(document: dict[str, Any]) -> str:
    title = f"{document['status']} {document['title']}"
    parts = [
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{escape(title)}</title>",
        "<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:50rem;margin:4rem auto;padding:0 1rem}</style>",
        f"<h1>{escape(title)}</h1>",
    ]
    if "detail" in document:
        parts.append(f"<p>{escape(str(document['detail']))}</p>")
    if errors := document.get("errors"):
        rows = "".join(f"<li>{escape(each['name'])} {escape(each['reason'])}</li>" for each in errors)
        parts.append(f"<ul>{rows}</ul>")
    if "error_id" in document:
        parts.append(f"<p>Error number {escape(str(document['error_id']))}</p>")
    if "traceback" in document:
        parts.append(f"<pre>{escape(document['traceback'])}</pre>")
    return "\n".join(parts) + "\n"


def _custom(page: Any, request: Request, stop: HTTPError, traceback: str) -> object:
    """Return the body from ``error_page.*``: a callable, or a template file with ``{status}`` and ``{detail}``."""
    if callable(page):
        return page(request, stop)
    with open(page, encoding="utf-8") as file:
        template = file.read()
    values = {"status": status_line(stop.status), "detail": stop.detail, "traceback": traceback}
    return re.sub(r"\{(status|detail|traceback)\}", lambda match: escape(values[match[1]]), template)


def unexpected(request: Request, failure: Exception) -> None:
    """Set the response to an unhandled exception: 500 with a random number that the error log has too."""
    import secrets

    number = secrets.token_hex(4)
    text = report(request, failure, number)
    request.discard()
    debug = bool(request.config.get("errors.debug", False))
    detail = "The server met an error of its own; its log has it under this number."
    error(request, HTTPError(500, detail, error_id=number), text if debug else "")


def report(request: Request, failure: BaseException, number: str = "") -> str:
    """Write the traceback of ``failure`` to the server's error log, and return it."""
    import traceback

    text = "".join(traceback.format_exception(type(failure), failure, failure.__traceback__))
    note(request, text, f"error {number}: " if number else "")
    return text


def note(request: Request, text: str, label: str = "") -> None:
    """Write the request's method and path, and ``text``, to the server's error log."""
    about = f"{request.environ.get('REQUEST_METHOD', '')} {request.environ.get('PATH_INFO', '')!r}"
    try:
        log = request.environ["wsgi.errors"]
        log.write(f"kirsch_web: {label}{about}\n{text}")
        log.flush()
    except Exception:  # noqa: BLE001, S110 - respond even if logging fails
        pass


_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_UNSAFE = re.compile(rb"[^A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]")


def redirect(request: Request, stop: HTTPRedirect) -> None:
    """Set the response to a redirect. A redirect to another origin is answered with 400 unless it is declared
    external, because clients usually chose such a location. The log entry tells the developer how to allow it."""
    location = stop.location
    if not stop.external and leaves(location, request.origin):
        note(
            request,
            f"a redirect to {location[:200]!r} leaves {request.origin[:200]} and was answered with 400; write "
            "HTTPRedirect(..., external=True) if it may\n",
        )
        error(request, HTTPError(400, "this redirect would lead to another site"))
        return
    location = _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], location.encode()).decode("ascii")
    response = request.response
    response.status = stop.status
    response.headers["Location"] = location
    response.set_body(
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{status_line(stop.status)}</title>\n"
        f'<p>See <a href="{escape(location)}">{escape(location)}</a>.</p>\n'
    )


def leaves(location: str, origin: str) -> bool:
    """Return whether a browser that follows ``location`` leaves ``origin``.

    Browsers remove control characters and treat a backslash as a slash, so a location with either counts as leaving.
    """
    if _CONTROL.search(location):
        return True
    location = location.strip()
    if location.startswith("//"):
        return True
    scheme, colon, _ = location.partition(":")
    if colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        lower, own = location.lower(), origin.lower()
        return not (lower == own or lower.startswith((own + "/", own + "?", own + "#")))
    return False
