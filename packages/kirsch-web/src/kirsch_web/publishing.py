"""Publishing: the decorators, and the rule by which methods become handlers and objects become nodes.

The rule: the root is published. An attribute of a published object is published if its class has ``index`` or
``default`` or a decorated method, or is marked by :func:`publish`. A published class publishes the public methods that
it defines. Inherited methods are published if the base class is itself published. So a database connection or a dict
in an attribute stays private, and so do the methods that an application's class inherits from a library's.
"""

from __future__ import annotations

import types
from typing import NamedTuple

from kirsch_web.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol, TypeVar, overload

    F = TypeVar("F")

    class Publisher(Protocol):
        """``@web.get``, or ``@web.get(name=..., status=..., limit="2MiB", ...)``."""

        @overload
        def __call__(self, function: F, /) -> F: ...
        @overload
        def __call__(
            self, *, name: str | Sequence[str] = (), status: int = 0, **config: object
        ) -> Callable[[F], F]: ...


MARK = "__kirsch_web__"
CONFIG = "__kirsch_web_config__"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
SAFE = frozenset(("GET", "HEAD", "OPTIONS", "QUERY", "TRACE"))
"""The safe methods, which change nothing on the server (RFC 9110, 9.2.1; RFC 10008 for QUERY)."""
WITH_BODY = frozenset(("POST", "PUT", "PATCH", "QUERY", "DELETE"))
"""The methods whose body is read if a handler's parameters need it."""


class Mark(NamedTuple):
    """The values that decorators attach to a function or a class."""

    methods: tuple[str, ...] = ("GET",)
    names: tuple[str, ...] = ()
    status: int = 0
    hidden: bool = False


def _decorator(methods: tuple[str, ...]) -> Any:
    def decorate(function: Any = None, *, name: str | Sequence[str] = (), status: int = 0, **config: object) -> Any:
        """Publish a method. ``name`` is its segment of the path, or several; default: the method's name.

        ``name="index"`` makes the method answer the object's own path. ``status`` is the status if the result is no
        Response. Other keywords are configuration of the handler; ``limit="2MiB"`` is short for ``body.limit``.
        """
        names = (name,) if isinstance(name, str) else tuple(name)
        for each in names:
            if not each or "/" in each:
                raise ConfigError(f"the name {each!r} of a handler is no segment of a path")
        if status and not 200 <= status <= 599:
            raise ConfigError(f"the status of a handler is 200 to 599, not {status}")

        def mark(function: Any) -> Any:
            if isinstance(function, (staticmethod, classmethod)):
                mark(function.__func__)
                return function
            present = function.__dict__.get(MARK)
            both = (*present.methods, *methods) if present is not None else methods
            setattr(function, MARK, Mark(tuple(dict.fromkeys(both)), names, status))
            if config:
                options = {
                    ("body.limit" if key == "limit" else key.replace("__", ".")): each for key, each in config.items()
                }
                merge_config(function, options)
            return function

        return mark if function is None else mark(function)

    return decorate


get: Publisher = _decorator(("GET",))
post: Publisher = _decorator(("POST",))
put: Publisher = _decorator(("PUT",))
patch: Publisher = _decorator(("PATCH",))
delete: Publisher = _decorator(("DELETE",))
query: Publisher = _decorator(("QUERY",))


if TYPE_CHECKING:

    @overload
    def publish(thing: F, /) -> F: ...
    @overload
    def publish(
        *, methods: Sequence[str] = ("GET",), name: str | Sequence[str] = (), status: int = 0
    ) -> Callable[[F], F]: ...


def publish(
    thing: Any = None, /, *, methods: Sequence[str] = ("GET",), name: str | Sequence[str] = (), status: int = 0
) -> Any:
    """Publish a method for HTTP ``methods``, or a class, whose instances are nodes if they are attributes of nodes."""
    for method in methods:
        if method not in METHODS or method == "HEAD":
            raise ConfigError(f"{method} is no method to publish; HEAD comes with GET, and OPTIONS is answered")

    def mark(thing: Any) -> Any:
        if isinstance(thing, type):
            setattr(thing, MARK, Mark())
            return thing
        return _decorator(tuple(methods))(thing, name=name, status=status)

    return mark if thing is None else mark(thing)


def hide(thing: F) -> F:
    """Keep a method, or the instances of a class, from being published. A decorator."""
    setattr(thing, MARK, Mark(hidden=True))
    return thing


def config(options: Mapping[str, object] | None = None, **keywords: object) -> Callable[[F], F]:
    """Return a decorator that configures a handler, or, for a class, the path of its objects and all paths below.

    ``@web.config({"tools.gzip.on": True})``, or with two underscores for a dot: ``@web.config(tools__gzip__on=True)``.
    """
    values = {**(options or {}), **{key.replace("__", "."): each for key, each in keywords.items()}}

    def decorate(thing: F) -> F:
        merge_config(thing, values)
        return thing

    return decorate


def merge_config(thing: Any, values: Mapping[str, object]) -> None:
    """Add ``values`` to the configuration of a function or a class. The configuration of base classes is unchanged."""
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    present = thing.__dict__.get(CONFIG) or {}
    setattr(thing, CONFIG, {**present, **values})


def config_of(thing: Any) -> dict[str, object]:
    """Return the configuration that decorators gave a function, or the class of an object and its bases."""
    if isinstance(thing, (types.FunctionType, types.MethodType)):
        return dict(getattr(thing, CONFIG, ()))
    merged: dict[str, object] = {}
    for base in reversed(type(thing).__mro__):
        merged.update(base.__dict__.get(CONFIG, ()))
    return merged


def popargs(*names: str, handler: Any = None) -> Callable[[F], F]:
    """Return a class decorator that captures segments for which the object has no attribute as parameters ``names``.

    The handler that is found receives the parameters. ``handler`` is an object at which the search continues, or a
    callable that makes this object from the parameters.
    """
    if not names:
        raise ConfigError("popargs needs the names of the parameters")

    def decorate(cls: F) -> F:
        setattr(cls, POPARGS, (names, handler))
        setattr(cls, MARK, getattr(cls, MARK, Mark()))
        return cls

    return decorate


POPARGS = "__kirsch_web_popargs__"


class Table(NamedTuple):
    """The handlers of one name: a callable for each method."""

    name: str
    """The name as it is written in a URL."""
    methods: dict[str, Callable[..., object]]


class Described:
    """The handlers and nodes that one object publishes."""

    __slots__ = ("default", "dynamic", "handlers", "index", "nodes", "popargs")

    def __init__(self, cls: type) -> None:
        self.index: Table | None = None
        self.default: Table | None = None
        self.handlers: dict[str, Table] = {}
        """The tables by canonical name, see :func:`canonical`."""
        self.nodes: dict[str, Any] = {}
        self.popargs: tuple[tuple[str, ...], Any] | None = getattr(cls, POPARGS, None)
        self.dynamic = hasattr(cls, "__getattr__") or hasattr(cls, "_cp_dispatch")
        """True if the class has ``__getattr__`` or ``_cp_dispatch``, which may find further objects at run time."""


_TRANSLATE = {ord("-"): "_", ord("."): "_"}


def canonical(segment: str) -> str:
    """Return the attribute's name for a segment of a path: ``robots_txt`` for ``robots.txt`` and ``robots-txt``."""
    return segment.translate(_TRANSLATE)


def mark_of(thing: Any) -> Mark | None:
    """Return the mark that a decorator has set on a function, a class or its base class; None if there is none."""
    found = getattr(thing, MARK, None)
    return found if isinstance(found, Mark) else None


def _publishes(cls: type) -> bool:
    """Return whether a class itself, regardless of its bases, makes its instances nodes."""
    own = cls.__dict__.get(MARK)
    if own is not None:
        return not own.hidden
    for name, value in cls.__dict__.items():
        function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(function, types.FunctionType) or _is_wrapper(function):
            if name in ("index", "default"):
                return True
            mark = function.__dict__.get(MARK)
            if mark is not None and not mark.hidden:
                return True
    return False


def _is_wrapper(value: Any) -> bool:
    """Return whether ``value`` is a published method wrapped in an object that is no function, as by
    functools.lru_cache."""
    return MARK in getattr(value, "__dict__", ()) and hasattr(value, "__wrapped__") and not isinstance(value, type)


def is_node(value: Any) -> bool:
    """Return whether an attribute's value is published as a node of the tree."""
    if isinstance(value, (type, types.FunctionType, types.MethodType, types.ModuleType)):
        return False
    own = getattr(value, "__dict__", {}).get(MARK) if hasattr(value, "__dict__") else None
    if own is not None:
        return not own.hidden
    for base in type(value).__mro__:
        mark = base.__dict__.get(MARK)
        if mark is not None:
            return not mark.hidden
    return any(_publishes(base) for base in type(value).__mro__)


def describe(obj: Any) -> Described:
    """Return the handlers and nodes that ``obj`` publishes. Raises ConfigError if two handlers have the same name and
    method."""
    cls = type(obj)
    found = Described(cls)
    seen: set[str] = set()
    for base in cls.__mro__:
        if base is object:
            continue
        published = base is cls or _publishes(base)
        for name, value in base.__dict__.items():
            if name in seen:
                continue
            seen.add(name)
            if isinstance(value, (staticmethod, classmethod)):
                if isinstance(value.__func__, types.FunctionType):
                    _add_function(found, obj, name, value.__func__, published)
            elif isinstance(value, types.FunctionType) or _is_wrapper(value):
                _add_function(found, obj, name, value, published)
            elif not name.startswith("_") and is_node(value):
                found.nodes[canonical(name)] = value
    for name, value in getattr(obj, "__dict__", {}).items():
        if isinstance(value, (types.FunctionType, types.MethodType)):
            mark = mark_of(value)
            if mark is not None and not mark.hidden:
                _add(found, name, mark, value)
        elif not name.startswith("_") and is_node(value):
            found.nodes[canonical(name)] = value
        else:
            found.nodes.pop(canonical(name), None)  # an instance's own attribute hides the class's
    for name in found.handlers.keys() & found.nodes.keys():
        del found.nodes[name]
    return found


def _add_function(found: Described, obj: Any, name: str, function: Any, published: bool) -> None:
    mark = function.__dict__.get(MARK)
    if mark is None:
        if name.startswith("_") or not published:
            return
        mark = _PLAIN
    elif mark.hidden:
        return
    _add(found, name, mark, getattr(obj, name))


_PLAIN = Mark()


def _add(found: Described, own_name: str, mark: Mark, function: Callable[..., object]) -> None:
    for name in mark.names or (own_name,):
        if name == "index":
            table = found.index = found.index or Table("", {})
        elif name == "default":
            table = found.default = found.default or Table("", {})
        else:
            key = canonical(name)
            if key.startswith("_") and mark is _PLAIN:
                return
            table = found.handlers.setdefault(key, Table(name, {}))
        for method in mark.methods:
            if method in table.methods:
                raise ConfigError(
                    f"{function.__module__}.{function.__qualname__} and {table.methods[method].__qualname__} "
                    f"both answer {method} of {name!r}"
                )
            table.methods[method] = function


def describe_resource(obj: Any) -> Described:
    """Return what ``obj`` publishes with :class:`kirsch_web.dispatch.Resources`: methods GET, POST, ... and nodes."""
    found = Described(type(obj))
    table = Table("", {})
    for method in METHODS:
        function = getattr(type(obj), method, None)
        if function is not None and method != "HEAD":
            table.methods[method] = getattr(obj, method)
    if table.methods:
        found.index = found.default = table
    attributes: dict[str, Any] = {}
    for base in reversed(type(obj).__mro__):
        attributes.update(base.__dict__)
    attributes.update(getattr(obj, "__dict__", {}))
    for name, value in attributes.items():
        if not name.startswith("_") and (is_node(value) or _is_resource(value)):
            found.nodes[canonical(name)] = value
    return found


def _is_resource(value: Any) -> bool:
    if isinstance(value, (type, types.FunctionType, types.MethodType, types.ModuleType)):
        return False
    mark = mark_of(type(value))
    if mark is not None:
        return not mark.hidden
    return any(isinstance(getattr(type(value), method, None), types.FunctionType) for method in METHODS)
