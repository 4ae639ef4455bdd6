"""The application: a WSGI callable that publishes a tree of objects.

An :class:`App` finds the plan of a request. :mod:`kirsch_web.pipeline` runs the hooks of the plan and makes the
response. The application itself answers only requests whose handler returns a str, dict or list.
"""

from __future__ import annotations

from kirsch_web.errors import ConfigError
from kirsch_web.finalize import VARY, finalize
from kirsch_web.layers import Layers
from kirsch_web.lifecycle import Lifecycle
from kirsch_web.pipeline import PLAIN, handle, respond
from kirsch_web.publishing import METHODS
from kirsch_web.quick import quick
from kirsch_web.request import Request, current, reset_current, set_current
from kirsch_web.response import encode_json, length_fields, lengths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from kirsch_web.configuration import Layer
    from kirsch_web.hooks import Tool
    from kirsch_web.pipeline import StartResponse
    from kirsch_web.plan import Endpoint, Plan, Settings

    Callback = TypeVar("Callback", bound=Callable[[Any], object])


class App:
    """A WSGI application that publishes ``root`` and the objects that are its attributes.

    Args:
        root: the object that answers the path ``/``; None if the dispatcher needs no object.
        config: a mapping, or the name of a TOML file, with values for all paths and sections named after a path.
        tools: tools that are on for all paths, unless the configuration switches them off.
        dispatch: the dispatcher; default: the tree of objects. See :mod:`kirsch_web.dispatch`.
        namespaces: prefixes of keys that the application itself defines; their values are not checked.

    Raises ConfigError with all mistakes in the configuration, in the handlers' signatures and in the tools' options.
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
        self._lifecycle = Lifecycle(self)
        self.refresh()

    def refresh(self) -> None:
        """Compile the tree and its configuration again. Call it after objects or attributes were added."""
        self.mistakes = []
        self._layers = Layers(self, self.mistakes)
        for layer in self.sections.values():
            self._layers.check(layer)
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
        self.finder, self._tables = finder, (exact, leaves)
        self._set_tables()
        self.paths: dict[Any, list[Plan]] | None = None
        """The plans of each handler, from which URLs are made; None until the first URL is made."""

    def _set_tables(self) -> None:
        # Empty tables send each request through :meth:`_request`, which runs the start callbacks.
        self._exact, self._leaves = ({}, {}) if self._lifecycle.pending else self._tables

    def on_start(self, callback: Callback) -> Callback:
        """Call ``callback`` with the application once in each process, before the first request. Also a decorator.

        The callbacks run in the order in which they were added. Under ASGI they run when the server starts, and may be
        coroutine functions. Under WSGI :meth:`start` runs them, at the latest before the first request. If a callback
        raises, the request fails, and the next request begins with this callback again.
        """
        self._lifecycle.add(callback, stops=False)
        self._set_tables()
        return callback

    def on_stop(self, callback: Callback) -> Callback:
        """Call ``callback`` with the application once in each process in which it has started. Also a decorator.

        The callbacks run in reverse order. Under ASGI they run when the server stops; under WSGI in :meth:`stop`, at
        the latest when the process ends. A coroutine function needs an ASGI server with the lifespan protocol.
        """
        self._lifecycle.add(callback, stops=True)
        self._set_tables()
        return callback

    def start(self) -> None:
        """Run the start callbacks, unless they have already run."""
        self._lifecycle.start()
        self._set_tables()

    def stop(self) -> None:
        """Run the stop callbacks, unless they have already run or the application has not started."""
        self._lifecycle.stop()

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

    def layer_of(self, thing: Any) -> Layer | None:
        """Return the configuration that decorators give a function or an object's class; None if there is none."""
        return self._layers.of(thing)

    def settings(self, layers: Sequence[Layer]) -> Settings:
        """Return the merged configuration of ``layers``. Layers with mistakes are left out; mounting reports them."""
        return self._layers.merged(layers)

    # Requests

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if "kirsch.stage" in environ:  # a profiler measures the stages of this request
            from kirsch_web import stages

            return stages.answer(self, environ, start_response)
        plan: Any
        try:
            plan = self._exact[environ["REQUEST_METHOD"]].get(environ["PATH_INFO"])
        except KeyError:  # a method without fixed paths, or an empty path, which a server may leave out
            plan = None
        if plan is None:
            request = self._request(environ)
            plan = request.plan
        elif (serve := plan.quick) is not None:
            return serve(environ, start_response)  # type: ignore[no-any-return]
        else:
            # All arguments are given, because CPython then runs __init__ without a C call.
            request = Request(environ, self, plan, (), None)
        token = set_current(request)
        fields: list[tuple[str, str]]
        try:
            try:
                result = plan.run(request) if plan.direct else handle(request)
                kind = type(result)
                if (
                    (kind is not str and kind not in PLAIN)
                    or not plan.quiet
                    or request._response
                    or request._form is not None
                ):
                    body, fields = None, []
                else:
                    if plan.finishes:
                        request._result = result
                        plan.finishes(request)
                        if request._response is not None:  # a hook has used request.response
                            line, fields, iterable = finalize(request)
                            start_response(line, fields)
                            return iterable
                    if kind is str:
                        body, fields = result.encode(), plan.html_fields
                    else:
                        body, fields = encode_json(result), plan.json_fields
                    fields = fields + (lengths.get(len(body)) or length_fields(len(body)))[0]
                    if request._varies:
                        fields.append(VARY)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises becomes a response
                return respond(request, start_response, error)
            if body is None:
                return respond(request, start_response, None, result)
            start_response(plan.line, fields)
            return [body]
        finally:
            reset_current(token)

    def _request(self, environ: dict[str, Any]) -> Request:
        """Return the request of a path that is not fixed.

        A handler's path with one more segment is looked up in a table. Other paths are searched by the finder.
        """
        head, _, last = environ.get("PATH_INFO", "").rpartition("/")
        if last and last.isascii():
            leaves = self._leaves.get(environ["REQUEST_METHOD"])
            plan = None if leaves is None else leaves.get(head)
            if plan is not None:
                return Request(environ, self, plan, (last,), None)
        if self._lifecycle.pending:
            self.start()
        found: Request = self.finder.request(environ)
        return found

    # Knowledge of the application

    def url(self, handler: Callable[..., object] | str, *segments: object, **query: object) -> str:
        """Return the path, below the mount, of a handler or of the route with a name.

        ``segments`` are the positional arguments. Keywords fill the variables of the path; the others become the query.
        """
        from kirsch_web.urls import url_of

        return url_of(self, handler, segments, query)

    def handlers(self) -> Iterator[Plan]:
        """Return the plans of all handlers that were known when the application was mounted."""
        plans: Iterator[Plan] = self.finder.handlers()
        return plans

    def find(self, method: str, path: str) -> tuple[Endpoint, Plan]:
        """Return the endpoint and the plan of a path below the mount, for ``explain``."""
        endpoint: Endpoint = self.finder.find(path, method)[0]
        return endpoint, endpoint.plan(method)


def _by_method(endpoints: Iterable[tuple[str, Endpoint]]) -> dict[str, dict[str, Plan]]:
    """Return the plans of each method by path. Paths are decoded as Latin-1, as in ``PATH_INFO``."""
    found: dict[str, dict[str, Plan]] = {method: {} for method in METHODS}
    for path, endpoint in endpoints:
        for method, plan in endpoint.plans.items():
            found.setdefault(method, {})[path.encode().decode("latin-1")] = plan
    return found


def url(handler: Callable[..., object] | str, *segments: object, **query: object) -> str:
    """Return the path of a handler of the application that answers the current request; see :meth:`App.url`."""
    request = current()
    return request.mount + request.app.url(handler, *segments, **query)
