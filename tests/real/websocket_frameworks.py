"""WebSockets in frameworks, written as their users write them."""

from __future__ import annotations

import fastapi as fastapi_package
import litestar as litestar_package
import quart as quart_package
from starlette.applications import Starlette
from starlette.endpoints import WebSocketEndpoint
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket  # noqa: TC002  # FastAPI reads the annotation


class Echo(WebSocketEndpoint):
    encoding = "text"

    async def on_receive(self, websocket: WebSocket, data: str) -> None:
        await websocket.send_text(data.upper())


starlette = Starlette(routes=[WebSocketRoute("/echo", Echo)])

fastapi = fastapi_package.FastAPI()


async def token(token: str = "") -> str:
    if token == "wrong":
        raise fastapi_package.WebSocketException(code=1008, reason="no such token")
    return token


@fastapi.websocket("/echo")
async def echo(websocket: WebSocket, token: str = fastapi_package.Depends(token)) -> None:
    await websocket.accept(subprotocol=next(iter(websocket.scope["subprotocols"]), None))
    try:
        while True:
            await websocket.send_text((await websocket.receive_text()).upper())
    except fastapi_package.WebSocketDisconnect as error:
        print(f"disconnected with {error.code}", flush=True)


quart = quart_package.Quart(__name__)


@quart.websocket("/echo")
async def quart_echo() -> None:
    while True:
        await quart_package.websocket.send((await quart_package.websocket.receive()).upper())


@litestar_package.websocket("/echo")
async def litestar_echo(socket: litestar_package.WebSocket) -> None:
    await socket.accept()
    while True:
        await socket.send_text((await socket.receive_text()).upper())


litestar = litestar_package.Litestar([litestar_echo])
