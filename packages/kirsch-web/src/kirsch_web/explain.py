"""The commands ``routes``, ``explain`` and ``openapi``: they describe all paths of an application, or one request."""

from __future__ import annotations

import sys
from types import FunctionType, MethodType

from kirsch_web import publishing
from kirsch_web.errors import ConfigError, HTTPError
from kirsch_web.hooks import POINTS
from kirsch_web.percent import unquote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from kirsch_web.app import App
    from kirsch_web.plan import Plan

USAGE = """\
usage: python -m kirsch_web routes MODULE:APP
       python -m kirsch_web explain MODULE:APP '[METHOD] PATH'
       python -m kirsch_web openapi MODULE:APP

routes prints every path that is known before a request arrives, with its
handler; explain prints what a request of that path runs through, and where each
value of its configuration comes from; openapi prints the OpenAPI 3.1 document.
"""


def routes(app: App) -> str:
    """Return a line for each method and path with its handler, and a list of objects that are not published."""
    rows = sorted(((template(plan), plan.method, _name(plan.function)) for plan in app.handlers()), key=_row_key)
    if not rows:
        return "No handler is known before a request arrives.\n"
    width = max(len(path) for path, _, _ in rows)
    lines = [f"{method:7} {path:{width}}  {handler}\n" for path, method, handler in rows]
    hidden = [f"  {name}\n" for name in private_objects(app.root)]
    if hidden:
        lines += [
            "Not published, because the class has no index, default or decorated method, nor @web.publish:\n",
            *hidden,
        ]
    return "".join(lines)


def private_objects(root: object) -> list[str]:
    """List the tree's attributes whose objects have public methods but are not published, perhaps by mistake."""
    found: list[str] = []
    seen: set[int] = set()

    def look(node: Any, where: str) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        attributes: dict[str, Any] = {}
        for base in reversed(type(node).__mro__):
            attributes.update(base.__dict__)
        attributes.update(getattr(node, "__dict__", {}))
        for name, value in sorted(attributes.items()):
            if name.startswith("_"):
                continue
            if publishing.is_node(value):
                look(value, f"{where}.{name}")
            elif not isinstance(value, (type, FunctionType, MethodType)) and publishing.mark_of(type(value)) is None:
                # Skip objects of other packages, such as locks and connections.
                own = type(value).__module__.partition(".")[0] == type(root).__module__.partition(".")[0]
                public = [each for each in vars(type(value)).values() if isinstance(each, FunctionType)]
                if own and any(not each.__name__.startswith("_") for each in public):
                    found.append(f"{where}.{name} ({type(value).__name__})")

    if root is not None:
        look(root, type(root).__name__)
    return found


def _row_key(row: tuple[str, str, str]) -> tuple[str, int]:
    order = ("GET", "POST", "PUT", "PATCH", "DELETE", "QUERY", "OPTIONS")
    return row[0], order.index(row[1]) if row[1] in order else len(order)


def template(plan: Plan) -> str:
    """Return the path of a handler with its parameters, such as ``/books/show/{id}``. Optional ones are in brackets."""
    path = plan.path or "/"
    if plan.shape is None or plan.is_index:
        return path
    parts = [path.rstrip("/")]
    parts += [
        f"{{{parameter.name}}}" if parameter.required else f"[{parameter.name}]"
        for parameter in plan.shape.parameters
        if parameter.positional and parameter.source == "value" and parameter.name not in plan.captured
    ]
    if plan.shape.rest is not None:
        parts.append(f"{{{plan.shape.rest_name}...}}")
    return "/".join(parts) or "/"


def explain(app: App, method: str, path: str) -> str:
    """Describe how a request is handled: handler, parameters, hooks, and configuration with the origins of values."""
    lines = [f"{method} {path}"]
    try:
        path = unquote(path.partition("?")[0])
        lines = [f"{method} {path}"]
        plan = app.find(method, path)[1]
    except HTTPError as error:
        return "\n".join([*lines, f"  {error}", ""])
    except Exception as error:  # noqa: BLE001 - raised by the application's own dispatching code
        return "\n".join([*lines, f"  500 Internal Server Error: finding the handler raises {error!r}", ""])
    if plan.function is None:
        if plan.method == "OPTIONS":
            lines.append(f"  is answered with Allow: {', '.join(plan.allow)}")
        elif plan.allow:
            lines.append(f"  405 Method Not Allowed; there is {', '.join(plan.allow)}")
        else:
            lines.append(f"  404 Not Found: {why_not_found(app, path)}")
    else:
        lines += _handler(plan)
        refused = _refused_segments(app, plan, method, path)
        if refused:
            lines.append(f"  404 Not Found: {refused}")
    lines += _parameters(plan)
    lines += _hooks(plan)
    lines.append("configuration")
    if not plan.config:
        lines.append("  none")
    for key in sorted(plan.config):
        lines.append(f"  {key} = {plan.config[key]!r}    from {plan.origins[key]}")
    return "\n".join(lines) + "\n"


def why_not_found(app: App, path: str) -> str:
    """Return why no handler matches ``path``: the first segment that is not published, and the reason."""
    from kirsch_web.tree import Tree

    finder = app.finder
    if not isinstance(finder, Tree) or app.root is None:
        return "no route fits" if hasattr(finder, "routes") else "no handler"
    node, where = app.root, type(app.root).__name__
    for segment in path.split("/"):
        if not segment:
            continue
        described = finder.described(node)
        found = described.nodes.get(publishing.canonical(segment))
        if found is None:
            return _why_not_attribute(node, where, segment, [*described.handlers, *described.nodes])
        node, where = found, f"{where}.{segment}"
    return f"{where} has no method index, and no method default answers in its place"


def _why_not_attribute(node: object, where: str, segment: str, known: list[str]) -> str:
    """Return why ``node``, whose name is ``where``, does not publish ``segment``."""
    name = publishing.canonical(segment)
    if name.startswith("_"):
        return f"{where}.{name} begins with an underscore, so it is private"
    if name in ("index", "default"):
        return f"{name} answers in another path's place, and has none of its own"
    value = getattr(node, "__dict__", {}).get(name, getattr(type(node), name, None))
    if value is None:
        from kirsch_web.configuration import nearest

        return f"{where} has no attribute {name}{nearest(name, known)}"
    if isinstance(value, (FunctionType, MethodType)):
        mark = publishing.mark_of(value)
        if mark is not None and mark.hidden:
            return f"{where}.{name} is hidden by @web.hide"
        if mark is not None:
            return f"{where}.{name} is published by another name"
        return (
            f"{where}.{name} is a method of a class that publishes nothing else; decorate it with @web.get, "
            "or its class with @web.publish"
        )
    if isinstance(value, type):
        return f"{where}.{name} is a class; what is published is an instance of one"
    return (
        f"{where}.{name} is a {type(value).__name__}, whose class has no index, default or decorated method and no "
        "@web.publish, so it is not published"
    )


def _refused_segments(app: App, plan: Plan, method: str, path: str) -> str:
    """Return why the handler rejects the path segments after its own path; an empty string if it accepts them."""
    from kirsch_web.errors import BadText

    shape = plan.shape
    if shape is None:
        return ""
    rest = list(app.finder.find(path, method)[1])
    for parameter in shape.parameters:
        if parameter.source != "value" or not parameter.positional or parameter.name in plan.captured:
            continue
        if not rest:
            if parameter.required and not plan.is_index and method not in publishing.WITH_BODY:
                return f"parameter {parameter.name} is missing, unless the query gives it"
            return ""
        segment = rest.pop(0)
        try:
            if parameter.text is None or not segment:
                return f"parameter {parameter.name} is empty, or cannot be given in the path"
            parameter.text(segment)
        except BadText as error:
            return f"parameter {parameter.name} is {segment!r}, which is not {error}"
    if rest and shape.rest is None:
        return f"the handler takes no further segment, and the path has {'/'.join(rest)!r}"
    return ""


def _handler(plan: Plan) -> list[str]:
    return [f"  {template(plan)}", f"  handler    {_name(plan.function)}", f"  at         {place(plan.function)}"]


def _parameters(plan: Plan) -> list[str]:
    if plan.shape is None or not (plan.shape.parameters or plan.shape.rest or plan.shape.keywords):
        return []
    lines = ["parameters"]
    for each in plan.shape.parameters:
        needed = "required" if each.required else f"default {each.default!r}"
        lines.append(f"  {each.name}: {type_name(each.annotation)}    {source_of(plan, each)}, {needed}")
    if plan.shape.rest is not None:
        lines.append(f"  *{plan.shape.rest_name}: {type_name(plan.shape.rest_annotation)}    the rest of the path")
    if plan.shape.keywords:
        kind = "" if plan.shape.keyword is None else f": {type_name(plan.shape.keyword.annotation)}"
        lines.append(f"  **{plan.shape.keywords}{kind}    all other fields")
    return lines


def source_of(plan: Plan, parameter: Any) -> str:
    """Describe where the value of a parameter comes from, such as ``path or query``."""
    from kirsch_web.publishing import WITH_BODY

    body = plan.method in WITH_BODY
    if parameter.source == "inject":
        return "from the request"
    if parameter.source == "record":
        return "the body, JSON or a form" if body else "the query"
    if parameter.source == "upload":
        return "a file of the form"
    if parameter.source in ("header", "cookie"):
        return f"{parameter.source} {parameter.field}"
    places = []
    if parameter.name in plan.captured or (parameter.positional and not plan.is_index):
        places.append("path")
    if parameter.name not in plan.captured:
        places += ["body", "query"] if body else ["query"]
    return " or ".join(places)


def _hooks(plan: Plan) -> list[str]:
    lines = [
        f"  {point:22} {hook.priority:3}  {hook.name}{' (failsafe)' if hook.failsafe else ''}"
        for point in POINTS
        for hook in plan.hooks.get(point, ())
    ]
    return ["hooks, in order", *lines] if lines else ["hooks", "  none"]


def type_name(annotation: Any) -> str:
    """Return an annotation as it is written in source code, such as ``list[str]``."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _name(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"


def place(function: Any) -> str:
    """Return where a function is defined, such as ``shop.py:12``; ``?`` if that is unknown."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return "?" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def load(name: str) -> App:
    """Import the application ``module:attribute`` or ``module:factory()``; the default attribute is ``app``. Raises
    LookupError with the reason if there is none."""
    from importlib import import_module

    from kirsch_web.app import App

    module_name, colon, attribute = name.partition(":")
    calls = attribute.endswith("()")
    attribute = (attribute.removesuffix("()") if colon else "app") or "app"
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise
        raise LookupError(f"there is no module {module_name}") from None
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LookupError(f"module {module_name} has no {attribute}") from None
    if calls:
        found = found()
    found = getattr(found, "app", found)  # web.ASGI wraps the application
    if not isinstance(found, App):
        raise LookupError(f"{name} is a {type(found).__name__}, and not a kirsch_web.App")
    return found


def main(argv: Sequence[str] | None = None, command: str = "") -> int:
    """Run a command. Return its exit status: 0, 1 for an error in the application, 2 for a wrong command line."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if command:
        arguments.insert(0, command)
    if len(arguments) > 1 and arguments[1] in ("-h", "--help"):
        arguments = arguments[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    name, *rest = arguments
    commands: dict[str, tuple[int, Callable[..., str]]] = {
        "routes": (1, lambda app: routes(app)),
        "explain": (2, _explain_command),
        "openapi": (1, _openapi_command),
    }
    if name not in commands or len(rest) < 1 or len(rest) > commands[name][0] + (name == "explain"):
        sys.stderr.write(USAGE)
        return 2
    try:
        app = load(rest[0])
        sys.stdout.write(commands[name][1](app, *rest[1:]))
    except LookupError as error:
        sys.stderr.write(f"kirsch_web: {error}\n")
        return 1
    except ConfigError as error:
        for mistake in error.mistakes:
            sys.stderr.write(f"kirsch_web: {mistake}\n")
        return 1
    return 0


def _explain_command(app: App, *words: str) -> str:
    parts = [part for word in words for part in word.split()]
    if len(parts) == 1:
        parts.insert(0, "GET")
    if len(parts) != 2 or not parts[1].startswith("/"):
        raise LookupError(f"explain takes a method and a path, as in 'GET /books', not {' '.join(words)!r}")
    return explain(app, parts[0].upper(), parts[1])


def _openapi_command(app: App) -> str:
    import json

    from kirsch_web.openapi import document

    return json.dumps(document(app), indent=2) + "\n"
