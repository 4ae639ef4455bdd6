"""Does something to the dict of the fourth request of each connection, and says of each request what dict it got.

The server knows a header block from its second time on, and the dict of the third request is one that came back.
"""

from __future__ import annotations

import json
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Left:
    """Marks that a request leaves in its scope."""


LEFT: list[weakref.ref[Left]] = []
KEPT: list[Any] = []
REQUESTS: Counter[Any] = Counter()
CHANGED_AT = 4


def leave() -> Left:
    left = Left()
    LEFT.append(weakref.ref(left))
    return left


def own(scope: dict[str, Any]) -> list[Any]:
    """Returns the objects of a scope that belong to the request alone."""
    extensions = scope["extensions"]
    return [scope, scope["asgi"], scope["headers"], extensions, next(iter(extensions.values()))]


def move(request: dict[str, Any], key: str) -> None:
    request[key] = request.pop(key)


def replace_all_extensions(scope: dict[str, Any]) -> None:
    # As many references as the server's own dict would have.
    KEPT.append({})
    extensions = scope["extensions"]
    for name in list(extensions)[1:]:
        extensions[name] = KEPT[-1]


SCOPE_CHANGES: dict[str, Any] = {
    "adds a key": lambda scope: scope.update(left=leave()),
    "sets a key": lambda scope: scope.update(path=leave()),
    "sets a key to None": lambda scope: scope.update(asgi=None),
    "sets an equal value": lambda scope: scope.update(path="".join(list("/scope"))),
    "deletes a key": lambda scope: scope.pop("scheme"),
    "moves a key": lambda scope: move(scope, "path"),
    "replaces its headers": lambda scope: scope.update(headers=[leave()]),
    "adds a header": lambda scope: scope["headers"].append(leave()),
    "replaces a header": lambda scope: scope["headers"].__setitem__(0, (b"host", leave())),
    "deletes a header": lambda scope: scope["headers"].pop(),
    "changes the versions": lambda scope: scope["asgi"].update(version="2.0"),
    "adds to the versions": lambda scope: scope["asgi"].update(left=leave()),
    "adds an extension": lambda scope: scope["extensions"].update(left=leave()),
    "deletes an extension": lambda scope: scope["extensions"].popitem(),
    "replaces an extension": lambda scope: scope["extensions"].update({"http.response.pathsend": {}}),
    "replaces all extensions but one": replace_all_extensions,
    "fills an extension": lambda scope: own(scope)[-1].update(left=leave()),
    "clears it": lambda scope: scope.clear(),
    "keeps the scope": lambda scope: KEPT.append(scope),
    "keeps the versions": lambda scope: KEPT.append(scope["asgi"]),
    "keeps the headers": lambda scope: KEPT.append(scope["headers"]),
    "keeps the extensions": lambda scope: KEPT.append(scope["extensions"]),
    "keeps an extension": lambda scope: KEPT.append(own(scope)[-1]),
}


ENVIRON_CHANGES: dict[str, Any] = {
    "adds a key": lambda environ: environ.update(left=leave()),
    "sets a key": lambda environ: environ.update(PATH_INFO=leave()),
    "sets an equal value": lambda environ: environ.update(PATH_INFO="".join(list("/request"))),
    "deletes a key": lambda environ: environ.pop("SCRIPT_NAME"),
    "moves a key": lambda environ: move(environ, "PATH_INFO"),
    "replaces its input": lambda environ: environ.update({"wsgi.input": leave()}),
    "replaces what is set for each request": lambda environ: environ.update({"kirsch.disconnected": leave()}),
    "deletes what is set for each request": lambda environ: environ.pop("kirsch.disconnected"),
    "moves what is set for each request": lambda environ: move(environ, "kirsch.disconnected"),
    "clears it": lambda environ: environ.clear(),
    "keeps the environ": KEPT.append,
}


def found(request: dict[str, Any], own: list[Any]) -> bytes:
    return json.dumps(
        {
            "request": [[key, value if isinstance(value, str) else str(type(value))] for key, value in request.items()],
            "ids": [id(each) for each in own],
            "left": any(left() is not None for left in LEFT),
            "kept": any(each is kept for each in own for kept in KEPT),
        }
    ).encode()


def change(request: dict[str, Any], connection: Any, changes: dict[str, Any]) -> None:
    REQUESTS[connection] += 1
    if REQUESTS[connection] == CHANGED_AT:
        list(changes.values())[len(REQUESTS) - 1](request)


async def app(scope: dict[str, Any], _: Any, send: Any) -> None:
    assert scope["type"] == "http"
    body, connection = found(scope, own(scope)), scope["client"]
    change(scope, connection, SCOPE_CHANGES)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body, connection = found(environ, [environ]), environ["REMOTE_PORT"]
    change(environ, connection, ENVIRON_CHANGES)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def untouching(scope: dict[str, Any], _: Any, send: Any) -> None:
    assert scope["type"] == "http"
    body = found(scope, own(scope))
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def untouching_wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = found(environ, [environ])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
