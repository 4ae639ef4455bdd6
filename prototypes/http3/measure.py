"""Compares the processor time of HTTP/3 from the prototype with HTTP/1.1 and HTTP/2 over TLS from Kirsch, in one run.

    .venv/bin/python prototypes/http3/measure.py [--rounds 5] [--requests 20000]

Each server is one process that serves; each case runs once in each round, in turn. Prints microseconds of the server's
processor time (user and system) for each unit of a case: the median of the rounds, the least, the greatest, and the
ratio to the first case of its group; then the memory of an idle connection. Kirsch answers `/health` in its engine, as
the prototype answers: without Python. (It closes a connection of HTTP/1.1 after that, so HTTP/1.1 is measured with an
application.) Needs h2load and openssl.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent
PROTOTYPE = HERE / "target" / "release" / "http3-prototype"
APPLICATION = """
LARGE = b"x" * (1 << 20)

def app(environ, start_response):
    body = LARGE if environ["PATH_INFO"] == "/large" else b"My Own Hello World!"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""
IDLE = 500


class Server:
    """A server that runs: its address, and the processor time and memory of all its processes."""

    def __init__(self, address: str, process: subprocess.Popen[str]) -> None:
        self.address = address
        self._process = process

    def _processes(self) -> list[Path]:
        found, known = [self._process.pid], 0
        while known < len(found):
            for task in Path(f"/proc/{found[known]}/task").iterdir():
                found += [int(pid) for pid in (task / "children").read_text().split()]
            known += 1
        return [Path(f"/proc/{pid}") for pid in found]

    def seconds(self) -> float:
        tasks = [task for process in self._processes() for task in (process / "task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> int:
        texts = [(process / "smaps_rollup").read_text() for process in self._processes()]
        return 1024 * sum(int(re.findall(r"^Pss: +(\d+)", text, re.M)[0]) for text in texts)


@contextlib.contextmanager
def running(command: list[str], address: str = "") -> Iterator[Server]:
    """Start a server; one without an address prints it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = address or process.stdout.readline().strip()
        yield Server(address, process)
    finally:
        process.terminate()
        process.wait(10)


def h2load(server: Server, path: str, requests: int, connections: int, *options: str) -> float:
    """Return the processor seconds that the requests took the server; h2load counts the responses."""
    command = ["h2load", "-n", str(requests), "-c", str(connections), *options, f"https://{server.address}{path}"]
    before = server.seconds()
    told = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout
    if f"{requests} succeeded" not in told:
        sys.exit(told)
    return server.seconds() - before


class Load:
    """The prototype's client: connections, then requests on them."""

    def __init__(self, server: Server, certificate: str, path: str, *counts: int) -> None:
        command = [str(PROTOTYPE), "load", certificate, server.address, path, *map(str, counts)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.wait("open")

    def wait(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            sys.exit("the prototype's client failed")

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self.tell()
        self._process.wait(10)


def http3(server: Server, certificate: str, path: str, requests: int, connections: int, streams: int) -> float:
    before = server.seconds()
    load = Load(server, certificate, path, requests, connections, streams)
    load.tell()
    load.wait("done")
    spent = server.seconds() - before
    load.end()
    return spent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for(address: str) -> None:
    host, _, port = address.rpartition(":")
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
            return
        time.sleep(0.05)
    sys.exit("Kirsch does not listen")


def idle_of_kirsch(server: Server) -> float:
    """Return the bytes of an idle connection of TLS that has chosen HTTP/2."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = server.address.rpartition(":")
    before = server.memory()
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            tls = stack.enter_context(context.wrap_socket(connection))
            # The preface and empty settings, which the server confirms.
            tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            while not tls.recv(4096).endswith(bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])):
                pass
        return (server.memory() - before) / IDLE


def idle_of_prototype(server: Server, certificate: str) -> float:
    before = server.memory()
    load = Load(server, certificate, "/", IDLE, IDLE, 1)
    load.tell()
    load.wait("done")
    after = server.memory()
    load.end()
    return (after - before) / IDLE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20000)
    arguments = parser.parse_args()
    count, large, new = arguments.requests, max(1, arguments.requests // 200), max(1, arguments.requests // 100)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        certificate, key = f"{folder}/certificate.pem", f"{folder}/key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-days", "2"]
        command += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=DNS:localhost"]
        subprocess.run(command, check=True, capture_output=True)
        Path(folder, "small.py").write_text(APPLICATION)
        address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "kirsch", "small:app", "--chdir", folder, "--bind", address]
        command += ["--certfile", certificate, "--keyfile", key, "--health-path", "/health"]
        kirsch = stack.enter_context(running(command, address))
        wait_for(address)
        gso = stack.enter_context(running([str(PROTOTYPE), "server", certificate, key]))
        plain = stack.enter_context(running([str(PROTOTYPE), "server", certificate, key, "--no-gso"]))

        Case = tuple[str, int, "Callable[[], float]"]
        groups: dict[str, list[Case]] = {
            "a small GET, one at a time": [
                ("HTTP/2", count, lambda: h2load(kirsch, "/health", count, 1, "-m", "1")),
                ("HTTP/3", count, lambda: http3(gso, certificate, "/", count, 1, 1)),
            ],
            "a small GET, 32 at a time": [
                ("HTTP/2", count, lambda: h2load(kirsch, "/health", count, 1, "-m", "32")),
                ("HTTP/3", count, lambda: http3(gso, certificate, "/", count, 1, 32)),
                ("HTTP/3 without GSO", count, lambda: http3(plain, certificate, "/", count, 1, 32)),
            ],
            "the same from an application": [
                ("HTTP/1.1, one at a time", count, lambda: h2load(kirsch, "/", count, 1, "--h1")),
                ("HTTP/1.1, 32 connections", count, lambda: h2load(kirsch, "/", count, 32, "--h1")),
                ("HTTP/2, one at a time", count, lambda: h2load(kirsch, "/", count, 1, "-m", "1")),
                ("HTTP/2, 32 at a time", count, lambda: h2load(kirsch, "/", count, 1, "-m", "32")),
            ],
            "a response of 1 MiB": [
                ("HTTP/1.1", large, lambda: h2load(kirsch, "/large", large, 1, "--h1")),
                ("HTTP/2", large, lambda: h2load(kirsch, "/large", large, 1, "-m", "1")),
                ("HTTP/3", large, lambda: http3(gso, certificate, "/large", large, 1, 1)),
                ("HTTP/3 without GSO", large, lambda: http3(plain, certificate, "/large", large, 1, 1)),
            ],
            "a new connection with one GET": [
                ("HTTP/1.1", new, lambda: h2load(kirsch, "/health", new, new, "--h1")),
                ("HTTP/2", new, lambda: h2load(kirsch, "/health", new, new)),
                ("HTTP/3", new, lambda: http3(gso, certificate, "/", new, new, 1)),
            ],
        }
        spent: dict[tuple[str, str], list[float]] = {}
        for turn in range(arguments.rounds + 1):
            for group, cases in groups.items():
                for name, units, run in cases:
                    value = run() / units * 1e6
                    # The first round warms up.
                    spent.setdefault((group, name), []).extend([value] if turn else [])
        for group, cases in groups.items():
            print(f"| {group} | µs | least to greatest | ratio |\n|---|--:|---|--:|")
            first = statistics.median(spent[group, cases[0][0]])
            for name, _, _ in cases:
                values = spent[group, name]
                middle = statistics.median(values)
                print(f"| {name} | {middle:.1f} | {min(values):.1f} to {max(values):.1f} | {middle / first:.2f} |")
            print()
        print(f"memory of an idle connection of HTTP/2: {idle_of_kirsch(kirsch):.0f} bytes")
        print(f"memory of an idle connection of HTTP/3: {idle_of_prototype(gso, certificate):.0f} bytes")


if __name__ == "__main__":
    main()
