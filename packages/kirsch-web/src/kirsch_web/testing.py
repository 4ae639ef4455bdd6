"""A client for tests, with one interface for an application in the same process and for a real server.

    client = Client(app)
    reply = client.post("/books/add", json={"title": "Emma"})
    assert reply.status == 201

In process every call goes through ``wsgiref.validate``, which raises AssertionError if either side breaks WSGI.
The client keeps cookies and sends them again. It does not follow redirects, so that a test can check them.
"""

from __future__ import annotations

import json as json_module
import time
from inspect import iscoroutinefunction
from typing import Any
from urllib.parse import urlencode, urlsplit

from kirsch_web.fields import Headers, environ_key, parse_http_date

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
        """The text that the application wrote to ``wsgi.errors``; empty with a real server."""

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """Return the value of a JSON body."""
        return json_module.loads(self.body)

    def __repr__(self) -> str:
        return f"<Reply {self.status} {self.headers.get('Content-Type')} {self.body[:200]!r}>"


class Client:
    """Sends requests to an application and returns its responses.

    Args:
        app: the WSGI application, or a :class:`kirsch_web.ASGI`, which lives in an event loop of the client's own until
            :meth:`close`.
        server: False calls it in process; True serves it by ``wsgiref`` on a free port of the loopback interface, in a
            thread; a URL such as ``http://127.0.0.1:8000`` asks a server that runs already.
        headers: header fields of every request.
        mount: the path at which the application is mounted; only without a server.
    """

    def __init__(
        self,
        app: Callable[..., Any] | None = None,
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
        self._loop: _Loop | None = None
        if hasattr(app, "__call__") and iscoroutinefunction(type(app).__call__):  # noqa: B004 - its kind is asked for
            if server is True:
                raise ValueError("the standard library has no server of ASGI: give the URL of one that runs")
            self._loop = _Loop(app)
        if server is True:
            self._start()

    # Requests

    def get(self, path: str, **options: Any) -> Reply:
        """Send a GET request. The options are those of :meth:`request`."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> Reply:
        """Send a POST request. The options are those of :meth:`request`."""
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
            form: the fields of a form, sent urlencoded, or as multipart if there are ``files``.
            files: for each input's name a tuple ``(filename, content)`` or ``(filename, content, media type)``.
            json: a value to send as JSON.
            body: bytes to send as they are.
            headers: further header fields, which override the client's.
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
        """Return the environ that a WSGI server makes for a request."""
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
            environ[environ_key(name)] = value
        return environ

    def _call(self, method: str, path: str, fields: Headers, body: bytes) -> Reply:
        from wsgiref.validate import validator

        if self._loop is not None:
            return self._loop.ask(self, method, path, fields, body)
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
            found: Iterable[bytes] = app(environ, start_response)
            return found

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
            given = {each.partition("=")[0].lower(): each.partition("=")[2] for each in attributes}
            expires = parse_http_date(given.get("expires", ""))
            lasts = given.get("max-age", "")
            if lasts.startswith("-") or lasts == "0" or (not lasts and expires is not None and expires <= time.time()):
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
        """End the server, or the event loop, that this client has started."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Loop:
    """An event loop in a thread, with an ASGI application from its startup to its shutdown."""

    def __init__(self, app: Any) -> None:
        import asyncio
        import threading

        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._inbox: Any = asyncio.Queue()
        self._outbox: Any = asyncio.Queue()
        try:
            self._run(self._start())
        except BaseException:
            self._stop()
            raise

    def _run(self, coroutine: Any) -> Any:
        import asyncio

        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _start(self) -> None:
        import asyncio

        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self._life = asyncio.ensure_future(self._app(scope, self._inbox.get, self._outbox.put))
        await self._step("startup")

    async def _step(self, name: str) -> None:
        await self._inbox.put({"type": f"lifespan.{name}"})
        message = await self._outbox.get()
        if message["type"] == f"lifespan.{name}.failed":
            await self._life  # raises what the application has raised

    def ask(self, client: Client, method: str, path: str, fields: Headers, body: bytes) -> Reply:
        """Send one request, and read the whole response."""
        import io
        from urllib.parse import unquote

        path, _, query = path.partition("?")
        parts = urlsplit(client.base)
        errors = io.StringIO()
        given = Headers(fields)
        given.setdefault("Host", parts.netloc)
        if body or method in ("POST", "PUT", "PATCH"):
            given.setdefault("Content-Length", str(len(body)))
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.5"}, "http_version": "1.1",
            "method": method, "scheme": parts.scheme, "path": client.mount + unquote(path, errors="replace"),
            "raw_path": (client.mount + path).encode("latin-1"), "query_string": query.encode("latin-1"),
            "root_path": client.mount, "server": (parts.hostname, parts.port or 80), "client": ("127.0.0.1", 50000),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in given],
            "wsgi.errors": errors,
        }  # fmt: skip
        start, data = self._run(self._exchange(scope, body))
        headers = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]])
        return Reply(start["status"], headers, b"" if method == "HEAD" else data, errors.getvalue())

    async def _exchange(self, scope: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        import asyncio

        messages = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []
        over = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                over.set()

        await self._app(scope, receive, send)
        return sent[0], b"".join(message.get("body", b"") for message in sent[1:])

    def close(self) -> None:
        """Shut the application down, and end the loop."""
        try:
            self._run(self._step("shutdown"))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


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
    """Return a name as browsers write it."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
