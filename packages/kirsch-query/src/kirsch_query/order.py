"""The order of what is recalled: the same in SQL and in memory, None first, ties by primary key."""

from __future__ import annotations

import ast
import decimal
import enum
from types import FunctionType
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kirsch_query import memory
from kirsch_query.emit import dialect_name, op
from kirsch_query.errors import QueryError, Refused
from kirsch_query.kinds import Kind, NotExact, known_kind
from kirsch_query.pending import inserted
from kirsch_query.scope import ABSENT, Item, Scope, called, space_of
from kirsch_query.source import from_function
from kirsch_query.sql import Translator
from kirsch_query.terms import Constant, Entity, Value, primary_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kirsch_query.pending import Changes


class _Reversed:
    """A key in descending order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


class Order:
    """The keys of one call: their nodes, whether each descends, and their SQL."""

    def __init__(self, scope: Scope | None, nodes: list[tuple[ast.expr, bool]], changes: Sequence[Changes]) -> None:
        self.scope = scope
        self.nodes = nodes
        self.changes = changes
        self.dialect = dialect_name(changes[0].dialect)
        self.translator: Translator | None = None
        self.columns: list[Value | Constant] = []
        self.last: list[Any] = []

    def applied(self, statement: Any) -> Any:
        """Return the statement, in this order."""
        for (_, descends), found in zip(self.nodes, self.columns, strict=True):
            if isinstance(found, Value):
                statement = statement.order_by(self._arranged(found, descends))
        return statement.order_by(*self.last)

    def _arranged(self, found: Value, descends: bool) -> Any:
        """A key in its order, in the words of which an index has that order. None is first, or last if it descends."""
        key = _sortable(found.sql, found.kind)
        key = key.desc() if descends else key.asc()
        can_be_null = found.none or not found.column
        if can_be_null and self.dialect == "postgresql":  # NULL is the greatest there, and the least elsewhere
            return key.nulls_last() if descends else key.nulls_first()
        return key

    def key(self, rows: tuple[Any, ...]) -> list[Any]:
        """Return the keys by which memory sorts."""
        keys: list[Any] = []
        for node, descends in self.nodes:
            key = self._key(node, rows)
            keys.append(_Reversed(key) if descends else key)
        for row, changed in zip(rows, self.changes, strict=True):
            primary = changed.mapper.primary_key_from_instance(row)
            # None: a flush will give it, which inserts the new objects in their order.
            keys.append((1, inserted(row)) if None in primary else (0, *map(_comparable, primary)))
        return keys

    def _key(self, node: ast.expr, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        found = self._value(node, rows)
        if found is None or found is ABSENT:
            return (2, self._unset(node, rows)) if self._unset(node, rows) is not None else (0, 0)
        if isinstance(found, float | decimal.Decimal) and found != found:
            return (2, 0)
        return (1, found)

    def _unset(self, node: ast.expr, rows: tuple[Any, ...]) -> int | None:
        """Return a new object's place among the inserts if its primary key is the sort key. The key
        will be greater than all existing ones."""
        assert self.scope is not None
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in self.scope.source.rows
        ):
            at = self.scope.source.rows.index(node.value.id)
            mapper = self.changes[at].mapper
            if node.attr in mapper.column_attrs and mapper.column_attrs[node.attr].columns[0].primary_key:
                return inserted(rows[at])
        return None

    def _value(self, node: ast.expr, rows: tuple[Any, ...]) -> Any:
        assert self.scope is not None
        names = dict(zip(self.scope.source.rows, map(Item, rows), strict=True))
        return memory.value(node, Scope(self.scope.source, self.scope.space, names))

    # One value, for a sum

    def single(self) -> Order:
        """This, if it is one number that can be summed exactly."""
        if self.scope is None:
            raise QueryError("total() is given a function of the number to sum", hint="Write lambda b: b.price.")
        place = self.scope.source.place(self.scope.source.body)
        if len(self.nodes) != 1 or self.nodes[0][1]:
            raise Refused("a sum is of one number", place)
        (found,) = self.columns
        if isinstance(found, Value) and found.kind.name not in ("int", "bool", "decimal"):
            raise Refused(
                "only integers and Decimals are summed exactly in any order", place, "Sum what recall() gives."
            )
        if isinstance(found, Value) and found.kind.name == "decimal" and found.kind.digits is None:
            raise Refused("the column does not say how many digits it has", place, "Declare it Numeric(10, 2).")
        return self

    def sum(self) -> Any:
        """Return the sum in SQL."""
        (found,) = self.columns
        if isinstance(found, Constant):
            raise QueryError("a sum is of a number that depends on the row")
        return sa.func.sum(op("whole", found.sql) if found.kind.name == "bool" else found.sql)

    def value(self, rows: tuple[Any, ...]) -> Any:
        """Return the number of one object in memory; None if it has none."""
        found = self._value(self.nodes[0][0], rows)
        return None if found is ABSENT else found

    def python(self, number: Any) -> Any:
        """A sum that the database gave, as Python's type."""
        (found,) = self.columns
        if number is None:
            return 0
        if isinstance(found, Value) and found.kind.name == "decimal":
            return decimal.Decimal(number)
        return int(number)


_SORTABLE = {"bool": "whole", "uuid": "uuid", "enum": "enum"}
"""How values of these kinds are sorted."""


def _sortable(sql: Any, kind: Kind) -> Any:
    if kind.name == "str":
        return op(f"sorted{kind.order}", sql)
    return op(_SORTABLE[kind.name], sql) if kind.name in _SORTABLE else sql


def _comparable(key: Any) -> Any:
    """A part of a primary key as the database sorts it."""
    return key.name if isinstance(key, enum.Enum) else key


def ordering(
    function: Callable[..., Any] | None, targets: Sequence[Any], dialect: Any, changes: Sequence[Changes]
) -> Order:
    """Return the order by a function's keys. Raises :class:`Refused`."""
    order = Order(None, [], changes)
    if function is not None:
        if not isinstance(function, FunctionType):
            raise QueryError(f"an order is a lambda or a def with one return, and not {function!r}")
        source = from_function(function)
        if len(source.rows) != len(targets):
            raise QueryError(f"the order takes {len(source.rows)} rows, and the query {len(targets)}")
        scope = Scope(source, space_of(function), dict(zip(source.rows, map(Entity, targets), strict=True)))
        nodes = []
        for each in source.body.elts if isinstance(source.body, ast.Tuple | ast.List) else [source.body]:
            turned = isinstance(each, ast.Call) and called(each, scope) is desc
            if turned and isinstance(each, ast.Call) and (len(each.args) != 1 or each.keywords):
                raise QueryError("desc() turns one key around", source.place(each))
            nodes.append((each.args[0] if turned and isinstance(each, ast.Call) else each, turned))
        order = Order(scope, nodes, changes)
        order.translator = translator = Translator(dialect)
        for node, _ in nodes:
            found = translator.value(node, scope)
            if not isinstance(found, Value | Constant):
                raise Refused("an object has no order", source.place(node), "Order by one of its columns.")
            if isinstance(found, Value) and found.kind.name in ("enum", "uuid", "bytes", "lower"):
                raise Refused(
                    f"the order of {found.kind.name} values is not the same on every database",
                    source.place(node),
                    "Order by other columns, or sort what recall() gives.",
                )
            order.columns.append(found)
    for target, changed in zip(targets, changes, strict=True):
        for column, primary in zip(primary_key(target), changed.mapper.primary_key, strict=True):
            try:
                order.last.append(_sortable(column, known_kind(primary)))
            except NotExact:  # of a type that is not translated: as the database has it
                order.last.append(op("text", column) if isinstance(primary.type, sa.String) else column)
    return order


def desc(key: Any) -> Any:  # noqa: ARG001 - read, and never called
    """Turn the order of a key around, in the ``order`` of :func:`recall`: ``lambda b: (desc(b.title), b.id)``."""
    raise QueryError("desc() is read by recall() in its order, and not called")
