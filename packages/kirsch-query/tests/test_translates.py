"""Queries that translate by docs/queries.md do, and give the rows that Python gives; the others are refused."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import generate
import translates
from kirsch_query import Refused
from kirsch_query.emit import dialect_name
from models import Thing, stored


@pytest.fixture(scope="module")
def session(engine: sa.Engine) -> Iterator[orm.Session]:
    rows = generate.rows(random.Random(5), 60)
    for each in rows:
        if isinstance(each, Thing):  # no overflow or underflow: an error on some databases
            each.f, each.g = (number and max(min(round(number, 3), 1e9), -1e9) for number in (each.f, each.g))  # type: ignore[assignment]
    with stored(engine, rows) as session:
        yield session


@pytest.mark.parametrize("row", translates.ROWS, ids=[label for label, *_ in translates.ROWS])
def test_a_row_of_the_table_is_true_of_this_database(session: orm.Session, row: tuple[str, list[str], str]) -> None:
    _, texts, _ = row
    dialect = session.get_bind().dialect
    name = dialect_name(dialect)
    for text in texts:
        if translates.cell(texts, name) == "refused":
            with pytest.raises(Refused, match="File"):
                translates.clause(text, dialect)
        elif not text.startswith("zoned"):
            query = generate.asked(text, translates.NAMES)
            things = session.scalars(sa.select(Thing).order_by(Thing.id)).all()
            found = list(session.scalars(sa.select(Thing).where(query.clause(Thing)).order_by(Thing.id)))
            assert found == [*query.filter(things)], text


def test_the_table_of_the_page_is_current() -> None:
    page = translates.PAGE.read_text("utf-8")
    shown = page.partition(translates.START)[2].partition(translates.STOP)[0]
    assert shown.strip() == translates.table().strip(), "run python tests/translates.py"
