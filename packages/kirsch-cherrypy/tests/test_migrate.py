"""``kirsch migrate cherrypy``: which handlers become typed, which stay and why, and what serves both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kirsch_cherrypy.migrate import command, recorded
from kirsch_cherrypy.migrate.rewrite import Source
from kirsch_web.testing import Client

PROGRAM = '''\
"""A shop."""
import random

import cherrypy


def check(password=None):
    if cherrypy.request.headers.get("X-Password") != "right":
        raise cherrypy.HTTPError(401)


cherrypy.tools.guard = cherrypy.Tool("before_handler", check)


class Books:
    def __init__(self):
        self.titles = {7: "Emma"}

    @cherrypy.expose
    def show(self, id, lang="en"):
        """Show one."""
        id = int(id)
        if id not in self.titles:
            raise cherrypy.HTTPError(404, "no such book")
        return f"{self.titles[id]} ({lang})"

    @cherrypy.expose
    @cherrypy.tools.json_out()
    def price(self, id, count="1"):
        id = int(id)
        count = float(count)
        return {"id": id, "price": 2.5 * count}

    @cherrypy.expose
    def add(self, id, title):
        id = int(id)
        self.titles[id] = title
        raise cherrypy.HTTPRedirect("/books/show/%d" % id)

    @cherrypy.expose
    def everything(self, **fields):
        return repr(sorted(fields))

    @cherrypy.expose
    def chance(self):
        return str(random.random())

    @cherrypy.expose
    def bad(self, id):
        id = int(id)
        return "ok"

    @cherrypy.expose
    def agent(self):
        return cherrypy.request.headers.get("Accept", "")

    @cherrypy.expose
    @cherrypy.config(**{"tools.guard.on": True})
    def secret(self):
        return "secret"

    @cherrypy.expose
    def unasked(self):
        return "?"

    def helper(self, id):
        return "not for visitors"


class Admin:
    @cherrypy.expose
    def page(self):
        return "admin"


class Root:
    books = Books()
    admin = Admin()

    @cherrypy.expose
    def index(self):
        return "Hällo"


cherrypy.tree.mount(Root(), "", {"/admin": {"tools.guard.on": True}})
application = cherrypy.tree
'''

RECORDING = """\
# The requests of some visitors.
GET /
GET /books/show/7
GET /books/show/7?lang=de
GET /books/show/8
GET /books/price/7
GET /books/price/7?count=3
POST /books/add?id=8&title=Persuasion
GET /books/show/8
GET /books/everything?a=1
GET /books/chance
GET /books/bad/7
GET /books/bad/seven
GET /books/agent
GET /books/secret
GET /admin/page
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(PROGRAM, "utf-8")
    (tmp_path / "recording").write_text(RECORDING, "utf-8")
    return tmp_path / "shop.py"


def test_handlers_become_typed_where_the_recording_proves_it_and_others_stay(shop: Path) -> None:
    text, typed, reasons = command.migrated(str(shop), str(shop.parent / "recording"))
    assert typed == ["Books.add", "Books.price", "Books.show", "Root.index"]
    assert "    @web.get\n    def show(self, id: int, lang: str = 'en'):" in text
    assert '        """Show one."""\n        if id not in' in text
    assert "def price(self, id: int, count: float = 1.0):" in text
    assert '@web.config({"tools.json_out.on": True})' in text
    assert "@web.publish(methods=['POST'])\n    def add(self, id: int, title: str):" in text
    assert 'raise web.HTTPError(404, "no such book")' in text
    assert "application = typed(cherrypy.tree)" in text
    assert text.count("@cherrypy.expose") == 7
    assert reasons["Books.everything"].startswith("it takes **fields")
    assert reasons["Books.chance"] == "GET /books/chance differs from run to run"
    assert reasons["Books.bad"] == "GET /books/bad/seven: status 500 becomes 404"
    assert reasons["Books.agent"] == "it uses cherrypy.request"
    assert reasons["Books.secret"].startswith("it is decorated with")
    assert reasons["Books.unasked"] == "no request of the recording reaches it"
    assert reasons["Admin.page"] == "guard is on for its path"


def test_the_written_module_serves_both_kinds_of_handlers(shop: Path) -> None:
    arguments = ["cherrypy", str(shop), "--recording", str(shop.parent / "recording")]
    shown = subprocess.run(
        [sys.executable, "-m", "kirsch_cherrypy.migrate", *arguments], capture_output=True, text=True, check=True
    )
    assert "-        id = int(id)" in shown.stdout
    assert shop.read_text("utf-8") == PROGRAM
    assert command.main([*arguments, "--write"]) == 0
    code = """
from kirsch_cherrypy import install_as_cherrypy
install_as_cherrypy()
import json, shop
from kirsch_web.testing import Client
client = Client(shop.application)
asked = [("GET", "/"), ("GET", "/books/show/7"), ("GET", "/books/show/x"), ("POST", "/books/show/7"),
         ("GET", "/books/everything?b=1"), ("GET", "/books/secret"), ("GET", "/admin/page"), ("GET", "/nothing"),
         ("POST", "/books/add?id=9&title=T"), ("GET", "/books/show/9"), ("GET", "/books/helper/1"),
         ("POST", "/books/helper/1"), ("PUT", "/books/add")]
print(json.dumps([[(reply := client.request(*each)).status, reply.text[:12]] for each in asked]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=shop.parent, capture_output=True, text=True, check=True)
    found: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    assert [status for status, _ in found] == [200, 200, 404, 405, 200, 401, 401, 404, 303, 200, 404, 404, 405]
    assert [found[0][1], found[1][1], found[4][1], found[9][1]] == ["Hällo", "Emma (en)", "['b']", "T (en)"]


def test_a_second_run_changes_nothing(shop: Path) -> None:
    arguments = ["cherrypy", str(shop), "--recording", str(shop.parent / "recording"), "--write"]
    assert command.main(arguments) == 0
    once = shop.read_text("utf-8")
    assert command.main(arguments) == 0
    assert shop.read_text("utf-8") == once


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("async def page(self): pass", "coroutine"),
        ("def page(self, a=3): pass", "a default is 3"),
        ("def page(self, *, a): pass", "positional or keyword only"),
        ("def page(self): cherrypy.session['a'] = 1", "it uses cherrypy.session"),
        ("def page(self, a: str): pass", "annotated already"),
    ],
)
def test_what_a_handler_does_can_keep_it_as_it_is(handler: str, reason: str) -> None:
    source = Source(f"import cherrypy\nclass Root:\n    @cherrypy.expose\n    {handler}\n")
    assert reason in source.handlers[0].reason


def test_a_default_of_none_keeps_its_conversion() -> None:
    text = "import cherrypy\nclass R:\n    @cherrypy.expose\n    def p(self, a=None):\n        a = int(a)\n"
    rewritten = Source(text).rewritten({"R.p": ["GET"]})
    assert "def p(self, a: str | None = None):\n        a = int(a)" in rewritten


def test_a_module_that_fails_is_told_with_its_error(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text("import nowhere_at_all\n")
    assert command.main(["cherrypy", str(shop), "--recording", str(shop.parent / "recording")]) == 1
    assert "nowhere_at_all" in capsys.readouterr().err


def test_a_recording_has_what_was_asked(tmp_path: Path) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]

    client = Client(recorded(app, str(tmp_path / "recording")))
    assert client.post("/a?b=c", form={"d": "e"}).text == "d=e"
    line = json.loads((tmp_path / "recording").read_text())
    assert (line["method"], line["path"], line["query"]) == ("POST", "/a", "b=c")
    assert line["fields"]["CONTENT_TYPE"] == "application/x-www-form-urlencoded"
