"""Tables whose partitions are on several PostgreSQL servers: the same rows, and conditions that run there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import databases
import plans
from generate import asked
from kirsch_query import recall
from plans import FORMS, Book, Form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Servers

SHARDS = 2


@pytest.fixture(scope="module")
def sharded(servers: Servers) -> Iterator[sa.Engine]:
    """An engine of a server whose books and tags are partitions on other servers; authors and countries are its own."""
    if servers.url("postgresql") is None:
        pytest.skip(f"NOT TESTED on postgresql: {servers.missing['postgresql']}")
    with contextlib.ExitStack() as stack:
        urls = [sa.make_url(stack.enter_context(databases.postgresql())) for _ in range(SHARDS + 1)]
        for url in urls[1:]:
            _make_shard(url)
        engine = sa.create_engine(urls[0])
        _make_partitions(engine, urls[1:])
        plans.fill(engine)
        yield engine
        engine.dispose()


def _make_shard(url: sa.URL) -> None:
    """Make the tables of a shard, without the foreign keys, whose rows may be elsewhere."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for table in (plans.Base.metadata.tables[name] for name in ("plan_book", "plan_tag")):
            for column in table.columns:
                if isinstance(column.type, sa.Enum):
                    column.type.create(connection, checkfirst=True)
            connection.execute(sa.schema.CreateTable(table, include_foreign_key_constraints=[]))
            for index in table.indexes:
                connection.execute(sa.schema.CreateIndex(index))
    engine.dispose()


def _make_partitions(engine: sa.Engine, shards: list[sa.URL]) -> None:
    """Make the tables; those of books and tags have partitions on the shards, a book's tags with it."""
    plans.Base.metadata.create_all(engine)
    with engine.begin() as connection:
        run = connection.exec_driver_sql
        run("CREATE EXTENSION postgres_fdw")
        for at, url in enumerate(shards):
            options = (
                f"host '{url.query['host']}', dbname '{url.database}', use_remote_estimate 'true', batch_size '999'"
            )
            run(f"CREATE SERVER shard{at} FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({options})")
            run(f"CREATE USER MAPPING FOR CURRENT_USER SERVER shard{at} OPTIONS (user 'test')")
        for name, key in (("plan_book", "id"), ("plan_tag", "book_id")):
            run(f"ALTER TABLE {name} RENAME TO whole_{name}")
            run(f"CREATE TABLE {name} (LIKE whole_{name}) PARTITION BY HASH ({key})")
            for at in range(len(shards)):
                part = f"FOR VALUES WITH (MODULUS {len(shards)}, REMAINDER {at}) SERVER shard{at}"
                run(f"CREATE FOREIGN TABLE {name}_{at} PARTITION OF {name} {part} OPTIONS (table_name '{name}')")
            run(f"DROP TABLE whole_{name} CASCADE")


LOCAL = {
    "b.state == State.LOST": "postgres_fdw sends no values of a type that is not PostgreSQL's own",
    "b.title[:9] == 'title 777'": "it sends no COLLATE",
}
"""The forms of one table whose condition the other servers do not evaluate, and why."""

ONE_TABLE = [each for each in FORMS if not any(name in each.text for name in ("author", "editor", "tags"))]


def _ids(engine: sa.Engine, form: Form) -> list[int]:
    with orm.Session(engine) as session:
        query = asked(form.text, plans.VALUES, "b")
        return [each.id for each in recall(session, Book, query, order=form.order, limit=form.limit)]


@pytest.mark.timeout(600)
def test_partitions_on_other_servers_give_the_same_rows(sharded: sa.Engine, servers: Servers) -> None:
    url = servers.url("postgresql")
    assert url is not None
    whole = sa.create_engine(url)
    plans.create(whole)
    try:
        for form in FORMS:
            assert _ids(sharded, form) == _ids(whole, form), form.text
    finally:
        plans.Base.metadata.drop_all(whole)
        whole.dispose()


@pytest.mark.parametrize("form", ONE_TABLE, ids=[f"{at}-{each.text}" for at, each in enumerate(ONE_TABLE)])
def test_the_other_servers_evaluate_the_condition(sharded: sa.Engine, form: Form) -> None:
    _, rows = plans.plan(sharded, form, "EXPLAIN (VERBOSE, COSTS OFF)")
    lines = [str(row["QUERY PLAN"]).strip() for row in rows]
    remote = [line for line in lines if line.startswith("Remote SQL:")]
    local = [line for line in lines if line.startswith("Filter:")]
    if form.text in LOCAL:
        assert local, f"the other servers evaluate it now, although {LOCAL[form.text]}"
        return
    assert remote
    assert not local
    assert all(" WHERE " in line for line in remote)
    assert form.limit is None or all(" ORDER BY " in line for line in remote)
