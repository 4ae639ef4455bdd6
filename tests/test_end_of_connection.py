"""Over TCP the end of a connection leaves in the packet that has the last byte of its last response.

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

from gateway_clients import COMPLETE, Broken, FastCgi, request, variables

if TYPE_CHECKING:
    from collections.abc import Callable

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
