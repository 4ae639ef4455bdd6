"""Publishing: the decorators, and the rule by which methods become handlers and objects become nodes.

The rule. The root is published. An attribute of a published object is part of the tree when its class says so: it has
``index`` or ``default``, a decorated method, or is marked by :func:`publish`. A published class publishes the public
methods that it defines; those that it inherits are published if the base class is itself published. So a database
connection or a dict that an object keeps in an attribute stays private, and so do the methods of a library's class
that an application derives from.
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
"""Methods that change nothing on the server (RFC 9110, 9.2.1; RFC 10008 for QUERY)."""
WITH_BODY = frozenset(("POST", "PUT", "PATCH", "QUERY", "DELETE"))
"""Methods whose body is read where a handler's parameters need it."""


class Mark(NamedTuple):
    """The marks that decorators leave on a function or a class."""

    methods: tuple[str, ...] = ("GET",)
    names: tuple[str, ...] = ()
    status: int = 0
    hidden: bool = False


def _decorator(methods: tuple[str, ...]) -> Any:
    def decorate(function: Any = None, *, name: str | Sequence[str] = (), status: int = 0, **config: object) -> Any:
        """Publish a method; ``name`` is its segment of the path instead of its own, or several of them.

        ``name="index"`` makes it answer the object's own path. ``status`` is that of a result that is no Response.
        Other keywords are options of the configuration for it, ``limit="2MiB"`` being short for ``body.limit``.
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
    """Publish a method, for ``methods``, or a class: its instances are nodes if they are attributes of nodes."""
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
    """Do not publish this method, or instances of this class."""
    setattr(thing, MARK, Mark(hidden=True))
    return thing


def config(options: Mapping[str, object] | None = None, **keywords: object) -> Callable[[F], F]:
    """Decorator: configuration of a handler, or of a class for its path and all below.

    ``@web.config({"tools.gzip.on": True})``, or with two underscores for a dot: ``@web.config(tools__gzip__on=True)``.
    """
    values = {**(options or {}), **{key.replace("__", "."): each for key, each in keywords.items()}}

    def decorate(thing: F) -> F:
        merge_config(thing, values)
        return thing

    return decorate


def merge_config(thing: Any, values: Mapping[str, object]) -> None:
    """Add to the configuration of a function or a class; a base class's stays its own."""
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
    """Class decorator: segments that no attribute is found for become parameters of these names.

    They are passed on to whatever handler is reached. With ``handler``, an object or a callable that makes one from
    the parameters, the walk goes on there.
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
    """As it is written in a URL."""
    methods: dict[str, Callable[..., object]]


class Described:
    """The handlers and nodes that one object publishes."""

    __slots__ = ("default", "dynamic", "handlers", "index", "nodes", "popargs")

    def __init__(self, cls: type) -> None:
        self.index: Table | None = None
        self.default: Table | None = None
        self.handlers: dict[str, Table] = {}
        """By the name as the tree compares it, see :func:`canonical`."""
        self.nodes: dict[str, Any] = {}
        self.popargs: tuple[tuple[str, ...], Any] | None = getattr(cls, POPARGS, None)
        self.dynamic = hasattr(cls, "__getattr__") or hasattr(cls, "_cp_dispatch")
        """True if ``__getattr__`` or ``_cp_dispatch`` may find what is not here."""


_TRANSLATE = {ord("-"): "_", ord("."): "_"}


def canonical(segment: str) -> str:
    """Return the name of an attribute that a segment of a path means: ``robots.txt`` and ``robots-txt`` are
    ``robots_txt``."""
    return segment.translate(_TRANSLATE)


def mark_of(thing: Any) -> Mark | None:
    """Return the mark of a decorator on a function or a class; subclasses inherit it."""
    found = getattr(thing, MARK, None)
    return found if isinstance(found, Mark) else None


def _publishes(cls: type) -> bool:
    """Return whether a class says that its instances are nodes, by itself and without its bases."""
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
    """Return whether this is a published method inside of a decorator that is no function, such as
    functools.lru_cache."""
    return MARK in getattr(value, "__dict__", ()) and hasattr(value, "__wrapped__") and not isinstance(value, type)


def is_node(value: Any) -> bool:
    """Return whether an attribute's value is part of the tree."""
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
    """Return what ``obj`` publishes. Raises ConfigError if two handlers claim one name and method."""
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
    """Return what ``obj`` publishes to the dispatcher by methods: its methods GET, POST, ..., and nodes."""
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
