"""Tests of learn_collations(): what it learns, and that prefixes and orders of any text stay exact with it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import QueryError, comparison, learn_collations, recall, where
from kirsch_query.emit import dialect_name
from kirsch_query.kinds import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Servers


class Base(orm.DeclarativeBase):
    pass


class Word(Base):
    __tablename__ = "collated_word"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    text: orm.Mapped[str] = orm.mapped_column(sa.String(20), index=True)
    size: orm.Mapped[int] = orm.mapped_column()


# Letters of each plane, what folds into others, ignorable characters, wildcards and spaces.
LETTERS = [
    *"aAbBzZ0_%!\\' \t-", *"\u00e1\u00c1\u00df\u0301\u0130\u0131\u017f\u212a\u00ad\u200b\u200d\u02bc\u0149",
    *"\u4e00\uac00\u0e40\ufb03\ud7ff\ue000\ufffd\uffff",
    *"\U0001f600\U00010000\U0010ffff", "\x01", "\x7f",
]  # fmt: skip


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[orm.Session]:
    chance = random.Random(0)
    Base.metadata.create_all(engine)
    texts = [*LETTERS, *(each + other for each in LETTERS for other in LETTERS)]
    texts += ["".join(chance.choices(LETTERS, k=3)) for _ in range(1000)]
    with orm.Session(engine) as session:
        session.execute(sa.insert(Word), [{"id": at, "text": text, "size": 1} for at, text in enumerate(texts, 1)])
        session.commit()
        learn_collations(session, Word)
        yield session
    Base.metadata.drop_all(engine)
    Word.__table__.c.text.info.pop(KNOWN, None)


def test_prefixes_and_orders_stay_exact_with_collations_that_are_known(session: orm.Session) -> None:
    words = session.scalars(sa.select(Word).order_by(Word.id)).all()
    for prefix in LETTERS + [each.text for each in random.Random(1).sample(words, 300)]:
        for query in (comparison("text", "startswith", prefix), comparison("text", ">", prefix)):
            found = session.scalars(query.select(Word).order_by(Word.id)).all()
            assert found == [*query.filter(words)], repr(prefix)
    everything = where(lambda w: w.size == 1)
    first = recall(session, Word, everything, order=lambda w: w.text, limit=2000)
    assert [each.text for each in first] == sorted(each.text for each in words)[:2000]


def test_the_name_of_each_collation_is_learned(session: orm.Session) -> None:
    known = {"sqlite": {}, "postgresql": {"postgresql": "C.UTF-8"}, "mariadb": {"mariadb": "utf8mb4_general_ci"}}
    database = dialect_name(session.get_bind())
    assert Word.__table__.c.text.info.get(KNOWN, {}) == known[database]
    assert KNOWN not in Word.__table__.c.size.info


WEIGHED = [
    *(f"utf8mb4_unicode_{each}ci" for each in ("", "520_", "nopad_", "520_nopad_")),
    *(f"utf8mb4_uca1400_{each}" for each in ("ai_ci", "as_cs", "nopad_ai_cs", "nopad_as_ci")),
]


@pytest.mark.parametrize("collation", WEIGHED)
def test_an_index_by_weights_serves_prefixes_of_any_text(collation: str, servers: Servers) -> None:
    url = servers.url("mariadb")
    if url is None:
        pytest.skip(f"NOT TESTED on mariadb: {servers.missing['mariadb']}")
    engine = sa.create_engine(url)
    table = sa.Table(
        "weighed_word", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("text", sa.String(20, collation=collation), nullable=False, index=True),
    )  # fmt: skip
    beside = [
        "",
        *LETTERS,
        *"09zZkK9",
        *map(chr, range(1, 0x250, 3)),
        "\u00b7",
        "\u0387",
        "\u0300\u0328",
        "\u0e40\u0e01",
        "\u0627\u0653",
    ]
    prefixes = [before + each for before in ("", "a", "l\u00b7", "\u0e40") for each in "09aAlzZkK_\u212a"]
    texts = sorted({prefix + each for prefix in prefixes for each in beside} | set(beside) | set(map(str, range(2000))))
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(sa.insert(table), [{"text": each} for each in texts])
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("ANALYZE TABLE weighed_word").close()
            learn_collations(connection, table)
            for prefix in prefixes:
                found = connection.execute(comparison("text", "startswith", prefix).select(table)).all()
                assert sorted(row.text for row in found) == [each for each in texts if each.startswith(prefix)], prefix
        plan = comparison("text", "startswith", "199").explain(table, engine).plan
        assert any("key ix_weighed_word_text" in line and "type range" in line for line in plan), plan
    finally:
        with engine.begin() as connection:
            table.drop(connection)
        engine.dispose()


@pytest.mark.parametrize(
    "own", ["utf8mb4_nopad_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_hungarian_ci"]
)
@pytest.mark.parametrize("other", ["C.UTF-8", "en_GB.UTF-8"])
def test_each_pair_of_collations_has_its_operations(own: str, other: str) -> None:
    for known in ({"mariadb": own, "postgresql": other}, {"postgresql": other, "mariadb": own}):
        table = sa.Table("pair", sa.MetaData(), sa.Column("text", sa.String(20), info={KNOWN: known}))
        for operator in ("<", ">=", "startswith"):
            for value in ("a", "_"):
                assert "text" in str(comparison("text", operator, value).clause(table))


def test_databases_that_differ_make_the_collation_unknown(session: orm.Session) -> None:
    database = dialect_name(session.get_bind())
    if database == "sqlite":
        pytest.skip("SQLite compares by code points whatever the collation of a column")
    Word.__table__.c.text.info[KNOWN] = {database: "another"}
    learn_collations(session.get_bind(), Word.__table__)
    assert Word.__table__.c.text.info[KNOWN] == {database: None}
    learn_collations(session.connection(), Word)
    assert Word.__table__.c.text.info[KNOWN] == {database: None}
    assert session.scalars(where(lambda w: w.text.startswith("a")).select(Word)).all()


def test_what_is_no_model_is_refused(session: orm.Session) -> None:
    model: Any = 3
    with pytest.raises(QueryError, match="3 is not a mapped class and not a table"):
        learn_collations(session, model)
    with pytest.raises(QueryError, match="'x' is not an engine, a connection or a session"):
        learn_collations("x", Word)
