"""A CherryPy application on its own tree, as its tutorials have it, with another server in front."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import requests

from raw import Peer, build_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

APP = """
    import os

    import cherrypy

    class Shelf:
        @cherrypy.expose
        def index(self, order="title"):
            return f"a shelf by {order}"

        @cherrypy.expose
        def default(self, *path, **params):
            return "/".join(path) + " " + ",".join(f"{name}={params[name]}" for name in sorted(params))

    class Root:
        shelf = Shelf()

        @cherrypy.expose
        def index(self):
            return '<form action="greet" method="post"><input name="name"></form>'

        @cherrypy.expose
        def greet(self, name=None):
            if name is None:
                raise cherrypy.HTTPRedirect("/")
            return f"Good day, {name}!"

        @cherrypy.expose
        def count(self):
            visits = int(cherrypy.request.cookie["visits"].value) if "visits" in cherrypy.request.cookie else 0
            cherrypy.response.cookie["visits"] = visits + 1
            cherrypy.response.cookie["visits"]["path"] = "/"
            cherrypy.response.cookie["last"] = "count"
            return str(visits)

        @cherrypy.expose
        def session(self, note=None):
            before = cherrypy.session.get("note", "nothing")
            if note is not None:
                cherrypy.session["note"] = note
            return before

        @cherrypy.expose
        def upload(self, document):
            size = 0
            while block := document.file.read(8192):
                size += len(block)
            return f"{document.filename} {document.content_type} {size}"

        @cherrypy.expose
        @cherrypy.tools.json_in()
        @cherrypy.tools.json_out()
        def reverse(self):
            return list(reversed(cherrypy.request.json))

        @cherrypy.expose
        @cherrypy.config(**{"response.stream": True})
        def tale(self):
            cherrypy.response.headers["Content-Type"] = "text/plain"
            def lines():
                for number in range(100):
                    yield f"line {number}\\n"
            return lines()

        @cherrypy.expose
        def gone(self):
            raise cherrypy.HTTPError(410, "Sold out")

        @cherrypy.expose
        def broken(self):
            raise LookupError("no cherries left")

        @cherrypy.expose
        def address(self):
            return cherrypy.url("/shelf", qs="order=age")

    # The embedding that CherryPy's manual prescribes under another WSGI server.
    cherrypy.config.update({"engine.autoreload.on": False, "log.screen": True})
    cherrypy.server.unsubscribe()
    cherrypy.engine.start()
    app = cherrypy.tree.mount(Root(), "/", {
        "/": {"tools.sessions.on": True},
        "/static": {"tools.staticdir.on": True, "tools.staticdir.dir": os.environ["STATIC"]},
        "/favicon.ico": {"tools.staticfile.on": True, "tools.staticfile.filename": os.environ["STATIC"] + "/icon"},
    })
"""


@pytest.fixture
def static(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "icon").write_bytes(b"\x00\x01icon")
    (folder / "large.bin").write_bytes(random.Random(11).randbytes(600_000))
    return folder


@pytest.fixture
def site(serve: Serve, write_app: Callable[[str], str], static: Path) -> Running:
    return serve(f"{write_app(APP)}:app", env={"STATIC": str(static)})


def test_handlers_paths_and_parameters(site: Running, browser: requests.Session) -> None:
    assert "<form" in browser.get(site.url, timeout=10).text
    assert browser.get(f"{site.url}/shelf/", timeout=10).text == "a shelf by title"
    assert browser.get(f"{site.url}/shelf/?order=age", timeout=10).text == "a shelf by age"
    assert browser.get(f"{site.url}/shelf/a/b%20c?y=2&x=%C5%99", timeout=10).text == "a/b c x=ř,y=2"
    # A missing slash is a redirect to the very host and port that the client asked.
    slashed = browser.get(f"{site.url}/shelf", timeout=10)
    assert [step.headers["Location"] for step in slashed.history] == [f"{site.url}/shelf/"]
    assert browser.get(f"{site.url}/address", timeout=10).text == f"{site.url}/shelf?order=age"


def test_form_posts_and_redirects(site: Running, browser: requests.Session) -> None:
    assert browser.post(f"{site.url}/greet", data={"name": "Jiří & syn"}, timeout=10).text == "Good day, Jiří & syn!"
    sent_back = browser.post(f"{site.url}/greet", timeout=10)
    assert [step.status_code for step in sent_back.history] == [303]
    assert sent_back.url == f"{site.url}/"


def test_upload_and_json(site: Running, browser: requests.Session) -> None:
    document = random.Random(13).randbytes(1_500_000)
    answer = browser.post(f"{site.url}/upload", files={"document": ("d.pdf", document, "application/pdf")}, timeout=30)
    assert answer.text == "d.pdf application/pdf 1500000"
    answer = browser.post(f"{site.url}/reverse", json=[1, "dvě", None], timeout=10)
    assert answer.json() == [None, "dvě", 1]


def test_cookies(site: Running, browser: requests.Session) -> None:
    visits = [browser.get(f"{site.url}/count", timeout=10).text for _ in range(3)]
    assert visits == ["0", "1", "2"]
    # Each cookie is a field of its own: Set-Cookie cannot be folded into one.
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/count", headers={"Cookie": "visits=41"}))
        cookies = sorted(peer.read_response().all("Set-Cookie"))
    assert [cookie.split(";")[0].split("=")[0] for cookie in cookies] == ["last", "session_id", "visits"]
    assert cookies[2].startswith("visits=42;")


def test_sessions(site: Running, browser: requests.Session) -> None:
    assert browser.get(f"{site.url}/session?note=kept", timeout=10).text == "nothing"
    assert browser.get(f"{site.url}/session", timeout=10).text == "kept"
    with requests.Session() as other:
        other.trust_env = False
        assert other.get(f"{site.url}/session", timeout=10).text == "nothing"


def test_static_tools(site: Running, browser: requests.Session, static: Path) -> None:
    large = (static / "large.bin").read_bytes()
    whole = browser.get(f"{site.url}/static/large.bin", timeout=10)
    assert (whole.status_code, whole.content) == (200, large)
    part = browser.get(f"{site.url}/static/large.bin", headers={"Range": "bytes=1000-200999"}, timeout=10)
    assert (part.status_code, part.content) == (206, large[1000:201_000])
    parts = browser.get(f"{site.url}/static/large.bin", headers={"Range": "bytes=0-9,100-109"}, timeout=10)
    assert parts.status_code == 206
    assert parts.headers["Content-Type"].startswith("multipart/byteranges")
    assert large[:10] in parts.content
    assert large[100:110] in parts.content
    same = browser.get(
        f"{site.url}/static/large.bin", headers={"If-Modified-Since": whole.headers["Last-Modified"]}, timeout=10
    )
    assert (same.status_code, same.content) == (304, b"")
    assert browser.get(f"{site.url}/favicon.ico", timeout=10).content == b"\x00\x01icon"
    assert browser.get(f"{site.url}/static/none", timeout=10).status_code == 404


def test_a_streamed_response(site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/tale"))
        tale = peer.read_response()
    assert (tale.framing, tale.complete) == ("chunked", True)
    assert tale.body == b"".join(b"line %d\n" % number for number in range(100))


def test_errors(site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        for target, status, words in [
            ("/gone", 410, b"Sold out"),
            ("/nowhere", 404, b"Not Found"),
            ("/greet?unknown=1", 404, b"Unexpected query string parameters"),
            ("/broken", 500, b"Internal Server Error"),
        ]:
            peer.send(build_request("GET", target))
            answer = peer.read_response()
            assert answer.status == status
            assert words in answer.body
        peer.send(build_request("HEAD", "/shelf/"))
        head = peer.read_response("HEAD")
        assert (head.status, head.header("Content-Length")) == (200, str(len("a shelf by title")))
    site.wait_for("LookupError: no cherries left")
