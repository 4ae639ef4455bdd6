"""Published objects, their paths and methods."""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections import UserDict
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client


class Books:
    def index(self, page: int = 1) -> dict[str, int]:
        return {"page": page}

    @web.post(name="index", status=201)
    def create(self, title: str) -> dict[str, str]:
        return {"created": title}

    def show(self, id: int) -> dict[str, int]:
        return {"id": id}

    @web.post
    @web.put
    def change(self, id: int) -> str:
        return f"changed {id}"

    @web.hide
    def hidden(self) -> str:
        return "secret"

    def _private(self) -> str:
        return "secret"

    @web.get(name="robots.txt")
    def robots(self) -> web.Response:
        return web.text("User-agent: *")

    @staticmethod
    def about() -> str:
        return "static"


class Store(UserDict):  # type: ignore[type-arg]
    def index(self) -> str:
        return "store"


DATABASE = sqlite3.connect(":memory:", check_same_thread=False)


class Root:
    books = Books()
    store = Store()

    def __init__(self) -> None:
        self.database = DATABASE
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=print)
        self.words = ["one"]
        self.name = "shop"

    def index(self) -> str:
        return "Hello"

    def default(self, *path: str) -> str:
        return "default " + "/".join(path)


@pytest.fixture
def client() -> Client:
    return Client(web.App(Root()))


def test_index_answers_the_path_of_its_object(client: Client) -> None:
    reply = client.get("/")
    assert (reply.status, reply.text) == (200, "Hello")
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert reply.headers["Content-Length"] == "5"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_a_method_is_called_with_the_segment_behind_its_name(client: Client) -> None:
    assert client.get("/books/show/7").json() == {"id": 7}
    assert client.get("/books").json() == {"page": 1}
    assert client.get("/books/", query={"page": 3}).json() == {"page": 3}


def test_default_takes_what_no_name_leads_to(client: Client) -> None:
    assert client.get("/a/b").text == "default a/b"
    assert client.get("/books/nothing/x").text == "default books/nothing/x"
    assert client.get("/%C3%A9t%C3%A9").text == "default été"


@pytest.mark.parametrize(
    "path",
    ["/database/close", "/database", "/lock/acquire", "/thread/run", "/words/index", "/words/clear", "/name/upper",
     "/store/clear", "/store/pop/x", "/books/hidden", "/books/_private", "/books/-private", "/books/.private",
     "/books/index", "/__init__", "/books/__class__", "/books/show/__func__"],
)  # fmt: skip
def test_what_a_class_does_not_publish_is_not_reached(path: str) -> None:
    class Strict(Root):
        index = Root.index
        default = None  # type: ignore[assignment]

    reply = Client(web.App(Strict())).get(path)
    assert reply.status == 404
    assert "secret" not in reply.text


def test_methods_of_a_published_base_class_are_inherited() -> None:
    class Base:
        def index(self) -> str:
            return "base"

        def page(self) -> str:
            return "page of " + type(self).__name__

    class Derived(Base):
        def other(self) -> str:
            return "other"

    client = Client(web.App(Derived()))
    assert client.get("/page").text == "page of Derived"
    assert client.get("/other").text == "other"


def test_one_path_has_a_handler_for_each_method(client: Client) -> None:
    reply = client.post("/books", form={"title": "Emma"})
    assert (reply.status, reply.json()) == (201, {"created": "Emma"})
    assert client.request("PUT", "/books/change/4").text == "changed 4"
    assert client.post("/books/change/4").text == "changed 4"


def test_a_method_without_handler_is_405_with_allow(client: Client) -> None:
    reply = client.request("DELETE", "/books")
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD, POST, OPTIONS"
    assert client.post("/books/show/7").status == 405


def test_head_has_the_header_of_get_and_no_body(client: Client) -> None:
    get, head = client.get("/books/show/7"), client.request("HEAD", "/books/show/7")
    assert head.body == b""
    assert list(head.headers) == list(get.headers)
    assert head.headers["Content-Length"] == str(len(get.body))


def test_options_lists_the_methods(client: Client) -> None:
    reply = client.request("OPTIONS", "/books/change/1")
    assert (reply.status, reply.headers["Allow"]) == (204, "POST, PUT, OPTIONS")


def test_query_is_safe_and_has_a_body() -> None:
    class Search:
        @web.query
        def find(self, word: str, limit: int = 10) -> list[str]:
            return [word] * limit

    client = Client(web.App(Search()))
    assert client.request("QUERY", "/find", json={"word": "x", "limit": 2}).json() == ["x", "x"]
    assert "Accept-Query" in client.request("OPTIONS", "/find").headers


def test_dash_and_dot_mean_an_underscore_and_names_may_have_them(client: Client) -> None:
    assert client.get("/books/robots.txt").text == "User-agent: *"
    assert client.get("/books/robots_txt").text == "User-agent: *"
    assert client.get("/books/about").text == "static"


@pytest.mark.parametrize("path", ["/books//show/7", "//books/show/7", "/books/show//7", "/books/show/7//"])
def test_an_empty_segment_names_nothing(path: str) -> None:
    class Strict(Root):
        default = None  # type: ignore[assignment]

    assert Client(web.App(Strict())).get(path).status == 404


def test_two_handlers_of_one_name_and_method_are_refused_at_mount() -> None:
    class Twice:
        def page(self) -> str:
            return ""

        @web.get(name="page")
        def other(self) -> str:
            return ""

    with pytest.raises(web.ConfigError, match=r"both answer GET of 'page'"):
        web.App(Twice())


def test_getattr_makes_objects_and_marked_functions_reachable() -> None:
    class User:
        def __init__(self, name: str) -> None:
            self.name = name

        def index(self) -> str:
            return f"user {self.name}"

        def posts(self, number: int) -> str:
            return f"post {number} of {self.name}"

    class Users:
        index = None

        def __init__(self) -> None:
            self.made = {name: User(name) for name in ("ann", "bob")}

        def __getattr__(self, name: str) -> Any:
            if name == "page":
                return web.get(lambda: "made")
            if name == "plain":
                return lambda: "not marked"
            try:
                return self.made[name]
            except KeyError:
                raise AttributeError(name) from None

    client = Client(web.App(web.publish(Users)()))
    assert client.get("/ann").text == "user ann"
    assert client.get("/bob/posts/3").text == "post 3 of bob"
    assert client.get("/page").text == "made"
    assert client.get("/plain").status == 404
    assert client.get("/eve").status == 404


def test_popargs_captures_segments_as_parameters() -> None:
    @web.popargs("year", "month")
    class Archive:
        def index(self, year: int = 0, month: int = 0) -> list[int]:
            return [year, month]

        def day(self, year: int, month: int, day: int) -> list[int]:
            return [year, month, day]

    client = Client(web.App(Archive()))
    assert client.get("/").json() == [0, 0]
    assert client.get("/2026").json() == [2026, 0]
    assert client.get("/2026/11").json() == [2026, 11]
    assert client.get("/2026/11/day/22").json() == [2026, 11, 22]
    assert client.get("/2026/11/22").status == 404
    assert client.get("/x").status == 404


def test_popargs_hands_over_to_what_a_callable_makes() -> None:
    class Account:
        def __init__(self, name: str) -> None:
            self.name = name

        def index(self) -> str:
            return f"account {self.name}"

        def pay(self, amount: int) -> str:
            return f"{self.name} pays {amount}"

    def find(name: str) -> Account | None:
        return Account(name) if name.islower() else None

    @web.popargs("name", handler=find)
    class Accounts:
        def index(self) -> str:
            return "all"

    client = Client(web.App(Accounts()))
    assert client.get("/").text == "all"
    assert client.get("/ann").text == "account ann"
    assert client.get("/ann/pay/5").text == "ann pays 5"
    assert client.get("/ANN/pay/5").status == 404


def test_cp_dispatch_may_take_segments_and_return_an_object() -> None:
    class Band:
        def __init__(self, name: str) -> None:
            self.name = name

        def index(self) -> str:
            return self.name

    @web.publish
    class Bands:
        def _cp_dispatch(self, vpath: list[str]) -> object:
            if vpath[0] == "none":
                return None
            return Band(vpath.pop(0))

    client = Client(web.App(Bands()))
    assert client.get("/Nirvana").text == "Nirvana"
    assert client.get("/Nirvana/x").status == 404
    assert client.get("/none").status == 404


def test_an_object_that_contains_itself_is_walked_as_far_as_asked() -> None:
    class Page:
        def __init__(self, name: str) -> None:
            self.name = name
            self.child: Page | None = None
            self.parent: Page | None = None

        def index(self) -> str:
            return self.name

    top, below = Page("top"), Page("below")
    top.child, below.parent = below, top
    client = Client(web.App(top))
    assert client.get("/child/parent/child/parent").text == "top"
    assert client.get("/child/parent/child").text == "below"


def test_several_applications_are_mounted_by_the_longest_path() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def index(self) -> str:
            return f"{self.name} {web.current().mount} {web.url(self.index)}"

    app = web.Mounts(
        {"": web.App(Named("root")), "/shop": web.App(Named("shop")), "/shop/admin": web.App(Named("admin"))}
    )
    client = Client(app)
    assert client.get("/").text == "root  /"
    assert client.get("/shop").text == "shop /shop /shop/"
    assert client.get("/shop/").text == "shop /shop /shop/"
    assert client.get("/shop/admin/").text == "admin /shop/admin /shop/admin/"
    assert client.get("/shopping").status == 404
    assert Client(web.Mounts({"/a": web.App(Named("a"))})).get("/b").status == 404


def test_refresh_publishes_what_was_added_after_the_mount() -> None:
    root = Root()
    app = web.App(root)
    assert Client(app).get("/later").text == "default later"
    root.later = Books()  # type: ignore[attr-defined]
    app.refresh()
    assert Client(app).get("/later/show/1").json() == {"id": 1}


def test_urls_lead_back_to_their_handlers() -> None:
    root = Root()
    app = web.App(root)
    client = Client(app)
    assert app.url(root.index) == "/"
    assert app.url(root.books.show, 7) == "/books/show/7"
    assert app.url(root.books.index, page=2, tag=["a", "b c"]) == "/books?page=2&tag=a&tag=b%20c"
    assert app.url(root.books.robots) == "/books/robots.txt"
    odd = app.url(root.default, "a/b?c", "é", "..")
    assert odd == "/a%2Fb%3Fc/%C3%A9/%2E%2E"
    assert client.get(app.url(root.default, "é")).text == "default é"
    with pytest.raises(LookupError):
        app.url(root.books.hidden)
    with pytest.raises(ValueError):
        app.url(root.books.show, "")


def test_url_fills_captured_names() -> None:
    @web.popargs("year")
    class Archive:
        def index(self, year: int = 0) -> str:
            return str(year)

        def day(self, year: int, day: int) -> str:
            return f"{year} {day}"

    root = Archive()
    app = web.App(root)
    assert app.url(root.day, 3, year=2026) == "/2026/day/3"
    assert Client(app).get("/2026/day/3").text == "2026 3"


@pytest.mark.parametrize(("options", "words"), [
    ({"name": "a/b"}, "'a/b'"), ({"name": ""}, "''"), ({"name": ["ok", "/"]}, "'/'"), ({"status": 700}, "700"),
    ({"status": 100}, "100"),
])  # fmt: skip
def test_a_name_or_status_that_no_request_could_get_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(web.ConfigError, match=words):
        web.get(**options)


def test_a_decorated_method_is_published_inside_of_other_decorators_too() -> None:
    class Cached:
        @web.get
        @functools.lru_cache  # noqa: B019 - the object stays
        def outside(self, x: int = 4) -> int:
            return x + 1

        @functools.lru_cache  # noqa: B019 - the object stays
        @web.get(name="within")
        def inside(self, x: int) -> int:
            return x + 2

        @functools.lru_cache  # noqa: B019 - the object stays
        def helper(self) -> str:
            return "private"

    class Root:
        cached = Cached()

    app = web.App(Root())
    client = Client(app)
    assert client.get("/cached/outside").json() == 5
    assert client.get("/cached/outside/1").json() == 2
    assert client.get("/cached/within/1").json() == 3
    assert client.get("/cached/within/x").status == 404
    assert client.get("/cached/helper").status == 404
    assert app.url(Root.cached.inside, 7) == "/cached/within/7"
