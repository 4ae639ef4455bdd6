"""Measure what a use of a query costs through SQLAlchemy Core on SQLite in memory: ``python tests/measure_clause.py``.

Prints the least time of seven rounds in microseconds, so that other programs on the machine matter little.
"""

from __future__ import annotations

import timeit
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kirsch_query import cache, where

if TYPE_CHECKING:
    from collections.abc import Callable

BOOK = sa.Table(
    "book",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("title", sa.String(50), nullable=False),
    sa.Column("price", sa.Integer),
)


def main() -> None:
    engine = sa.create_engine("sqlite://")
    BOOK.metadata.create_all(engine)
    limit, prefix = 10, "The"
    cheap = where(lambda b: b.price < limit and b.title.startswith(prefix))
    by_hand = sa.and_(
        BOOK.c.price < sa.bindparam("limit"),
        BOOK.c.title >= sa.bindparam("start"),
        BOOK.c.title < sa.bindparam("stop"),
    )
    built = sa.select(BOOK).where(by_hand)
    with engine.connect() as connection:
        connection.execute(BOOK.insert(), [{"title": "The first", "price": 1}, {"title": "The second", "price": 2}])

        def translated() -> Any:
            cache._kept.clear()
            return kept()

        def kept() -> Any:
            return connection.execute(sa.select(BOOK).where(cheap.clause(BOOK))).all()

        def hand() -> Any:
            condition = sa.and_(BOOK.c.price < limit, BOOK.c.title.startswith(prefix, autoescape=True))
            return connection.execute(sa.select(BOOK).where(condition)).all()

        def prepared() -> Any:
            return connection.execute(built, {"limit": limit, "start": "The", "stop": "Thf"}).all()

        uses: dict[str, Callable[[], Any]] = {
            "translated anew and executed": translated,
            "kept clause, executed": kept,
            "kept clause alone": lambda: cheap.clause(BOOK),
            "written by hand and executed": hand,
            "one statement built beforehand, executed": prepared,
        }
        for name, use in uses.items():
            use(), use()
            least = min(timeit.repeat(use, number=500, repeat=7)) / 500
            print(f"{name:45}{least * 1e6:8.0f} µs")


if __name__ == "__main__":
    main()
