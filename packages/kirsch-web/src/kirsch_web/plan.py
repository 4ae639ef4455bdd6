"""Plans: what can be computed before a request arrives, for each combination of handler, method and configuration."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kirsch_web import configuration
from kirsch_web.bind import binder
from kirsch_web.errors import HTTPError, status_line
from kirsch_web.forms import Limits
from kirsch_web.hooks import POINTS, Hook, runner, sort
from kirsch_web.publishing import mark_of
from kirsch_web.response import HTML, JSON, NO_CONTENT
from kirsch_web.shape import shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from kirsch_web.configuration import Layer
    from kirsch_web.interfaces import Application
    from kirsch_web.request import Request

    Binder = Callable[[Request], object]


class Points:
    """For each hook point, the callable that runs its hooks; None if it has none."""

    __slots__ = POINTS
    on_start_resource: Callable[[Request], object] | None
    before_request_body: Callable[[Request], object] | None
    before_handler: Callable[[Request], object] | None
    before_finalize: Callable[[Request], object] | None
    on_end_resource: Callable[[Request], object] | None
    on_end_request: Callable[[Request], object] | None
    before_error_response: Callable[[Request], object] | None
    after_error_response: Callable[[Request], object] | None

    def __init__(self, hooks: dict[str, tuple[Hook, ...]]) -> None:
        for point in POINTS:
            setattr(self, point, runner(point, hooks.get(point, ())))


class Settings:
    """The values computed from the configuration of a path. The plans of all its methods share them."""

    __slots__ = (
        "checks_host", "config", "fields", "hooks", "html_fields", "json_fields", "layers", "limits", "origins",
        "points", "streams",
    )  # fmt: skip

    def __init__(self, app: Application, layers: tuple[Layer, ...]) -> None:
        self.layers = layers
        self.config, self.origins = configuration.merge((configuration.DEFAULTS, *layers))
        body = {key: value for key, value in self.config.items() if key.startswith("body.")}
        self.limits = Limits(**{key[5:]: configuration.KEYS[key].read(value) for key, value in body.items()})
        self.streams = bool(self.config.get("response.stream", True))
        prefix = "response.headers."
        named = {
            key[len(prefix) :].lower(): (key[len(prefix) :], each)
            for key, each in self.config.items()
            if key.startswith(prefix)
        }
        self.fields = list(named.values())
        """The header fields with which every response of this path begins."""
        has_type = "content-type" in named
        self.html_fields = self.fields if has_type else [("Content-Type", HTML), *self.fields]
        self.json_fields = self.fields if has_type else [("Content-Type", JSON), *self.fields]
        self.hooks = sort(_hooks(app, self.config))
        self.points = Points(self.hooks)
        self.checks_host = "hosts" in self.config


class Plan:
    """The hooks, the handler and the settings for a request of one method at one kind of path."""

    __slots__ = (
        "allow", "captured", "checks_host", "config", "direct", "encoded", "fields", "finishes", "function", "hooks",
        "html_fields", "is_index", "json_fields", "limits", "line", "marked", "method", "origins", "path", "points",
        "quick", "quiet", "run", "shape", "start", "status", "streams",
    )  # fmt: skip

    def __init__(
        self,
        settings: Settings,
        run: Binder,
        *,
        method: str,
        path: str = "",
        function: Callable[..., object] | None = None,
        status: int = 200,
        shape: Any = None,
        start: int = 0,
        is_index: bool = False,
        captured: tuple[str, ...] = (),
        allow: tuple[str, ...] = (),
    ) -> None:
        # Copied from the settings, because a request then needs one attribute look-up less for each.
        self.config, self.origins, self.limits = settings.config, settings.origins, settings.limits
        self.fields, self.html_fields, self.json_fields = settings.fields, settings.html_fields, settings.json_fields
        self.hooks, self.points, self.streams = settings.hooks, settings.points, settings.streams
        self.checks_host = settings.checks_host
        self.run = run
        """Binds the parameters and calls the handler."""
        self.function = function
        """The handler; None if the path has none."""
        self.shape = shape
        self.method = method
        self.path = path
        """The path before the segments for the handler's positional parameters."""
        self.start = start
        self.is_index = is_index
        self.captured = captured
        self.allow = allow
        self.status = status
        self.line = status_line(status)
        self.direct = not self.hooks and not self.checks_host
        """True if nothing runs before the handler."""
        points = self.points
        ends = points.on_end_resource is not None or points.on_end_request is not None
        self.finishes = points.before_finalize
        # A plan without a method, such as that of an application's own dispatcher, may have to answer HEAD.
        self.quiet = not ends and method not in ("HEAD", "") and status not in NO_CONTENT
        """True if a plain result can be sent at once, because no hook runs after its finalization."""

        self.marked: Plan | None = None
        """The copy of this plan that reports its stages to a profiler, see :mod:`kirsch_web.stages`."""
        self.encoded: Any = None
        """The header fields of plain results as ASGI needs them. Set by :mod:`kirsch_web.asgi` at the first request."""
        self.quick: Callable[..., Iterable[bytes]] | None = None
        """Answers a request of a fixed path without the pipeline; None if it cannot. Set by the application."""

    def __repr__(self) -> str:
        return f"<Plan {self.method} {self.path or '/'}>"


def _hooks(app: Application, config: dict[str, Any]) -> list[Hook]:
    """Return the hooks of a path: those of its tools, in the order of their registration, and those of ``hooks.*``."""
    found: list[Hook] = []
    for name in dict.fromkeys(key.split(".")[1] for key in config if key.startswith("tools.")):
        prefix = f"tools.{name}."
        if not config.get(prefix + "on", False):
            continue
        tool = app.tools[name]
        options = dict(tool.defaults)
        priority = None
        for key, value in config.items():
            if key.startswith(prefix):
                option = key[len(prefix) :]
                if option == "priority":
                    priority = value
                elif option != "on":
                    options[option] = value
        for hook in tool.hooks(options, app):
            if priority is not None:
                hook.priority = priority
            found.append(hook)
    for key, value in config.items():
        if key.startswith("hooks."):
            callback = configuration.imported(value)
            found.append(callback if isinstance(callback, Hook) else Hook(key.split(".")[1], callback))
    return found


def missing_tools(app: Application, layers: Sequence[Layer], shape: Any) -> Iterable[str]:
    """Yield a sentence for each parameter whose value only a tool can give, if that tool is not on."""
    for each in shape.parameters:
        needed = getattr(getattr(each.inject, "__self__", None), "given_by", "")
        if not needed:
            continue
        # Layers that have mistakes count too: each mistake is reported by itself.
        values, _ = configuration.merge(layers)
        on = [key[6:-3] for key, value in values.items() if key.startswith("tools.") and key.endswith(".on") and value]
        if not any(name == needed or getattr(app.tools.get(name), "gives", "") == needed for name in on):
            yield (
                f"{shape.where}: parameter {each.name} needs the tool {needed}, which is not on for this path: "
                f"App(tools=[web.{needed}(...)]) or tools.{needed}.on"
            )


def plan_of_handler(
    app: Application, layers: tuple[Layer, ...], function: Callable[..., object], names: tuple[str, ...], **about: Any
) -> Plan:
    """Return the plan of a handler. The path gives the parameters ``names``; ``about`` are further arguments of Plan.

    Raises ConfigError for mistakes in the signature. Missing tools are added to the mistakes of ``app``.
    """
    shape = shape_of(function)
    settings = app.settings(layers)
    refuses = settings.config.get("params.unknown") == "refuse"
    arguments = {"method": about["method"], "is_index": about["is_index"]}
    run = binder(shape, function, **arguments, captured=names, refuse_unknown=refuses)
    app.mistakes.extend(missing_tools(app, layers, shape))
    mark = mark_of(function)
    status = 200 if mark is None else mark.status or 200
    return Plan(settings, run, function=function, status=status, shape=shape, **about)


def refuse(error: HTTPError) -> Binder:
    """Return a handler that raises a copy of ``error``, for a path that has no handler for the method."""
    return partial(_raise, error.status, error.detail, tuple(error.headers))


def _raise(status: int, detail: str, headers: tuple[tuple[str, str], ...], _request: Request) -> object:
    raise HTTPError(status, detail, headers=headers)  # a new one each time, because an exception keeps its traceback


class Endpoint(NamedTuple):
    """The plans of one kind of path, by method, and the plan for methods that it does not have."""

    plans: dict[str, Plan]
    other: Plan
    """The plan for other methods: it answers 404 if ``plans`` is empty, else 405."""
    start: int
    """The number of segments before those for positional parameters."""
    captures: tuple[tuple[str, int], ...] = ()
    """The captured segments: the name of the parameter and the number of the segment in the path."""
    is_index: bool = False

    def plan(self, method: str) -> Plan:
        """Return the plan for a method; ``other`` if it has none of its own."""
        found = self.plans.get(method)
        return self.other if found is None else found


def allowed(methods: Iterable[str]) -> tuple[str, ...]:
    """Return the methods that ``Allow`` lists: ``methods``, HEAD if GET is among them, and OPTIONS."""
    found = dict.fromkeys(methods)
    if "GET" in found:
        found["HEAD"] = None
    found["OPTIONS"] = None
    order = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "QUERY", "OPTIONS")
    return tuple(sorted(found, key=lambda each: order.index(each) if each in order else len(order)))


def endpoint_of(
    app: Application,
    layers: Sequence[Layer],
    path: str,
    methods: Mapping[str, Any],
    plan_of: Callable[[str, Any, tuple[str, ...]], Plan],
    segments: tuple[Any, ...] = (0,),
) -> Endpoint:
    """Return the endpoint of one path's handlers. GET answers HEAD, OPTIONS is answered, other methods get 405.

    Args:
        app: the application.
        layers: the configuration of the path.
        path: the path before the segments for positional parameters.
        methods: for each method, the object from which ``plan_of`` makes the plan, such as the handler.
        plan_of: returns the plan for a method, its object in ``methods``, and the methods that ``Allow`` lists.
        segments: the arguments of :class:`Endpoint` from ``start`` on.
    """
    allow = allowed(methods)
    answered = {**methods, "HEAD": methods["GET"]} if "GET" in methods else methods
    plans = {method: plan_of(method, each, allow) for method, each in answered.items()}
    if "OPTIONS" not in plans:
        plans["OPTIONS"] = _options_plan(app, layers, path, allow)
    error = HTTPError(405, headers=[("Allow", ", ".join(allow))])
    other = Plan(app.settings(layers), refuse(error), method="", path=path, allow=allow)
    return Endpoint(plans, other, *segments)


def _options_plan(app: Application, layers: Sequence[Layer], path: str, allow: tuple[str, ...]) -> Plan:
    """Return the plan that answers OPTIONS."""
    fields = [("Allow", ", ".join(allow))]
    if "QUERY" in allow:
        fields.append(("Accept-Query", '"application/json", "application/x-www-form-urlencoded"'))

    def answer(request: Any) -> None:
        for name, value in fields:
            request.response.headers[name] = value

    return Plan(app.settings(layers), answer, method="OPTIONS", path=path, allow=allow)
