"""Flask, CherryPy and Django in one process, each below a path of its own, whose links lead back to themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    import requests

    from running import Running, Serve

FLASK = """
from flask import Flask, redirect, url_for

app = Flask(__name__)


@app.get("/")
def index():
    return url_for("entry", number=7)


@app.get("/entries/<int:number>")
def entry(number):
    return f"entry {number}"


@app.get("/back")
def back():
    return redirect(url_for("index"))
"""

CHERRYPY = """
import cherrypy


class Root:
    @cherrypy.expose
    def index(self):
        return cherrypy.url("/shelf")

    @cherrypy.expose
    def shelf(self):
        return "a shelf"

    @cherrypy.expose
    def back(self):
        raise cherrypy.HTTPRedirect(cherrypy.url("/shelf"))


cherrypy.config.update({"environment": "embedded", "log.screen": False})
app = cherrypy.Application(Root(), "/store", {})
app.script_name = None  # it takes that of each request
"""

DJANGO = """
import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import path, reverse

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="a key for tests alone")
django.setup(set_prefix=False)

urlpatterns = [
    path("", lambda request: HttpResponse(reverse("book", args=[3])), name="index"),
    path("books/<int:number>/", lambda request, number: HttpResponse(f"book {number}"), name="book"),
    path("back/", lambda request: redirect("index")),
    path("absolute/", lambda request: HttpResponse(request.build_absolute_uri())),
]
app = WSGIHandler()
"""

SETTINGS = """
[[mount]]
path = "/blog"
app = "with_flask:app"

[[mount]]
path = "/store"
app = "with_cherrypy:app"

[[mount]]
path = "/library/old"
app = "with_django:app"

[[mount]]
host = "library.example.org"
app = "with_django:app"
"""


@pytest.fixture
def running(serve: Serve, tmp_path: Path) -> Running:
    for name, text in [
        ("with_flask.py", FLASK),
        ("with_cherrypy.py", CHERRYPY),
        ("with_django.py", DJANGO),
        ("kirsch.toml", SETTINGS),
    ]:
        (tmp_path / name).write_text(text, encoding="utf-8")
    return serve("with_flask:app", "--threads", "4", cwd=tmp_path)


def test_links_and_redirects_stay_below_the_mount(running: Running, browser: requests.Session) -> None:
    def get(path: str, host: str = "") -> str:
        response = browser.get(running.url + path, headers={"Host": host} if host else {}, timeout=10)
        assert response.status_code == 200, (path, response.text)
        return response.text

    for root, link, text in [
        ("/blog/", "/blog/entries/7", "entry 7"),
        ("/", "/entries/7", "entry 7"),  # the same application, as the one for all else
        ("/library/old/", "/library/old/books/3/", "book 3"),
    ]:
        assert get(root) == link
        assert get(link) == text
    assert get("/store/") == f"{running.url}/store/shelf"
    assert get("/store/shelf") == "a shelf"
    assert get("/library/old/absolute/") == f"{running.url}/library/old/absolute/"
    assert get("/", "library.example.org") == "/books/3/"
    for path, end in [
        ("/blog/back", "/blog/"),
        ("/store/back", "/store/shelf"),
        ("/library/old/back/", "/library/old/"),
    ]:
        response = browser.get(running.url + path, timeout=10)
        assert (response.status_code, response.url) == (200, running.url + end)


def test_what_a_mount_does_not_know_is_its_own_not_found(running: Running, browser: requests.Session) -> None:
    for path, sign in [("/blog/x", "requested URL"), ("/store/x", "CherryPy"), ("/library/old/x", "Not Found")]:
        response = browser.get(running.url + path, timeout=10)
        assert response.status_code == 404
        assert sign in response.text
