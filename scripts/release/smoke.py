"""Installs a release where there is nothing but Python, and serves with it.

    python smoke.py DIST [--limit SECONDS]

DIST is the folder that `make release` has made; pip asks no other index, except for tomli on Python 3.10. Runs on any
Python >= 3.10 with the module ``venv``. Prints how long pip took, the start, and the memory of an idle worker, and ends
with the line "N passed, N failed".
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from pathlib import Path

APPLICATIONS = """\
def wsgi(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"Hello by WSGI\\n"]


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        return await send({"type": "lifespan.shutdown.complete"})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"Hello by ASGI\\n"})
"""
PATIENCE_S = 60


class Server:
    """The command ``kirsch`` with an application, until the block ends."""

    def __init__(self, folder: Path, *args: str) -> None:
        command = [str(folder / "venv/bin/kirsch"), "--bind", "127.0.0.1:0", *args]
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __enter__(self) -> Server:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.url = f"http://127.0.0.1:{found[1]}/"
                return self
        raise AssertionError(f"the server ended with status {self.process.wait()}")

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)

    def get(self) -> bytes:
        with urllib.request.urlopen(self.url, timeout=PATIENCE_S) as response:
            return bytes(response.read())

    def worker_kib(self) -> list[int]:
        """Return the resident memory of each worker."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [
            int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{child}/status").read_text())[0]) for child in children
        ]


def install(folder: Path, dist: Path, limit: float) -> None:
    """pip installs the server and its tools from the folder alone, quickly, and compiles nothing."""
    print("Compilers here:", ", ".join(filter(shutil.which, ("cc", "cargo"))) or "none")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    command = [str(folder / "venv/bin/pip"), "--disable-pip-version-check", "install", "--no-cache-dir", "--quiet"]
    if sys.version_info < (3, 11):  # which Python brings later, and which is no file of the release
        subprocess.run([*command, "tomli>=2.0.1"], check=True)
    begun, spent = time.monotonic(), processor_seconds()
    index = f"--index-url={(dist / 'simple').as_uri()}"
    subprocess.run([*command, "--only-binary=:all:", index, "kirsch[bench]", "kirsch-web"], check=True)
    seconds = time.monotonic() - begun
    print(f"pip install kirsch[bench]: {seconds:.1f} s, {processor_seconds() - spent:.1f} s of processor time")
    assert seconds <= limit, f"more than {limit} s"


def processor_seconds() -> float:
    """Return the processor time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def say_version(folder: Path, dist: Path, limit: float) -> None:
    """The command names its version, which is that of the wheel."""
    said = subprocess.run([str(folder / "venv/bin/kirsch"), "--version"], check=True, capture_output=True, text=True)
    print(said.stdout.strip())
    assert list(dist.glob(f"kirsch-{said.stdout.split()[1]}-*.whl")), said.stdout


def serve_wsgi(folder: Path, dist: Path, limit: float) -> None:
    """Two workers serve a WSGI application."""
    with Server(folder, "--workers", "2", "applications:wsgi") as server:
        assert server.get() == b"Hello by WSGI\n"
        print(f"First answer after {(time.monotonic() - server.begun) * 1000:.0f} ms")
        print("Memory of idle workers:", ", ".join(f"{kib / 1024:.1f} MiB" for kib in server.worker_kib()))


def serve_asgi(folder: Path, dist: Path, limit: float) -> None:
    """A worker serves an ASGI application."""
    with Server(folder, "applications:asgi") as server:
        assert server.get() == b"Hello by ASGI\n"


def measure(folder: Path, dist: Path, limit: float) -> None:
    """``kirsch bench`` comes with the extra, and measures the server."""
    with Server(folder, "applications:wsgi") as server:
        command = [str(folder / "venv/bin/kirsch"), "bench", "--duration", "1s", server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def main() -> int:
    """Run each step, and say how many passed."""
    parser = argparse.ArgumentParser(description="Install a release and serve with it.")
    parser.add_argument("dist", type=Path)
    parser.add_argument("--limit", type=float, default=float("inf"), help="how many seconds pip may take")
    chosen = parser.parse_args()
    dist, passed, failed = chosen.dist.absolute(), 0, 0
    print(sys.version.replace("\n", " "))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "applications.py").write_text(APPLICATIONS)
        for step in (install, say_version, serve_wsgi, serve_asgi, measure):
            try:
                step(folder, dist, chosen.limit)
                passed += 1
            except Exception:  # noqa: BLE001 - whatever it is, the next step says more
                failed += 1
                traceback.print_exc()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
