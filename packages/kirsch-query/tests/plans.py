"""Forms of query on tables of a user's size, and whether the plan of a database reads a whole table for one."""

from __future__ import annotations

import datetime
import decimal
import enum
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql

from generate import asked
from kirsch_query import desc, learn_collations, recall

if TYPE_CHECKING:
    from collections.abc import Callable

BOOKS, AUTHORS, COUNTRIES = 12_000, 2_000, 100
DAY = datetime.date(2020, 1, 1)
NOON = datetime.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - of a column without a zone
MICROSECONDS = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


class Base(orm.DeclarativeBase):
    pass


class State(enum.Enum):
    NEW = 1
    SOLD = 2
    LOST = 3


class Country(Base):
    __tablename__ = "plan_country"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50), index=True)


class Author(Base):
    __tablename__ = "plan_author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50), index=True)
    born: orm.Mapped[int | None] = orm.mapped_column(index=True)
    country_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("plan_country.id"), index=True)
    country: orm.Mapped[Country] = orm.relationship()
    books: orm.Mapped[list[Book]] = orm.relationship(back_populates="author", foreign_keys="Book.author_id")


class Book(Base):
    __tablename__ = "plan_book"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(sa.String(50), index=True)
    note: orm.Mapped[str | None] = orm.mapped_column(sa.String(50), index=True)
    price: orm.Mapped[int] = orm.mapped_column(index=True)
    stock: orm.Mapped[int | None] = orm.mapped_column(index=True)
    big: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, index=True)
    rating: orm.Mapped[float | None] = orm.mapped_column(sa.Double, index=True)
    cost: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(10, 2), index=True)
    day: orm.Mapped[datetime.date] = orm.mapped_column(index=True)
    at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(MICROSECONDS, index=True)
    uid: orm.Mapped[uuid.UUID] = orm.mapped_column(index=True)
    state: orm.Mapped[State] = orm.mapped_column(index=True)
    rare: orm.Mapped[bool] = orm.mapped_column(index=True)
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("plan_author.id"), index=True)
    author: orm.Mapped[Author] = orm.relationship(back_populates="books", foreign_keys=[author_id])
    editor_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("plan_author.id"), index=True)
    editor: orm.Mapped[Author | None] = orm.relationship(foreign_keys=[editor_id])
    tags: orm.Mapped[list[Tag]] = orm.relationship(back_populates="book")


class Tag(Base):
    __tablename__ = "plan_tag"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    word: orm.Mapped[str] = orm.mapped_column(sa.String(50), index=True)
    weight: orm.Mapped[int] = orm.mapped_column(index=True)
    book_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("plan_book.id"), index=True)
    book: orm.Mapped[Book] = orm.relationship(back_populates="tags")


@dataclass
class Form:
    """A form of query."""

    text: str
    order: Any = None
    """The order of the rows that are recalled."""
    limit: int | None = None
    whole: dict[str, str] = field(default_factory=dict)
    """The databases that read a whole table or sort all rows for it, and why nothing else can be done."""


ALL = ("sqlite", "postgresql", "mariadb")
REFUSED = "SQLite has no decimals"
FOLDED = "an index of utf8mb4_general_ci has another order than code points"
CALCULATED = "an index of a column does not serve what is calculated of it"
LAST = "an index has NULL last unless it is made with NULLS FIRST"
SUBQUERY = dict.fromkeys(("postgresql", "mariadb"), "the database reads no index for a subquery in OR")
MIXED = "MariaDB reads no index in an order that descends and then ascends"


VALUES: dict[str, Any] = {
    "title": "title 77", "titles": ["title 77", "title 78", "title 5000"], "one": ["title 77"], "ids": [1, 5, 9],
    "price": 539, "many": list(range(100, 150)), "Decimal": decimal.Decimal, "State": State,
    "day": DAY + datetime.timedelta(3000), "DAY": DAY, "DAY_5": DAY + datetime.timedelta(5),
    "at": NOON + datetime.timedelta(hours=76), "AT_5": NOON + datetime.timedelta(hours=9),
    "uid": uuid.UUID(int=77), "uids": {uuid.UUID(int=77), uuid.UUID(int=78)},
    "name": "author 77", "names": ("author 77", "author 78"), "country": "country 7", "word": "word 77",
}  # fmt: skip


_TEXTS = """
# One column and a value.
b.id == 77
b.title == title
b.note == 'note 75'
b.price == price
b.stock == 75
b.big == 2**33
b.rating == 9.5
b.cost == Decimal('9.50')
b.day == day
b.at == at
b.uid == uid
b.state == State.LOST
b.rare
b.rare == True
b.rare is True
title == b.title
b.price == 539.0
b.price == price and b.title == title
b.title == title or b.price == price
b.title == title or b.id == 5
# Several values.
b.id in ids
b.title in titles
b.title in one
b.note in ('note 75', 'note 80')
b.price in many
b.rating in (9.5, 10.0)
b.day in (day, DAY)
b.uid in uids
b.title in titles or b.id == 3
b.title == title or b.title == 'title 78'
b.price in range(100, 110)
b.stock in (75, 78)
# Orders.
b.price < 7
b.price >= 6000
10 <= b.price < 20
b.stock > 11990
b.big < 2**34 + 1
b.rating > 1499.0
b.rating < 1.0
b.cost < Decimal('2.00')
b.day < DAY_5
b.at < AT_5
b.title < 'title 1001'
'title 555' <= b.title < 'title 556'
b.title.startswith('title 777')
b.note.startswith('note 777')
b.title.startswith(('title 777', 'title 888'))
b.title[:9] == 'title 777'
# Related rows.
b.author.name == name
b.author.name in names
b.author.name.startswith('author 77')
b.author.born == 77
b.author.born < 5
b.author.id == 77
b.author.country.name == country
b.editor.name == name
b.editor.born > 1995
b.author.name == name and b.price > 5
b.author.name == name or b.price == price
b.author.country.name == country or b.price == price
any(t.word == word for t in b.tags)
any(t.word in (word, 'word 78') for t in b.tags)
any(t.weight < 5 and t.word != word for t in b.tags)
any(o.title == title for o in b.author.books)
b.title in titles and not any(t.word == word for t in b.tags)
b.price == price and all(t.weight > 3 for t in b.tags)
b.price == price and b.author is not None
b.price == price and b.editor is None
b.price == price and len(b.tags) == 2
"""
_WHOLE = {
    "b.cost == Decimal('9.50')": {"sqlite": REFUSED},
    "b.cost < Decimal('2.00')": {"sqlite": REFUSED},
    "b.title < 'title 1001'": {"mariadb": FOLDED},
    "'title 555' <= b.title < 'title 556'": {"mariadb": FOLDED},
    "b.title[:9] == 'title 777'": dict.fromkeys(ALL, CALCULATED),
    "b.author.name == name or b.price == price": SUBQUERY,
    "b.author.country.name == country or b.price == price": SUBQUERY,
}


def _first(order: Any, **whole: str) -> Form:
    return Form("b.price >= 0", order, 20, whole)


FORMS = [
    *(Form(each, whole=_WHOLE.get(each, {})) for each in _TEXTS.splitlines() if each and not each.startswith("#")),
    # The first rows of an order.
    _first(lambda b: b.id),
    _first(lambda b: b.price),
    _first(lambda b: desc(b.id)),
    _first(lambda b: (b.day, b.id)),
    _first(lambda b: b.title, mariadb=FOLDED),
    _first(lambda b: b.stock, postgresql=LAST),
    _first(lambda b: desc(b.price), mariadb=MIXED),
]


def create(engine: sa.Engine, count: int = BOOKS) -> None:
    """Make the tables, and fill them."""
    Base.metadata.create_all(engine)
    fill(engine, count)


def fill(engine: sa.Engine, count: int = BOOKS) -> None:
    """Fill the tables with ``count`` books, and let the database count what is in them."""
    books = [
        {
            "id": at,
            "title": f"title {at}",
            "note": None if at % 5 else f"note {at}",
            "price": at * 7 % 6007,
            "stock": None if at % 3 else at,
            "big": at * 2**33,
            "rating": None if at % 4 else at / 8,
            "cost": decimal.Decimal(at) / 4,
            "day": DAY + datetime.timedelta(at),
            "at": None if at % 4 else NOON + datetime.timedelta(hours=at),
            "uid": uuid.UUID(int=at),
            "state": State.LOST if at % 999 == 0 else list(State)[at % 2],
            "rare": at % 999 == 0,
            "author_id": at % AUTHORS + 1,
            "editor_id": None if at % 3 else at % AUTHORS + 1,
        }
        for at in range(1, count + 1)
    ]
    authors = [
        {"id": at, "name": f"author {at}", "born": None if at % 9 == 0 else at, "country_id": at % COUNTRIES + 1}
        for at in range(1, AUTHORS + 1)
    ]
    tags = [{"id": at, "word": f"word {at}", "weight": at, "book_id": at % count + 1} for at in range(1, 2 * count + 1)]
    with engine.begin() as connection:
        countries = [{"id": at, "name": f"country {at}"} for at in range(1, COUNTRIES + 1)]
        for model, rows in ((Country, countries), (Author, authors), (Book, books), (Tag, tags)):
            connection.execute(sa.insert(model), rows)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in Base.metadata.sorted_tables:
            word = "ANALYZE TABLE" if engine.dialect.name in ("mysql", "mariadb") else "ANALYZE"
            connection.exec_driver_sql(f"{word} {table.name}").close()
    learn_collations(engine, Country, Author, Book, Tag)


def recalled(session: orm.Session, form: Form) -> Any:
    """Return the books that recall() finds for a form."""
    return recall(session, Book, asked(form.text, VALUES, "b"), order=form.order, limit=form.limit)


def executed(engine: sa.Engine, execute: Callable[[orm.Session], Any]) -> tuple[str, Any, list[int]]:
    """Return the statement that the driver receives, its parameters, and the keys of the books that it finds."""
    seen: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        seen.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        with orm.Session(engine) as session:
            found = [each.id for each in execute(session)]
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    assert found, "the form finds rows"
    ((statement, parameters),) = seen
    return statement, parameters, found


def plan(engine: sa.Engine, form: Form, word: str = "EXPLAIN") -> tuple[str, list[dict[str, Any]]]:
    """Return the SELECT that recall() executes for a form, and what EXPLAIN says of it."""
    statement, parameters, _ = executed(engine, lambda session: recalled(session, form))
    word = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else word
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"{word} {statement}", parameters).mappings().all()
    return statement, [dict(row) for row in rows]


def faults(database: str, form: Form, rows: list[dict[str, Any]]) -> list[str]:
    """The lines of a plan that read a whole large table; where the first rows are asked for, those that sort all."""
    scan, sort = _FAULTS[database]
    lines = [" ".join(f"{key}={value}" for key, value in row.items()) for row in rows]
    if database == "postgresql":  # each node with its conditions, which follow it
        lines = "\n".join(lines).split("->")
    return [each for each in lines if re.search(scan if form.limit is None else sort, each)]


_LARGE = "(plan_book|plan_tag|plan_author)"
_FAULTS = {
    "sqlite": (f"SCAN {_LARGE}", "USE TEMP B-TREE FOR ORDER BY"),
    "postgresql": (
        f"Seq Scan on {_LARGE}|Index.* on {_LARGE}(?s:(?!.*(Index|Recheck) Cond))",
        "(?<!Incremental )Sort  ",
    ),
    "mariadb": (f"table={_LARGE}.* type=(ALL|index) ", "filesort"),
}
