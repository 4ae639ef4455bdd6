"""explain() with an engine names the tables that are read as a whole, and the indexes that could serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from generate import asked
from kirsch_query import learn_collations
from kirsch_query.emit import dialect_name
from kirsch_query.kinds import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator


class Base(orm.DeclarativeBase):
    pass


class Entry(Base):
    __tablename__ = "explained"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    word: orm.Mapped[str] = orm.mapped_column(sa.String(20))
    key: orm.Mapped[str] = orm.mapped_column(sa.String(20), index=True)
    rank: orm.Mapped[int] = orm.mapped_column()
    code: orm.Mapped[int] = orm.mapped_column(unique=True)
    parent_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("explained.id"))
    parent: orm.Mapped[Entry | None] = orm.relationship(remote_side="Entry.id")


@pytest.fixture
def filled(engine: sa.Engine) -> Iterator[sa.Engine]:
    Base.metadata.create_all(engine)
    rows = [{"id": at, "word": f"w{at}", "key": f"k{at}", "rank": at, "code": at} for at in range(1, 1501)]
    with engine.begin() as connection:
        connection.execute(sa.insert(Entry), rows)
        word = "ANALYZE TABLE" if dialect_name(engine) == "mariadb" else "ANALYZE"
        connection.exec_driver_sql(f"{word} explained").close()
    yield engine
    Base.metadata.drop_all(engine)
    for column in Entry.__table__.columns:
        column.info.pop(KNOWN, None)


WHOLE = "explained is read as a whole, which has more than 1,000 rows"
WORD = "could serve it: CREATE INDEX ix_explained_word ON explained (word)"
RANK = "could serve it: CREATE INDEX ix_explained_rank ON explained (rank)"
NOTHING = "no index serves the condition as it is written, or the database expects too many rows"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.word == 'w7'", [WHOLE, WORD]),
        ("x.word in ('w7', 'w8') and x.rank > 7", [WHOLE, WORD, RANK]),
        ("x.rank % 7 == 3", [WHOLE, NOTHING]),
        ("x.code == 7", []),
        ("x.key == 'k7'", []),
        ("not x.word == 'w7'", [WHOLE, NOTHING]),
    ],
)
def test_explain_names_the_index_that_could_serve(filled: sa.Engine, text: str, expected: list[str]) -> None:
    found = asked(text, {}).explain(Entry, filled)
    assert found.advice == expected, found.plan
    assert all(each in str(found) for each in found.advice)


def test_explain_names_the_keys_of_related_rows(filled: sa.Engine) -> None:
    found = asked("x.parent.code == 7", {}).explain(Entry, filled)
    index = "could serve it: CREATE INDEX ix_explained_parent_id ON explained (parent_id)"
    # MariaDB makes an index for each foreign key.
    assert found.advice == ([] if dialect_name(filled) == "mariadb" else [WHOLE, index])


def test_explain_asks_for_the_collation_of_an_order_of_text(filled: sa.Engine) -> None:
    database = dialect_name(filled)
    query = asked("x.word < 'w1000'", {})
    ask = "learn_collations() tells whether an index of word serves its order"
    assert query.explain(Entry, filled).advice == [WHOLE, WORD if database == "sqlite" else ask]
    learn_collations(filled, Entry)
    assert query.explain(Entry, filled).advice == [WHOLE, NOTHING if database == "mariadb" else WORD]
    if database == "postgresql":
        Entry.__table__.c.word.info[KNOWN] = {"postgresql": "en-US-x-icu"}
        collated = 'could serve it: CREATE INDEX ix_explained_word_c ON explained (word COLLATE "C")'
        assert query.explain(Entry, filled).advice == [WHOLE, collated]


def test_explain_says_nothing_of_a_small_table(filled: sa.Engine) -> None:
    with filled.begin() as connection:
        connection.execute(sa.delete(Entry).where(Entry.id > 1000))
    assert asked("x.word == 'w7'", {}).explain(Entry, filled).advice == []
