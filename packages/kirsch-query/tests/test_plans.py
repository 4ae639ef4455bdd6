"""An index serves each form of query on each database, and its work is at most twice that for SQL by hand.

EXPLAIN says the first, and the database's own counters the second: rows and pages that were read, or steps of SQLite.
They are the same on a busy machine. For some forms no index can serve, and ``plans.py`` says why.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import plans
from by_hand import statements, work
from generate import asked
from kirsch_query import Refused, cache
from kirsch_query.emit import dialect_name
from kirsch_query.kinds import KNOWN
from plans import FORMS, Form

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def filled(engine: sa.Engine) -> Iterator[sa.Engine]:
    plans.create(engine)
    yield engine
    plans.Base.metadata.drop_all(engine)


@pytest.mark.parametrize("form", FORMS, ids=[f"{at}-{each.text}" for at, each in enumerate(FORMS)])
def test_an_index_serves_the_form(filled: sa.Engine, form: Form) -> None:
    database = dialect_name(filled)
    if form.whole.get(database) == plans.REFUSED:
        with pytest.raises(Refused):
            plans.plan(filled, form)
        return
    statement, rows = plans.plan(filled, form)
    found = plans.faults(database, form, rows)
    if database in form.whole:
        assert found, f"an index serves it now, although {form.whole[database]}"
    elif found and " OR " in str(statement) and scans_for_or(filled):
        pytest.skip("this SQLite uses no index for an OR with a text that has a COLLATE, as 3.53 does not")
    else:
        assert not found, f"{statement}\n" + "\n".join(map(str, rows))


def scans_for_or(engine: sa.Engine) -> bool:
    """Whether this database reads a whole table for an OR with a text that has a COLLATE."""
    if dialect_name(engine) != "sqlite":
        return False
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text("EXPLAIN QUERY PLAN SELECT * FROM plan_book WHERE title = '' COLLATE BINARY OR id = 1")
        )
        return any(row.detail.startswith("SCAN") for row in rows)


SLACK = 20
"""The work beside which a ratio says nothing: for a few rows, some pages or some steps."""


def test_no_form_costs_more_than_twice_the_work_of_sql_by_hand(filled: sa.Engine) -> None:
    database, scans = dialect_name(filled), scans_for_or(filled)
    worse = []
    with filled.connect() as connection:
        for form, by_hand in zip(FORMS, statements(filled, FORMS), strict=True):
            if form.whole.get(database) in (plans.REFUSED, plans.FOLDED):
                continue
            if " OR " in str(by_hand) and scans:
                continue
            statement, parameters, found = plans.executed(filled, partial(plans.recalled, form=form))
            plain, values, expected = plans.executed(filled, partial(orm.Session.scalars, statement=by_hand))
            assert sorted(found) == sorted(expected), f"the same books: {statement}, {plain}"
            ours, theirs = work(connection, statement, parameters), work(connection, plain, values)
            if any(ours[each] > 2 * theirs[each] + SLACK for each in ours):
                worse.append(f"{form.text}: {ours}, by hand {theirs}\n{statement}\n{plain}")
    assert not worse, "\n".join(worse)


@pytest.mark.parametrize(
    ("text", "collects"),
    [
        ("b.id == 77 and b.author.born > 5", False),
        ("b.id in ids and b.author.name != name", False),
        ("b.price == price and b.author.born > 5", False),
        ("b.price == price and any(t.weight > 0 for t in b.tags)", False),
        ("b.price > 5 and b.author.name == name", True),
        ("b.price == price and b.author.name == name", True),
    ],
)
def test_sqlite_collects_related_rows_only_where_no_other_index_is_better(text: str, collects: bool) -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    plans.Base.metadata.create_all(engine)
    query = asked(text, plans.VALUES, "b")
    assert any("LIST SUBQUERY" in line for line in query.explain(plans.Book, engine).plan) is collects
    first, *rest = (asked(part, plans.VALUES, "b") for part in text.split(" and "))
    assert any("LIST SUBQUERY" in line for line in (first & rest[0]).explain(plans.Book, engine).plan) is collects
    engine.dispose()


@pytest.mark.parametrize(
    ("key", "forms"),
    [
        (
            'title COLLATE "C"',
            [
                Form("b.title < 'title 1001'"),
                Form("b.title.startswith('title 777')"),
                Form("b.price >= 0", lambda b: b.title, 20),
            ],
        ),
        (
            "stock NULLS FIRST",
            [Form("b.price >= 0", lambda b: b.stock, 20)],
        ),
    ],
)
def test_the_indexes_that_the_page_names_serve_on_postgresql(
    filled: sa.Engine, key: str, forms: list[Form], monkeypatch: pytest.MonkeyPatch
) -> None:
    if dialect_name(filled) != "postgresql":
        pytest.skip("the indexes are PostgreSQL's")
    monkeypatch.delitem(plans.Book.__table__.c.title.info, KNOWN)
    cache.forget()
    with filled.begin() as connection:
        connection.exec_driver_sql(f"CREATE INDEX plan_other ON plan_book ({key})")
    try:
        for form in forms:
            _, rows = plans.plan(filled, form)
            assert any("plan_other" in row["QUERY PLAN"] for row in rows), rows
            assert not plans.faults("postgresql", form, rows)
    finally:
        with filled.begin() as connection:
            connection.exec_driver_sql("DROP INDEX plan_other")
        cache.forget()
