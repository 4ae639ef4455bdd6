"""The application: a WSGI callable that publishes a tree of objects.

A request is a look-up of its plan, the plan's hooks and handler in CherryPy's order, and the start of the response.
"""

from __future__ import annotations

from types import FunctionType, MethodType

from kirsch_web import publishing
from kirsch_web.errors import (
    ConfigError,
    Finished,
    HTTPError,
    HTTPRedirect,
    InternalRedirect,
    status_line,
)
from kirsch_web.request import NOTHING, Request, current, reset_current, set_current
from kirsch_web.response import HTML, NO_CONTENT, TEXT, FileBody, Response, encode_json
from kirsch_web.streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from kirsch_web.configuration import Layer
    from kirsch_web.hooks import Tool
    from kirsch_web.plan import Endpoint, Plan, Settings

    StartResponse = Callable[..., Any]

MAX_INTERNAL_REDIRECTS = 10
KEPT = 4096
"""Layers and settings that an application keeps: code that makes objects for each request cannot fill the memory."""


class _Lengths(dict[int, "list[tuple[str, str]]"]):
    """Content-Length fields by number; those of small bodies are kept."""

    def __missing__(self, length: int) -> list[tuple[str, str]]:
        field = [("Content-Length", str(length))]
        if length < 4096:
            self[length] = field
        return field


_lengths = _Lengths()
_VARY = ("Vary", "Cookie")
_PLAIN = frozenset((str, dict, list))


class App:
    """Publishes ``root`` and what hangs on it.

    Args:
        root: the object of the path ``/``; None where a dispatcher needs none.
        config: values for all paths, and sections by path: a mapping, or the name of a TOML file.
        tools: tools that are on for all paths, unless the configuration switches them off.
        dispatch: another dispatcher than the tree: see :mod:`kirsch_web.dispatch`.
        namespaces: further namespaces of the configuration, whose keys are the application's own.

    Raises ConfigError with all mistakes that the configuration, the handlers' signatures and the tools have.
    """

    def __init__(
        self,
        root: object = None,
        config: Mapping[str, Any] | str | None = None,
        tools: Sequence[Tool] = (),
        *,
        dispatch: Any = None,
        namespaces: Iterable[str] = (),
    ) -> None:
        from kirsch_web import configuration
        from kirsch_web.builtin import BuiltinTools

        self.root = root
        self.tools = BuiltinTools(tools)
        self.namespaces = tuple(namespaces)
        self.mistakes: list[str] = []
        self.sections = configuration.sections(config)
        self.defaults = configuration.Layer({f"tools.{each.name}.on": True for each in tools}, "App(tools=...)")
        self._given_dispatch = dispatch
        self.refresh()

    def refresh(self) -> None:
        """Read the tree and its configuration anew, after objects or attributes were added."""
        self.mistakes = []
        self._checked: dict[int, tuple[Layer, bool]] = {}
        self._layers: dict[object, Layer | None] = {}
        self._settings: dict[tuple[int, ...], Settings] = {}
        for layer in self.sections.values():
            self._check(layer)
        dispatcher = self._dispatcher()
        finder = None
        try:
            finder = dispatcher(self)
        except ConfigError as error:
            self.mistakes.extend(error.mistakes)
        if self.mistakes or finder is None:
            raise ConfigError(list(dict.fromkeys(self.mistakes)))
        exact, leaves = _by_method(finder.exact()), _by_method(finder.leaves())
        for plan in (plan for plans in exact.values() for plan in plans.values()):
            call = getattr(plan.run, "nullary", None)
            if call is not None and plan.direct and plan.quiet:
                plan.quick = quick(self, plan, call)
        self.finder, self._exact, self._leaves = finder, exact, leaves
        self.paths: dict[Any, list[Plan]] | None = None
        """Plans by handler, for URLs; made when the first is asked for."""

    def _dispatcher(self) -> Callable[[App], Any]:
        from kirsch_web.dispatch import CallableDispatcher, Objects

        dispatch = self._given_dispatch
        for path, layer in self.sections.items():
            if "request.dispatch" in layer.values:
                if path not in ("", "/"):
                    self.mistakes.append(
                        f"{layer.origin}: request.dispatch is for a whole application; mount another one at {path}"
                    )
                dispatch = layer.values["request.dispatch"]
        if dispatch is None:
            dispatch = Objects()
        compile_for: Callable[[App], Any] | None = getattr(dispatch, "finder", None)
        return compile_for if compile_for is not None else CallableDispatcher(dispatch).finder

    def _check(self, layer: Layer) -> bool:
        checked = self._checked.get(id(layer))
        if checked is None:
            from kirsch_web import configuration

            found = list(configuration.mistakes(layer, self.tools, self.namespaces))
            for name, tool in self._switched_on(layer, found):
                options = {**tool.defaults, **_options(layer.values, name)}
                found += [f"{layer.origin}: tools.{name}: {mistake}" for mistake in tool.check(options)]
            self.mistakes += found
            checked = (layer, not found)
            _keep(self._checked, id(layer), checked)
        return checked[1]

    def _switched_on(self, layer: Layer, found: list[str]) -> Iterator[tuple[str, Tool]]:
        if not found:
            for key, value in layer.values.items():
                if key.startswith("tools.") and key.endswith(".on") and value:
                    name = key[6:-3]
                    yield name, self.tools[name]

    def layer_of(self, thing: Any) -> Layer | None:
        """What decorators configure for a function or for the class of an object; None where they configure nothing."""
        is_function = isinstance(thing, (FunctionType, MethodType))
        key = getattr(thing, "__func__", thing) if is_function else type(thing)
        try:
            return self._layers[key]
        except KeyError:
            values = publishing.config_of(thing)
            name = getattr(thing, "__qualname__", thing) if is_function else key.__qualname__
            origin = f"{name}'s decorator" if is_function else f"class {name}"
            layer = None
            if values:
                from kirsch_web.configuration import Layer

                layer = Layer(values, origin)
            _keep(self._layers, key, layer)
            return layer

    def settings(self, layers: Sequence[Layer]) -> Settings:
        """The merged configuration of ``layers``, without those that have mistakes: mounting reports these."""
        key = tuple(map(id, layers))
        found = self._settings.get(key)
        if found is None:
            from kirsch_web.plan import Settings

            found = Settings(self, tuple(layer for layer in layers if self._check(layer)))
            if len(found.layers) == len(layers):  # else their ids may be those of others later
                _keep(self._settings, key, found)
        return found

    # Requests

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if "kirsch.stage" in environ:  # a profiler wants the stages of this request
            from kirsch_web import stages

            return stages.answer(self, environ, start_response)
        plan: Any = None
        fixed = self._exact.get(environ["REQUEST_METHOD"])
        if fixed is not None:
            plan = fixed.get(environ.get("PATH_INFO", ""))
        if plan is None:
            request = self._request(environ)
            plan = request.plan
        elif plan.quick is not None:
            return plan.quick(environ, start_response)  # type: ignore[no-any-return]
        else:
            # CPython runs __init__ without a C call where all arguments are given.
            request = Request(environ, self, plan, (), None)
        token = set_current(request)
        fields: list[tuple[str, str]]
        try:
            try:
                result = plan.run(request) if plan.direct else self._handle(request)
                kind = type(result)
                if (
                    (kind is not str and kind not in _PLAIN)
                    or not plan.quiet
                    or request._response
                    or request._form is not None
                ):
                    body, fields = None, []
                else:
                    if plan.finishes:
                        request.stage = "before_finalize"
                        request._result = result
                        plan.finishes(request)
                        if request._response is not None:  # the hooks have asked for it
                            line, fields, iterable = self._finalize(request)
                            start_response(line, fields)
                            return iterable
                    if kind is str:
                        body = result.encode()
                        fields = plan.html_fields + _lengths[len(body)]
                    else:
                        body = encode_json(result)
                        fields = plan.json_fields + _lengths[len(body)]
                    if request._varies:
                        fields.append(_VARY)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes a response
                return self._respond(request, start_response, error)
            if body is None:
                return self._respond(request, start_response, None, result)
            start_response(plan.line, fields)
            return [body]
        finally:
            reset_current(token)

    def _request(self, environ: dict[str, Any]) -> Request:
        """The request of a path that is not fixed. A handler's path and one argument need no walk either."""
        head, _, last = environ.get("PATH_INFO", "").rpartition("/")
        if last and last.isascii():
            leaves = self._leaves.get(environ["REQUEST_METHOD"])
            plan = None if leaves is None else leaves.get(head)
            if plan is not None:
                return Request(environ, self, plan, (last,), None)
        found: Request = self.finder.request(environ)
        return found

    def _respond(
        self,
        request: Request,
        start_response: StartResponse,
        error: BaseException | None = None,
        result: Any = NOTHING,
    ) -> Iterable[bytes]:
        """Answer with the ``error`` or the ``result`` of the handler; what is no short way is here."""
        outer = None
        try:
            for _ in range(MAX_INTERNAL_REDIRECTS + 1):
                try:
                    line, fields, body = self._resource(request, error, result)
                    break
                except InternalRedirect as redirect:
                    error, result = None, NOTHING
                    try:
                        request, token = self._redirected(request, redirect)
                    except Exception as failure:  # noqa: BLE001 - of the session, becomes the response
                        error = failure
                        continue
                    outer = outer or token
            else:
                line, fields, body = self._unexpected(
                    request, RuntimeError(f"more than {MAX_INTERNAL_REDIRECTS} internal redirects")
                )
            start_response(line, with_earlier_cookies(request, fields))
            return self._ended(request, body)
        except BaseException:
            self._end(request)
            raise
        finally:
            if outer is not None:
                reset_current(outer)

    def _redirected(self, request: Request, redirect: InternalRedirect) -> tuple[Request, Any]:
        """End this request, and begin that of the redirect's path. The cookies that it has set, and the changes of its
        session, come along. Raises what saving the session raises."""
        from kirsch_web.internal_redirect import second_environ

        if request._session is not None:
            request._session.save(request)
        cookies = [] if request._response is None else request._response.headers.get_all("Set-Cookie")
        self._end(request)
        request.discard()
        path = redirect.path.encode().decode("latin-1")
        environ = second_environ(request.environ, path, redirect.query, cookies)
        new = self.finder.request(environ)
        new.earlier_cookies = [*request.earlier_cookies, *cookies]
        new._varies = request._varies
        earlier: Any = request
        while earlier is not None and (earlier.environ.get("PATH_INFO", ""), earlier.query_string) != (
            path,
            redirect.query,
        ):
            earlier = earlier.previous
        if earlier is not None:
            new.plan = self.finder.refusal(RuntimeError(f"an internal redirect came back to {redirect.path}"))
        if "kirsch.stage" in environ:
            from kirsch_web import stages

            stages.marked(new)
        new.previous = request
        return new, set_current(new)

    def _resource(
        self, request: Request, error: BaseException | None, result: Any
    ) -> tuple[str, list[tuple[str, str]], Iterable[bytes]]:
        """Run the hooks and the handler; the parts of the response."""
        points = request.plan.points
        try:
            try:
                try:
                    if error is not None:
                        raise error
                    if result is NOTHING:
                        result = self._handle(request)
                    if type(result) in _PLAIN and request._response is None:
                        request._result = result  # until a hook asks for the response
                    else:
                        self._accept(request, result)
                    if points.before_finalize is not None:
                        request.stage = "before_finalize"
                        points.before_finalize(request)
                    return self._finalize(request)
                except (HTTPError, HTTPRedirect, Finished) as stop:
                    self._stopped(request, stop)
                    if points.before_finalize is not None:
                        request.stage = "before_finalize"
                        points.before_finalize(request)
                    return self._finalize(request)
            finally:
                if points.on_end_resource is not None:
                    request.stage = "on_end_resource"
                    points.on_end_resource(request)
        except InternalRedirect:
            raise
        except (HTTPError, HTTPRedirect, Finished) as stop:  # of a hook that ran for a stop, or at the end
            self._stopped(request, stop)
            _run_always(request)
            return self._finalize(request)
        except Exception as unexpected:  # noqa: BLE001 - becomes a response of status 500
            return self._unexpected(request, unexpected)

    def _handle(self, request: Request) -> Any:
        plan = request.plan
        points = plan.points
        if plan.checks_host:
            _check_host(request)
        if points.on_start_resource is not None:
            request.stage = "on_start_resource"
            points.on_start_resource(request)
        if points.before_request_body is not None:
            request.stage = "before_request_body"
            points.before_request_body(request)
        if points.before_handler is not None:
            request.stage = "before_handler"
            points.before_handler(request)
        request.stage = "handler"
        handler = vars(request).get("handler", NOTHING)
        if handler is NOTHING:
            return plan.run(request)
        return request.response if handler is None else handler()

    def _accept(self, request: Request, result: Any) -> None:
        """Make the response of what the handler returned."""
        if isinstance(result, Response):
            earlier = request._response
            if result is not earlier:
                for name, value in request.response.headers:
                    if name.lower() == "set-cookie" or name not in result.headers:
                        result.headers.add(name, value)
                request._response = result
            return
        response = request.response
        if result is None:
            if response.body == b"" and response.status == 200:
                response.status = 204
            return
        response.set_body(result)

    def _stopped(self, request: Request, stop: BaseException) -> None:
        """The response of an exception that ends a request."""
        if isinstance(stop, Finished):
            request.discard()
            self._accept(request, stop.response)
            return
        from kirsch_web import pages

        cookies = [] if request._response is None else request._response.headers.get_all("Set-Cookie")
        request.discard()
        if isinstance(stop, HTTPRedirect):
            pages.redirect(request, stop)
        elif isinstance(stop, HTTPError):
            pages.error(request, stop)
        for cookie in cookies:
            request.response.headers.add("Set-Cookie", cookie)

    def _unexpected(self, request: Request, error: Exception) -> tuple[str, list[tuple[str, str]], Iterable[bytes]]:
        """Report an exception that no one planned, and answer 500."""
        from kirsch_web import pages

        points = request.plan.points
        request.error = error
        try:
            if points.before_error_response is not None:
                request.stage = "before_error_response"
                points.before_error_response(request)
            pages.unexpected(request, error)
            _run_always(request)
            if points.after_error_response is not None:
                request.stage = "after_error_response"
                points.after_error_response(request)
            return self._finalize(request)
        except Exception as second:  # noqa: BLE001 - the last resort
            pages.report(request, second)
            request.discard()
            body = b"500 Internal Server Error\n"
            try:
                _run_always(request)
            except Exception as third:  # noqa: BLE001
                pages.report(request, third)
                request._response = None
            own = [each for each in request.response.headers if not each[0].lower().startswith("content-")]
            csp = [each for each in request.response.headers if each[0].lower() == "content-security-policy"]
            fields = [*own, *csp, ("Content-Type", TEXT), ("Content-Length", str(len(body)))]
            return status_line(500), fields, [b"" if request.method == "HEAD" else body]

    def _finalize(self, request: Request) -> tuple[str, list[tuple[str, str]], Iterable[bytes]]:
        """The response as ``start_response`` and the server take it."""
        if request._response is None and request._result is not NOTHING:
            return self._finalize_plain(request)
        response = request.response
        status, headers, body = response.status, response.headers, response.body
        line = status_line(status)
        no_content = status in NO_CONTENT or status < 200
        is_async = hasattr(body, "__aiter__")
        if is_async and "asgi.scope" not in request.environ:
            raise TypeError("an asynchronous handler needs ASGI: serve web.ASGI(app)")
        if not (isinstance(body, bytes) or no_content or is_async or request.plan.streams):
            body = response.collapse()
        if no_content:
            headers.remove("Content-Length")
            if status != 205:  # whose empty content may have a type
                headers.remove("Content-Type")
        if isinstance(body, bytes):
            if no_content:
                body = b""
            else:
                headers["Content-Length"] = str(len(body))
                if body and "Content-Type" not in headers:
                    headers.add("Content-Type", HTML)
            if request.method == "HEAD":
                body = b""
            return line, headers.pairs(), [body] if body else []
        if no_content or request.method == "HEAD":
            close = getattr(body, "close", None)
            if close is not None:
                close()
            return line, headers.pairs(), []
        if is_async:
            return line, headers.pairs(), body  # type: ignore[return-value]  # for kirsch_web.asgi
        wrapper = request.environ.get("wsgi.file_wrapper")
        if type(body) is FileBody and body.length is None and wrapper is not None:
            return line, headers.pairs(), wrapper(body.file, FileBody.BLOCK)
        return line, headers.pairs(), Stream(request, body)

    @staticmethod
    def _finalize_plain(request: Request) -> tuple[str, list[tuple[str, str]], Iterable[bytes]]:
        """The response of a result that no hook has looked at."""
        plan, result = request.plan, request._result
        if type(result) is str:
            body, fields = result.encode(), plan.html_fields
        else:
            body, fields = encode_json(result), plan.json_fields
        fields = [*fields, ("Content-Length", str(len(body)))]
        if request._varies:
            fields.append(_VARY)
        return plan.line, fields, [] if request.method == "HEAD" else [body]

    def _ended(self, request: Request, body: Iterable[bytes]) -> Iterable[bytes]:
        """``body`` with what has to be done at its end."""
        if request.plan.points.on_end_request is None and request._form is None:
            return body
        stream = body if type(body) is Stream else Stream(request, body)
        stream.at_end = self._end
        return stream

    def _end(self, request: Request) -> None:
        """The response has been sent, or given up."""
        try:
            if request.plan.points.on_end_request is not None:
                request.stage = "on_end_request"
                token = set_current(request)
                try:
                    request.plan.points.on_end_request(request)
                except Exception as error:  # noqa: BLE001 - the response is gone: only the log can tell
                    from kirsch_web import pages

                    pages.report(request, error)
                finally:
                    reset_current(token)
        finally:
            request.close()

    # What it knows

    def url(self, handler: Callable[..., object] | str, *segments: object, **query: object) -> str:
        """The path of a handler, or of a route by its name, below the mount; ``segments`` are its positional arguments.

        Keywords fill the names that the path has, and what is left of them becomes the query.
        """
        from kirsch_web.urls import url_of

        return url_of(self, handler, segments, query)

    def handlers(self) -> Iterator[Plan]:
        """The plans of all handlers that were found when the application was mounted."""
        plans: Iterator[Plan] = self.finder.handlers()
        return plans

    def find(self, method: str, path: str) -> tuple[Endpoint, Plan]:
        """Endpoint and plan of a path below the mount, for ``explain``."""
        endpoint: Endpoint = self.finder.find(path, method)[0]
        return endpoint, endpoint.plan(method)


def with_earlier_cookies(request: Request, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The fields of the response with the cookies of the requests that internal redirects have ended."""
    if not request.earlier_cookies:
        return fields
    from kirsch_web.internal_redirect import with_cookies

    return with_cookies(fields, request.earlier_cookies)


def _run_always(request: Request) -> None:
    """Run the hooks that add to every response, where the others of before_finalize have not run to their end."""
    for hook in request.plan.hooks.get("before_finalize", ()):
        if hook.always:
            hook.callback(request)


def quick(app: App, plan: Plan, call: Callable[[], object]) -> Callable[..., Iterable[bytes]]:
    """What answers a fixed path whose handler takes nothing and has no hooks: no request is made unless one is asked
    for."""

    def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        pending: list[Any] = [environ, app, plan]
        token = set_current(pending)
        try:
            try:
                result = call()
                kind = type(result)
                if len(pending) > 3 or (kind is not str and kind not in _PLAIN):
                    body, fields = None, []
                elif kind is str:
                    body = result.encode()  # type: ignore[attr-defined]
                    fields = plan.html_fields + _lengths[len(body)]
                else:
                    body = encode_json(result)
                    fields = plan.json_fields + _lengths[len(body)]
            except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes a response
                return app._respond(current(), start_response, error)
            if body is None:
                return app._respond(current(), start_response, None, result)
            start_response(plan.line, fields)
            return [body]
        finally:
            reset_current(token)

    return serve


def _by_method(endpoints: Iterable[tuple[str, Endpoint]]) -> dict[str, dict[str, Plan]]:
    """The plans of each method, by their paths as environ has them."""
    found: dict[str, dict[str, Plan]] = {}
    for path, endpoint in endpoints:
        for method, plan in endpoint.plans.items():
            found.setdefault(method, {})[path.encode().decode("latin-1")] = plan
    return found


def _keep(cache: dict[Any, Any], key: object, value: object) -> None:
    if len(cache) >= KEPT:
        cache.clear()
    cache[key] = value


def _options(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    prefix = f"tools.{name}."
    return {
        key[len(prefix) :]: value
        for key, value in values.items()
        if key.startswith(prefix) and key[len(prefix) :] not in ("on", "priority")
    }


def _check_host(request: Request) -> None:
    """421 for a host that is not in ``hosts``; an entry ``.shop.example`` means all below that name."""
    host = request.host.lower()
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    for allowed in request.plan.config["hosts"]:
        allowed = allowed.lower()
        if allowed in (host, name, "*") or (allowed.startswith(".") and name.endswith(allowed)):
            return
    raise HTTPError(421, "this host is not served here")


class Mounts:
    """Several WSGI applications, each below a path: the longest path that fits counts, at a slash.

    ``Mounts({"": shop, "/admin": admin})``. The mount's path moves from PATH_INFO to SCRIPT_NAME.
    """

    def __init__(self, applications: Mapping[str, Callable[..., Iterable[bytes]]]) -> None:
        found: dict[str, Callable[..., Iterable[bytes]]] = {}
        for path, app in applications.items():
            path = path.rstrip("/")
            if path and not path.startswith("/"):
                raise ConfigError(f"a mount's path begins with a slash, as in /{path}")
            if path in found:
                raise ConfigError(f"there are two applications at {path or '/'}")
            found[path] = app
        # As environ has them.
        mounts = [(path.encode().decode("latin-1"), app) for path, app in found.items()]
        self._longest_first = sorted(mounts, key=lambda each: len(each[0]), reverse=True)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        below = path + "/"
        for mount, app in self._longest_first:
            if not mount or below.startswith(mount + "/"):
                if mount:
                    script = environ.get("SCRIPT_NAME", "") + mount
                    environ = {**environ, "SCRIPT_NAME": script, "PATH_INFO": path[len(mount) :]}
                return app(environ, start_response)
        return _no_application(start_response)


def _no_application(start_response: StartResponse) -> list[bytes]:
    body = b"404 Not Found\n"
    start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def url(handler: Callable[..., object] | str, *segments: object, **query: object) -> str:
    """The path of a handler of the application that answers the current request; see :meth:`App.url`."""
    request = current()
    return request.mount + request.app.url(handler, *segments, **query)
