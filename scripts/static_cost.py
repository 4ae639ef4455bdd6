"""Compares the processor time of a static file from Kirsch with the same file from nginx, in one run.

    .venv/bin/python scripts/static_cost.py [--seconds 3] [--rounds 3] [--kirsch COMMAND]

Serves files of 1 KiB and 1 MiB from one directory with both servers, one process each, and loads them in turn with wrk
over kept connections. Prints microseconds of processor time (user and system, of the whole server) for each response,
the median of the rounds, and the ratio. It needs nginx and wrk (tests/system_packages.sh). Only the ratio of one run
means something, and only with a server that was built as a release is (`make build`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import termination

FILES = {"1k.css": 1 << 10, "1m.bin": 1 << 20}
GOALS = {"1k.css": 1.3, "1m.bin": 1.0}
CLIENTS = 16

NGINX = """
daemon off;
{user}
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    types {{ text/css css; }}
    server {{ listen 127.0.0.1:{port}; location /static/ {{ alias {folder}/public/; }} }}
}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def family(pid: int) -> list[int]:
    """The process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def processor_seconds(pid: int) -> float:
    """User and system time of the process and its descendants so far."""
    ticks = 0
    for each in family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def start(command: list[str], port: int, folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10).close()
            return process
        time.sleep(0.02)
    raise SystemExit(f"{command[0]} does not listen")


def microseconds(process: subprocess.Popen[bytes], url: str, seconds: int) -> float:
    """Processor time for each response while wrk loads ``url``."""
    before = processor_seconds(process.pid)
    command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", url]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    spent = processor_seconds(process.pid) - before
    found = re.search(r"(\d+) requests in", printed)
    if found is None or "Non-2xx" in printed or "Socket errors" in printed:
        raise SystemExit(f"{url} was not answered as it should be:\n{printed}")
    return spent / int(found[1]) * 1e6


def main() -> int:
    """Run the comparison; status 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kirsch", default=f"{sys.executable} -m kirsch")
    given = parser.parse_args()
    termination.end_servers_on_sigterm()
    status = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "public").mkdir()
        for file, size in FILES.items():
            (folder / "public" / file).write_bytes(os.urandom(size))
            os.utime(folder / "public" / file, (1_700_000_000, 1_700_000_000))
        (folder / "app.py").write_text("def app(environ, start_response):\n    raise SystemExit('not called')\n")
        ports = free_port(), free_port()
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=ports[0], user=user))
        nginx = ["nginx", "-p", name, "-e", f"{name}/error.log", "-c", f"{name}/nginx.conf"]
        kirsch = [*shlex.split(given.kirsch), "-w", "0", "-b", f"127.0.0.1:{ports[1]}", "--static", "/static=public"]
        servers = [start(nginx, ports[0], folder), start([*kirsch, "app:app"], ports[1], folder)]
        try:
            sys.stdout.write(f"{'file':8} {'nginx':>10} {'kirsch':>10} {'ratio':>7}   goal\n")
            for file in FILES:
                figures: list[list[float]] = [[], []]
                for _ in range(given.rounds):
                    for at in (0, 1):
                        url = f"http://127.0.0.1:{ports[at]}/static/{file}"
                        figures[at].append(microseconds(servers[at], url, given.seconds))
                theirs, ours = map(statistics.median, figures)
                sys.stdout.write(f"{file:8} {theirs:7.2f} us {ours:7.2f} us {ours / theirs:7.2f}   {GOALS[file]}\n")
                sys.stdout.flush()
                status |= ours / theirs > GOALS[file]
        finally:
            for server in servers:
                server.terminate()
                server.wait(30)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
