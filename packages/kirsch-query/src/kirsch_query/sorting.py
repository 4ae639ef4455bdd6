"""Sort keys in memory: None first, ``desc`` for descending keys."""

from __future__ import annotations

import ast
import builtins
import enum
from types import FunctionType

from kirsch_query import memory
from kirsch_query.errors import QueryError
from kirsch_query.scope import ABSENT, Item, Scope, Space, called, space_of
from kirsch_query.source import Source, from_function, from_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


class Reversed:
    """A wrapper that reverses the order of a key."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: Reversed) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


class Chosen:
    """An order chosen by a user, see :func:`chosen`."""

    __slots__ = ("source",)

    def __init__(self, source: Source) -> None:
        self.source = source


def chosen(keys: str, allowed: Iterable[str]) -> Any:
    """Return an ``order`` for keys entered by a user, such as ``"-price,title"``: a minus reverses a key. ``allowed``
    are the permitted attributes; ``author.name`` is one of a related object. Raises QueryError for other keys. The
    message only contains permitted names, so that an application can show it.
    """
    known = list(allowed)
    parts = []
    for each in keys.split(","):
        name = each.strip()
        down = name.startswith("-")
        if name[down:] not in known:
            raise QueryError("there is no order by this key", hint=f"There are {', '.join(known)}.")
        parts.append(f"desc(row.{name[1:]})" if down else f"row.{name}")
    return Chosen(from_text(f"lambda row: ({', '.join(parts)},)", frozenset(["desc"])))


class Sorting:
    """The keys of an order: their syntax trees, each with True if it is descending."""

    def __init__(self, function: Callable[..., Any] | Chosen, arity: int) -> None:
        if isinstance(function, Chosen):
            self.source, self.space = function.source, Space({"__builtins__": builtins}, {"desc": desc})
        elif isinstance(function, FunctionType):
            self.source, self.space = from_function(function), space_of(function)
        else:
            raise QueryError(f"an order is a lambda or a def with one return, and not {function!r}")
        if len(self.source.rows) != arity:
            raise QueryError(f"the order takes {len(self.source.rows)} rows, and the query {arity}")
        scope = self.scope([Item(None)] * arity)
        self.nodes: list[tuple[ast.expr, bool]] = []
        body = self.source.body
        for each in body.elts if isinstance(body, ast.Tuple | ast.List) else [body]:
            turned = isinstance(each, ast.Call) and called(each, scope) is desc
            if turned and isinstance(each, ast.Call) and (len(each.args) != 1 or each.keywords):
                raise QueryError("desc() turns one key around", self.source.place(each))
            self.nodes.append((each.args[0] if turned and isinstance(each, ast.Call) else each, turned))

    def scope(self, rows: Sequence[Any]) -> Scope:
        """Return the scope in which the arguments of the function are ``rows``."""
        return Scope(self.source, self.space, dict(zip(self.source.rows, rows, strict=True)))

    def values(self, rows: Sequence[Any]) -> list[Any]:
        """Return the sort keys of rows in memory; None for an absent one."""
        scope = self.scope([Item(each) for each in rows])
        found = (memory.value(node, scope) for node, _ in self.nodes)
        return [None if each is ABSENT else each for each in found]


def place(value: Any) -> tuple[Any, ...]:
    """Return the sort key of a value in ascending order: None first, then NaN, then other values."""
    if value is None:
        return (0, 0)
    if isinstance(value, enum.Enum):
        return (1, value.name)  # the form in which the database stores it
    return (1, value)


def desc(key: Any) -> Any:  # noqa: ARG001 - read, and never called
    """Mark a key as descending, in the ``order`` of :func:`recall`: ``lambda b: (desc(b.title), b.id)``."""
    raise QueryError("desc() is read by recall() in its order, and not called")


__all__ = ["Chosen", "Reversed", "Sorting", "chosen", "desc", "place"]
