"""A library: its catalogue, its loans, and the form in which a librarian prepares new books.

    pip install ./packages/kirsch-query[sql] ./packages/kirsch-web alembic
    cd examples
    python library.py                      # creates library.db, or brings it up to date, and adds some books
    kirsch library:app                     # or another WSGI server; then open /books?prefix=The

``LIBRARY_DATABASE`` names another database, such as ``postgresql+psycopg://user@/library``.

Each query is written once, as a Python function. The same ``where`` filters the recent arrivals, which the application
keeps in memory, the books in the database, and the drafts that a librarian has typed and not saved.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

import kirsch_web as web
from kirsch_query import Where, count, desc, recall, where


class Base(orm.DeclarativeBase):
    metadata = sa.MetaData(
        naming_convention={"fk": "fk_%(table_name)s_%(column_0_name)s", "ix": "ix_%(column_0_label)s"}
    )


class Author(Base):
    __tablename__ = "author"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(100))
    books: orm.Mapped[list[Book]] = orm.relationship(back_populates="author")


class Book(Base):
    __tablename__ = "book"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(sa.String(200), index=True)
    year: orm.Mapped[int | None] = orm.mapped_column()
    copies: orm.Mapped[int] = orm.mapped_column()
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id"))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")
    loans: orm.Mapped[list[Loan]] = orm.relationship(back_populates="book")

    @property
    def is_old(self) -> bool:
        """A property of one expression is part of a query, in memory and in SQL."""
        return self.year is not None and self.year < 1900


class Loan(Base):
    __tablename__ = "loan"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    book_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("book.id"))
    reader: orm.Mapped[str] = orm.mapped_column(sa.String(100))
    due: orm.Mapped[datetime.date] = orm.mapped_column()
    returned: orm.Mapped[datetime.date | None] = orm.mapped_column()
    book: orm.Mapped[Book] = orm.relationship(back_populates="loans")


# The queries. They read the variables around them at each use.


def matching(prefix: str, before: int | None) -> Where[Any]:
    """The books that a reader looks for."""
    if before is None:
        return where(lambda b: b.title.startswith(prefix))
    return where(lambda b: b.title.startswith(prefix) and b.year < before)


def today() -> datetime.date:
    return datetime.date.today()


@where
def available(b: Book) -> bool:
    """No copy is with a reader."""
    return b.copies > 0 and not any(loan.returned is None for loan in b.loans)


@where
def overdue(loan: Loan) -> bool:
    """A copy should be back."""
    return loan.returned is None and loan.due < today()


written_by: Where[Any] = where(lambda b, a: b.author_id == a.id)


# The application.


@dataclass
class Draft:
    """What a librarian types for a new book."""

    title: str
    author: str
    copies: int
    year: int | None = None


def shown(book: Book | Draft) -> dict[str, Any]:
    return {"title": book.title, "year": book.year, "copies": book.copies}


def to_book(session: orm.Session, draft: Draft) -> Book:
    """A book that is not saved, by an author whom the library may know already."""
    authors = recall(session, Author, where(name=draft.author), limit=1)
    author = authors[0] if authors else Author(name=draft.author)
    return Book(title=draft.title, year=draft.year, copies=draft.copies, author=author)


class Arrivals:
    """The newest books, in memory: the page that most readers ask for needs no database."""

    def __init__(self, session: orm.Session, limit: int = 50) -> None:
        statement = sa.select(Book).order_by(Book.id.desc()).limit(limit)
        self.books = [Draft(each.title, "", each.copies, each.year) for each in session.scalars(statement)]


class Books:
    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.arrivals: Arrivals | None = None

    def index(self, prefix: str = "", before: int | None = None, limit: int = 20) -> dict[str, Any]:
        """GET /books?prefix=The&before=1970: a page of the catalogue."""
        query = matching(prefix, before)
        with orm.Session(self.engine) as session:
            found = recall(session, Book, query, order=lambda b: (b.title, desc(b.year)), limit=limit)
            return {"books": [shown(each) for each in found], "all": count(session, Book, query)}

    def recent(self, prefix: str = "", before: int | None = None) -> dict[str, Any]:
        """GET /books/recent: the same query over the arrivals in memory."""
        if self.arrivals is None:
            with orm.Session(self.engine) as session:
                self.arrivals = Arrivals(session)
        return {"books": [shown(each) for each in matching(prefix, before).filter(self.arrivals.books)]}

    def here(self) -> dict[str, Any]:
        """GET /books/here: what can be taken home now."""
        with orm.Session(self.engine) as session:
            return {"books": [shown(each) for each in recall(session, Book, available, order=lambda b: b.title)]}

    def old(self) -> dict[str, Any]:
        """GET /books/old: by a property of the model."""
        with orm.Session(self.engine) as session:
            return {"books": [shown(each) for each in recall(session, Book, where(lambda b: b.is_old))]}

    def by(self, name: str) -> dict[str, Any]:
        """GET /books/by/Le%20Guin: a join, by a query of two rows."""
        named = written_by & where(lambda b, a: a.name == name)
        with orm.Session(self.engine) as session:
            pairs = recall(session, (Book, Author), named, order=lambda b, a: b.title)
            return {"books": [{**shown(book), "author": author.name} for book, author in pairs]}

    @web.post
    def preview(self, drafts: list[Draft], prefix: str = "", before: int | None = None) -> dict[str, Any]:
        """POST /books/preview?prefix=The with a list of drafts: which of them a search finds, and the page with them.

        Saves nothing.
        """
        query = matching(prefix, before)
        with orm.Session(self.engine) as session:
            session.add_all(to_book(session, each) for each in drafts)
            page = recall(session, Book, query, order=lambda b: b.title, limit=20)
            return {"drafts": [shown(each) for each in query.filter(drafts)], "page": [shown(each) for each in page]}

    @web.post(status=201)
    def add(self, title: str, author: str, copies: int, year: int | None = None) -> dict[str, Any]:
        """POST /books/add: save a book."""
        with orm.Session(self.engine) as session:
            book = to_book(session, Draft(title, author, copies, year))
            session.add(book)
            session.commit()
            self.arrivals = None
            return shown(book)


class Loans:
    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    @web.get
    def overdue(self) -> dict[str, Any]:
        """GET /loans/overdue."""
        with orm.Session(self.engine) as session:
            late = recall(session, Loan, overdue, order=lambda loan: loan.due)
            return {"loans": [{"title": each.book.title, "reader": each.reader, "due": str(each.due)} for each in late]}


class Root:
    def __init__(self, engine: sa.Engine) -> None:
        self.books = Books(engine)
        self.loans = Loans(engine)

    def index(self) -> str:
        return "A library: /books, /books/recent, /books/here, /books/old, /books/by/NAME, /loans/overdue\n"


# The database.


def migrate(url: str, revision: str = "head") -> None:
    """Bring the tables to a revision of the folder library_migrations."""
    from alembic import command

    (command.downgrade if revision == "base" else command.upgrade)(migrations(url), revision)


def migrations(url: str) -> Any:
    """Alembic's configuration. ``alembic.ini`` would say the same."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("library_migrations")))
    config.attributes["url"] = url
    return config


def fill(engine: sa.Engine) -> None:
    """Some books and loans, in an empty library."""
    with orm.Session(engine) as session:
        if count(session, Author, where(lambda a: True)):
            return
        guin, shelley = Author(name="Le Guin"), Author(name="Shelley")
        left = Book(title="The Left Hand of Darkness", year=1969, copies=2, author=guin)
        tehanu = Book(title="Tehanu", year=1990, copies=1, author=guin)
        monster = Book(title="Frankenstein", year=1818, copies=1, author=shelley)
        undated = Book(title="The Undated", year=None, copies=1, author=shelley)
        yesterday = today() - datetime.timedelta(days=1)
        session.add_all([left, tehanu, monster, undated])
        session.add(Loan(book=tehanu, reader="Ann", due=yesterday, returned=None))
        session.add(Loan(book=monster, reader="Bob", due=yesterday, returned=yesterday))
        session.commit()


DATABASE = os.environ.get("LIBRARY_DATABASE", "sqlite:///library.db")
engine = sa.create_engine(DATABASE)
app = web.App(Root(engine))


if __name__ == "__main__":
    migrate(DATABASE)
    fill(engine)
