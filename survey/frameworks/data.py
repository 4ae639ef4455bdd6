"""What the pages of the framework survey read and write: the same for each framework, by plain SQL.

``SURVEY_SQLITE`` names the file and ``SURVEY_POSTGRESQL`` the connection string, both made by ``run.py``. Each thread
keeps one connection to each database. The pages are those of the TechEmpower benchmarks: one row, 20 rows, fortunes
(sorted and escaped) and 20 updates.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any

from jinja2 import DictLoader, Environment

ROWS = 10_000
COUNT = 20
HELLO = "Hello, world!"

FORTUNES = [
    "A bad random number generator: 1, 1, 1, 1, 1, 4.33e+67, 1, 1, 1",
    "A computer program does what you tell it to do, not what you want it to do.",
    "A list is only as strong as its weakest link.",
    "Any program that runs right is obsolete.",
    "Computers make very fast, very accurate mistakes.",
    "Emacs is a nice operating system, but I prefer UNIX.",
    "Feature: a bug with seniority.",
    "<script>alert('This should not be displayed in a browser alert box.');</script>",
    "フレームワークのベンチマーク",
    "If the code and the comments disagree, then both are probably wrong.",
    "Most people find the concept of programming obvious, but the doing impossible.",
    "You think you know when you learn, are more sure when you can write.",
]

_PAGE = """<!DOCTYPE html>
<html><head><title>Fortunes</title></head><body><table><tr><th>id</th><th>message</th></tr>
{% for id, message in fortunes %}<tr><td>{{ id }}</td><td>{{ message }}</td></tr>
{% endfor %}</table></body></html>
"""

_template = Environment(autoescape=True, loader=DictLoader({"fortunes.html": _PAGE})).get_template("fortunes.html")
_local = threading.local()
_random = random.Random()


def _sqlite() -> Any:
    import sqlite3

    connection = sqlite3.connect(os.environ["SURVEY_SQLITE"], timeout=30, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _postgresql() -> Any:
    import psycopg

    return psycopg.connect(os.environ["SURVEY_POSTGRESQL"], autocommit=True)


_CONNECT = {"sqlite": (_sqlite, "?"), "postgresql": (_postgresql, "%s")}


def connection(database: str) -> tuple[Any, str]:
    """This thread's connection, and how its statements write a parameter."""
    connect, mark = _CONNECT[database]
    found = getattr(_local, database, None)
    if found is None:
        found = connect()
        setattr(_local, database, found)
    return found, mark


def row(database: str) -> dict[str, int]:
    """One row, chosen at random."""
    db, mark = connection(database)
    id, number = db.execute(
        f"SELECT id, randomNumber FROM world WHERE id = {mark}", (_random.randint(1, ROWS),)
    ).fetchone()
    return {"id": id, "randomNumber": number}


def rows(database: str) -> list[dict[str, int]]:
    """``COUNT`` rows, by a statement each."""
    return [row(database) for _ in range(COUNT)]


def updates(database: str) -> list[dict[str, int]]:
    """``COUNT`` rows, each read and written anew, in the order of their ids, so that no two requests wait in a ring."""
    db, mark = connection(database)
    found = sorted(rows(database), key=lambda each: each["id"])
    db.execute("BEGIN IMMEDIATE" if database == "sqlite" else "BEGIN")
    try:
        for each in found:
            each["randomNumber"] = _random.randint(1, ROWS)
            db.execute(f"UPDATE world SET randomNumber = {mark} WHERE id = {mark}", (each["randomNumber"], each["id"]))
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
    return found


def fortunes(database: str) -> str:
    """The fortunes and one more, sorted by text, as a page."""
    db, _ = connection(database)
    found = [(id, message) for id, message in db.execute("SELECT id, message FROM fortune").fetchall()]
    found.append((0, "Additional fortune added at request time."))
    found.sort(key=lambda each: each[1])
    return _template.render(fortunes=found)


def create(database: str) -> None:
    """Make the tables anew."""
    db, mark = connection(database)
    for statement in (
        "DROP TABLE IF EXISTS world",
        "DROP TABLE IF EXISTS fortune",
        "CREATE TABLE world (id INTEGER PRIMARY KEY, randomNumber INTEGER NOT NULL)",
        "CREATE TABLE fortune (id INTEGER PRIMARY KEY, message TEXT NOT NULL)",
    ):
        db.execute(statement)
    numbers = random.Random(1)
    db.execute("BEGIN")
    cursor = db.cursor()
    cursor.executemany(
        f"INSERT INTO world VALUES ({mark}, {mark})", [(id, numbers.randint(1, ROWS)) for id in range(1, ROWS + 1)]
    )
    cursor.executemany(f"INSERT INTO fortune VALUES ({mark}, {mark})", list(enumerate(FORTUNES, 1)))
    db.execute("COMMIT")


PAGES = {"row": row, "rows": rows, "updates": updates}
"""Pages whose result is JSON, by the first part of the path; the second is the database."""
