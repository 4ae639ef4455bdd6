"""The other dispatchers: by methods, routes, and those of an application's own."""

from __future__ import annotations

from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client


class City:
    def __init__(self, name: str) -> None:
        self.name = name
        self.population = 10000

    def index(self, **kwargs: str) -> str:
        return "Welcome to %s, pop. %s" % (self.name, self.population)  # noqa: UP031 - as it is there

    def update(self, **kwargs: Any) -> str:
        self.population = kwargs["pop"]
        return "OK"


def test_the_routes_of_the_founding_document_have_their_meaning() -> None:
    d = web.Routes()
    d.connect(name="hounslow", route="hounslow", controller=City("Hounslow"))
    d.connect(
        name="surbiton", route="surbiton", controller=City("Surbiton"), action="index", conditions={"method": ["GET"]}
    )
    d.mapper.connect("surbiton", controller="surbiton", action="update", conditions={"method": ["POST"]})
    conf = {"/": {"request.dispatch": d}}
    client = Client(web.App(root=None, config=conf))
    assert client.get("/hounslow").text == "Welcome to Hounslow, pop. 10000"
    assert client.get("/surbiton").text == "Welcome to Surbiton, pop. 10000"
    assert client.post("/surbiton", form={"pop": "1327"}).text == "OK"
    assert client.get("/surbiton").text == "Welcome to Surbiton, pop. 1327"
    assert client.get("/foo").status == 404
    reply = client.request("DELETE", "/surbiton")
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD, POST, OPTIONS")


class Books:
    def index(self) -> str:
        return "books"

    def show(self, id: int, format: str = "html") -> str:
        return f"book {id} as {format}"

    @web.post
    def add(self, title: str) -> str:
        return f"added {title}"

    def file(self, path: str) -> str:
        return path


def routes() -> web.Routes:
    d = web.Routes()
    books = Books()
    d.connect("books", "/books", books)
    d.connect("special", "/books/7", books, action="show", id=7, format="special")
    d.connect("book", "/books/{id}", books, action="show", requirements={"id": "[0-9]+"})
    d.connect("book_as", "/books/:id/as/{format:[a-z]{2,4}}", books, action="show")
    d.connect("files", "/files/*path", books, action="file")
    d.connect("all", "/all/{action}", books)
    return d


def test_variables_of_a_route_are_parameters() -> None:
    client = Client(web.App(dispatch=routes()))
    assert client.get("/books").text == "books"
    assert client.get("/books/").text == "books"
    assert client.get("/books/8").text == "book 8 as html"
    assert client.get("/books/7").text == "book 7 as special"
    assert client.get("/books/8/as/pdf").text == "book 8 as pdf"
    assert client.get("/books/x/as/pdf").status == 404
    assert client.get("/books/8/as/PDF").status == 404
    assert client.get("/files/a/b.txt").text == "a/b.txt"
    assert client.get("/books/x").status == 404
    assert client.request("HEAD", "/books/8").status == 200


def test_action_in_a_route_stands_for_each_public_method() -> None:
    client = Client(web.App(dispatch=routes()))
    assert client.get("/all/index").text == "books"
    assert client.get("/all/show?id=3").text == "book 3 as html"
    assert client.post("/all/add", form={"title": "x"}).text == "added x"
    assert client.get("/all/add").status == 405
    assert client.get("/all/__init__").status == 404


def test_urls_are_generated_from_the_names_of_routes() -> None:
    app = web.App(dispatch=routes())
    assert app.url("book", id=8) == "/books/8"
    assert app.url("book_as", id=8, format="pdf", page=2) == "/books/8/as/pdf?page=2"
    assert app.url("files", path="a/b c") == "/files/a/b%20c"
    with pytest.raises(LookupError, match="needs a value for id"):
        app.url("book")
    with pytest.raises(ValueError, match="is no path of route"):
        app.url("book", id="x")
    with pytest.raises(LookupError, match="did you mean book_as"):
        app.url("book_sa", id=1)


def test_sections_hold_for_the_urls_of_routes() -> None:
    def deny(request: web.Request) -> None:
        raise web.HTTPError(401)

    client = Client(web.App(None, {"/books/9": {"hooks.before_handler": deny}}, dispatch=routes()))
    assert client.get("/books/9").status == 401
    assert client.get("/books/9/as/pdf").status == 401
    assert client.get("/books/8").status == 200


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (("x", "/x", Books(), "shw"), "has no method shw; did you mean show?"),
        (("x", "/x", "nobody"), "no controller 'nobody'"),
        (("x", "/x"), "has no controller"),
        (("x", "/x", Books(), "show", {"methods": ["GET"]}), "no condition methods; did you mean method?"),
        (("x", "/x", Books(), "show", {"method": ["GTE"]}), "there is no method GTE"),
        (("x", "/{idd}", Books(), "show"), "has no parameter idd; did you mean id?"),
        (("x", "/{id}", Books(), "show", None, {"id": "("}), "the pattern of id"),
        (("x", "/{id}", Books(), "show", None, {"idd": "x"}), "no variable idd; did you mean id?"),
        (("x", "/x", Books(), "__init__"), "has no method __init__"),
    ],
)
def test_a_mistake_in_a_route_fails_at_mount(entry: tuple[Any, ...], message: str) -> None:
    def mount() -> None:
        d = web.Routes()
        d.connect(*entry)
        web.App(dispatch=d)

    with pytest.raises(web.ConfigError) as caught:
        mount()
    assert message in str(caught.value)


class Thing:
    def __init__(self) -> None:
        self.value = "old"

    def GET(self, part: str = "") -> str:
        return self.value + part

    def PUT(self, value: str) -> str:
        self.value = value
        return "put"

    def helper(self) -> str:
        return "not published"


class Things:
    thing = Thing()


def test_resources_answer_by_their_methods() -> None:
    client = Client(web.App(Things(), dispatch=web.Resources()))
    assert client.get("/thing").text == "old"
    assert client.get("/thing/er").text == "older"
    assert client.request("PUT", "/thing", form={"value": "new"}).text == "put"
    assert client.get("/thing").text == "new"
    reply = client.request("DELETE", "/thing")
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD, PUT, OPTIONS")
    assert client.get("/").status == 404
    assert client.get("/thing/helper").text == "newhelper"


def test_a_dispatcher_of_ones_own_sets_handler_and_configuration() -> None:
    class Own:
        def __call__(self, path_info: str) -> None:
            request = web.current()
            request.config = {"tools.mark.on": path_info.startswith("/m")}
            if path_info == "/none":
                request.handler = None
                request.config = {"hooks.before_handler": answer}
            elif path_info == "/gone":
                request.handler = web.HTTPError(410)
            elif path_info == "/leave":
                request.handler = web.HTTPRedirect("/x")
            elif path_info == "/wrong":
                request.config = {"tools.mrak.on": True}
            elif path_info == "/broken":
                raise RuntimeError("broken dispatcher")
            elif path_info.startswith("/m"):
                request.handler = web.page(show, path_info[2:])
            else:
                raise web.NotFound

    def answer(request: web.Request) -> None:
        request.response.set_body("of the hook")

    def show(n: int, *, q: str = "-") -> str:
        return f"{n} {q}"

    @web.tool("before_finalize")
    def mark(request: web.Request) -> None:
        request.response.headers["X-Mark"] = "yes"

    app = web.App(None, {"/": {"request.dispatch": Own(), "tools.mark.on": False}}, tools=[mark])
    client = Client(app)
    reply = client.get("/m5?q=x")
    assert (reply.text, reply.headers["X-Mark"]) == ("5 x", "yes")
    assert client.get("/mx").status == 404
    reply = client.get("/none")
    assert (reply.text, "X-Mark" in reply.headers) == ("of the hook", False)
    assert client.get("/gone").status == 410
    assert client.get("/gone").status == 410
    assert client.get("/leave").status == 303
    assert client.get("/other").status == 404
    reply = client.get("/wrong")
    assert (reply.status, "did you mean mark?" in reply.errors) == (500, True)
    assert "broken dispatcher" in client.get("/broken").errors
