"""WSGI middleware that follows 307 responses inside the server. The client sees no redirect.

An application that wants another of its paths to answer returns ``307 Temporary Redirect`` with a Location. With this
middleware the client receives the response of that path. Without it the client receives the 307 and follows it itself.
308 is not followed, because it tells the client to use the other URL from now on.

    app = redirector(app)

The second request is a GET of the path and query in the Location, with an empty body (HEAD if the first one was). Its
environ is a copy of the first request's, without the fields about the first resource or its body.
``redirector.history`` lists the visited paths. Cookies that the 307 sets are in the second request and in the last
response. A redirect to another host, another port, or outside of the application goes to the client.

A response that is no redirect passes through unchanged, part by part, so a stream stays a stream.
"""

from __future__ import annotations

import re

from kirsch_web.errors import HTTPError
from kirsch_web.percent import unquote
from kirsch_web.response import close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    Application = Callable[..., Iterable[bytes]]

MOST = 10
"""The maximum number of redirects within one request."""

# Keys about the first request's body, and its conditions and ranges, which are about the first resource.
_DROPPED = (
    "CONTENT_TYPE",
    "HTTP_CONTENT_ENCODING",
    "HTTP_CONTENT_LANGUAGE",
    "HTTP_CONTENT_RANGE",
    "HTTP_EXPECT",
    "HTTP_IF_MATCH",
    "HTTP_IF_MODIFIED_SINCE",
    "HTTP_IF_NONE_MATCH",
    "HTTP_IF_RANGE",
    "HTTP_IF_UNMODIFIED_SINCE",
    "HTTP_RANGE",
    "HTTP_TE",
    "HTTP_TRAILER",
    "HTTP_TRANSFER_ENCODING",
    "REQUEST_URI",
    "RAW_URI",
    "wsgi.input_terminated",
)


def redirector(nextapp: Application, recursive: bool = False) -> Application:
    """Return a WSGI application that calls ``nextapp`` and follows its 307 responses.

    Args:
        nextapp: the application.
        recursive: whether a path may be visited twice in one request, up to :data:`MOST` redirects.

    A call raises RuntimeError if a path is visited twice and ``recursive`` is false, or after too many redirects.
    """

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return _follow(nextapp, recursive, environ, start_response)

    return call


class _Held:
    """A ``start_response`` that keeps the response's head until it is clear that the response is no redirect to
    follow."""

    def __init__(self, start_response: Callable[..., Any]) -> None:
        self._start_response = start_response
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.called = False
        self.sent = False
        self._write: Any = None
        self._exc_info: Any = None
        self.follows: Callable[[str], bool] = lambda _location: False
        self.cookies: list[str] = []
        """The cookies of the responses that were followed."""

    def __call__(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], Any]:
        if self.sent:
            # The response has begun: the server decides, and raises exc_info if the head has been sent.
            return self._start_response(status, headers, exc_info)  # type: ignore[no-any-return]
        if self.called and exc_info is None:
            raise AssertionError("start_response was called twice without exc_info")
        self.status, self.headers, self.called, self._exc_info = status, headers, True, exc_info
        return self.write

    @property
    def location(self) -> str | None:
        """The Location, if the response is a redirect to follow; else None."""
        if self.called and self.status[:3] == "307":
            for name, value in self.headers:
                if name.lower() == "location" and self.follows(value):
                    return value
        return None

    def write(self, data: bytes) -> None:
        """Write a part of the body, or drop it if the response is a redirect to follow."""
        if data and self.location is None:
            self.send()
            self._write(data)

    def send(self) -> None:
        """Begin the response. Raises if the application never called start_response."""
        if self.sent:
            return
        if not self.called:
            raise AssertionError("the application returned a body without calling start_response")
        self.sent = True
        headers = with_cookies(self.headers, self.cookies)
        try:
            if self._exc_info is None:
                self._write = self._start_response(self.status, headers)
            else:
                self._write = self._start_response(self.status, headers, self._exc_info)
        finally:
            self._exc_info = None  # it would keep the frames of the failed call alive


def _follow(
    nextapp: Application, recursive: bool, environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    current = environ
    history = [_visited(environ)]
    cookies: list[str] = []
    while True:
        held = _Held(start_response)
        held.follows = lambda location, current=current: _target(location, environ, current) is not None  # type: ignore[misc]
        held.cookies = cookies
        body = nextapp(current, held)
        first: bytes | None = None
        iterator: Iterator[bytes] | None = None
        try:
            if not (held.called and held.location is not None):
                if held.called and type(body) in (list, tuple):
                    held.send()
                    return body
                # Until the first part that is not empty, the application may call start_response, even again.
                iterator = iter(body)
                for part in iterator:
                    if held.location is not None:
                        break
                    if part:
                        first = part
                        break
            location = held.location
            if location is None or held.sent:
                held.send()
                return _Rest(body, first, iterator)
        except BaseException:
            close(body)
            raise
        close(body)
        target = _target(location, environ, current)
        assert target is not None
        path, query = target
        cookies = [*cookies, *set_cookies(held.headers)]
        current = second_environ(environ, path, query, cookies)
        visited = _visited(current)
        if visited in history and not recursive:
            raise RuntimeError(f"redirector visited the same URL twice: {visited}")
        if len(history) > MOST:
            raise RuntimeError(f"redirector followed {MOST} redirects in one request, at last to {visited}")
        current["redirector.history"] = list(history)
        history.append(visited)


def _visited(environ: dict[str, Any]) -> str:
    path: str = environ.get("PATH_INFO", "")
    query = environ.get("QUERY_STRING", "")
    return f"{path}?{query}" if query else path


def second_environ(environ: dict[str, Any], path: str, query: str, cookies: Iterable[str] = ()) -> dict[str, Any]:
    """Return the environ of the request for a redirect's path.

    ``cookies`` are the Set-Cookie values of the first response. The second request has these cookies, as a client's
    would.
    """
    import io

    second = {key: value for key, value in environ.items() if key not in _DROPPED}
    second["REQUEST_METHOD"] = "HEAD" if environ["REQUEST_METHOD"] == "HEAD" else "GET"
    second["PATH_INFO"] = path
    second["QUERY_STRING"] = query
    second["CONTENT_LENGTH"] = "0"
    second["wsgi.input"] = io.BytesIO()
    for field in cookies:
        _bring(second, field)
    return second


def _bring(environ: dict[str, Any], field: str) -> None:
    """Set or remove a cookie in a request's Cookie field, as the Set-Cookie value ``field`` states (RFC 6265, 5.3)."""
    from kirsch_web.fields import parse_http_date

    pair, *rest = (part.strip() for part in field.split(";"))
    attributes = {each.partition("=")[0].lower(): each.partition("=")[2] for each in rest}
    below = attributes.get("path", "/").rstrip("/")
    if not (environ.get("SCRIPT_NAME", "") + environ["PATH_INFO"] + "/").startswith(below + "/"):
        return
    name = pair.partition("=")[0]
    kept = [each for each in environ.get("HTTP_COOKIE", "").split(";") if each.partition("=")[0].strip() != name]
    kept = [each.strip() for each in kept if each.strip()]
    expires = parse_http_date(attributes.get("expires", ""))
    age = attributes.get("max-age", "")
    if not (age == "0" or age.startswith("-") or (not age and expires is not None and expires <= 0)):
        kept.append(pair)
    if kept:
        environ["HTTP_COOKIE"] = "; ".join(kept)
    else:
        environ.pop("HTTP_COOKIE", None)


def with_cookies(fields: list[tuple[str, str]], cookies: Sequence[str]) -> list[tuple[str, str]]:
    """Return ``fields`` of the last response with the Set-Cookie values of the responses before it. Of two for the same
    cookie the last one is kept."""
    if not cookies:
        return fields
    found: dict[tuple[str, str], str] = {}
    for field in (*cookies, *set_cookies(fields)):
        pair, *rest = (part.strip() for part in field.split(";"))
        scope = sorted(each.lower() for each in rest if each.lower().startswith(("path=", "domain=")))
        found[pair.partition("=")[0], "; ".join(scope)] = field
    others = [each for each in fields if each[0].lower() != "set-cookie"]
    return [*others, *(("Set-Cookie", field) for field in found.values())]


def set_cookies(fields: Iterable[tuple[str, str]]) -> list[str]:
    """Return the values of the Set-Cookie fields."""
    return [value for name, value in fields if name.lower() == "set-cookie"]


_PARTS = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL
).fullmatch


def _target(location: str, environ: dict[str, Any], current: dict[str, Any]) -> tuple[str, str] | None:
    """Return PATH_INFO and query of a Location inside this application; None for others, which the client must
    follow."""
    match = _PARTS(location)
    if match is None:
        return None
    scheme, authority, path, query = match.groups()
    if scheme is not None and scheme.lower() != environ["wsgi.url_scheme"]:
        return None
    if authority is not None:
        if authority.lower() not in _authorities(environ):
            return None
    elif scheme is not None:
        return None
    script = environ.get("SCRIPT_NAME", "")
    here = script + current.get("PATH_INFO", "")
    try:
        decoded = unquote(path).encode().decode("latin-1")
    except (HTTPError, UnicodeError):
        return None
    if not decoded and authority is None:
        decoded = here
        if query is None:
            query = current.get("QUERY_STRING", "")
    elif not decoded.startswith("/") and authority is None:
        decoded = here.rpartition("/")[0] + "/" + decoded
    decoded = without_dots(decoded or "/")
    # Compare whole segments, because /application is not below /app.
    if script and not (decoded + "/").lower().startswith(script.rstrip("/").lower() + "/"):
        return None
    return decoded[len(script.rstrip("/")) :], query or ""


def _authorities(environ: dict[str, Any]) -> set[str]:
    """Return the ways to write this server's own host and port."""
    default = {"http": "80", "https": "443"}.get(environ["wsgi.url_scheme"], "")
    host = environ.get("HTTP_HOST") or f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}"
    host = host.lower()
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        return {host, f"{host}:{default}"}
    return {host, name} if port == default else {host}


def without_dots(path: str) -> str:
    """Return the path without ``.`` and ``..`` (RFC 3986, 5.2.4)."""
    if "./" not in path and not path.endswith("."):
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == "..":
            if kept:
                kept.pop()
            if last:
                kept.append("")
        elif segment == ".":
            if last:
                kept.append("")
        else:
            kept.append(segment)
    return "/" + "/".join(kept)


class _Rest:
    """A body whose first part, ``first``, has already been read from ``iterator``."""

    def __init__(self, body: Iterable[bytes], first: bytes | None, iterator: Iterator[bytes] | None) -> None:
        self._body = body
        self._first = first
        self._iterator = iterator if iterator is not None else iter(body)

    def __iter__(self) -> _Rest:
        return self

    def __next__(self) -> bytes:
        first = self._first
        if first is not None:
            self._first = None
            return first
        return next(self._iterator)

    def close(self) -> None:
        close(self._body)
