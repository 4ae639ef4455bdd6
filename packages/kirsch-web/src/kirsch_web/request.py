"""The request: a view of ``environ`` that parses each part when a handler first reads it."""

from __future__ import annotations

from contextvars import ContextVar

from kirsch_web import bodies, fields, percent
from kirsch_web.errors import HTTPError
from kirsch_web.response import Response, close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from kirsch_web.forms import Form
    from kirsch_web.interfaces import Application, RequestPlan

NOTHING: Any = object()
"""The value of ``Request._result`` as long as the handler has not returned."""

_current: ContextVar[Request | list[Any]] = ContextVar("kirsch_web.request")
set_current = _current.set
reset_current = _current.reset


def current() -> Request:
    """Return the request that this thread, greenlet or task is answering. Raises LookupError if there is none."""
    found = _current.get()
    if type(found) is list:  # the arguments of Request; the request takes the place of the first once it is made
        if not isinstance(found[0], Request):
            found[0] = Request(*found)
        return found[0]  # type: ignore[no-any-return]
    return found  # type: ignore[return-value]


class Request:
    """One request. A handler receives it in a parameter of this type; :func:`current` returns it anywhere.

    Handlers and tools may set further attributes on the request, which live as long as the request does.
    """

    # Defaults of attributes that few requests set. As attributes of the class they cost no time per request.
    previous: Request | None = None
    """The request that was redirected to this one by an InternalRedirect; None if there was none."""
    earlier_cookies: Sequence[str] = ()
    """The values of Set-Cookie of the previous requests, which ended in an internal redirect."""
    dispatched: Callable[[], object] | None = None
    """The handler that the application's own dispatcher has set."""
    user: str = ""
    """The name of the client, if a tool such as ``basic_auth`` has checked it."""
    stage: str = ""
    """The hook point that the request reached last, or ``handler``."""
    error: BaseException | None = None
    """The unexpected exception for which the error hooks run."""
    _handler: Any = NOTHING
    """The handler that a hook or a dispatcher has set."""
    _response: Response | None = None
    _result: Any = NOTHING
    _query: dict[str, list[str]] | None = None
    _form: Form | None = None
    _json: tuple[Any] | None = None
    _cookies: dict[str, str] | None = None
    _body: bytes | None = None
    _path: str | None = None
    _session: Any = None
    _config: dict[str, Any] | None = None
    _varies = False

    def __init__(
        self,
        environ: dict[str, Any],
        app: Application,
        plan: RequestPlan,
        rest: Sequence[str] = (),
        captured: Mapping[str, str] | None = None,
    ) -> None:
        self.environ = environ
        self.app = app
        self.plan = plan
        self.rest = rest
        """The segments after the handler's own path, for its positional parameters."""
        self.captured = captured
        """The segments that ``popargs`` or a route gives a name, by that name."""

    @classmethod
    def __from_request__(cls, request: Request) -> Request:
        return request

    @property
    def handler(self) -> Callable[[], object] | None:
        """The callable that makes the page. A hook before the handler may replace it, or set None and make the page."""
        return self._handler if self._handler is not NOTHING else lambda: self.plan.run(self)

    @handler.setter
    def handler(self, handler: Callable[[], object] | None) -> None:
        self._handler = handler

    @property
    def method(self) -> str:
        """The method as the client sent it: HEAD stays HEAD, although the handler of GET answers it."""
        method: str = self.environ["REQUEST_METHOD"]
        return method

    @property
    def path(self) -> str:
        """The path below the application's mount, decoded."""
        if self._path is None:
            self._path = percent.wsgi_path(self.environ.get("PATH_INFO", ""))
        return self._path

    @property
    def mount(self) -> str:
        """The path at which the application is mounted, without a slash at the end."""
        return percent.wsgi_path(self.environ.get("SCRIPT_NAME", "")).rstrip("/")

    @property
    def config(self) -> dict[str, Any]:
        """The merged configuration of the path. All requests of the path share the dict: do not change it."""
        return self.plan.config if self._config is None else self._config

    @config.setter
    def config(self, config: dict[str, Any]) -> None:
        """Set the configuration. The application's own dispatcher does so for the path that it has found."""
        self._config = config

    @property
    def headers(self) -> fields.RequestHeaders:
        """The header fields."""
        return fields.RequestHeaders(self.environ)

    @property
    def query_string(self) -> str:
        """The query as it arrived, still percent-encoded."""
        query: str = self.environ.get("QUERY_STRING", "")
        return query

    @property
    def query(self) -> dict[str, list[str]]:
        """The values of each name in the query. Raises 400 if the query is not UTF-8."""
        if self._query is None:
            query = self.environ.get("QUERY_STRING")
            self._query = percent.multiple(percent.pairs(query, self.plan.limits.fields)) if query else {}
        return self._query

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that the client sent."""
        if self._cookies is None:
            self._cookies = fields.cookies(self.environ.get("HTTP_COOKIE", ""))
        return self._cookies

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        scheme: str = self.environ["wsgi.url_scheme"]
        return scheme

    @property
    def host(self) -> str:
        """The host, and the port unless it is the default port of the scheme."""
        host: str | None = self.environ.get("HTTP_HOST")
        if host:
            return host
        name, port = self.environ["SERVER_NAME"], self.environ["SERVER_PORT"]
        return name if port == {"http": "80", "https": "443"}.get(self.scheme) else f"{name}:{port}"

    @property
    def origin(self) -> str:
        """The scheme and the host, such as ``https://shop.example``."""
        return f"{self.scheme}://{self.host}"

    @property
    def remote(self) -> str:
        """The client's address as the server gives it; empty if the server gives none."""
        remote: str = self.environ.get("REMOTE_ADDR", "")
        return remote

    def body(self) -> bytes:
        """Return the whole body. Raises 413 if it is larger than ``body.limit``."""
        if self._body is None:
            self._body = bodies.read(self.environ, self.plan.limits.limit)
        return self._body

    @property
    def form(self) -> Form:
        """The fields and files of the form in the body. Raises 415 if the body is not a form."""
        if self._form is None:
            self._form = bodies.read_form(self.environ, self.plan.limits)
        return self._form

    def json(self) -> Any:
        """Return the value of a JSON body. Raises 415 if its media type is not JSON, 400 if it cannot be parsed."""
        if self._json is None:
            self._json = (bodies.read_json(self.environ, self.plan.limits),)
        return self._json[0]

    @property
    def response(self) -> Response:
        """The response to send. A handler that returns data can set status, header fields and cookies here."""
        if self._response is None:
            response = self._response = Response.__new__(Response)
            response.status = self.plan.status
            response.headers = fields.Headers.trusted(list(self.plan.fields))
            response.body = b""
            if self._varies:
                response.headers.vary("Cookie")
            if self._result is not NOTHING:
                response.set_body(self._result)
        return self._response

    @property
    def has_response(self) -> bool:
        """True if a handler or a hook has read :attr:`response`, and so may have changed it."""
        return self._response is not None

    def _continue_as(self, new: Request, cookies: Sequence[str]) -> None:
        """Let ``new`` continue this request after an internal redirect. ``cookies`` are its own Set-Cookie values."""
        new.previous = self
        new.earlier_cookies = [*self.earlier_cookies, *cookies]
        new._varies = self._varies

    def discard(self) -> None:
        """Drop the response and close its body, because another response takes its place."""
        response, self._response, self._result = self._response, None, NOTHING
        if response is not None:
            close(response.body)

    def varies_by_cookie(self) -> None:
        """Add ``Cookie`` to the response's Vary field, without making a Response for a plain result."""
        self._varies = True
        if self._response is not None:
            self._response.headers.vary("Cookie")

    @property
    def session(self) -> Any:
        """The session. Raises RuntimeError if the session tool is off."""
        if self._session is None:
            raise RuntimeError(f"no session: the tool `session` is not on for {self.path}")
        return self._session

    def accepts(self, *offers: str) -> str:
        """Return the media type in ``offers`` that the client prefers, the first of equals; "" if it accepts none."""
        return fields.prefers(self.environ.get("HTTP_ACCEPT", ""), offers)

    def disconnected(self) -> bool:
        """Return whether the client has closed the connection. False if the server cannot tell (Kirsch can)."""
        ask = self.environ.get("kirsch.disconnected")
        return bool(ask()) if ask is not None else False

    def url(self, path: str = "") -> str:
        """Return the absolute URL of a path below the mount; by default of this request's path, without its query."""
        quoted = "/".join(percent.quote_segment(part) for part in (self.mount + (path or self.path)).split("/"))
        return self.origin + quoted

    def close(self) -> None:
        """Remove the temporary files of the body."""
        if self._form is not None:
            self._form.close()

    def __repr__(self) -> str:
        return f"<Request {self.environ.get('REQUEST_METHOD', '')} {self.environ.get('PATH_INFO', '')}>"


def require(condition: object, status: int = 400, detail: str = "") -> None:
    """Raise HTTPError unless ``condition`` is true."""
    if not condition:
        raise HTTPError(status, detail)
