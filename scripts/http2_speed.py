"""Measure HTTP/2: Kirsch beside granian, hypercorn and nginx, and behind nginx.

    make http2-speed                     installs the servers, and builds Kirsch
    scripts/http2_speed.py --help        the options; HTTP2_SPEED_ARGS='--rounds 1 one' passes them to make

The servers and their turns are as in tls_speed.py. h2load is the client, with one connection. Shown are medians of
processor time, user and system, of the whole server with all its processes for each request, and behind them the least
and the most. nginx answers without an application, and speaks HTTP/1.1 with Kirsch behind it.

Needs Linux and two processors, nginx and h2load (tests/system_packages.sh).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
from collections import defaultdict

import termination
import tls_speed

APP = """
BIG = b"x" * (1 << 20)

def app(environ, start_response):
    if environ["PATH_INFO"] == "/upload":
        while environ["wsgi.input"].read(1 << 16):
            pass
    body = BIG if environ["PATH_INFO"] == "/static/1m" else b"Hello, World!"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    if scope["path"] == "/upload":
        while (await receive()).get("more_body"):
            pass
    body = BIG if scope["path"] == "/static/1m" else b"Hello, World!"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""

NGINX = """
daemon off; {user} worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; keepalive_requests 100000000; keepalive_timeout 600s; default_type text/plain;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; client_max_body_size 10m;
    upstream kirsch {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{http}; listen 127.0.0.1:{h2} http2; listen 127.0.0.1:{https} ssl http2;
        ssl_protocols TLSv1.3; ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
        ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
        location = / {{ return 200 "Hello, World!"; }}
        location /static/ {{ alias {folder}/public/; }}
        location /front/ {{
            proxy_pass http://kirsch/; proxy_http_version 1.1;
            proxy_set_header Connection ""; proxy_set_header Host $host;
        }}
    }}
}}
"""

ALL = ("kirsch", "granian", "hypercorn", "nginx", "nginx in front")
# h2load does not take the status line of hypercorn, which has no reason phrase.
HTTP1 = ("kirsch", "granian", "nginx", "nginx in front")

# name: the title, the servers, the port, h2load's options, and the path
ROWS: dict[str, tuple[str, tuple[str, ...], str, str, str]] = {
    "ka": ("HTTP/1.1, one request at a time, µs", HTTP1, "http", "--h1 -m1", "/"),
    "one": ("HTTP/2, 1 stream, µs", ALL, "h2", "-m1", "/"),
    "many": ("32 streams, µs", ALL, "h2", "-m32", "/"),
    "tls-ka": ("HTTP/1.1 with TLS, µs", HTTP1, "https", "--h1 -m1", "/"),
    "tls-one": ("HTTP/2 with TLS, 1 stream, µs", ALL, "https", "-m1", "/"),
    "tls-many": ("with TLS, 32 streams, µs", ALL, "https", "-m32", "/"),
    "ka-1m": ("response of 1 MiB, HTTP/1.1, µs", HTTP1, "http", "--h1 -m1", "/static/1m"),
    "1m": ("response of 1 MiB, HTTP/2, µs", ALL, "h2", "-m1", "/static/1m"),
    "ka-upload": (
        "upload of 1 MiB, HTTP/1.1, µs",
        ("kirsch", "granian", "nginx in front"),
        "http",
        "--h1 -m1 -d",
        "/upload",
    ),
    "upload": (
        "upload of 1 MiB, HTTP/2, µs",
        ("kirsch", "granian", "hypercorn", "nginx in front"),
        "h2",
        "-m1 -d",
        "/upload",
    ),
}


class Servers(tls_speed.Servers):
    """The servers of a run. All but nginx have one port for both versions in clear."""

    def start(self) -> None:
        (self.folder / "both.py").write_text(APP)
        tls = f"{self.folder}/cert.pem {self.folder}/key.pem".split()
        ports = iter(tls_speed.free_ports(9))
        for name in ("kirsch", "granian", "hypercorn"):
            port = next(ports)
            self.ports[name] = {"http": port, "h2": port, "https": next(ports)}
        self.ports["nginx"] = {"http": next(ports), "h2": next(ports), "https": next(ports)}
        http, https = (f"{scheme}://127.0.0.1:{self.ports['kirsch'][scheme]}" for scheme in ("http", "https"))
        self._run(
            "kirsch",
            f"{self.given.kirsch} -w 1 -b {https} -b {http} --certfile {tls[0]} --keyfile {tls[1]} --keep-alive 600 "
            f"--ciphers TLS_AES_128_GCM_SHA256 both:app",
        )
        user = "user root;" if os.geteuid() == 0 else ""
        upstream = self.ports["kirsch"]["http"]
        whole = NGINX.format(user=user, folder=self.folder, upstream=upstream, **self.ports["nginx"])
        (self.folder / "nginx.conf").write_text(whole)
        self._run("nginx", f"nginx -p {self.folder} -e {self.folder}/error.log -c {self.folder}/nginx.conf")
        self.run_peers("both", "auto", tls)
        self.pids["nginx in front"] = self.pids["nginx"] + self.pids["kirsch"]
        self.ports["nginx in front"] = self.ports["nginx"]

    def row(self, name: str, row: str) -> float:
        """Return microseconds for each request."""
        _, _, port, options, path = ROWS[row]
        if name == "nginx in front":
            path = f"/front{path}"
        scheme = "https" if port == "https" else "http"
        words = ["h2load", "-c1", f"-D{self.given.seconds}", *options.split()]
        words += [str(self.folder / "public" / "1m")] if words[-1] == "-d" else []
        before = tls_speed.processor_seconds(self.pids[name])
        printed = self._client([*words, f"{scheme}://localhost:{self.ports[name][port]}{path}"])
        spent = tls_speed.processor_seconds(self.pids[name]) - before
        found = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed", printed)
        if found is None or int(found[2]) == 0 or found[1] != found[2]:
            raise SystemExit(f"{name}, {row}: was not answered as it should be:\n{printed}")
        return spent / int(found[2]) * 1e6


def main() -> None:
    """Measure the rows, and print them as a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all if there is none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--kirsch", default=f"{sys.executable} -m kirsch")
    parser.add_argument("--peers", default=".venvs/tls-peers/bin", help="the directory of granian and hypercorn")
    given = parser.parse_args()
    termination.end_servers_on_sigterm()
    given.peers = os.path.abspath(given.peers)
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    rows = given.rows or list(ROWS)
    with tls_speed.serving(given, Servers) as servers:
        for _ in range(given.rounds):
            for row in rows:
                for name in ROWS[row][1]:
                    figures[row, name].append(servers.row(name, row))
                    sys.stderr.write(f"{row} {name} {figures[row, name][-1]:.1f}\n")
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f}\n\n| | {' | '.join(ALL)} |\n|---|{'---|' * len(ALL)}\n")
    for row in rows:
        found = [figures.get((row, name)) for name in ALL]
        cells = [f"{statistics.median(it):.0f} ({min(it):.0f} to {max(it):.0f})" if it else "" for it in found]
        sys.stdout.write(f"| {ROWS[row][0]} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
