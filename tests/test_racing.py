"""Applications that use what belongs to a request from threads of their own, while and after its response ends.

PEP 3333 does not allow it and does not forbid it either; what must never happen is that another request notices. On an
interpreter with a lock this finds what is let go of in the middle; without one it is the place to look at first.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

import two_engines
from raw import MalformedResponse, PeerClosed, build_request
from running import COMMAND_VARIABLE
from waiting import HERE, PATIENCE, connect

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve

CLIENTS = 6
REQUESTS = 40

PAGES = {
    # page: statuses that the application may have brought about
    "write": {200},
    "stream": {200},
    "ask": {200},
    "start": {200, 500},
    "first": {200},
    "read": {200},
    "change": {200},
    "file": {200, 500},
    "keep": {200},
}


class Client(threading.Thread):
    """One connection after another, each with requests that are sent before the answer to the one before has come."""

    def __init__(self, site: Running, page: str, number: int) -> None:
        super().__init__()
        self._site = site
        self._page = page
        self._tokens = [f"{number:03d}-{request:04d}" for request in range(REQUESTS)]
        self.answered = 0
        self.cut = 0
        self.wrong: BaseException | None = None

    def run(self) -> None:
        try:
            while self._tokens:
                self._talk()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.wrong = error

    def _talk(self) -> None:
        with connect(self._site) as peer:
            while self._tokens:
                batch = self._tokens[:2]
                peer.send(b"".join(self._request(token) for token in batch))
                for token in batch:
                    self._tokens.remove(token)
                    try:
                        response = peer.read_response()
                    except PeerClosed:
                        self.cut += 1  # visibly, and the rest of the batch was not answered
                        return
                    except MalformedResponse:
                        raise
                    self._check(response.status, response.header("X-Token"), response.body, token)
                    if not response.complete or response.header("Connection") == "close":
                        self.cut += not response.complete
                        return
                    self.answered += 1

    def _request(self, token: str) -> bytes:
        return build_request("POST", f"/{self._page}?{token}", body=b"body of " + token.encode())

    def _check(self, status: int, header: str | None, body: bytes, token: str) -> None:
        assert status in PAGES[self._page], (token, status, body[:200])
        if status == 200:
            assert header == token, "a response has another's header"
            wanted = token.encode() * (len(body) // len(token) + 1)
            assert wanted.startswith(body), f"{token}: a response has bytes of another's: {body[:200]!r}"


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("engines", [1, 2])
def test_strangers_are_never_noticed_by_another_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: str, engines: int
) -> None:
    if engines == 2:
        monkeypatch.setenv(COMMAND_VARIABLE, two_engines.COMMAND)
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))
    arguments = ["--threads", "4", "--workers", "0"]
    if page == "read":
        arguments += ["--request-buffering", "off"]
    site = serve("racing_app:app", *arguments, env={"PYTHONPATH": path, "RACING_FILES": str(tmp_path)})
    clients = [Client(site, page, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(PATIENCE * 2)
        assert not client.is_alive(), "a client waits for an answer"
    for client in clients:
        if client.wrong is not None:
            raise client.wrong
    answered = sum(client.answered for client in clients)
    cut = sum(client.cut for client in clients)
    print(f"{answered} were answered, {cut} were cut")
    assert answered, "nothing was answered"
    site.stop()
