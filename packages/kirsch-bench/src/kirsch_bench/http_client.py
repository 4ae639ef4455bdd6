"""``http``, the client of a load test: it keeps cookies, follows redirects and checks responses.

The standard library writes requests, and the native generator's parser reads responses, equally strictly and with the
same names of failures. For measurements, there are also a time limit for the whole exchange instead of each read, so
that a slowly trickling server is detected; a limit of the body's size; and a record of each request and each page.

A *page* is a requested page with everything that it took to get it: its redirects, each of which is a *request* of
its own. Times are seconds of ``time.monotonic()``.
"""

from __future__ import annotations

import contextlib
import http.client
import json as json_module
import re
import time
import urllib.request
from http.cookiejar import CookieJar
from socket import MSG_PEEK
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

from kirsch_bench._native import ResponseFault, Responses
from kirsch_bench.profiles import fields

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection, Mapping

    from kirsch_bench.target import Target

BODY_MAX = 256 * 1024 * 1024
"""Bytes of one response's body. No page has as many, and a server that never stops is to be found out."""

REDIRECTS_MAX = 10  # curl has 50, browsers 20; a page with more than ten is a mistake

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})  # RFC 9110 section 9.2.2

_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Sample(NamedTuple):
    """A record of a page or request: its start, its duration, and its error (``""``: none)."""

    kind: str  # "page" or "request"
    name: str
    start: float
    seconds: float
    error: str


class RequestFailure(AssertionError):
    """Raised for an exchange without the expected response. ``kind`` is one word, as in reports of the generator."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Response:
    """A response: ``status``, ``headers`` (a case-insensitive mapping), ``body``, ``url``, ``seconds``."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, body: bytes, url: str) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.url = url
        self.seconds = 0.0

    @property
    def text(self) -> str:
        """The body as text, decoded by its declared charset, or UTF-8."""
        return self.body.decode(self.headers.get_content_charset() or "utf-8", "replace")

    def json(self) -> Any:
        """Return the body as JSON. Raises ValueError."""
        return json_module.loads(self.body)

    def __repr__(self) -> str:
        return f"<Response {self.status} of {self.url}, {len(self.body)} bytes>"


class Http:
    """One visitor: at most one connection, and the received cookies.

    ``record`` is called with a :class:`Sample` for each page and each request.
    """

    def __init__(
        self,
        target: Target,
        *,
        timeout: float = 30.0,
        keep_alive: bool = True,
        profile: str = "chrome",
        record: Callable[[Sample], object] | None = None,
    ) -> None:
        self.target = target
        self.timeout = timeout
        self.keep_alive = keep_alive
        self.headers: dict[str, str] = {}
        """Sent with every request, in place of the profile's namesakes."""
        self.cookies = CookieJar()
        self._fields = fields(profile, target.authority)
        self._record = record or _forget
        self._origin = f"http://{target.authority}"
        self._connection: _Connection | None = None

    def get(self, path: str, **options: Any) -> Response:
        """Return the page at ``path``; the options are those of :meth:`request`."""
        return self.request("GET", path, **options)

    def post(self, path: str, data: Any = None, **options: Any) -> Response:
        """Send ``data`` to ``path``; the options are those of :meth:`request`."""
        return self.request("POST", path, data=data, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        data: bytes | str | Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        ok: int | Collection[int] | None = None,
        name: str = "",
        redirects: bool = True,
    ) -> Response:
        """Request a page, and follow redirects on the same server.

        ``path`` may be a whole URL of the same server. ``data`` is sent as it is, or as a form if it is a mapping;
        ``json`` as JSON. ``ok`` are the accepted statuses (default: all below 400). ``name`` is what reports
        call the page, e.g. ``log in``; the default is method and path without query.

        Raises RequestFailure, which is an AssertionError.
        """
        url = urljoin(f"{self._origin}/", path)
        body, content_type = _body(data, json)
        extra = {"Content-Type": content_type} if content_type else {}
        extra.update(headers or {})
        name = name or f"{method} {urlsplit(url).path}"
        began = time.monotonic()
        error = ""
        try:
            response = self._follow(method, url, body, extra, began + self.timeout, redirects=redirects)
            response.seconds = time.monotonic() - began
            self._check(response, ok, method)
        except RequestFailure as failure:
            error = failure.kind
            raise
        finally:
            # The recorder may also sleep, to simulate a pause between two pages.
            self._record(Sample("page", name, began, time.monotonic() - began, error))
        return response

    def forget(self) -> None:
        """Become a new visitor: without cookies, and with a new connection."""
        self.cookies.clear()
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _follow(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], deadline: float, *, redirects: bool
    ) -> Response:
        for _ in range(REDIRECTS_MAX + 1):
            response = self._recorded(method, url, body, headers, deadline)
            location = response.headers.get("Location", "")
            if not (redirects and location and response.status in _REDIRECTS):
                return response
            next_url = urljoin(url, location)
            if next_url.partition("//")[2].partition("/")[0] != self.target.authority:
                raise RequestFailure("status", f"{url} redirects to {next_url}, which is another server; not followed")
            # RFC 9110 section 15.4: 307 and 308 repeat the request; after the others the page is requested with GET.
            if response.status not in (307, 308) and method not in ("GET", "HEAD"):
                method, body = "GET", None
                headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
            url = next_url.partition("#")[0]
        raise RequestFailure("status", f"{url} comes after {REDIRECTS_MAX} redirects, and is another one")

    def _recorded(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], deadline: float
    ) -> Response:
        began = time.monotonic()
        error = ""
        try:
            return self._exchange(method, url, body, headers, deadline)
        except RequestFailure as failure:
            error = failure.kind
            raise
        finally:
            self._record(Sample("request", f"{method} {urlsplit(url).path}", began, time.monotonic() - began, error))

    def _exchange(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], deadline: float
    ) -> Response:
        """Send one request and return its response. A kept connection that the server has closed is replaced once."""
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        cookie = self._cookie(url)
        while True:
            kept = self._connection is not None and self._connection.sock is not None
            if self._connection is None:
                self._connection = _Connection(self.target)
            connection = self._connection
            connection.deadline = deadline
            received = connection.received
            try:
                if kept:
                    connection.sock.expect_silence()
                self._send(connection, method, path, body, headers, cookie)
                answer = connection.answer()
            except BaseException as error:
                self.close()
                failure = _failure(error, url)
                if failure is None:
                    raise
                gone = failure.kind in ("closed_early", "reset") and connection.received == received
                if kept and gone and method in _IDEMPOTENT:
                    continue
                raise failure from error
            response = Response(answer.status, answer.headers, answer.body, url)
            self.cookies.extract_cookies(answer, urllib.request.Request(url))  # noqa: S310  # nothing is opened with it
            if not self.keep_alive:
                self.close()
            return response

    def _send(
        self,
        connection: _Connection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        cookie: str,
    ) -> None:
        given = {**self.headers, **headers}
        named = {name.lower() for name in given}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in self._fields:
            # A compressed body would have to be decompressed for checks.
            if name.lower() not in named and name not in ("Cookie", "Accept-Encoding"):
                connection.putheader(name, value)
        for name, value in given.items():
            connection.putheader(name, value)
        if cookie and "cookie" not in named:
            connection.putheader("Cookie", cookie)
        if body is not None or method in ("POST", "PUT", "PATCH"):
            connection.putheader("Content-Length", str(len(body or b"")))
        if not self.keep_alive:
            connection.putheader("Connection", "close")
        connection.endheaders(body)

    def _cookie(self, url: str) -> str:
        if not len(self.cookies):
            return ""
        request = urllib.request.Request(url)  # noqa: S310  # nothing is opened with it
        self.cookies.add_cookie_header(request)
        return request.get_header("Cookie") or ""

    def _check(self, response: Response, ok: int | Collection[int] | None, method: str) -> None:
        status = response.status
        fine = status < 400 if ok is None else status == ok if isinstance(ok, int) else status in ok
        if not fine:
            start = re.sub(r"\s+", " ", response.text[:200]).strip()
            raise RequestFailure("status", f"{method} {response.url} was answered with {status}: {start}")


class _Answer(http.client.HTTPResponse):
    """A response parsed as a whole by the native parser; the standard library also accepts input that is no HTTP."""

    def __init__(self, sock: Any, *_: Any, method: str | None = None, **__: Any) -> None:
        # Do not call the base class, which would create a file for the socket.
        self._socket: _Socket = sock
        self._method = method or "GET"
        self.headers = self.msg = http.client.HTTPMessage()
        self.status = 0
        self.body = b""
        self.will_close = True

    def begin(self) -> None:
        """Read the response. Raises ResponseFault and OSError."""
        responses = self._socket.responses
        responses.expect(self._method)
        response = None
        while response is None:
            data = self._socket.receive()
            if not data:
                response = responses.end()
                if response is None:
                    raise ResponseFault("Truncated", "The connection ended without a response.")
                break
            response = responses.feed(data)
        self.status, self.reason, fields_, self.body, keeps_alive = response
        for name, value in fields_:
            self.headers[name] = value  # this adds a field and replaces none
        self.will_close = not keeps_alive
        if unasked := responses.unused:
            raise ResponseFault("Unasked", f"{len(unasked)} bytes came behind the response: {unasked[:100]!r}")

    def isclosed(self) -> bool:
        return True

    def close(self) -> None:
        pass


class _Connection(http.client.HTTPConnection):
    """The standard connection, with a socket whose operations respect ``deadline``."""

    response_class = _Answer

    def __init__(self, target: Target) -> None:
        super().__init__(target.host, target.port)
        self._target = target
        self.deadline = 0.0
        self.received = 0
        self.sock: Any = None

    def connect(self) -> None:
        try:
            connected = self._target.connect(max(self.deadline - time.monotonic(), 0.001))
        except ConnectionRefusedError as error:
            raise RequestFailure("refused", f"{self._target.authority}: {error.strerror}") from error
        except TimeoutError as error:
            raise RequestFailure("timeout", f"{self._target.authority}: no connection in time") from error
        except OSError as error:
            raise RequestFailure("connect", f"{self._target.authority}: {error.strerror or error}") from error
        self.sock = _Socket(connected, self)

    def answer(self) -> _Answer:
        """Return the complete response to the request. Raises ResponseFault and OSError."""
        answer = self.getresponse()
        if not isinstance(answer, _Answer):
            raise TypeError(f"{type(answer).__name__} in place of our own response")
        return answer


class _Socket:
    """The part of a socket that HTTPConnection and _Answer use, with the connection's deadline."""

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock = sock
        self._connection = connection
        self.responses = Responses(BODY_MAX)

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._remaining())
        self._sock.sendall(data)  # one timeout for all of it

    def expect_silence(self) -> None:
        """Check that no unrequested data have arrived, which would be taken for a response. Raises ResponseFault. A
        closed connection is no fault; the next request detects it.
        """
        self._sock.settimeout(0.0)
        with contextlib.suppress(OSError):
            if data := self._sock.recv(100, MSG_PEEK):
                raise ResponseFault("Unasked", f"the server spoke before it was asked again: {data!r}")

    def receive(self) -> bytes:
        self._sock.settimeout(self._remaining())
        data = self._sock.recv(65536)
        self._connection.received += len(data)
        return data

    def close(self) -> None:
        self._sock.close()

    def _remaining(self) -> float:
        remaining = self._connection.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining


def _failure(error: BaseException, url: str) -> RequestFailure | None:
    """Convert an exception to a failure with the generator's names; None if the exchange did not cause it."""
    if isinstance(error, RequestFailure):
        return error
    if isinstance(error, TimeoutError):
        return RequestFailure("timeout", f"{url}: no whole answer in time")
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return RequestFailure("reset", f"{url}: the server reset the connection")
    if isinstance(error, ResponseFault) and error.args[0] == "Truncated":
        return RequestFailure("closed_early", f"{url}: the server closed the connection before the answer's end")
    if isinstance(error, ResponseFault):
        name, sentence = error.args
        return RequestFailure("malformed", f"{url}: {name}: {sentence}")
    if isinstance(error, (http.client.InvalidURL, http.client.CannotSendHeader)):
        return None  # a mistake in the test
    if isinstance(error, OSError):
        return RequestFailure("connect", f"{url}: {error.strerror or error}")
    return None


def _body(data: bytes | str | Mapping[str, Any] | None, json: Any) -> tuple[bytes | None, str]:
    if json is not None:
        if data is not None:
            raise TypeError("data and json are two bodies; give one")
        return json_module.dumps(json).encode(), "application/json"
    if data is None or isinstance(data, bytes):
        return data, ""
    if isinstance(data, str):
        return data.encode(), "text/plain; charset=utf-8"
    return urlencode(data, doseq=True).encode(), "application/x-www-form-urlencoded"


def _forget(_sample: Sample) -> None:
    pass
