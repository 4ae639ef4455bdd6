"""Parts of JSON columns mean on each database what they mean in memory."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql

from generate import asked
from kirsch_query import Refused, recall

if TYPE_CHECKING:
    from collections.abc import Iterator


class Base(orm.DeclarativeBase):
    pass


class Shelf(Base):
    __tablename__ = "json_shelf"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    papers: orm.Mapped[list[Paper]] = orm.relationship(back_populates="shelf")
    data: orm.Mapped[Any] = orm.mapped_column(sa.JSON)


class Paper(Base):
    __tablename__ = "json_paper"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    data: orm.Mapped[Any] = orm.mapped_column(sa.JSON, nullable=True)
    more: orm.Mapped[Any] = orm.mapped_column(sa.JSON().with_variant(postgresql.JSONB, "postgresql"), nullable=True)
    i: orm.Mapped[int | None] = orm.mapped_column()
    s: orm.Mapped[str | None] = orm.mapped_column(sa.String(50))
    shelf_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("json_shelf.id"))
    shelf: orm.Mapped[Shelf | None] = orm.relationship(back_populates="papers")


TEXTS = ["", "a", "A", "ab", "a ", "é", "É", "😀", 'x"y', "a\\b", "null", "true", "1", "\n", "[1]", "%", "\u2028"]  # fmt: skip
NUMBERS = [0, 1, -1, 3, 3.0, 0.1, 0.30000000000000004, -0.0, 1e300, 1e-300, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 1.5]  # fmt: skip
NAMES: dict[str, Any] = {
    "text": "é", "number": 3, "real": 0.1, "large": 2**53 + 1, "larger": 2**70, "infinite": math.inf, "nan": math.nan, "yes": True,
    "nothing": None, "some": [1, "a", None, 0.1, True], "texts": {"a", "é", 'x"y'}, "empty": [],
}  # fmt: skip
PARTS = ["['a']", "['a']['b']", "['b']", "['a'][0]", "['a'][-1]", "[0]", "[-2]", "['a'][0]['b']", "['a b']", "", ".get('a')", "['0']"]  # fmt: skip
TESTS = [
    "{} == number", "{} == text", "{} == real", "{} == large", "{} == nothing", "{} == yes", "{} == 1", "{} != number", "{} != text", "{} != nothing",
    "{} is None", "{} is not None", "{} is True", "{} is not False", "{} in some", "{} not in some", "{} in texts", "{} in empty", "{}", "not {}",
    "not {} == 'a'", "{} == x.i", "{} == x.s", "{} != x.s", "x.i != {}", "{} == larger", "{} == infinite", "{} == nan", "{} == ''", "{} == 0", "{} == -0.0",
    "{} == 1e300", "{} != 0.30000000000000004",
]  # fmt: skip
ORDERS = ["{} > 1", "1 >= {}", "{} < real", "{} <= large", "{} > 0.5", "{} < infinite", "{} > larger", "x.i < {}"]
WORDS = ["{} < 'b'", "{}.startswith('a')", "{}.lower() == 'a'", "len({}) == 1", "'a' in {}", "text not in {}", "{} >= x.s", "{}.strip() == 'a'"]  # fmt: skip


def document(chance: random.Random, depth: int = 3) -> Any:
    """A random document."""
    kind = chance.randrange(8 if depth else 4)
    if kind < 4:
        return [None, chance.choice([True, False]), chance.choice(TEXTS), chance.choice(NUMBERS)][kind]
    if kind == 4:
        return [document(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {each: document(chance, depth - 1) for each in ("a", "b", "a b", "é", "0") if chance.random() < 0.6}


@pytest.fixture(scope="module")
def papers(engine: sa.Engine) -> Iterator[sa.Engine]:
    Base.metadata.create_all(engine)
    chance = random.Random(28)
    with orm.Session(engine) as session:
        shelves = [Shelf(id=at, data=document(chance)) for at in range(1, 6)]
        rows = [
            Paper(
                id=at, data=document(chance), more=document(chance), i=chance.choice([None, 0, 1, 3]), s=chance.choice([None, *TEXTS[:8]]),
                shelf=chance.choice([None, *shelves]),
            )
            for at in range(1, 200)
        ]  # fmt: skip
        session.add_all([*shelves, *rows])
        session.flush()
        session.execute(sa.text("UPDATE json_paper SET data = NULL WHERE id IN (7, 8)"))
        session.commit()
    yield engine
    Base.metadata.drop_all(engine)


def answers(query: Any, rows: list[Any]) -> dict[int, bool]:
    """The answers by row, without those rows of which Python raises because a part has another type."""
    found = {}
    for row in rows:
        with contextlib.suppress(TypeError, AttributeError):
            found[row.id] = query(row)
    return found


QUERIES = [
    test.format(f"{owner}{part}")
    for owner, part in itertools.product(["x.data", "x.more", "x.shelf.data"], PARTS)
    for test in [*TESTS, *ORDERS, *WORDS]
]


def test_parts_of_documents_select_the_rows_that_python_selects(papers: sa.Engine) -> None:
    with orm.Session(papers) as session:
        rows = list(session.scalars(sa.select(Paper).order_by(Paper.id)))
        documents = {each.id: (each.data, each.more, each.i, each.s, each.shelf and each.shelf.data) for each in rows}
        queries = random.Random(28).sample(QUERIES, min(len(QUERIES), int(os.environ.get("QUERY_CASES", "300"))))
        wrong, held = [], 0
        for text in queries:
            query = asked(text, NAMES)
            found = set(session.scalars(sa.select(Paper.id).where(query.clause(Paper))))
            expected = answers(query, rows)
            held += bool(found)
            differ = [at for at, answer in expected.items() if answer is not (at in found)]
            wrong += [(text, at in found, documents[at]) for at in differ[:1]]
        assert not wrong, f"{len(wrong)} of {len(queries)}:\n" + "\n".join(map(str, wrong[:40]))
        assert held > len(queries) // 3


def test_recall_merges_documents_that_are_not_saved(papers: sa.Engine) -> None:
    with orm.Session(papers) as session:
        query = asked("x.data['kind'] == 'new' and x.data.get('size', ) is None", {})
        added = Paper(id=1001, data={"kind": "new"})
        session.add_all([added, Paper(id=1002, data={"kind": "new", "size": 3}), Paper(id=1003, data={})])
        assert recall(session, Paper, query) == [added]
        session.flush()
        assert recall(session, Paper, query) == [added]
        session.add(Paper(id=1004, data={"kind": ("a", "b")}))
        with pytest.raises(Refused, match="a flush will store another value"):
            recall(session, Paper, query)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x.data[key] == 1", "written out"),
        ("x.data['\"'] == 1", "written out"),
        ("x.data['a'] == x.data['b']", "is compared with text"),
        ("x.data['a'] == {}", "is compared with text"),
        ("x.data['a'] is x.s", "identity"),
        ("x.i in x.data['a']", "a constant text is looked for"),
        ("x.data['a'] in range(3)", "what `in` looks into"),
    ],
)
def test_what_no_database_does_with_documents_is_refused(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        asked(text, {"key": "a"}).clause(Paper)


def test_integers_that_sqlite_cannot_read_are_an_error() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add(Paper(id=1, data={"a": 2**64}))
        session.commit()
        with pytest.raises(sa.exc.OperationalError, match="overflow"):
            session.scalars(sa.select(Paper).where(asked("x.data['a'] > 3", {}).clause(Paper))).all()
    engine.dispose()
