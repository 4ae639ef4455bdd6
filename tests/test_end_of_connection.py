"""Over TCP the end of a connection leaves in the packet that has the last byte of its response, and never without it.

That is a packet less. And a client that has read that byte and looks at the connection, as web servers do before they
send a further request on it, cannot take it for one that is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING

import pytest

from gateway_clients import COMPLETE, Broken, FastCgi, request, scgi, uwsgi, variables
from interpreter import needs_gevent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packets are counted with Linux' TCP_INFO")

TESTS = os.path.dirname(__file__)
PATIENCE = 30.0
# When the kernel acknowledges is a matter of time, so the fewest packets of some exchanges are compared.
TIMES = 20


def packets(sock: socket.socket) -> int:
    """How many packets have been received (``tcpi_segs_in``)."""
    (count,) = struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 144), 140)
    return int(count)


def fewest(exchange: Callable[[], int]) -> int:
    return min(exchange() for _ in range(TIMES))


def test_http_response_that_closes_needs_no_packet_for_the_end(serve: Serve) -> None:
    running = serve("gateway_app:app", env={"PYTHONPATH": TESTS})
    head = "GET /status?200 HTTP/1.1\r\nHost: a\r\n"

    def ask(fields: str, length: int | None) -> tuple[int, int]:
        """Packets and bytes until so many bytes have come, or the end."""
        with socket.create_connection((running.host, running.port), PATIENCE) as sock:
            sock.sendall(f"{head}{fields}\r\n".encode())
            received = 0
            while received != length and (part := sock.recv(1 << 20)):
                received += len(part)
            return packets(sock), received

    closing = "Connection: close\r\n"
    # A response that keeps the connection does not say so.
    length = ask(closing, None)[1] - len(closing)
    assert fewest(lambda: ask(closing, None)[0]) == fewest(lambda: ask("", length)[0])


def fastcgi(serve: Serve) -> tuple[Running, tuple[str, int]]:
    running = serve("gateway_app:app", "--bind", "fastcgi:127.0.0.1:0", env={"PYTHONPATH": TESTS})
    return running, ("127.0.0.1", int(running.wait_for(r"^on .*fastcgi:127\.0\.0\.1:(\d+)$")[1]))


def ask_and_see_the_end(front: FastCgi, *, keep: bool = True) -> int:
    """One more request of Apache's. Returns the packets that its response and the end of the connection have taken."""
    before = packets(front.socket)
    front.send(request(1, variables(SERVER_SOFTWARE="Apache/2.4"), keep=keep))
    assert front.response()[2] == COMPLETE
    assert front.is_closed()
    return packets(front.socket) - before


def ask_on_kept(front: FastCgi) -> int:
    before = packets(front.socket)
    assert front.ask(SERVER_SOFTWARE="Apache/2.4").status == 200
    return packets(front.socket) - before


def test_fastcgi_response_needs_no_packet_for_the_end(serve: Serve) -> None:
    running, address = fastcgi(serve)
    with contextlib.ExitStack() as stack:
        fronts = [stack.enter_context(FastCgi(address)) for _ in range(3 * TIMES + 1)]
        # Of a connection that has been used, the kernel acknowledges a request with its response.
        kept = [[ask_on_kept(front) for front in fronts] for _ in range(3)][-1]
        assert min(ask_and_see_the_end(front, keep=False) for front in fronts[:TIMES]) == min(kept)
        running.send(signal.SIGTERM)
        first, *others = fronts[TIMES:]
        with contextlib.suppress(Broken, OSError):
            while True:
                first.ask(SERVER_SOFTWARE="Apache/2.4")
        # The worker drains now.
        assert min(map(ask_and_see_the_end, others)) == min(kept)


# Answers when the test says so. The socket blocks the thread under each driver: greenlets and coroutines stop with it.
APP = """
import os, socket

def wait():
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(os.environ["TALK"])
    talk.recv(1)
    talk.close()

def app(environ, start_response):
    wait()
    start_response("200 OK", [("Content-Length", "6")])
    return [b"answer"]

async def asgi(scope, receive, send):
    assert scope["type"] == "http"
    wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
    await send({"type": "http.response.body", "body": b"answer"})
"""
REQUESTS = {
    "http": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "fastcgi": request(1, variables(), keep=False),
    "scgi": scgi(variables()),
    "uwsgi": uwsgi(variables()),
}
DRIVERS = {
    "threads": ("app", "--threads", "4"),
    "one thread": ("app", "--threads", "1"),
    "gevent": ("app", "--driver", "gevent"),
    "asyncio": ("asgi", "--lifespan", "off"),
}
# ASGI applications are served over HTTP alone.
SERVED = [
    (driver, protocol) for driver in DRIVERS for protocol in REQUESTS if driver != "asyncio" or protocol == "http"
]


@pytest.mark.parametrize(("driver", "protocol"), SERVED)
def test_bytes_behind_the_last_request_do_not_destroy_its_response(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path, driver: str, protocol: str
) -> None:
    """They have arrived, and the server has not read them, when it sends the response and closes the connection."""
    if driver == "gevent":
        needs_gevent()
    name, *args = DRIVERS[driver]
    address = "" if protocol == "http" else f"{protocol}:"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "talk"))
        listener.listen()
        listener.settimeout(PATIENCE)
        running = serve(
            f"{write_app(APP)}:{name}", "--bind", f"{address}127.0.0.1:0", *args, env={"TALK": str(tmp_path / "talk")}
        )
        port = int(running.wait_for(r"^on .*127\.0\.0\.1:(\d+)$")[1])
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                client.sendall(REQUESTS[protocol])
                talk, _ = listener.accept()
                client.sendall(b"x")  # too little for any protocol to refuse
                talk.sendall(b".")
                talk.close()
                received = b""
                with contextlib.suppress(ConnectionResetError):
                    while part := client.recv(1 << 16):
                        received += part
            assert b"answer" in received, received
