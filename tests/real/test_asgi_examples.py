"""The ASGI applications in ``examples``, as their first lines say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from websockets.sync.client import connect

from proc import wait_until

if TYPE_CHECKING:
    import requests

    from running import Serve

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PATIENCE = 20.0


def test_notes_are_added_read_and_exported(serve: Serve, browser: requests.Session, tmp_path: Path) -> None:
    site = serve("notes:app", cwd=EXAMPLES, env={"NOTES": str(tmp_path / "notes.db")})
    for number, text in enumerate(["milk", "tea", "bread"], 1):
        added = browser.post(f"{site.url}/notes", params={"text": text}, timeout=PATIENCE)
        assert (added.status_code, added.json()) == (201, {"id": number})
    assert browser.post(f"{site.url}/notes", params={"text": " "}, timeout=PATIENCE).status_code == 422
    assert browser.get(f"{site.url}/notes/2", timeout=PATIENCE).json() == {"id": 2, "text": "tea"}
    assert browser.get(f"{site.url}/notes/9", timeout=PATIENCE).json() == {"detail": "there is no note 9"}
    export = browser.get(f"{site.url}/export", timeout=PATIENCE)
    assert export.text == "1\tmilk\n2\ttea\n3\tbread\n"
    assert export.headers["Content-Type"].startswith("text/tab-separated-values")
    assert site.stop() == 0
    assert site.stdout == "the last request is done\n"


def test_clock_ticks_until_its_page_is_closed(serve: Serve, browser: requests.Session) -> None:
    site = serve("clock:app", cwd=EXAMPLES)
    assert "EventSource" in browser.get(f"{site.url}/", timeout=PATIENCE).text
    assert browser.get(f"{site.url}/absent", timeout=PATIENCE).status_code == 404
    with browser.get(f"{site.url}/events", stream=True, timeout=PATIENCE) as response:
        assert response.raw.read(len("data: 12:00:00\n\n"), decode_content=True)[:6] == b"data: "
        assert "closed" not in site.stdout
    wait_until(lambda: site.stdout.splitlines() == ["a page is open", "a page is closed"], "the example has noticed")


def test_chat_tells_everybody_in_the_room(serve: Serve, browser: requests.Session) -> None:
    site = serve("chat:app", cwd=EXAMPLES)
    assert "new WebSocket" in browser.get(f"{site.url}/", timeout=PATIENCE).text
    url = f"ws://{site.host}:{site.port}/"
    with connect(url, proxy=None) as ann, connect(url, proxy=None) as bob:
        for text in ("hello", "grüße"):
            ann.send(text)
            # Bob may have entered the room after the first message.
            assert ann.recv(timeout=PATIENCE) == text
        bob.send("bye")
        assert ann.recv(timeout=PATIENCE) == "bye"
        while bob.recv(timeout=PATIENCE) != "bye":
            pass
    assert "Traceback" not in site.stderr
