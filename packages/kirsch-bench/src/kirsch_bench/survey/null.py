"""The null server: ``python -m kirsch_bench.survey.null HOST PORT BYTES``.

Its answers have a body of so many bytes and are otherwise as short as can be. It is ``_native.serve_null``: a loop in
the engine's poller that looks at no more of a request than where it ends.
"""

from __future__ import annotations

import signal
import socket
import sys

from kirsch_bench import _native

_BACKLOG = 4096


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server((host, port), backlog=_BACKLOG) as listener:
        try:
            _native.serve_null(listener.fileno(), *answers(size))
        except KeyboardInterrupt:
            return 0
    return 0


def answers(size: int) -> tuple[bytes, bytes]:
    """Return the one for a connection that goes on, and the one for a connection that ends."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n"
    body = b"0" * size
    return f"{head}\r\n".encode() + body, f"{head}Connection: close\r\n\r\n".encode() + body


if __name__ == "__main__":
    sys.exit(main())
