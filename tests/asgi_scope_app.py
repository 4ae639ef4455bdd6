"""Does something to the scope of every other request, and says of each request what scope it got."""

from __future__ import annotations

import json
import weakref
from typing import Any


class Left:
    """Marks that a request leaves in its scope."""


LEFT: list[weakref.ref[Left]] = []
KEPT: list[Any] = []
number = 0


def leave() -> Left:
    left = Left()
    LEFT.append(weakref.ref(left))
    return left


def own(scope: dict[str, Any]) -> list[Any]:
    """Returns the objects of a scope that belong to the request alone."""
    extensions = scope["extensions"]
    return [scope, scope["asgi"], scope["headers"], extensions, next(iter(extensions.values()))]


def move_key(scope: dict[str, Any]) -> None:
    scope["path"] = scope.pop("path")


def replace_all_extensions(scope: dict[str, Any]) -> None:
    # As many references as the server's own dict would have.
    KEPT.append({})
    extensions = scope["extensions"]
    for name in list(extensions)[1:]:
        extensions[name] = KEPT[-1]


CHANGES: dict[str, Any] = {
    "adds a key": lambda scope: scope.update(left=leave()),
    "sets a key": lambda scope: scope.update(path=leave()),
    "sets a key to None": lambda scope: scope.update(asgi=None),
    "sets an equal value": lambda scope: scope.update(path="".join(list("/scope"))),
    "deletes a key": lambda scope: scope.pop("scheme"),
    "moves a key": move_key,
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


async def app(scope: dict[str, Any], _: Any, send: Any) -> None:
    global number
    assert scope["type"] == "http"
    found = {
        "scope": [[key, str(value)] for key, value in scope.items()],
        "ids": [id(each) for each in own(scope)],
        "left": any(left() is not None for left in LEFT),
        "kept": any(each is kept for each in own(scope) for kept in KEPT),
    }
    index, is_to_change = divmod(number, 2)
    number += 1
    body = json.dumps(found).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    if is_to_change:
        list(CHANGES.values())[index % len(CHANGES)](scope)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def untouching(scope: dict[str, Any], _: Any, send: Any) -> None:
    assert scope["type"] == "http"
    body = json.dumps({"ids": [id(each) for each in own(scope)]}).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})
