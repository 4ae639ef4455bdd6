"""The HTTP-level tests over real sockets: with WEB_SERVER=kirsch every client of a test asks Kirsch, which serves its
application.

In process, the default, a client calls the application through ``wsgiref.validate``. ``tests/test_web_served.py`` at
the top of the repository runs the slice that a server can answer.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import kirsch_web as web
from kirsch_web import testing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVER = os.environ.get("WEB_SERVER", "")


class ServedReply(testing.Reply):
    """A response of a server, whose error log is a file of its own."""

    errors = property(
        lambda _self: pytest.skip("reads the error log, which is the server's own"), lambda _self, _value: None
    )


class Calls:
    """An application, and how many of its calls have not ended: a client has its response before the call ends."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._running = 0
        self._changed = threading.Condition()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        with self._changed:
            self._running += 1
        try:
            result = self._app(environ, start_response)
        except BaseException:
            self._end()
            raise
        if not hasattr(result, "close") or isinstance(result, environ["wsgi.file_wrapper"]):
            self._end()
            return result
        return Closing(result, self._end)

    def _end(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._running, 30), "a call does not end"


class Closing:
    """A response whose end is noticed."""

    def __init__(self, result: Any, end: Callable[[], None]) -> None:
        self._result = result
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._result)

    def close(self) -> None:
        try:
            self._result.close()
        finally:
            self._end()


class ServedClient(testing.Client):
    """A client that serves its application by Kirsch, in this process. A request has ended when its call has."""

    _running: list[tuple[Any, threading.Thread]] = []
    _calls: Calls | None = None

    def __init__(self, app: Any = None, server: bool | str = False, *, headers: Any = (), mount: str = "") -> None:
        if server is False and app is not None:
            self._calls = Calls(web.Mounts({mount: app}) if mount else app)
            super().__init__(app, f"http://{self._serve(self._calls)}", headers=headers)
            self.headers.setdefault("Host", "testserver")
            self.mount = mount
        else:
            super().__init__(app, server, headers=headers, mount=mount)

    @classmethod
    def _serve(cls, app: Any) -> str:
        import kirsch  # type: ignore[import-not-found, unused-ignore]

        # Some tests send header fields that are longer than Kirsch usually takes.
        limits: Any = {"limit_request_line": 65536, "limit_request_field_size": 524288, "limit_request_head": 1048576}
        server = kirsch.Server(app, bind="127.0.0.1:0", threads=2, graceful_timeout=1.0, **limits)
        server.listen()
        address: Any = server.addresses[0]
        thread = threading.Thread(target=server.start, daemon=True)
        thread.start()
        cls._running.append((server, thread))
        return f"{address[0]}:{address[1]}"

    def _ask(self, method: str, path: str, fields: Any, body: bytes) -> testing.Reply:
        reply = super()._ask(method, self.mount + path, fields, body)
        if self._calls is not None:
            self._calls.wait()
        return ServedReply(reply.status, reply.headers, reply.body)

    @classmethod
    def stop_all(cls) -> None:
        while cls._running:
            server, thread = cls._running.pop()
            server.stop()
            thread.join(30)
            assert not thread.is_alive(), "Kirsch does not stop"


if SERVER == "kirsch":
    testing.Client = ServedClient  # type: ignore[misc]
elif SERVER:
    raise pytest.UsageError(f"WEB_SERVER is kirsch or empty, not {SERVER!r}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SERVER:
        skip = pytest.mark.skip(reason="looks at an exception that a server does not pass on")
        for item in items:
            if item.get_closest_marker("in_process"):
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def _servers() -> Iterator[None]:
    yield
    ServedClient.stop_all()
