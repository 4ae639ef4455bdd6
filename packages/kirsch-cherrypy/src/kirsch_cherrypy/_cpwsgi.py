"""The WSGI callable of an application, and its middleware."""

from __future__ import annotations

import functools
import sys
from typing import Any

from kirsch_cherrypy import _cperror, _globals, _local
from kirsch_cherrypy.lib import httputil, is_closable_iterator
from kirsch_web.fields import field_name
from kirsch_web.internal_redirect import second_environ


class VirtualHost:
    """A WSGI callable that passes a request to another one, selected by the host."""

    def __init__(self, default: Any, domains: dict[str, Any] | None = None, use_x_forwarded_host: bool = True) -> None:
        self.use_x_forwarded_host = use_x_forwarded_host
        self.domains = {} if domains is None else domains
        self.default = default

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        asked = environ.get("HTTP_X_FORWARDED_HOST") if self.use_x_forwarded_host else None
        app = self.domains.get(environ.get("HTTP_HOST", "") if asked is None else asked, self.default)
        return app(environ, start_response)


class InternalRedirector:
    """Middleware that serves another path if the application raises InternalRedirect."""

    def __init__(self, nextapp: Any, recursive: bool = False) -> None:
        self.nextapp = nextapp
        self.recursive = recursive

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        redirections: list[tuple[str, str]] = []
        while True:
            try:
                return self.nextapp(environ, start_response)
            except _cperror.InternalRedirect as redirect:
                name, path = environ.get("SCRIPT_NAME", ""), environ.get("PATH_INFO", "")
                query = environ.get("QUERY_STRING", "")
                redirections.append((name + path, query))
                path = redirect.path.encode().decode("latin-1")
                if not self.recursive and (name + path, redirect.query_string) in redirections:
                    redirect.request.close()
                    raise RuntimeError(f"an InternalRedirect leads to {name + path!r} again") from redirect
                # The second request has neither the body nor the query string of the first.
                environ = second_environ(environ, path, redirect.query_string)
                environ["REQUEST_METHOD"] = "GET"
                environ["cherrypy.previous_request"] = redirect.request


class ExceptionTrapper:
    """Middleware that responds with a minimal error page if the application raises an exception."""

    def __init__(self, nextapp: Any, throws: Any = (KeyboardInterrupt, SystemExit)) -> None:
        self.nextapp = nextapp
        self.throws = throws

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            response = self.nextapp(environ, start_response)
        except self.throws:
            raise
        except BaseException:  # noqa: BLE001 - it becomes a page
            return _bare(start_response)
        if type(response) is AppResponse and type(response.body) is list:
            return response  # a complete body cannot raise
        return _TrappedResponse(response, start_response, self.throws)


class _TrappedResponse:
    """The body of a response. If it raises before the response has started, an error page is sent instead."""

    def __init__(self, response: Any, start_response: Any, throws: Any) -> None:
        self.response = response
        self.start_response = start_response
        self.throws = throws
        self.iter_response = iter(response)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.iter_response)
        except (StopIteration, *self.throws):
            raise
        except BaseException:  # noqa: BLE001 - start_response receives it
            self.iter_response = iter(())
            return b"".join(_bare(self.start_response))

    def close(self) -> None:
        if hasattr(self.response, "close"):
            self.response.close()


def _bare(start_response: Any) -> list[bytes]:
    """Log the current exception, call ``start_response`` for an error page, and return the body of the page."""
    traceback = _cperror.format_exc()
    request = _local.current().request
    _globals.log(traceback, severity=40)
    # After the request has ended, its configuration is no longer available, so use the global one.
    shows = request.show_tracebacks if request.app else _globals.config.get("request.show_tracebacks", True)
    status, headers, body = _cperror.bare_error(traceback if shows else "")
    # If the header fields have been sent, start_response raises the exception, and the server drops the connection.
    start_response(status.decode(), [(name.decode(), value.decode()) for name, value in headers], sys.exc_info())
    return body


def _must_be_bytes(value: Any, what: str) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"response.{what} {value!r} is not a byte string.")


class AppResponse:
    """The response to one request as an iterable of bytes. Closing it ends the request."""

    def __init__(self, environ: dict[str, Any], start_response: Any, cpapp: Any) -> None:
        self.cpapp = cpapp
        self.environ = environ
        try:
            self.run()
            self.response = response = _local.current().response
            status, headers = response.output_status, response.header_list
            _must_be_bytes(status, "status")
            for name, value in headers:
                if type(name) is not bytes or type(value) is not bytes:
                    _must_be_bytes(name, "header_list key")
                    _must_be_bytes(value, "header_list value")
            fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
            self.body = response.body
            self.iter_response = iter(self.body)
            self.write = start_response(status.decode("latin-1"), fields)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self.iter_response)

    def __len__(self) -> int:
        # A server that finds a length of 1 can send the block with a Content-Length.
        if type(self.body) is list:
            return len(self.body)
        raise TypeError("the response is a stream")

    def close(self) -> None:
        """End the request, which runs its last hooks."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.response is not None and self.response.stream and is_closable_iterator(self.body):
                self.body.close()
        finally:
            # A server may close the response in a context without a current request, or with a different one.
            if _local.current().request is not self.request:
                _local.serving.load(self.request, self.response)
            self.cpapp.release_serving()

    request: Any = None
    response: Any = None
    body: Any = None
    _closed = False

    def run(self) -> None:
        """Create the request from the environ, and run it."""
        environ = self.environ
        get = environ.get
        local = httputil.Host("", int(get("SERVER_PORT") or -1), get("SERVER_NAME", ""))
        remote = httputil.Host(get("REMOTE_ADDR") or "", int(get("REMOTE_PORT") or -1), get("REMOTE_HOST") or "")
        named = get("SERVER_PROTOCOL", "HTTP/1.1")
        actual = get("ACTUAL_SERVER_PROTOCOL") or named
        self.request, self.response = self.cpapp.get_serving(local, remote, environ["wsgi.url_scheme"], actual)
        request = self.request
        # Values equal to the class defaults are not set: CPython is half as fast with over 30 attributes.
        if login := get("LOGON_USER") or get("REMOTE_USER"):
            request.login = login
        if not environ["wsgi.multithread"]:
            request.multithread = False
        if environ["wsgi.multiprocess"]:
            request.multiprocess = True
        request.wsgi_environ = environ
        if "cherrypy.previous_request" in environ:
            request.prev = environ["cherrypy.previous_request"]
        path = (get("SCRIPT_NAME") or "") + (get("PATH_INFO") or "")
        query = get("QUERY_STRING") or ""
        if not (path.isascii() and query.isascii()):
            encoding = self.cpapp.find_config(get("PATH_INFO") or "/", "request.uri_encoding", "utf-8")
            path, query = _recoded(path, encoding), _recoded(query, encoding)
        request.run(
            environ["REQUEST_METHOD"], path, query, named, self.translate_headers(environ), environ["wsgi.input"]
        )

    @staticmethod
    def translate_headers(environ: dict[str, Any]) -> list[tuple[str, str]]:
        """Return the header fields of the environ as pairs of HTTP name and value."""
        # An empty CONTENT_TYPE or CONTENT_LENGTH means that there is none.
        return [(name, environ[key]) for key, name, counts in _fields(tuple(environ)) if counts or environ[key]]


@functools.lru_cache(maxsize=100)
def _fields(keys: tuple[str, ...]) -> list[tuple[str, str, bool]]:
    """Return for each header field its key, its HTTP name, and whether an empty value is kept."""
    return [(key, name, key.startswith("HTTP_")) for key in keys if (name := field_name(key))]


def _recoded(text: str, encoding: str) -> str:
    """Decode a WSGI string, which is bytes as Latin-1, with ``encoding``. Returns it unchanged if that fails."""
    try:
        return text.encode("latin-1").decode(encoding)
    except ValueError:
        return text


class CPWSGIApp:
    """The WSGI callable of an application, including its pipeline of middleware."""

    def __init__(self, cpapp: Any, pipeline: Any = None) -> None:
        self.cpapp = cpapp
        self.pipeline: list[tuple[str, Any]] = [
            ("ExceptionTrapper", ExceptionTrapper),
            ("InternalRedirector", InternalRedirector),
        ]
        if pipeline:
            self.pipeline.extend(pipeline)
        self.head: Any = None
        self.response_class: Any = AppResponse
        self.config: dict[str, dict[str, Any]] = {}

    def tail(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Run the request in the application itself, the innermost callable of the pipeline."""
        return self.response_class(environ, start_response, self.cpapp)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if self.head is None:
            app: Any = self.tail
            for name, make in reversed(self.pipeline):
                app = make(app, **self.config.get(name, {}))
            self.head = app
        return self.head(environ, start_response)

    def namespace_handler(self, k: str, v: Any) -> None:
        """Set ``wsgi.pipeline``, ``wsgi.response_class`` and ``wsgi.NAME.OPTION``."""
        name, dot, option = k.partition(".")
        if dot:
            self.config.setdefault(name, {})[option] = v
        elif name == "response_class":
            self.response_class = v
        elif name == "pipeline":
            self.pipeline += v
        else:
            raise ValueError(f"wsgi.{k}: there are wsgi.pipeline, wsgi.response_class and wsgi.NAME.OPTION")
