"""Dispatchers, which find the handler of a path.

* :class:`Objects`, the default: a tree of objects; each method answers a path of its own.
* :class:`Resources`: a tree of objects; the methods ``GET``, ``POST``, ... of an object answer its path.
* :class:`Routes`: a list of paths with variables, from whose names URLs can be generated.
* Your own: a callable that takes the path and sets ``request.handler`` and, optionally, ``request.config``.

An application has one dispatcher: ``App(root, dispatch=...)``, or ``{"/": {"request.dispatch": ...}}``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kirsch_web import publishing
from kirsch_web.bind import binder
from kirsch_web.configuration import Layer, nearest
from kirsch_web.errors import ConfigError, NotFound
from kirsch_web.finder import Finder
from kirsch_web.percent import quote_segment, unquote, wsgi_path
from kirsch_web.plan import Endpoint, Plan, endpoint_of, plan_of_handler, refuse
from kirsch_web.request import NOTHING, Request, reset_current, set_current
from kirsch_web.shape import shape_of
from kirsch_web.tree import Section, Tree
from kirsch_web.urls import _text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from kirsch_web.interfaces import Application


class Objects:
    """Publishes a tree of objects. :mod:`kirsch_web.tree` states the rules."""

    def finder(self, app: Application) -> Finder:
        """Return the compiled tree."""
        return Tree(app, app.root, app.sections)


class Resources:
    """Publishes a tree of objects by their methods GET, POST, PUT, PATCH, DELETE and QUERY.

    Segments for which the object has no attribute are positional arguments of these methods. HEAD and OPTIONS are
    answered automatically. A method that the object does not have is answered with 405 and Allow.
    """

    def finder(self, app: Application) -> Finder:
        """Return the compiled tree."""
        return Tree(app, app.root, app.sections, publishing.describe_resource)


_VARIABLE = re.compile(
    r"\{([A-Za-z_][A-Za-z0-9_]*)(?::((?:[^{}]|\{[0-9,]*\})+))?\}|:([A-Za-z_][A-Za-z0-9_]*)|\*([A-Za-z_][A-Za-z0-9_]*)"
)


class _Entry(NamedTuple):
    """The arguments of one ``connect()``: one route, or several if the path has ``{controller}`` or ``{action}``."""

    name: str
    route: str
    controller: object
    action: str | None
    methods: tuple[str, ...]
    requirements: Mapping[str, str]
    defaults: Mapping[str, object]


class Route:
    """One path of :class:`Routes`."""

    def __init__(self, entry: _Entry) -> None:
        self.name, route, self.controller, action, self.methods, requirements, defaults = entry
        self.route = "/" + route.strip("/")
        self.action = action or "index"
        self.defaults = dict(defaults)
        self.function: Callable[..., object] = NotFound()
        """The controller's method; set when the application is mounted."""
        self.variables: list[str] = []
        self.parts: list[tuple[str, str]] = []
        """The parts of the path: ``("text", literal)`` or ``("variable", name)``."""
        pattern, position = "", 0
        for match in _VARIABLE.finditer(self.route):
            literal = self.route[position : match.start()]
            pattern += re.escape(literal)
            self.parts.append(("text", literal))
            position = match.end()
            variable = match[1] or match[3] or match[4]
            if variable in self.variables:
                raise ConfigError(f"route {route!r} has {variable} twice")
            self.variables.append(variable)
            self.parts.append(("variable", variable))
            wanted = match[2] or requirements.get(variable) or (".+" if match[4] else "[^/]+")
            try:
                re.compile(wanted)
            except re.error as error:
                raise ConfigError(f"route {route!r}: the pattern of {variable}: {error}") from None
            pattern += f"(?P<{variable}>{wanted})"
        self.parts.append(("text", self.route[position:]))
        pattern += re.escape(self.route[position:])
        for variable in requirements:
            if variable not in self.variables:
                raise ConfigError(f"route {route!r} has no variable {variable}{nearest(variable, self.variables)}")
        self.match = re.compile(pattern).fullmatch
        self.patterns = dict(requirements)
        head = self.route[1:].partition("/")[0]
        self.first = None if _VARIABLE.search(head) else head
        """The first segment; None if it contains a variable."""

    def path(self, values: dict[str, object]) -> str:
        """Return the path for the variables' values, and remove these from ``values``. Raises LookupError if a value is
        missing, ValueError if the route does not match the path."""
        found = ""
        for kind, text in self.parts:
            if kind == "text":
                found += text
            else:
                value = values.pop(text, self.defaults.get(text))
                if value is None:
                    raise LookupError(f"the URL of route {self.name!r} needs a value for {text}")
                found += "/".join(quote_segment(part) for part in _text(value).split("/"))
        if self.match(unquote(found)) is None:
            raise ValueError(f"{found} is no path of route {self.name!r} ({self.route})")
        return found


class Routes:
    """A list of routes; the first one that matches path and method is used.

    ``connect(name, route, controller, action, conditions)``: a route is a path with variables, ``/books/{id}``,
    ``/books/{id:[0-9]+}``, ``/files/*path``, or ``:id`` as older code writes it. The leading slash is optional.
    ``controller`` is an object, or the name of a route that has the same controller. ``action`` is the name of the
    method to call; default: ``index``. ``conditions={"method": ["GET"]}`` limits the HTTP methods; by default they
    are those of the decorator, or GET. ``{action}`` in a route stands for each public method of the controller,
    ``{controller}`` for each name of a controller.

    The handler receives the variables in its parameters of the same names.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._controllers: dict[str, object] = {}
        self.mapper = Mapper(self)

    def connect(
        self,
        name: str,
        route: str,
        controller: object = None,
        action: str | None = None,
        conditions: Mapping[str, Any] | None = None,
        requirements: Mapping[str, str] | None = None,
        **defaults: object,
    ) -> None:
        """Add a route, and its controller under the route's name."""
        if controller is not None and not isinstance(controller, str):
            self._controllers.setdefault(name, controller)
        self._add(name, route, controller, action, conditions, requirements, **defaults)

    def _add(
        self,
        name: str,
        route: str,
        controller: object,
        action: str | None,
        conditions: Mapping[str, Any] | None = None,
        requirements: Mapping[str, str] | None = None,
        **defaults: object,
    ) -> None:
        conditions = conditions or {}
        for key in conditions:
            if key != "method":
                raise ConfigError(f"route {route!r}: there is no condition {key}{nearest(key, ['method'])}")
        methods = conditions.get("method", ())
        methods = (methods,) if isinstance(methods, str) else tuple(methods)
        for method in methods:
            if method.upper() not in publishing.METHODS:
                raise ConfigError(f"route {route!r}: there is no method {method}{nearest(method, publishing.METHODS)}")
        upper = tuple(dict.fromkeys(method.upper() for method in methods))
        self._entries.append(_Entry(name, route, controller, action, upper, requirements or {}, defaults))

    def finder(self, app: Application) -> Finder:
        """Return the compiled routes."""
        return RouteFinder(app, [Route(found) for each in self._entries for found in self._expanded(each)])

    def _expanded(self, entry: _Entry) -> Iterator[_Entry]:
        """Yield one entry for each controller and action that the path of ``entry`` can name."""
        route, controller = entry.route, entry.controller
        names = {match[1] or match[3] or match[4] for match in _VARIABLE.finditer(route)}
        if "controller" in names:
            for each in self._controllers:
                yield from self._expanded(entry._replace(route=_without(route, "controller", each), controller=each))
            return
        if isinstance(controller, str):
            if controller not in self._controllers:
                hint = nearest(controller, self._controllers)
                raise ConfigError(f"route {route!r}: there is no controller {controller!r}{hint}")
            controller = self._controllers[controller]
        if controller is None:
            raise ConfigError(f"route {route!r} has no controller")
        if "action" in names:
            for each in _actions(controller):
                yield entry._replace(route=_without(route, "action", each), controller=controller, action=each)
            return
        yield entry._replace(controller=controller)


def _without(route: str, variable: str, value: str) -> str:
    """Return the route with ``value`` in place of a variable."""
    return _VARIABLE.sub(lambda match: value if variable in match.groups() else match[0], route)


def template(route: str) -> str:
    """Return the path of a route with each variable in braces and without its pattern: ``/books/{id}``."""
    return _VARIABLE.sub(lambda match: f"{{{match[1] or match[3] or match[4]}}}", route)


class Mapper:
    """``routes.mapper``, for code written for the package Routes: ``connect(route, ...)``, ``connect(name, route)``."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def connect(self, *names: str, controller: object = None, action: str | None = None, **others: Any) -> None:
        """Add a route. ``names`` are its path, or its name and its path."""
        if len(names) not in (1, 2):
            raise ConfigError("connect() takes a route, or a name and a route")
        self._routes._add(names[0], names[-1], controller, action, **others)


def _actions(controller: object) -> list[str]:
    found = publishing.describe(controller)
    names = [each.methods[method].__name__ for each in found.handlers.values() for method in each.methods]
    return list(dict.fromkeys([*(("index",) if found.index else ()), *names]))


class RouteFinder(Finder):
    """The compiled form of :class:`Routes`: a dictionary of fixed paths, and the other routes by first segment."""

    dynamic = False

    def __init__(self, app: Application, routes: list[Route]) -> None:
        super().__init__(app)
        self.routes = routes
        self._sections = Section.tree(app.sections)
        self._base = tuple(each for each in (app.defaults, app.sections.get("")) if each is not None)
        self._fixed: dict[str, list[int]] = {}
        self._first: dict[str, list[int]] = {}
        self._any: list[int] = []
        self._endpoints: dict[Any, Endpoint] = {}
        for number, route in enumerate(routes):
            self._resolve(route)
            if not route.variables:
                self._fixed.setdefault(route.route, []).append(number)
            elif route.first is not None:
                self._first.setdefault(route.first, []).append(number)
            else:
                self._any.append(number)
        for number, route in enumerate(routes):
            self._endpoint((number,), self._layers(route.route))

    def _resolve(self, route: Route) -> None:
        function = getattr(route.controller, route.action, None)
        if route.action.startswith("_") or not callable(function):
            known = [name for name in dir(route.controller) if not name.startswith("_")]
            raise ConfigError(
                f"route {route.route!r}: {type(route.controller).__name__} has no method {route.action}"
                f"{nearest(route.action, known)}"
            )
        route.function = function
        if not route.methods:
            mark = publishing.mark_of(function)
            route.methods = ("GET",) if mark is None else mark.methods

    def _layers(self, path: str) -> tuple[Layer, ...]:
        """Return the configuration layers of a path, beginning at the root."""
        found = list(self._base)
        section = self._sections
        if section.layer is not None:
            found.append(section.layer)
        for segment in path.split("/"):
            if segment:
                section = section.child(publishing.canonical(segment))
                if section.layer is not None:
                    found.append(section.layer)
        return tuple(found)

    def find(self, path: str, method: str = "GET", /) -> tuple[Endpoint, Sequence[str], dict[str, str] | None]:
        if len(path) > 1 and path.endswith("/"):
            path = path[:-1]
        path = path or "/"
        numbers = self._fixed.get(path, [])
        others = self._first.get(path[1:].partition("/")[0])
        if others is not None or self._any:
            numbers = sorted([*numbers, *(others or ()), *self._any])
        fitting: list[int] = []
        values: dict[str, str] | None = None
        decided = False
        for number in numbers:
            route = self.routes[number]
            match = route.match(path) if route.variables else None
            if route.variables and match is None:
                continue
            fitting.append(number)
            if not decided and (method in route.methods or (method == "HEAD" and "GET" in route.methods)):
                decided = True
                values = match.groupdict() if match is not None else None
        endpoint = self._endpoint(tuple(fitting), self._layers(path))
        return endpoint, (), values

    def _endpoint(self, numbers: tuple[int, ...], layers: tuple[Layer, ...]) -> Endpoint:
        key = (numbers, tuple(map(id, layers)))
        found = self._endpoints.get(key)
        if found is None:
            found = self._made(numbers, layers)
            if len(self._endpoints) < 10_000:
                self._endpoints[key] = found
        return found

    def _made(self, numbers: tuple[int, ...], layers: tuple[Layer, ...]) -> Endpoint:
        if not numbers:
            return Endpoint({}, Plan(self.app.settings(layers), refuse(NotFound()), method=""), 0)
        methods: dict[str, Route] = {}
        for number in numbers:
            for method in self.routes[number].methods:
                methods.setdefault(method, self.routes[number])
        return endpoint_of(
            self.app,
            layers,
            self.routes[numbers[0]].route,
            methods,
            lambda method, route, allow: self._plan(route, method, layers, allow),
        )

    def _plan(self, route: Route, method: str, layers: tuple[Layer, ...], allow: tuple[str, ...]) -> Plan:
        function = route.function
        shape = shape_of(function)
        own = [layer for layer in map(self.app.layer_of, (route.controller, function)) if layer is not None]
        names = tuple(dict.fromkeys((*route.variables, *route.defaults)))
        known = {each.name for each in shape.parameters}
        unknown = [name for name in names if name not in known and not shape.keywords]
        if unknown:
            raise ConfigError(
                f"route {route.route!r}: {shape.where} has no parameter {unknown[0]}{nearest(unknown[0], known)}"
            )
        # Sections override decorators, because they name the URL.
        layers = (*self._base, *own, *layers[len(self._base) :])
        about: Any = {"method": method, "path": route.route, "is_index": True, "captured": tuple(route.variables)}
        plan = plan_of_handler(self.app, layers, function, names, **about, allow=allow)
        if route.defaults:
            plan.run = _with_defaults(plan.run, {name: str(value) for name, value in route.defaults.items()})
        return plan

    def exact(self) -> Iterator[tuple[str, Endpoint]]:
        """Yield the fixed paths that no route with variables matches, with their endpoints."""
        for path, numbers in self._fixed.items():
            if not any(
                self.routes[number].match(path)
                for number in (*self._first.get(path[1:].partition("/")[0], ()), *self._any)
            ):
                endpoint = self._endpoint(tuple(numbers), self._layers(path))
                yield path, endpoint
                if path == "/":
                    yield "", endpoint
                else:
                    yield path + "/", endpoint

    def handlers(self) -> Iterator[Plan]:
        for number, route in enumerate(self.routes):
            endpoint = self._endpoint((number,), self._layers(route.route))
            for method in route.methods:
                yield endpoint.plans[method]

    def path_of(self, plan: Plan, values: dict[str, object]) -> str:
        return next(each for each in self.routes if each.route == plan.path).path(values)

    def named(self, name: str) -> Route:
        for route in self.routes:
            if route.name == name:
                return route
        raise LookupError(f"there is no route {name!r}{nearest(name, [route.name for route in self.routes])}")


def _with_defaults(run: Callable[[Request], object], defaults: dict[str, str]) -> Callable[[Request], object]:
    def bind(request: Request) -> object:
        request.captured = {**defaults, **(request.captured or {})}
        return run(request)

    return bind


class CallableDispatcher:
    """Adapts the application's own dispatcher.

    The dispatcher is called with the decoded path; :func:`current` returns the request meanwhile. It sets
    ``request.handler`` to a callable without arguments (:func:`page` binds a function and its parameters), to an
    HTTPError or HTTPRedirect, or to None if a tool makes the body. It may set ``request.config``, which overrides that
    of ``/`` and can switch tools and hooks on.
    """

    def __init__(self, dispatch: Callable[[str], object]) -> None:
        if not callable(dispatch):
            raise ConfigError(f"request.dispatch is {dispatch!r}, which is neither a dispatcher nor callable")
        self._dispatch = dispatch

    def finder(self, app: Application) -> Finder:
        """Return the finder that calls the dispatcher."""
        return _CallingFinder(app, self._dispatch)


class _CallingFinder(Finder):
    KEPT = 256

    def __init__(self, app: Application, dispatch: Callable[[str], object]) -> None:
        super().__init__(app)
        self._dispatch = dispatch
        self._base = [each for each in (app.defaults, app.sections.get(""), app.sections.get("/")) if each is not None]
        self._plan = Plan(app.settings(self._base), _call_dispatched, method="")
        self._plans: dict[Any, tuple[dict[str, Any], Plan]] = {}

    def request(self, environ: dict[str, Any]) -> Request:
        request = Request(environ, self.app, self._plan)
        token = set_current(request)
        try:
            self._dispatch(wsgi_path(environ.get("PATH_INFO", "")))
        except Exception as error:  # noqa: BLE001 - whatever the dispatcher raises becomes a response
            request.plan = self.refusal(error)
            return request
        finally:
            reset_current(token)
        request.dispatched = None if request._handler is NOTHING else request._handler
        if request._config is not None:
            try:
                request.plan = self._with(request._config)
            except ConfigError as error:
                request.plan = self.refusal(error)
            request._config = None
        return request

    def _with(self, config: dict[str, Any]) -> Plan:
        """Return the plan of a configuration. It is kept for configurations whose values are the same objects."""
        key = tuple((name, id(value)) for name, value in config.items())
        kept = self._plans.get(key)
        if kept is not None:
            return kept[1]
        layer = Layer(config, "the dispatcher")
        from kirsch_web.configuration import mistakes

        if found := list(mistakes(layer, self.app.tools, self.app.namespaces)):
            raise ConfigError(found)
        plan = Plan(self.app.settings([*self._base, layer]), _call_dispatched, method="")
        if len(self._plans) >= self.KEPT:
            self._plans.clear()
        self._plans[key] = (dict(config), plan)  # the values are kept alive, so that no other object gets their ids
        return plan

    def find(self, path: str, method: str = "GET", /) -> tuple[Endpoint, Sequence[str], dict[str, str] | None]:
        request = self.request(
            {"REQUEST_METHOD": method, "PATH_INFO": path.encode().decode("latin-1"), "wsgi.url_scheme": "http"}
        )
        plan: Any = request.plan
        return Endpoint({}, plan, 0), (), None


def _call_dispatched(request: Request) -> object:
    handler = request.dispatched
    return request.response if handler is None else handler()


def page(function: Callable[..., object], *segments: str, **parameters: str) -> Callable[[], object]:
    """Return a handler for the application's own dispatcher: it calls ``function``, whose arguments come from
    ``segments``, ``parameters``, the query and the body.

    The arguments are converted and checked as for any handler.
    """
    from kirsch_web.request import current

    shape = shape_of(function)

    def call() -> object:
        request = current()
        request.rest = segments
        request.captured = parameters or None
        bind = binder(
            shape,
            function,
            method=request.method,
            is_index=not segments,
            captured=tuple(parameters),
            refuse_unknown=request.plan.config.get("params.unknown") == "refuse",
        )
        return bind(request)

    return call
