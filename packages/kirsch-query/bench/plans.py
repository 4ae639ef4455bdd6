"""Measure queries on large tables beside SQL by hand: ``make bench-query-plans``.

Each form of query is executed through kirsch-query and as SQL that a programmer would write for it, on SQLite,
PostgreSQL and MariaDB, in turn. The table shows the median times of an execution in milliseconds, ours / by hand, and
their ratio. SQL by hand is not exact where a collation ignores case; it shows what an index makes possible. The tables,
which ``tests/plans.py`` makes, have two tags for each book and 2,000 authors of 100 countries.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import databases
import plans
from generate import asked
from kirsch_query import where
from plans import Author, Book, Country, Tag

BOOKS = {"sqlite": 60_000, "postgresql": 300_000, "mariadb": 60_000}
USES = 15
V = plans.VALUES
book: Any = Book.__table__


def _related(*conditions: Any) -> Any:
    return sa.select(book).join(Author, Author.id == Book.author_id).where(*conditions)


PAIRS: list[tuple[str, Any]] = [
    ("b.id == 77", book.c.id == 77),
    ("b.title == title", book.c.title == V["title"]),
    ("b.title in titles", book.c.title.in_(V["titles"])),
    ("b.price in many", book.c.price.in_(V["many"])),
    ("10 <= b.price < 20", sa.and_(book.c.price >= 10, book.c.price < 20)),
    ("'title 555' <= b.title < 'title 556'", sa.and_(book.c.title >= "title 555", book.c.title < "title 556")),
    ("b.title.startswith('title 777')", book.c.title.like("title 777%")),
    ("b.title == title or b.price == price", sa.or_(book.c.title == V["title"], book.c.price == V["price"])),
    ("b.author.name == name", _related(Author.name == V["name"])),
    ("b.author.name in names", _related(Author.name.in_(V["names"]))),
    (
        "b.author.country.name == country",
        _related(Country.name == V["country"]).join(Country, Country.id == Author.country_id),
    ),
    ("b.author.name == name or b.price == price", _related(sa.or_(Author.name == V["name"], Book.price == V["price"]))),
    (
        "b.author.country.name == country or b.price == price",
        _related(sa.or_(Country.name == V["country"], Book.price == V["price"])).join(
            Country, Country.id == Author.country_id
        ),
    ),
    (
        "any(t.word == word for t in b.tags)",
        sa.exists().where(Tag.book_id == Book.id, Tag.word == V["word"]).correlate(book),
    ),
    (
        "b.title in titles and not any(t.word == word for t in b.tags)",
        sa.and_(
            book.c.title.in_(V["titles"]),
            ~sa.exists().where(Tag.book_id == Book.id, Tag.word == V["word"]).correlate(book),
        ),
    ),
]


def measured(connection: sa.Connection, statements: list[Any]) -> list[float]:
    """The median time of each statement in milliseconds; they are executed in turn."""
    times: list[list[float]] = [[] for _ in statements]
    for _ in range(USES):
        for statement, seconds in zip(statements, times, strict=True):
            start = time.perf_counter()
            connection.execute(statement).all()
            seconds.append(time.perf_counter() - start)
    return [statistics.median(each) * 1000 for each in times]


def lists(connection: sa.Connection) -> list[float]:
    """The time of a query with a list of 1 to 50 numbers, another length at each use: ours, by hand."""
    times: list[list[float]] = [[], []]
    ids: list[int] = []
    query = where(lambda b: b.id in ids)

    def by_hand() -> Any:
        return sa.select(book).where(book.c.id.in_(ids))

    for at in range(300):
        ids = list(range(1, 2 + at % 50))
        for uses, make in zip(times, (lambda: query.select(book), by_hand), strict=True):
            start = time.perf_counter()
            connection.execute(make()).all()
            uses.append(time.perf_counter() - start)
    return [statistics.median(each) * 1000 for each in times]


def main() -> None:
    found: dict[str, dict[str, tuple[float, float]]] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = {
            "sqlite": f"sqlite:///{folder}/books",
            "postgresql": stack.enter_context(databases.postgresql()),
            "mariadb": stack.enter_context(databases.mariadb()),
        }
        for name, url in urls.items():
            engine = sa.create_engine(url)
            plans.create(engine, BOOKS[name])
            with engine.connect() as connection:
                for text, by_hand in PAIRS:
                    ours = asked(text, V, "b").select(Book)
                    hand = by_hand if isinstance(by_hand, sa.Select) else sa.select(book).where(by_hand)
                    found.setdefault(text, {})[name] = tuple(measured(connection, [ours, hand]))  # type: ignore[assignment]
                found.setdefault("b.id in ids, 1 to 50", {})[name] = tuple(lists(connection))  # type: ignore[assignment]
            engine.dispose()
    print("| form | " + " | ".join(f"{name}, {BOOKS[name]:,} books" for name in BOOKS) + " |")
    print("|-|" + "-|" * len(BOOKS))
    for text, times in found.items():
        cells = (f" {ours:.2f} / {hand:.2f} = {ours / hand:.2g} |" for ours, hand in times.values())
        print(f"| `{text}` |" + "".join(cells))


if __name__ == "__main__":
    main()
