"""The request: a view of ``environ`` in which nothing is parsed before it is asked for."""

from __future__ import annotations

from contextvars import ContextVar

from kirsch_web import bodies, fields, percent
from kirsch_web.errors import HTTPError
from kirsch_web.response import Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from kirsch_web.forms import Form
    from kirsch_web.interfaces import Application, RequestPlan

NOTHING: Any = object()
"""No result yet."""

_current: ContextVar[Request | list[Any]] = ContextVar("kirsch_web.request")
set_current = _current.set
reset_current = _current.reset


def current() -> Request:
    """Return the request that this thread, greenlet or task is answering. Raises LookupError outside of one."""
    found = _current.get()
    if type(found) is list:  # what makes the request, and then the request
        if len(found) == 3:
            found.append(Request(*found))
        return found[3]  # type: ignore[no-any-return]
    return found  # type: ignore[return-value]


class _PlannedHandler:
    """The handler that the plan calls, made only if a hook looks at it."""

    def __get__(self, request: Request, _owner: type) -> Callable[[], object]:
        from functools import partial

        return partial(request.plan.run, request)


class Request:
    """One request. Handlers that declare a parameter of this type receive it; :func:`current` gives it anywhere.

    Handlers and tools may set further attributes on it, which live as long as the request does.
    """

    # Defaults of what is set on few requests only: an attribute of the class costs nothing for each request.
    previous: Request | None = None
    """The request that an internal redirect came from."""
    earlier_cookies: Sequence[str] = ()
    """The Set-Cookie fields of the requests that internal redirects have ended."""
    handler: Callable[[], object] | None = _PlannedHandler()  # type: ignore[assignment]
    """The callable that makes the page. A hook before the handler may replace it, or set None."""
    dispatched: Callable[[], object] | None = None
    """The handler that a dispatcher of the application's own has set."""
    user: str = ""
    """The name of the client, if a tool such as ``basic_auth`` has checked it."""
    stage: str = ""
    """The hook point that the request is at or has passed."""
    error: BaseException | None = None
    """The unexpected exception that the error hooks run for."""
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
        """The segments of the path behind the handler's own, for its positional parameters."""
        self.captured = captured
        """Segments that the path gives a name: of ``popargs`` and routes."""

    @classmethod
    def __from_request__(cls, request: Request) -> Request:
        return request

    @property
    def method(self) -> str:
        """The method; GET if HEAD was asked is still HEAD."""
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
        """The path that the application is mounted at, without a slash at its end."""
        return percent.wsgi_path(self.environ.get("SCRIPT_NAME", "")).rstrip("/")

    @property
    def config(self) -> dict[str, Any]:
        """The merged configuration of the path. It is shared by its requests: read it, do not change it."""
        return self.plan.config if self._config is None else self._config

    @config.setter
    def config(self, config: dict[str, Any]) -> None:
        """For dispatchers, which collect the configuration of the path that they have found."""
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
        """The values of each name in the query; 400 if it is not UTF-8."""
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
        """Host and, unless it is the scheme's own, port."""
        host: str | None = self.environ.get("HTTP_HOST")
        if host:
            return host
        name, port = self.environ["SERVER_NAME"], self.environ["SERVER_PORT"]
        return name if port == {"http": "80", "https": "443"}.get(self.scheme) else f"{name}:{port}"

    @property
    def origin(self) -> str:
        """``https://shop.example``: scheme and host."""
        return f"{self.scheme}://{self.host}"

    @property
    def remote(self) -> str:
        """The client's address as the server tells it."""
        remote: str = self.environ.get("REMOTE_ADDR", "")
        return remote

    def body(self) -> bytes:
        """Return the whole body, up to ``body.limit``; 413 beyond."""
        if self._body is None:
            self._body = bodies.read(self.environ, self.plan.limits.limit)
        return self._body

    @property
    def form(self) -> Form:
        """The fields and files of a form in the body; 415 if the body is something else."""
        if self._form is None:
            self._form = bodies.read_form(self.environ, self.plan.limits)
        return self._form

    def json(self) -> Any:
        """Return the value of a JSON body; 415 if the body is something else, 400 if it is not JSON."""
        if self._json is None:
            self._json = (bodies.read_json(self.environ, self.plan.limits),)
        return self._json[0]

    @property
    def response(self) -> Response:
        """The response to be: a handler that returns data can set status, fields and cookies here."""
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
        """True if a handler or a hook has asked for the response, and may have changed it."""
        return self._response is not None

    def _continue_as(self, new: Request, cookies: Sequence[str]) -> None:
        """Let ``new`` continue this request after an internal redirect; ``cookies`` are those that this one has set."""
        new.previous = self
        new.earlier_cookies = [*self.earlier_cookies, *cookies]
        new._varies = self._varies

    def discard(self) -> None:
        """Forget the response, whose body may be a file that has to be closed: another one takes its place."""
        response, self._response, self._result = self._response, None, NOTHING
        close = None if response is None else getattr(response.body, "close", None)
        if close is not None:
            close()

    def varies_by_cookie(self) -> None:
        """Say in Vary that the response depends on the client's cookies; a plain result needs no Response for it."""
        self._varies = True
        if self._response is not None:
            self._response.headers.vary("Cookie")

    @property
    def session(self) -> Any:
        """The session, if the session tool is on; RuntimeError if it is off."""
        if self._session is None:
            raise RuntimeError(f"no session: the tool `session` is not on for {self.path}")
        return self._session

    def accepts(self, *offers: str) -> str:
        """Return the media type of ``offers`` that the client likes best, the first of equals; empty if it takes
        none."""
        return fields.prefers(self.environ.get("HTTP_ACCEPT", ""), offers)

    def disconnected(self) -> bool:
        """Return whether the client has left, if the server can tell (Kirsch does); else False."""
        ask = self.environ.get("kirsch.disconnected")
        return bool(ask()) if ask is not None else False

    def url(self, path: str = "") -> str:
        """Return an absolute URL of a path below the mount; default: of this request, without its query."""
        quoted = "/".join(percent.quote_segment(part) for part in (self.mount + (path or self.path)).split("/"))
        return self.origin + quoted

    def close(self) -> None:
        """Remove temporary files of the body."""
        if self._form is not None:
            self._form.close()

    def __repr__(self) -> str:
        return f"<Request {self.environ.get('REQUEST_METHOD', '')} {self.environ.get('PATH_INFO', '')}>"


def require(condition: object, status: int = 400, detail: str = "") -> None:
    """Raise HTTPError unless ``condition`` is true."""
    if not condition:
        raise HTTPError(status, detail)
