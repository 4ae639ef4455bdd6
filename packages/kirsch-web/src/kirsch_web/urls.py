"""URLs of handlers: the path for a handler and its arguments."""

from __future__ import annotations

from kirsch_web.percent import quote_field, quote_segment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from kirsch_web.interfaces import Application


def key_of(handler: Any) -> Any:
    """Return a key that is the same for each access to a handler; bound methods are new objects each time."""
    function = getattr(handler, "__func__", None)
    return (function, id(handler.__self__)) if function is not None else id(handler)


def url_of(
    app: Application, handler: Callable[..., object] | str, segments: Sequence[object], query: Mapping[str, object]
) -> str:
    """Return the path of a handler, or of a route by its name, below the application's mount."""
    values = dict(query)
    if isinstance(handler, str):
        path = app.finder.named(handler).path(values)
    else:
        if app.paths is None:
            paths: dict[Any, Any] = {}
            for plan in app.handlers():
                paths.setdefault(key_of(plan.function), []).append(plan)
            app.paths = paths
        plans = app.paths.get(key_of(handler))
        if plans is None:
            raise LookupError(f"{getattr(handler, '__qualname__', handler)} is no handler of this application")
        # Of several paths, the one that has most of the names that are given.
        plan = max(plans, key=lambda plan: len(plan.captured) if values.keys() >= set(plan.captured) else -1)
        path = app.finder.path_of(plan, values)
    if segments:
        path = "/".join([path.rstrip("/"), *(quote_segment(_text(each)) for each in segments)])
    return (path or "/") + query_of(values)


def filled(path: str, values: dict[str, object]) -> str:
    """Return the path with its captured names replaced by values, which are taken out of ``values``."""
    parts = []
    for part in path.split("/"):
        if part.startswith("{") and part.endswith("}"):
            name = part[1:-1]
            if name not in values:
                raise LookupError(f"the URL needs a value for {name}")
            parts.append(quote_segment(_text(values.pop(name))))
        else:
            parts.append(quote_segment(part))
    return "/".join(parts)


def _text(value: object) -> str:
    """Return a value as a converter reads it back. Raises ValueError for what would be another path, an empty
    segment."""
    if value is True or value is False:
        return "true" if value else "false"
    if hasattr(type(value), "__members__"):  # an enum
        value = value.value  # type: ignore[attr-defined]
    isoformat = getattr(value, "isoformat", None)
    text = isoformat() if isoformat is not None else str(value)
    if not text:
        raise ValueError("a segment of a URL cannot be empty")
    return str(text)


def query_of(values: Mapping[str, object]) -> str:
    """Return a query such as ``?page=2&tag=a&tag=b``: a list is several fields, None is left out; "" without fields."""
    pairs = []
    for name, value in values.items():
        for each in value if isinstance(value, (list, tuple, set, frozenset)) else (value,):
            if each is not None:
                text = "" if each == "" else _text(each)
                pairs.append(f"{quote_field(name)}={quote_field(text)}")
    return "?" + "&".join(pairs) if pairs else ""
