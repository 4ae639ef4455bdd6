"""The messages that an ASGI application sends: what makes up a dict does not matter, only its entries do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interpreter import READS_DICTS_DIRECTLY
from raw import build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

# Each makes another dict of the same entries.
MADE = {
    "as it is": "message",
    "in another order": "dict(reversed(message.items()))",
    "of keys of its own": "{''.join(list(key)): value for key, value in message.items()}",
    "of keys of a class of its own": "{Text(key): value for key, value in message.items()}",
    "of which some keys are its own": "{**message, ''.join(['sta', 'tus']): 201, ''.join(['mo', 're']): 0}",
    "with others before": "{'other': None, 0: None, **message}",
    "with others behind": "{**message, 'other': None, 0: None}",
    "of which some were deleted": "without({'gone': 0, **message, 'past': 0}, 'gone', 'past')",
}
if READS_DICTS_DIRECTLY:
    MADE["of a class of its own"] = "Dict(message)"


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_message_is_understood_whatever_its_dict_is_made_of(
    serve: Serve, write_app: Callable[[str], str], made: str
) -> None:
    name = write_app(f"""
        class Text(str):
            pass

        class Dict(dict):
            def __getitem__(self, key):
                raise AssertionError

        def without(message, *keys):
            for key in keys:
                del message[key]
            return message

        def make(message):
            return {made}

        async def app(scope, receive, send):
            assert scope["type"] == "http"
            headers = [(b"x-this", b"that")]
            await send(make({{"type": "http.response.start", "status": 201, "headers": headers}}))
            await send(make({{"type": "http.response.body", "body": b"first ", "more_body": True}}))
            await send(make({{"type": "http.response.body", "body": b"last"}}))
    """)
    site = serve(f"{name}:app")
    answer = exchange(site.host, site.port, build_request("GET", "/"))
    assert (answer.status, answer.header("x-this"), answer.body) == (201, "that", b"first last")


@pytest.mark.parametrize("entry", ["status", "type"])
def test_message_without_a_required_entry_is_told_which(
    serve: Serve, write_app: Callable[[str], str], entry: str
) -> None:
    name = write_app(f"""
        async def app(scope, receive, send):
            assert scope["type"] == "http"
            message = {{"type": "http.response.start", "status": 200, "headers": []}}
            del message["{entry}"]
            await send(message)
    """)
    site = serve(f"{name}:app")
    assert exchange(site.host, site.port, build_request("GET", "/")).status == 500
    site.stop()
    assert f"has no '{entry}'" in site.stderr
