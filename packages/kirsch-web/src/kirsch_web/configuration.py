"""Configuration: layers, merged path by path, and checked when the application is mounted.

A value comes from the application's defaults, from a decorator of an object's class or a handler, or from a section of
the configuration, which is named after a path. The layers of a path are merged in this order: defaults, then for each
segment first the object's layer and then the section's. So a section overrides the decorator at the same path, and a
deeper layer overrides both.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kirsch_web.errors import REASONS, ConfigError
from kirsch_web.hooks import POINTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from kirsch_web.builtin import BuiltinTools


class Layer:
    """The configuration values of one source, and the name of the source for messages."""

    __slots__ = ("origin", "values")

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        self.values = dict(values)
        self.origin = origin

    def __repr__(self) -> str:
        return f"<Layer {self.origin}>"


_SIZE = re.compile(r"([0-9]{1,12})[ ]?(|B|KiB|MiB|GiB|kB|MB|GB)").fullmatch
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def size(value: object) -> int:
    """Return the number of bytes that a value such as 1048576 or ``"1MiB"`` states. Raises ValueError for others."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a size such as 1048576 or '1MiB'")
    return int(match[1]) * _UNITS[match[2]]


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{value!r} is not a number of 0 or more")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither true nor false")


def _unknown(value: object) -> str:
    if value in ("ignore", "refuse"):
        return str(value)
    raise ValueError(f"{value!r} is neither 'ignore' nor 'refuse'")


def _hosts(value: object) -> list[str]:
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return [each.lower() for each in value]
    raise ValueError(f"{value!r} is not a list of host names")


def _any(value: object) -> object:
    return value


class Setting(NamedTuple):
    """A key of the configuration: the function that checks and converts its value, its default and its description."""

    read: Callable[[Any], Any]
    default: str
    about: str


KEYS: dict[str, Setting] = {
    "body.limit": Setting(
        size,
        "1 MiB",
        "The size of a body that is read as a whole: JSON, an urlencoded form, `request.body()`. 413 beyond, as for "
        "all of `body.*`.",
    ),
    "body.upload_limit": Setting(size, "64 MiB", "The size of a multipart body, files included."),
    "body.memory": Setting(size, "1 MiB", "The size of the fields of a multipart body that are no files, together."),
    "body.fields": Setting(_count, "1000", "The number of fields of a query or of an urlencoded form."),
    "body.parts": Setting(_count, "1000", "The number of parts of a multipart body."),
    "body.part_headers": Setting(size, "8 KiB", "The size of the header of one part."),
    "body.spool": Setting(size, "256 KiB", "A file of a multipart body that is larger goes to a temporary file."),
    "errors.debug": Setting(
        _flag, "false", "The page of an unexpected error shows the traceback. Never where strangers can see it."
    ),
    "hosts": Setting(
        _hosts,
        "any host",
        "The hosts that are served, a list; 421 for others. `shop.example` with every port, `shop.example:8080` with "
        "this one, `.shop.example` for all names below, `*` for all. Host fields are chosen by clients: set it where a "
        "page makes absolute URLs.",
    ),
    "params.unknown": Setting(
        _unknown,
        '"ignore"',
        '`"refuse"`: a field of the query or the body that is no parameter of the handler is refused, with 400 or 422.',
    ),
    "request.dispatch": Setting(
        _any,
        "the tree of objects",
        "The dispatcher, of the whole application: `App(dispatch=...)` in a settings section `/`.",
    ),
    "response.stream": Setting(
        _flag,
        "true",
        "Whether a generator or a file is sent part by part. `false`: it is read to its end first, so that an error in "
        "the middle is a page with status 500, and the response has a Content-Length.",
    ),
}
"""The keys that have fixed names."""

FAMILIES: dict[str, tuple[str, str]] = {
    "error_page.STATUS": (
        "a callable, or a file's name",
        (
            "The page of one error, such as `error_page.404`. A callable takes the request and the HTTPError, and "
            "returns what a handler may return. A file is a template in which `{status}`, `{detail}` and `{traceback}` "
            "are replaced by escaped text; the last is empty unless `errors.debug` is true. If the page itself fails, "
            "the log has its traceback, and the client the built-in page."
        ),
    ),
    "error_page.default": (
        "a callable, or a file's name",
        "The page of every error from 400 to 599 that has no own one.",
    ),
    "hooks.POINT": (
        "a callable, a Hook, or a dotted name",
        "A hook at one of the points, such as `hooks.before_handler`. It takes the request.",
    ),
    "hooks.POINT.NAME": (
        "as `hooks.POINT`",
        "Further hooks at the same point. A name that a deeper path gives again is replaced.",
    ),
    "response.headers.NAME": (
        "text",
        (
            "A field that every response of the path begins with; what the handler sets counts more. Default: "
            "`X-Content-Type-Options: nosniff`."
        ),
    ),
    "tools.NAME.on": ("true or false", "Switches a tool on or off for the path and all below it."),
    "tools.NAME.priority": ("0 to 100", "The place of the tool's hooks at their point: the lowest runs first."),
    "tools.NAME.OPTION": ("as the tool says", "An option of the tool; below is a list of those of the built-in tools."),
}
"""The keys that contain a name or a status of the application's choice: their values and their descriptions."""

DEFAULTS = Layer({"response.headers.X-Content-Type-Options": "nosniff"}, "kirsch_web's default")


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables, ``{"tools": {"gzip": {"on": True}}}``, by dotted key, ``tools.gzip.on``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        # A table is a value if the key takes one: headers, say, are not nested further.
        if isinstance(value, dict) and not (prefix + key).startswith("request.dispatch"):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def read(path: str) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises ConfigError, naming the file, if it cannot be read."""
    try:
        from importlib import import_module

        try:
            toml: Any = import_module("tomllib")
        except ImportError:  # Python 3.10
            toml = import_module("tomli")
    except ImportError:
        raise ConfigError(f"{path}: reading TOML needs Python 3.11, or `pip install 'kirsch-web[toml]'`") from None
    try:
        with open(path, "rb") as file:
            tables: dict[str, Any] = toml.load(file)
            return tables
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError
        raise ConfigError(f"{path}: {error}") from None


def sections(config: Mapping[str, Any] | str | None) -> dict[str, Layer]:
    """Return the layers of a configuration by path. The layer at "" applies to all paths; the others override it."""
    if config is None:
        return {}
    name = "App(config=...)"
    if isinstance(config, str) or hasattr(config, "__fspath__"):
        name = str(config)
        config = read(name)
    general: dict[str, Any] = {}
    found: dict[str, Layer] = {}
    for key, value in config.items():
        if key.startswith("/"):
            if not isinstance(value, dict):
                raise ConfigError(f"{name}: {key} is not a table of settings")
            path = "/" + "/".join(part for part in key.split("/") if part)
            if path in found:
                raise ConfigError(f"{name}: there are two sections for {path}")
            found[path] = Layer(flatten(value), f"{name} [{key}]")
        else:
            general[key] = value
    if general:
        found[""] = Layer(flatten(general), name)
    return found


def merge(layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the merged values, and the origin of each. A later layer overrides an earlier one."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.values.items():
            values[key] = value
            origins[key] = layer.origin
    return values, origins


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` for the known word that is most similar to ``word``; "" if none or two are."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=2, cutoff=0.75)
    if not near:
        return ""
    if len(near) == 2:
        first, second = (difflib.SequenceMatcher(None, word, each).ratio() for each in near)
        if first - second < 0.02:
            return ""
    return f"; did you mean {near[0]}?"


def mistakes(layer: Layer, tools: BuiltinTools, namespaces: Iterable[str] = ()) -> Iterator[str]:
    """Yield one sentence for each mistake in the keys and values of a layer."""
    known_spaces = {*(each.partition(".")[0] for each in (*KEYS, *FAMILIES) if "." in each), *namespaces}
    for key, value in layer.values.items():
        where = f"{layer.origin}: {key}"
        space, dot, rest = key.partition(".")
        if space == "tools" and dot:
            yield from _tool_mistakes(where, rest, value, tools)
        elif space == "hooks" and dot:
            yield from _hook_mistakes(where, rest, value)
        elif key.startswith("response.headers."):
            yield from _header_mistakes(where, key[len("response.headers.") :], value)
        elif space == "error_page" and dot:
            if rest != "default" and not (rest.isdigit() and 400 <= int(rest) <= 599 and int(rest) in REASONS):
                yield f"{where}: {rest} is neither an error's status nor default"
            if not (callable(value) or isinstance(value, str)):
                yield f"{where}: an error page is a file's name or a callable, not {value!r}"
        elif key in KEYS:
            try:
                KEYS[key].read(value)
            except ValueError as error:
                yield f"{where}: {error}"
        elif space not in namespaces or not dot:
            choices = [*KEYS, *(f"{each}." for each in known_spaces)]
            yield f"{where}: there is no such key{nearest(key, choices) or nearest(space, known_spaces)}"


def _tool_mistakes(where: str, rest: str, value: object, tools: BuiltinTools) -> Iterator[str]:
    name, dot, option = rest.partition(".")
    tool = tools.get(name)
    if tool is None:
        yield f"{where}: there is no tool {name}{nearest(name, tools)}"
        return
    if not dot:
        yield f"{where}: name an option of the tool, as in tools.{name}.on"
    elif option in ("on", "priority"):
        if option == "on" and not isinstance(value, bool):
            yield f"{where}: {value!r} is neither true nor false"
        if option == "priority" and (not isinstance(value, int) or not 0 <= value <= 100):
            yield f"{where}: a priority is a number from 0 to 100, not {value!r}"
    else:
        types = tool.option_types()
        if option not in types:
            yield f"{where}: the tool {name} has no option {option}{nearest(option, [*types, 'on', 'priority'])}"
        elif not fits(value, types[option]):
            yield f"{where}: {value!r} is not {_words(types[option])}"


def _hook_mistakes(where: str, rest: str, value: object) -> Iterator[str]:
    point = rest.partition(".")[0]
    if point not in POINTS:
        yield f"{where}: there is no hook point {point}{nearest(point, POINTS)}"
    elif not callable(value):
        try:
            imported(value)
        except (ValueError, ImportError, AttributeError) as error:
            yield f"{where}: {error}"


def _header_mistakes(where: str, name: str, value: object) -> Iterator[str]:
    from kirsch_web.fields import check_field

    if not isinstance(value, str):
        yield f"{where}: the value of a header field is text, not {value!r}"
        return
    try:
        check_field(name, value)
    except ValueError as error:
        yield f"{where}: {error}"


def imported(name: object) -> Any:
    """Return the callable with a dotted name such as ``shop.hooks.count``. Return anything but a str unchanged."""
    if not isinstance(name, str):
        return name
    module_name, dot, attribute = name.rpartition(".")
    if not dot:
        raise ValueError(f"{name!r} is not a dotted name of a callable")
    import importlib

    found = getattr(importlib.import_module(module_name), attribute)
    if not callable(found):
        raise ValueError(f"{name} cannot be called")
    return found


def fits(value: object, annotation: Any) -> bool:
    """Return whether a value has an option's type. True for types that are not checked."""
    import typing

    from kirsch_web.constraints import constraints, failing
    from kirsch_web.texts import plain, union_members

    checks = constraints(annotation)
    if checks:
        return fits(value, plain(annotation)) and not failing(checks, value)
    if annotation is None or annotation is typing.Any:
        return True
    members = union_members(annotation)
    if members is not None:
        return any(fits(value, None if member is type(None) and value is None else member) for member in members)
    origin = typing.get_origin(annotation) or annotation
    if origin is typing.Literal:
        return value in typing.get_args(annotation)
    if origin is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, (tuple, list))
    if origin in (str, bool, bytes, list, dict, set):
        return isinstance(value, origin)
    name = getattr(origin, "__name__", "")
    if name == "Callable":
        return callable(value)
    if name in ("Sequence", "Iterable", "Collection"):
        return isinstance(value, (list, tuple, set, frozenset))
    if name == "Mapping":
        return isinstance(value, dict)
    return isinstance(value, origin) if isinstance(origin, type) else True


def _words(annotation: Any) -> str:
    import typing

    if typing.get_origin(annotation) is typing.Literal:
        return "one of " + ", ".join(repr(each) for each in typing.get_args(annotation))
    return f"of type {getattr(annotation, '__name__', None) or str(annotation).replace('typing.', '')}"
