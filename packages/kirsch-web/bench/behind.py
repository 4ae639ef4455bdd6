"""Processor time of the server's process for each request, behind a real Kirsch: bare WSGI beside kirsch_web.

    python bench/behind.py [--kirsch kirsch] [--rounds 5] [--seconds 3] [--headers chrome]

The applications are served one after the other by ``kirsch --workers 0 --threads 1`` and asked by 32 clients of
``kirsch bench``, which keep their connections; all of them once in each round. The figure of an application is its
median over the rounds. Processor time of the server's process is user and system time from ``/proc/PID/stat``, so it
needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

APPLICATIONS = '''
import kirsch_web as web


def bare(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "13")])
    return [b"Hello, world!"]


def bare_three(environ, start_response):
    """With the fields that kirsch_web sends."""
    start_response(
        "200 OK",
        [
            ("Content-Type", "text/html; charset=utf-8"), ("X-Content-Type-Options", "nosniff"),
            ("Content-Length", "13"),
        ],
    )
    return [b"Hello, world!"]


class Root:
    def index(self) -> str:
        return "Hello, world!"

    def user(self, id: int) -> dict[str, int]:
        return {"id": id}


app = web.App(Root())
'''

SUBJECTS = {
    "bare": ("bare", "/"),
    "bare, three fields": ("bare_three", "/"),
    "kirsch_web hello": ("app", "/"),
    "kirsch_web /user/7": ("app", "/user/7"),
}


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Served:
    """One application behind Kirsch."""

    def __init__(self, kirsch: str, folder: str, name: str, path: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}{path}"
        source = str(Path(__file__).resolve().parent.parent / "src")
        self.process = subprocess.Popen(
            [kirsch, f"applications:{name}", "--chdir", folder, "--bind", f"127.0.0.1:{port}", "--workers", "0",
             "--threads", "1"],
            env={**os.environ, "PYTHONPATH": source}, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(200):
            try:
                with urlopen(self.url, timeout=10) as reply:
                    reply.read()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"kirsch ended with status {self.process.returncode}") from None
                subprocess.run(["sleep", "0.05"], check=True)
        raise SystemExit("kirsch does not answer")

    def measure(self, kirsch: str, seconds: float, headers: str) -> float:
        """Microseconds for each request."""
        command = [kirsch, "bench", self.url, "-c", "32", "--warmup", "0s", "-q", "--json", "-", "--headers", headers]
        before = processor_seconds(self.process.pid)
        output = subprocess.run(
            [*command, "-z", f"{seconds}s"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ).stdout
        after = processor_seconds(self.process.pid)
        requests: int = json.loads(output)["result"]["requests"]
        return (after - before) / requests * 1e6

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kirsch", default=shutil.which("kirsch") or str(Path(sys.executable).parent / "kirsch"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--headers", default="chrome")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "applications.py").write_text(APPLICATIONS)
        served = {name: Served(arguments.kirsch, folder, *subject) for name, subject in SUBJECTS.items()}
        figures: dict[str, list[float]] = {name: [] for name in served}
        try:
            for _ in range(arguments.rounds):
                for name, each in served.items():
                    figures[name].append(each.measure(arguments.kirsch, arguments.seconds, arguments.headers))
        finally:
            for each in served.values():
                each.end()
    bare = statistics.median(figures["bare"])
    print(f"microseconds of the server's process for each request, {arguments.headers}'s fields, best and median")
    for name, found in figures.items():
        middle = statistics.median(found)
        print(f"  {name:20} {min(found):7.2f} {middle:7.2f}   {middle / bare:.2f} x bare")


if __name__ == "__main__":
    main()
