"""The functions that group and aggregate objects in memory."""

from __future__ import annotations

import ast
import collections
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kirsch_query import memory
from kirsch_query.errors import QueryError
from kirsch_query.query import where
from kirsch_query.scope import ABSENT, Item, Scope, space_of
from kirsch_query.sorting import Reversed, Sorting, place
from kirsch_query.source import from_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kirsch_query.query import Where


class Calculation:
    """A function evaluated by Python; if it raises, by the rule for None."""

    def __init__(self, function: Any, arity: int, what: str) -> None:
        self.source = from_function(function)
        if len(self.source.rows) != arity:
            raise QueryError(f"{what} is a function of {arity}, and this one takes {len(self.source.rows)}")
        self.function = function
        self.space = space_of(function)

    def scope(self, values: Iterable[Any]) -> Scope:
        """Return the scope in which the arguments of the function are ``values``: objects or rows of a database."""
        return Scope(self.source, self.space, dict(zip(self.source.rows, values, strict=True)))

    def value(self, *arguments: Any) -> Any:
        """Return the value of the function; None if it is absent. In a tuple, each absent item becomes None."""
        rows = arguments[0] if type(arguments[0]) is list else arguments
        if not any(isinstance(each, Mapping) for each in rows[:1]):
            try:
                return self.function(*arguments)
            except Exception:  # noqa: BLE001, S110 - the rule for None decides, and raises again what is another mistake
                pass
        scope = self.scope(map(Item, arguments))
        body = self.source.body
        if isinstance(body, ast.Tuple):
            return tuple(present(memory.value(each, scope)) for each in body.elts)
        return present(memory.value(body, scope))


def present(value: Any) -> Any:
    """Return ``value``, or None if it is absent."""
    return None if value is ABSENT else value


@functools.lru_cache(maxsize=256)
def group_class(names: tuple[str, ...]) -> Any:
    """Return a class for groups with the aggregates ``names``: a named tuple whose first field is ``key``."""
    for name in names:
        if name == "key" or name.startswith("_"):
            raise QueryError(f"an aggregate cannot be named {name}")
    return collections.namedtuple("Group", ("key", *names))


class Grouping:
    """The functions of one call of :func:`group`."""

    def __init__(
        self,
        arity: int,
        key: Any,
        having: Any,
        order: Any,
        limit: int | None,
        offset: int,
        aggregates: Mapping[str, Any],
    ) -> None:
        numbers: tuple[Any, ...] = (0 if limit is None else limit, offset)
        if not all(isinstance(each, int) and each >= 0 for each in numbers):
            raise QueryError("limit and offset are integers that are not negative")
        self.key = Calculation(key, arity, "a key")
        self.aggregates = {name: Calculation(each, 1, "an aggregate") for name, each in aggregates.items()}
        self.having: Where[Any] | None = None if having is None else where(having)
        self.sorting = None if order is None else Sorting(order, 1)
        self.limit, self.offset = limit, offset
        self.made = group_class(tuple(aggregates))

    def collected(self, rows: Iterable[Sequence[Any]]) -> dict[Any, list[Any]]:
        """Return the rows by key. A row is a tuple if the key takes several objects."""
        found: dict[Any, list[Any]] = {}
        for row in rows:
            found.setdefault(self.key.value(*row), []).append(row[0] if len(row) == 1 else tuple(row))
        return found

    def finished(self, groups: Iterable[Any], decided: bool = False) -> list[Any]:
        """Return the requested groups in their order, ties by key, None first. ``decided``: ``having`` is known to hold
        for all of them.
        """
        having = None if decided else self.having
        found = [each for each in groups if having is None or having(each)]
        try:
            found.sort(key=self._keys)
        except TypeError:  # keys without an order, such as objects, keep the order of their first appearance
            if self.sorting is not None:
                found.sort(key=lambda each: self._keys(each)[:-1])
        return found[self.offset : None if self.limit is None else self.offset + self.limit]

    def _keys(self, group: Any) -> list[Any]:
        keys: list[Any] = []
        if self.sorting is not None:
            for (_, descends), value in zip(self.sorting.nodes, self.sorting.values([group]), strict=True):
                keys.append(Reversed(place(value)) if descends else place(value))
        key = group.key
        return [*keys, [*map(_own_place, key)] if isinstance(key, tuple) else _own_place(key)]


def _own_place(value: Any) -> tuple[Any, ...]:
    """Return the sort key of a part of a key; for a mapped object its primary key, last if it has none."""
    state = getattr(value, "_sa_instance_state", None)
    if state is None:
        return place(value)
    return (1, state.identity) if state.key else (2, state.insert_order or 0)


__all__ = ["Calculation", "Grouping", "present"]
