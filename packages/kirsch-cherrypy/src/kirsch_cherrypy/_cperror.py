"""Exceptions that end a request, and error pages."""

from __future__ import annotations

import contextlib
import sys
import traceback
import urllib.parse
from html import escape
from typing import Any

from kirsch_cherrypy import _globals
from kirsch_cherrypy._helper import url as url_of
from kirsch_cherrypy._local import serving
from kirsch_cherrypy._status import valid_status
from kirsch_web.errors import HTTPError as CoreError


class CherryPyException(Exception):
    """The base of the exceptions of this layer."""

    def __call__(self) -> None:
        """Raise itself: an instance may be a request's handler."""
        raise self


class InternalRedirect(CherryPyException):
    """Raise this exception to serve another path of the application instead. The client sees no redirect.

    Args:
        path: absolute, or relative to the path of the current request; it may contain a query.
        query_string: the query, if the path has none.
    """

    def __init__(self, path: str, query_string: str = "") -> None:
        self.request = request = serving.request
        path, mark, query = path.partition("?")
        self.query_string = query if mark else query_string
        self.path = urllib.parse.urljoin(request.path_info, path)
        super().__init__(self.path, self.query_string)


_WITH_LINKS = (300, 301, 302, 303, 307, 308)
"""The redirects whose body has links to the new URLs, for clients that do not follow redirects."""
_OF_A_BODY = (
    "Allow", "Content-Encoding", "Content-Language", "Content-Location", "Content-MD5", "Content-Range",
    "Content-Type", "Expires", "Last-Modified",
)  # fmt: skip
"""Fields that describe a body: RFC 9110, 15.4.5 wants none of them in a 304 without need."""


class HTTPRedirect(CherryPyException):
    """Raise this exception to redirect the client.

    Args:
        urls: one URL or several, relative to the current one.
        status: 300 to 308; default 303, and 302 for a client that speaks HTTP/1.0.
        encoding: of URLs that are bytes.
    """

    encoding = "utf-8"

    def __init__(self, urls: Any, status: Any = None, encoding: str | None = None) -> None:
        request = serving.request
        encoding = encoding or self.encoding
        given = [urls] if isinstance(urls, (str, bytes)) else urls
        texts = [each.decode(encoding) if isinstance(each, bytes) else each for each in given]
        self.urls = [urllib.parse.urljoin(url_of(), each) for each in texts]
        if status is None:
            status = 303 if request.protocol >= (1, 1) else 302
        else:
            status = int(status)
            if not 300 <= status <= 399:
                raise ValueError(f"HTTPRedirect: the status must be from 300 to 399, not {status}")
        super().__init__(self.urls, status)
        self.status: int = status

    def set_response(self) -> None:
        """Make the redirect the current response."""
        status, response = self.status, serving.response
        if status not in (*_WITH_LINKS, 304, 305):
            raise ValueError(f"HTTPRedirect: the status {status} is not known")
        response.status, response.body = status, None
        _remove("Content-Length", *(_OF_A_BODY if status == 304 else ()))
        if status != 304:
            response.headers["Location"] = self.urls[0]
        if status in _WITH_LINKS:
            links = (f'This resource is at <a href="{escape(url)}">{escape(url)}</a>.' for url in self.urls)
            response.body = "<br />\n".join(links).encode()
            response.headers["Content-Type"] = "text/html;charset=utf-8"


_OF_A_RESULT = (
    "Accept-Ranges", "Age", "Content-Encoding", "Content-Length", "Content-Location", "Content-MD5", "ETag", "Expires",
    "Last-Modified", "Retry-After", "Vary",
)  # fmt: skip
"""The header fields that describe the content that an error page replaces."""


def _remove(*names: str) -> None:
    for name in names:
        serving.response.headers.pop(name, None)


def clean_headers(status: int) -> None:
    """Remove header fields that described the body which the error replaces."""
    _remove(*_OF_A_RESULT, *(() if status == 416 else ("Content-Range",)))


_LEAST = {**dict.fromkeys((400, 404, 406, 408, 409, 500, 501, 505), 513), **dict.fromkeys((403, 405, 410), 257)}
"""The minimum size of an error page in bytes, by status. Internet Explorer replaced shorter pages by its own."""


class HTTPError(CherryPyException):
    """Raise this exception to answer with an error.

    Args:
        status: 400 to 599, alone or with a reason: ``"410 Gone fishing"``.
        message: the text of the page; default: a sentence for the status.
    """

    status: Any = None

    def __init__(self, status: Any = 500, message: str | None = None) -> None:
        self.status = status
        try:
            self.code, self.reason, default = valid_status(status)
        except ValueError as error:
            # The page of this error shows its message and no traceback.
            raise self.__class__(500, str(error)) from None
        if not 400 <= self.code <= 599:
            raise ValueError(f"HTTPError: the status must be from 400 to 599, not {self.code}")
        self.message = self._message = message if message is not None else default
        super().__init__(self.status, message)

    def set_response(self) -> None:
        """Make the error the current response."""
        response = serving.response
        clean_headers(self.code)
        response.status = self.status
        shown = format_exc() if serving.request.show_tracebacks else None
        response.body = self.get_error_page(self.status, traceback=shown, message=self._message)
        if least := _LEAST.get(self.code):
            response.body = response.collapse_body().ljust(least)
            response.headers["Content-Length"] = str(len(response.body[0]))

    def get_error_page(self, *args: Any, **kwargs: Any) -> Any:
        """Return the body; subclasses may override it."""
        return get_error_page(*args, **kwargs)

    @classmethod
    @contextlib.contextmanager
    def handle(cls, exception: Any, status: int = 500, message: str = "") -> Any:
        """Return a context manager, or decorator, in which ``exception`` becomes this error."""
        try:
            yield
        except exception as error:
            raise cls(status, message or str(error)) from error


def set_response_of(stop: Any) -> None:
    """Make a redirect or an error, such as one of the core's parsers, the current response."""
    (HTTPError(stop.status, stop.detail or None) if isinstance(stop, CoreError) else stop).set_response()


STOPS = HTTPRedirect, HTTPError, CoreError
"""The exceptions that end a handler or a hook with a response of their own."""


class NotFound(HTTPError):
    """An HTTPError with status 404 for a path; default: the path of the current request."""

    def __init__(self, path: str | None = None) -> None:
        if path is None:
            request = serving.request
            path = request.script_name + request.path_info
        self.args = (path,)
        super().__init__(404, f"The path '{path}' was not found.")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>%(status)s</title>
<h1>%(status)s</h1>
<p>%(message)s</p>
<pre id="traceback">%(traceback)s</pre>
<footer>kirsch_cherrypy %(version)s</footer>
</html>
"""


def get_error_page(status: Any, **kwargs: Any) -> Any:
    """Return the body of an error page: made by the configured callable or template file, or the built-in page.

    Args:
        status: as of :class:`HTTPError`.
        **kwargs: ``message``, ``traceback``, ``version``, as the template has them.
    """
    try:
        code, reason, message = valid_status(status)
    except ValueError as error:
        raise HTTPError(500, str(error)) from None
    usual = {"message": message, "traceback": "", "version": _globals.version}
    given = {name: usual.get(name, "") if value is None else value for name, value in kwargs.items()}
    kwargs = {**usual, **given, "status": f"{code} {reason}"}
    shown = {name: escape(str(value), quote=False) for name, value in kwargs.items()}
    pages = serving.request.error_page
    page = pages.get(code) or pages.get("default")
    if page:
        try:
            if callable(page):
                made = page(**kwargs)
                if isinstance(made, str):
                    return made.encode()
                if isinstance(made, bytes):
                    return made
                if hasattr(made, "__iter__"):
                    return (each.encode() if isinstance(each, str) else each for each in made)
                raise ValueError("The error page function returned neither text, bytes nor an iterator of them.")
            with open(page, encoding="utf-8", newline="") as file:
                return (file.read() % shown).encode()
        except Exception:  # noqa: BLE001 - a page that fails must not hide the error that it is for
            failure = escape("".join(traceback.format_exception_only(*sys.exc_info()[:2])).strip(), quote=False)
            shown["message"] += f"<br />In addition, the custom error page failed:\n<br />{failure}"
            _globals.log(f"The custom error page {page!r} failed", "HTTP", traceback=True)
    serving.response.headers["Content-Type"] = "text/html;charset=utf-8"
    return (_PAGE % shown).encode()


def format_exc(exc: Any = None) -> str:
    """Return the traceback of an exception, by default of the current one; empty if there is none."""
    kind, error, trace = exc or sys.exc_info()
    return "" if kind is None else "".join(traceback.format_exception(kind, error, trace))


def bare_error(extrabody: str | bytes | None = None) -> tuple[bytes, list[tuple[bytes, bytes]], list[bytes]]:
    """Return status, header fields and body of the response when making the error page has failed too."""
    content = b"Unrecoverable error in the server."
    if extrabody is not None:
        content += b"\n" + (extrabody if isinstance(extrabody, bytes) else extrabody.encode())
    fields = [(b"Content-Type", b"text/plain; charset=utf-8"), (b"Content-Length", b"%d" % len(content))]
    return b"500 Internal Server Error", fields, [content]
