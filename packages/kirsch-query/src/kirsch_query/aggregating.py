"""``sum``, ``min``, ``max`` and ``len`` over a relation: a subquery for each row."""

from __future__ import annotations

import ast
import decimal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kirsch_query.calculating import Calculating
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


class Aggregating(Calculating):
    """The part of a translation that counts and sums related rows."""

    def _over(self, found: Many, condition: Condition, sql: SQL) -> SQL:
        """Return an aggregate of the rows of a relation for which a condition holds."""
        # SQLAlchemy leaves out what is beside its own false(), and with it the joins.
        met = sa.literal_column("1 = 0") if condition is False else as_sql(condition)
        rows = sa.select(sql).where(*found.conditions, met).select_from(found.target)
        return rows.correlate_except(*found.aliases).scalar_subquery()

    def _counted(self, found: Many, condition: Condition) -> Value:
        kind = Kind("int", sa.BigInteger(), bound=INT32)
        return self._if_reachable(found, Value(self._over(found, condition, sa.func.count()), kind, column=True))

    def _if_reachable(self, found: Many, value: Value) -> Value:
        """Return a value that is absent if the relation cannot be reached."""
        present = reachable(found)
        if isinstance(present, bool):
            return value
        if value.present is not None:
            return replace(value, present=as_sql(both(present, value.present)))
        return replace(value, sql=sa.case((present, value.sql)), column=False)

    def _aggregate(self, name: str, node: ast.expr, scope: Scope) -> Value:
        """``name`` of a comprehension over a relation."""
        assert isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp)
        part = node.generators[0]
        if len(node.generators) > 1 or part.is_async or isinstance(node, ast.SetComp):
            raise self.refuse(f"{name}() is of one loop over a relation", "Write sum(i.n for i in b.items if i.n > 3).")
        found = self.value(part.iter, scope)
        if not isinstance(found, Many) or not isinstance(part.target, ast.Name):
            raise self.refuse(f"{name}() is over a relation", node=part.iter)
        inner = scope.with_names({part.target.id: Entity(found.target)})
        condition = both(*(self._exact(each, inner) for each in part.ifs))
        if name == "len":
            if not isinstance(node.elt, ast.Name) or node.elt.id != part.target.id:
                raise self.refuse("len() counts the objects themselves", f"Begin with [{part.target.id} for.")
            return self._counted(found, condition)
        if bound_names(node.elt, inner) - {part.target.id}:
            raise self.refuse(f"{name}() reads the related rows alone", "Write i.n, and no attribute of the other row.")
        item = self.value(node.elt, inner)
        if isinstance(item, Constant) and type(item.value) is int:
            item = replace(self._int(item), column=True)
        if not isinstance(item, Value):
            raise self.refuse(f"{name}() is of numbers or dates of the related rows")
        return self._sum(found, condition, item) if name == "sum" else self._best(name, found, condition, item)

    def _sum(self, found: Many, condition: Condition, item: Value) -> Value:
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
        total: Any = sa.func.coalesce(sa.func.sum(as_int(item)), sa.literal_column("0"))
        missing = solid(item)
        if not isinstance(missing, bool):  # a None among the numbers, which Python does not add
            self.note("NULL where one of the values is: Python adds no None")
            total = sa.case((sa.func.count() == _count(missing), total))
        value = Value(self._over(found, condition, total), kind, column=isinstance(missing, bool))
        return self._if_reachable(found, value)

    def _best(self, name: str, found: Many, condition: Condition, item: Value) -> Value:
        """``min`` and ``max``: absent of nothing, and None of one None alone."""
        item = int_value(item) if item.kind.name == "int" else item
        if item.kind.name not in ("int", "decimal", "date", "datetime"):
            raise self.refuse(f"{name}() over a relation is of integers, Decimals, dates and times")
        self.note("NULL where there is no row, or where one of several values is NULL")
        best: Any = getattr(sa.func, name)(item.sql)
        best.type = item.sql.type
        missing = solid(item)
        kind = replace(item.kind, order="")
        if isinstance(missing, bool):
            return self._if_reachable(found, Value(self._over(found, condition, best), kind))
        whole = sa.func.count() == _count(missing)
        sql = self._over(found, condition, sa.case((whole, best)))
        if not item.none:
            return self._if_reachable(found, Value(sql, kind))
        single = sa.and_(sa.func.count() == sa.literal_column("1"), _count(both(*there(item))) == sa.func.count())
        some = sa.and_(sa.func.count() > sa.literal_column("0"), sa.or_(whole, single))
        return self._if_reachable(found, Value(sql, kind, none=True, present=self._over(found, condition, some)))


def _count(condition: Condition) -> Any:
    """Return the number of rows for which a condition holds."""
    return sa.func.count(sa.case((as_sql(condition), sa.literal_column("1"))))


__all__ = ["Aggregating"]
