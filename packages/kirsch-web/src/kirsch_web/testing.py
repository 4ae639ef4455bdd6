"""A client for tests: it calls the application in process, or asks a real server, with one and the same interface.

    client = Client(app)
    reply = client.post("/books/add", json={"title": "Emma"})
    assert reply.status == 201

In process every call goes through ``wsgiref.validate``, which raises AssertionError where either side breaks WSGI.
Cookies that are set are sent again. Redirects are not followed: a test says what it expects.
"""

from __future__ import annotations

import json as json_module
from typing import Any
from urllib.parse import urlencode, urlsplit

from kirsch_web.fields import Headers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    Fields = Iterable[tuple[str, str]] | Mapping[str, str]


_VALIDATED = ("GET", "HEAD", "POST", "OPTIONS", "PATCH", "PUT", "DELETE", "TRACE")


class Reply:
    """A response as the client received it."""

    def __init__(self, status: int, headers: Headers, body: bytes, errors: str = "") -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.errors = errors
        """What was written to the server's error log meanwhile; empty over a real server."""

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The value of a JSON body."""
        return json_module.loads(self.body)

    def __repr__(self) -> str:
        return f"<Reply {self.status} {self.headers.get('Content-Type')} {self.body[:200]!r}>"


class Client:
    """Asks an application.

    Args:
        app: the WSGI application.
        server: False calls it in process; True serves it by ``wsgiref`` on a free port of the loopback interface, in a
            thread; a URL such as ``http://127.0.0.1:8000`` asks a server that runs already.
        headers: fields of every request.
        mount: the path that the application is mounted at; in process only.
    """

    def __init__(
        self,
        app: Callable[..., Iterable[bytes]] | None = None,
        server: bool | str = False,
        *,
        headers: Fields = (),
        mount: str = "",
    ) -> None:
        self.app = app
        self.headers = Headers(_pairs(headers))
        self.cookies: dict[str, str] = {}
        self.mount = mount
        self._server: Any = None
        self.base = server if isinstance(server, str) else "http://testserver"
        self._remote = bool(server)
        if server is True:
            self._start()

    # Requests

    def get(self, path: str, **options: Any) -> Reply:
        """GET; the options are those of :meth:`request`."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> Reply:
        """POST; the options are those of :meth:`request`."""
        return self.request("POST", path, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        form: Mapping[str, Any] | None = None,
        files: Mapping[str, tuple[str, bytes] | tuple[str, bytes, str]] | None = None,
        json: Any = None,
        body: bytes = b"",
        headers: Fields = (),
    ) -> Reply:
        """Send a request and read the whole response.

        Args:
            method: such as ``PUT``.
            path: with a query, or without; percent-encoded as in a URL.
            query: names and values; a list is several fields.
            form: an urlencoded form, or with ``files`` a multipart one.
            files: names of inputs, each with filename, content and, if it matters, media type.
            json: a value to send as JSON.
            body: bytes to send as they are.
            headers: further fields, which count more than the client's own.
        """
        fields = Headers(self.headers)
        content_type = ""
        if files is not None:
            body, content_type = _multipart(form or {}, files)
        elif form is not None:
            body, content_type = urlencode(form, doseq=True).encode(), "application/x-www-form-urlencoded"
        elif json is not None:
            body, content_type = json_module.dumps(json).encode(), "application/json"
        if content_type:
            fields["Content-Type"] = content_type
        for name, value in _pairs(headers):
            fields[name] = value
        if query:
            path += ("&" if "?" in path else "?") + urlencode(query, doseq=True)
        if self.cookies and "Cookie" not in fields:
            fields["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        reply = (self._ask if self._remote else self._call)(method, path, fields, body)
        self._keep_cookies(reply)
        return reply

    def environ(self, method: str, path: str, fields: Headers, body: bytes) -> dict[str, Any]:
        """The environ of a request, as a server makes it."""
        import io
        from urllib.parse import unquote_to_bytes

        path, _, query = path.partition("?")
        parts = urlsplit(self.base)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": self.mount,
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "SERVER_NAME": parts.hostname or "testserver",
            "SERVER_PORT": str(parts.port or 80),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": parts.netloc,
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": parts.scheme,
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        if body or method in ("POST", "PUT", "PATCH"):
            environ["CONTENT_LENGTH"] = str(len(body))
        for name, value in fields:
            key = name.upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = "HTTP_" + key
            environ[key] = value
        return environ

    def _call(self, method: str, path: str, fields: Headers, body: bytes) -> Reply:
        from wsgiref.validate import validator

        environ = self.environ(method, path, fields, body)
        errors = environ["wsgi.errors"]
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            if started and exc_info is None:
                raise AssertionError("start_response was called twice")
            started[:] = [(status, headers)]
            return lambda _data: None

        assert self.app is not None, "there is no application to call"
        app = self.app

        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            environ["REQUEST_METHOD"] = method
            return app(environ, start_response)

        if method not in _VALIDATED:
            environ["REQUEST_METHOD"] = "POST"  # the validator warns of methods that are younger than it is
        iterable = validator(call)(environ, start_response)
        try:
            data = b"".join(iterable)
        finally:
            iterable.close()  # type: ignore[attr-defined]
        status, headers = started[0]
        return Reply(int(status[:3]), Headers(headers), data, errors.getvalue())

    def _ask(self, method: str, path: str, fields: Headers, body: bytes) -> Reply:
        from http.client import HTTPConnection

        parts = urlsplit(self.base)
        connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in fields, skip_accept_encoding=True)
            for name, value in fields:
                connection.putheader(name, value)
            if (body or method in ("POST", "PUT", "PATCH")) and "Content-Length" not in fields:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            response = connection.getresponse()
            return Reply(response.status, Headers(response.getheaders()), response.read())
        finally:
            connection.close()

    def _keep_cookies(self, reply: Reply) -> None:
        for field in reply.headers.get_all("Set-Cookie"):
            pair, *attributes = (part.strip() for part in field.split(";"))
            name, _, value = pair.partition("=")
            if any(each.lower() == "max-age=0" for each in attributes):
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value

    # The server

    def _start(self) -> None:
        import threading

        from kirsch_web.threaded import ThreadedServer

        assert self.app is not None, "there is no application to serve"
        self._server = ThreadedServer(("127.0.0.1", 0), self.app)
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve, daemon=True).start()

    def close(self) -> None:
        """End the server that this client has started."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _pairs(fields: Fields) -> Iterable[tuple[str, str]]:
    items = getattr(fields, "items", None)
    return items() if items is not None else fields  # type: ignore[return-value]


def _multipart(
    form: Mapping[str, Any], files: Mapping[str, tuple[str, bytes] | tuple[str, bytes, str]]
) -> tuple[bytes, str]:
    import secrets

    boundary = secrets.token_hex(16)
    parts = []
    for name, value in form.items():
        values = value if isinstance(value, (list, tuple)) else (value,)
        parts += [f'Content-Disposition: form-data; name="{_quoted(name)}"\r\n\r\n{each}'.encode() for each in values]
    for name, (filename, content, *kind) in files.items():
        head = (
            f'Content-Disposition: form-data; name="{_quoted(name)}"; filename="{_quoted(filename)}"\r\n'
            f"Content-Type: {kind[0] if kind else 'application/octet-stream'}\r\n\r\n"
        )
        parts.append(head.encode() + content)
    body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    return body + b"--%s--\r\n" % boundary.encode(), f"multipart/form-data; boundary={boundary}"


def _quoted(text: str) -> str:
    """A name as browsers write it."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
