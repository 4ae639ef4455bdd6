"""Request and Response: the order of processing, hooks, and finalizing.

The configuration of a path is merged for each request, because programs may change it at any time. The attributes,
hooks and tools that it sets are compiled into a :class:`_Plan`, which is reused as long as the merged configuration is
equal.
"""

from __future__ import annotations

import functools
import re
import time
import uuid
from http.cookies import CookieError, SimpleCookie
from typing import Any

from kirsch_cherrypy import _cpreqbody, _local
from kirsch_cherrypy._cperror import (
    STOPS,
    HTTPError,
    HTTPRedirect,
    InternalRedirect,
    bare_error,
    format_exc,
    set_response_of,
)
from kirsch_cherrypy._cphooks import Hook, HookMap
from kirsch_cherrypy._cptools import Toolbox
from kirsch_cherrypy._status import valid_status
from kirsch_cherrypy.lib import as_iterable, httputil, is_iterator, reprconf
from kirsch_web.hooks import POINTS
from kirsch_web.response import NO_CONTENT

serving = _local.serving
hookpoints = POINTS

# Handlers of the configuration namespaces of requests. Programs may replace them. _Plan compiles or calls them.


def hooks_namespace(key: str, value: Any) -> None:
    """Attach the hook that ``hooks.POINT`` or ``hooks.POINT.NUMBER`` sets: a callable, a Hook or a dotted name."""
    serving.request.hooks[key.split(".", 1)[0]].append(_hook(value))


def _hook(value: Any) -> Hook:
    value = reprconf.attributes(value) if isinstance(value, str) else value
    return value if isinstance(value, Hook) else Hook(value)


def request_namespace(key: str, value: Any) -> None:
    """Set an attribute of the request (``request.NAME``) or of its body (``request.body.NAME``)."""
    body, dot, name = key.partition(".")
    setattr(serving.request.body if dot and body == "body" else serving.request, name or key, value)


def response_namespace(key: str, value: Any) -> None:
    """Set an attribute (``response.NAME``) or a header field (``response.headers.NAME``) of the response."""
    if key.startswith("headers."):
        serving.response.headers[key[8:]] = value
    else:
        setattr(serving.response, key, value)


def error_page_namespace(key: str, value: Any) -> None:
    """Set the page of a status (``error_page.404``) or of all others (``error_page.default``)."""
    serving.request.error_page[key if key == "default" else int(key)] = value


_BUILTIN = {
    "hooks": hooks_namespace, "request": request_namespace, "response": response_namespace,
    "error_page": error_page_namespace,
}  # fmt: skip


class _Plan:
    """The compiled form of one merged configuration. The module's docstring describes it."""

    def __init__(self, request: Request, config: dict[str, Any]) -> None:
        self.config = dict(config)
        self.generation = reprconf.NamespaceSet.generation
        self.hooks: dict[str, list[Hook]] = {}
        self.toolmaps: dict[str, dict[str, dict[str, Any]]] = {}
        steps: list[Any] = []  # the steps to apply to each request, in order
        found = reprconf.by_namespace(config)
        for namespace, handler in list(request.namespaces.items()):
            values = found.get(namespace, {})
            if not values and not hasattr(handler, "__exit__"):
                continue
            if handler is hooks_namespace:
                for name, value in values.items():
                    self.hooks.setdefault(name.split(".", 1)[0], []).append(_hook(value))
            elif isinstance(handler, Toolbox):
                steps += [tool._setup for tool in handler._compile(values, self.toolmaps, self.hooks)]
            else:
                steps.append(functools.partial(reprconf.apply, handler, values))
        self.steps = steps

    def run(self, request: Request) -> None:
        request._planned = self.toolmaps
        for point, hooks in self.hooks.items():
            request.hooks[point].extend(hooks)
        for step in self.steps:
            step()


class _Message:
    """The base class of requests and responses."""

    @functools.cached_property
    def cookie(self) -> Any:
        """The cookies that the client sent, or that the response sets. Created on first access."""
        return SimpleCookie()


class Request(_Message):
    """One request, whose attributes programs read from ``cherrypy.request``."""

    # The connection.
    remote = httputil.Host("127.0.0.1", 1111)
    local = httputil.Host("127.0.0.1", 80)
    server_protocol = "HTTP/1.1"
    scheme = "http"
    multiprocess = False
    multithread = True
    wsgi_environ: dict[str, Any] = {}  # noqa: RUF012 - for requests outside of serving
    # The request of the client.
    request_line = ""
    protocol: Any = (1, 1)
    method = "GET"
    base = ""
    path_info = "/"
    script_name = ""
    query_string_encoding = "utf8"
    query_string = ""
    params: dict[str, Any] = {}  # noqa: RUF012
    headers = httputil.HeaderMap()
    header_list: Any = []  # noqa: RUF012
    # The body.
    methods_with_bodies: Any = ("POST", "PUT", "PATCH")
    process_request_body = True
    rfile: Any = None
    # The application and its handler.
    app: Any = None
    dispatch: Any = None
    config: Any = None
    namespaces = reprconf.NamespaceSet(_BUILTIN)
    hooks: Any = HookMap()
    _planned: Any = None
    handler: Any = None
    is_index: bool | None = None
    # Errors.
    throws: Any = (KeyboardInterrupt, SystemExit, InternalRedirect)
    error_response: Any = HTTPError(500).set_response
    show_mismatched_params = True
    error_page: dict[Any, Any] = {}  # noqa: RUF012
    show_tracebacks = True
    # The course of the request.
    stage: Any = None
    login: Any = None
    throw_errors = False
    prev: Request | None = None
    closed = False

    def __init__(
        self, local_host: Any, remote_host: Any, scheme: str = "http", server_protocol: str = "HTTP/1.1"
    ) -> None:
        self.local = local_host
        self.remote = remote_host
        if scheme != "http":
            self.scheme = scheme
        if server_protocol != "HTTP/1.1":
            self.server_protocol = server_protocol
        kind = type(self)
        self.error_page = dict(kind.error_page)
        self.hooks = kind.hooks.copy()
        self.params = {}

    # Created on first access: most requests have no body and no tool that reads its options.

    @functools.cached_property
    def unique_id(self) -> Any:
        """A random UUID that stays the same for the whole request."""
        return uuid.uuid4()

    @functools.cached_property
    def body(self) -> Any:
        """The request body (see :mod:`_cpreqbody`), or None if there is none. A hook may replace it."""
        rfile = self.rfile
        return None if rfile is None else _cpreqbody.RequestBody(rfile, self.headers, request_params=self.params)

    @functools.cached_property
    def toolmaps(self) -> Any:
        """The options of tools, by namespace and name: a copy for this request, which programs may change."""
        return {
            space: {name: dict(options) for name, options in tools.items()}
            for space, tools in (self._planned or {}).items()
        }

    def close(self) -> None:
        """Run the hooks of ``on_end_request``. Does nothing if they have run."""
        if not self.closed:
            self.closed = True
            self._pass("on_end_request")
            self.stage = "close"

    def run(self, method: str, path: str, query_string: str, req_protocol: str, headers: Any, rfile: Any) -> Any:
        """Process the request, and return the response.

        ``headers`` has pairs of names and values. ``path`` is decoded, and begins with the application's mount point.
        """
        response = _local.current().response
        self.stage = "run"
        try:
            self.method = method
            path = path or "/"
            if query_string:
                self.query_string = query_string
            self.protocol = min(_protocol(req_protocol), _protocol(self.server_protocol))
            response.headers.protocol = self.protocol
            url = path + "?" + query_string if query_string else path
            self.request_line = f"{method} {url} {req_protocol}"
            self.header_list = list(headers)
            self.headers = httputil.empty_map()
            self.rfile = rfile
            self.script_name = self.app.script_name
            self.path_info = path[len(self.script_name.rstrip("/")) :]
            self.stage = "respond"
            self.respond(self.path_info)
        except self.throws:
            raise
        except BaseException:
            if self.throw_errors:
                raise
            # The error page or an error hook failed.
            self.app.log("The error response failed", "HTTP", traceback=True, severity=40)
            shown = format_exc() if self.show_tracebacks else ""
            response.output_status, response.header_list, response.body = bare_error(shown)
        if self.method == "HEAD":
            response.body = []
        self.app.log.access_if_listened()
        return response

    def _pass(self, point: str) -> None:
        """Enter the stage ``point``, and run its hooks."""
        self.stage = point
        if point in self.hooks:
            self.hooks.run(point)

    def respond(self, path_info: str) -> None:
        """Find the handler, run it and its hooks, and finalize the response. Exceptions become error responses."""
        try:
            try:
                self._answer(path_info)
            finally:
                self._pass("on_end_resource")
        except BaseException as error:
            if self.throw_errors or isinstance(error, self.throws):
                raise
            self.handle_error()

    def _answer(self, path_info: str) -> None:
        response = _local.current().response
        try:
            self.stage = "process_headers"
            self.process_headers()
            self.stage = "get_resource"
            self.get_resource(path_info)
            self._plan().run(self)
            self._pass("on_start_resource")
            self.stage = "process_query_string"
            self.process_query_string()
            self._pass("before_request_body")
            if self.method in self.methods_with_bodies and self.process_request_body:
                self.body.process()
            self._pass("before_handler")
            handler = self.handler
            if handler:
                self.stage = "handler"
                response.body = handler()
            self._pass("before_finalize")
            response.finalize()
        except STOPS as stop:
            set_response_of(stop)
            self._pass("before_finalize")
            response.finalize()

    def _plan(self) -> _Plan:
        """Return the plan of the merged configuration. The last few plans of each handler are cached."""
        handler = self.handler
        key = getattr(handler, "callable", handler)
        key = getattr(key, "__func__", None) or type(key)
        plans = self.app._plans.get(key)
        if plans is None:
            plans = self.app._plans.setdefault(key, [])
        config = self.config
        for plan in plans:
            if plan.config == config and plan.generation == reprconf.NamespaceSet.generation:
                found: _Plan = plan
                return found
        made = _Plan(self, config)
        plans.insert(0, made)
        del plans[4:]
        return made

    def process_query_string(self) -> None:
        """Parse the query string into ``params``. Raises HTTPError 404 if it is not in the expected encoding."""
        if not self.query_string:
            return
        try:
            found = httputil.parse_query_string(self.query_string, encoding=self.query_string_encoding)
        except UnicodeDecodeError:
            raise HTTPError(
                404,
                "The given query string could not be processed. Query strings for this resource must be encoded with "
                f"{self.query_string_encoding!r}.",
            ) from None
        self.params.update(found)

    def process_headers(self) -> None:
        """Copy ``header_list`` to ``headers``, and parse the cookies."""
        headers = self.headers
        put = dict.__setitem__  # faster than the map's own method, which calls a function per field
        for name, value in self.header_list:
            put(headers, httputil.titled(name), _decoded(value) if "=?" in value else value)
        if dict.__contains__(headers, "Cookie"):
            try:
                self.cookie.load(headers["Cookie"])
            except CookieError as error:
                raise HTTPError(400, str(error)) from None
        host = dict.get(headers, "Host")
        if host is None:
            if self.protocol >= (1, 1):
                raise HTTPError(400, "The request has no Host, which HTTP/1.1 requires (RFC 9112, 3.2).")
            host = self.local.name or self.local.ip
        elif "\r" in host or "\n" in host:  # from a decoded RFC 2047 word
            headers["Host"] = host = host.replace("\r", "").replace("\n", "")
        self.base = f"{self.scheme}://{host}"

    def get_resource(self, path: str) -> None:
        """Call the dispatcher that is configured for the path. It sets ``handler`` and ``config``."""
        dispatch = self.app.find_config(path, "request.dispatch", self.dispatch)
        dispatch(path)

    def handle_error(self) -> None:
        """Respond to an unexpected exception: run the error hooks and ``error_response``."""
        try:
            self._pass("before_error_response")
            if self.error_response is not None:
                self.error_response()
            self._pass("after_error_response")
        except HTTPRedirect as stop:
            stop.set_response()
        serving.response.finalize()


@functools.lru_cache(maxsize=16)
def _protocol(text: str) -> tuple[int, int]:
    """Return the version in a text such as HTTP/1.1 as two numbers; (1, 1) for other texts."""
    return httputil.protocol_from_http(text) if re.fullmatch("HTTP/[0-9][.][0-9]", text) else (1, 1)


def _decoded(value: str) -> str:
    try:
        return httputil.decode_TEXT(value)
    except (LookupError, ValueError) as error:
        raise HTTPError(400, f"A header field cannot be decoded: {error}") from None


class ResponseBody:
    """The descriptor of ``response.body``. It converts the value that a handler returns to an iterable of bytes."""

    def __get__(self, response: Any, _owner: Any = None) -> Any:
        return self if response is None else response._body

    def __set__(self, response: Any, value: Any) -> None:
        if isinstance(value, str) or (isinstance(value, list) and any(isinstance(each, str) for each in value)):
            raise ValueError("Page handlers MUST return bytes. Use tools.encode if you wish to return unicode.")
        response._body = as_iterable(value)


class Response(_Message):
    """The response to a request, which programs change through ``cherrypy.response``."""

    output_status: bytes = b""
    status: Any = ""
    headers: Any = httputil.HeaderMap()
    header_list: Any = []  # noqa: RUF012 - for responses that are not finalized
    stream = False
    body: Any = ResponseBody()
    time: Any = None
    _body: Any = ()

    def __init__(self) -> None:
        self.status = None
        self._body = []
        self.time = time.time()
        self.headers = httputil.empty_map()
        # The names have their final form already, so dict.update can set them without a call for each.
        dict.update(self.headers, {"Content-Type": "text/html", "Server": "Kirsch", "Date": _http_date(int(self.time))})

    def _flush_body(self) -> None:
        """Read a body that is not sent, so that its generator runs to its end."""
        if is_iterator(self.body):
            for _ in self.body:
                pass

    def collapse_body(self) -> bytes:
        """Join the body into one bytes object, and return that."""
        pieces = list(self.body)
        for chunk in pieces:
            if not isinstance(chunk, bytes):
                raise TypeError(f"Chunk {chunk!r} is not of type bytes.")
        self.body = joined = b"".join(pieces)
        return joined

    def finalize(self) -> None:
        """Convert status, headers, cookies and body to the form that the server sends."""
        try:
            code, reason, _ = valid_status(self.status)
        except ValueError as error:
            raise HTTPError(500, str(error)) from None
        self.status = f"{code} {reason}"
        headers = self.headers
        self.output_status = headers.encode_header_item(self.status)
        known = dict.get(headers, "Content-Length")
        if not self.stream and (code in NO_CONTENT or code < 200):
            self._flush_body()
            self.body = known = None
        elif not self.stream and known is None:
            known = len(self.collapse_body())
        # Without a length the server delimits the body by chunks, or by closing the connection.
        if known is None:
            headers.pop("Content-Length", None)
        else:
            dict.__setitem__(headers, "Content-Length", known)
        self.header_list = headers.output()
        for _, cookie in sorted(vars(self).get("cookie", {}).items()):
            self.header_list.append((b"Set-Cookie", headers.encode_header_item(cookie.OutputString())))


@functools.lru_cache(maxsize=4)
def _http_date(second: int) -> str:
    return httputil.HTTPDate(second)


def fill_outside() -> None:
    """Create the request and response for code that runs outside of a request."""
    request = Request(httputil.Host("127.0.0.1", 80), httputil.Host("127.0.0.1", 1111))
    request.hooks = Request.hooks  # a hook attached outside of a request applies to all requests
    _local._outside.request = request
    _local._outside.response = Response()
