"""Advice about queries whose plan scans large tables, with the indexes that could avoid that."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.sql import operators

from kirsch_query.emit import Operation, dialect_name
from kirsch_query.kinds import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = 1000
"""A table with more rows than this is large."""

_SCANS = {
    "sqlite": r"^SCAN (\w+)(?!.*USING)",
    "postgresql": r"Seq Scan on (\w+)",
    "mariadb": r"\btable (\w+),.* type ALL\b",
}
_ORDERED = re.compile(r"(text_(lt|le|gt|ge)|prefix|prefix_within)([pmgu]*)$")
"""The operations on text for which the collation of an index must be known; the last group is what is known."""
_SERVED = re.compile(r"(among|is_true|(text|number|float)_\w+)$|prefix")
"""The operations that an index of their first argument may serve."""
_OPERATORS = (operators.eq, operators.is_)


def advice(engine: Any, models: tuple[Any, ...], condition: Any, plan: list[str]) -> list[str]:
    """Return advice about the large tables that the plan of a query scans; empty if there are none."""
    database = dialect_name(engine.dialect)
    names = {scan[1] for line in plan if (scan := re.search(_SCANS[database], line))}
    wanted = list(_wanted(condition))
    own = (sa.inspect(model).selectable for model in models)
    tables = {column.table for _, column in wanted}.union(each for each in own if isinstance(each, sa.Table))
    found: list[str] = []
    with contextlib.nullcontext(engine) if isinstance(engine, sa.Connection) else engine.connect() as connection:
        for table in sorted(tables, key=lambda each: str(each.fullname)):
            # The aliases of related rows have the names of their tables, with a number.
            if any(re.fullmatch(rf"{re.escape(table.name)}(_\d+)?", name) for name in names):
                columns = [(operation, column) for operation, column in wanted if column.table is table]
                found += _about(connection, database, table, columns)
    return found


def _about(
    connection: sa.Connection, database: str, table: sa.Table, columns: list[tuple[str, sa.Column[Any]]]
) -> Iterator[str]:
    """Yield the advice for one table that is scanned."""
    rows = sa.select(sa.literal_column("1")).select_from(table).limit(LARGE + 1).subquery()
    if connection.scalar(sa.select(sa.func.count()).select_from(rows)) != LARGE + 1:
        return
    indexed = _indexed(connection, table)
    steps: dict[str, None] = {}
    for operation, column in columns:
        known = _is_known(database, operation)
        learned = database in column.info.get(KNOWN, {})
        if not known and not learned:
            steps[f"learn_collations() tells whether an index of {column.name} serves its order"] = None
        elif not known and database == "postgresql":
            steps[_index(connection, table, column, "_c", ' COLLATE "C"')] = None
        elif known and column.name not in indexed:
            steps[_index(connection, table, column)] = None
    yield f"{table.fullname} is read as a whole, which has more than {LARGE:,} rows"
    yield from steps or ["no index serves the condition as it is written, or the database expects too many rows"]


def _is_known(database: str, operation: str) -> bool:
    """Return whether an index of the column could serve an operation, considering the column's collation."""
    ordered = _ORDERED.match(operation)
    if not ordered or database == "sqlite":
        return True
    letters = {"postgresql": "p", "mariadb": {"prefix": "mg", "prefix_within": "u"}.get(ordered[1], "m")}[database]
    return any(each in ordered[3] for each in letters)


def _index(
    connection: sa.Connection, table: sa.Table, column: sa.Column[Any], suffix: str = "", collation: str = ""
) -> str:
    preparer = connection.dialect.identifier_preparer
    name = preparer.quote(f"ix_{table.name}_{column.name}{suffix}")
    key = f"{preparer.quote(column.name)}{collation}"
    return f"could serve it: CREATE INDEX {name} ON {preparer.format_table(table)} ({key})"


def _indexed(connection: sa.Connection, table: sa.Table) -> set[str | None]:
    """Return the first columns of all indexes of a table."""
    inspector = sa.inspect(connection)
    found: list[Any] = [each["column_names"] for each in inspector.get_indexes(table.name, table.schema)]
    found += [each["column_names"] for each in inspector.get_unique_constraints(table.name, table.schema)]
    found.append(inspector.get_pk_constraint(table.name, table.schema)["constrained_columns"])
    return {each[0] for each in found if each}


def _wanted(part: Any) -> Iterator[tuple[str, sa.Column[Any]]]:
    """Yield the columns that are compared in a way that an index could serve, each with its operation."""
    name = getattr(part, "name", "")
    if isinstance(part, Operation) and name == "not_true":
        return
    if isinstance(part, sa.BinaryExpression) and part.operator in _OPERATORS:
        yield from (("eq", each) for side in (part.left, part.right) for each in _column(side))
    elif isinstance(part, Operation) and _SERVED.match(name):
        yield from ((name, each) for each in _column(next(iter(part.clauses))))
    for each in part.get_children():
        yield from _wanted(each)


def _column(part: Any) -> Iterator[sa.Column[Any]]:
    """Yield the column of a table to which an expression refers, if it is one."""
    if isinstance(part, sa.ColumnClause):
        yield from (
            each for each in part.base_columns if isinstance(each, sa.Column) and isinstance(each.table, sa.Table)
        )


__all__ = ["advice"]
