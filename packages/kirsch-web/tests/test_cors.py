"""The tool ``cors``: preflight requests, the fields of responses, and mistakes in its options."""

from __future__ import annotations

from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client

SHOP = "https://shop.example"


class Root:
    def index(self) -> str:
        return "hello"

    @web.post
    def add(self, number: int) -> dict[str, int]:
        return {"number": number}

    def fails(self) -> None:
        raise OSError("this page")

    def stream(self) -> Any:
        yield "a"


def client_of(origins: list[str], asgi: bool = False, **options: Any) -> Any:
    app: Any = web.App(Root(), tools=[web.cors(origins, **options), web.basic_auth(lambda *_: False)])
    return Client(web.ASGI(app) if asgi else app)


def open_client(origins: list[str], asgi: bool = False, config: Any = None, **options: Any) -> Any:
    app: Any = web.App(Root(), config, tools=[web.cors(origins, **options)])
    return Client(web.ASGI(app) if asgi else app)


def preflight(client: Any, path: str = "/add", origin: str = SHOP, method: str = "POST") -> Any:
    return client.request("OPTIONS", path, headers={"Origin": origin, "Access-Control-Request-Method": method})


@pytest.mark.parametrize("asgi", [False, True])
def test_preflight_is_answered_before_other_hooks(asgi: bool) -> None:
    with client_of([SHOP], asgi, headers=["Content-Type", "X-Token"], max_age=60) as client:
        reply = preflight(client)
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["Access-Control-Allow-Origin"] == SHOP
        assert reply.headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
        assert reply.headers["Access-Control-Allow-Headers"] == "Content-Type, X-Token"
        assert reply.headers["Access-Control-Max-Age"] == "60"
        assert reply.headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Credentials" not in reply.headers
        assert client.post("/add", form={"number": 1}, headers={"Origin": SHOP}).status == 401


def test_options_without_a_requested_method_is_no_preflight() -> None:
    reply = open_client([SHOP]).request("OPTIONS", "/add", headers={"Origin": SHOP})
    assert reply.headers["Allow"] == "POST, OPTIONS"
    assert reply.headers["Access-Control-Allow-Origin"] == SHOP
    assert "Access-Control-Allow-Methods" not in reply.headers


@pytest.mark.parametrize("origin", ["https://shop.example.evil.example", "http://shop.example", "null", "https://x"])
def test_other_origin_gets_no_fields(origin: str) -> None:
    client = open_client([SHOP])
    for reply in (preflight(client, origin=origin), client.get("/", headers={"Origin": origin})):
        assert not [name for name, _ in reply.headers if name.lower().startswith("access-control")]
        assert "Origin" in reply.headers["Vary"]
    assert client.get("/").headers["Vary"] == "Origin"


@pytest.mark.parametrize("asgi", [False, True])
def test_fields_are_on_every_response(asgi: bool) -> None:
    with open_client([SHOP], asgi, credentials=True, expose=["X-Total", "ETag"]) as client:
        for method, path, status in (
            ("GET", "/", 200), ("HEAD", "/", 200), ("GET", "/stream", 200), ("GET", "/nothing", 404),
            ("DELETE", "/", 405), ("GET", "/fails", 500), ("POST", "/add", 422),
        ):  # fmt: skip
            reply = client.request(method, path, headers={"Origin": SHOP})
            assert reply.status == status
            assert reply.headers["Access-Control-Allow-Origin"] == SHOP
            assert reply.headers["Access-Control-Allow-Credentials"] == "true"
            assert reply.headers["Access-Control-Expose-Headers"] == "X-Total, ETag"
            assert reply.headers["Vary"].split(", ")[-1] == "Origin"


def test_everyone_is_the_same_response_for_all() -> None:
    client = open_client(["*"])
    reply = client.get("/", headers={"Origin": "https://any.example"})
    assert reply.headers["Access-Control-Allow-Origin"] == "*"
    assert "Vary" not in reply.headers
    assert preflight(client, origin="https://any.example").headers["Access-Control-Allow-Origin"] == "*"


def test_origins_are_compared_without_case_and_scheme_of_an_app_is_one() -> None:
    client = open_client(["HTTPS://Shop.Example:8443", "capacitor://localhost"])
    for origin in ("https://shop.example:8443", "capacitor://localhost"):
        assert client.get("/", headers={"Origin": origin}).headers["Access-Control-Allow-Origin"] == origin


def test_dispatcher_of_ones_own_needs_methods() -> None:
    handler = web.page(lambda: "hello")
    app = web.App(dispatch=lambda request: handler, tools=[web.cors([SHOP], methods=["get", "PUT"])])
    reply = preflight(Client(app), "/any", method="PUT")
    assert (reply.status, reply.headers["Access-Control-Allow-Methods"]) == (204, "GET, PUT")


def test_tool_may_be_on_for_one_section() -> None:
    config = {"/add": {"tools.cors.on": True, "tools.cors.origins": [SHOP]}}
    client = Client(web.App(Root(), config))
    assert preflight(client).headers["Access-Control-Allow-Origin"] == SHOP
    assert "Access-Control-Allow-Origin" not in client.get("/", headers={"Origin": SHOP}).headers


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"origins": []}, "it needs origins"),
        ({"origins": ["shop.example"]}, "'shop.example', which is not an origin"),
        ({"origins": ["https://shop.example/"]}, "which is not an origin"),
        ({"origins": ["null"]}, "which is not an origin"),
        ({"origins": ["https://*.example"]}, "which is not an origin"),
        ({"origins": ["*", SHOP]}, "'*' means all"),
        ({"origins": ["*"], "credentials": True}, "credentials cannot be shared"),
        ({"origins": [SHOP], "expose": ["X Total"]}, "expose has 'X Total'"),
        ({"origins": [SHOP], "methods": ["GET\r\nX: y"]}, "not a name of HTTP"),
        ({"origins": [SHOP], "max_age": "long"}, "max_age"),
    ],
)
def test_mistakes_are_refused_at_mount(options: dict[str, Any], words: str) -> None:
    with pytest.raises(web.ConfigError) as raised:
        web.App(Root(), tools=[web.cors(**options)])
    assert words in str(raised.value)
