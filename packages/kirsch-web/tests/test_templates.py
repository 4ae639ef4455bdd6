"""web.Templates: escaping, names, changed files, mistakes."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

import jinja2
import pytest

import kirsch_web as web
from kirsch_web.testing import Client


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "base.html").write_text("<h1>{% block title %}{% endblock %}</h1>")
    (tmp_path / "book.html").write_text('{% extends "base.html" %}{% block title %}{{ title }}{% endblock %}')
    (tmp_path / "note.txt").write_text("{{ title }}")
    (tmp_path / "form.html").write_text(
        '<form action="{{ url(handler) }}">{{ csrf_token() }} {{ request.path }}</form>'
    )
    return tmp_path


@pytest.mark.parametrize("asgi", [False, True])
def test_page_is_html_and_its_values_are_escaped(folder: pathlib.Path, asgi: bool) -> None:
    pages = web.Templates(folder)

    class Root:
        def book(self, title: str) -> str:
            return pages("book.html", title=title)

        def note(self, title: str) -> str:
            return pages("note.txt", title=title)

    app: Any = web.App(Root())
    with Client(web.ASGI(app) if asgi else app) as client:
        reply = client.get("/book?title=<Emma>")
        assert (reply.text, reply.headers["Content-Type"]) == ("<h1>&lt;Emma&gt;</h1>", "text/html; charset=utf-8")
        assert client.get("/note?title='%26").text == "&#39;&amp;", "a file of any name is escaped"


def test_template_sees_the_request_urls_and_the_token_of_forms(folder: pathlib.Path) -> None:
    pages = web.Templates(folder)

    class Root:
        def page(self) -> str:
            return pages("form.html", handler=root.save)

        @web.post
        def save(self) -> str:
            return "saved"

    root = Root()
    client = Client(web.App(root, tools=[web.csrf()]), mount="/shop")
    text = client.get("/page").text
    assert text == f'<form action="/shop/save">{client.cookies["csrf"]} /page</form>'
    reply = client.post("/save", form={"csrf": client.cookies["csrf"]})
    assert (reply.status, reply.text) == (200, "saved")


def test_names_of_all_templates_and_of_one(folder: pathlib.Path) -> None:
    pages = web.Templates(folder, title="Shop")
    assert pages("note.txt") == "Shop", "without a request too"
    assert pages("note.txt", title="Emma") == "Emma"
    pages.environment.filters["loud"] = str.upper
    (folder / "loud.txt").write_text("{{ title | loud }}")
    assert pages("loud.txt") == "SHOP"
    (folder / "names.txt").write_text("{{ template }}")
    assert pages("names.txt", template="a value") == "a value"


@pytest.mark.parametrize("reload", [True, False])
def test_changed_file_is_read_again_if_asked(folder: pathlib.Path, reload: bool) -> None:
    pages = web.Templates(folder, reload=reload)
    assert pages("note.txt", title="a") == "a"
    (folder / "note.txt").write_text("new {{ title }}")
    os.utime(folder / "note.txt", (1, 1))
    assert pages("note.txt", title="a") == ("new a" if reload else "a")


def test_name_that_is_missing_is_an_error(folder: pathlib.Path) -> None:
    with pytest.raises(jinja2.UndefinedError, match="'title' is undefined"):
        web.Templates(folder)("note.txt")


@pytest.mark.parametrize("name", ["none.html", "../secret.html", "/etc/passwd"])
def test_template_that_the_folder_does_not_have_is_not_found(folder: pathlib.Path, name: str) -> None:
    (folder.parent / "secret.html").write_text("secret")
    with pytest.raises(jinja2.TemplateNotFound):
        web.Templates(folder)(name)


def test_folder_and_package_that_are_missing_are_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(web.ConfigError, match=r"no folder .*none"):
        web.Templates(tmp_path / "none")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(web.ConfigError, match=r"pip install 'kirsch-web\[templates\]'"):
        web.Templates(tmp_path)
