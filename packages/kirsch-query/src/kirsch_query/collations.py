"""Detection of the collations of text columns, so that an index can serve comparisons by code points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import cache
from kirsch_query.emit import dialect_name
from kirsch_query.errors import QueryError
from kirsch_query.kinds import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

# A column without a collation has the default of the database. `datlocprovider` is new in PostgreSQL 15.
_POSTGRESQL = """
SELECT a.attname, CASE WHEN c.collname <> 'default' THEN c.collname
    WHEN getdatabaseencoding() <> 'UTF8' OR to_jsonb(d) ->> 'datlocprovider' = 'i' THEN 'other'
    ELSE d.datcollate END
FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation JOIN pg_database d ON d.datname = current_database()
WHERE a.attrelid = to_regclass(:name) AND a.attnum > 0 AND NOT a.attisdropped
"""
_MARIADB = """
SELECT column_name, collation_name FROM information_schema.columns
WHERE table_schema = coalesce(:schema, database()) AND table_name = :name AND collation_name IS NOT NULL
"""


def learn_collations(bind: Any, *models: Any) -> None:
    """Read the collations of the text columns of mapped classes or tables from the database. ``bind`` is an engine, a
    connection or a session. Call this once when the program starts: afterwards queries can use an index for ``<``,
    ``startswith`` and the order of text, if the collation allows that. Restart the program after a collation was
    changed: otherwise queries omit rows. Raises QueryError for another kind of ``bind``, or a model that is neither a
    mapped class nor a table.
    """
    tables = [table for model in models for table in _tables(model)]
    if isinstance(bind, orm.Session):
        _learn(bind.connection(), tables)
    elif isinstance(bind, sa.Connection):
        _learn(bind, tables)
    elif isinstance(bind, sa.Engine):
        with bind.connect() as connection:
            _learn(connection, tables)
    else:
        raise QueryError(
            f"{bind!r} is not an engine, a connection or a session of SQLAlchemy's",
            hint="In asyncio: await connection.run_sync(learn_collations, Book).",
        )
    cache.forget()


def _tables(model: Any) -> Iterator[sa.Table]:
    found = sa.inspect(model, raiseerr=False)
    if isinstance(model, sa.Table):
        yield model
    elif getattr(found, "is_mapper", False):
        yield from (table for table in found.tables if isinstance(table, sa.Table))
    else:
        raise QueryError(f"{model!r} is not a mapped class and not a table")


def _learn(connection: sa.Connection, tables: list[sa.Table]) -> None:
    database = dialect_name(connection.dialect)
    for table in tables:
        if database == "postgresql":
            name = connection.dialect.identifier_preparer.format_table(table)
            rows = connection.execute(sa.text(_POSTGRESQL), {"name": name}).all()
        elif database == "mariadb":
            rows = connection.execute(sa.text(_MARIADB), {"name": table.name, "schema": table.schema}).all()
        else:
            continue  # SQLite compares by code points, for any collation of the column
        names = {row[0]: row[1] for row in rows}
        for column in table.columns:
            if column.name in names:
                known = column.info.setdefault(KNOWN, {})
                own = names[column.name]
                known[database] = own if known.get(database, own) == own else None
