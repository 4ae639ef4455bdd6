"""Measure queries on large tables beside SQL by hand: ``make bench-query-plans``.

Each form of ``tests/plans.py`` is executed as recall() executes it and as SQL that a programmer would write for it, on
SQLite, PostgreSQL and MariaDB, in turn. The table has the least times of an execution in milliseconds, ours / by hand,
and their ratio: on a busy machine, the least time is nearest to that of an idle one. SQL by hand is not exact where a
collation ignores case; it shows what an index makes possible. The tables have two tags for each book, and 2,000 authors
of 100 countries. The table is printed, and it takes the place of the one in ``docs/queries.md``.
"""

from __future__ import annotations

import contextlib
import inspect
import platform
import re
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import by_hand
import databases
import plans
from kirsch_query import where
from plans import Book, Form

BOOKS = {"sqlite": 60_000, "postgresql": 300_000, "mariadb": 60_000}
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}
USES = 15
PAGE = Path(__file__).parents[1] / "docs" / "queries.md"


def measured(connection: sa.Connection, statements: list[tuple[str, Any]]) -> list[float]:
    """Return the least time of each statement in milliseconds; they are executed in turn."""
    times: list[list[float]] = [[] for _ in statements]
    for _ in range(USES):
        for (statement, parameters), seconds in zip(statements, times, strict=True):
            start = time.perf_counter()
            connection.exec_driver_sql(statement, parameters).all()
            seconds.append(time.perf_counter() - start)
    return [min(each) * 1000 for each in times]


def lists(connection: sa.Connection) -> list[float]:
    """Return the time of a query with a list of 1 to 50 numbers, another length at each use: ours, by hand."""
    times: list[list[float]] = [[], []]
    ids: list[int] = []
    query = where(lambda b: b.id in ids)

    def select() -> Any:
        return sa.select(Book.__table__).where(Book.id.in_(ids))

    for at in range(300):
        ids = list(range(1, 2 + at % 50))
        for uses, make in zip(times, (lambda: query.select(Book.__table__), select), strict=True):
            start = time.perf_counter()
            connection.execute(make()).all()
            uses.append(time.perf_counter() - start)
    return [statistics.median(each) * 1000 for each in times]


def label(form: Form) -> str:
    """Return a form as the table names it."""
    if form.limit is None:
        return f"`{form.text}`"
    order = re.search(r"lambda b: (.*?)(?:, \w+=\w+)?\),?$", inspect.getsource(form.order).strip())
    assert order is not None
    return f"the first {form.limit} by `{order[1]}`"


def table() -> str:
    """Return the table."""
    found: dict[str, dict[str, str]] = {}
    versions = {}
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
                versions[name] = ".".join(map(str, connection.dialect.server_version_info or ()))
                for form, statement in zip(plans.FORMS, by_hand.statements(engine, plans.FORMS), strict=True):
                    cell = found.setdefault(label(form), {})
                    if form.whole.get(name) == plans.REFUSED:
                        cell[name] = "refused"
                        continue
                    ours = plans.executed(engine, partial(plans.recalled, form=form))
                    hand = plans.executed(engine, partial(orm.Session.scalars, statement=statement))
                    cell[name] = shown(*measured(connection, [ours[:2], hand[:2]]))
                found.setdefault("`b.id in ids`, another list of 1 to 50 at each use", {})[name] = shown(
                    *lists(connection)
                )
            engine.dispose()
    titles = (f"{NAMES[name]} {versions[name]}, {BOOKS[name]:,} books" for name in BOOKS)
    lines = [f"| CPython {platform.python_version()} | " + " | ".join(titles) + " |", "|-|" + "-|" * len(BOOKS)]
    lines += (f"| {form} | " + " | ".join(cells.values()) + " |" for form, cells in found.items())
    return "\n".join(lines)


def shown(ours: float, hand: float) -> str:
    """Return a cell of the table."""
    return f"{ours:.2f} / {hand:.2f} = {ours / hand:.1f}"


def main() -> None:
    """Print the table, and write it into the page."""
    made = table()
    print(made)
    begin, end = "<!-- made by bench/plans.py -->\n", "\n<!-- end -->"
    before, rest = PAGE.read_text().split(begin)
    _, after = rest.split(end, 1)
    PAGE.write_text(f"{before}{begin}\n{made}\n{end}{after}")


if __name__ == "__main__":
    main()
