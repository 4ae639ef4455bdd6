"""One small application in each ASGI framework: pages that wait, streams, uploads, dependencies, background work."""

from __future__ import annotations

import asyncio
from typing import Any

import quart as quart_framework
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from fastapi import Depends, FastAPI, UploadFile
from litestar import Litestar
from litestar import get as litestar_get
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import FileResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

background: list[str] = []


async def _numbers() -> Any:
    for number in range(5):
        yield b"%d\n" % number
        await asyncio.sleep(0)


async def _later(text: str) -> None:
    await asyncio.sleep(0)
    background.append(text)


def _sync(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("in a thread")


async def _hello(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def _stream(_request: Any) -> StreamingResponse:
    return StreamingResponse(_numbers())


async def _file(_request: Any) -> FileResponse:
    return FileResponse(__file__)


async def _background(_request: Any) -> PlainTextResponse:
    return PlainTextResponse(",".join(background), background=BackgroundTask(_later, "done"))


async def _body(request: Any) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


class _Middleware(BaseHTTPMiddleware):
    async def dispatch(self, request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Middleware"] = "yes"
        return response


starlette = Starlette(
    routes=[
        Route("/", _hello),
        Route("/sync", _sync),
        Route("/stream", _stream),
        Route("/file", _file),
        Route("/background", _background),
        Route("/body", _body, methods=["POST"]),
    ]
)
starlette.add_middleware(_Middleware)

fastapi = FastAPI()


async def _dependency() -> Any:
    yield 7


@fastapi.get("/")
async def fastapi_hello(number: int = Depends(_dependency)) -> dict[str, int]:
    return {"number": number}


@fastapi.get("/sync")
def fastapi_sync() -> str:
    return "in a thread"


@fastapi.post("/upload")
async def fastapi_upload(file: UploadFile) -> dict[str, Any]:
    return {"name": file.filename, "bytes": len(await file.read())}


quart = quart_framework.Quart("quart")


@quart.route("/")
async def quart_hello() -> str:
    return "hello"


@quart.route("/body", methods=["POST"])
async def quart_body() -> str:
    return str(len(await quart_framework.request.get_data()))


@litestar_get("/")
async def litestar_hello() -> str:
    return "hello"


litestar = Litestar([litestar_hello])

settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="none", ALLOWED_HOSTS=["*"], MIDDLEWARE=[])


async def django_hello(_request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse("hello")


def django_body(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(len(request.body)))


urlpatterns = [path("", django_hello), path("body", django_body)]
django = get_asgi_application()
