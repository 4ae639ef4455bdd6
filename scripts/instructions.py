"""Count the instructions that the server executes for one request, under callgrind.

    python scripts/instructions.py [--profile callgrind.out]

Processor time depends on the machine and on what else it does; the instructions of a given build do not, so a
regression of a few per cent shows here first. Each request shape is served twice, a few and many times, on one
keep-alive connection, and the difference is divided by the difference in requests: start-up and shut-down cancel out.
In the shapes ``ws`` and ``ws-16k`` a request is a message of a WebSocket that is sent back, of 125 bytes and of 16 KiB,
by an ASGI application; in ``ws-wsgi`` it is one of 125 bytes and the application a WSGI one. The shapes ``h2`` and
``h2-32`` are ``ka`` over HTTP/2, with one stream and with 32 at a time.
What the kernel executes is not counted. One thread serves, without a supervisor: with more, the count would depend on
how the threads are scheduled.

What would vary from run to run is held still: the seed of Python's string hashes, the layout of the address space, the
garbage collector, and the race between the client and the server's poll. A full collection of all modules costs about a
million instructions, and one more or less of them in 4,096 requests is 2 % of the count: what is imported is frozen, so
a collection only visits what requests have made. Before each request the client waits until the server blocks in
``epoll_wait``; a request that arrived sooner would spare the server that wait. So three runs of one build agree within
1 %. Needs Linux and valgrind.
"""

from __future__ import annotations

import argparse
import operator
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import termination

APPLICATION = """
import gc

gc.collect()
gc.freeze()

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "19")])
    return [b"My Own Hello World!"]

async def asgi(scope, receive, send):
    assert scope["type"] == "http"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"19")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"My Own Hello World!"})

async def asgi_echo(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})

async def ws_asgi(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})

def ws_wsgi(environ, start_response):
    websocket = environ["wsgi.websocket"]
    websocket.accept()
    for message in websocket:
        websocket.send(message)
    return []
"""

BROWSER = """\
Host: localhost
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8
Accept-Encoding: gzip, deflate, br, zstd
Accept-Language: en-US,en;q=0.9
Cache-Control: max-age=0
Cookie: sessionid=4f0d8a2c9b7e4d1f8a6c3b5e7d9f1a2b; csrftoken=Zk3hT8vQpLw2YxR5nMbC7sJdFgH1aKe4
Sec-Ch-Ua: "Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"
Sec-Ch-Ua-Mobile: ?0
Sec-Ch-Ua-Platform: "Linux"
Sec-Fetch-Dest: document
Sec-Fetch-Mode: navigate
Sec-Fetch-Site: none
Sec-Fetch-User: ?1
Upgrade-Insecure-Requests: 1
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36
"""

# name: the application, target and fields of a request, where {n} is its number, and how many are sent at once
SHAPES: dict[str, tuple[str, str, str, int]] = {
    "ka": ("app", "/", "Host: localhost\n", 1),
    "chrome": ("app", "/", BROWSER, 1),
    "mixed": ("app", "/item/{n}?page={n}", BROWSER + "X-Id: {n:08x}\n", 1),
    "pipe16": ("app", "/", "Host: localhost\n", 16),
    "h2": ("app", "/", "Host: localhost\n", 1),
    "h2-32": ("app", "/", "Host: localhost\n", 32),
    "fastcgi": ("app", "/", BROWSER, 1),
    "asgi": ("asgi", "/", "Host: localhost\n", 1),
    "asgi-chrome": ("asgi", "/", BROWSER, 1),
    "asgi-post8k": ("asgi_echo", "/", "Host: localhost\nContent-Length: 8192\n", 1),
}

# name: the application, and the bytes of a message
MESSAGES = {"ws": ("ws_asgi", 125), "ws-16k": ("ws_asgi", 16384), "ws-wsgi": ("ws_wsgi", 125)}

BODY = "My Own Hello World!"
"""What each response ends with, and so each request whose body comes back."""

FEW, MANY = 1024, 5120


# The other variables of nginx's fastcgi_params. Each client has a connection of its own, and so a port.
VARIABLES = """\
QUERY_STRING:
REQUEST_METHOD: GET
CONTENT_TYPE:
CONTENT_LENGTH:
SCRIPT_NAME: /
REQUEST_URI: /
DOCUMENT_URI: /
DOCUMENT_ROOT: /usr/share/nginx/html
SERVER_PROTOCOL: HTTP/1.1
REQUEST_SCHEME: http
GATEWAY_INTERFACE: CGI/1.1
SERVER_SOFTWARE: nginx/1.22.1
REMOTE_ADDR: 127.0.0.1
REMOTE_PORT: {port}
SERVER_ADDR: 127.0.0.1
SERVER_PORT: 80
SERVER_NAME: localhost
REDIRECT_STATUS: 200
"""
PARTS = operator.methodcaller("partition", ":")


def record(kind: int, content: bytes) -> bytes:
    return struct.pack("!BBHHBx", 1, kind, 1, len(content), 0) + content


def fastcgi_request(number: int) -> bytes:
    """The chrome shape as nginx passes it on with fastcgi_keep_conn."""
    pairs = b""
    fields = [f"HTTP_{name.upper().replace('-', '_')}:{value}" for name, _, value in map(PARTS, BROWSER.splitlines())]
    for name, _, value in map(PARTS, VARIABLES.format(port=20000 + number).splitlines() + fields):
        for text in (name, value.strip()):
            pairs += struct.pack("!B", len(text)) if len(text) < 128 else struct.pack("!I", len(text) | 1 << 31)
        pairs += (name + value.strip()).encode()
    return record(1, b"\0\1\1\0\0\0\0\0") + record(4, pairs) + record(4, b"") + record(5, b"")


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def http2_request(number: int) -> bytes:
    """GET / as h2load sends it: the first request adds the authority to the table, the others name its place there."""
    start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(4, 0, 0, b"") + http2_frame(8, 0, 0, b"\x3f\0\0\0")
    authority = b"\xbe" if number else b"\x41\x09localhost"
    return (b"" if number else start) + http2_frame(1, 5, 2 * number + 1, b"\x82\x86\x84" + authority)


def request(shape: str, number: int) -> bytes:
    if shape.startswith("h2"):
        return http2_request(number)
    number %= 997
    if shape == "fastcgi":
        return fastcgi_request(number)
    target, fields = (text.format(n=number) for text in SHAPES[shape][1:3])
    length = int(found[1]) if (found := re.search(r"^Content-Length: (\d+)$", fields, re.M)) else 0
    head = f"{'POST' if length else 'GET'} {target} HTTP/1.1\n{fields}\n".replace("\n", "\r\n")
    return (head + BODY.rjust(length)[:length]).encode()


def instructions(shape: str, count: int, profile: Path | None) -> int:
    """Serve ``count`` requests under callgrind; the instructions of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "counted.py").write_text(APPLICATION)
        output = profile or Path(folder, "callgrind.out")
        # Without a random layout (setarch -R) tables that hash addresses have the same collisions each time.
        command = ["setarch", "-R", "valgrind", "--tool=callgrind", f"--callgrind-out-file={output}"]
        application = MESSAGES[shape][0] if shape in MESSAGES else SHAPES[shape][0]
        command += [sys.executable, "-m", "kirsch", f"counted:{application}"]
        command += ["--workers", "0", "--threads", "1", "--chdir", folder]
        command += ["--bind", "fastcgi:127.0.0.1:0" if shape == "fastcgi" else "127.0.0.1:0"]
        # ASGI without a lifespan, which the application does not know.
        command += ["--lifespan", "off"]
        # A ping would come among the messages, and a slow machine takes long under callgrind.
        command += ["--ws-ping-interval", "0"]
        server = subprocess.Popen(  # noqa: S603  # our own command line
            command,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        try:
            assert server.stderr is not None
            port = next(
                int(found[1]) for line in server.stderr if (found := re.match(r"on (?:http://|fastcgi:).*:(\d+)", line))
            )
            if shape in MESSAGES:
                drive_messages(server.pid, port, MESSAGES[shape][1], count)
            else:
                drive(server.pid, port, shape, count)
        finally:
            server.send_signal(signal.SIGTERM)
            rest = server.communicate(timeout=120)[1]
    collected = re.search(r"Collected : (\d+)", rest)
    if collected is None:
        raise SystemExit(f"valgrind did not say what it collected:\n{rest}")
    return int(collected[1])


def wait_until_blocked(pid: int) -> None:
    """Return when the main thread of the process ``pid`` blocks in ``epoll_wait``, or with asyncio in ``poll``."""
    channel, deadline = Path(f"/proc/{pid}/wchan"), time.monotonic() + 120
    # The names depend on the kernel.
    waits = ("do_epoll_wait", "ep_poll", "do_sys_poll", "poll_schedule_timeout")
    while channel.read_text().split(".")[0] not in waits:
        if time.monotonic() > deadline:
            raise SystemExit(f"{channel} does not tell when the server waits for a request")
        time.sleep(0)


def drive(pid: int, port: int, shape: str, count: int) -> None:
    """Send ``count`` requests of ``shape`` on one connection to the server with the process number ``pid``."""
    depth = SHAPES[shape][3]
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        for number in range(0, count, depth):
            wait_until_blocked(pid)
            connection.sendall(b"".join(request(shape, number + place) for place in range(depth)))
            answers = b""
            while answers.count(BODY.encode()) < depth:
                piece = connection.recv(65536)
                if not piece:
                    raise SystemExit(f"{shape}: the server closed after {number} answers")
                answers += piece


def drive_messages(pid: int, port: int, length: int, count: int) -> None:
    """Send ``count`` messages of ``length`` bytes on one WebSocket, each when the one before has come back."""
    key = b"dGhlIHNhbXBsZSBub25jZQ=="  # of RFC 6455 section 1.3
    handshake = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    handshake += f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
    payload = b"x" * length
    # The mask is zero, so the payload is masked as it is.
    sent, expected = b"\x82" + bytes([size[0] | 0x80]) + size[1:] + bytes(4) + payload, b"\x82" + size + payload
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(handshake.encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += connection.recv(1)
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise SystemExit(f"the WebSocket was refused: {answer[:40]!r}")
        for _ in range(count):
            wait_until_blocked(pid)
            connection.sendall(sent)
            echo = b""
            while len(echo) < len(expected):
                echo += connection.recv(1 << 20)
            if echo != expected:
                raise SystemExit(f"another message came back: {echo[:40]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = [*SHAPES, *MESSAGES]
    parser.add_argument("--shape", choices=shapes, action="append", help="one of the request shapes (default: all)")
    parser.add_argument("--profile", type=Path, help="keep callgrind's profile here, for callgrind_annotate")
    arguments = parser.parse_args()
    termination.end_servers_on_sigterm()
    for tool, package in (("valgrind", "valgrind"), ("setarch", "util-linux")):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing: apt-get install {package}")
    for shape in arguments.shape or shapes:
        few, many = instructions(shape, FEW, None), instructions(shape, MANY, arguments.profile)
        sys.stdout.write(f"{shape:12} {(many - few) / (MANY - FEW):8.0f} instructions a request\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
