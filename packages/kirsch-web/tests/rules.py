"""Random trees, and a literal interpreter of the rules that kirsch_web.tree states: slow, and made of nothing of it."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kirsch_web as web

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ["a", "b", "c", "a_b", "x_y"]
SEGMENTS = ["a", "b", "c", "a-b", "a_b", "x.y", "7", "-a", "index", "_b", "é"]
KEYS = ["t.k", "t.l"]


@dataclass
class Parameter:
    name: str
    is_int: bool
    has_default: bool


@dataclass
class Function:
    label: str
    methods: tuple[str, ...]
    parameters: list[Parameter]
    rest: bool
    config: dict[str, str]


@dataclass
class Node:
    config: dict[str, str]
    index: list[Function] = field(default_factory=list)
    default: list[Function] = field(default_factory=list)
    handlers: dict[str, list[Function]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    dynamic: dict[str, Node] = field(default_factory=dict)
    popargs: tuple[str, ...] = ()


@dataclass
class Tree:
    root: Node
    sections: dict[str, dict[str, str]]


def random_tree(rng: random.Random) -> Tree:
    """Most trees are small, so that many can be compared; a few are as wide and deep as the names allow."""
    counter = iter(range(10**9))
    names = rng.sample(NAMES, rng.choice([1, 2, 2, 2, 3, 3, 5]))
    deepest = rng.choice([1, 1, 2, 2, 2, 3])

    def config() -> dict[str, str]:
        return {rng.choice(KEYS): str(next(counter))} if rng.random() < 0.4 else {}

    def functions(kind: str) -> list[Function]:
        found: list[Function] = []
        methods = rng.choice([("GET",), ("GET",), ("POST",), ("GET", "POST"), ("PUT", "QUERY")])
        others = rng.choice([(), (), ("DELETE",), ("PATCH",)])
        found += [one(kind, each) for each in (methods, others) if each]
        return found

    def one(kind: str, methods: tuple[str, ...]) -> Function:
        names = rng.sample(["p", "q", "y", "m"], rng.choice([0, 0, 0, 1, 1, 2, 3]))
        optional = False
        parameters = []
        for name in names:
            optional = optional or rng.random() < 0.3
            parameters.append(Parameter(name, rng.random() < 0.3, optional))
        return Function(str(next(counter)), methods, parameters, kind != "index" and rng.random() < 0.3, config())

    def node(depth: int) -> Node:
        made = Node(config())
        if rng.random() < 0.5:
            made.index = functions("index")
        if rng.random() < 0.35:
            made.default = functions("default")
        for name in names:
            chance = rng.random()
            if chance < 0.25:
                made.handlers[name] = functions("handler")
            elif chance < 0.55 and depth < deepest:
                made.nodes[name] = node(depth + 1)
            elif chance < 0.62 and depth < deepest:
                made.dynamic[name] = node(depth + 1)
        if not made.dynamic and rng.random() < 0.25:
            made.popargs = rng.choice([("y",), ("y", "m"), ("m",)])
        return made

    sections: dict[str, dict[str, str]] = {}
    seen = set()
    for _ in range(rng.randrange(5)):
        path = [rng.choice(SEGMENTS) for _ in range(rng.randrange(4))]
        key = tuple(map(canonical, path))
        if key not in seen:
            seen.add(key)
            sections["/" + "/".join(path)] = {rng.choice(KEYS): str(next(counter))}
    if rng.random() < 0.3:
        sections[""] = {rng.choice(KEYS): str(next(counter))}
    return Tree(node(0), sections)


def random_path(rng: random.Random) -> str:
    segments = [rng.choice(SEGMENTS) for _ in range(rng.randrange(6))]
    if segments and rng.random() < 0.05:
        segments[rng.randrange(len(segments))] = ""
    return "/" + "/".join(segments) + ("/" if segments and rng.random() < 0.2 else "")


# The real thing


def build(tree: Tree) -> web.App:
    config: dict[str, Any] = {path: values for path, values in tree.sections.items() if path}
    config.update(tree.sections.get("", {}))
    return web.App(_instance(tree.root), config, namespaces=["t"])


def _instance(node: Node) -> Any:
    body: dict[str, Any] = {}
    for number, function in enumerate(node.index):
        body[f"index_{number}"] = _method(function, "index")
    for number, function in enumerate(node.default):
        body[f"default_{number}"] = _method(function, "default")
    for name, functions in node.handlers.items():
        for number, function in enumerate(functions):
            body[f"{name}_{number}_"] = _method(function, name)
    for name, child in node.nodes.items():
        body[name] = _instance(child)
    if node.dynamic:
        made = {name: _instance(child) for name, child in node.dynamic.items()}

        def find(self: object, name: str) -> object:
            try:
                return made[name]
            except KeyError:
                raise AttributeError(name) from None

        body["__getattr__"] = find
    cls = web.publish(type("Random", (), body))
    if node.config:
        cls = web.config(node.config)(cls)
    if node.popargs:
        cls = web.popargs(*node.popargs)(cls)
    return cls()


def _method(function: Function, name: str) -> Any:
    parts = ["self"]
    for each in function.parameters:
        annotation = "int" if each.is_int else "str"
        parts.append(f"{each.name}: {annotation}" + (" = None" if each.has_default else ""))
    if function.rest:
        parts.append("*rest: str")
    values = "".join(f"{each.name!r}: {each.name}, " for each in function.parameters)
    method = _maker(", ".join(parts), values, "list(rest)" if function.rest else "[]")(function.label)
    method = web.publish(methods=function.methods, name=name)(method)
    return web.config(function.config)(method) if function.config else method


@functools.cache
def _maker(parameters: str, values: str, rest: str) -> Callable[[str], Any]:
    """Makes functions of one signature, each of which returns what it was called with."""
    source = (
        "def make(label):\n"
        f"    def method({parameters}):\n"
        f"        return {{'label': label, 'values': {{{values}}}, 'rest': {rest}, 'config': config()}}\n"
        "    return method\n"
    )
    namespace: dict[str, Any] = {"config": lambda: taken(web.current().config)}
    exec(compile(source, "<handlers>", "exec", dont_inherit=True), namespace)  # annotations that are types
    make: Callable[[str], Any] = namespace["make"]
    return make


def taken(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in KEYS if key in config}


# The rules, read literally


def canonical(segment: str) -> str:
    return segment.replace("-", "_").replace(".", "_")


def segments_of(path: str) -> list[str]:
    parts = path[1:].split("/")
    return parts[:-1] if parts[-1] == "" else parts


def expected(tree: Tree, method: str, path: str) -> tuple[int, Any]:
    """The status, and what the handler says or the methods that are allowed.

    Longer than other functions: the rules are asked in their order, as the documentation lists them.
    """
    segments = segments_of(path)
    steps: list[tuple[Node | None, dict[str, str], dict[str, str]]] = []
    node: Node | None = tree.root
    captured: list[tuple[str, str]] = []
    captured_before: list[list[tuple[str, str]]] = []
    names_left = list(tree.root.popargs)
    handler: list[Function] | None = None
    nodes: list[Node | None] = []
    own: list[dict[str, str]] = []
    consumed = 0
    nodes.append(node)
    own.append(node.config if node else {})
    captured_before.append([])
    # Rules 1 and 2.
    while consumed < len(segments):
        assert node is not None
        segment = segments[consumed]
        name = canonical(segment)
        if segment and name in node.handlers:
            handler = node.handlers[name]
            consumed += 1
            break
        child = node.nodes.get(name) or node.dynamic.get(name) if segment else None
        if child is not None:
            node = child
            names_left = list(child.popargs)
            nodes.append(child)
            own.append(child.config)
            consumed += 1
            captured_before.append(list(captured))
            continue
        if segment and names_left:
            captured.append((names_left.pop(0), segment))
            consumed += 1
            nodes.append(node)
            own.append({})
            captured_before.append(list(captured))
            continue
        break
    del steps
    # The layers of the way: for each place the object's own, then the section's.
    sections = {tuple(map(canonical, segments_of(each))) if each != "/" else (): values
                for each, values in tree.sections.items() if each}  # fmt: skip
    layers: list[dict[str, str]] = [tree.sections.get("", {})]
    ends: list[int] = []  # how many layers there are behind each place
    for depth in range(len(segments) + 1):
        if depth < len(own):
            layers.append(own[depth])
        if handler is not None and depth == consumed:
            ends.append(len(layers))  # a handler's own goes before the section of its path
        layers.append(sections.get(tuple(map(canonical, segments[:depth])), {}))
        if not (handler is not None and depth == consumed):
            ends.append(len(layers))
    # Rules 3, 4 and 5.
    is_index = False
    if handler is not None:
        table, start, level, given = handler, consumed, ends[consumed], captured
    else:
        assert node is not None
        if consumed == len(segments) and node.index:
            table, start, level, given, is_index = node.index, consumed, ends[consumed], captured, True
        else:
            for depth in range(len(nodes) - 1, -1, -1):
                found = nodes[depth]
                if found is not None and found.default:
                    table, start, level, given = found.default, depth, ends[depth], captured_before[depth]
                    break
            else:
                return 404, None
    by_method = {each: function for function in table for each in function.methods}
    allow = set(by_method) | ({"HEAD"} if "GET" in by_method else set()) | {"OPTIONS"}
    if method == "OPTIONS":
        return 204, allow
    function = by_method.get(method)
    if function is None:
        return 405, allow
    merged: dict[str, str] = {}
    for layer in [*layers[:level], function.config, *layers[level:]]:
        merged.update(layer)
    return called(method, function, segments[start:], dict(given), is_index, merged)


def called(
    method: str,
    function: Function,
    segments: list[str],
    captured: dict[str, str],
    is_index: bool,
    config: dict[str, str],
) -> tuple[int, Any]:
    left = list(segments)
    values: dict[str, Any] = {}
    status = 200
    for parameter in function.parameters:
        if parameter.name in captured:
            raw = captured.pop(parameter.name)
        elif left:
            raw = left.pop(0)
        else:
            values[parameter.name] = None
            if not parameter.has_default:
                missing = 422 if method in ("POST", "PUT", "PATCH", "QUERY") else 400 if is_index else 404
                status = 404 if 404 in (status, missing) else missing
            continue
        if raw == "":
            status = 404
        elif parameter.is_int:
            if raw == "7":
                values[parameter.name] = 7
            else:
                status = 404
        else:
            values[parameter.name] = raw
    if captured or (left and not function.rest):
        return 404, None
    if status != 200:
        return status, None
    return 200, {"label": function.label, "values": values, "rest": left, "config": config}
