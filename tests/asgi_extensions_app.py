"""An ASGI application that uses the extensions of HTTP responses: the path says how, an exception becomes the body."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path
from typing import Any

FILES = os.environ.get("FILES", "/nowhere")
LINKS = [b"</a.css>; rel=preload; as=style", b"</b.js>; rel=preload"]


def start(*headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": headers, **more}


def body(content: bytes, more_body: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more_body}


def path_send(path: Any) -> dict[str, Any]:
    return {"type": "http.response.pathsend", "path": path}


def zero_copy(file: Any, **more: Any) -> dict[str, Any]:
    return {"type": "http.response.zerocopysend", "file": file, **more}


def hint(links: Any) -> dict[str, Any]:
    return {"type": "http.response.early_hint", "links": links}


def trailers(*headers: Any, **more: Any) -> dict[str, Any]:
    return {"type": "http.response.trailers", "headers": headers, **more}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise ValueError("only http")
    name = scope["path"].lstrip("/")
    if name == "extensions":
        extensions = scope["extensions"]
        found = " ".join(sorted(extensions))
        extensions["http.response.pathsend"]["mine"] = extensions["mine"] = True
        await send(start())
        await send(body(found.encode()))
        return
    try:
        if name in MESSAGES:
            for message in MESSAGES[name]:
                await send(message)
        else:
            await globals()[name](send)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}".encode()
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send(body(said))


def file(name: str) -> str:
    return os.path.join(FILES, name)


MESSAGES: dict[str, list[dict[str, Any]]] = {
    # Right
    "path": [start((b"x-a", b"1")), path_send(file("big"))],
    "path-length": [start((b"content-length", b"10")), path_send(file("big"))],
    "path-empty": [start(), path_send(file("empty"))],
    "path-trailers": [start(trailers=True), path_send(file("small")), trailers((b"x-sum", b"1"))],
    "hint": [start(), hint(LINKS), hint((b"</c.png>; rel=preload",)), body(b"page")],
    "hint-first": [hint(LINKS[:1]), start(), body(b"page")],
    "hint-none": [start(), hint([]), body(b"page")],
    "hint-late": [start(), body(b"pa", more_body=True), hint(LINKS), body(b"ge")],
    "trailers": [
        start((b"trailer", b"x-sum, x-time"), trailers=True),
        body(b"bo", more_body=True),
        body(b"dy"),
        trailers((b"x-sum", b"1"), more_trailers=True),
        trailers([b"x-time", b"2"]),
    ],
    "trailers-length": [start((b"content-length", b"4"), trailers=True), body(b"body"), trailers((b"x-sum", b"1"))],
    "trailers-none": [start(trailers=True), body(b"body"), {"type": "http.response.trailers"}],
    # Wrong
    "path-first": [path_send(file("small"))],
}


async def hint_then_wait(send: Any) -> None:
    await asyncio.sleep(0)
    await send(start())
    await send(hint(LINKS[:1]))
    await send(body(b"page"))


async def zero_copies(send: Any) -> None:
    """Parts of a file among other parts: from an offset, from where it stands, by its descriptor, to its end."""
    await send(start())
    with Path(file("small")).open("rb") as opened:
        await send(zero_copy(opened, offset=6, count=4, more_body=True))
        assert opened.tell() == 0
        await send(body(b"|", more_body=True))
        assert opened.read(1) == b"0"
        await send(zero_copy(opened, count=2, more_body=True))
        await send(zero_copy(opened, count=2, more_body=True))
        os.lseek(opened.fileno(), 7, os.SEEK_SET)
        await send(zero_copy(opened.fileno(), offset=None, count=None, more_body=True))
        await send(zero_copy(opened, offset=100, more_body=True))
        await send(zero_copy(opened, offset=0, count=1000))


async def zero_copy_big(send: Any) -> None:
    await send(start())
    with Path(file("big")).open("rb") as opened:
        for number in range(8):
            await send(zero_copy(opened, count=1 << 20, more_body=number < 7))


async def wrong(send: Any) -> None:
    """Sends each of what is wrong, and answers with what each raised."""
    said = []
    big = Path(file("small")).open("rb")  # noqa: SIM115
    closed = Path(file("small")).open("rb")  # noqa: SIM115
    closed.close()
    text = Path(file("small")).open()  # noqa: SIM115
    read_end, write_end = os.pipe()

    async def attempt(message: dict[str, Any]) -> None:
        try:
            await send(message)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
        else:
            said.append("was taken")

    await attempt(path_send(file("small")))
    await attempt(zero_copy(big))
    await attempt(trailers())
    await attempt(hint("</a.css>"))
    await attempt(hint(["</a.css>"]))
    await attempt(hint([b"</a.css>\r\nx: y"]))
    await attempt({"type": "http.response.early_hint"})
    await send(start((b"x-a", b"1")))
    for message in (
        {"type": "http.response.pathsend"},
        path_send(file("absent")),
        path_send(FILES),
        path_send("small"),
        path_send(file("small").encode()),
        path_send(Path(file("small"))),
        path_send(file("pipe")),
        path_send(file("sm\0all")),
        {"type": "http.response.zerocopysend"},
        zero_copy(io.BytesIO(b"x")),
        zero_copy(closed),
        zero_copy(text),
        zero_copy("small"),
        zero_copy(read_end),
        zero_copy(-1),
        zero_copy(big, offset=-1),
        zero_copy(big, count="5"),
        zero_copy(big, count=True),
        trailers(),
    ):
        await attempt(message)
    await send(body("\n".join(said).encode(), more_body=True))
    said.clear()
    await attempt(path_send(file("small")))
    await send(body(b"\n" + "\n".join(said).encode()))
    for opened in (big, text):
        opened.close()
    os.close(read_end)
    os.close(write_end)


async def wrong_trailers(send: Any) -> None:
    await send(start(trailers=True))
    said = []
    for message in (
        trailers(),
        body(b"body"),
        body(b"more"),
        trailers((b"content-length", b"1")),
        trailers((b"a", b"b\r\nc: d")),
        trailers(("a", "b")),
        hint(LINKS),
    ):
        try:
            await send(message)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    await send(trailers((b"x-said", " // ".join(said).encode())))
    try:
        await send(trailers())
    except RuntimeError as error:
        print(f"behind the end: {error}", flush=True)


async def ends_without_trailers(send: Any) -> None:
    await send(start(trailers=True))
    await send(body(b"body"))
