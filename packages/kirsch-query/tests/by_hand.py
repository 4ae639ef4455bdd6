"""SQL that a programmer would write for each form of :mod:`plans`, and the work of a database for a statement.

It is not exact where a collation ignores case or NULL differs from None; it shows what the indexes make possible. For
the rows of :mod:`plans` it selects the same as kirsch-query.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import orm

from kirsch_query.emit import dialect_name
from plans import DAY, NOON, VALUES, Author, Book, Country, State, Tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plans import Form

V = VALUES
_editor, _other = orm.aliased(Author), orm.aliased(Book)
_book = sa.select(Book)


def _day(days: int) -> datetime.date:
    return DAY + datetime.timedelta(days)


def _hours(hours: int) -> datetime.datetime:
    return NOON + datetime.timedelta(hours=hours)


def _author(*conditions: Any) -> Any:
    return _book.join(Author, Author.id == Book.author_id).where(*conditions)


def _country(condition: Any) -> Any:
    return _author(condition).join(Country, Country.id == Author.country_id)


def _edited(condition: Any) -> Any:
    return _book.join(_editor, _editor.id == Book.editor_id).where(condition)


def _tagged(*conditions: Any) -> Any:
    return sa.exists().where(Tag.book_id == Book.id, *conditions).correlate(Book)


_BY_HAND: dict[str, Any] = {
    "b.id == 77": Book.id == 77,
    "b.title == title": Book.title == V["title"],
    "b.note == 'note 75'": Book.note == "note 75",
    "b.price == price": Book.price == V["price"],
    "b.stock == 75": Book.stock == 75,
    "b.big == 2**33": Book.big == 2**33,
    "b.rating == 9.5": Book.rating == 9.5,
    "b.cost == Decimal('9.50')": Book.cost == decimal.Decimal("9.50"),
    "b.day == day": Book.day == _day(3000),
    "b.at == at": Book.at == _hours(76),
    "b.uid == uid": Book.uid == uuid.UUID(int=77),
    "b.state == State.LOST": Book.state == State.LOST,
    "b.rare": Book.rare == sa.true(),
    "b.rare == True": Book.rare == sa.true(),
    "b.rare is True": Book.rare == sa.true(),
    "title == b.title": Book.title == V["title"],
    "b.price == 539.0": Book.price == 539,
    "b.price == price and b.title == title": sa.and_(Book.price == V["price"], Book.title == V["title"]),
    "b.title == title or b.price == price": sa.or_(Book.title == V["title"], Book.price == V["price"]),
    "b.title == title or b.id == 5": sa.or_(Book.title == V["title"], Book.id == 5),
    "b.id in ids": Book.id.in_(V["ids"]),
    "b.title in titles": Book.title.in_(V["titles"]),
    "b.title in one": Book.title.in_(V["one"]),
    "b.note in ('note 75', 'note 80')": Book.note.in_(["note 75", "note 80"]),
    "b.price in many": Book.price.in_(V["many"]),
    "b.rating in (9.5, 10.0)": Book.rating.in_([9.5, 10.0]),
    "b.day in (day, DAY)": Book.day.in_([_day(3000), DAY]),
    "b.uid in uids": Book.uid.in_(sorted(V["uids"])),
    "b.title in titles or b.id == 3": sa.or_(Book.title.in_(V["titles"]), Book.id == 3),
    "b.title == title or b.title == 'title 78'": sa.or_(Book.title == V["title"], Book.title == "title 78"),
    "b.price in range(100, 110)": Book.price.in_(range(100, 110)),
    "b.stock in (75, 78)": Book.stock.in_([75, 78]),
    "b.price < 7": Book.price < 7,
    "b.price >= 6000": Book.price >= 6000,
    "10 <= b.price < 20": sa.and_(Book.price >= 10, Book.price < 20),
    "b.stock > 11990": Book.stock > 11990,
    "b.big < 2**34 + 1": Book.big < 2**34 + 1,
    "b.rating > 1499.0": Book.rating > 1499.0,
    "b.rating < 1.0": Book.rating < 1.0,
    "b.cost < Decimal('2.00')": Book.cost < decimal.Decimal("2.00"),
    "b.day < DAY_5": Book.day < _day(5),
    "b.at < AT_5": Book.at < _hours(9),
    "b.title < 'title 1001'": Book.title < "title 1001",
    "'title 555' <= b.title < 'title 556'": sa.and_(Book.title >= "title 555", Book.title < "title 556"),
    "b.title.startswith('title 777')": Book.title.like("title 777%"),
    "b.note.startswith('note 777')": Book.note.like("note 777%"),
    "b.title.startswith(('title 777', 'title 888'))": sa.or_(
        Book.title.like("title 777%"), Book.title.like("title 888%")
    ),
    "b.title[:9] == 'title 777'": sa.func.substr(Book.title, 1, 9) == "title 777",
    "b.author.name == name": _author(Author.name == V["name"]),
    "b.author.name in names": _author(Author.name.in_(V["names"])),
    "b.author.name.startswith('author 77')": _author(Author.name.like("author 77%")),
    "b.author.born == 77": _author(Author.born == 77),
    "b.author.born < 5": _author(Author.born < 5),
    "b.author.id == 77": _author(Author.id == 77),
    "b.author.country.name == country": _country(Country.name == V["country"]),
    "b.editor.name == name": _edited(_editor.name == V["name"]),
    "b.editor.born > 1995": _edited(_editor.born > 1995),
    "b.author.name == name and b.price > 5": _author(Author.name == V["name"], Book.price > 5),
    "b.author.name == name or b.price == price": _author(sa.or_(Author.name == V["name"], Book.price == V["price"])),
    "b.author.country.name == country or b.price == price": _country(
        sa.or_(Country.name == V["country"], Book.price == V["price"])
    ),
    "any(t.word == word for t in b.tags)": _tagged(Tag.word == V["word"]),
    "any(t.word in (word, 'word 78') for t in b.tags)": _tagged(Tag.word.in_([V["word"], "word 78"])),
    "any(t.weight < 5 and t.word != word for t in b.tags)": _tagged(Tag.weight < 5, Tag.word != V["word"]),
    "any(o.title == title for o in b.author.books)": _author(
        sa.exists().where(_other.author_id == Author.id, _other.title == V["title"]).correlate(Author)
    ),
    "b.title in titles and not any(t.word == word for t in b.tags)": sa.and_(
        Book.title.in_(V["titles"]), ~_tagged(Tag.word == V["word"])
    ),
    "b.price == price and all(t.weight > 3 for t in b.tags)": sa.and_(
        Book.price == V["price"], ~_tagged(Tag.weight <= 3)
    ),
    "b.price == price and b.author is not None": _author(Book.price == V["price"]),
    "b.price == price and b.editor is None": sa.and_(Book.price == V["price"], Book.editor_id.is_(None)),
    "b.price == price and len(b.tags) == 2": sa.and_(
        Book.price == V["price"],
        sa.select(sa.func.count()).where(Tag.book_id == Book.id).correlate(Book).scalar_subquery() == 2,
    ),
}
_ORDERS: list[list[Any]] = [
    [Book.id],
    [Book.price, Book.id],
    [Book.id.desc()],
    [Book.day, Book.id],
    [Book.title, Book.id],
    [Book.stock, Book.id],
    [Book.price.desc(), Book.id],
]


def statements(engine: sa.Engine, forms: list[Form]) -> list[Any]:
    """Return the statement by hand for each of the forms, which are those of :mod:`plans` in their order."""
    orders = iter(_ORDERS)
    found = []
    for form in forms:
        if form.limit is None:
            by_hand = _BY_HAND[form.text]
            found.append(by_hand if isinstance(by_hand, sa.Select) else _book.where(by_hand))
            continue
        keys = next(orders)
        if dialect_name(engine) == "postgresql" and keys[0] is Book.stock:
            keys = [keys[0].nulls_first(), *keys[1:]]
        found.append(_book.where(Book.price >= 0).order_by(*keys).limit(form.limit))
    return found


def work(connection: sa.Connection, statement: str, parameters: Any) -> dict[str, int]:
    """Execute a statement, and return the work that the database did, as it counts by itself."""
    found: dict[str, int] = _WORK[dialect_name(connection)](connection, statement, parameters)
    return found


def _work_sqlite(connection: sa.Connection, statement: str, parameters: Any) -> dict[str, int]:
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    driver: Any = connection.connection.dbapi_connection
    driver.set_progress_handler(step, 1)
    try:
        connection.exec_driver_sql(statement, parameters).all()
    finally:
        driver.set_progress_handler(None, 0)
    return {"steps": steps}


def _work_postgresql(connection: sa.Connection, statement: str, parameters: Any) -> dict[str, int]:
    word = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)"
    plan = connection.exec_driver_sql(f"{word} {statement}", parameters).scalar_one()[0]["Plan"]
    rows = sum(
        each["Actual Loops"] * sum(each[key] for key in each if key.startswith(("Actual Rows", "Rows Removed by")))
        for each in _nodes(plan)
    )
    return {"pages": plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], "rows": int(rows)}


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)


def _work_mariadb(connection: sa.Connection, statement: str, parameters: Any) -> dict[str, int]:
    def counted() -> int:
        rows = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler%%'").all()
        return sum(
            int(number)
            for name, number in rows
            if name.startswith(("Handler_read", "Handler_icp_attempts", "Handler_tmp_write"))
        )

    first, second = counted(), counted()
    connection.exec_driver_sql(statement, parameters).all()
    return {"rows": counted() - second - (second - first)}


_WORK: dict[str, Any] = {"sqlite": _work_sqlite, "postgresql": _work_postgresql, "mariadb": _work_mariadb}
