"""Litestar: streams, server-sent events, background tasks, uploads, validation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from litestar import Litestar, get, post
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import UploadFile
from litestar.enums import RequestEncodingType
from litestar.params import Body
from litestar.response import Response, ServerSentEvent, Stream

done = asyncio.Event()


@dataclass
class Order:
    item: str
    count: int


async def _numbers() -> AsyncIterator[str]:
    for number in range(100):
        yield f"{number}\n"
        await asyncio.sleep(0)


@get("/stream")
async def stream() -> Stream:
    return Stream(_numbers())


@get("/events")
async def events() -> ServerSentEvent:
    return ServerSentEvent(_numbers(), event_type="tick")


@post("/order")
async def order(data: Order) -> Order:
    return Order(data.item.upper(), data.count + 1)


@post("/upload")
async def upload(data: Annotated[UploadFile, Body(media_type=RequestEncodingType.MULTI_PART)]) -> dict[str, Any]:
    return {"name": data.filename, "bytes": len(await data.read())}


async def _finish() -> None:
    done.set()


@post("/later")
async def later() -> Response[str]:
    return Response("accepted", background=BackgroundTask(_finish))


@get("/done")
async def wait_done() -> str:
    await asyncio.wait_for(done.wait(), 15)
    return "done"


app = Litestar([stream, events, order, upload, later, wait_done])
