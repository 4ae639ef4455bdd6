"""Conditions that related rows exist, in the form that can use an index on each database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.sql import operators

from kirsch_query.emit import Operation, op

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def semi_join(aliases: Sequence[Any], conditions: Sequence[Any]) -> sa.ColumnElement[Any]:
    """Return the condition that rows of ``aliases`` exist for which all ``conditions`` hold. It may be NULL. If the
    first condition is ``inner = outer`` and no other one reads the outer row, it is ``outer IN (SELECT inner ...)``,
    for which SQLite and MariaDB start from the related rows. Otherwise it is a correlated EXISTS.
    """
    own = {sa.inspect(each).selectable for each in aliases}
    keys = _keys(conditions[0], own)
    if keys is None or any(True for each in conditions[1:] for _ in _outer_columns(each, own)):
        return _exists(aliases, conditions, own)
    inner, outer = keys
    rows = sa.select(inner).where(*conditions[1:]).correlate_except(*aliases).scalar_subquery()
    found = op("among", outer, rows)
    found.related = (aliases, conditions, own)  # type: ignore[attr-defined]
    return found


def anti_join(found: sa.ColumnElement[Any]) -> sa.ColumnElement[Any] | None:
    """Return the negation of a :func:`semi_join`, in a form that can use an index on PostgreSQL and MariaDB; None
    for other conditions."""
    related = getattr(found, "related", None)
    if related is not None:
        return op("not", _exists(*related))
    return op("not", found) if isinstance(found, sa.Exists) else None


def conjoined(parts: Sequence[Any]) -> Sequence[Any]:
    """Return conditions that must all hold, in the form for which SQLite uses the better index. SQLite collects all
    rows of an IN subquery, even if another condition leaves only a few outer rows. So on SQLite, an IN becomes an
    EXISTS if another condition is an equality with a declared index. It remains an IN if that index is not unique and
    an equality in the subquery has an index too. Other databases estimate the numbers of rows.
    """
    served = max((_index_of(each) for each in parts), default=0)
    if not served or not any(hasattr(each, "related") for each in parts):
        return parts
    found = []
    for part in parts:
        related = getattr(part, "related", None)
        if related is not None and (served == 2 or not any(map(_index_of, _flat(related[1][1:])))):
            part = op("semi_join", part, _exists(*related))
            part.related = related  # type: ignore[attr-defined]
        found.append(part)
    return found


def _flat(parts: Sequence[Any]) -> Iterator[Any]:
    """Yield conditions; those joined by AND are split into their parts."""
    for each in parts:
        if isinstance(each, sa.BooleanClauseList) and each.operator is operators.and_:
            yield from _flat(each.clauses)
        else:
            yield each


def _index_of(part: Any) -> int:
    """Return 2 if ``part`` is an equality or ``in`` on a column with a unique index, 1 if with another index, else
    0."""
    if isinstance(part, sa.BinaryExpression) and part.operator is operators.eq:
        column, value = part.left, part.right
    elif getattr(part, "name", "") in _EQUALITIES and isinstance(part, Operation):
        column, value = part.clauses
    else:
        return 0
    if not isinstance(column, sa.ColumnClause) or not isinstance(value, sa.BindParameter):
        return 0
    found = 0
    for base in column.base_columns:
        table = getattr(base, "table", None)
        if isinstance(table, sa.Table):
            unique = [
                each for each in table.constraints if isinstance(each, sa.PrimaryKeyConstraint | sa.UniqueConstraint)
            ]
            for index in (*unique, *table.indexes):
                columns = list(index.columns)
                if columns and columns[0] is base:
                    alone = len(columns) == 1 and getattr(index, "unique", True)
                    found = max(found, 2 if alone else 1)
    return found


_EQUALITIES = {"text_is", "text_is_collated", "among", "text_among", "text_among_collated"}


def _exists(aliases: Sequence[Any], conditions: Sequence[Any], own: set[Any]) -> sa.ColumnElement[Any]:
    """Return a correlated EXISTS whose results MariaDB does not cache by text of the outer row. The first condition is
    the relation's own, which compares text by collation, like MariaDB's cache; so it is safe.
    """
    found = sa.and_(*conditions)
    if any(isinstance(column.type, sa.String) for each in conditions[1:] for column in _outer_columns(each, own)):
        found = op("uncached", found)
    return sa.exists(sa.literal_column("1")).where(found).correlate_except(*aliases)


def _keys(condition: Any, own: set[Any]) -> tuple[Any, Any] | None:
    """Return the columns (inner, outer) of a condition ``inner = outer``; None for other conditions."""
    if not isinstance(condition, sa.BinaryExpression) or condition.operator is not operators.eq:
        return None
    for inner, outer in ((condition.left, condition.right), (condition.right, condition.left)):
        if (
            isinstance(inner, sa.ColumnClause)
            and isinstance(outer, sa.ColumnClause)
            and inner.table in own
            and outer.table not in own
            and getattr(inner.type, "collation", None) == getattr(outer.type, "collation", None)
        ):
            return inner, outer
    return None


def _outer_columns(part: Any, own: set[Any]) -> Iterator[Any]:
    """Yield the columns in an expression that belong neither to ``own`` nor to the rows of a subquery in it."""
    if isinstance(part, sa.ColumnClause) and part.table not in own:
        yield part
    if isinstance(part, sa.Select):
        own = own.union(part._correlate_except or ())
    for each in part.get_children():
        yield from _outer_columns(each, own)


__all__ = ["anti_join", "conjoined", "semi_join"]
