"""The tree: published objects, compiled into branches. A request's path is looked up in them segment by segment.

The walk for a path with the segments s1 ... sn follows these rules:

1. The walk begins at the root. At a node, the next segment leads to the handler or the node of that name
   (:func:`kirsch_web.publishing.canonical`); ``index`` and ``default`` are no names. If there is no such name and the
   class has ``popargs``, the segment is captured and the walk stays at the object, until each name has a segment.
2. At a handler the walk ends; the segments that follow are its positional arguments.
3. If the path ends at a node, the handler is the node's ``index``, or else the nearest ``default``.
4. If a node does not have the next segment, the handler is the nearest ``default``: of that node, or of a node before
   it on the walk. Its positional arguments are the segments after its own node. The segments that its node captured
   are passed too.
5. If there is no such ``default``, the path is not found.

The configuration of a path is merged along the walk, and later values override earlier ones: at the root and after
each segment first the object's own configuration, then the section of that path. The configuration of a handler comes
before the section of its path, that of ``index`` comes last, and that of ``default`` after the section of its node.

A branch is made for every combination of object and section, so a request only looks names up in dictionaries. Objects
that are known only at run time (of ``__getattr__`` or ``_cp_dispatch``, or an object that contains itself) are compiled
when a request first reaches them, and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from kirsch_web import publishing
from kirsch_web.errors import ConfigError, NotFound
from kirsch_web.finder import Finder
from kirsch_web.plan import Endpoint, Plan, endpoint_of, plan_of_handler, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from kirsch_web.configuration import Layer
    from kirsch_web.interfaces import Application
    from kirsch_web.publishing import Described, Table

KEPT = 256
"""The number of objects found at run time whose branches each application keeps."""
MOST_PLACES = 5000
"""The number of places that are compiled when the application is mounted. Objects that refer to each other have too
many places to compile all: ten objects that all refer to each other have ten million."""
MOST_FOUND = 50
"""The number of objects found at run time for one path. It bounds the compilations that a client's path can cause."""
_TOO_MANY = f"more than {MOST_FOUND} objects of this path are only known at run time"


class Section:
    """A node in the tree of the configuration's sections: the section of one path, and the sections below it."""

    __slots__ = ("children", "layer", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.layer: Layer | None = None
        self.children: dict[str, Section] = {}

    @classmethod
    def tree(cls, layers: dict[str, Layer]) -> Section:
        """Return the root of the sections. Segments are compared in their canonical form, as in the tree of objects."""
        root = cls()
        for path, layer in layers.items():
            if not path:
                continue
            node = root
            for segment in path.split("/"):
                if segment:
                    name = publishing.canonical(segment)
                    if name not in node.children:
                        node.children[name] = cls(segment)
                    node = node.children[name]
            if node.layer is not None:
                raise ConfigError(f"{layer.origin} and {node.layer.origin} are sections of the same path")
            node.layer = layer
        return root

    def child(self, name: str) -> Section:
        return self.children.get(name) or _NO_SECTION


_NO_SECTION = Section()


class Target(NamedTuple):
    """A table of handlers, and the place on the walk at which it was found."""

    table: Table
    start: int
    level: int
    """The number of configuration layers before the handler's own."""
    captures: tuple[tuple[str, int], ...]
    path: str
    is_index: bool


class Branch:
    """One place of the tree."""

    __slots__ = ("children", "dynamic", "hand_over", "here", "path", "rest", "sections", "wild")

    def __init__(self, path: str) -> None:
        self.path = path
        self.children: dict[str, Branch] = {}
        self.sections: dict[str, Branch] = {}
        """Branches of segments that only the configuration names; they are tried after ``dynamic``."""
        self.wild: Branch | None = None
        """The branch after a captured segment."""
        self.here: Endpoint
        """The endpoint of a path that ends here."""
        self.rest: Endpoint
        """The endpoint of a path that continues with a segment that this branch does not have."""
        self.dynamic: Callable[[str, list[str], int], tuple[Branch, int] | None] | None = None
        """Finds the branch of a segment at run time."""
        self.hand_over: Callable[[list[str], int], Branch | None] | None = None
        """Makes, at run time, the object at which the walk continues."""


class Way(NamedTuple):
    """The layers, captures and handlers that were collected on the walk to a place."""

    path: str
    depth: int
    layers: tuple[Layer, ...]
    section: Section
    fallback: Target | None = None
    captures: tuple[tuple[str, int], ...] = ()
    ancestors: tuple[int, ...] = ()

    def to(self, segment: str, own: Layer | None, section: Section, **changes: Any) -> Way:
        """Return the way one segment further, with the layer of its object and then that of its section added."""
        layers = tuple(each for each in (*self.layers, own, section.layer) if each is not None)
        path = f"{self.path}/{segment}"
        return self._replace(path=path, depth=self.depth + 1, layers=layers, section=section, **changes)


class Tree(Finder):
    """The compiled tree of one application.

    Args:
        describe: returns what an object publishes; a function like :func:`kirsch_web.publishing.describe`.
    """

    def __init__(
        self,
        app: Application,
        root: object,
        sections: dict[str, Layer],
        describe: Callable[..., Described] = publishing.describe,
    ) -> None:
        super().__init__(app)
        self.described = describe
        """The function that returns what an object publishes."""
        self._found: OrderedDict[Any, tuple[object, Branch]] = OrderedDict()
        self._lock = Lock()
        self._places = 0
        section = Section.tree(sections)
        own = None if root is None else app.layer_of(root)
        layers = tuple(each for each in (app.defaults, sections.get(""), own, section.layer) if each is not None)
        way = Way("", 0, layers, section)
        self.root = self._bare(way) if root is None else self._node(root, way)
        self.dynamic = any(branch.dynamic or branch.hand_over for branch in self.branches())
        self._places = MOST_PLACES  # at run time one object at a time is compiled

    # Compiling

    def _node(self, obj: Any, way: Way) -> Branch:
        return self._place(obj, self.described(obj), way._replace(ancestors=(*way.ancestors, id(obj))), 0)

    def _place(self, obj: Any, described: Described, way: Way, popped: int) -> Branch:
        """Return the branch of an object after ``popped`` segments behind its own were captured."""
        self._places += 1
        branch = Branch(way.path)
        fallback = way.fallback
        if described.default is not None:
            fallback = Target(described.default, way.depth, len(way.layers), way.captures, way.path, False)
        here = fallback
        if described.index is not None:
            here = Target(described.index, way.depth, len(way.layers), way.captures, way.path, True)
        branch.here = self._endpoint(here, way)
        branch.rest = self._endpoint(fallback, way)
        inner = way._replace(fallback=fallback)
        self._attributes(branch, described, inner)
        if described.popargs is None:
            if described.dynamic:
                self._dynamic(branch, obj, inner)
        elif popped < len(described.popargs[0]):
            self._popargs(branch, obj, described, inner, popped)
        self._sections(branch, inner)
        return branch

    def _attributes(self, branch: Branch, described: Described, way: Way) -> None:
        """Add the branches of the handlers and nodes that an object publishes by name."""
        for name, table in described.handlers.items():
            section = way.section.child(name)
            branch.children[name] = self._handler(table, way, section)
        later: dict[str, Any] = {}
        for name, node in described.nodes.items():
            if id(node) in way.ancestors or self._places >= MOST_PLACES:
                later[name] = node
                continue
            section = way.section.child(name)
            branch.children[name] = self._node(node, way.to(name, self.app.layer_of(node), section))
        if later:
            self._later(branch, later, way)

    def _handler(self, table: Table, way: Way, section: Section) -> Branch:
        target = Target(table, way.depth + 1, len(way.layers), way.captures, f"{way.path}/{table.name}", False)
        further = way.to(table.name, None, section, fallback=target)
        branch = Branch(further.path)
        branch.here = branch.rest = self._endpoint(target, further)
        self._sections(branch, further)
        return branch

    def _bare(self, way: Way) -> Branch:
        """Return the branch of a path that only the configuration names."""
        branch = Branch(way.path)
        branch.here = branch.rest = self._endpoint(way.fallback, way)
        self._sections(branch, way)
        return branch

    def _sections(self, branch: Branch, way: Way) -> None:
        target = branch.children if branch.dynamic is None else branch.sections
        for name, section in way.section.children.items():
            if name not in branch.children:
                target[name] = self._bare(way.to(section.name, None, section))

    def _popargs(self, branch: Branch, obj: Any, described: Described, way: Way, popped: int) -> None:
        """Add the branches after ``branch`` for the next captured segment: one for any, and one for each section."""
        assert described.popargs is not None
        names, handler = described.popargs

        def behind(segment: str, section: Section) -> Branch:
            captures = (*way.captures, (names[popped], way.depth))
            further = way.to(segment, None, section, captures=captures)
            if handler is not None and popped + 1 == len(names):
                return self._handed_over(handler, further, names)
            return self._place(obj, described, further, popped + 1)

        for name, section in way.section.children.items():
            if name not in described.handlers and name not in described.nodes:
                branch.children[name] = behind(section.name, section)
        branch.wild = behind("{" + names[popped] + "}", _NO_SECTION)

    def _handed_over(self, handler: Any, way: Way, names: tuple[str, ...]) -> Branch:
        """Return the branch of ``handler``, or, if it is callable, of the object that it makes of captured segments."""
        if not callable(handler):
            return self._node(handler, way)
        branch = self._bare(way)
        count = len(names)

        def make(segments: list[str], at: int) -> Branch | None:
            made = handler(**dict(zip(names, segments[at - count : at], strict=True)))
            if made is None:
                return None
            own = self.app.layer_of(made)
            layers = way.layers if own is None else (*way.layers, own)
            return self._compiled(made, way._replace(layers=layers, captures=way.captures[:-count], ancestors=()))

        branch.hand_over = make
        return branch

    def _later(self, branch: Branch, nodes: dict[str, Any], way: Way) -> None:
        """Let requests compile ``nodes``, because they contain themselves or exceed ``MOST_PLACES``."""

        def find(segment: str, _segments: list[str], at: int) -> tuple[Branch, int] | None:
            name = publishing.canonical(segment)
            node = nodes.get(name)
            if node is None:
                return None
            return self._compiled(
                node, way.to(segment, self.app.layer_of(node), way.section.child(name), ancestors=())
            ), at + 1

        branch.dynamic = _either(branch.dynamic, find)

    def _dynamic(self, branch: Branch, obj: Any, way: Way) -> None:
        """Call ``_cp_dispatch`` or ``__getattr__`` at run time for segments that the object does not have."""
        dispatch = getattr(obj, "_cp_dispatch", None) if hasattr(type(obj), "_cp_dispatch") else None
        has_getattr = hasattr(type(obj), "__getattr__")

        def find(segment: str, segments: list[str], at: int) -> tuple[Branch, int] | None:
            if dispatch is not None:
                left = segments[at:]
                found = dispatch(left)
                used = len(segments) - at - len(left)
                if found is not None and used >= 0:
                    if found is obj and not used:
                        return None
                    further = way
                    for each in segments[at : at + used]:
                        further = further.to(each, None, further.section.child(publishing.canonical(each)))
                    # The method may return the object itself, now with fewer segments.
                    own = self.app.layer_of(found)
                    layers = further.layers if own is None or found is obj else (*further.layers, own)
                    return self._compiled(found, further._replace(layers=layers, ancestors=())), at + used
            name = publishing.canonical(segment)
            if not has_getattr or not name or name.startswith("_"):
                return None
            try:
                found = getattr(obj, name)
            except AttributeError:
                return None
            section = way.section.child(name)
            mark = publishing.mark_of(found)
            if callable(found) and mark is not None and not isinstance(found, type) and hasattr(found, "__code__"):
                if mark.hidden:
                    return None
                table = publishing.Table(segment, dict.fromkeys(mark.methods, found))
                return self._handler(table, way, section), at + 1
            if not publishing.is_node(found):
                return None
            return self._compiled(found, way.to(segment, self.app.layer_of(found), section, ancestors=())), at + 1

        branch.dynamic = _either(branch.dynamic, find)

    def _compiled(self, obj: Any, way: Way) -> Branch:
        """Return the branch of an object found at run time. It is kept, with the object, for the next request."""
        fallback = way.fallback
        key = (id(obj), way.path, way.depth, way.captures, id(fallback and fallback.table), tuple(map(id, way.layers)))
        with self._lock:
            kept = self._found.get(key)
            if kept is not None:
                self._found.move_to_end(key)
                return kept[1]
        branch = self._node(obj, way)
        with self._lock:
            self._found[key] = (obj, branch)
            while len(self._found) > KEPT:
                self._found.popitem(last=False)
        return branch

    # Endpoints

    def _endpoint(self, target: Target | None, way: Way) -> Endpoint:
        if target is None:
            other = Plan(self.app.settings(way.layers), refuse(NotFound()), method="", path=way.path)
            return Endpoint({}, other, way.depth)
        found = target
        return endpoint_of(
            self.app,
            way.layers,
            target.path,
            target.table.methods,
            lambda method, function, allow: self._handler_plan(found, way, method, function, allow),
            (target.start, target.captures, target.is_index),
        )

    def _handler_plan(
        self,
        target: Target,
        way: Way,
        method: str,
        function: Callable[..., object],
        allow: tuple[str, ...],
    ) -> Plan:
        names = tuple(name for name, _ in target.captures)
        layers = way.layers
        own = self.app.layer_of(function)
        if own is not None:
            layers = (*layers[: target.level], own, *layers[target.level :])
        about: Any = {"method": method, "path": target.path, "is_index": target.is_index, "start": target.start}
        try:
            plan = plan_of_handler(self.app, layers, function, names, **about, captured=names, allow=allow)
        except ConfigError as error:  # mounting reports all mistakes together
            self.app.mistakes.extend(error.mistakes)
            return Plan(self.app.settings(layers), refuse(NotFound()), method=method, path=target.path)
        shape = plan.shape
        if target.table.name == "" and target.is_index and shape.rest is not None:
            self.app.mistakes.append(
                f"{shape.where}: index takes no segments of the path; name it default, or drop *{shape.rest_name}"
            )
        return plan

    # Looking up

    def find(self, path: str, _method: str = "GET", /) -> tuple[Endpoint, Sequence[str], dict[str, str] | None]:
        """Return the endpoint of a decoded path, the segments for positional parameters, and the captured segments by
        name."""
        segments = path.split("/")
        if segments and not segments[0]:
            del segments[0]
        if segments and not segments[-1]:
            del segments[-1]
        branch = self.root
        at, end, later = 0, len(segments), 0
        while at < end:
            segment = segments[at]
            child = branch.children.get(segment)
            if child is None:
                if "-" in segment or "." in segment:
                    child = branch.children.get(publishing.canonical(segment))
                if child is None and branch.dynamic is not None and segment:
                    found = branch.dynamic(segment, segments, at)
                    if found is not None:
                        branch, at = found
                        later += 1
                        if later > MOST_FOUND:
                            raise NotFound(_TOO_MANY)
                        continue
                if child is None and branch.sections:
                    child = branch.sections.get(publishing.canonical(segment))
                if child is None and segment:
                    child = branch.wild
                if child is None:
                    break
            branch = child
            at += 1
            if branch.hand_over is not None:
                branch = branch.hand_over(segments, at) or branch
                later += 1
                if later > MOST_FOUND:
                    raise NotFound(_TOO_MANY)
        endpoint = branch.rest if at < end else branch.here
        captured = None
        if endpoint.captures:
            captured = {name: segments[number] for name, number in endpoint.captures}
        return endpoint, segments[endpoint.start :], captured

    def exact(self) -> Iterator[tuple[str, Endpoint]]:
        """Yield the paths that need no walk, in each spelling that requests commonly use, with their endpoints."""
        for path, branch in self._written(self.root, ""):
            endpoint = branch.here
            fixed = endpoint.start == path.count("/") and not endpoint.captures
            if fixed and endpoint.plans and branch.hand_over is None:
                yield path, endpoint
                yield path + "/", endpoint

    def leaves(self) -> Iterator[tuple[str, Endpoint]]:
        """Yield the paths of handlers that take any next segment as an argument, with their endpoints."""
        for path, branch in self._written(self.root, ""):
            endpoint = branch.rest
            fixed = endpoint.start == path.count("/") and not endpoint.captures
            known = branch.children or branch.sections or branch.wild or branch.dynamic or branch.hand_over
            if fixed and endpoint.plans and not known:
                yield path, endpoint

    def _written(self, branch: Branch, path: str) -> Iterator[tuple[str, Branch]]:
        """Yield a branch and those after it, with each spelling of the path that requests commonly use."""
        yield path, branch
        for name, child in branch.children.items():
            written = child.path.rpartition("/")[2]
            for segment in {name, written} if publishing.canonical(written) == name else {name}:
                yield from self._written(child, f"{path}/{segment}")

    def handlers(self) -> Iterator[Plan]:
        """Yield the plans of the handlers, each path and method once, without HEAD."""
        seen = set()
        for branch in self.branches():
            for endpoint in (branch.here, branch.rest):
                for method, plan in endpoint.plans.items():
                    key = (plan.path, method, plan.function)
                    if plan.function is not None and method != "HEAD" and key not in seen:
                        seen.add(key)
                        yield plan

    def branches(self) -> Iterator[Branch]:
        """Yield every branch that was compiled when the application was mounted."""
        stack = [self.root]
        while stack:
            branch = stack.pop()
            yield branch
            if branch.wild is not None:
                stack.append(branch.wild)
            stack.extend(reversed(branch.children.values()))


def _either(first: Any, second: Any) -> Any:
    if first is None:
        return second
    return lambda segment, segments, at: first(segment, segments, at) or second(segment, segments, at)
