"""Prints what servers cost before they serve: import, first answer, memory of an idle worker, size of the wheel.

    scripts/footprint.py PYTHON...           interpreters of environments that have kirsch, gunicorn, uvicorn, granian
    scripts/footprint.py --rounds 5 PYTHON   the least of so many rounds (9 by default): other programs only add

A server that an environment does not have is left out. The import is that of the module which the server's command
imports, within an interpreter that has started; the first answer is counted from the start of the command until a
client that asks each millisecond has a response; the memory is the resident set of the worker a second later.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

import termination

HELLO = """
def wsgi(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]


async def asgi(scope, receive, send):
    if scope["type"] == "http":
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello"})
"""


class Peer(NamedTuple):
    """A server: the import that its command makes, and the arguments of the command."""

    name: str
    imported: str
    command: tuple[str, ...]


PEERS = (
    Peer(
        "kirsch", "import kirsch.commands.cli, kirsch._native", ("kirsch", "hello:wsgi", "--bind", "127.0.0.1:{port}")
    ),
    Peer("gunicorn", "import gunicorn.app.wsgiapp", ("gunicorn", "hello:wsgi", "--bind", "127.0.0.1:{port}")),
    Peer("uvicorn", "import uvicorn", ("uvicorn", "hello:asgi", "--port", "{port}")),
    Peer("granian", "import granian.cli", ("granian", "--interface", "wsgi", "hello:wsgi", "--port", "{port}")),
)
# A server that has not answered after so many seconds is taken for broken.
PATIENCE = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    termination.end_servers_on_sigterm()
    print("| Python | server | import | first answer | worker, resident | wheel |")
    print("|---|---|---|---|---|---|")
    for python in map(os.path.abspath, given.pythons):
        for peer in PEERS:
            if row := measure(python, peer, given.rounds):
                print("| " + " | ".join([version(python), f"{peer.name} {row[0]}", *row[1:]]) + " |", flush=True)
    return 0


def measure(python: str, peer: Peer, rounds: int) -> list[str] | None:
    found = ask(python, f"from importlib.metadata import version; print(version({peer.name!r}))")
    if found is None:
        print(f"{python}: there is no {peer.name}", file=sys.stderr)
        return None
    program = f"import time; t = time.perf_counter(); {peer.imported}; print(time.perf_counter() - t)"
    ask(python, program)
    imports = [float(ask(python, program) or "nan") for _ in range(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "hello.py").write_text(HELLO, encoding="utf-8")
        served = [serve(python, peer, folder) for _ in range(rounds)]
    first = min(seconds for seconds, _ in served)
    resident = min(size for _, size in served)
    return [
        found,
        f"{min(imports) * 1000:.0f} ms",
        f"{first * 1000:.0f} ms",
        f"{resident / 2**20:.1f} MiB",
        wheel(python, peer.name),
    ]


def version(python: str) -> str:
    code = (
        "import sys; print({'cpython': 'CPython', 'pypy': 'PyPy'}[sys.implementation.name],"
        " '.'.join(map(str, sys.implementation.version[:3])))"
    )
    return ask(python, code) or python


def ask(python: str, code: str) -> str | None:
    """Return what a program prints; None if it fails."""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def serve(python: str, peer: Peer, folder: str) -> tuple[float, int]:
    """Serve once. Return the seconds until the first answer, and the bytes of the worker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python, "-m", *(word.format(port=port) for word in peer.command)]
    start = time.monotonic()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not answers(port):
                if time.monotonic() - start > PATIENCE or process.poll() is not None:
                    raise SystemExit(f"{' '.join(command)} does not answer")
                time.sleep(0.001)
            seconds = time.monotonic() - start
            time.sleep(1)
            size = max(resident(pid) for pid in family(process.pid) if not children(pid))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
    return seconds, size


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return client.recv(100).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    return [pid, *(each for child in children(pid) for each in family(child))]


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def wheel(python: str, name: str) -> str:
    """Return the size of the distribution's files, packed as a wheel packs them."""
    code = (
        "from importlib.metadata import files\n"
        f"for file in files({name!r}): print(file.locate()) if '__pycache__' not in str(file) else None"
    )
    with tempfile.TemporaryFile() as target:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in (ask(python, code) or "").splitlines():
                if Path(path).is_file() and Path(path).parent.name != "bin":
                    archive.write(path)
        return f"{target.tell() / 2**20:.1f} MiB"


if __name__ == "__main__":
    sys.exit(main())
