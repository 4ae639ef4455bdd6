"""examples/library.py: one query filters a cache, a database and drafts, behind kirsch_web; Alembic migrates."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from conftest import DATABASES, Servers
from kirsch_query import where

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        patch.setenv("LIBRARY_DATABASE", "sqlite://")
        import library  # type: ignore[import-not-found, unused-ignore]

        yield library
        del sys.modules["library"]


@pytest.fixture(scope="module", params=DATABASES)
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('library')}/library.db"
    found = servers.url(request.param)
    if found is None:
        pytest.skip(f"NOT TESTED on {request.param}: {servers.missing[request.param]}")
    return found


@pytest.fixture
def client(library: Any, url: str) -> Iterator[Any]:
    from kirsch_web.testing import Client

    library.migrate(url)
    engine = sa.create_engine(url)
    library.fill(engine)
    yield Client(library.web.App(library.Root(engine)))
    engine.dispose()
    library.migrate(url, "base")


def titles(reply: Any, name: str = "books") -> list[str]:
    assert reply.status == 200, reply.text
    return [each["title"] for each in reply.json()[name]]


def test_migrations_make_the_tables_of_the_models_and_take_them_back(library: Any, url: str) -> None:
    from alembic import command  # type: ignore[import-not-found, unused-ignore]

    library.migrate(url)
    command.check(library.migrations(url))  # raises where a table of the models is another one
    library.migrate(url, "base")
    engine = sa.create_engine(url)
    assert not {"author", "book", "loan"} & set(sa.inspect(engine).get_table_names())
    engine.dispose()


def test_a_migration_keeps_the_books_that_there_are(library: Any, url: str) -> None:
    library.migrate(url, "0001")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO author (id, name) VALUES (1, 'Anonymous')"))
        connection.execute(sa.text("INSERT INTO book (id, title, copies, author_id) VALUES (1, 'Beowulf', 1, 1)"))
    library.migrate(url)
    with orm.Session(engine) as session:
        undated = where(lambda b: b.year is None and b.author.name == "Anonymous")
        assert [each.title for each in session.scalars(undated.select(library.Book))] == ["Beowulf"]
    engine.dispose()
    library.migrate(url, "base")


def test_one_query_filters_a_cache_a_database_and_drafts(client: Any) -> None:
    search = {"prefix": "The", "before": 1970}
    assert titles(client.get("/books", query=search)) == ["The Left Hand of Darkness"]
    assert titles(client.get("/books/recent", query=search)) == ["The Left Hand of Darkness"]
    drafts = [
        {"title": "The Dispossessed", "author": "Le Guin", "copies": 3, "year": 1974},
        {"title": "The Lathe of Heaven", "author": "Le Guin", "copies": 1, "year": 1951},
        {"title": "The New", "author": "Nobody", "copies": 1, "year": None},
    ]
    preview = client.post("/books/preview", json=drafts, query=search)
    assert titles(preview, "drafts") == ["The Lathe of Heaven"]
    assert titles(preview, "page") == ["The Lathe of Heaven", "The Left Hand of Darkness"]
    assert titles(client.get("/books", query=search)) == ["The Left Hand of Darkness"], "a preview saves nothing"
    assert client.post("/books/add", json=drafts[1]).status == 201
    assert titles(client.get("/books", query=search)) == titles(preview, "page")
    assert sorted(titles(client.get("/books/recent", query=search))) == titles(preview, "page")


def test_letters_and_wildcards_are_what_the_reader_typed(client: Any) -> None:
    for prefix in ("the", "%", "_he", "The' OR 1=1 --", "Thé", "The "):
        found = ["The Left Hand of Darkness", "The Undated"] if prefix == "The " else []
        assert titles(client.get("/books", query={"prefix": prefix})) == found
        assert sorted(titles(client.get("/books/recent", query={"prefix": prefix}))) == found


def test_relations_joins_properties_and_counts(client: Any) -> None:
    assert titles(client.get("/books/here")) == ["Frankenstein", "The Left Hand of Darkness", "The Undated"]
    assert titles(client.get("/books/old")) == ["Frankenstein"]
    assert titles(client.get("/books/by/Le%20Guin")) == ["Tehanu", "The Left Hand of Darkness"]
    assert titles(client.get("/books/by/Guin")) == []
    assert titles(client.get("/loans/overdue"), "loans") == ["Tehanu"]
    page = client.get("/books", query={"limit": 1}).json()
    assert (len(page["books"]), page["all"]) == (1, 4)
    assert client.get("/books", query={"before": "x"}).status == 400
