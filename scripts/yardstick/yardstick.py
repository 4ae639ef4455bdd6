#!/usr/bin/env python3
r"""Measure HTTP servers side by side against the floor, a bare epoll loop in C.

    scripts/yardstick/yardstick.py --scenario ka,chrome --server 'kirsch=kirsch {app} --bind 127.0.0.1:{port}' \
        --peers .venvs/peers --only bjoern,fastpysgi,granian

Each server is one process group that is pinned to one processor; wrk is pinned to another. The servers take turns,
round after round, so that a machine that drifts touches all alike. The figure to quote is `cpu`, microseconds of
processor time (user and system, the whole process group) for each answered request, and `x floor`, the same as a
multiple of the floor's in this very run. In the scenarios `ws` and `ws-16k` a request is a message of a WebSocket, sent
back; echoes.c is the client there. Requests a second depend on wrk's share of the machine too: quote them as a
ratio only.

In a command, {app} is yardstick_apps:NAME (the file beside this one, on PYTHONPATH), {name} is NAME and {port} the
port. Needs wrk, taskset, a C compiler, Python 3.10 or newer, and two processors.

Exit status: 0, 1 if a server did not start or gave no answer, 2 if the command line is wrong or a program is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

# Name: the application, and arguments of wrk; for WebSockets those of echoes.
SCENARIOS: dict[str, tuple[str, list[str]]] = {
    "ka": ("hello", []),
    "chrome": ("hello", ["-s", "chrome.lua"]),
    "mixed": ("hello", ["-s", "mixed.lua"]),
    "close": ("hello", ["-s", "close.lua"]),
    "pipe16": ("hello", ["-s", "pipe16.lua"]),
    "post8k": ("echo", ["-s", "post8k.lua"]),
    "large": ("large", []),
    "stream": ("stream", []),
    "slow100": ("slow", ["-c100"]),
    "slow1000": ("slow", ["-c1000"]),
    "slowmix": ("slowmix", ["-s", "slowmix.lua"]),
    "asgi": ("asgi", []),
    "asgi-chrome": ("asgi", ["-s", "chrome.lua"]),
    "asgi-post8k": ("asgi_echo", ["-s", "post8k.lua"]),
    "ws": ("ws_echo", ["125"]),
    "ws-16k": ("ws_echo", ["16384"]),
}

INTERFACES = {"asgi": "asgi", "asgi-chrome": "asgi", "asgi-post8k": "asgi", "ws": "ws", "ws-16k": "ws"}
"""The interface that a scenario needs; WSGI if it is not listed."""

FLOOR_BODY = {"large": 100_000, "stream": 100_000}
"""Bytes of body that the floor sends where responses are large, so that it pays for the same copying."""

ASGI_PEERS = frozenset({"granian-asgi", "uvicorn"})
WS_PEERS = frozenset({"granian-ws", "picows", "uvicorn-websockets", "uvicorn-wsproto"})
"""Without --only a peer takes part in the scenarios that it can serve."""

_START_SECONDS = 30.0
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


class YardstickError(Exception):
    """A mistake in the command line, or a program that this machine lacks, in one line."""


def peers(venv: str) -> dict[str, str]:
    """Commands of the servers that a user would pick instead, from a virtual environment that has them."""
    bin_ = shlex.quote(f"{os.path.abspath(venv)}/bin")
    at = "127.0.0.1"
    granian = f"{bin_}/granian --workers 1 --http 1 --no-ws --host {at} --port {{port}}"
    gunicorn = f"{bin_}/gunicorn -w 1 -b {at}:{{port}}"
    uvicorn = f"{bin_}/uvicorn --host {at} --port {{port}} --no-access-log"

    def run(code: str) -> str:
        return f"{bin_}/python -c {shlex.quote(code)}"

    def cheroot(threads: int) -> str:
        return run(
            "import yardstick_apps as a; from cheroot.wsgi import Server; "
            f"Server(('{at}', {{port}}), a.{{name}}, numthreads={threads}).start()"
        )

    return {
        "fastpysgi": run(f"import fastpysgi, yardstick_apps as a; fastpysgi.run(a.{{name}}, '{at}', {{port}})"),
        "bjoern": run(f"import bjoern, yardstick_apps as a; bjoern.run(a.{{name}}, '{at}', {{port}})"),
        "granian": f"{granian} --interface wsgi --blocking-threads 1 {{app}}",
        "granian-threads": f"{granian} --interface wsgi --blocking-threads 100 {{app}}",
        "granian-asgi": f"{granian} --interface asgi {{app}}",
        "granian-ws": f"{granian.replace(' --no-ws', '')} --interface asgi {{app}}",
        "uvicorn": f"{uvicorn} {{app}}",
        "uvicorn-websockets": f"{uvicorn} --ws websockets --ws-per-message-deflate false {{app}}",
        "uvicorn-wsproto": f"{uvicorn} --ws wsproto --ws-per-message-deflate false {{app}}",
        "picows": run("import yardstick_apps as a; a.picows_echo({port})"),
        "gunicorn": f"{gunicorn} {{app}}",
        "gunicorn-gthread": f"{gunicorn} -k gthread --threads 100 {{app}}",
        "gunicorn-gevent": f"{gunicorn} -k gevent {{app}}",
        "uwsgi": f"{bin_}/uwsgi --http11-socket {at}:{{port}} --master --processes 1 --disable-logging "
        "--module {app}",
        "cheroot": cheroot(10),
        "cheroot-100": cheroot(100),
        "waitress": f"{bin_}/waitress-serve --host {at} --port {{port}} {{app}}",
        "gevent": run(
            "from gevent import monkey; monkey.patch_all(); import yardstick_apps as a; "
            "from gevent.pywsgi import WSGIServer; "
            f"WSGIServer(('{at}', {{port}}), a.{{name}}, log=None).serve_forever()"
        ),
        "eventlet": run(
            "import eventlet; eventlet.monkey_patch(); import yardstick_apps as a, eventlet.wsgi; "
            f"eventlet.wsgi.server(eventlet.listen(('{at}', {{port}})), a.{{name}}, log_output=False)"
        ),
        "wsgiref": run(
            "import yardstick_apps as a, wsgiref.simple_server as s; "
            "s.WSGIRequestHandler.log_message = lambda *args: None; "
            f"s.make_server('{at}', {{port}}, a.{{name}}).serve_forever()"
        ),
        "twisted": run(
            "from twisted.web import server, wsgi; from twisted.internet import reactor; import yardstick_apps as a; "
            "site = server.Site(wsgi.WSGIResource(reactor, reactor.getThreadPool(), a.{name})); "
            f"reactor.listenTCP({{port}}, site, interface='{at}'); reactor.run()"
        ),
    }


@dataclass
class Server:
    """One server: how it is started, and what each round measured."""

    name: str
    command: str
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    rate: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Microseconds for each request."""
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    rss_mib: float = 0.0
    errors: str = ""
    """The report of wrk."""

    def start(self, app: str, processor: str) -> bool:
        """Whether it listens within ``_START_SECONDS``."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = self.command
        for name, value in (("port", str(self.port)), ("name", app), ("app", f"yardstick_apps:{app}")):
            command = command.replace(f"{{{name}}}", value)
        self.process = subprocess.Popen(  # noqa: S603 - whatever the caller names
            ["taskset", "-c", processor, *shlex.split(command)],  # noqa: S607
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> None:
        """Kill it with all that it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def usage(self) -> tuple[float, float]:
        """Processor seconds and resident MiB of the process group (proc(5))."""
        assert self.process is not None
        ticks = pages = 0
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    fields = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                    if int(fields[2]) == self.process.pid:
                        ticks += int(fields[11]) + int(fields[12])
                        pages += int(fields[21])
        return ticks / _TICK, pages * _PAGE_MIB

    def row(self, floor: float | None) -> dict[str, Any]:
        """Its medians; ``x_floor`` None without a floor."""
        median = statistics.median
        cpu = median(self.cpu)
        return {
            "server": self.name,
            "rate": round(median(self.rate)),
            "rate_min": round(min(self.rate)),
            "rate_max": round(max(self.rate)),
            "cpu_us": round(cpu, 3) if math.isfinite(cpu) else None,
            "x_floor": round(cpu / floor, 3) if floor and math.isfinite(cpu) else None,
            "p50_ms": round(median(self.p50) * 1e3, 3) if self.p50 else None,
            "p99_ms": round(median(self.p99) * 1e3, 3) if self.p99 else None,
            "rss_mib": round(self.rss_mib, 1),
            "errors": self.errors,
        }


def load(server: Server, extra: list[str], args: argparse.Namespace, seconds: int, echoes: str) -> str:
    """Run wrk, or ``echoes``, once; returns what it printed, and adds the processor time to the server's."""
    if echoes:
        command = [echoes, str(server.port), str(args.connections), str(seconds), *extra]
    else:
        scripts = [str(HERE / "wrk" / each) if each.endswith(".lua") else each for each in extra]
        command = ["wrk", "-t1", f"-c{args.connections}", f"-d{seconds}s", "--latency", "--timeout", "10s", *scripts]
        command.append(f"http://127.0.0.1:{server.port}/")
    before, _ = server.usage()
    printed = subprocess.run(  # noqa: S603 - the arguments are ours
        ["taskset", "-c", args.client_cpu, *command],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    ).stdout
    after, server.rss_mib = server.usage()
    done = re.search(r"(\d+) requests in", printed)
    count = int(done[1]) if done else 0
    server.cpu.append((after - before) / count * 1e6 if count else math.inf)
    return printed


def note(server: Server, printed: str) -> None:
    """Read what wrk printed."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    server.rate.append(float(rate[1]) if rate else 0.0)
    for values, at in ((server.p50, "50"), (server.p99, "99")):
        found = re.search(rf"^\s+{at}%\s+([\d.]+)(us|ms|s|m)", printed, re.MULTILINE)
        if found:
            values.append(float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[found[2]])
    bad = re.findall(r"Socket errors:.*|Non-2xx.*", printed)
    if bad:
        server.errors = "; ".join(bad)


def build(name: str, folder: str) -> str:
    """Compile a program that lies here; returns its path. Raises YardstickError."""
    program = os.path.join(folder, name)
    compiler = shutil.which("cc")
    if compiler is None:
        raise YardstickError(f"cc is missing, which {name}.c is compiled with: apt-get install gcc libc6-dev")
    done = subprocess.run(  # noqa: S603 - the arguments are ours
        [compiler, "-O3", "-o", program, str(HERE / f"{name}.c")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise YardstickError(f"{name}.c does not compile: {done.stderr.strip().splitlines()[-1]}")
    return program


def measure(scenario: str, servers: list[Server], args: argparse.Namespace, echoes: str) -> dict[str, Any]:
    """All rounds of a scenario. The first one warms up and is thrown away."""
    app, extra = SCENARIOS[scenario]
    try:
        absent = [server.name for server in servers if not server.start(app, args.server_cpu)]
        alive = [server for server in servers if server.name not in absent]
        for server in alive:
            load(server, extra, args, 1, echoes)
            server.cpu.clear()
        for _ in range(args.rounds):
            for server in alive:
                note(server, load(server, extra, args, args.seconds, echoes))
    finally:
        for server in servers:
            server.stop()
    floor = next((statistics.median(each.cpu) for each in alive if each.name == "floor"), None)
    rows = [each.row(floor) for each in sorted(alive, key=lambda each: statistics.median(each.cpu))]
    return {"scenario": scenario, "connections": args.connections, "rows": rows, "absent": absent}


def show(result: dict[str, Any], args: argparse.Namespace) -> None:
    """Print the table of a scenario."""
    head = ("server", "cpu us/req", "x floor", "req/s", "min-max", "p50 ms", "p99 ms", "MiB", "errors")
    rows = [
        tuple(
            "-" if value is None else str(value)
            for value in (
                row["server"], row["cpu_us"], row["x_floor"], row["rate"], f"{row['rate_min']}-{row['rate_max']}",
                row["p50_ms"], row["p99_ms"], row["rss_mib"], row["errors"],
            )
        )
        for row in result["rows"]
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(f"\n{result['scenario']}  ({args.connections} connections, {args.rounds} rounds of {args.seconds} s)")  # noqa: T201
    for cells in (head, *rows):
        first, *middle = (
            cell.rjust(width) if column not in (0, len(head) - 1) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        print("  ".join([first, *middle]).rstrip(), flush=True)  # noqa: T201


def interface(peer: str) -> str:
    """Return the interface in which a peer takes part without --only, as in :data:`INTERFACES`."""
    return "asgi" if peer in ASGI_PEERS else "ws" if peer in WS_PEERS else "wsgi"


def commands(args: argparse.Namespace, floor: str) -> dict[str, str]:
    """The servers by name. Raises YardstickError."""
    found = {} if args.no_floor else {"floor": f"{shlex.quote(floor)} {{port}}"}
    for item in args.server:
        name, equals, command = item.partition("=")
        if not equals or not command:
            raise YardstickError(f"--server {item}: write NAME=COMMAND")
        found[name] = command
    if args.peers:
        if not os.path.exists(f"{args.peers}/bin/python"):
            raise YardstickError(f"--peers {args.peers}: there is no virtual environment; make bench-peers makes one")
        known = peers(args.peers)
        wanted = args.only.split(",") if args.only else list(known)
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise YardstickError(f"--only {unknown[0]}: there are {', '.join(known)}")
        found |= {name: known[name] for name in wanted}
    if not found:
        raise YardstickError("no server: name one with --server NAME=COMMAND")
    return found


def parse() -> argparse.Namespace:
    """The command line. Raises YardstickError."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="ka", help=f"names with commas between: {', '.join(SCENARIOS)}")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--peers", metavar="VENV", help="a virtual environment that has the peers of peers.txt")
    parser.add_argument("--only", default="", metavar="NAMES", help="these peers alone, with commas between")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each round")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--server-cpu", default="0", help="the servers' processor, as taskset takes it")
    parser.add_argument("--client-cpu", default="1", help="wrk's")
    parser.add_argument("--no-floor", action="store_true")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each scenario")
    args = parser.parse_args()
    for name in args.scenario.split(","):
        if name not in SCENARIOS:
            raise YardstickError(f"--scenario {name}: there are {', '.join(SCENARIOS)}")
    if min(args.rounds, args.seconds, args.connections) < 1:
        raise YardstickError("--rounds, --seconds and --connections are 1 at least")
    for program, package in (("wrk", "wrk"), ("taskset", "util-linux")):
        if shutil.which(program) is None:
            raise YardstickError(f"{program} is missing: apt-get install {package}")
    return args


def main() -> int:
    """Measure, and return the exit status."""
    try:
        args = parse()
        with tempfile.TemporaryDirectory(prefix="kirsch-yardstick-") as folder:
            found = commands(args, "" if args.no_floor else build("floor", folder))
            all_peers = peers(args.peers) if args.peers else {}
            status = 0
            for scenario in args.scenario.split(","):
                is_ws = INTERFACES.get(scenario) == "ws"
                body = f" {FLOOR_BODY[scenario]}" if scenario in FLOOR_BODY else ""
                if is_ws:
                    body = f" messages {SCENARIOS[scenario][1][0]}"
                servers = [
                    Server(name, command + body if name == "floor" else command)
                    for name, command in found.items()
                    if args.only or name not in all_peers or interface(name) == INTERFACES.get(scenario, "wsgi")
                ]
                result = measure(scenario, servers, args, build("echoes", folder) if is_ws else "")
                if args.json:
                    print(json.dumps(result), flush=True)  # noqa: T201
                else:
                    show(result, args)
                for name in result["absent"]:
                    print(f"yardstick: {scenario}: {name} did not start", file=sys.stderr)  # noqa: T201
                if result["absent"] or any(row["cpu_us"] is None for row in result["rows"]):
                    status = 1
            return status
    except YardstickError as error:
        print(f"yardstick: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
