"""Aggregates (``sum``, ``min``, ``max``, ``len``) of the rows of a relation, by a subquery for each row, or of a
group."""

from __future__ import annotations

import ast
import decimal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kirsch_query.calculating import Calculating
from kirsch_query.emit import op
from kirsch_query.kinds import INT32, Kind
from kirsch_query.scope import bound_names
from kirsch_query.terms import (
    SQL,
    Condition,
    Constant,
    Entity,
    Many,
    Value,
    as_int,
    as_sql,
    both,
    int_value,
    reachable,
    solid,
    there,
)

if TYPE_CHECKING:
    from kirsch_query.scope import Scope

MOST_SUMMED = 9
"""How many digits a sum of Decimals has beside those of the column: it may have a thousand million rows."""
ONE: SQL = sa.literal_column("1")
ZERO: SQL = sa.literal_column("0")
_COUNTS = Kind("int", sa.BigInteger(), bound=INT32)
_BEST = ("int", "decimal", "date", "datetime", "str")
"""The kinds of which there is a least and a greatest."""
DISTINCT = (*_BEST, "bool", "enum", "uuid", "bytes", "time", "aware")
"""The kinds whose equal values are the same to a database: floats have NaN."""


@dataclass(frozen=True, eq=False)
class Measure:
    """An aggregate of the rows for which ``condition`` holds."""

    name: str
    """``sum``, ``min``, ``max``, ``len`` of the rows, or ``distinct``: len() of the set of the items."""
    condition: Condition
    kind: Kind
    item: Value | None = None
    """The value of each row that is aggregated; None for ``len``."""

    def whole(self) -> Condition:
        """Return the condition that the item of a row is neither None nor absent."""
        return True if self.item is None else solid(self.item)

    def there(self) -> Condition:
        """Return the condition that the item of a row is not absent."""
        return True if self.item is None else both(*there(self.item))

    def is_always(self) -> bool:
        """Return whether the aggregate is never None or absent, for any rows."""
        if self.name in ("min", "max"):
            return False
        return (self.there() if self.name == "distinct" else self.whole()) is True

    def best(self, item: SQL) -> Any:
        """Return the aggregate of the items that are not NULL."""
        if self.name == "distinct":
            return sa.func.count(sa.distinct(item))
        found: Any = getattr(sa.func, self.name)(item)
        if self.name != "sum":
            found.type = item.type
        return found

    def value(self, number: SQL, whole: SQL, there: SQL, best: SQL) -> tuple[SQL, SQL | None]:
        """Return the aggregate, NULL if it is None or absent; and the condition that it is not absent, or None if that
        is the same. ``number`` counts the rows, ``whole`` the items that are neither None nor absent, ``there`` the
        items that are not absent; ``best`` is the aggregate of the items counted by ``whole``.
        """
        if self.item is None:
            return number, None
        if self.name == "distinct":
            found = best if not self.item.none else best + sa.case((whole < there, ONE), else_=ZERO)
            return (found if self.there() is True else sa.case((there == number, found))), None
        if self.name == "sum":
            best = sa.func.coalesce(best, ZERO)
        found = best if self.whole() is True else sa.case((whole == number, best))
        if self.name == "sum" or not self.item.none:
            return found, None
        # In Python, min() and max() of a single None are None.
        single = sa.and_(number == ONE, there == number)
        return found, sa.and_(number > ZERO, sa.or_(whole == number, single))


def counted(condition: Condition) -> Any:
    """Return an SQL count of the rows for which ``condition`` holds."""
    return sa.func.count() if condition is True else sa.func.count(sa.case((as_sql(condition), ONE)))


class Aggregating(Calculating):
    """The part of a translation that aggregates rows."""

    def _over(self, found: Many, condition: Condition, sql: SQL) -> SQL:
        """Return a subquery of ``sql`` over the rows of a relation for which a condition holds."""
        # SQLAlchemy would drop the other conditions beside its own false(), and so the joins.
        met = sa.literal_column("1 = 0") if condition is False else as_sql(condition)
        rows = sa.select(sql).where(*found.conditions, met).select_from(found.target)
        return rows.correlate_except(*found.aliases).scalar_subquery()

    def _counted(self, found: Many, condition: Condition) -> Value:
        return self._measured(found, Measure("len", condition, _COUNTS))

    def _measured(self, found: Many, measure: Measure) -> Value:
        """Return an aggregate of a relation. It is absent if the relation cannot be reached."""
        whole, item = measure.whole(), measure.item
        best = ZERO if item is None else measure.best(item.sql)
        sql, present = measure.value(sa.func.count(), counted(whole), counted(measure.there()), best)
        value = Value(self._over(found, measure.condition, sql), measure.kind, column=measure.is_always())
        if present is not None:
            value = replace(value, none=True, present=self._over(found, measure.condition, present))
        reached = reachable(found)
        if isinstance(reached, bool):
            return value
        if value.present is not None:
            return replace(value, present=as_sql(both(reached, value.present)))
        return replace(value, sql=sa.case((reached, value.sql)), column=False)

    def _aggregate(self, name: str, node: ast.expr, scope: Scope) -> Value:
        """Translate the aggregate ``name`` of a comprehension over a relation."""
        assert isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp)
        part = node.generators[0]
        if len(node.generators) > 1 or part.is_async:
            raise self.refuse(f"{name}() is of one loop over a relation", "Write sum(i.n for i in b.items if i.n > 3).")
        found = self.value(part.iter, scope)
        if not isinstance(found, Many) or not isinstance(part.target, ast.Name):
            raise self.refuse(f"{name}() is over a relation", node=part.iter)
        rows = {part.target.id: Entity(found.target)}
        return self._measured(found, self.measure(name, node, scope.with_names(rows), frozenset(rows)))

    def measure(self, name: str, node: Any, scope: Scope, rows: frozenset[str]) -> Measure:
        """Return the aggregate that a comprehension calculates; its loop binds ``rows`` in ``scope``. Raises
        Refused."""
        condition = both(*(self._exact(each, scope) for each in node.generators[0].ifs))
        distinct = isinstance(node, ast.SetComp)
        if name == "len" and not distinct:
            if bound_names(node.elt, scope) - rows or not isinstance(node.elt, ast.Name):
                raise self.refuse("len() counts the objects themselves", f"Begin with [{min(rows)} for.")
            return Measure("len", condition, _COUNTS)
        if bound_names(node.elt, scope) - rows:
            raise self.refuse(
                f"{name}() reads the rows of its loop alone", "Write i.n, and no attribute of another row."
            )
        item = self.value(node.elt, scope)
        if isinstance(item, Constant) and type(item.value) is int:
            item = replace(self._int(item), column=True)
        if not isinstance(item, Value):
            raise self.refuse(f"{name}() is of values of the rows", "Write the primary key, o.id, for an object.")
        if distinct and name == "len":
            return self._distinct(condition, item)
        if distinct:
            raise self.refuse(f"{name}() of a set is not translated", "Write it without the braces.")
        return self._sum(condition, item) if name == "sum" else self._best(name, condition, item)

    def _distinct(self, condition: Condition, item: Value) -> Measure:
        if item.kind.name not in DISTINCT:
            raise self.refuse(f"{item.kind.name} values in a set are not told apart by every database as by Python")
        self.note("NULL is a value of its own, and the set has it once")
        sql = op("text", item.sql) if item.kind.name == "str" else item.sql
        return Measure("distinct", condition, _COUNTS, replace(item, sql=sql))

    def _sum(self, condition: Condition, item: Value) -> Measure:
        if item.kind.name in ("bool", "int"):
            item = int_value(item)
            kind = Kind("int", sa.BigInteger(), bound=item.kind.bound * INT32)
            if len(str(kind.bound)) > 55:
                raise self.refuse("the sum may have more digits than every database keeps")
        elif item.kind.name == "decimal" and item.kind.digits is not None:
            before, after = item.kind.digits
            kind = Kind("decimal", sa.Numeric(), digits=(before + MOST_SUMMED, after))
            if before + MOST_SUMMED + after > min(28, decimal.getcontext().prec):
                hint = "Declare the column with fewer digits, as in Numeric(10, 2)."
                raise self.refuse("Python rounds Decimals to 28 digits, and the sum may have more", hint)
        else:
            hint = "The sum of floats depends on the order of the rows." if item.kind.name == "float" else ""
            raise self.refuse("sum() is of integers, booleans and Decimals whose column says their digits", hint)
        if solid(item) is not True:
            self.note("NULL where one of the values is: Python adds no None")
        return Measure("sum", condition, kind, replace(item, sql=as_int(item)))

    def _best(self, name: str, condition: Condition, item: Value) -> Measure:
        """Return the measure of ``min`` or ``max``: absent without rows, None for a single None."""
        item = int_value(item) if item.kind.name == "int" else item
        if item.kind.name not in _BEST:
            raise self.refuse(f"{name}() of rows is of integers, Decimals, text, dates and times")
        self.note("NULL where there is no row, or where one of several values is NULL")
        sql = op("text", item.sql) if item.kind.name == "str" else item.sql
        return Measure(name, condition, replace(item.kind, order="", collated=False), replace(item, sql=sql))


__all__ = ["Aggregating", "Measure", "counted"]
