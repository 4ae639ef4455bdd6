"""Microseconds for each request, by calling the application directly: kirsch_web beside what is installed.

Run it in an environment that has kirsch-web, and the frameworks to compare with (bench/rivals.txt):

    python bench/direct.py [--repeat 40] [--only kirsch_web,falcon]

Each figure is processor time, the best of the repetitions of 500 calls, which are interleaved over the frameworks. A
call has nine header fields, as a browser sends them, and reads the whole body.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import kirsch_web as web

HEADERS = {
    "HTTP_HOST": "localhost:8000",
    "HTTP_USER_AGENT": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0",
    "HTTP_ACCEPT": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "HTTP_ACCEPT_LANGUAGE": "en-US,en;q=0.9",
    "HTTP_ACCEPT_ENCODING": "gzip, deflate, br, zstd",
    "HTTP_CONNECTION": "keep-alive",
    "HTTP_UPGRADE_INSECURE_REQUESTS": "1",
    "HTTP_SEC_FETCH_SITE": "none",
    "HTTP_CACHE_CONTROL": "max-age=0",
}
SECRET = "0123456789abcdef0123456789abcdef"

App = Callable[[dict[str, Any], Any], Any]


def environ(path: str, **others: Any) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "localhost",
        "SERVER_PORT": "8000", "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1", "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http", "wsgi.errors": sys.stderr, "wsgi.multithread": True, "wsgi.multiprocess": False,
        "wsgi.run_once": False, "wsgi.input": io.BytesIO(), **HEADERS, **others,
    }  # fmt: skip


def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
    assert status[:3] == "200", status


def timed(app: Any, request: dict[str, Any], calls: int = 500) -> float:
    if isinstance(app, OverASGI):
        return app.timed(request, calls)
    requests = [dict(request) for _ in range(calls)]
    start = time.process_time()
    for each in requests:
        body = app(each, start_response)
        for _ in body:
            pass
        close = getattr(body, "close", None)
        if close is not None:
            close()
    return (time.process_time() - start) / calls * 1e6


# kirsch_web


def kirsch() -> dict[str, tuple[App, dict[str, Any]]]:
    @web.publish
    class Users:
        def show(self, id: int) -> str:
            return f"user {id}"

    class Root:
        users = Users()

        def index(self) -> str:
            return "Hello, world!"

        def query(self, page: int = 1, q: str = "") -> str:
            return f"{page} {q}"

        def user(self, id: int, *, session: web.Session) -> dict[str, Any]:
            return {"id": id, "name": session["name"]}

    hello = web.App(Root(), tools=[web.session(secret=SECRET, max_age=10**9)])
    plain = web.App(_without_session(Root))
    payload = base64.urlsafe_b64encode(json.dumps({"name": "Ann"}).encode()).rstrip(b"=").decode()
    text = f"{int(time.time()):x}.{payload}"
    key = hashlib.sha256(f"kirsch_web session\0session\0content\0{SECRET}".encode()).digest()
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    cookie = f"theme=dark; session={text}.{signature}; lang=en"

    @web.publish
    class Many:
        pass

    for number in range(500):
        setattr(Many, f"page{number}", _page(number))

    def nothing(request: web.Request) -> None:
        return None

    tools = [web.Tool("before_handler", nothing, f"nothing{number}") for number in range(20)]
    one = [web.Tool("before_handler", nothing, "nothing")]
    return {
        "hello": (plain, environ("/")),
        "/users/show/7": (plain, environ("/users/show/7")),
        "two query parameters": (plain, environ("/query", QUERY_STRING="page=2&q=red+shoes")),
        "int, session, JSON": (hello, environ("/user/7", HTTP_COOKIE=cookie)),
        "one of 500 routes": (web.App(Many()), environ("/page250")),
        "1 tool": (web.App(_without_session(Root), tools=one), environ("/")),
        "20 tools": (web.App(_without_session(Root), tools=tools), environ("/")),
        "404": (_ok(plain), environ("/nothing")),
    }


def _ok(app: App) -> App:
    """The application with 200 for every status, so that errors can be timed."""
    return lambda environ, start: app(environ, lambda status, headers, exc_info=None: start("200 OK", headers))


def _page(number: int) -> Any:
    def page(self: object) -> str:
        return "Hello, world!"

    page.__qualname__ = page.__name__ = f"page{number}"
    return page


def _without_session(root: type) -> Any:
    return type(
        "Root", (), {name: value for name, value in root.__dict__.items() if name in ("index", "users", "query")}
    )()


# Rivals


def bare() -> dict[str, tuple[App, dict[str, Any]]]:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "13")])
        return [b"Hello, world!"]

    return {"hello": (app, environ("/"))}


def falcon() -> dict[str, tuple[App, dict[str, Any]]]:
    import falcon

    class Hello:
        def on_get(self, req: Any, resp: Any) -> None:
            resp.text = "Hello, world!"

    class User:
        def on_get(self, req: Any, resp: Any, id: int) -> None:
            resp.text = f"user {id}"

    app = falcon.App()
    app.add_route("/", Hello())
    app.add_route("/users/show/{id:int}", User())
    return {"hello": (app, environ("/")), "/users/show/7": (app, environ("/users/show/7"))}


def bottle() -> dict[str, tuple[App, dict[str, Any]]]:
    import bottle

    app = bottle.Bottle()
    app.route("/")(lambda: "Hello, world!")
    app.route("/users/show/<id:int>")(lambda id: f"user {id}")
    return {"hello": (app, environ("/")), "/users/show/7": (app, environ("/users/show/7"))}


def flask() -> dict[str, tuple[App, dict[str, Any]]]:
    import flask

    app = flask.Flask("bench")
    app.route("/")(lambda: "Hello, world!")
    app.add_url_rule("/users/show/<int:id>", "show", lambda id: f"user {id}")
    return {"hello": (app, environ("/")), "/users/show/7": (app, environ("/users/show/7"))}


def pyramid() -> dict[str, tuple[App, dict[str, Any]]]:
    from pyramid.config import Configurator
    from pyramid.response import Response

    with Configurator() as config:
        config.add_route("hello", "/")
        config.add_route("show", r"/users/show/{id:\d+}")
        config.add_view(lambda request: Response("Hello, world!"), route_name="hello")
        config.add_view(lambda request: Response(f"user {int(request.matchdict['id'])}"), route_name="show")
        app = config.make_wsgi_app()
    return {"hello": (app, environ("/")), "/users/show/7": (app, environ("/users/show/7"))}


def of_cherrypy(cherrypy: Any) -> dict[str, tuple[App, dict[str, Any]]]:
    """Return the pages of a program for CherryPy, with the module that it imports by this name."""

    class Users:
        @cherrypy.expose
        def show(self, id: str) -> str:
            return f"user {int(id)}"

    class Root:
        users = Users()

        @cherrypy.expose
        def index(self) -> str:
            return "Hello, world!"

    cherrypy.config.update({"log.screen": False})
    app = cherrypy.Application(Root())
    return {"hello": (app, environ("/")), "/users/show/7": (app, environ("/users/show/7"))}


def cherrypy() -> dict[str, tuple[App, dict[str, Any]]]:
    import cherrypy

    return of_cherrypy(cherrypy)


def kirsch_cherrypy() -> dict[str, tuple[App, dict[str, Any]]]:
    import kirsch_cherrypy

    return of_cherrypy(kirsch_cherrypy)


# ASGI


class OverASGI:
    """An application of ASGI. Its figures are of requests that follow each other in one event loop."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.loop = asyncio.new_event_loop()

    def timed(self, request: dict[str, Any], calls: int = 500) -> float:
        return self.loop.run_until_complete(self._timed(request, calls))

    async def _timed(self, request: dict[str, Any], calls: int) -> float:
        headers = [
            (name[5:].lower().replace("_", "-").encode(), value.encode())
            for name, value in request.items()
            if name.startswith("HTTP_")
        ]
        path = request["PATH_INFO"]
        scopes = [
            {
                "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1",
                "method": "GET", "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
                "root_path": "", "headers": list(headers), "client": ("127.0.0.1", 5000),
                "server": ("127.0.0.1", 8000), "state": {}, "extensions": {},
            }
            for _ in range(calls)
        ]  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            assert message.get("status", 200) == 200, message

        start = time.process_time()
        for scope in scopes:
            await self.app(scope, receive, send)
        return (time.process_time() - start) / calls * 1e6

    async def start(self) -> None:
        """Run the start-up of the lifespan, which some frameworks need."""
        messages = [{"type": "lifespan.startup"}]
        started = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.sleep(10**6)
            return {}

        async def send(_message: dict[str, Any]) -> None:
            started.set()

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self.lifespan = asyncio.ensure_future(self.app(scope, receive, send))
        await started.wait()


def over_asgi(app: Any, starts: bool = False) -> dict[str, tuple[Any, dict[str, Any]]]:
    found = OverASGI(app)
    if starts:
        found.loop.run_until_complete(found.start())
    return {"ASGI hello": (found, environ("/")), "ASGI /users/show/7": (found, environ("/users/show/7"))}


def bare_asgi() -> dict[str, tuple[Any, dict[str, Any]]]:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"13")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"Hello, world!"})

    return over_asgi(app)


def kirsch_asgi() -> dict[str, tuple[Any, dict[str, Any]]]:
    @web.publish
    class Users:
        async def show(self, id: int) -> str:
            return f"user {id}"

    class Root:
        users = Users()

        async def index(self) -> str:
            return "Hello, world!"

    return over_asgi(web.ASGI(web.App(Root())))


def blacksheep() -> dict[str, tuple[Any, dict[str, Any]]]:
    from blacksheep import Application, get

    app = Application()

    @get("/")
    async def hello() -> str:
        return "Hello, world!"

    @get("/users/show/{int:id}")
    async def show(id: int) -> str:
        return f"user {id}"

    return over_asgi(app, starts=True)


def starlette() -> dict[str, tuple[Any, dict[str, Any]]]:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def hello(request: Any) -> Any:
        return PlainTextResponse("Hello, world!")

    async def show(request: Any) -> Any:
        return PlainTextResponse(f"user {request.path_params['id']}")

    return over_asgi(Starlette(routes=[Route("/", hello), Route("/users/show/{id:int}", show)]))


def litestar() -> dict[str, tuple[Any, dict[str, Any]]]:
    from litestar import Litestar, MediaType, get

    @get("/", media_type=MediaType.TEXT)
    async def hello() -> str:
        return "Hello, world!"

    @get("/users/show/{id:int}", media_type=MediaType.TEXT)
    async def show(id: int) -> str:
        return f"user {id}"

    return over_asgi(Litestar([hello, show], logging_config=None, openapi_config=None))


def falcon_asgi() -> dict[str, tuple[Any, dict[str, Any]]]:
    import falcon.asgi

    class Hello:
        async def on_get(self, req: Any, resp: Any) -> None:
            resp.text = "Hello, world!"

    class User:
        async def on_get(self, req: Any, resp: Any, id: int) -> None:
            resp.text = f"user {id}"

    app = falcon.asgi.App()
    app.add_route("/", Hello())
    app.add_route("/users/show/{id:int}", User())
    return over_asgi(app)


ALL = {
    each.__name__: each
    for each in (
        bare, kirsch, falcon, pyramid, bottle, flask, cherrypy, kirsch_cherrypy,
        bare_asgi, kirsch_asgi, falcon_asgi, blacksheep, starlette, litestar,
    )
}  # fmt: skip


def import_time(module: str) -> float:
    """Milliseconds of processor time of an import beyond starting Python, the best of ten, from compiled files."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return (min(run(f"import {module}") for _ in range(10)) - min(run("pass") for _ in range(10))) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    subjects: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = {}
    for name, make in ALL.items():
        if arguments.only and name not in arguments.only.split(","):
            continue
        try:
            found = make()
        except ImportError:
            print(f"{name}: not installed")
            continue
        subjects.update({(name, job): subject for job, subject in found.items()})
    best: dict[tuple[str, str], float] = {}
    for _ in range(arguments.repeat):
        for key, (app, request) in subjects.items():
            best[key] = min(best.get(key, 1e9), timed(app, request))
    print(f"Python {sys.version.split()[0]}, microseconds, best of {arguments.repeat}")
    for (name, job), figure in best.items():
        print(f"  {name:15} {job:22} {figure:8.2f}")
    print(f"  import kirsch_web: {import_time('kirsch_web'):.1f} ms")


if __name__ == "__main__":
    main()
