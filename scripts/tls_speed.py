"""Measure what encryption costs: Kirsch beside nginx, Caddy, granian and hypercorn, and behind nginx and Caddy.

    make tls-speed                       installs the servers, and builds Kirsch and the client
    scripts/tls_speed.py --help          the options; TLS_SPEED_ARGS='--rounds 1 full' passes them to make

Every server has one worker and is pinned to one processor, the clients to another. The servers take turns, round after
round, so that a machine that drifts touches all alike. Shown are medians of processor time, user and system, of the
whole server with all its processes. All have one certificate with a key of P-256 and speak TLS 1.3; where it can be
chosen (Kirsch and nginx; Caddy does so by itself) the cipher suite is that with AES-128. The key exchange is X25519 for
all, except in the rows of post-quantum key exchange. nginx and Caddy answer without an application.

Needs Linux and two processors, nginx, Caddy and wrk (tests/system_packages.sh), and for --held 10000 `ulimit -n 10100`.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import resource
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import termination

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "13")])
    return [b"Hello, World!"]

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"13")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"Hello, World!"})
"""

NGINX = """
daemon off; {user} worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 16384; }}
http {{
    access_log off; sendfile on; keepalive_requests 100000000; keepalive_timeout 600s; default_type text/plain;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    upstream kirsch {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl;
        ssl_protocols TLSv1.3; ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
        ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
        location = / {{ return 200 "Hello, World!"; }}
        location /static/ {{ alias {folder}/public/; }}
        location = /front {{
            proxy_pass http://kirsch/; proxy_http_version 1.1;
            proxy_set_header Connection ""; proxy_set_header Host $host;
        }}
    }}
}}
"""

CADDY = """
{{
    admin off
    auto_https off
}}
(site) {{
    handle /static/* {{
        root * {folder}/public
        uri strip_prefix /static
        file_server
    }}
    handle /front {{
        rewrite * /
        reverse_proxy 127.0.0.1:{upstream}
    }}
    handle {{
        respond "Hello, World!"
    }}
}}
http://127.0.0.1:{http} {{
    bind 127.0.0.1
    import site
}}
https://localhost:{https} {{
    bind 127.0.0.1
    tls {folder}/cert.pem {folder}/key.pem
    import site
}}
"""

FILES = {"1m": 1 << 20, "100m": 100 << 20}
TICK = os.sysconf("SC_CLK_TCK")
PATIENCE_SECONDS = 60
CLIENTS = 16  # few, because their handshakes are a part of what is measured
FILE_CLIENTS = 2
FRONTS = ("kirsch", "nginx", "caddy")
BESIDE = (*FRONTS, "granian", "hypercorn")


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def processor_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in (each for first in pids for each in family(first)):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(stat[11]) + int(stat[12])
    return ticks / TICK


def memory_bytes(pids: list[int]) -> int:
    """Return the memory that the processes do not share with files, in all."""
    total = 0
    for pid in (each for first in pids for each in family(first)):
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        total += int(found[1]) * 1024 if found else 0
    return total


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(probe.getsockname()[1]) for probe in probes]


class Servers:
    """The servers of a run, each on two ports, and the clients that load them."""

    def __init__(self, folder: Path, given: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.given = given
        self.ports: dict[str, dict[str, int]] = {}
        self.pids: dict[str, list[int]] = {}
        self._stack = stack
        # The last one serves, the clients run on the one before it.
        self._processors = sorted(os.sched_getaffinity(0))[-2:]

    def start(self) -> None:
        tls = f"{self.folder}/cert.pem {self.folder}/key.pem".split()
        ports = iter(free_ports(2 * len(BESIDE)))
        self.ports = {name: {"http": next(ports), "https": next(ports)} for name in BESIDE}
        http, https = (f"{scheme}://127.0.0.1:{port}" for scheme, port in self.ports["kirsch"].items())
        self._run(
            "kirsch",
            f"{self.given.kirsch} -w 1 -b {https} -b {http} --certfile {tls[0]} --keyfile {tls[1]} --keep-alive 600 "
            f"--ciphers TLS_AES_128_GCM_SHA256 --static /static={self.folder}/public app:app",
        )
        terms = {"folder": self.folder, "upstream": self.ports["kirsch"]["http"]}
        user = "user root;" if os.geteuid() == 0 else ""
        (self.folder / "nginx.conf").write_text(NGINX.format(user=user, **terms, **self.ports["nginx"]))
        self._run("nginx", f"nginx -p {self.folder} -e {self.folder}/error.log -c {self.folder}/nginx.conf")
        (self.folder / "Caddyfile").write_text(CADDY.format(**terms, **self.ports["caddy"]))
        self._run("caddy", f"caddy run --adapter caddyfile --config {self.folder}/Caddyfile")
        self.run_peers("app", "1", tls)
        for name in ("nginx", "caddy"):
            self.pids[f"{name} in front"] = self.pids[name] + self.pids["kirsch"]
            self.ports[f"{name} in front"] = self.ports[name]

    def run_peers(self, module: str, http: str, tls: list[str]) -> None:
        """Start granian, for the versions ``http``, and hypercorn with the applications of a module, each in clear and
        with TLS.
        """
        peers = self.given.peers
        options = f"--interface wsgi --workers 1 --http {http} --no-ws --host 127.0.0.1"
        granian = f"{peers}/granian {options} {module}:app"
        (self.folder / "hypercorn.toml").write_text("keep_alive_max_requests = 100000000\n")
        hypercorn = f"{peers}/hypercorn --config {self.folder}/hypercorn.toml {module}:asgi"
        for scheme in ("http", "https"):
            options = f"--ssl-certificate {tls[0]} --ssl-keyfile {tls[1]}" if scheme == "https" else ""
            port = self.ports["granian"][scheme]
            self._run("granian", f"{granian} --port {port} {options}", port)
            options = f"--certfile {tls[0]} --keyfile {tls[1]}" if scheme == "https" else ""
            port = self.ports["hypercorn"][scheme]
            self._run("hypercorn", f"{hypercorn} -b 127.0.0.1:{port} {options}", port)

    def _run(self, name: str, command: str, port: int = 0) -> None:
        log = self._stack.enter_context((self.folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(  # noqa: S603 - commands of this file
            ["taskset", "-c", str(self._processors[-1]), *shlex.split(command)],  # noqa: S607
            cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "XDG_CONFIG_HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)},
        )  # fmt: skip
        self._stack.callback(process.wait, PATIENCE_SECONDS)
        self._stack.callback(process.terminate)
        self.pids.setdefault(name, []).append(process.pid)
        until = time.monotonic() + PATIENCE_SECONDS
        for each in [port] if port else self.ports[name].values():
            while process.poll() is None and time.monotonic() < until:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", each), 1):
                    break
                time.sleep(0.05)
            else:
                raise SystemExit(f"{name} does not listen:\n{(self.folder / f'{name}.log').read_text()[-2000:]}")

    def _client(self, words: list[str]) -> str:
        command = ["taskset", "-c", str(self._processors[0]), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _wrk(self, name: str, scheme: str, path: str, clients: int) -> tuple[float, str]:
        """Return the processor seconds of some seconds of requests on kept connections, and what wrk printed."""
        url = f"{scheme}://{'localhost' if scheme == 'https' else '127.0.0.1'}:{self.ports[name][scheme]}{path}"
        before = processor_seconds(self.pids[name])
        printed = self._client(["wrk", "-t1", f"-c{clients}", f"-d{self.given.seconds}s", url])
        spent = processor_seconds(self.pids[name]) - before
        if "Non-2xx" in printed or "Socket errors" in printed or " 0.00B read" in printed:
            raise SystemExit(f"{url} was not answered as it should be:\n{printed}")
        return spent, printed

    def request(self, name: str, scheme: str, path: str = "/") -> float:
        """Return microseconds for each response."""
        spent, printed = self._wrk(name, scheme, path, CLIENTS)
        return spent / int(printed.partition(" requests in")[0].split()[-1]) * 1e6

    def file(self, name: str, scheme: str, size: str) -> float:
        """Return milliseconds for each file. Of a large one wrk may not receive the whole."""
        spent, printed = self._wrk(name, scheme, f"/static/{size}", FILE_CLIENTS)
        number, unit = re.findall(r"([0-9.]+)([KMG])B read", printed)[0]
        received = float(number) * 1024.0 ** (1 + "KMG".index(unit))
        return spent * 1e3 * FILES[size] / received

    def handshakes(self, name: str, kind: str, keys: str) -> float:
        """Return connections with a request for each second of processor time."""
        before = processor_seconds(self.pids[name])
        port, seconds = str(self.ports[name]["https"]), str(self.given.seconds)
        printed = self._client(
            [self.given.client, str(self.folder / "cert.pem"), port, "handshakes", seconds, kind, keys]
        )
        spent = processor_seconds(self.pids[name]) - before
        count, resumed = map(int, printed.split())
        # The first one has no session to resume.
        if resumed < count * 0.98 - 1 if kind == "resumed" else resumed:
            raise SystemExit(f"{name}: {resumed} of {count} sessions were resumed, and {kind} ones were wanted")
        return count / spent

    def held(self, name: str) -> float:
        """Return KiB of memory for each idle connection; NaN if the server does not accept so many."""
        count: int = self.given.held
        before = memory_bytes(self.pids[name])
        words = [self.given.client, str(self.folder / "cert.pem"), str(self.ports[name]["https"]), "hold", str(count)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:  # noqa: S603
            assert client.stdout is not None
            if client.stdout.readline() != b"held\n":
                sys.stderr.write(f"{name} does not accept {count} connections\n")
                return math.nan
            after = memory_bytes(self.pids[name])
            client.communicate()
        return (after - before) / count / 1024


ROWS: dict[str, tuple[str, tuple[str, ...], Callable[[Servers, str], float], str]] = {
    "clear": ("a request on a kept connection, without TLS, µs", BESIDE, lambda s, n: s.request(n, "http"), "{:.1f}"),
    "tls": ("the same with TLS, µs", BESIDE, lambda s, n: s.request(n, "https"), "{:.1f}"),
    "front": (
        "with TLS, to an application that Kirsch runs, µs", ("kirsch", "nginx in front", "caddy in front"),
        lambda s, n: s.request(n, "https", "/" if n == "kirsch" else "/front"), "{:.1f}",
    ),
    "full": (
        "full handshakes and a request each, in a second of processor time", BESIDE,
        lambda s, n: s.handshakes(n, "full", "x25519"), "{:,.0f}",
    ),
    "resumed": ("resumed ones", BESIDE, lambda s, n: s.handshakes(n, "resumed", "x25519"), "{:,.0f}"),
    "full-pq": (
        "full ones with post-quantum key exchange", ("kirsch",), lambda s, n: s.handshakes(n, "full", "all"), "{:,.0f}",
    ),
    "resumed-pq": (
        "resumed ones with post-quantum key exchange", ("kirsch",),
        lambda s, n: s.handshakes(n, "resumed", "all"), "{:,.0f}",
    ),
    "1m": ("a file of 1 MiB, ms", FRONTS, lambda s, n: s.file(n, "https", "1m"), "{:.2f}"),
    "100m": ("a file of 100 MiB, ms", FRONTS, lambda s, n: s.file(n, "https", "100m"), "{:.0f}"),
    "1m-clear": ("a file of 1 MiB without TLS, ms", FRONTS, lambda s, n: s.file(n, "http", "1m"), "{:.2f}"),
    "100m-clear": ("a file of 100 MiB without TLS, ms", FRONTS, lambda s, n: s.file(n, "http", "100m"), "{:.0f}"),
    "held": ("memory of an idle connection, KiB", BESIDE, Servers.held, "{:.1f}"),
}  # fmt: skip


Chosen = TypeVar("Chosen", bound=Servers)


@contextlib.contextmanager
def serving(given: argparse.Namespace, kind: type[Chosen]) -> Iterator[Chosen]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "app.py").write_text(APP)
        (folder / "public").mkdir()
        for file, size in FILES.items():
            (folder / "public" / file).write_bytes(os.urandom(size))
        subprocess.run(  # noqa: S603
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
            f"-addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -keyout {name}/key.pem "
            f"-out {name}/cert.pem".split(),
            check=True, capture_output=True,
        )  # fmt: skip
        servers = kind(folder, given, stack)
        servers.start()
        yield servers


def main() -> None:
    """Measure the rows, and print them as a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all if there is none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--held", type=int, default=10000, help="the connections for the memory of one")
    parser.add_argument("--kirsch", default=f"{sys.executable} -m kirsch")
    parser.add_argument("--client", default="target/release/examples/client", help="crates/tls/examples/client.rs")
    parser.add_argument("--peers", default=".venvs/tls-peers/bin", help="the directory of granian and hypercorn")
    given = parser.parse_args()
    termination.end_servers_on_sigterm()
    given.client, given.peers = os.path.abspath(given.client), os.path.abspath(given.peers)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    rows = given.rows or list(ROWS)
    with serving(given, Servers) as servers:
        for at in range(given.rounds):
            for row in rows:
                _, names, measure, _ = ROWS[row]
                for name in names if row != "held" or at == 0 else ():
                    figures[row, name].append(measure(servers, name))
                    sys.stderr.write(f"{row} {name} {figures[row, name][-1]:.2f}\n")
    columns = list(dict.fromkeys(name for row in rows for name in ROWS[row][1]))
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f}\n\n| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}\n")
    for row in rows:
        title, _, _, form = ROWS[row]
        found = [figures.get((row, name)) for name in columns]
        cells = [form.format(statistics.median(each)) if each else "" for each in found]
        sys.stdout.write(f"| {title} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
