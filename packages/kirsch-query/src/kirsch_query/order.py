"""The order of recalled objects: the same in SQL and in memory, None first, ties by primary key."""

from __future__ import annotations

import ast
import decimal
import enum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kirsch_query.emit import dialect_name, op
from kirsch_query.errors import QueryError, Refused
from kirsch_query.kinds import Kind, NotExact, known_kind
from kirsch_query.pending import inserted
from kirsch_query.sorting import Reversed, Sorting, place
from kirsch_query.sql import Translator
from kirsch_query.terms import Constant, Entity, Value, primary_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kirsch_query.pending import Changes


class Order:
    """The sort keys of one call, and their SQL."""

    def __init__(self, sorting: Sorting | None, changes: Sequence[Changes]) -> None:
        self.sorting = sorting
        self.changes = changes
        self.dialect = dialect_name(changes[0].dialect)
        self.translator: Translator | None = None
        self.columns: list[Value | Constant] = []
        self.last: list[Any] = []

    def applied(self, statement: Any) -> Any:
        """Return the statement with an ORDER BY for these keys."""
        keys = arranged(self.sorting, self.columns, self.dialect) if self.sorting else []
        return statement.order_by(*keys, *self.last)

    def key(self, rows: tuple[Any, ...]) -> list[Any]:
        """Return the sort keys of objects in memory."""
        keys: list[Any] = []
        if self.sorting:
            for (node, descends), found in zip(self.sorting.nodes, self.sorting.values(rows), strict=True):
                key = self._key(node, found, rows)
                keys.append(Reversed(key) if descends else key)
        for row, changed in zip(rows, self.changes, strict=True):
            primary = changed.mapper.primary_key_from_instance(row)
            # None: a flush will set the key, in the order of the inserts.
            keys.append((1, inserted(row)) if None in primary else (0, *map(_comparable, primary)))
        return keys

    def _key(self, node: ast.expr, found: Any, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        if found is None:
            return (2, self._unset(node, rows)) if self._unset(node, rows) is not None else (0, 0)
        if isinstance(found, float | decimal.Decimal) and found != found:
            return (2, 0)
        return place(found)

    def _unset(self, node: ast.expr, rows: tuple[Any, ...]) -> int | None:
        """Return a new object's place among the inserts, if its primary key is the sort key, because the key will be
        greater than all existing ones; else None."""
        assert self.sorting is not None
        names = self.sorting.source.rows
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            at = names.index(node.value.id)
            mapper = self.changes[at].mapper
            if node.attr in mapper.column_attrs and mapper.column_attrs[node.attr].columns[0].primary_key:
                return inserted(rows[at])
        return None

    # One value, for a sum

    def single(self) -> Order:
        """Return this order, if it has one key, a number that can be summed exactly. Raises QueryError."""
        if self.sorting is None:
            raise QueryError("total() is given a function of the number to sum", hint="Write lambda b: b.price.")
        source = self.sorting.source
        at = source.place(source.body)
        if len(self.sorting.nodes) != 1 or self.sorting.nodes[0][1]:
            raise Refused("a sum is of one number", at)
        (found,) = self.columns
        if isinstance(found, Value) and found.kind.name not in ("int", "bool", "decimal"):
            raise Refused("only integers and Decimals are summed exactly in any order", at, "Sum what recall() gives.")
        if isinstance(found, Value) and found.kind.name == "decimal" and found.kind.digits is None:
            raise Refused("the column does not say how many digits it has", at, "Declare it Numeric(10, 2).")
        return self

    def sum(self) -> Any:
        """Return the sum in SQL."""
        (found,) = self.columns
        if isinstance(found, Constant):
            raise QueryError("a sum is of a number that depends on the row")
        return sa.func.sum(op("whole", found.sql) if found.kind.name == "bool" else found.sql)

    def value(self, rows: tuple[Any, ...]) -> Any:
        """Return the number of one object in memory; None if it has none."""
        assert self.sorting is not None
        (found,) = self.sorting.values(rows)
        return found

    def python(self, number: Any) -> Any:
        """Convert a sum from the database to Python's type."""
        (found,) = self.columns
        if number is None:
            return 0
        if isinstance(found, Value) and found.kind.name == "decimal":
            return decimal.Decimal(number)
        return int(number)


def arranged(sorting: Sorting, columns: Sequence[Value | Constant], dialect: str) -> list[Any]:
    """Return the keys of an order in SQL, in a form that can use an index. None sorts first, or last if the key
    descends.
    """
    keys = []
    for (_, descends), found in zip(sorting.nodes, columns, strict=True):
        if isinstance(found, Value):
            key = sortable(found.sql, found.kind)
            key = key.desc() if descends else key.asc()
            can_be_null = found.none or not found.column
            if can_be_null and dialect == "postgresql":  # NULL is the greatest there, and the least elsewhere
                key = key.nulls_last() if descends else key.nulls_first()
            keys.append(key)
    return keys


def sort_columns(sorting: Sorting, translator: Translator, rows: Sequence[Any]) -> list[Value | Constant]:
    """Return the sort keys in SQL; ``rows`` are the arguments of the function. Raises :class:`Refused`."""
    scope = sorting.scope(rows)
    columns = []
    for node, _ in sorting.nodes:
        found = translator.value(node, scope)
        if not isinstance(found, Value | Constant):
            raise Refused("an object has no order", sorting.source.place(node), "Order by one of its columns.")
        if isinstance(found, Value) and found.kind.name in UNSORTED:
            raise Refused(
                f"the order of {found.kind.name} values is not the same on every database",
                sorting.source.place(node),
                "Order by other columns, or sort what recall() gives.",
            )
        columns.append(found)
    return columns


UNSORTED = ("enum", "uuid", "bytes", "lower", "local", "match", "json")
_SORTABLE = {"bool": "whole", "uuid": "uuid", "enum": "enum"}
"""How values of these kinds are sorted."""


def sortable(sql: Any, kind: Kind) -> Any:
    """Return an expression that the database sorts as Python sorts the value."""
    if kind.name == "str":
        return op(f"sorted{kind.order}", sql)
    return op(_SORTABLE[kind.name], sql) if kind.name in _SORTABLE else sql


def _comparable(key: Any) -> Any:
    """Return a part of a primary key in the form in which the database sorts it."""
    return key.name if isinstance(key, enum.Enum) else key


def ordering(
    function: Callable[..., Any] | None, targets: Sequence[Any], dialect: Any, changes: Sequence[Changes]
) -> Order:
    """Return the order by the keys of a function. Raises :class:`Refused`."""
    order = Order(None if function is None else Sorting(function, len(targets)), changes)
    if order.sorting is not None:
        order.translator = Translator(dialect)
        order.columns = sort_columns(order.sorting, order.translator, list(map(Entity, targets)))
    for target, changed in zip(targets, changes, strict=True):
        for column, primary in zip(primary_key(target), changed.mapper.primary_key, strict=True):
            try:
                order.last.append(sortable(column, known_kind(primary)))
            except NotExact:  # a type that is not translated: sorted as the database does
                order.last.append(op("text", column) if isinstance(primary.type, sa.String) else column)
    return order
