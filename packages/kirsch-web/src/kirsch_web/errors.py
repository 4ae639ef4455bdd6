"""Exceptions that end a request, and ConfigError for mistakes in the application's set-up."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn

REASONS = {
    100: "Continue", 101: "Switching Protocols", 103: "Early Hints",
    200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content",
    205: "Reset Content", 206: "Partial Content", 207: "Multi-Status", 208: "Already Reported", 226: "IM Used",
    300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified",
    305: "Use Proxy", 307: "Temporary Redirect", 308: "Permanent Redirect",
    400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout",
    409: "Conflict", 410: "Gone", 411: "Length Required", 412: "Precondition Failed", 413: "Content Too Large",
    414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed",
    418: "I'm a Teapot", 421: "Misdirected Request", 422: "Unprocessable Content", 423: "Locked",
    424: "Failed Dependency", 425: "Too Early", 426: "Upgrade Required", 428: "Precondition Required",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout", 505: "HTTP Version Not Supported", 507: "Insufficient Storage", 508: "Loop Detected",
    511: "Network Authentication Required",
}  # fmt: skip
"""The reason phrases of the IANA registry of HTTP status codes."""

_lines: dict[int, str] = {}


def status_line(status: int) -> str:
    """Return the status for ``start_response``: ``"404 Not Found"`` for 404. Raises ValueError outside 100..599."""
    line = _lines.get(status)
    if line is None:
        if not 100 <= status <= 599:
            raise ValueError(f"{status} is not an HTTP status between 100 and 599")
        line = _lines[status] = f"{status} {REASONS.get(status, 'Unknown')}"
    return line


class ConfigError(Exception):
    """The application's set-up is wrong. Raised when it is mounted; the message has all mistakes, one on each line."""

    def __init__(self, mistakes: str | Sequence[str]) -> None:
        self.mistakes = [mistakes] if isinstance(mistakes, str) else list(mistakes)
        super().__init__("\n".join(self.mistakes))


class Stop(Exception):
    """The base class of exceptions that end a handler or a hook.

    Calling an instance raises it, so an instance can be used in place of a handler.
    """

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise self


class HTTPError(Stop):
    """Ends the request with an error: 400 to 499 if the client made it, 500 to 599 if the server did.

    Args:
        status: 400 to 599.
        detail: one sentence about this case, shown to the client.
        headers: further header fields of the response.
        errors: the mistake in each parameter, shown to the client as the member ``errors``.
        extra: further members of the problem document (RFC 9457).
    """

    def __init__(
        self,
        status: int = 500,
        detail: str = "",
        *,
        headers: Iterable[tuple[str, str]] = (),
        errors: Sequence[dict[str, Any]] = (),
        **extra: Any,
    ) -> None:
        if not 400 <= status <= 599:
            raise ValueError(f"the status of an HTTPError is 400 to 599, not {status}")
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.headers = list(headers)
        self.errors = list(errors)
        self.extra = extra

    def __str__(self) -> str:
        return status_line(self.status) + (f": {self.detail}" if self.detail else "")


class NotFound(HTTPError):
    """404 Not Found."""

    def __init__(self, detail: str = "", **others: Any) -> None:
        super().__init__(404, detail, **others)


class HTTPRedirect(Stop):
    """Ends the request with a redirect.

    ``location`` is resolved against the request's URL. A location on another origin is refused unless ``external`` is
    true, so that a location chosen by a client cannot lead to another site.
    """

    def __init__(self, location: str, status: int = 303, *, external: bool = False) -> None:
        if status not in (300, 301, 302, 303, 307, 308):
            raise ValueError(f"the status of a redirect is 300, 301, 302, 303, 307 or 308, not {status}")
        super().__init__(location, status)
        self.location = location
        self.status = status
        self.external = external


class InternalRedirect(Stop):
    """Ends the request and answers it with the page of another path, by GET. The client sees no redirect.

    ``path`` is below the application's mount. ``request.previous`` is the request that was redirected.
    """

    def __init__(self, path: str, query: str = "") -> None:
        super().__init__(path, query)
        self.path, mark, inline = path.partition("?")
        self.query = query if not mark else f"{inline}&{query}" if query else inline


class Finished(Stop):
    """Ends the request with ``response``. If a hook raises it, the handler does not run."""

    def __init__(self, response: object) -> None:
        super().__init__(response)
        self.response = response


class BadText(ValueError):
    """A text cannot be converted to a parameter's type. The message completes the sentence "... is not"."""
