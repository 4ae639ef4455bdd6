"""Applications of kirsch_web behind a real Kirsch: its examples, its routes, and many requests at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from interpreter import needs_gevent

if TYPE_CHECKING:
    from running import Serve

# kirsch-web is pure Python and need not be installed.
WEB = Path(__file__).resolve().parent.parent / "packages" / "kirsch-web"
sys.path[:0] = [str(WEB / "src"), str(WEB / "tests")]

from kirsch_web import testing  # noqa: E402
from rooms_visit import visit  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

EXAMPLES = WEB / "examples"

# The modules of kirsch-web's tests that ask an application as a client does.
MODULES = ("accidents", "binding", "dispatch", "pipeline", "publishing", "services", "sessions")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(WEB / "src"), *os.environ.get("PYTHONPATH", "").split()]))


ECHO = """
    import time

    import kirsch_web as web


    class Root:
        def who(self, number: int, name: str = "", *, session: web.Session) -> dict[str, object]:
            request = web.current()
            request.mine = number
            before = web.current().path
            session["number"] = number
            time.sleep(0.002)
            assert web.current() is request
            assert request.mine == number
            return {"number": number, "name": name, "before": before, "after": web.current().path}

        def steps(self, number: int):
            for _ in range(5):
                time.sleep(0.001)
                yield f"{web.current().path};"

        @web.post
        def body(self, number: int, text: str) -> dict[str, object]:
            time.sleep(0.001)
            return {"number": number, "text": text, "form": web.current().form["text"]}


    app = web.App(Root(), tools=[web.session(secret="of this test, and long", secure=False)])
    asgi = web.ASGI(app)
"""


def asked(serve: Serve, target: str, *args: str, **options: Any) -> Any:
    running = serve(target, *args, **options)
    return testing.Client(server=f"http://127.0.0.1:{running.port}")


def test_the_shop_example_keeps_a_basket_in_the_session(serve: Serve, tmp_path: Path) -> None:
    client = asked(serve, "shop:app", cwd=EXAMPLES, env={"SHOP_DATABASE": str(tmp_path / "shop.sqlite")})
    assert "Persuasion" in client.get("/").text
    books = {each["title"]: each for each in client.get("/books").json()}
    assert client.get("/books/show/99").status == 404
    same = {"Sec-Fetch-Site": "same-origin"}
    for title in ("Emma", "Persuasion"):
        reply = client.post("/basket/add", form={"book": books[title]["id"]}, headers=same)
        assert (reply.status, reply.headers["Location"]) == (303, "/basket")
    assert client.get("/basket").json()["pence"] == 990 + 850
    assert client.post("/basket/add", form={"book": "1"}, headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert testing.Client(server=client.base).get("/basket").json()["books"] == []


def test_the_tasks_example_creates_replaces_and_removes(serve: Serve) -> None:
    client = asked(serve, "tasks:app", cwd=EXAMPLES)
    assert client.post("/tasks", json={"title": "Write"}).json() == {"id": 1, "title": "Write", "done": False}
    assert client.request("PUT", "/tasks/show/1", json={"title": "Write", "done": True}).json()["done"] is True
    assert client.get("/tasks?done=false").json() == []
    assert client.post("/tasks", json={"title": 7}).status == 422
    assert client.request("DELETE", "/tasks/show/1").status == 204
    assert client.get("/tasks/show/1").status == 404
    document = client.get("/openapi").json()
    assert document["openapi"].startswith("3.1")
    assert {"get", "post"} <= set(document["paths"]["/tasks"])


def test_the_files_example_stores_an_upload_and_serves_parts_of_it(serve: Serve, tmp_path: Path) -> None:
    client = asked(serve, "files:app", cwd=EXAMPLES, env={"FILES_DIRECTORY": str(tmp_path / "files")})
    content = bytes(range(256)) * 4096
    reply = client.post("/", files={"file": ("../../etc/passwd", content)})
    assert reply.status == 201
    stored = reply.json()
    assert stored["bytes"] == len(content)
    assert client.get(stored["url"]).body == content
    part = client.get(stored["url"], headers={"Range": "bytes=10-19"})
    assert (part.status, part.body) == (206, content[10:20])
    assert [each.name for each in (tmp_path / "files").iterdir()] == [stored["url"].rpartition("/")[2]]


def test_the_clock_example_sends_events(serve: Serve) -> None:
    client = asked(serve, "clock:app", cwd=EXAMPLES)
    assert "EventSource" in client.get("/").text
    reply = client.get("/ticks?count=2")
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    assert [line for line in reply.text.splitlines() if line.startswith("id:")] == ["id: 1", "id: 2"]


def test_the_cities_example_finds_controllers_by_route(serve: Serve) -> None:
    client = asked(serve, "cities:app", "--workers", "1", cwd=EXAMPLES)
    assert client.get("/hounslow").text == "Welcome to Hounslow, pop. 10000"
    assert client.post("/surbiton", form={"pop": "1327"}).text == "OK"
    assert client.get("/surbiton").text == "Welcome to Surbiton, pop. 1327"
    assert client.get("/foo").status == 404
    assert client.request("PUT", "/hounslow").headers["Allow"] == "GET, HEAD, POST, OPTIONS"


def test_the_rooms_example_serves_its_visitors(serve: Serve) -> None:
    running = serve("rooms:asgi", cwd=EXAMPLES)
    visit(f"http://127.0.0.1:{running.port}")


PUBLISHER = Path(__file__).parent.parent / "examples"


def test_the_publisher_example_serves_the_functions_of_a_module(serve: Serve) -> None:
    client = asked(serve, 'publisher:publish("published")', cwd=PUBLISHER)
    for path in ("/", "/index"):
        reply = client.get(path)
        assert (reply.status, reply.text) == (200, "Hello World!\n")
        assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    page = client.get("/greet?name=Ada&unknown=1")
    assert page.text == "<html><body>Hello Ada!</body></html>"
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Hello &lt;b>!" in client.post("/greet", form={"name": "<b>"}).text
    counted = client.get("/count")
    assert (counted.text, counted.headers["X-Method"]) == ("0\n1\n2\n", "GET")
    assert client.request("PUT", "/greet").status == 405


def test_the_publisher_example_publishes_nothing_but_functions_without_underscore(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "pages.py").write_text(
        "import os\n"
        "from os import system\n"
        "from textwrap import dedent\n"
        "import logging\n"
        "log = logging.getLogger()\n"
        "secret = 'x'\n"
        "class Shop:\n"
        "    def books(self, req, author): return f'{author}!'\n"
        "    def _private(self): return 'private'\n"
        "shop = Shop()\n"
        "def several(req, a): return repr(a)\n"
        "def everything(req, **fields): return repr(sorted(fields))\n"
        "def refuse(req): req.status = 403\n"
    )
    client = asked(serve, 'publisher:publish("pages")', cwd=tmp_path, env={"PYTHONPATH": str(PUBLISHER)})
    assert client.get("/shop/books?author=Sand").text == "Sand!"
    assert client.get("/several?a=1&a=2").text == "['1', '2']"
    assert client.get("/everything?b=1&a=2").text == "['a', 'b']"
    assert client.get("/refuse").status == 403
    assert client.get("/shop/books").status == 400, "a parameter is missing"
    own = ["/", "/secret", "/Shop", "/Shop/books", "/shop", "/shop/_private", "/_private"]
    imported = ["/os/getcwd", "/system", "/dedent?text=x", "/log/info?msg=x"]
    inner = ["/several/__globals__", "/several/__code__", "/shop/__class__", "/shop/books/__func__"]
    hidden = [*own, *imported, *inner]
    assert {path: client.get(path).status for path in hidden} == dict.fromkeys(hidden, 404)


@pytest.mark.parametrize("driver", ["threads", "gevent", "asgi"])
def test_concurrent_requests_never_see_each_other(serve: Serve, driver: str, tmp_path: Path) -> None:
    if driver == "gevent":
        needs_gevent()
    (tmp_path / "echo.py").write_text(textwrap.dedent(ECHO))
    how = ["echo:asgi"] if driver == "asgi" else ["echo:app", "--driver", driver]
    running = serve(*how, cwd=tmp_path)
    wrong: list[str] = []
    done: list[int] = []

    def ask(first: int) -> None:
        client = testing.Client(server=f"http://127.0.0.1:{running.port}")
        for number in range(first, first + 25):
            who = client.get(f"/who/{number}?name=n{number}")
            path = f"/who/{number}"
            if who.json() != {"number": number, "name": f"n{number}", "before": path, "after": path}:
                wrong.append(f"{path}: {who.text}")
            steps = client.get(f"/steps/{number}").text
            if steps != f"/steps/{number};" * 5:
                wrong.append(f"/steps/{number}: {steps}")
            body = client.post(f"/body/{number}", form={"text": f"t{number}" * 50}).json()
            if body != {"number": number, "text": f"t{number}" * 50, "form": f"t{number}" * 50}:
                wrong.append(f"/body/{number}: {body}")
        done.append(first)

    threads = [threading.Thread(target=ask, args=(each * 1000,)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not wrong, wrong[:5]
    assert len(done) == 8, f"{8 - len(done)} clients have not come to their end"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_tests_of_the_framework_pass_when_kirsch_serves_their_applications() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/test_{n}.py" for n in MODULES)],
        cwd=WEB, env={**os.environ, "WEB_SERVER": "kirsch"}, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert int(passed[1] if passed else 0) >= 200, done.stdout[-8000:]
