"""Flask and FastAPI in one process, below paths of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from websockets.sync.client import connect

if TYPE_CHECKING:
    from pathlib import Path

    import requests

    from running import Serve

FLASK = """
import threading

from flask import Flask, Response, request, url_for

app = Flask(__name__)


@app.get("/")
def index():
    return url_for("thread")


@app.get("/thread")
def thread():
    return threading.current_thread().name


@app.get("/stream")
def stream():
    return Response(f"{number}\\n" for number in range(5))


@app.post("/upload")
def upload():
    return str(len(request.files["file"].read()))


@app.get("/broken")
def broken():
    raise LookupError("in Flask")
"""

FASTAPI = """
import asyncio
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, UploadFile, WebSocket
from fastapi.responses import StreamingResponse


@asynccontextmanager
async def lifespan(app):
    yield {"database": "open"}
    print("FastAPI has shut down", flush=True)


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def index(request: Request):
    return {"docs": str(request.url_for("index")), "database": request.state.database}


@app.get("/sync")
def sync():
    return "in a thread"


@app.get("/stream")
async def stream():
    async def numbers():
        for number in range(5):
            yield f"{number}\\n"
            await asyncio.sleep(0)

    return StreamingResponse(numbers())


@app.post("/upload")
async def upload(file: UploadFile):
    return len(await file.read())


@app.get("/broken")
async def broken():
    raise LookupError("in FastAPI")


@app.websocket("/echo")
async def echo(websocket: WebSocket):
    await websocket.accept()
    await websocket.send_text((await websocket.receive_text()).upper())
    await websocket.close()
"""


def test_fastapi_and_flask_serve_side_by_side(serve: Serve, browser: requests.Session, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(FLASK, encoding="utf-8")
    (tmp_path / "new.py").write_text(FASTAPI, encoding="utf-8")
    site = serve("--mount=/shop=old:app", "--mount=/api=new:app", cwd=tmp_path)

    def get(path: str) -> str:
        response = browser.get(site.url + path, timeout=20)
        assert response.status_code == 200, response.text
        return response.text

    for _ in range(3):
        assert get("/shop/") == "/shop/thread"
        assert get("/shop/thread").startswith("kirsch-")
        assert json.loads(get("/api/")) == {"docs": f"{site.url}/api/", "database": "open"}
        assert json.loads(get("/api/sync")) == "in a thread"
        for mount in ("/shop", "/api"):
            assert get(f"{mount}/stream") == "0\n1\n2\n3\n4\n"
            upload = browser.post(f"{site.url}{mount}/upload", files={"file": ("a.bin", b"x" * 300_000)}, timeout=20)
            assert upload.text == "300000"
            assert browser.get(f"{site.url}{mount}/broken", timeout=20).status_code == 500
            assert browser.get(f"{site.url}{mount}/absent", timeout=20).status_code == 404
    # FastAPI's page of its API knows where it is.
    assert json.loads(get("/api/openapi.json"))["servers"] == [{"url": "/api"}]
    with connect(f"ws://{site.host}:{site.port}/api/echo", proxy=None, open_timeout=20) as client:
        client.send("hello")
        assert client.recv(timeout=20) == "HELLO"
    site.stop()
    assert "FastAPI has shut down" in site.stdout
    assert "LookupError: in FastAPI" in site.stderr
