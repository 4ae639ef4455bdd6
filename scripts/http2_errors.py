"""Sends what breaks a rule of HTTP/2 to servers, and prints the number of their answers of each kind.

The bytes and the right answers are the cases of crates/wire/tests/http2: those in which RFC 9113 or RFC 7541 names an
error code. A connection carries one case, in clear. ``--peers`` names an environment with granian and hypercorn.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import termination

if TYPE_CHECKING:
    from collections.abc import Iterator

RST_STREAM, GOAWAY = 3, 7
NO_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM = 0, 7, 11
# Rules of RFC 9218 and RFC 7540, and clients of HTTP/1.
OTHER_RULES = re.compile("priority update|priorit(y|ies) of (itself|themselves|RFC)|no preface")
# An answer that has not begun after this time, in seconds, does not follow.
PATIENCE = 4.0
KINDS = ("right code", "wrong code", "closed without a code", "no error")
# It answers when all frames have been read, because a stream that has been answered has other rules.
APPLICATION = """
import asyncio

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError("this application has no lifespan")  # by ASGI, a server goes on without one
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"Hello"})
"""


def cases(folder: Path) -> list[tuple[str, bytes, int, int]]:
    """Return the name, the bytes, and the answer of each case: the kind of the frame, and its code."""
    path = folder / "cases"
    command = "cargo test --quiet --package wire --test wire http2 -- --test-threads 1"
    subprocess.run(command.split(), env={**os.environ, "HTTP2_CASES": str(path)}, check=True, capture_output=True)
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        name, data, expected = line.split("\t")
        errors = re.findall(r"> (reset|goaway) [0-9]+ ([0-9]+);", expected)
        if len(errors) != 1 or OTHER_RULES.search(name):
            continue
        kind, code = GOAWAY if errors[0][0] == "goaway" else RST_STREAM, int(errors[0][1])
        # Limits of Kirsch are no rules for others.
        if code not in (NO_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM):
            found.append((name, bytes.fromhex(data), kind, code))
    return found


def answer(port: int, data: bytes) -> tuple[int, int] | None:
    """Return the frame that answers these bytes with an error, as its kind and code.

    ``(0, 0)`` if the server closes the connection without one, None if it does neither.
    """
    received, end = b"", time.monotonic() + PATIENCE
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        while True:
            while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
                length, kind = int.from_bytes(received[:3], "big"), received[3]
                payload, received = received[9 : 9 + length], received[9 + length :]
                if kind in (RST_STREAM, GOAWAY):
                    code = int.from_bytes(payload[:4] if kind == RST_STREAM else payload[4:8], "big")
                    if code or kind == RST_STREAM:
                        return kind, code
            sock.settimeout(max(0.001, end - time.monotonic()))
            try:
                part = sock.recv(65536)
            except TimeoutError:
                return None
            except ConnectionError:
                return 0, 0
            if not part:
                return 0, 0
            received += part


def judge(found: tuple[int, int] | None, kind: int, code: int) -> str:
    """Return the kind of an answer. An error of a stream may be treated as one of the connection (RFC 9113 section
    5.4.2)."""
    if found is None:
        return "no error"
    if found == (0, 0):
        return "closed without a code"
    return "right code" if found[1] == code and (found[0] == GOAWAY or found[0] == kind) else "wrong code"


@contextlib.contextmanager
def serving(command: str, folder: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        command.format(port=port).split(), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            end = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > end or process.poll() is not None:
                        sys.exit(f"{command}: it does not listen")
                    time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=".venv/bin/kirsch", help="Kirsch's program")
    parser.add_argument("--peers", type=Path, help="the environment of the other servers")
    parser.add_argument("--list", action="store_true", help="print each answer that is not right")
    args = parser.parse_args()
    termination.end_servers_on_sigterm()
    commands = {"Kirsch": f"{Path(args.server).absolute()} app:app --workers 0 --bind 127.0.0.1:{{port}}"}
    if args.peers:
        peers = args.peers.absolute() / "bin"
        at = "--host 127.0.0.1 --port {port}"
        commands["granian"] = f"{peers}/granian --interface asgi --http 2 {at} app:app"
        commands["hypercorn"] = f"{peers}/hypercorn app:app --bind 127.0.0.1:{{port}}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(APPLICATION)
        rows = cases(folder)
        lines = [f"| {len(rows)} cases | {' | '.join(KINDS)} |", f"|---{'|---' * len(KINDS)}|"]
        for server, command in commands.items():
            with serving(command, folder) as port, concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda row, port=port: answer(port, row[1]), rows))
            judged = [judge(found, kind, code) for found, (_, _, kind, code) in zip(answers, rows, strict=True)]
            counts = collections.Counter(judged)
            lines.append(f"| {server} | {' | '.join(str(counts[kind]) for kind in KINDS)} |")
            if args.list:
                for (case, _, kind, code), found, kind_found in zip(rows, answers, judged, strict=True):
                    if kind_found != "right code":
                        sys.stdout.write(f"{server}: {case}: {(kind, code)} expected, {found}\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
