"""The same eight pages in each framework; ``FRAMEWORK`` in the environment says which one ``app`` is.

    GET  /hello                        text
    GET  /user/7                       a whole number in the path
    GET  /json                         a small object as JSON
    GET  /row/DB /rows/DB /updates/DB  rows of a database as JSON
    GET  /fortunes/DB                  HTML of a template
    POST /form                         a multipart form with a file

Each is written as its framework's documentation writes it, in the least code, and without what it does not need: no
sessions, no logs, no debug pages. The SQL and the template are the same (``data.py``).
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import data

MESSAGE = {"message": data.HELLO}


def described(title: str, name: str, size: int) -> str:
    """What the form's page says."""
    return f"{title}: {name}, {size} bytes"


def bare() -> Any:
    """WSGI alone, for the pages that need no parser of forms."""
    import json

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"]
        kind = "text/plain"
        if path == "/hello":
            body = data.HELLO.encode()
        elif path.startswith("/user/"):
            body = f"user {int(path[6:])}".encode()
        elif path == "/json":
            kind, body = "application/json", json.dumps(MESSAGE).encode()
        elif path.startswith("/fortunes/"):
            kind, body = "text/html; charset=utf-8", data.fortunes(path[10:]).encode()
        else:
            _, page, database = path.split("/")
            kind, body = "application/json", json.dumps(data.PAGES[page](database)).encode()
        start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    return app


def kirsch_web() -> Any:
    global web  # annotations are texts, and name what is in the module
    import kirsch_web as web

    class Root:
        def hello(self) -> str:
            return data.HELLO

        def user(self, id: int) -> str:
            return f"user {id}"

        def json(self) -> dict[str, str]:
            return MESSAGE

        def row(self, database: str) -> dict[str, int]:
            return data.row(database)

        def rows(self, database: str) -> list[dict[str, int]]:
            return data.rows(database)

        def updates(self, database: str) -> list[dict[str, int]]:
            return data.updates(database)

        def fortunes(self, database: str) -> str:
            return data.fortunes(database)

        @web.post
        def form(self, title: str, file: web.Upload) -> str:
            return described(title, file.filename, file.size)

    return web.App(Root())


def _cherrypy_like(cherrypy: Any) -> Any:
    class Root:
        @cherrypy.expose
        def hello(self) -> str:
            return data.HELLO

        @cherrypy.expose
        def user(self, id: str) -> str:
            return f"user {int(id)}"

        @cherrypy.expose
        @cherrypy.tools.json_out()
        def json(self) -> Any:
            return MESSAGE

        @cherrypy.expose
        @cherrypy.tools.json_out()
        def row(self, database: str) -> Any:
            return data.row(database)

        @cherrypy.expose
        @cherrypy.tools.json_out()
        def rows(self, database: str) -> Any:
            return data.rows(database)

        @cherrypy.expose
        @cherrypy.tools.json_out()
        def updates(self, database: str) -> Any:
            return data.updates(database)

        @cherrypy.expose
        def fortunes(self, database: str) -> str:
            return data.fortunes(database)

        @cherrypy.expose
        def form(self, title: str, file: Any) -> str:
            return described(title, file.filename, len(file.file.read()))

    return Root()


def cherrypy() -> Any:
    import cherrypy

    cherrypy.config.update({"environment": "embedded", "log.screen": False})
    return cherrypy.Application(_cherrypy_like(cherrypy))


def compat() -> Any:
    """CherryPy's pages on kirsch_web."""
    from importlib import import_module

    layer: Any = import_module("kirsch_cherrypy")
    layer.config.update({"environment": "embedded", "log.screen": False})
    return layer.Application(_cherrypy_like(layer))


def flask() -> Any:
    from flask import Flask, jsonify, request

    app = Flask("pages")
    app.add_url_rule("/hello", "hello", lambda: data.HELLO)
    app.add_url_rule("/user/<int:id>", "user", lambda id: f"user {id}")
    app.add_url_rule("/json", "json", lambda: jsonify(MESSAGE))
    app.add_url_rule("/fortunes/<database>", "fortunes", data.fortunes)
    for name, page in data.PAGES.items():
        app.add_url_rule(f"/{name}/<database>", name, lambda database, page=page: jsonify(page(database)))

    def form() -> str:
        file: Any = request.files["file"]
        return described(request.form["title"], file.filename, len(file.read()))

    app.add_url_rule("/form", "form", form, methods=["POST"])
    return app


def bottle() -> Any:
    import json

    import bottle

    app = bottle.Bottle()
    app.route("/hello")(lambda: data.HELLO)
    app.route("/user/<id:int>")(lambda id: f"user {id}")
    app.route("/json")(lambda: MESSAGE)
    app.route("/fortunes/<database>")(data.fortunes)

    def add(name: str, page: Any) -> None:
        def answer(database: str) -> str:
            bottle.response.content_type = "application/json"
            return json.dumps(page(database))

        app.route(f"/{name}/<database>")(answer)

    for name, page in data.PAGES.items():
        add(name, page)

    def form() -> str:
        file = bottle.request.files["file"]
        return described(bottle.request.forms["title"], file.raw_filename, len(file.file.read()))

    app.post("/form")(form)
    return app


def falcon() -> Any:
    import falcon

    class Text:
        def __init__(self, make: Any, content_type: str = falcon.MEDIA_TEXT) -> None:
            self.make, self.content_type = make, content_type

        def on_get(self, _request: Any, response: Any, **values: Any) -> None:
            response.content_type = self.content_type
            response.text = self.make(**values)

    class Media:
        def __init__(self, make: Any) -> None:
            self.make = make

        def on_get(self, _request: Any, response: Any, **values: Any) -> None:
            response.media = self.make(**values)

    class Form:
        def on_post(self, request: Any, response: Any) -> None:
            title, name, size = "", "", 0
            for part in request.get_media():
                if part.name == "title":
                    title = part.text
                else:
                    name, size = part.filename, len(part.get_data())
            response.content_type = falcon.MEDIA_TEXT
            response.text = described(title, name, size)

    app = falcon.App()
    app.add_route("/hello", Text(lambda: data.HELLO))
    app.add_route("/user/{id:int}", Text(lambda id: f"user {id}"))
    app.add_route("/json", Media(lambda: MESSAGE))
    app.add_route("/fortunes/{database}", Text(data.fortunes, falcon.MEDIA_HTML))
    for name, page in data.PAGES.items():
        app.add_route(f"/{name}/{{database}}", Media(page))
    app.add_route("/form", Form())
    return app


def pyramid() -> Any:
    from pyramid.config import Configurator
    from pyramid.response import Response

    def form(request: Any) -> Any:
        file = request.POST["file"]
        return Response(described(request.POST["title"], file.filename, len(file.file.read())))

    with Configurator() as config:

        def route(name: str, path: str, view: Any, **options: Any) -> None:
            config.add_route(name, path)
            config.add_view(view, route_name=name, **options)

        route("hello", "/hello", lambda _request: Response(data.HELLO))
        route("user", r"/user/{id:\d+}", lambda request: Response(f"user {int(request.matchdict['id'])}"))
        route("json", "/json", lambda _request: MESSAGE, renderer="json")
        route("fortunes", "/fortunes/{db}", lambda request: Response(data.fortunes(request.matchdict["db"])))
        for name, page in data.PAGES.items():
            route(name, f"/{name}/{{db}}", lambda request, page=page: page(request.matchdict["db"]), renderer="json")
        route("form", "/form", form, request_method="POST")
        return config.make_wsgi_app()


def django() -> Any:
    """With the middleware that a new project has for security and common duties, without sessions and accounts."""
    import django
    from django.conf import settings
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse, JsonResponse
    from django.urls import path

    def form(request: Any) -> Any:
        file = request.FILES["file"]
        return HttpResponse(described(request.POST["title"], file.name, len(file.read())))

    routes = [
        path("hello", lambda _request: HttpResponse(data.HELLO)),
        path("user/<int:id>", lambda _request, id: HttpResponse(f"user {id}")),
        path("json", lambda _request: JsonResponse(MESSAGE)),
        path("fortunes/<database>", lambda _request, database: HttpResponse(data.fortunes(database))),
        path("form", form),
    ]
    routes += [
        path(f"{name}/<database>", lambda _request, database, page=page: JsonResponse(page(database), safe=False))
        for name, page in data.PAGES.items()
    ]
    settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="of no use here",
        ROOT_URLCONF=type("Routes", (), {"urlpatterns": routes}),
        MIDDLEWARE=["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"],
        LOGGING_CONFIG=None,
    )
    django.setup()
    return WSGIHandler()


# ASGI. Pages that wait for a database are plain functions, which these frameworks run in threads, as their documents
# advise for drivers that block.


def starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
    from starlette.routing import Route

    async def hello(_request: Any) -> Any:
        return PlainTextResponse(data.HELLO)

    async def user(request: Any) -> Any:
        return PlainTextResponse(f"user {request.path_params['id']}")

    async def json(_request: Any) -> Any:
        return JSONResponse(MESSAGE)

    async def form(request: Any) -> Any:
        async with request.form() as found:
            file = found["file"]
            return PlainTextResponse(described(found["title"], file.filename, len(await file.read())))

    async def fortunes(request: Any) -> Any:
        return HTMLResponse(await run_in_threadpool(data.fortunes, request.path_params["database"]))

    def of(page: Any) -> Any:
        return lambda request: JSONResponse(page(request.path_params["database"]))

    return Starlette(
        routes=[
            Route("/hello", hello),
            Route("/user/{id:int}", user),
            Route("/json", json),
            Route("/form", form, methods=["POST"]),
            Route("/fortunes/{database}", fortunes),
            *(Route(f"/{name}/{{database}}", of(page)) for name, page in data.PAGES.items()),
        ]
    )


def fastapi() -> Any:
    from fastapi import FastAPI, File, Form, UploadFile
    from fastapi.responses import HTMLResponse, PlainTextResponse

    app = FastAPI(openapi_url=None)

    @app.get("/hello", response_class=PlainTextResponse)
    async def hello() -> Any:
        return data.HELLO

    async def user(id: int) -> Any:
        return f"user {id}"

    user.__annotations__ = {"id": int}
    app.get("/user/{id}", response_class=PlainTextResponse)(user)

    @app.get("/json")
    async def json() -> Any:
        return MESSAGE

    async def form(title, file) -> Any:  # type: ignore[no-untyped-def]
        return described(title, file.filename, len(await file.read()))

    # As types and not as text: the names are imported here.
    form.__annotations__ = {"title": str, "file": UploadFile}
    form.__defaults__ = (Form(), File())
    app.post("/form", response_class=PlainTextResponse)(form)

    def add(name: str, page: Any, **options: Any) -> None:
        def answer(database):  # type: ignore[no-untyped-def]
            return page(database)

        answer.__annotations__ = {"database": str}
        app.get(f"/{name}/{{database}}", **options)(answer)

    for name, page in data.PAGES.items():
        add(name, page)
    add("fortunes", data.fortunes, response_class=HTMLResponse)
    return app


def litestar() -> Any:
    from litestar import Litestar, MediaType, get, post
    from litestar.enums import RequestEncodingType
    from litestar.params import Body

    def made(decorator: Any, function: Any, annotations: dict[str, Any], **defaults: Any) -> Any:
        function.__annotations__ = annotations
        if defaults:
            function.__kwdefaults__ = defaults
        return decorator(function)

    async def hello() -> Any:
        return data.HELLO

    async def user(id) -> Any:  # type: ignore[no-untyped-def]
        return f"user {id}"

    async def json() -> Any:
        return MESSAGE

    async def form(data) -> Any:  # type: ignore[no-untyped-def]
        return described(data["title"], data["file"].filename, len(await data["file"].read()))

    multipart = Annotated[dict[str, Any], Body(media_type=RequestEncodingType.MULTI_PART)]

    def of(page: Any) -> Any:
        def answer(database):  # type: ignore[no-untyped-def]
            return page(database)

        return answer

    text = MediaType.TEXT
    handlers = [
        made(get("/hello", media_type=text), hello, {"return": str}),
        made(get("/user/{id:int}", media_type=text), user, {"id": int, "return": str}),
        made(get("/json"), json, {"return": dict[str, str]}),
        made(post("/form", media_type=text, status_code=200), form, {"data": multipart, "return": str}),
        made(
            get("/fortunes/{database:str}", media_type=MediaType.HTML, sync_to_thread=True),
            of(data.fortunes),
            {"database": str, "return": str},
        ),
    ]
    for name, page in data.PAGES.items():
        kind = dict[str, int] if name == "row" else list[dict[str, int]]
        handlers.append(
            made(get(f"/{name}/{{database:str}}", sync_to_thread=True), of(page), {"database": str, "return": kind})
        )
    return Litestar(handlers, openapi_config=None)


WSGI = {each.__name__: each for each in (bare, kirsch_web, compat, cherrypy, flask, bottle, falcon, pyramid, django)}
ASGI = {each.__name__: each for each in (starlette, fastapi, litestar)}
if "FRAMEWORK" in os.environ:
    app = {**WSGI, **ASGI}[os.environ["FRAMEWORK"]]()
