"""Measure kirsch-query beside other libraries that query a database: ``make bench-query``.

One process asks one SQLite table in memory the same question through each library: the books below a price whose title
starts with some text. The price is another one at each use, so that no library can give a result that it kept. All is
done in this process, so that its processor time is measured: waiting for other programs does not count. Rounds of all
libraries take turns, and the least time of a round counts. Only the ratios between rows of one table should be compared
with those of another machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query import Where, cache, recall, where

# A round is short, so that it fits into what the scheduler gives a process at once, however busy the machine is.
ROUNDS, USES = 400, 5
TITLES = ["The first", "The second", *(f"Volume {number}" for number in range(98))]
PRICES = (3, 4)
PREFIX = "The"

Use = Callable[[int], Any]


class Base(orm.DeclarativeBase):
    pass


class Book(Base):
    __tablename__ = "book"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(sa.String(50))
    price: orm.Mapped[int | None] = orm.mapped_column()


BOOK = Base.metadata.tables["book"]


def sqlalchemy() -> tuple[dict[str, Use], dict[str, Use]]:
    """The uses through SQLAlchemy, with kirsch-query and without it: those that give rows, and those for objects."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    Base.metadata.create_all(engine)
    connection = engine.connect()
    connection.execute(BOOK.insert(), [{"title": title, "price": at % 50} for at, title in enumerate(TITLES)])
    connection.commit()
    driver = connection.connection.driver_connection
    session = orm.Session(engine)
    limit, prefix = 0, PREFIX
    query = where(lambda b: b.price < limit and b.title.startswith(prefix))
    condition = sa.and_(
        BOOK.c.price < sa.bindparam("limit"), BOOK.c.title >= sa.bindparam("low"), BOOK.c.title < sa.bindparam("high")
    )
    built = sa.select(BOOK).where(condition)

    def raw(value: int) -> Any:
        sql = "SELECT id, title, price FROM book WHERE price < ? AND title >= ? AND title < ?"
        return driver.execute(sql, (value, "The", "Thf")).fetchall()  # type: ignore[union-attr]

    def kept(value: int) -> Any:
        nonlocal limit
        limit = value
        return connection.execute(query.select(BOOK)).all()

    def clause(value: int) -> Any:
        nonlocal limit
        limit = value
        return connection.execute(sa.select(BOOK).where(query.clause(BOOK))).all()

    def core(value: int) -> Any:
        statement = sa.select(BOOK).where(BOOK.c.price < value, BOOK.c.title.startswith(PREFIX, autoescape=True))
        return connection.execute(statement).all()

    def prepared(value: int) -> Any:
        return connection.execute(built, {"limit": value, "low": "The", "high": "Thf"}).all()

    def objects(value: int) -> Any:
        nonlocal limit
        limit = value
        return session.scalars(query.select(Book)).all()

    def merged(value: int) -> Any:
        nonlocal limit
        limit = value
        return recall(session, Book, query)

    def mapped(value: int) -> Any:
        statement = sa.select(Book).where(Book.price < value, Book.title.startswith(PREFIX, autoescape=True))
        return session.scalars(statement).all()

    return (
        {
            "sqlite3, SQL as text": raw,
            "kirsch-query, Core: connection.execute(cheap.select(book))": kept,
            "kirsch-query, Core: select(book).where(cheap.clause(book))": clause,
            "SQLAlchemy Core, one statement built beforehand": prepared,
            "SQLAlchemy Core, built and executed by hand": core,
        },
        {
            "kirsch-query, ORM: session.scalars(cheap.select(Book))": objects,
            "kirsch-query, ORM: recall(session, Book, cheap)": merged,
            "SQLAlchemy ORM, built and executed by hand": mapped,
        },
    )


def pony() -> Use:
    from pony import orm as pony_orm

    database = pony_orm.Database()

    class PonyBook(database.Entity):  # type: ignore[misc, name-defined]
        title = pony_orm.Required(str)
        price = pony_orm.Optional(int)

    database.bind(provider="sqlite", filename=":memory:")
    database.generate_mapping(create_tables=True)
    session = pony_orm.db_session()
    session.__enter__()
    for at, title in enumerate(TITLES):
        PonyBook(title=title, price=at % 50)
    pony_orm.commit()
    number = 0

    def use(value: int) -> Any:
        # Pony keeps the result of a query for a session; rollback() begins another one, as a request does.
        nonlocal number
        number += 1
        if number % 2:
            pony_orm.rollback()
        return list(PonyBook.select(lambda b: b.price < value and b.title.startswith(PREFIX)))

    return use


def peewee() -> Use:
    import peewee as library

    database = library.SqliteDatabase(":memory:")

    class PeeweeBook(library.Model):  # type: ignore[misc]
        title = library.CharField()
        price = library.IntegerField(null=True)

        class Meta:
            pass

    PeeweeBook.bind(database)
    database.create_tables([PeeweeBook])
    PeeweeBook.insert_many([{"title": title, "price": at % 50} for at, title in enumerate(TITLES)]).execute()
    return lambda value: list(
        PeeweeBook.select().where((PeeweeBook.price < value) & PeeweeBook.title.startswith(PREFIX))
    )


def django() -> Use:
    import django as library
    from django.conf import settings

    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    library.setup()
    from django.db import connection, models

    class DjangoBook(models.Model):
        title = models.CharField(max_length=50)
        price = models.IntegerField(null=True)

        class Meta:
            app_label = "bench"

    with connection.schema_editor() as editor:
        editor.create_model(DjangoBook)
    objects = DjangoBook._default_manager
    objects.bulk_create([DjangoBook(title=title, price=at % 50) for at, title in enumerate(TITLES)])
    return lambda value: list(objects.filter(price__lt=value, title__startswith=PREFIX))


def measure(uses: dict[str, Use]) -> dict[str, float]:
    """Microseconds of one use of each."""
    least: dict[str, float] = dict.fromkeys(uses, float("inf"))
    for use in uses.values():
        found = {value: len(use(value)) for value in PRICES}
        assert set(found.values()) == {2}, found
    for _ in range(ROUNDS):
        for name, use in uses.items():
            use(PRICES[1])  # what ran before it has filled the processor's caches
            start = time.process_time()
            for number in range(USES):
                use(PRICES[number % 2])
            least[name] = min(least[name], (time.process_time() - start) / USES * 1e6)
    return least


def print_table(title: str, found: dict[str, float], base: str) -> None:
    print(f"\n| {title} | µs | ratio |\n|-|-|-|")
    for name, each in found.items():
        print(f"| {name} | {each:.1f} | {each / found[base]:.2f} |")


def memory() -> dict[str, float]:
    """Microseconds for each of a thousand objects, by the function and by the query of it."""
    limit, prefix = 500, "The"

    def function(b: Any) -> bool:
        return b.price < limit and b.title.startswith(prefix)

    query: Where[Any] = where(function)
    books = [Book(title=TITLES[number % 3], price=number) for number in range(1000)]
    gaps = [Book(title=TITLES[number % 3], price=None if number % 10 == 0 else number) for number in range(1000)]
    assert [*query.filter(books)] == [*filter(function, books)]

    def guarded(b: Any) -> bool:
        return b.price is not None and function(b)

    uses: dict[str, Use] = {
        "filter(function, books)": lambda _: [*filter(function, books)],
        "[b for b in books if function(b)]": lambda _: [b for b in books if function(b)],
        "cheap.filter(books)": lambda _: [*query.filter(books)],
        "with None in every tenth: filter(a function that guards against it, books)": lambda _: [
            *filter(guarded, gaps)
        ],
        "with None in every tenth: cheap.filter(books)": lambda _: [*query.filter(gaps)],
    }
    least = dict.fromkeys(uses, float("inf"))
    for _ in range(ROUNDS):
        for name, use in uses.items():
            start = time.process_time()
            use(0)
            least[name] = min(least[name], (time.process_time() - start) / len(books) * 1e6)
    return least


def once() -> dict[str, float]:
    """Microseconds of what is done once."""
    limit, prefix = 3, PREFIX
    query = where(lambda b: b.price < limit and b.title.startswith(prefix))
    query.clause(BOOK)
    translation = "first translation of a query whose file was parsed"
    least = {translation: float("inf")}
    for _ in range(ROUNDS):
        cache._kept.clear()
        start = time.process_time()
        query.clause(BOOK)
        least[translation] = min(least[translation], (time.process_time() - start) * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        # Bytecode is there from the second run on, as it is of an installed package.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for module in ("kirsch_query", "ast, functools, typing", "sqlalchemy"):
            program = f"import time; s = time.process_time(); import {module}; print((time.process_time() - s) * 1e6)"
            command = [sys.executable, "-c", program]
            runs = [
                subprocess.run(command, capture_output=True, text=True, check=True, env=environment) for _ in range(15)
            ]
            least[f"import {module}"] = min(float(run.stdout) for run in runs)
    return least


def main() -> None:
    rows, objects = sqlalchemy()
    for name, make in {"Pony": pony, "Peewee": peewee, "Django's ORM": django}.items():
        try:
            objects[name] = make()
        except ImportError as why:
            print(f"Not measured: {name} ({why})", file=sys.stderr)
    found = measure({**rows, **objects})
    print(f"CPython {sys.version.split()[0]}, SQLAlchemy {sa.__version__}")
    first, second = list(rows), list(objects)
    print_table("rows", {name: found[name] for name in first}, first[-1])
    print_table("objects", {name: found[name] for name in second}, second[2])
    print_table("one object in memory", memory(), "filter(function, books)")
    print("\n| once | µs |\n|-|-|")
    for name, each in once().items():
        print(f"| {name} | {each:.0f} |")


if __name__ == "__main__":
    main()
